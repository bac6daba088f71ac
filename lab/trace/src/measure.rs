//! What a trace asks of a machine, seen through plain models: pages, and misses of TLBs without an operating system.
//!
//! A [`Summary`] is a plain value of one pass over a reader; it fails as the reader does.

use crate::error::TraceError;
use crate::reader::Reader;
use crate::record::Kind;
use rustc_hash::FxHashSet;

/// Sets of tags, each in the order of last use.
#[derive(Clone, Debug)]
pub struct Lru {
    ways: usize,
    sets: Vec<Vec<u64>>,
}

impl Lru {
    /// An empty one of so many sets, a power of two, with so many ways each.
    pub fn new(sets: usize, ways: usize) -> Lru {
        assert!(sets.is_power_of_two() && ways > 0, "{sets} sets of {ways} ways");
        Lru { ways, sets: vec![Vec::with_capacity(ways); sets] }
    }

    /// Uses `tag`, of the set that its lowest bits name. True if it was there.
    pub fn hits(&mut self, tag: u64) -> bool {
        let at = tag as usize & (self.sets.len() - 1);
        let set = &mut self.sets[at];
        if let Some(found) = set.iter().position(|&held| held == tag) {
            set[..=found].rotate_right(1);
            return true;
        }
        if set.len() == self.ways {
            set.pop();
        }
        set.insert(0, tag);
        false
    }

    /// Forgets all.
    pub fn flush(&mut self) {
        self.sets.iter_mut().for_each(Vec::clear);
    }
}

/// Misses of a pair of TLBs, one for instructions and one for data.
#[derive(Clone, Debug)]
pub struct TlbMisses {
    /// Whose they are.
    pub name: &'static str,
    /// Misses of fetches.
    pub instruction: u64,
    /// Misses of loads and stores.
    pub data: u64,
}

/// What one pass over a trace finds.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Pages that instructions were fetched from.
    pub code_pages: usize,
    /// Pages that were loaded from or stored to.
    pub data_pages: usize,
    /// Misses of TLBs that are never flushed, with true LRU: of the PowerPC 603 (32 sets of 2) and 604 (64 sets of 2).
    pub tlbs: [TlbMisses; 2],
}

impl Summary {
    /// Reads what is left of `reader`.
    pub fn of(reader: &mut Reader<'_>) -> Result<Summary, TraceError> {
        let shift = reader.header().rules.page_bytes.trailing_zeros();
        let mut pages = [FxHashSet::default(), FxHashSet::default()];
        let mut tlbs = [32, 64].map(|sets| [Lru::new(sets, 2), Lru::new(sets, 2)]);
        let mut misses = [[0_u64; 2]; 2];
        for record in reader {
            let record = record?;
            let side = match record.kind {
                Kind::Fetch => 0,
                Kind::Load | Kind::Store => 1,
                Kind::Call => continue,
            };
            let page = record.address >> shift;
            for (tlb, misses) in tlbs.iter_mut().zip(&mut misses) {
                if !tlb[side].hits(page) {
                    misses[side] += 1;
                    pages[side].insert(page);
                }
            }
        }
        let of = |name, [instruction, data]: [u64; 2]| TlbMisses { name, instruction, data };
        Ok(Summary {
            code_pages: pages[0].len(),
            data_pages: pages[1].len(),
            tlbs: [of("603", misses[0]), of("604", misses[1])],
        })
    }
}
