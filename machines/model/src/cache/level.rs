//! One level of cache of one package: a set-associative array of line states with true LRU.
//!
//! A set is a row of 32-bit entries (tag and flags, 0 when empty), the most recently used first and the empty ones
//! last. An access moves its entry to the front, the victim is the last: what is used again soon is found at once, and
//! beside the rows nothing is kept. Nothing in here allocates, hashes or fails.

use wide::u32x4;

/// The entry holds a line.
const VALID: u32 = 1;
/// The line is newer than what lies behind this level.
pub(super) const DIRTY: u32 = 2;
/// No other package holds the line: it may be written without asking.
pub(super) const UNIQUE: u32 = 4;
const FLAG_BITS: u32 = 3;
/// The state of a line beside its place.
pub(super) const STATE: u32 = DIRTY | UNIQUE;

/// Tags are what an entry has left beside its flags.
const TAG_BITS: u32 = u32::BITS - FLAG_BITS;

/// The highest associativity.
const MAX_WAYS: usize = 16;

/// A line that a level held, with its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LineState {
    pub(super) line: u64,
    pub(super) flags: u32,
}

/// What a level had of the lines of a run, a bit for each.
pub(super) struct RunLookup {
    /// Lines that it had.
    pub(super) hits: u64,
    /// Lines for which another one left, and for which a dirty one did.
    pub(super) left: u64,
    pub(super) left_dirty: u64,
    /// The flags that all had which it had.
    pub(super) flags: u32,
}

/// What a level had of the lines of a run and gives away, a bit for each.
#[derive(Clone, Copy, Default)]
pub(super) struct SnoopMask {
    /// Lines that it had, and those that were dirty there.
    pub(super) any: u64,
    pub(super) dirty: u64,
}

/// The rows: as wide as the next power of two, so that the work on a row is a loop of known length, which becomes a few
/// vector instructions. What a row has beyond the ways of its level stays empty.
#[derive(Clone, Debug)]
enum Rows {
    One(Box<[[u32; 1]]>),
    Two(Box<[[u32; 2]]>),
    Four(Box<[[u32; 4]]>),
    Eight(Box<[[u32; 8]]>),
    Sixteen(Box<[[u32; 16]]>),
}

/// Does something with all rows, or with one, whatever their width.
macro_rules! with_rows {
    ($rows:expr, $all:ident => $body:expr) => {
        match $rows {
            Rows::One($all) => $body,
            Rows::Two($all) => $body,
            Rows::Four($all) => $body,
            Rows::Eight($all) => $body,
            Rows::Sixteen($all) => $body,
        }
    };
}

/// The array.
#[derive(Clone, Debug)]
pub(super) struct Level {
    rows: Rows,
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
        let rows = match ways.next_power_of_two() {
            1 => Rows::One(vec![[0; 1]; sets].into()),
            2 => Rows::Two(vec![[0; 2]; sets].into()),
            4 => Rows::Four(vec![[0; 4]; sets].into()),
            8 => Rows::Eight(vec![[0; 8]; sets].into()),
            _ => Rows::Sixteen(vec![[0; 16]; sets].into()),
        };
        Level { rows, ways, set_bits: sets.trailing_zeros() }
    }

    /// Lines from this number on have no tag: a look-up of one would find another.
    #[inline(always)]
    pub(super) fn line_limit(&self) -> u64 {
        1 << (TAG_BITS + self.set_bits)
    }

    /// Looks `line` up and makes it the most recently used of its set. Gives its entry.
    #[inline(always)]
    pub(super) fn touch(&mut self, line: u64) -> Option<&mut u32> {
        let want = self.wanted(line);
        with_rows!(&mut self.rows, rows => {
            let row = &mut rows[line as usize & (rows.len() - 1)];
            if row[0] & !STATE != want {
                let at = place_of(row, want)?;
                to_front(row, at);
            }
            Some(&mut row[0])
        })
    }

    /// Puts `line`, which is not here, in the place of the least recently used one. Gives the entry that had to leave,
    /// which is 0 if there was none; [`Level::held`] tells what it was.
    #[inline(always)]
    pub(super) fn insert(&mut self, line: u64, flags: u32) -> u32 {
        let entry = self.wanted(line) | flags;
        let ways = self.ways;
        with_rows!(&mut self.rows, rows => {
            let row = &mut rows[line as usize & (rows.len() - 1)];
            debug_assert!(place_of(row, entry & !STATE).is_none(), "line {line:#x} is there already");
            push(row, ways, entry)
        })
    }

    /// For each of `lines`, by its distance from `line`: makes it the most recently used of its set and gives it the
    /// flags `stored`, or puts it in with `flags`, but for what says that it is unique if it is one of `shared`, and
    /// notes what left for it. All are in one aligned block of no more lines than there are sets.
    #[inline(always)]
    pub(super) fn touch_or_insert(
        &mut self,
        line: u64,
        (lines, shared): (u64, u64),
        (flags, stored): (u32, u32),
        left: &mut [(u32, u64); 64],
    ) -> RunLookup {
        let (want, ways) = (self.wanted(line), self.ways);
        let mut done = RunLookup { hits: 0, left: 0, left_dirty: 0, flags: STATE };
        with_rows!(&mut self.rows, rows => {
            let first = line as usize & (rows.len() - 1);
            let rows = &mut rows[first..];
            let mut wanted = lines;
            while wanted != 0 {
                let at = wanted.trailing_zeros() as usize;
                let bit = wanted & wanted.wrapping_neg();
                wanted ^= bit;
                let row = &mut rows[at];
                if let Some(way) = place_of(row, want) {
                    if way > 0 {
                        to_front(row, way);
                    }
                    done.flags &= row[0];
                    row[0] |= stored;
                    done.hits |= bit;
                } else {
                    let taken = if shared & bit == 0 { flags } else { flags & !UNIQUE };
                    let out = push(row, ways, want | taken);
                    left[at] = (out, line + at as u64);
                    done.left |= if out != 0 { bit } else { 0 };
                    done.left_dirty |= if out & DIRTY != 0 { bit } else { 0 };
                }
            }
        });
        done
    }

    /// Takes back what left the level `above` for `lines` of a run: entries, as noted in `left`, each beside a line of
    /// the set that it was in. What is here becomes the most recently used of its set and is newer than what lies
    /// behind, the rest is put in, and `left` notes what left for that. An exclusive level has nothing of what the
    /// level above had.
    #[inline(always)]
    pub(super) fn take_back(
        &mut self,
        above: u32,
        lines: u64,
        left: &mut [(u32, u64); 64],
        exclusive: bool,
    ) -> RunLookup {
        let (set_bits, ways) = (self.set_bits, self.ways);
        let mut done = RunLookup { hits: 0, left: 0, left_dirty: 0, flags: STATE };
        with_rows!(&mut self.rows, rows => {
            let mut wanted = lines;
            while wanted != 0 {
                let at = wanted.trailing_zeros() as usize;
                let bit = wanted & wanted.wrapping_neg();
                wanted ^= bit;
                let victim = held(left[at].0, left[at].1, above);
                let want = tag(victim.line, set_bits);
                let row = &mut rows[victim.line as usize & (rows.len() - 1)];
                let way = if exclusive { None } else { place_of(row, want) };
                if let Some(way) = way {
                    to_front(row, way);
                    row[0] |= STATE;
                    done.hits |= bit;
                } else {
                    let out = push(row, ways, want | victim.flags);
                    left[at] = (out, victim.line);
                    done.left |= if out != 0 { bit } else { 0 };
                    done.left_dirty |= if out & DIRTY != 0 { bit } else { 0 };
                }
            }
        });
        done
    }

    /// The bits of a line's number that say which set it belongs to.
    pub(super) fn set_bits(&self) -> u32 {
        self.set_bits
    }

    /// How many sets there are.
    pub(super) fn sets(&self) -> usize {
        1 << self.set_bits
    }

    /// Takes `line` out. Gives its flags if it was here.
    #[inline]
    pub(super) fn remove(&mut self, line: u64) -> Option<u32> {
        let want = self.wanted(line);
        with_rows!(&mut self.rows, rows => {
            let row = &mut rows[line as usize & (rows.len() - 1)];
            let at = place_of(row, want)?;
            Some(close(row, at) & STATE)
        })
    }

    /// Another package wants `lines` of a run, by their distance from `line`: to store, and then they are taken out; or
    /// to load, and then they are clean and shared.
    pub(super) fn give(&mut self, line: u64, lines: u64, write: bool) -> SnoopMask {
        let mut dirty = 0;
        let any = self.each_here(line, lines, |bit, entry| {
            dirty |= if *entry & DIRTY != 0 { bit } else { 0 };
            *entry &= !STATE;
            !write
        });
        SnoopMask { any, dirty }
    }

    /// Takes those of `lines` out that are here, by their distance from `line`. Gives what it had, and which of these
    /// other packages may hold, too.
    #[inline(always)]
    pub(super) fn take_out(&mut self, line: u64, lines: u64) -> (SnoopMask, u64) {
        let (mut shared, mut dirty) = (0, 0);
        let any = self.each_here(line, lines, |bit, entry| {
            shared |= if *entry & UNIQUE == 0 { bit } else { 0 };
            dirty |= if *entry & DIRTY != 0 { bit } else { 0 };
            false
        });
        (SnoopMask { any, dirty }, shared)
    }

    /// Those of `lines` that are here and that other packages may hold, too.
    pub(super) fn shared(&mut self, line: u64, lines: u64) -> u64 {
        let mut shared = 0;
        self.each_here(line, lines, |bit, entry| {
            shared |= if *entry & UNIQUE == 0 { bit } else { 0 };
            true
        });
        shared
    }

    /// Sets and clears flags of those of `lines` that are here. Gives which these are.
    #[inline(always)]
    pub(super) fn flag(&mut self, line: u64, lines: u64, (set, clear): (u32, u32)) -> u64 {
        self.each_here(line, lines, |_, entry| {
            *entry = (*entry | set) & !clear;
            true
        })
    }

    /// Shows the entries of those of `lines` that are here, by their distance from `line`, to `visit`, with the line's
    /// bit; what it says no to is taken out. Gives which these are. No use is counted.
    #[inline(always)]
    fn each_here(&mut self, line: u64, lines: u64, mut visit: impl FnMut(u64, &mut u32) -> bool) -> u64 {
        let want = self.wanted(line);
        let mut here = 0;
        with_rows!(&mut self.rows, rows => {
            let first = line as usize & (rows.len() - 1);
            let rows = &mut rows[first..];
            let mut wanted = lines;
            while wanted != 0 {
                let at = wanted.trailing_zeros() as usize;
                let bit = wanted & wanted.wrapping_neg();
                wanted ^= bit;
                let row = &mut rows[at];
                let Some(way) = place_of(row, want) else { continue };
                here |= bit;
                if !visit(bit, &mut row[way]) {
                    close(row, way);
                }
            }
        });
        here
    }
    /// The entry of `line`, without counting as a use.
    pub(super) fn peek(&mut self, line: u64) -> Option<&mut u32> {
        let want = self.wanted(line);
        with_rows!(&mut self.rows, rows => {
            let row = &mut rows[line as usize & (rows.len() - 1)];
            place_of(row, want).map(|at| &mut row[at])
        })
    }

    /// True when `line` is here; no use is counted.
    pub(super) fn holds(&self, line: u64) -> bool {
        let want = self.wanted(line);
        with_rows!(&self.rows, rows => place_of(&rows[line as usize & (rows.len() - 1)], want).is_some())
    }

    /// Shows every line held to `visit`; gives how many there are.
    ///
    /// # Errors
    /// What is wrong with a set: its empty entries are not its last ones, or it holds a line twice. What `visit` says.
    pub(super) fn check<E: From<&'static str>>(
        &self,
        mut visit: impl FnMut(LineState) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut held = 0;
        with_rows!(&self.rows, rows => {
            for (set, row) in rows.iter().enumerate() {
                let Some(used) = in_order(row, self.ways) else {
                    return Err("a set is out of order".into());
                };
                row[..used].iter().try_for_each(|&entry| visit(self.held(entry, set as u64)))?;
                held += used as u64;
            }
        });
        Ok(held)
    }

    /// All entries, and how many make a row.
    #[cfg(test)]
    fn entries(&self) -> (&[u32], usize) {
        with_rows!(&self.rows, rows => (rows.as_flattened(), rows[0].len()))
    }

    /// The line of an entry that is, or was, in the set that `line` belongs to.
    #[inline(always)]
    pub(super) fn held(&self, entry: u32, line: u64) -> LineState {
        held(entry, line, self.set_bits)
    }

    /// The entry of `line` without its state.
    #[inline(always)]
    fn wanted(&self, line: u64) -> u32 {
        debug_assert!(line < self.line_limit(), "line {line:#x} lies beyond what this cache can tag");
        tag(line, self.set_bits)
    }
}

/// The line of an entry in the set that `line` belongs to, where so many bits say which that is.
#[inline(always)]
fn held(entry: u32, line: u64, set_bits: u32) -> LineState {
    debug_assert!(entry & VALID != 0);
    let set = line & ((1 << set_bits) - 1);
    LineState { line: (u64::from(entry >> FLAG_BITS) << set_bits) | set, flags: entry & STATE }
}

/// The entry of `line` without its state, where so many bits say which set it belongs to.
#[inline(always)]
fn tag(line: u64, set_bits: u32) -> u32 {
    ((line >> set_bits) as u32) << FLAG_BITS | VALID
}

/// Moves the entry at `at` to the front, and those before it one back.
#[inline(always)]
fn to_front<const WAYS: usize>(row: &mut [u32; WAYS], at: usize) {
    let before = *row;
    let mut moved = before;
    moved[1..].copy_from_slice(&before[..WAYS - 1]);
    moved[0] = before[at];
    // As wide as the entries: then whole vectors are compared and chosen from.
    let last = at as i32;
    for way in 0..WAYS {
        row[way] = if way as i32 <= last { moved[way] } else { before[way] };
    }
}

/// Puts `entry` at the front of a row of so many ways and moves all others one back; the last falls out.
#[inline(always)]
fn push<const WAYS: usize>(row: &mut [u32; WAYS], ways: usize, entry: u32) -> u32 {
    let before = *row;
    row[1..].copy_from_slice(&before[..WAYS - 1]);
    row[0] = entry;
    if ways == WAYS {
        return before[WAYS - 1];
    }
    std::mem::take(&mut row[ways])
}

/// Takes the entry at `at` out, and moves those behind it up.
#[inline(always)]
fn close<const WAYS: usize>(row: &mut [u32; WAYS], at: usize) -> u32 {
    let before = *row;
    for way in 0..WAYS {
        let next = if way + 1 < WAYS { before[way + 1] } else { 0 };
        row[way] = if way < at { before[way] } else { next };
    }
    before[at]
}

/// Where the entry for `want` is.
#[inline(always)]
fn place_of<const WAYS: usize>(row: &[u32; WAYS], want: u32) -> Option<usize> {
    let (quads, rest) = row.as_chunks::<4>();
    let same = |quad: &[u32; 4]| (u32x4::new(*quad) & u32x4::splat(!STATE)).simd_eq(u32x4::splat(want));
    // Most look-ups in a wide row find nothing: that takes one test.
    if quads.len() > 1 && quads.iter().fold(u32x4::ZERO, |any, quad| any | same(quad)).to_bitmask() == 0 {
        return None;
    }
    let mut found = 0;
    for (i, quad) in quads.iter().enumerate() {
        found |= same(quad).to_bitmask() << (4 * i);
    }
    for (way, entry) in rest.iter().enumerate() {
        found |= u32::from(entry & !STATE == want) << way;
    }
    if found == 0 { None } else { Some(found.trailing_zeros() as usize) }
}

/// How many entries of a row are in use, if they are as they should be: see [`Level::check`].
fn in_order<const WAYS: usize>(row: &[u32; WAYS], ways: usize) -> Option<usize> {
    if row.iter().fold(0, |all, entry| all | entry) == 0 {
        return Some(0);
    }
    let used = row.iter().position(|&entry| entry == 0).unwrap_or(WAYS);
    let is_once = |at: usize| row[at] & VALID != 0 && place_of(row, row[at] & !STATE) == Some(at);
    let sound = used <= ways && row[used..].iter().all(|&entry| entry == 0) && (0..used).all(is_once);
    sound.then_some(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What leaves for `line`.
    fn displaced(level: &mut Level, line: u64, flags: u32) -> Option<LineState> {
        match level.insert(line, flags) {
            0 => None,
            entry => Some(level.held(entry, line)),
        }
    }

    fn is_sound(level: &Level) -> bool {
        level.check(|_| Ok::<(), &str>(())).is_ok()
    }

    /// The lines of one set from the most to the least recently used.
    fn order(level: &Level, set: u64) -> Vec<u64> {
        let (all, width) = level.entries();
        let row = &all[set as usize * width..][..width];
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
                Some(LineState { line: oldest, flags: 0 }),
                "{ways} ways"
            );
            assert!(level.touch(oldest).is_none());
            assert_eq!(order(&level, 1)[0], line(ways));
            assert!(is_sound(&level));
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
        assert!(is_sound(&level));
        assert_eq!(order(&level, 0), [6, 2, 0]);
        assert_eq!(displaced(&mut level, 8, 0), None);
        assert_eq!(displaced(&mut level, 10, 0).map(|held| held.line), Some(0));
    }
}
