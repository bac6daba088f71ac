//! A filtered trace misses where the full one does.

use crate::common::{Reference, program, recorded};
use pageferry_trace::{Kind, Reader, Rules};
use proptest::prelude::*;

/// Sets of tags in the order of last use, with a mark for what was stored to.
#[derive(Clone, PartialEq, Debug)]
struct Model {
    ways: usize,
    sets: Vec<Vec<(u64, bool)>>,
    misses: u64,
    /// Marked entries that were replaced or flushed.
    written_back: u64,
    /// Entries that were marked.
    marked: u64,
}

impl Model {
    fn new(sets: usize, ways: usize) -> Model {
        Model { ways, sets: vec![Vec::new(); sets], misses: 0, written_back: 0, marked: 0 }
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
                (tag, false)
            }
        };
        self.marked += u64::from(store && !entry.1);
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
        let two = |sets, ways| [Model::new(sets, ways), Model::new(sets, ways)];
        let tlbs = vec![two(32, 2), two(64, 2), two(32, 4)];
        Machine { tlbs, caches: vec![two(128, 4), two(128, 2), two(256, 4), two(128, 1)] }
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
    fn misses_and_marks_stay(program in program(), every in prop_oneof![1..200_u32, Just(10_000)], flush in 1..5_u64) {
        let rules = Rules { reset_every: every, ..Rules::STANDARD };
        // A program begins with a fetch.
        let trace = recorded(&program, rules);
        prop_assert_eq!(full(&program, rules, flush), filtered(&trace, flush));
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
