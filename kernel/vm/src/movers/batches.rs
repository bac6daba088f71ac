//! Which CPUs have write-protected pages and not yet flushed: batches of loans under way.
//!
//! A loan takes write permission from many pages one by one, each under its owner's lock, and flushes once at the end
//! with none of these locks held. Meanwhile another CPU may store through its old translation. Two must therefore wait
//! until such batches are through: a second loan of the same page, which finds it protected already and promises its
//! borrower that the bytes stay; and a fault that copies the page, whose copy would lack that store.
//!
//! One counter for each CPU, odd while a batch is under way there. A CPU has at most one, because no thread sleeps in a
//! batch; and one that is in a batch waits only for spin locks. So waiting for batches, with no spin lock held, ends.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use pageferry_hal::{CpuId, Machine};

#[derive(Debug)]
pub(crate) struct ProtectBatches {
    turns: Vec<AtomicU32>,
}

impl ProtectBatches {
    pub(crate) fn new(cpus: usize) -> ProtectBatches {
        ProtectBatches { turns: (0..cpus).map(|_| AtomicU32::new(0)).collect() }
    }

    /// A batch begins on `cpu`, where the caller stays until it has flushed.
    pub(crate) fn begin(&self, cpu: CpuId) {
        let before = self.turns[cpu.index()].fetch_add(1, Ordering::SeqCst);
        assert!(before.is_multiple_of(2), "a batch begins within another");
    }

    /// The batch on `cpu` is flushed.
    pub(crate) fn end(&self, cpu: CpuId) {
        let before = self.turns[cpu.index()].fetch_add(1, Ordering::SeqCst);
        assert!(!before.is_multiple_of(2), "a batch ends that never began");
    }

    /// True when no batch is under way.
    pub(crate) fn all_flushed(&self) -> bool {
        self.turns.iter().all(|t| t.load(Ordering::SeqCst).is_multiple_of(2))
    }

    /// Waits until every batch that is under way now has been flushed. The caller holds no spin lock.
    pub(crate) fn wait_flushed<M: Machine>(&self, machine: &M) {
        for turn in &self.turns {
            let seen = turn.load(Ordering::SeqCst);
            if !seen.is_multiple_of(2) {
                machine.spin_until(&mut || turn.load(Ordering::SeqCst) != seen);
            }
        }
    }
}
