//! How many map entries cover each slot of an amap: the paper's per-page references (`ppref`).
//!
//! Kept as runs of equal counts, so that an amap that was never split costs one run. When a slot's count falls to zero
//! its anon can be freed at once, though the amap lives on: a partial unmap leaks nothing (UVM paper, 2.1 on what BSD
//! VM lost there). Plain data of the amap, under its lock; cannot fail.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Counts for the slots `0..len`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotRefs {
    len: u64,
    /// First slot of each run, and the count of all its slots. Neighbouring runs differ.
    runs: BTreeMap<u64, u32>,
}

impl SlotRefs {
    /// `len` slots, each covered once.
    ///
    /// # Panics
    /// When `len` is zero.
    pub(crate) fn new(len: u64) -> SlotRefs {
        assert!(len > 0, "an amap has slots");
        SlotRefs { len, runs: BTreeMap::from([(0, 1)]) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The count of `slot`.
    pub(crate) fn of(&self, slot: u64) -> u32 {
        assert!(slot < self.len, "slot {slot} of {}", self.len);
        *self.runs.range(..=slot).next_back().expect("the first run begins at 0").1
    }

    /// The highest count of `slots`.
    pub(crate) fn max_of(&self, slots: Range<u64>) -> u32 {
        let first = self.of(slots.start);
        self.runs.range(slots).map(|(_, &n)| n).fold(first, u32::max)
    }

    /// One more entry covers `slots`.
    ///
    /// # Panics
    /// When a slot has no entry left: what it held is gone.
    pub(crate) fn add(&mut self, slots: Range<u64>) {
        self.cut(&slots);
        for (_, n) in self.runs.range_mut(slots.clone()) {
            assert!(*n > 0, "a slot without entries comes back to life");
            *n = n.checked_add(1).expect("slot reference count overflows");
        }
        self.join(&slots);
    }

    /// One entry less covers `slots`; returns the ranges that none covers any more.
    ///
    /// # Panics
    /// When a slot had none.
    pub(crate) fn remove(&mut self, slots: Range<u64>) -> Vec<Range<u64>> {
        self.cut(&slots);
        let starts: Vec<u64> = self.runs.range(slots.clone()).map(|(&s, _)| s).collect();
        let mut dead = Vec::new();
        for (i, start) in starts.iter().enumerate() {
            let n = self.runs.get_mut(start).expect("just listed");
            assert!(*n > 0, "a slot's entries are counted wrongly");
            *n -= 1;
            if *n == 0 {
                dead.push(*start..starts.get(i + 1).copied().unwrap_or(slots.end));
            }
        }
        self.join(&slots);
        dead
    }

    /// Lets runs begin at both ends of `slots`.
    fn cut(&mut self, slots: &Range<u64>) {
        assert!(slots.start < slots.end && slots.end <= self.len, "slots {slots:?} of {}", self.len);
        for at in [slots.start, slots.end] {
            if at < self.len && !self.runs.contains_key(&at) {
                let n = self.of(at);
                self.runs.insert(at, n);
            }
        }
    }

    /// Joins equal neighbours in and beside `slots`.
    fn join(&mut self, slots: &Range<u64>) {
        let starts: Vec<u64> = self.runs.range(slots.start..=slots.end).map(|(&s, _)| s).collect();
        for start in starts {
            let before = self.runs.range(..start).next_back().map(|(_, &n)| n);
            if before == self.runs.get(&start).copied() {
                self.runs.remove(&start);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]
mod tests {
    use super::*;

    #[test]
    fn partial_references_free_partially() {
        let mut r = SlotRefs::new(10);
        r.add(2..6);
        assert_eq!([1, 2, 5, 6].map(|s| r.of(s)), [1, 2, 2, 1]);
        assert_eq!((r.max_of(0..2), r.max_of(0..10), r.max_of(6..10)), (1, 2, 1));
        assert_eq!(r.remove(0..4), [0..2]);
        assert_eq!(r.remove(4..10), [6..10]);
        assert_eq!(r.remove(2..6), [2..6]);
        assert_eq!(r.runs.len(), 1, "equal neighbours are one run");
        assert_eq!(r.of(9), 0);
    }

    #[test]
    fn agrees_with_an_array() {
        let mut r = SlotRefs::new(24);
        let mut plain = [1u32; 24];
        let mut seed = 12345u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (a, b) = ((seed >> 33) % 24, (seed >> 45) % 24);
            let slots = a.min(b)..a.max(b) + 1;
            let all = &mut plain[slots.start as usize..slots.end as usize];
            if seed >> 63 == 0 && all.iter().all(|&n| n > 0 && n < 9) {
                all.iter_mut().for_each(|n| *n += 1);
                r.add(slots);
            } else if all.iter().all(|&n| n > 1) {
                all.iter_mut().for_each(|n| *n -= 1);
                assert_eq!(r.remove(slots), []);
            }
            assert!((0..24).all(|s| r.of(s) == plain[s as usize]));
            let counts: Vec<u32> = r.runs.values().copied().collect();
            assert!(counts.windows(2).all(|w| w[0] != w[1]), "{counts:?}");
        }
    }

    #[test]
    #[should_panic(expected = "comes back to life")]
    fn a_dead_slot_stays_dead() {
        let mut r = SlotRefs::new(2);
        assert_eq!(r.remove(0..1), [0..1]);
        r.add(0..2);
    }
}
