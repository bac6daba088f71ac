//! What ephemeral mappings are built from, what they ask for, and what can go wrong.

use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{VaRange, paths};

bitflags::bitflags! {
    /// How [`crate::Ephemeral::alloc`] may behave (sf_buf paper, 4.1). Empty: the mapping may be used by every CPU, and
    /// the call sleeps until there is one.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u8 {
        /// The mapping is for the calling thread alone, which stays pinned from before the call until it has freed it.
        const PRIVATE = 1;
        /// Do not sleep: fail instead.
        const NOWAIT = 2;
        /// A signal may end the sleep. Without effect beside `NOWAIT`.
        const INTERRUPTIBLE = 4;
    }
}

/// What a miss concludes from an old page-table entry whose accessed bit is clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessedRule {
    /// The old mapping was used by no CPU, so those that were free of older translations still are: the mask stays as
    /// it was, and the rules of a hit apply to the rest. Correct.
    Safe,
    /// As the sf_buf paper prints it (4.2): nothing is invalidated and the mask becomes all CPUs. It forgets that a CPU
    /// outside the mask may hold a translation from *before* the old mapping, and is kept to show that.
    AsPrinted,
}

/// How frames get their addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// A cache of mappings, as on i386 (sf_buf paper, 4.2).
    Cache {
        /// Buffers, each with one page of kernel addresses.
        entries: usize,
        /// What a clear accessed bit means.
        rule: AccessedRule,
    },
    /// The direct map, as on amd64 (4.3).
    Direct,
    /// The direct map where its address has the colour by which the frame is cached, else a cache of addresses that do;
    /// as on sparc64 (4.4). The same as [`Scheme::Direct`] where pages have no colours.
    Hybrid {
        /// Buffers of each colour.
        entries: usize,
    },
    /// A cache of mappings for each process, as in Solaris 2.4 (7): a frame that several processes look at is mapped
    /// once for each.
    PerProcess {
        /// Buffers of each process.
        entries: usize,
        /// Caches; more processes than these share.
        caches: usize,
    },
    /// An address is allocated and a mapping made and unmade for each use (6.2).
    Original,
    /// The same with addresses that were taken at boot and wait in one list, as FreeBSD 5.2 had them for sendfile: a
    /// mutex instead of an allocator. When all are in use the next one waits, as for the cache.
    FreeList {
        /// Addresses, each of a page.
        entries: usize,
    },
    /// The same with addresses from magazines, one for each CPU, as Vmem has them (7): fast to come by, and no safer.
    Vmem,
}

/// When a change of a mapping that any CPU may use is flushed, where each use makes and unmakes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlushAt {
    /// When an address is mapped: nobody uses it before. What stays in TLBs when it is unmapped is never used, so that
    /// every mapping of a kernel address has to be flushed, whoever makes it.
    Map,
    /// When it is unmapped: an address that is mapped is in no TLB.
    Unmap,
    /// At both, as FreeBSD 5 did.
    #[default]
    Both,
}

impl FlushAt {
    /// Mapping flushes.
    pub const fn maps(self) -> bool {
        matches!(self, FlushAt::Map | FlushAt::Both)
    }

    /// Unmapping flushes.
    pub const fn unmaps(self) -> bool {
        matches!(self, FlushAt::Unmap | FlushAt::Both)
    }
}

/// How much is changed and flushed at once of several pages that one user maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlushBy {
    /// As each user does it: a [`crate::KvaRun`] as a range, and what is looked at for a moment page by page.
    #[default]
    User,
    /// Each page for itself.
    Page,
    /// What a request needs, as one range.
    Range,
}

/// How mappings that are made and unmade for each use are flushed: those of [`Scheme::Original`], [`Scheme::FreeList`]
/// and [`Scheme::Vmem`], and all runs of addresses. Nothing here concerns a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushPolicy {
    /// At which of the two changes.
    pub at: FlushAt,
    /// How many pages at once.
    pub by: FlushBy,
}

paths! {
    /// Path lengths of this floor, without the memory accesses and without what other floors do for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EphemeralPaths {
        /// The cache: an allocation that hits.
        pub alloc_hit: CodePath,
        /// The cache: an allocation that misses, from look-up to return.
        pub alloc_miss: CodePath,
        /// The cache: giving a mapping back.
        pub free: CodePath,
        /// Vmem and the free list: taking an address from a CPU's magazine or from the list, or putting one there.
        pub magazine: CodePath,
    }
}

/// What [`crate::Ephemeral::new`] builds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EphemeralConfig {
    /// How frames get their addresses.
    pub scheme: Scheme,
    /// False: [`Flags::PRIVATE`] is ignored, every mapping is shared (sf_buf paper, 6.4.1: "private option
    /// eliminated").
    pub honour_private: bool,
    /// How mappings are flushed that are made for each use.
    pub flush: FlushPolicy,
    /// Path lengths.
    pub paths: EphemeralPaths,
}

/// Where kernel addresses come from: implemented by `vm`'s kernel map.
pub trait KernelAddresses {
    /// A range of `len_pages` pages, unmapped; `None` when none is left. With [`FlushAt::Map`] TLBs may know some of
    /// its pages from before.
    fn alloc(&self, len_pages: usize) -> Option<VaRange>;
    /// Takes back a range that [`KernelAddresses::alloc`] gave out; nothing in it is mapped any more.
    fn free(&self, range: VaRange);
}

/// Why there is no mapping. The caller's frame and the cache are as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AllocError {
    /// Every buffer is in use, and the flags forbid to sleep.
    #[error("no ephemeral mapping is free and the caller would not wait")]
    WouldBlock,
    /// A signal ended the sleep.
    #[error("the wait for an ephemeral mapping was interrupted by a signal")]
    Interrupted,
    /// The original scheme with an allocator, Vmem, or a run: the kernel's address space is used up.
    #[error("no kernel addresses are left")]
    NoAddresses,
}

/// A configuration that this machine cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A cache or a list of zero entries.
    #[error("a mapping cache or a list of addresses needs at least one entry")]
    NoEntries,
    /// [`Scheme::Direct`] or [`Scheme::Hybrid`] on a machine that cannot map all of its memory.
    #[error("this machine has no direct map")]
    NoDirectMap,
    /// More entries than there are pages of kernel addresses.
    #[error("{entries} entries do not fit the kernel's address space")]
    TooManyEntries {
        /// Entries asked for.
        entries: usize,
    },
    /// No room for the buffers themselves.
    #[error("the structures of ephemeral mappings do not fit: {0}")]
    Arena(#[from] ArenaFull),
}
