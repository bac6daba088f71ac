//! An ordered tree of ranges that knows its gaps.
//!
//! Holds disjoint ranges of addresses by their start, balanced by height (AVL), so that finding, putting in and taking
//! out take steps that grow as the logarithm. Each node keeps what its subtree spans and the largest gap inside that;
//! both are derived from its children whenever one changes, and lead to a free range without visiting what is too
//! small. Real maps find space the same way: NetBSD's `uvm_map` keeps the gap behind each entry and the largest one of
//! the subtree, Linux's maple tree the largest gap below each slot.
//!
//! The tree belongs to a map and changes under its lock. Nothing here can fail. Each way down calls a `visit` function,
//! node by node: the nodes are structures with addresses, and the caller accounts for them.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use pageferry_hal::{Va, VaRange};

/// Something that takes a range of addresses.
pub(crate) trait Ranged {
    /// The range, not empty. While it is in a tree, only [`Tree::change`] changes it.
    fn range(&self) -> VaRange;
}

/// The two sides of a node, as indices of its children.
const LOW: usize = 0;
const HIGH: usize = 1;

/// Ranges, disjoint and sorted.
pub(crate) struct Tree<T> {
    root: Link<T>,
    len: usize,
}

type Link<T> = Option<Box<Node<T>>>;

struct Node<T> {
    item: T,
    children: [Link<T>; 2],
    /// Nodes on the longest way down, this one counted.
    height: u8,
    /// From the lowest to the highest address of the subtree.
    span: VaRange,
    /// Bytes of the largest gap between two neighbours of the subtree.
    max_gap_bytes: usize,
}

impl<T: Ranged> Node<T> {
    fn new(item: T) -> Box<Node<T>> {
        let span = item.range();
        Box::new(Node { item, children: [None, None], height: 1, span, max_gap_bytes: 0 })
    }

    fn height(&self, side: usize) -> u8 {
        self.children[side].as_ref().map_or(0, |c| c.height)
    }

    /// Where `va` lies: below, in, or above the node's own range.
    fn place(&self, va: Va) -> Ordering {
        let range = self.item.range();
        match va {
            va if va < range.start() => Ordering::Less,
            va if va < range.end() => Ordering::Equal,
            _ => Ordering::Greater,
        }
    }

    /// What lies free between the node's own range and the child at `side`.
    fn gap_beside(&self, side: usize) -> Option<VaRange> {
        let child = self.children[side].as_ref()?;
        let own = self.item.range();
        Some(match side {
            LOW => VaRange::new(child.span.end(), own.start()),
            _ => VaRange::new(own.end(), child.span.start()),
        })
    }

    /// Recomputes what the node keeps of its subtree from its children.
    fn update_summary(&mut self) {
        let own = self.item.range();
        let (mut start, mut end, mut gap_bytes) = (own.start(), own.end(), 0);
        if let Some(low) = &self.children[LOW] {
            gap_bytes = low.max_gap_bytes.max(own.start() - low.span.end());
            start = low.span.start();
        }
        if let Some(high) = &self.children[HIGH] {
            gap_bytes = gap_bytes.max(high.max_gap_bytes).max(high.span.start() - own.end());
            end = high.span.end();
        }
        self.height = 1 + self.height(LOW).max(self.height(HIGH));
        self.span = VaRange::new(start, end);
        self.max_gap_bytes = gap_bytes;
    }
}

/// Lets the child at `side` come up in place of its parent, which becomes its child.
fn rotate<T: Ranged>(node: &mut Box<Node<T>>, side: usize) {
    let mut child = node.children[side].take().expect("the higher side is not empty");
    node.children[side] = child.children[1 - side].take();
    node.update_summary();
    core::mem::swap(node, &mut child);
    node.children[1 - side] = Some(child);
    node.update_summary();
}

/// Brings the summary of a node up to date, one of whose children has changed by one node, and balances it again.
fn rebalance<T: Ranged>(node: &mut Box<Node<T>>) {
    node.update_summary();
    for side in [LOW, HIGH] {
        if node.height(side) > node.height(1 - side) + 1 {
            let child = node.children[side].as_mut().expect("the higher side is not empty");
            if child.height(1 - side) > child.height(side) {
                rotate(child, 1 - side);
            }
            rotate(node, side);
            return;
        }
    }
}

fn insert<T: Ranged>(link: &mut Link<T>, item: T, visit: &mut impl FnMut(&T)) {
    let Some(node) = link else {
        *link = Some(Node::new(item));
        return;
    };
    visit(&node.item);
    let side = if item.range().start() < node.item.range().start() { LOW } else { HIGH };
    insert(&mut node.children[side], item, visit);
    rebalance(node);
}

fn remove<T: Ranged>(link: &mut Link<T>, start: Va, visit: &mut impl FnMut(&T)) -> Option<T> {
    let node = link.as_mut()?;
    visit(&node.item);
    let removed = match node.place(start) {
        Ordering::Less => remove(&mut node.children[LOW], start, visit)?,
        Ordering::Greater => remove(&mut node.children[HIGH], start, visit)?,
        Ordering::Equal if node.item.range().start() != start => return None,
        Ordering::Equal => {
            let mut node = link.take().expect("just seen");
            let [low, mut high] = core::mem::take(&mut node.children);
            *link = match take_lowest(&mut high, visit) {
                None => low,
                Some(mut next) => {
                    next.children = [low, high];
                    Some(next)
                }
            };
            node.item
        }
    };
    if let Some(node) = link {
        rebalance(node);
    }
    Some(removed)
}

fn take_lowest<T: Ranged>(link: &mut Link<T>, visit: &mut impl FnMut(&T)) -> Link<T> {
    let node = link.as_mut()?;
    visit(&node.item);
    let Some(lowest) = take_lowest(&mut node.children[LOW], visit) else {
        let mut lowest = link.take().expect("just seen");
        *link = lowest.children[HIGH].take();
        return Some(lowest);
    };
    rebalance(node);
    Some(lowest)
}

fn change<T: Ranged, R>(link: &mut Link<T>, va: Va, change_item: impl FnOnce(&mut T) -> R) -> Option<R> {
    let node = link.as_mut()?;
    let result = match node.place(va) {
        Ordering::Less => change(&mut node.children[LOW], va, change_item),
        Ordering::Greater => change(&mut node.children[HIGH], va, change_item),
        Ordering::Equal => Some(change_item(&mut node.item)),
    };
    node.update_summary();
    result
}

/// Tests a subtree that is not empty: its height, what it spans, and its largest gap.
fn check<T: Ranged>(node: &Node<T>) -> Result<(u8, VaRange, usize), String> {
    let own = node.item.range();
    let (mut start, mut end, mut gap_bytes, mut heights) = (own.start(), own.end(), 0, [0; 2]);
    for side in [LOW, HIGH] {
        let Some(child) = &node.children[side] else { continue };
        let (height, span, gap) = check(child)?;
        let beside = if side == LOW { (span.end(), own.start()) } else { (own.end(), span.start()) };
        if beside.0 > beside.1 {
            return Err(format!("the tree has {span:?} on the wrong side of {own:?}"));
        }
        heights[side] = height;
        (start, end) = (start.min(span.start()), end.max(span.end()));
        gap_bytes = gap_bytes.max(gap).max(beside.1 - beside.0);
    }
    let height = 1 + heights[LOW].max(heights[HIGH]);
    let span = VaRange::new(start, end);
    if heights[LOW].abs_diff(heights[HIGH]) > 1
        || (node.height, node.span, node.max_gap_bytes) != (height, span, gap_bytes)
    {
        return Err(format!(
            "the tree's node of {own:?} does not know its subtree: {span:?}, {gap_bytes} bytes"
        ));
    }
    Ok((height, span, gap_bytes))
}

impl<T: Ranged> Tree<T> {
    /// Tests that the tree is balanced, and that every node knows what is below it.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.root.as_ref().map_or(Ok(()), |root| check(root).map(|_| ()))
    }

    pub(crate) const fn new() -> Tree<T> {
        Tree { root: None, len: 0 }
    }

    /// Ranges in the tree.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What holds `va`. `visit` sees every node on the way, the one that is found included.
    pub(crate) fn find(&self, va: Va, mut visit: impl FnMut(&T)) -> Option<&T> {
        let mut link = &self.root;
        while let Some(node) = link {
            visit(&node.item);
            link = match node.place(va) {
                Ordering::Less => &node.children[LOW],
                Ordering::Equal => return Some(&node.item),
                Ordering::Greater => &node.children[HIGH],
            };
        }
        None
    }

    /// What holds `va`, to change anything but its range.
    pub(crate) fn find_mut(&mut self, va: Va) -> Option<&mut T> {
        let mut link = &mut self.root;
        while let Some(node) = link {
            link = match node.place(va) {
                Ordering::Less => &mut node.children[LOW],
                Ordering::Equal => return Some(&mut node.item),
                Ordering::Greater => &mut node.children[HIGH],
            };
        }
        None
    }

    /// Puts `item` where nothing is. `visit` sees the nodes whose subtree grows.
    pub(crate) fn insert(&mut self, item: T, mut visit: impl FnMut(&T)) {
        insert(&mut self.root, item, &mut visit);
        self.len += 1;
    }

    /// Takes out what starts at `start`. `visit` sees the nodes whose subtree shrinks.
    pub(crate) fn remove(&mut self, start: Va, mut visit: impl FnMut(&T)) -> Option<T> {
        let removed = remove(&mut self.root, start, &mut visit)?;
        self.len -= 1;
        Some(removed)
    }

    /// Changes what holds `va`; its range, too, but it must still be disjoint from the others.
    pub(crate) fn change<R>(&mut self, va: Va, change_item: impl FnOnce(&mut T) -> R) -> Option<R> {
        change(&mut self.root, va, change_item)
    }

    /// What ends behind `va`, in order.
    pub(crate) fn iter_from(&self, va: Va) -> Iter<'_, T> {
        let mut stack = Vec::new();
        let mut link = &self.root;
        while let Some(node) = link {
            if node.item.range().end() <= va {
                link = &node.children[HIGH];
            } else {
                stack.push(&**node);
                link = &node.children[LOW];
            }
        }
        Iter { stack }
    }

    /// The same, to change anything but the ranges.
    pub(crate) fn iter_mut_from(&mut self, va: Va) -> IterMut<'_, T> {
        let mut stack = Vec::new();
        let mut link = &mut self.root;
        while let Some(node) = link {
            let Node { item, children: [low, high], .. } = &mut **node;
            if item.range().end() <= va {
                link = high;
            } else {
                stack.push((item, high));
                link = low;
            }
        }
        IterMut { stack }
    }

    /// The lowest address in `bounds`, which cover the tree, with `len_bytes` free bytes. `visit` sees the nodes that
    /// are read.
    pub(crate) fn lowest_gap(&self, bounds: VaRange, len_bytes: usize, visit: impl FnMut(&T)) -> Option<Va> {
        self.gap(bounds, len_bytes, LOW, visit).map(|gap| gap.start())
    }

    /// The highest address in `bounds`, which cover the tree, where `len_bytes` free bytes end.
    pub(crate) fn highest_gap_end(
        &self,
        bounds: VaRange,
        len_bytes: usize,
        visit: impl FnMut(&T),
    ) -> Option<Va> {
        self.gap(bounds, len_bytes, HIGH, visit).map(|gap| gap.end())
    }

    /// Of the gaps of at least `len_bytes`, the one that lies outermost at `side`.
    fn gap(
        &self,
        bounds: VaRange,
        len_bytes: usize,
        side: usize,
        mut visit: impl FnMut(&T),
    ) -> Option<VaRange> {
        let Some(root) = &self.root else { return Some(bounds).filter(|b| b.len_bytes() >= len_bytes) };
        visit(&root.item);
        let outside =
            [VaRange::new(bounds.start(), root.span.start()), VaRange::new(root.span.end(), bounds.end())];
        if outside[side].len_bytes() >= len_bytes {
            return Some(outside[side]);
        }
        if root.max_gap_bytes < len_bytes {
            return Some(outside[1 - side]).filter(|b| b.len_bytes() >= len_bytes);
        }
        let mut node = root;
        loop {
            if let Some(outer) = &node.children[side] {
                visit(&outer.item);
                if outer.max_gap_bytes >= len_bytes {
                    node = outer;
                    continue;
                }
            }
            if let Some(inner) = &node.children[1 - side] {
                visit(&inner.item);
            }
            for side in [side, 1 - side] {
                if let Some(gap) = node.gap_beside(side).filter(|gap| gap.len_bytes() >= len_bytes) {
                    return Some(gap);
                }
            }
            node = node.children[1 - side].as_ref().expect("the largest gap of a subtree is in it");
        }
    }
}

/// See [`Tree::iter_from`].
pub(crate) struct Iter<'a, T> {
    /// The next node, on those that come when all that lies below them is through.
    stack: Vec<&'a Node<T>>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        let node = self.stack.pop()?;
        let mut link = &node.children[HIGH];
        while let Some(above) = link {
            self.stack.push(above);
            link = &above.children[LOW];
        }
        Some(&node.item)
    }
}

/// See [`Tree::iter_mut_from`].
pub(crate) struct IterMut<'a, T> {
    /// As in [`Iter`]: a node's item and what lies above it.
    stack: Vec<(&'a mut T, &'a mut Link<T>)>,
}

impl<'a, T> Iterator for IterMut<'a, T> {
    type Item = &'a mut T;

    fn next(&mut self) -> Option<&'a mut T> {
        let (next, mut link) = self.stack.pop()?;
        while let Some(node) = link {
            let Node { item, children: [low, high], .. } = &mut **node;
            self.stack.push((item, high));
            link = low;
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_hal::PAGE_SIZE;
    use proptest::prelude::*;

    impl Ranged for VaRange {
        fn range(&self) -> VaRange {
            *self
        }
    }

    /// Pages that there are.
    const PAGES: u64 = 96;

    fn range(pages: core::ops::Range<u64>) -> VaRange {
        let page = PAGE_SIZE as u64;
        VaRange::new(Va(pages.start * page), Va(pages.end * page))
    }

    /// Says how high the subtree is, having looked at everything that is kept in it.
    fn checked<T: Ranged>(link: &Link<T>) -> u8 {
        let Some(node) = link else { return 0 };
        let heights = node.children.each_ref().map(checked);
        assert!(heights[LOW].abs_diff(heights[HIGH]) <= 1, "not balanced: {heights:?}");
        assert_eq!(node.height, 1 + heights[LOW].max(heights[HIGH]));
        let all: Vec<VaRange> = {
            let mut stack = Vec::new();
            let mut at = link;
            while let Some(node) = at {
                stack.push(&**node);
                at = &node.children[LOW];
            }
            Iter { stack }.map(Ranged::range).collect()
        };
        assert!(all.is_sorted_by(|a, b| a.end() <= b.start()), "not sorted: {all:?}");
        assert_eq!(node.span, VaRange::new(all[0].start(), all[all.len() - 1].end()));
        let gap_bytes = all.windows(2).map(|two| two[1].start() - two[0].end()).max();
        assert_eq!(node.max_gap_bytes, gap_bytes.unwrap_or(0));
        node.height
    }

    /// First fit by looking at every page.
    fn free_runs(used: &[bool], len: usize) -> impl DoubleEndedIterator<Item = u64> {
        (0..=used.len() - len).filter(move |&at| !used[at..at + len].iter().any(|&u| u)).map(|at| at as u64)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Remove(u64),
        Cut(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..PAGES, 1..5_u64).prop_map(|(at, len)| Step::Insert(at, len)),
            2 => (0..PAGES).prop_map(Step::Remove),
            1 => (0..PAGES).prop_map(Step::Cut),
        ]
    }

    fn take(tree: &mut Tree<VaRange>, used: &mut [bool], step: Step) {
        match step {
            Step::Insert(at, len) => {
                let end = (at + len).min(PAGES);
                if !used[at as usize..end as usize].iter().any(|&u| u) {
                    tree.insert(range(at..end), |_| ());
                    used[at as usize..end as usize].fill(true);
                }
            }
            Step::Remove(at) => {
                let va = range(at..at + 1).start();
                let start = tree.find(va, |_| ()).map(|r| r.start());
                assert_eq!(start.is_some(), used[at as usize]);
                if let Some(start) = start {
                    let gone = tree.remove(start, |_| ()).expect("just found");
                    gone.pages().for_each(|page| used[(page.0 as usize) / PAGE_SIZE] = false);
                }
            }
            Step::Cut(at) => {
                let first = range(at..at + 1);
                let cut = |r: &mut VaRange| core::mem::replace(r, VaRange::new(r.start(), first.end()));
                if let Some(old) = tree.change(first.start(), cut) {
                    let gone = VaRange::new(first.end(), old.end());
                    gone.pages().for_each(|page| used[(page.0 as usize) / PAGE_SIZE] = false);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_row_of_pages(steps in prop::collection::vec(step(), 1..120), len in 1..6_usize) {
            let (mut tree, mut used) = (Tree::new(), [false; PAGES as usize]);
            let (bounds, len_bytes) = (range(0..PAGES), len * PAGE_SIZE);
            for step in steps {
                take(&mut tree, &mut used, step);
                checked(&tree.root);
                let lowest = free_runs(&used, len).next().map(|at| range(at..at + 1).start());
                prop_assert_eq!(tree.lowest_gap(bounds, len_bytes, |_| ()), lowest);
                let highest = free_runs(&used, len).next_back().map(|at| range(at..at + len as u64).end());
                prop_assert_eq!(tree.highest_gap_end(bounds, len_bytes, |_| ()), highest);
                prop_assert_eq!(tree.iter_from(Va(0)).count(), tree.len());
                let middle = range(PAGES / 2..PAGES).start();
                let above: Vec<VaRange> = tree.iter_from(middle).copied().collect();
                prop_assert!(above.iter().all(|r| r.end() > middle));
                let again: Vec<VaRange> = tree.iter_mut_from(middle).map(|r| *r).collect();
                prop_assert_eq!(&above, &again);
                let pages: usize = above.iter().map(|r| r.len_pages()).sum();
                let below = above.first().map_or(0, |r| (middle.0.saturating_sub(r.start().0)) as usize / PAGE_SIZE);
                prop_assert_eq!(pages - below, used[PAGES as usize / 2..].iter().filter(|&&u| u).count());
            }
        }
    }

    #[test]
    fn ways_down_are_short() {
        let mut tree = Tree::new();
        let len = 100_000_u64;
        for index in 0..len {
            // A gap of one page between two, but one of three, far up.
            let at = if index <= len * 3 / 4 { 2 * index } else { 2 * index + 2 };
            tree.insert(range(at..at + 1), |_| ());
        }
        assert!(checked_height(&tree) <= 20, "{}", checked_height(&tree));
        let bounds = range(0..2 * len + 1);
        let mut visited = 0;
        let gap = tree.lowest_gap(bounds, 3 * PAGE_SIZE, |_| visited += 1);
        assert_eq!(gap, Some(range(2 * (len * 3 / 4) + 1..PAGES.max(len * 2)).start()));
        assert!(visited <= 2 * 20, "{visited} nodes read");
        assert_eq!(tree.lowest_gap(bounds, 4 * PAGE_SIZE, |_| ()), None);
        let mut visited = 0;
        assert!(tree.find(range(77_776..77_777).start(), |_| visited += 1).is_some());
        assert!(visited <= 20, "{visited} nodes on the way");
    }

    /// What [`Tree::check`] is there for, one by one.
    #[test]
    fn a_tree_that_is_wrong_is_found_out() {
        let wrong: [fn(&mut Node<VaRange>); 5] = [
            |node| node.height += 1,
            |node| node.max_gap_bytes += PAGE_SIZE,
            |node| node.span = VaRange::new(node.span.start(), node.span.end() + PAGE_SIZE),
            |node| node.children.swap(LOW, HIGH),
            |node| node.item = VaRange::new(node.item.start(), node.item.end() + 2 * PAGE_SIZE),
        ];
        for spoil in wrong {
            let mut tree = Tree::new();
            (0..7).for_each(|at| tree.insert(range(2 * at..2 * at + 1), |_| ()));
            assert_eq!(tree.check(), Ok(()));
            spoil(tree.root.as_mut().expect("seven are in it"));
            assert!(tree.check().is_err());
        }
    }

    fn checked_height<T: Ranged>(tree: &Tree<T>) -> u8 {
        tree.root.as_ref().map_or(0, |root| root.height)
    }
}
