//! What is counted of a run that nobody conducts: the same events on both machines, by name.
//!
//! All in atomics: whoever does something counts it, on any CPU. What is counted lies between two marks, which the
//! program sets; without any, from the beginning on. Nothing fails.
//!
//! # A program's own faults
//! A program in ring 3 has an image and a stack, which a closure has not. A fault at these addresses ([`is_own`]), and
//! all that is done about it, is counted apart, and a comparison leaves it out.

use alloc::vec::Vec;
use core::array;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use pageferry_hal::tap::{Event, EventKind};
use pageferry_hal::{Metric, Va};
use pageferry_kernel::metrics;

/// Where images and their data are in ring 3, and where stacks are. What a program maps is elsewhere.
pub const IMAGE: Range<Va> = Va(0x40_0000)..Va(0x200_0000);
/// See [`IMAGE`].
pub const STACK: Range<Va> = Va(0x7fff_ff00_0000)..Va(0x7fff_ff10_0000);

/// Whether an address is of a program's image or of its stack, in ring 3.
pub fn is_own(at: Va) -> bool {
    IMAGE.contains(&at) || STACK.contains(&at)
}

/// Names of the events beside what the kernel counts itself, in the order of their places.
const NAMES: [&str; 14] = [
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
];

const FAULTS: usize = 13;

const PLACES: usize = NAMES.len() + Metric::MAX;

/// Whose an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// What both machines do.
    Shared = 0,
    /// It comes of a fault at an address that only a program in ring 3 has.
    Own = 1,
}

type Table = [AtomicU64; PLACES];

const fn zeros() -> [Table; 2] {
    [const { [const { AtomicU64::new(0) }; PLACES] }; 2]
}

/// Counts.
pub struct Counts {
    now: [Table; 2],
    /// What they were at the first mark, and how many came until the second.
    began: [Table; 2],
    measured: [Table; 2],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts::new()
    }
}

impl Counts {
    /// All zero.
    pub const fn new() -> Counts {
        Counts { now: zeros(), began: zeros(), measured: zeros() }
    }

    /// Counts an event.
    pub fn note(&self, event: &Event, whose: Whose) {
        let add = |place: usize, n| {
            self.now[whose as usize][place].fetch_add(n, Ordering::Relaxed);
        };
        const SHOOTDOWN: u64 = 0;
        let [first, second, ..] = event.words;
        let place = match event.kind {
            EventKind::Flush => first.min(2) as usize,
            EventKind::Activate => 3,
            EventKind::Mapping => 4,
            EventKind::PtStore | EventKind::PtSwap | EventKind::PtReplace => 5,
            EventKind::Send => {
                let sent = u64::from(second.count_ones());
                return add(if first == SHOOTDOWN { 6 } else { 7 }, sent);
            }
            EventKind::CopyIn => 8,
            EventKind::CopyOut => 9,
            EventKind::CopyKernel => 10,
            EventKind::Zero => 11,
            EventKind::ContextSwitch => 12,
            EventKind::Fault => FAULTS,
            EventKind::Count => return add(NAMES.len() + first as usize, second),
            _ => return,
        };
        add(place, 1);
    }

    /// Counts a fault that no call of a machine's has told of: an instruction's, in ring 3.
    pub fn note_fault(&self, whose: Whose) {
        self.now[whose as usize][FAULTS].fetch_add(1, Ordering::Relaxed);
    }

    /// What is measured begins here.
    pub fn begin(&self) {
        for (began, now) in self.began.iter().flatten().zip(self.now.iter().flatten()) {
            began.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// And ends here.
    pub fn end(&self) {
        let places = self.measured.iter().flatten().zip(self.began.iter().flatten());
        for ((measured, began), now) in places.zip(self.now.iter().flatten()) {
            let n = now.load(Ordering::Relaxed) - began.load(Ordering::Relaxed);
            measured.store(n, Ordering::Relaxed);
        }
    }

    fn list(values: [u64; PLACES]) -> Vec<(&'static str, u64)> {
        let kernels = metrics().map(|metric| (metric.name(), values[NAMES.len() + metric.index()]));
        NAMES.into_iter().zip(values).chain(kernels).collect()
    }

    /// All counts since the beginning, by name.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let value = |place: usize| self.now.iter().map(|table| table[place].load(Ordering::Relaxed)).sum();
        Counts::list(array::from_fn(value))
    }

    /// Those of the measured part.
    pub fn measured(&self, whose: Whose) -> Vec<(&'static str, u64)> {
        let table = &self.measured[whose as usize];
        Counts::list(array::from_fn(|place| table[place].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_hal::CpuId;

    #[test]
    fn what_lies_between_the_marks_is_measured() {
        let counts = Counts::new();
        let note = |kind, [first, second]: [u64; 2], whose| {
            counts.note(&Event { cpu: CpuId(0), kind, words: [first, second, 0, 0, 0] }, whose);
        };
        note(EventKind::Flush, [0, 0], Whose::Shared);
        counts.begin();
        note(EventKind::Flush, [0, 0], Whose::Shared);
        note(EventKind::Send, [0, 0b101], Whose::Shared);
        counts.note_fault(Whose::Own);
        note(EventKind::Mapping, [1, IMAGE.start.0], Whose::Own);
        counts.end();
        note(EventKind::Flush, [0, 0], Whose::Shared);
        let value =
            |of: &[(&str, u64)], name| of.iter().find(|(other, _)| *other == name).expect("it is there").1;
        let (shared, own) = (counts.measured(Whose::Shared), counts.measured(Whose::Own));
        let all = counts.all();
        assert_eq!((value(&shared, "page_invalidations"), value(&all, "page_invalidations")), (1, 3));
        assert_eq!((value(&shared, "shootdowns_sent"), value(&shared, "faults")), (2, 0));
        assert_eq!((value(&own, "faults"), value(&own, "mappings_changed")), (1, 1));
    }

    /// What each event is counted as.
    #[test]
    fn events_have_names() {
        let flush = |what: u64| (EventKind::Flush, [what, 0]);
        for ((kind, [first, second]), name, n) in [
            (flush(0), "page_invalidations", 1),
            (flush(1), "space_invalidations", 1),
            (flush(2), "full_invalidations", 1),
            (flush(3), "full_invalidations", 1),
            ((EventKind::Activate, [0, 0]), "root_loads", 1),
            ((EventKind::PtStore, [0, 0]), "table_writes", 1),
            ((EventKind::PtSwap, [0, 0]), "table_writes", 1),
            ((EventKind::PtReplace, [0, 0]), "table_writes", 1),
            ((EventKind::Send, [0, 0b111]), "shootdowns_sent", 3),
            ((EventKind::Send, [1, 0b11]), "reschedules_sent", 2),
            ((EventKind::CopyIn, [0, 0]), "copies_in", 1),
            ((EventKind::CopyOut, [0, 0]), "copies_out", 1),
            ((EventKind::CopyKernel, [0, 0]), "copies_kernel", 1),
            ((EventKind::Zero, [0, 0]), "clears", 1),
            ((EventKind::ContextSwitch, [0, 0]), "context_switches", 1),
            ((EventKind::Fault, [0, 0]), "faults", 1),
        ] {
            let counts = Counts::new();
            counts.note(&Event { cpu: CpuId(0), kind, words: [first, second, 0, 0, 0] }, Whose::Shared);
            let found: Vec<_> = counts.all().into_iter().filter(|(_, n)| *n > 0).collect();
            assert_eq!(found, [(name, n)]);
        }
    }

    #[test]
    fn a_programs_own_addresses_are_those_of_its_image_and_its_stack() {
        let own = [0x40_0000, 0x1ff_ffff, 0x7fff_ff0f_fff8];
        assert!(own.into_iter().all(|at| is_own(Va(at))));
        assert!([0x1000, 0x3f_ffff, 0x200_0000, 0x7fff_ff10_0000].into_iter().all(|at| !is_own(Va(at))));
    }
}
