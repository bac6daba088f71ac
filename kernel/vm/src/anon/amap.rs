//! The amap: an area of anonymous memory, with holes (UVM paper, 3.1).
//!
//! An amap has slots; a slot holds an anon, or is a hole through which look-ups fall to the object below. Map entries
//! refer to an amap from a slot on, and several may (after a clip, a fork that shares, a passed entry): [`SlotRefs`]
//! says how many cover each slot. Slots are kept in pieces of [`SLOTS_PER_CHUNK`], only where there is an anon, so that
//! a sparse amap costs what it holds, not what it spans.
//!
//! # Needs-copy
//! The entries that cover a slot either all have the needs-copy flag (a fork's deferred copy: no anon is added or
//! replaced before the amap is copied), or none has it (then all see each other's changes: memory is shared).
//!
//! Each amap has its own lock of class `Amap`. What changes it is in `slots`.

use super::anon::Anon;
use super::ppref::SlotRefs;
use crate::config::SLOTS_PER_CHUNK;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Range;
use pageferry_hal::{Machine, SpinLock, StructVa};

pub(crate) struct Amap<M: Machine> {
    pub(super) at: StructVa,
    /// That of the page of its first slot, where pages have colours that the kernel gives them.
    pub(crate) first_colour: u32,
    pub(super) state: M::Lock<AmapState<M>>,
}

pub(crate) struct AmapState<M: Machine> {
    /// As in [`Amap`].
    pub(super) at: StructVa,
    /// As in [`Amap`].
    pub(super) first_colour: u32,
    /// Map entries that refer to this amap.
    pub(super) refs: u32,
    pub(super) slot_refs: SlotRefs,
    /// By slot divided by [`SLOTS_PER_CHUNK`]. A chunk holds at least one anon, unless it is reserved for one.
    pub(super) chunks: BTreeMap<u64, Chunk<M>>,
}

pub(super) struct Chunk<M: Machine> {
    pub(super) at: StructVa,
    pub(super) used: u32,
    pub(super) anons: [Option<Arc<Anon<M>>>; SLOTS_PER_CHUNK as usize],
}

pub(crate) type AmapGuard<'a, M> = <<M as Machine>::Lock<AmapState<M>> as SpinLock<AmapState<M>>>::Guard<'a>;

impl<M: Machine> Amap<M> {
    pub(crate) fn lock(&self) -> AmapGuard<'_, M> {
        self.state.lock()
    }

    /// Where the header lies: names the amap as long as it lives.
    pub(crate) fn struct_va(&self) -> StructVa {
        self.at
    }
}

impl<M: Machine> AmapState<M> {
    /// Entries that refer to the amap.
    pub(crate) fn refs(&self) -> u32 {
        self.refs
    }

    pub(crate) fn slot_refs(&self) -> &SlotRefs {
        &self.slot_refs
    }

    /// The anons in `slots`, in order.
    pub(crate) fn anons(&self, slots: Range<u64>) -> impl Iterator<Item = (u64, &Arc<Anon<M>>)> {
        let keys = slots.start / SLOTS_PER_CHUNK..=slots.end / SLOTS_PER_CHUNK;
        self.chunks
            .range(keys)
            .flat_map(|(key, chunk)| {
                (key * SLOTS_PER_CHUNK..)
                    .zip(&chunk.anons)
                    .filter_map(|(slot, anon)| Some((slot, anon.as_ref()?)))
            })
            .filter(move |(slot, _)| slots.contains(slot))
    }

    /// Chunks, those of them that are empty, and anons in all.
    pub(crate) fn census(&self) -> (usize, usize, usize) {
        let empty = self.chunks.values().filter(|c| c.used == 0).count();
        (self.chunks.len(), empty, self.chunks.values().map(|c| c.used as usize).sum())
    }
}
