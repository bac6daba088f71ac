//! One level of cache of one package: a set-associative array of line states with true LRU.
//!
//! A set is a row of 32-bit entries (tag and flags, 0 when empty), the most recently used first and the empty ones last.
//! An access moves its entry to the front, the victim is the last: what is used again soon is found at once, and beside
//! the rows nothing is kept. Nothing in here allocates, hashes or fails.

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

/// The highest associativity.
const MAX_WAYS: usize = 16;

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
    set_bits: u32,
}

impl Level {
    /// An empty array.
    ///
    /// # Panics
    /// When `ways` is not 1 to 16, or `sets` is not a power of two.
    pub(super) fn new(sets: usize, ways: usize) -> Level {
        assert!((1..=MAX_WAYS).contains(&ways), "a set of {ways} ways");
        assert!(sets.is_power_of_two(), "{sets} sets cannot be indexed by bits");
        Level { entries: vec![0; sets * ways].into_boxed_slice(), ways, set_bits: sets.trailing_zeros() }
    }

    /// Lines from this number on have no tag: a look-up of one would find another.
    pub(super) fn line_limit(&self) -> u64 {
        1 << (TAG_BITS + self.set_bits)
    }

    /// Looks `line` up and makes it the most recently used of its set. Gives its entry.
    #[inline(always)]
    pub(super) fn touch(&mut self, line: u64) -> Option<&mut u32> {
        let want = self.wanted(line);
        let row = self.set(line);
        if row[0] & !STATE != want {
            let at = place_of(row, want)?;
            to_front(row, at);
        }
        Some(&mut row[0])
    }

    /// Puts `line`, which is not here, in the place of the least recently used one. Gives the entry that had to leave, which
    /// is 0 if there was none; [`Level::held`] tells what it was.
    #[inline]
    pub(super) fn insert(&mut self, line: u64, flags: u32) -> u32 {
        let entry = self.wanted(line) | flags;
        let row = self.set(line);
        debug_assert!(place_of(row, entry & !STATE).is_none(), "line {line:#x} is there already");
        match row.len() {
            2 => shift::<2>(row, entry),
            4 => shift::<4>(row, entry),
            8 => shift::<8>(row, entry),
            16 => shift::<16>(row, entry),
            _ => {
                to_front(row, row.len() - 1);
                std::mem::replace(&mut row[0], entry)
            }
        }
    }

    /// Takes `line` out. Gives its flags if it was here.
    #[inline]
    pub(super) fn remove(&mut self, line: u64) -> Option<u32> {
        let want = self.wanted(line);
        let row = self.set(line);
        let at = place_of(row, want)?;
        let entry = std::mem::replace(&mut row[at], 0);
        row[at..].rotate_left(1);
        Some(entry & STATE)
    }

    /// The entry of `line`, without counting as a use.
    pub(super) fn peek(&mut self, line: u64) -> Option<&mut u32> {
        let want = self.wanted(line);
        let row = self.set(line);
        place_of(row, want).map(|at| &mut row[at])
    }

    /// True when `line` is here; no use is counted.
    pub(super) fn holds(&self, line: u64) -> bool {
        let first = self.set_of(line) as usize * self.ways;
        place_of(&self.entries[first..first + self.ways], self.wanted(line)).is_some()
    }

    /// How many lines are held.
    pub(super) fn len(&self) -> usize {
        self.entries.iter().filter(|&&entry| entry != 0).count()
    }

    /// All lines held.
    pub(super) fn lines(&self) -> impl Iterator<Item = Held> + '_ {
        let rows = self.entries.chunks(self.ways).enumerate();
        let used = rows
            .flat_map(|(set, row)| row.iter().filter(|&&entry| entry != 0).map(move |&entry| (set, entry)));
        used.map(|(set, entry)| self.held(entry, set as u64))
    }

    /// True when the empty entries of every set are its last ones, and no set holds a line twice.
    pub(super) fn is_sound(&self) -> bool {
        self.entries.chunks(self.ways).all(|row| {
            let used = row.iter().position(|&entry| entry == 0).unwrap_or(row.len());
            let tag = |i: usize| row[i] & !STATE;
            row[used..].iter().all(|&entry| entry == 0)
                && (0..used).all(|i| row[i] & VALID != 0 && (0..i).all(|other| tag(other) != tag(i)))
        })
    }

    /// The line of an entry that is, or was, in the set that `line` belongs to.
    #[inline]
    pub(super) fn held(&self, entry: u32, line: u64) -> Held {
        debug_assert!(entry & VALID != 0);
        let set = self.set_of(line);
        Held { line: (u64::from(entry >> FLAG_BITS) << self.set_bits) | set, flags: entry & STATE }
    }

    #[inline]
    fn set_of(&self, line: u64) -> u64 {
        line & ((1 << self.set_bits) - 1)
    }

    /// The entry of `line` without its state.
    #[inline]
    fn wanted(&self, line: u64) -> u32 {
        debug_assert!(line < self.line_limit(), "line {line:#x} lies beyond what this cache can tag");
        ((line >> self.set_bits) as u32) << FLAG_BITS | VALID
    }

    /// The set that `line` belongs to.
    #[inline(always)]
    fn set(&mut self, line: u64) -> &mut [u32] {
        let first = self.set_of(line) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }
}

/// Moves the entry at `at` to the front, and those before it one back.
#[inline(always)]
fn to_front(row: &mut [u32], at: usize) {
    let mut moved = row[at];
    for entry in &mut row[..=at] {
        std::mem::swap(entry, &mut moved);
    }
}

/// Puts `entry` at the front and moves all others one back; the last falls out.
#[inline(always)]
fn shift<const WAYS: usize>(row: &mut [u32], entry: u32) -> u32 {
    let row: &mut [u32; WAYS] = row.try_into().expect("the length was matched");
    let before = *row;
    row[1..].copy_from_slice(&before[..WAYS - 1]);
    row[0] = entry;
    before[WAYS - 1]
}

/// Where the entry for `want` is.
#[inline(always)]
fn place_of(row: &[u32], want: u32) -> Option<usize> {
    // Rows of the usual lengths get loops of known length, which the compiler turns into vector instructions.
    let matches = match row.len() {
        2 => matches::<2>(row, want),
        4 => matches::<4>(row, want),
        8 => matches::<8>(row, want),
        16 => matches::<16>(row, want),
        _ => return row.iter().position(|entry| entry & !STATE == want),
    };
    if matches == 0 { None } else { Some(matches.trailing_zeros() as usize) }
}

/// A bit for each place that holds the entry for `want`.
#[inline(always)]
fn matches<const WAYS: usize>(row: &[u32], want: u32) -> u32 {
    let row: &[u32; WAYS] = row.try_into().expect("the length was matched");
    let mut bits = 0;
    for (way, entry) in row.iter().enumerate() {
        bits |= u32::from(entry & !STATE == want) << way;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What leaves for `line`.
    fn displaced(level: &mut Level, line: u64, flags: u32) -> Option<Held> {
        match level.insert(line, flags) {
            0 => None,
            entry => Some(level.held(entry, line)),
        }
    }

    /// The lines of one set from the most to the least recently used.
    fn order(level: &Level, set: u64) -> Vec<u64> {
        let row = &level.entries[set as usize * level.ways..][..level.ways];
        row.iter().filter(|&&entry| entry != 0).map(|&entry| level.held(entry, set).line).collect()
    }

    #[test]
    fn the_least_recently_used_line_leaves() {
        for ways in [1, 2, 3, 4, 8, 13, 16] {
            let sets = 4;
            let mut level = Level::new(sets, ways);
            let line = |i: usize| (i * sets + 1) as u64;
            for i in 0..ways {
                assert_eq!(displaced(&mut level, line(i), 0), None);
            }
            assert!(level.touch(line(0)).is_some());
            let oldest = line(if ways == 1 { 0 } else { 1 });
            assert_eq!(
                displaced(&mut level, line(ways), DIRTY),
                Some(Held { line: oldest, flags: 0 }),
                "{ways} ways"
            );
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
        assert_eq!(displaced(&mut level, 8, 0), None);
        assert_eq!(displaced(&mut level, 10, 0).map(|held| held.line), Some(0));
    }
}
