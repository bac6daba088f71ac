//! What has changed since the last look of a [`crate::Watch`].
//!
//! A note of each frame, anon, amap and map that was changed, by number or address. Off unless a watch is set: then a
//! note costs one load. Notes are only hints where to look, and looking at a thing twice, or for nothing, does no harm;
//! so they may be taken in any order, and when there are too many the watch looks at everything. Atomics, no lock:
//! notes are taken with locks of any class held.

use alloc::collections::BTreeSet;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pageferry_hal::{Pfn, StructVa};

/// Notes between two looks; one operation on many pages takes a few for each page.
const NOTES: usize = 1024;
/// The kind of a note is in its lowest bits. Kernel addresses have their sign twice: nothing is lost at the top.
const KIND_BITS: u32 = 2;

pub(crate) struct Journal {
    on: AtomicBool,
    len: AtomicUsize,
    notes: [AtomicU64; NOTES],
}

/// What was noted, each once and in order.
#[derive(Default)]
pub(crate) struct Changed {
    pub(crate) frames: BTreeSet<Pfn>,
    pub(crate) anons: BTreeSet<u64>,
    pub(crate) amaps: BTreeSet<u64>,
    pub(crate) spaces: BTreeSet<u64>,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            on: AtomicBool::new(false),
            len: AtomicUsize::new(0),
            notes: [const { AtomicU64::new(0) }; NOTES],
        }
    }
}

impl Journal {
    /// Begins to take notes.
    pub(crate) fn open(&self) {
        self.len.store(0, Ordering::Relaxed);
        self.on.store(true, Ordering::Relaxed);
    }

    /// Takes no more.
    pub(crate) fn close(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    pub(crate) fn frame(&self, frame: Pfn) {
        self.note(0, frame.index() as u64);
    }
    pub(crate) fn anon(&self, at: StructVa) {
        self.note(1, at.0.0);
    }
    pub(crate) fn amap(&self, at: StructVa) {
        self.note(2, at.0.0);
    }
    pub(crate) fn space(&self, at: u64) {
        self.note(3, at);
    }

    fn note(&self, kind: u64, what: u64) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let note = what << KIND_BITS | kind;
        if let Some(slot) = self.notes.get(self.len.fetch_add(1, Ordering::Relaxed)) {
            slot.store(note, Ordering::Relaxed);
        }
    }

    /// Forgets the notes since the last call of [`Journal::take`].
    pub(crate) fn discard(&self) {
        self.len.store(0, Ordering::Relaxed);
    }

    /// All notes since the last call; `None` if they were too many. Before: no thread is at work in the VM system.
    pub(crate) fn take(&self) -> Option<Changed> {
        let len = self.len.swap(0, Ordering::Relaxed);
        let notes = self.notes.get(..len)?;
        let mut changed = Changed::default();
        for note in notes {
            let note = note.load(Ordering::Relaxed);
            let what = (note as i64 >> KIND_BITS) as u64;
            match note & ((1 << KIND_BITS) - 1) {
                0 => drop(changed.frames.insert(Pfn(what as u32))),
                1 => drop(changed.anons.insert(what)),
                2 => drop(changed.amaps.insert(what)),
                _ => drop(changed.spaces.insert(what)),
            }
        }
        Some(changed)
    }
}
