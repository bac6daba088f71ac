//! Doubly linked lists of things that are named by an index: frames, buffers, mappings.
//!
//! The links do not lie in the list but with the things: in a slice of [`Links`], one for each index. So a list is
//! three numbers, many lists share one slice, everything is O(1) but a walk, and nothing is allocated here. An index is
//! on one list of its slice at most: the owner of the slice knows on which, and hands in the slice at each call. A
//! thing that is to be on two lists at once has its links in two slices.
//!
//! The owner's lock guards both. Nothing here can fail but by the owner's mistake, which is a panic or is found by
//! [`IndexList::check`]. Putting in and taking out return the neighbours whose links were written, for owners that
//! account for each write.

/// No index.
const NONE: u32 = u32::MAX;

/// The neighbours of an index on its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Links {
    prev: u32,
    next: u32,
}

impl Links {
    /// Those of an index that is alone on its list, or on none.
    pub const UNLINKED: Links = Links { prev: NONE, next: NONE };

    /// The index before.
    pub const fn prev(self) -> Option<u32> {
        some(self.prev)
    }

    /// The index behind.
    pub const fn next(self) -> Option<u32> {
        some(self.next)
    }
}

impl Default for Links {
    fn default() -> Links {
        Links::UNLINKED
    }
}

/// A list of indices. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexList {
    first: u32,
    last: u32,
    len: u32,
}

impl Default for IndexList {
    fn default() -> IndexList {
        IndexList::new()
    }
}

impl IndexList {
    /// An empty list.
    pub const fn new() -> IndexList {
        IndexList { first: NONE, last: NONE, len: 0 }
    }

    /// Indices on the list.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// True when none is.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first index.
    pub const fn first(&self) -> Option<u32> {
        some(self.first)
    }

    /// The last index.
    pub const fn last(&self) -> Option<u32> {
        some(self.last)
    }

    /// Puts `index`, which is on no list, before all others. Returns its neighbour, the first until now.
    pub fn push_front(&mut self, links: &mut [Links], index: u32) -> Option<u32> {
        let next = self.first;
        self.link(links, index, Links { prev: NONE, next });
        some(next)
    }

    /// Puts `index`, which is on no list, behind all others. Returns its neighbour, the last until now.
    pub fn push_back(&mut self, links: &mut [Links], index: u32) -> Option<u32> {
        let prev = self.last;
        self.link(links, index, Links { prev, next: NONE });
        some(prev)
    }

    /// Takes the first index out.
    pub fn pop_front(&mut self, links: &mut [Links]) -> Option<u32> {
        let first = self.first()?;
        self.remove(links, first);
        Some(first)
    }

    /// Takes the last index out.
    pub fn pop_back(&mut self, links: &mut [Links]) -> Option<u32> {
        let last = self.last()?;
        self.remove(links, last);
        Some(last)
    }

    /// Takes `index` out, which is on this list. Returns its neighbours until now.
    ///
    /// # Panics
    /// When its links cannot be those of an index on this list. (Not every such mistake is seen here.)
    pub fn remove(&mut self, links: &mut [Links], index: u32) -> Links {
        let Links { prev, next } = core::mem::take(&mut links[index as usize]);
        let (before, behind) = self.ends_at(links, prev, next);
        assert!(*before == index && *behind == index, "{index} is not on this list");
        (*before, *behind) = (next, prev);
        self.len -= 1;
        Links { prev, next }
    }

    fn link(&mut self, links: &mut [Links], index: u32, at: Links) {
        debug_assert!(links[index as usize] == Links::UNLINKED, "{index} is on a list");
        let (before, behind) = self.ends_at(links, at.prev, at.next);
        (*before, *behind) = (index, index);
        links[index as usize] = at;
        self.len += 1;
    }

    /// What names the index between `prev` and `next`: the former's link to the next, the latter's to the one before,
    /// or the list itself.
    fn ends_at<'a>(&'a mut self, links: &'a mut [Links], prev: u32, next: u32) -> (&'a mut u32, &'a mut u32) {
        match (prev, next) {
            (NONE, NONE) => (&mut self.first, &mut self.last),
            (NONE, next) => (&mut self.first, &mut links[next as usize].prev),
            (prev, NONE) => (&mut links[prev as usize].next, &mut self.last),
            (prev, next) if prev == next => {
                let Links { prev, next } = &mut links[prev as usize];
                (next, prev)
            }
            (prev, next) => {
                let [before, behind] =
                    links.get_disjoint_mut([prev as usize, next as usize]).expect("two indices of the slice");
                (&mut before.next, &mut behind.prev)
            }
        }
    }

    /// The indices in order.
    pub fn iter<'a>(&self, links: &'a [Links]) -> impl Iterator<Item = u32> + use<'a> {
        core::iter::successors(self.first(), |&index| links[index as usize].next())
    }

    /// Walks the list and returns its length.
    ///
    /// # Errors
    /// What is wrong with it: a link that its neighbour does not return, an end or a length that is not so, a circle.
    pub fn check(&self, links: &[Links]) -> Result<usize, &'static str> {
        let (mut len, mut before) = (0, NONE);
        for index in self.iter(links) {
            if links[index as usize].prev != before {
                return Err("a list is linked wrongly");
            }
            len += 1;
            if len > links.len() {
                return Err("a list is a circle");
            }
            before = index;
        }
        if self.last != before || self.len() != len {
            return Err("a list ends or counts wrongly");
        }
        Ok(len)
    }
}

const fn some(index: u32) -> Option<u32> {
    if index == NONE { None } else { Some(index) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn agrees_with_deques() {
        let mut links = vec![Links::UNLINKED; 12];
        let (mut lists, mut plain) = ([IndexList::new(); 2], [VecDeque::new(), VecDeque::new()]);
        let mut seed = 7u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (index, which) = ((seed >> 33) as u32 % 12, (seed >> 60) as usize & 1);
            let is_on_the_other = plain[1 - which].contains(&index);
            let (list, deque) = (&mut lists[which], &mut plain[which]);
            if let Some(at) = deque.iter().position(|&i| i == index) {
                let neighbour = |at: usize| deque.get(at).copied();
                let (prev, next) = (at.checked_sub(1).and_then(neighbour), neighbour(at + 1));
                let was = list.remove(&mut links, index);
                assert_eq!((was.prev(), was.next()), (prev, next));
                deque.remove(at);
            } else if is_on_the_other {
                assert_eq!(list.pop_front(&mut links), deque.pop_front());
            } else if seed >> 59 & 1 == 0 {
                assert_eq!(list.push_front(&mut links, index), deque.front().copied());
                deque.push_front(index);
            } else {
                assert_eq!(list.push_back(&mut links, index), deque.back().copied());
                deque.push_back(index);
            }
            for (list, deque) in lists.iter().zip(&plain) {
                assert!(list.iter(&links).eq(deque.iter().copied()));
                assert_eq!(list.check(&links), Ok(deque.len()));
                assert_eq!((list.first(), list.last()), (deque.front().copied(), deque.back().copied()));
            }
        }
    }

    fn three() -> (IndexList, Vec<Links>) {
        let (mut list, mut links) = (IndexList::new(), vec![Links::UNLINKED; 4]);
        for index in 0..3 {
            list.push_back(&mut links, index);
        }
        (list, links)
    }

    #[test]
    fn a_list_that_is_wrong_is_found_out() {
        let wrong: [fn(&mut IndexList, &mut [Links]); 5] = [
            |_, links| links[1].prev = 2,
            |_, links| links[2].next = 0,
            |list, _| list.len += 1,
            |list, _| list.last = 1,
            |_, links| (links[0].prev, links[2].next) = (2, 0),
        ];
        for spoil in wrong {
            let (mut list, mut links) = three();
            assert_eq!(list.check(&links), Ok(3));
            spoil(&mut list, &mut links);
            assert!(list.check(&links).is_err());
        }
    }

    #[test]
    #[should_panic(expected = "not on this list")]
    fn only_what_is_on_the_list_is_taken_out() {
        let (mut list, mut links) = three();
        list.remove(&mut links, 3);
    }
}
