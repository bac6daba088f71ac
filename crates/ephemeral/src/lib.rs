//! Ephemeral mappings (`sf_buf`). Stub: signatures only.
#![no_std]
#![forbid(unsafe_code)]
#![allow(missing_docs, unused_variables, dead_code, clippy::todo)]
extern crate alloc;
use alloc::sync::Arc;
use core::marker::PhantomData;
use pageferry_hal::{Instructions, Machine, Pfn, StructArena, Threads, Va, VaRange};
use pageferry_pmap::Pmaps;

bitflags::bitflags! {
    /// How `alloc` may behave (sf_buf paper, 4.1).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u8 {
        /// The mapping is for the calling thread, which must be pinned while it holds it.
        const PRIVATE = 1;
        const NOWAIT = 2;
        const INTERRUPTIBLE = 4;
    }
}

/// What changes about the TLBs when the old entry's accessed bit is clear (checklist S1.38, S1.42).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessedRule {
    /// The mask stays as it was, then the hit's rules apply. Correct.
    Safe,
    /// As the paper prints it: the mask becomes all CPUs. Unsafe; kept to show why.
    AsPrinted,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// The mapping cache of i386 (4.2).
    Cache { entries: usize, rule: AccessedRule },
    /// The direct map of amd64 (4.3).
    Direct,
    /// An address is allocated and a mapping changed for every use (6.2).
    Original,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EphemeralPaths {
    pub alloc_hit: Instructions,
    pub alloc_miss: Instructions,
    pub free: Instructions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EphemeralConfig {
    pub scheme: Scheme,
    /// False: PRIVATE is ignored (S1.52).
    pub honour_private: bool,
    pub paths: EphemeralPaths,
}

/// Where kernel addresses come from: implemented by `vm`'s kernel map.
pub trait KernelAddresses {
    fn alloc(&self, len_pages: usize) -> Option<VaRange>;
    fn free(&self, range: VaRange);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocError {
    #[error("no ephemeral mapping is free and the caller would not wait")]
    WouldBlock,
    #[error("the wait for an ephemeral mapping was interrupted by a signal")]
    Interrupted,
    #[error("no kernel addresses are left")]
    NoAddresses,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("a mapping cache needs at least one entry")]
    NoEntries,
    #[error("this machine has no direct map")]
    NoDirectMap,
    #[error("{entries} entries do not fit the kernel's address space")]
    TooManyEntries { entries: usize },
}

/// An ephemeral mapping (`struct sf_buf *`): opaque, one reference.
#[must_use = "an ephemeral mapping must be freed"]
pub struct Mapping {
    _private: (),
}

pub struct Ephemeral<M: Machine, K: KernelAddresses> {
    _m: PhantomData<(M, K)>,
}

/// Addresses that a user of the original scheme keeps for itself (the pipes' own cache, S1.9).
#[must_use = "addresses must be released"]
pub struct Window {
    _private: (),
}

impl<M: Machine, K: KernelAddresses> Ephemeral<M, K> {
    pub fn new(
        config: EphemeralConfig,
        pmaps: Arc<Pmaps<M>>,
        addresses: Arc<K>,
        arena: &mut StructArena,
    ) -> Result<Self, ConfigError> {
        todo!()
    }
    /// `sf_buf_alloc`. The frame must be wired by the caller.
    pub fn alloc(&self, threads: &dyn Threads, frame: Pfn, flags: Flags) -> Result<Mapping, AllocError> {
        todo!()
    }
    /// `sf_buf_free`.
    pub fn free(&self, threads: &dyn Threads, mapping: Mapping) {
        todo!()
    }
    /// `sf_buf_kva`.
    pub fn kva(&self, mapping: &Mapping) -> Va {
        todo!()
    }
    /// `sf_buf_page`.
    pub fn page(&self, mapping: &Mapping) -> Pfn {
        todo!()
    }
    /// Addresses for a run of pages, to be mapped again and again (original scheme).
    pub fn window(&self, len_pages: usize) -> Result<Window, AllocError> {
        todo!()
    }
    /// Maps a run into the window, with one flush for all of it (`pmap_qenter`).
    pub fn window_enter(&self, window: &mut Window, frames: &[Pfn]) -> Va {
        todo!()
    }
    /// Unmaps the run, with one flush for all of it (`pmap_qremove`).
    pub fn window_remove(&self, window: &mut Window) {
        todo!()
    }
    pub fn window_release(&self, window: Window) {
        todo!()
    }
}
