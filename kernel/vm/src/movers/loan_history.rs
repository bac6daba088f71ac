//! What became of the loans of an address space: whether lending pays is known only afterwards.
//!
//! A process that writes to pages that it has lent pays a fault for each, and a copy where the loan still stands. The
//! VM system counts both, at no modelled cost (a real one has such counters anyway); code that lends for a process may
//! ask what was counted since it asked last, and keep three words of its own here. Nothing here changes what the VM
//! system does.

use core::sync::atomic::{AtomicU32, Ordering};

/// Counts of one address space. All of them are hints, read and written without a lock.
#[derive(Debug, Default)]
pub struct LoanHistory {
    refused_writes: AtomicU32,
    broken: AtomicU32,
    notes: [AtomicU32; 3],
}

/// What happened since [`LoanHistory::take`] was called last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoanOutcome {
    /// Writes to pages that were mapped, but not for writing: most of them were lent before. Not those of CPUs that
    /// found the page writable by then: they were late by a moment, or their TLB was, and pay for no loan.
    pub refused_writes: u32,
    /// Loans broken: such writes that had the page copied, as it was still on loan.
    pub broken: u32,
}

impl LoanHistory {
    pub(crate) fn refused_write(&self) {
        self.refused_writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn loan_broken(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// True when no write was refused since.
    pub fn is_clear(&self) -> bool {
        self.refused_writes.load(Ordering::Relaxed) == 0
    }

    /// What was counted, which begins at zero again.
    pub fn take(&self) -> LoanOutcome {
        LoanOutcome {
            refused_writes: self.refused_writes.swap(0, Ordering::Relaxed),
            broken: self.broken.swap(0, Ordering::Relaxed),
        }
    }

    /// The words that were kept here; zero at first.
    pub fn notes(&self) -> [u32; 3] {
        self.notes.each_ref().map(|note| note.load(Ordering::Relaxed))
    }

    /// Keeps words here.
    pub fn keep(&self, notes: [u32; 3]) {
        for (kept, note) in self.notes.iter().zip(notes) {
            kept.store(note, Ordering::Relaxed);
        }
    }
}
