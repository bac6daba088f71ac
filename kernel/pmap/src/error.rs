//! What can go wrong.

use crate::config::KernelMapping;
use core::fmt;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Block, Va};

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
    /// Numbers of address spaces would become one.
    #[error("numbers of address spaces are scattered by {scatter}, expected an odd number")]
    EvenScatter {
        /// What they are multiplied by.
        scatter: u32,
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
    /// The kernel's memory cannot be mapped so on this board.
    #[error("a kernel mapped by {0} needs a board with block registers")]
    NoBlocks(KernelMapping),
    /// The page tables of this board map no pages of the size that was asked for.
    #[error(
        "a kernel mapped by {0} needs page tables of the machine's that have such pages, and as much memory as one"
    )]
    NoSuchPages(KernelMapping),
    /// Memory and what the kernel maps page by page do not fit its part of an address space.
    #[error(
        "{frames} frames of memory do not fit the kernel's part of an address space, where they are all to be mapped"
    )]
    MemoryTooLarge {
        /// Frames of the machine.
        frames: usize,
    },
    /// Nothing maps all of memory, which a handler in C goes through.
    #[error("a refill handler in C needs all of memory mapped")]
    NoDirectMap,
    /// Nothing can tag TLB entries.
    #[error("TLB entries are to be tagged by address space: that needs a machine whose TLB has tags")]
    NoTags,
    /// As many address spaces exist as there are tags for their TLB entries.
    #[error("no tag is left for another address space")]
    NoTag,
    /// A page of the kernel's own memory has no entry of its own.
    #[error("{page:?} is mapped by {by}: what a block maps cannot be protected by page")]
    MappedWhole {
        /// The page.
        page: Va,
        /// What maps it.
        by: Whole,
    },
    /// The communication area is no whole number of pages.
    #[error("a communication area of {len_bytes} bytes: expected whole pages, and 64 MB at most")]
    BadArea {
        /// Bytes asked for.
        len_bytes: usize,
    },
    /// More entries are to be reserved than leave room for anything else.
    #[error(
        "{reserved} entries of {entries} are to be reserved: two at least must be left, as a copy needs both at once"
    )]
    TooManyReserved {
        /// How many.
        reserved: usize,
        /// How many there are.
        entries: usize,
    },
    /// Hardware says which entry a refill takes.
    #[error(
        "unused TLB entries cannot be chosen first: that needs a fully associative TLB that the kernel loads, and a \
         counter of its entries"
    )]
    NoChoice,
    /// Nothing can be loaded ahead, or counted.
    #[error(
        "TLB entries cannot be loaded ahead or counted: that needs a fully associative TLB that the kernel loads from \
         page tables, and a counter of its entries"
    )]
    NoPreload,
    /// No entry maps several pages, or single ones are kept account of.
    #[error(
        "TLB entries cannot be loaded for pages in a row: that needs a TLB that the kernel loads from page tables, \
         with larger pages of up to 64 KB, and nothing else that counts its entries or loads them ahead"
    )]
    NoRows,
    /// Nothing can be reserved.
    #[error(
        "{reserved} TLB entries are to be reserved: that needs one processor with a fully associative TLB that the \
         kernel loads, with tags"
    )]
    NoReserved {
        /// How many.
        reserved: usize,
    },
    /// The configured arena has no room for this floor's own structures.
    #[error("{0}")]
    ArenaTooSmall(#[from] ArenaFull),
}

/// What maps more than a page, so that no page of it can be told from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// A block register.
    Block(Block),
    /// A superpage, which begins here.
    Superpage(Va),
    /// An area that is not translated.
    Untranslated,
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whole::Block(block) => write!(f, "a block of {} KB at {:?}", block.len_bytes() >> 10, block.va),
            Whole::Superpage(va) => write!(f, "a superpage at {va:?}"),
            Whole::Untranslated => write!(f, "no entry at all"),
        }
    }
}
