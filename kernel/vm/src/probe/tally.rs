//! The obligations that callers hold: how much is on loan or handed out, and how much of it was lost.
//!
//! Each token counts itself here when it is made and when it is given back; one that is dropped instead counts as lost.
//! [`crate::Vm::check`] compares with what frames and anons say. Atomics, no lock.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

/// Shared by the system and every token.
pub(crate) type Tally = Arc<Counts>;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Frames in loans to the kernel.
    pub(crate) kernel_loans: Count,
    /// Anons in loans to anons.
    pub(crate) anon_loans: Count,
    /// Frames that hold the kernel's data.
    pub(crate) kernel_pages: Count,
    /// Of all these, what was dropped without being given back.
    pub(crate) lost: Count,
    /// Address spaces that were dropped with memory still mapped.
    pub(crate) abandoned: Count,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }
    pub(crate) fn sub(&self, n: usize) {
        let before = self.0.fetch_sub(n as u64, Ordering::Relaxed);
        assert!(before >= n as u64, "more is given back than was handed out");
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
