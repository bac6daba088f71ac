//! When protocol control blocks have something to do, in the order of time.
//!
//! Thousands of connections may wait for their end while few carry data, and the first deadline of all is asked for
//! behind each segment: it is looked up and not searched. Whoever has a block in hand may move its deadline, so a block
//! that was lent is [touched](Deadlines::touch), and looked at again before the next question. Owner: the
//! [table of blocks](super::pcb::Pcbs), under its lock.

use super::id::PcbId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use pageferry_hal::Cycles;

/// Deadlines of blocks. See the [module](self).
#[derive(Default)]
pub(super) struct Deadlines {
    in_order: BTreeSet<(Cycles, PcbId)>,
    of: BTreeMap<PcbId, Cycles>,
    touched: BTreeSet<PcbId>,
}

impl Deadlines {
    /// The deadline of `id` may become another before the next question.
    pub(super) fn touch(&mut self, id: PcbId) {
        self.touched.insert(id);
    }

    /// Looks at the blocks again that were touched: `deadline` tells a block's, or none where it is gone.
    pub(super) fn settle(&mut self, deadline: impl Fn(PcbId) -> Option<Cycles>) {
        while let Some(id) = self.touched.pop_first() {
            let now = deadline(id);
            let before = match now {
                Some(at) => self.of.insert(id, at),
                None => self.of.remove(&id),
            };
            if before == now {
                continue;
            }
            if let Some(at) = before {
                self.in_order.remove(&(at, id));
            }
            if let Some(at) = now {
                self.in_order.insert((at, id));
            }
        }
    }

    /// The first, as it was when the blocks were settled.
    pub(super) fn first(&self) -> Option<Cycles> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// The blocks whose deadlines are not behind `now`, by their numbers.
    pub(super) fn due(&self, now: Cycles) -> Vec<PcbId> {
        let mut due: Vec<PcbId> = self.in_order.range(..=(now, PcbId(u32::MAX))).map(|(_, id)| *id).collect();
        due.sort_unstable();
        due
    }

    /// What is known of `id`: nothing while it is touched.
    pub(super) fn known(&self, id: PcbId) -> Option<Option<Cycles>> {
        (!self.touched.contains(&id)).then(|| self.of.get(&id).copied())
    }

    /// How many blocks have one.
    pub(super) fn len(&self) -> usize {
        self.in_order.len()
    }
}
