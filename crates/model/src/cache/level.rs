//! One level of cache of one package: a set-associative array of line states with true LRU.
//!
//! A set is a row of 32-bit entries, the most recently used first, so that the order is the LRU state: a hit moves its
//! entry to the front, an insertion shifts the row and what falls out at the end is the victim. Empty entries are zero
//! and always behind the valid ones. Nothing in here allocates, hashes or fails.

/// The entry holds a line.
const VALID: u32 = 1;
/// The line is newer than what lies behind this level.
pub(super) const DIRTY: u32 = 2;
/// No other package holds the line: it may be written without asking.
pub(super) const UNIQUE: u32 = 4;
const FLAG_BITS: u32 = 3;
const STATE: u32 = DIRTY | UNIQUE;

/// Tags are what an entry has left beside its flags.
const TAG_BITS: u32 = u32::BITS - FLAG_BITS;

/// A line that a level held, with its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) line: u64,
    pub(super) flags: u32,
}

/// The array.
#[derive(Clone, Debug)]
pub(super) struct Level {
    entries: Box<[u32]>,
    ways: usize,
    set_mask: u64,
    set_bits: u32,
}

impl Level {
    /// An empty array.
    ///
    /// # Panics
    /// When `ways` is 0 or `sets` is not a power of two.
    pub(super) fn new(sets: usize, ways: usize) -> Level {
        assert!(ways > 0, "a set has at least one way");
        assert!(sets.is_power_of_two(), "{sets} sets cannot be indexed by bits");
        Level {
            entries: vec![0; sets * ways].into_boxed_slice(),
            ways,
            set_mask: sets as u64 - 1,
            set_bits: sets.trailing_zeros(),
        }
    }

    /// Looks `line` up and makes it the most recently used of its set. Gives its entry.
    #[inline]
    pub(super) fn touch(&mut self, line: u64) -> Option<&mut u32> {
        let want = self.wanted(line);
        let set = self.set(line);
        if set[0] & !STATE == want {
            return Some(&mut set[0]);
        }
        // The usual associativities get loops of known length, which the compiler turns into vector code.
        let hit = match set.len() {
            2 => to_front::<2>(set.try_into().expect("2"), want),
            4 => to_front::<4>(set.try_into().expect("4"), want),
            8 => to_front::<8>(set.try_into().expect("8"), want),
            16 => to_front::<16>(set.try_into().expect("16"), want),
            _ => match set.iter().position(|entry| entry & !STATE == want) {
                Some(at) => {
                    set[..=at].rotate_right(1);
                    true
                }
                None => false,
            },
        };
        if hit { Some(&mut set[0]) } else { None }
    }

    /// Puts `line`, which is not here, in front of its set. Gives what had to leave.
    #[inline]
    pub(super) fn insert(&mut self, line: u64, flags: u32) -> Option<Held> {
        let entry = self.wanted(line) | flags;
        let ways = self.ways;
        let set = self.set(line);
        debug_assert!(
            set.iter().all(|other| other & !STATE != entry & !STATE),
            "line {line:#x} is there already"
        );
        let victim = set[ways - 1];
        match ways {
            2 => push::<2>(set.try_into().expect("2"), entry),
            4 => push::<4>(set.try_into().expect("4"), entry),
            8 => push::<8>(set.try_into().expect("8"), entry),
            16 => push::<16>(set.try_into().expect("16"), entry),
            _ => {
                set.rotate_right(1);
                set[0] = entry;
            }
        }
        (victim != 0).then(|| self.held(victim, line & self.set_mask))
    }

    /// Takes `line` out. Gives its flags if it was here.
    pub(super) fn remove(&mut self, line: u64) -> Option<u32> {
        let want = self.wanted(line);
        let set = self.set(line);
        let at = set.iter().position(|entry| entry & !STATE == want)?;
        let flags = set[at] & STATE;
        set[at..].rotate_left(1);
        set[set.len() - 1] = 0;
        Some(flags)
    }

    /// The entry of `line`, wherever it is in its set, without counting as a use.
    pub(super) fn peek(&mut self, line: u64) -> Option<&mut u32> {
        let want = self.wanted(line);
        self.set(line).iter_mut().find(|entry| **entry & !STATE == want)
    }

    /// All lines held.
    pub(super) fn lines(&self) -> impl Iterator<Item = Held> + '_ {
        self.entries
            .iter()
            .enumerate()
            .filter(|&(_, &entry)| entry != 0)
            .map(|(i, &entry)| self.held(entry, (i / self.ways) as u64))
    }

    /// All lines held in the set that `line` belongs to.
    pub(super) fn lines_of_set(&self, line: u64) -> impl Iterator<Item = Held> + '_ {
        let set = line & self.set_mask;
        let first = set as usize * self.ways;
        let used = self.entries[first..first + self.ways].iter().take_while(|&&entry| entry != 0);
        used.map(move |&entry| self.held(entry, set))
    }

    /// True when no set holds a line twice, nor an empty entry before a valid one.
    pub(super) fn is_sound(&self) -> bool {
        self.entries.chunks(self.ways).all(|set| {
            let used = set.iter().position(|&entry| entry == 0).unwrap_or(set.len());
            set[used..].iter().all(|&entry| entry == 0)
                && (0..used).all(|i| {
                    set[i] & VALID != 0 && set[..i].iter().all(|other| other & !STATE != set[i] & !STATE)
                })
        })
    }

    fn held(&self, entry: u32, set: u64) -> Held {
        debug_assert!(entry & VALID != 0);
        Held { line: (u64::from(entry >> FLAG_BITS) << self.set_bits) | set, flags: entry & STATE }
    }

    /// The entry of `line` without its state.
    #[inline]
    fn wanted(&self, line: u64) -> u32 {
        let tag = line >> self.set_bits;
        // The configuration refuses a memory that needs more; this is against addresses beyond that memory.
        assert!(tag < 1 << TAG_BITS, "line {line:#x} lies beyond what this cache can tag");
        (tag as u32) << FLAG_BITS | VALID
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [u32] {
        let first = (line & self.set_mask) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }
}

/// Moves the entry for `want` to the front, if it is there.
#[inline]
fn to_front<const WAYS: usize>(set: &mut [u32; WAYS], want: u32) -> bool {
    let mut hits = 0u32;
    for (i, entry) in set.iter().enumerate() {
        hits |= u32::from(entry & !STATE == want) << i;
    }
    if hits == 0 {
        return false;
    }
    let at = hits.trailing_zeros() as usize;
    let entry = set[at & (WAYS - 1)];
    for i in (1..WAYS).rev() {
        set[i] = if i <= at { set[i - 1] } else { set[i] };
    }
    set[0] = entry;
    true
}

/// Puts `entry` in front; the last one falls out.
#[inline]
fn push<const WAYS: usize>(set: &mut [u32; WAYS], entry: u32) {
    set.copy_within(0..WAYS - 1, 1);
    set[0] = entry;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of one set from the most to the least recently used.
    fn order(level: &Level, set: u64) -> Vec<u64> {
        level.lines().map(|held| held.line).filter(|line| line & level.set_mask == set).collect()
    }

    #[test]
    fn the_least_recently_used_line_leaves() {
        for ways in [1, 2, 3, 4, 8, 16, 24] {
            let sets = 4;
            let mut level = Level::new(sets, ways);
            let line = |i: usize| (i * sets + 1) as u64;
            for i in 0..ways {
                assert_eq!(level.insert(line(i), 0), None);
            }
            assert!(level.touch(line(0)).is_some());
            let oldest = line(if ways == 1 { 0 } else { 1 });
            assert_eq!(level.insert(line(ways), DIRTY), Some(Held { line: oldest, flags: 0 }), "{ways} ways");
            assert!(level.touch(oldest).is_none());
            assert_eq!(order(&level, 1)[0], line(ways));
            assert!(level.is_sound());
        }
    }

    #[test]
    fn a_touch_keeps_the_order_of_the_others() {
        for ways in [2, 4, 5, 8, 16] {
            let mut level = Level::new(1, ways);
            for line in 0..ways as u64 {
                level.insert(line, 0);
            }
            for touched in 0..ways as u64 {
                let mut expected = order(&level, 0);
                expected.retain(|&line| line != touched);
                expected.insert(0, touched);
                assert!(level.touch(touched).is_some());
                assert_eq!(order(&level, 0), expected);
            }
            let before = order(&level, 0);
            assert!(level.touch(99).is_none());
            assert!(level.peek(before[ways - 1]).is_some());
            assert_eq!(order(&level, 0), before);
        }
    }

    #[test]
    fn removal_leaves_the_room_at_the_end() {
        let mut level = Level::new(2, 4);
        for line in [0, 2, 4, 6] {
            level.insert(line, if line == 4 { DIRTY | UNIQUE } else { 0 });
        }
        assert_eq!(level.remove(4), Some(DIRTY | UNIQUE));
        assert_eq!(level.remove(4), None);
        assert!(level.is_sound());
        assert_eq!(order(&level, 0), [6, 2, 0]);
        assert_eq!(level.insert(8, 0), None);
        assert_eq!(level.insert(10, 0).map(|held| held.line), Some(0));
    }

    #[test]
    #[should_panic(expected = "lies beyond")]
    fn an_address_that_has_no_tag_is_not_mistaken_for_another() {
        Level::new(1, 1).touch(1 << TAG_BITS);
    }
}
