//! What a pmap is built from, what it asks for, and what can go wrong.

use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Pfn, paths};

paths! {
    /// Path lengths of this floor. Accesses to page tables and reverse mappings are accounted by themselves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PmapPaths {
        /// Entering one user mapping.
        pub enter: Path,
        /// Removing one user mapping, or changing its permissions or its referenced and modified bits.
        pub remove: Path,
        /// Entering or removing one kernel mapping (`pmap_kenter`, `pmap_kremove`).
        pub kenter: Path,
        /// Initiating a shootdown, without the interprocessor interrupt and the waiting.
        pub shootdown_send: Path,
        /// The handler's instructions around its invalidations.
        pub shootdown_handle: Path,
        /// The refill handler, from its first instruction to its last, on machines that have one.
        pub refill: Path,
    }
}

/// How this kernel's pmap is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmapConfig {
    /// Bytes of the arena of kernel structures; rounded up to a superpage.
    pub arena_bytes: usize,
    /// Path lengths.
    pub paths: PmapPaths,
    /// True: one shootdown for a whole range (FreeBSD 5, `IPI_INVLRNG`). False: one for each page.
    pub ranged_shootdown: bool,
}

/// Where frames for page tables come from: the owner of free frames. Called with no lock of this floor held.
pub trait FrameSource {
    /// A frame for the kernel's own use, with any contents; `None` when there is none to spare.
    fn take(&self) -> Option<Pfn>;
    /// Takes back a frame that [`FrameSource::take`] gave.
    fn give(&self, frame: Pfn);
}

/// Why a pmap could not do what was asked. Nothing has changed when one is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PmapError {
    /// The frame source is exhausted.
    #[error("no frame for a page table")]
    NoFrame,
    /// As many user mappings exist as the arena has room for.
    #[error("the table of reverse mappings is full ({capacity} entries)")]
    NoReverseEntry {
        /// How many it holds.
        capacity: usize,
    },
    /// The configured kernel does not fit the machine's memory.
    #[error("the machine has {frames} frames, the kernel needs {wanted}")]
    MemoryTooSmall {
        /// Frames of the machine.
        frames: usize,
        /// Frames that arena and kernel page tables take, and one to work with.
        wanted: usize,
    },
    /// The configured arena leaves no kernel addresses to map page by page.
    #[error("an arena of {arena_bytes} bytes does not fit the kernel's {room_bytes} bytes of addresses")]
    ArenaTooLarge {
        /// Bytes asked for.
        arena_bytes: usize,
        /// Bytes of kernel addresses.
        room_bytes: usize,
    },
    /// The block registers cannot map all of memory.
    #[error("{blocks} block registers cannot map {bytes} bytes of memory")]
    TooFewBlocks {
        /// How many there are.
        blocks: usize,
        /// Bytes of memory.
        bytes: u64,
    },
    /// As many address spaces exist as there are tags for their TLB entries.
    #[error("no tag is left for another address space")]
    NoTag,
    /// The configured arena has no room for this floor's own structures.
    #[error("{0}")]
    ArenaTooSmall(#[from] ArenaFull),
}
