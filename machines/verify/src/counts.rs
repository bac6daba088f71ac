//! What is counted of a run that nobody conducts: the same events on both machines, by name.
//!
//! All in atomics: whoever does something counts it, on any CPU. What is counted lies between two marks, which the
//! program sets; without any, from the beginning on. Nothing fails.
//!
//! # A program's own faults
//! A program in ring 3 has an image and a stack, which a closure has not. The faults at these addresses are counted
//! apart, and a comparison leaves them out.

use alloc::vec::Vec;
use core::array;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use pageferry_hal::tap::{Event, EventKind};
use pageferry_hal::{Metric, Va};
use pageferry_kernel::metrics;

/// Where images and their data are, and where stacks are, in ring 3. Mapped memory lies between.
pub const IMAGE: Range<Va> = Va(0x40_0000)..Va(0x400_0000);
/// See [`IMAGE`].
pub const STACK: Range<Va> = Va(0x7fff_ff00_0000)..Va(0x7fff_ff10_0000);

/// Names of the events beside what the kernel counts itself, in the order of their places.
const NAMES: [&str; 16] = [
    "page_invalidations",
    "space_invalidations",
    "full_invalidations",
    "root_loads",
    "mappings_changed",
    "table_writes",
    "shootdowns_sent",
    "reschedules_sent",
    "copies_in",
    "copies_out",
    "copies_kernel",
    "clears",
    "context_switches",
    "faults",
    "faults_image",
    "faults_stack",
];

const FAULTS: usize = 13;
const FAULTS_IMAGE: usize = 14;
const FAULTS_STACK: usize = 15;

const PLACES: usize = NAMES.len() + Metric::MAX;

/// Counts.
pub struct Counts {
    now: [AtomicU64; PLACES],
    /// What they were at the first mark, and how many came until the second.
    began: [AtomicU64; PLACES],
    measured: [AtomicU64; PLACES],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts::new()
    }
}

impl Counts {
    /// All zero.
    pub const fn new() -> Counts {
        Counts {
            now: [const { AtomicU64::new(0) }; PLACES],
            began: [const { AtomicU64::new(0) }; PLACES],
            measured: [const { AtomicU64::new(0) }; PLACES],
        }
    }

    fn add(&self, place: usize, n: u64) {
        self.now[place].fetch_add(n, Ordering::Relaxed);
    }

    /// Counts an event.
    pub fn note(&self, event: &Event) {
        const SHOOTDOWN: u64 = 0;
        let [first, second, ..] = event.words;
        let place = match event.kind {
            EventKind::Flush => first.min(2) as usize,
            EventKind::Activate => 3,
            EventKind::Mapping => 4,
            EventKind::PtStore | EventKind::PtSwap | EventKind::PtReplace => 5,
            EventKind::Send => {
                let sent = u64::from(second.count_ones());
                return self.add(if first == SHOOTDOWN { 6 } else { 7 }, sent);
            }
            EventKind::CopyIn => 8,
            EventKind::CopyOut => 9,
            EventKind::CopyKernel => 10,
            EventKind::Zero => 11,
            EventKind::ContextSwitch => 12,
            EventKind::Fault => return self.note_fault(Va(first)),
            EventKind::Count => return self.add(NAMES.len() + first as usize, second),
            _ => return,
        };
        self.add(place, 1);
    }

    /// Counts a fault.
    pub fn note_fault(&self, at: Va) {
        self.add(FAULTS, 1);
        for (range, place) in [(IMAGE, FAULTS_IMAGE), (STACK, FAULTS_STACK)] {
            if range.contains(&at) {
                self.add(place, 1);
            }
        }
    }

    /// What is measured begins here.
    pub fn begin(&self) {
        for (began, now) in self.began.iter().zip(&self.now) {
            began.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// And ends here.
    pub fn end(&self) {
        for ((measured, began), now) in self.measured.iter().zip(&self.began).zip(&self.now) {
            let n = now.load(Ordering::Relaxed) - began.load(Ordering::Relaxed);
            measured.store(n, Ordering::Relaxed);
        }
    }

    fn list(of: &[AtomicU64; PLACES]) -> Vec<(&'static str, u64)> {
        let values: [u64; PLACES] = array::from_fn(|place| of[place].load(Ordering::Relaxed));
        let kernels = metrics().map(|metric| (metric.name(), values[NAMES.len() + metric.index()]));
        NAMES.into_iter().zip(values).chain(kernels).collect()
    }

    /// All counts since the beginning, by name.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        Counts::list(&self.now)
    }

    /// Those of the measured part.
    pub fn measured(&self) -> Vec<(&'static str, u64)> {
        Counts::list(&self.measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_hal::CpuId;

    #[test]
    fn what_lies_between_the_marks_is_measured() {
        let counts = Counts::new();
        let note = |kind, words: [u64; 2]| {
            counts.note(&Event { cpu: CpuId(0), kind, words: [words[0], words[1], 0, 0, 0] });
        };
        note(EventKind::Flush, [0, 0]);
        counts.begin();
        note(EventKind::Flush, [0, 0]);
        note(EventKind::Send, [0, 0b101]);
        note(EventKind::Fault, [IMAGE.start.0, 0]);
        note(EventKind::Fault, [0x7000_0000, 0]);
        counts.end();
        note(EventKind::Flush, [0, 0]);
        let value =
            |of: &[(&str, u64)], name| of.iter().find(|(other, _)| *other == name).expect("it is there").1;
        let (measured, all) = (counts.measured(), counts.all());
        assert_eq!((value(&measured, "page_invalidations"), value(&all, "page_invalidations")), (1, 3));
        assert_eq!((value(&measured, "shootdowns_sent"), value(&measured, "faults")), (2, 2));
        assert_eq!((value(&measured, "faults_image"), value(&measured, "faults_stack")), (1, 0));
    }
}
