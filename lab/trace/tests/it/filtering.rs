//! A filtered trace misses where the full one does.

use crate::common::{Reference, crowded, program, recorded};
use pageferry_trace::{Kind, Reader, Rules};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Sets of tags in the order of last use, with a mark for what was stored to.
#[derive(Clone, PartialEq, Debug)]
struct Model {
    ways: usize,
    sets: Vec<Vec<(u64, bool)>>,
    /// Of a TLB, the pages that were ever stored to: page tables know them, and an entry comes with their mark.
    modified: Option<BTreeSet<u64>>,
    misses: u64,
    /// Marked entries that were replaced or flushed.
    written_back: u64,
    /// Entries that were marked.
    marked: u64,
}

impl Model {
    fn new(sets: usize, ways: usize, modified: Option<BTreeSet<u64>>) -> Model {
        Model { ways, sets: vec![Vec::new(); sets], modified, misses: 0, written_back: 0, marked: 0 }
    }

    fn refer(&mut self, tag: u64, store: bool) {
        let at = tag as usize % self.sets.len();
        let set = &mut self.sets[at];
        let mut entry = match set.iter().position(|(held, _)| *held == tag) {
            Some(found) => set.remove(found),
            None => {
                self.misses += 1;
                if set.len() == self.ways {
                    self.written_back += u64::from(set.remove(0).1);
                }
                (tag, self.modified.as_ref().is_some_and(|modified| modified.contains(&tag)))
            }
        };
        self.marked += u64::from(store && !entry.1);
        if let Some(modified) = self.modified.as_mut().filter(|_| store) {
            modified.insert(tag);
        }
        entry.1 |= store;
        set.push(entry);
    }

    fn flush(&mut self) {
        for set in &mut self.sets {
            self.written_back += set.drain(..).filter(|(_, marked)| *marked).count() as u64;
        }
    }
}

/// TLBs of a 603 and a 604, caches of 128 and 256 sets with 4 and 2 ways; for instructions and for data.
#[derive(Clone, PartialEq, Debug)]
struct Machine {
    tlbs: Vec<[Model; 2]>,
    caches: Vec<[Model; 2]>,
}

impl Machine {
    fn new() -> Machine {
        let two = |model: Model| [model.clone(), model];
        let tlb = |sets, ways| two(Model::new(sets, ways, Some(BTreeSet::new())));
        let cache = |sets, ways| two(Model::new(sets, ways, None));
        let tlbs = vec![tlb(32, 2), tlb(64, 2), tlb(32, 4), tlb(32, 1)];
        Machine { tlbs, caches: vec![cache(128, 4), cache(128, 2), cache(256, 4), cache(128, 1)] }
    }

    fn refer(&mut self, kind: Kind, address: u64) {
        let (side, store) = (usize::from(kind != Kind::Fetch), kind == Kind::Store);
        self.tlbs.iter_mut().for_each(|tlb| tlb[side].refer(address >> 12, store));
        self.caches.iter_mut().for_each(|cache| cache[side].refer(address >> 5, store));
    }

    fn flush(&mut self) {
        self.tlbs.iter_mut().chain(&mut self.caches).flatten().for_each(Model::flush);
    }
}

/// Flushes at every reset whose number is a multiple of `flush`.
fn full(program: &[Reference], rules: Rules, flush: u64) -> Machine {
    let mut machine = Machine::new();
    let mut begun = 0;
    for r in program {
        if r.kind == Kind::Fetch {
            if begun % (u64::from(rules.reset_every) * flush) == 0 {
                machine.flush();
            }
            begun += 1;
        }
        machine.refer(r.kind, r.address);
    }
    machine
}

fn filtered(trace: &[u8], flush: u64) -> Machine {
    let mut reader = Reader::new(trace, u64::MAX).expect("sound");
    let every = u64::from(reader.header().rules.reset_every) * flush;
    let mut machine = Machine::new();
    let mut next = 0;
    while let Some(record) = reader.next().transpose().expect("sound") {
        while reader.position() > next {
            machine.flush();
            next += every;
        }
        machine.refer(record.kind, record.address);
    }
    machine
}

proptest! {
    #[test]
    fn misses_and_marks_stay(
        program in prop_oneof![program(), crowded()],
        every in prop_oneof![1..200_u32, Just(10_000)],
        flush in 1..5_u64,
    ) {
        let rules = Rules { reset_every: every, ..Rules::STANDARD };
        // A program begins with a fetch.
        let trace = recorded(&program, rules);
        prop_assert_eq!(full(&program, rules, flush), filtered(&trace, flush));
    }
}

/// When a kernel runs, in which the machine may be flushed: at each call, and when a page is referred to or stored to
/// for the first time.
#[derive(Default)]
struct KernelRuns {
    stored: BTreeMap<u64, bool>,
    count: u32,
    /// At which of them it is flushed, by the lowest bits of their number.
    flushes: u16,
}

impl KernelRuns {
    /// Whether there is a flush before this reference, or at this call.
    fn flush_before(&mut self, kind: Kind, address: u64) -> bool {
        let runs = kind == Kind::Call || {
            let store = kind == Kind::Store;
            match self.stored.insert(address >> 12, store) {
                Some(stored) => {
                    self.stored.insert(address >> 12, stored || store);
                    store && !stored
                }
                None => true,
            }
        };
        self.count += u32::from(runs);
        runs && self.flushes >> (self.count % 16) & 1 == 1
    }

    /// The machine behind these references.
    fn machine(flushes: u16, references: impl Iterator<Item = (Kind, u64)>) -> Machine {
        let (mut machine, mut kernel) = (Machine::new(), KernelRuns { flushes, ..KernelRuns::default() });
        for (kind, address) in references {
            if kernel.flush_before(kind, address) {
                machine.flush();
            }
            if kind != Kind::Call {
                machine.refer(kind, address);
            }
        }
        machine
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_kernel_may_flush_whenever_it_runs(
        mut program in prop_oneof![program(), crowded()],
        calls in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        flushes in any::<u16>(),
    ) {
        for call in calls {
            // What follows a call is a fetch.
            let from = call.index(program.len());
            if let Some(behind) = program[from..].iter().position(|r| r.kind == Kind::Fetch) {
                program.insert(from + behind, Reference { kind: Kind::Call, address: 0 });
            }
        }
        let trace = recorded(&program, Rules::STANDARD);
        let kept: Vec<_> = Reader::new(&trace, u64::MAX).expect("sound").map(|r| r.expect("sound")).collect();
        prop_assert_eq!(
            KernelRuns::machine(flushes, program.iter().map(|r| (r.kind, r.address))),
            KernelRuns::machine(flushes, kept.iter().map(|r| (r.kind, r.address)))
        );
    }
}

#[test]
fn repetitions_are_left_out() {
    let program: Vec<_> = (0..100_000_u64)
        .flat_map(|n| {
            let fetch = Reference { kind: Kind::Fetch, address: 0x1000 + n % 16 * 4 };
            [fetch, Reference { kind: Kind::Store, address: 0x8000 + n % 16 * 4 }]
        })
        .collect();
    let trace = recorded(&program, Rules::STANDARD);
    let reader = Reader::new(&trace, u64::MAX).expect("sound");
    // Two lines of code, two of data, at each of ten resets; at the first, the pages are new as well.
    assert_eq!(reader.totals().records, 10 * 4 + 1);
    assert_eq!(reader.totals().references(), 200_000);
}
