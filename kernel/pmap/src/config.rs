//! What a pmap is built from, what it asks for, and what can go wrong.

use crate::area::AreaConfig;
pub use crate::defect::PmapDefect;
use crate::entries::EntryChoice;
use crate::protect::Whole;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Path, Pfn, Va, paths};

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
    }

    /// Path lengths of the refill handler, on machines that have one; its accesses to tables are accounted by
    /// themselves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RefillPaths {
        /// In registers, from the page tables into the TLB: the whole handler.
        pub direct: Path,
        /// In registers, from the hash table into the TLB, but for the entries that are looked at.
        pub search: Path,
        /// Going on to the secondary group.
        pub secondary: Path,
        /// Each entry of the hash table that is looked at.
        pub probe: Path,
        /// In registers, from the page tables into the hash table: an exception of its own, but for the entries that
        /// are looked at.
        pub insert: Path,
        /// Saving registers and going to C: untranslated.
        pub save: Path,
        /// In C, translated: finding what is missing in the page tables.
        pub walk: Path,
        /// In C, translated: looking for what is missing in the hash table.
        pub search_c: Path,
        /// In C, translated: looking for a place in the hash table, and putting what was missing into it.
        pub insert_c: Path,
        /// Back from C: untranslated.
        pub restore: Path,
        /// Finding an entry of the TLB that is not in use, where the kernel does that ([`crate::EntryChoice`]).
        pub choose: Path,
    }
}

/// How the refill handler works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reload {
    /// In a few registers, with physical addresses, in assembler (Linux/PPC from 2.1 on).
    #[default]
    Fast,
    /// It saves all registers and calls C, which is translated like the rest of the kernel and goes through the caches
    /// as that does (Linux/PPC before). A miss of its own is handled the other way: that one cannot miss, so that there
    /// is an end.
    Slow,
    /// Where the kernel loads the TLB, from the hash table in a few registers; what is not there, as [`Reload::Slow`]
    /// (Linux/PPC 2.0 on a 603).
    SlowInsert,
}

/// The refill handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefillConfig {
    /// How it works.
    pub reload: Reload,
    /// It keeps a hash table where hardware does not demand one but helps ([`pageferry_hal::Mmu::Soft`]).
    pub hash: bool,
    /// Path lengths.
    pub paths: RefillPaths,
}

impl RefillConfig {
    /// Fast, without a hash table, and in no time.
    pub const NONE: RefillConfig =
        RefillConfig { reload: Reload::Fast, hash: false, paths: RefillPaths::all(Path::of(0)) };
}

/// How the kernel maps its own memory, where the board leaves it the choice: one with block registers (PPC paper,
/// section on the OS TLB footprint), or one whose page tables map superpages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KernelMapping {
    /// As the board's layout says.
    #[default]
    Board,
    /// All of memory by pages.
    Pages,
    /// All of memory by blocks.
    Blocks,
    /// That, and the memory of devices.
    BlocksAndDevices,
    /// That, and a frame buffer in a process by a block of the process's own, which is switched with it.
    BlocksAndProcess,
    /// All of memory by superpages of the page tables.
    Superpages,
    /// By huge pages of the page tables; what is left of memory behind whole ones, by superpages.
    Huge,
    /// By superpages, of which some are split into pages: what becomes of a direct map in which permissions of single
    /// pages are changed again and again.
    Fragmented {
        /// How many of a hundred are split. They are spread evenly.
        percent: u8,
    },
}

impl core::fmt::Display for KernelMapping {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            KernelMapping::Board => "what the board has",
            KernelMapping::Pages => "pages",
            KernelMapping::Blocks | KernelMapping::BlocksAndDevices | KernelMapping::BlocksAndProcess => {
                "blocks"
            }
            KernelMapping::Superpages | KernelMapping::Fragmented { .. } => "superpages",
            KernelMapping::Huge => "huge pages",
        })
    }
}

impl KernelMapping {
    /// All of memory is mapped by blocks.
    pub(crate) fn blocks_memory(self) -> bool {
        matches!(
            self,
            KernelMapping::Blocks | KernelMapping::BlocksAndDevices | KernelMapping::BlocksAndProcess
        )
    }
    /// At which level of the page tables the entry is that maps what begins with superpage `number` of a range, if so
    /// many superpages are left there of which `huge` make a huge page.
    pub(crate) fn level(self, number: usize, left: usize, huge: usize) -> u32 {
        match self {
            KernelMapping::Pages => 0,
            KernelMapping::Fragmented { percent } => {
                let split = |count: usize| count * usize::from(percent) / 100;
                u32::from(split(number + 1) == split(number))
            }
            KernelMapping::Huge if number.is_multiple_of(huge) && left >= huge => 2,
            _ => 1,
        }
    }
    /// The memory of devices is mapped for the kernel by a block.
    pub(crate) fn blocks_devices(self) -> bool {
        matches!(self, KernelMapping::BlocksAndDevices | KernelMapping::BlocksAndProcess)
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
    /// The refill handler, on machines that have one.
    pub refill: RefillConfig,
    /// How the kernel's own memory is mapped.
    pub mapping: KernelMapping,
    /// Changing more pages of a space at once than this gives the space another tag, instead of invalidating them one
    /// by one; only where entries carry tags, on a uniprocessor. `None`: never.
    pub renew_pages: Option<usize>,
    /// TLB entries are tagged by address space, and stay over switches, where hardware walks page tables and has tags.
    /// Elsewhere those that there are are always used.
    pub tags: bool,
    /// All of memory is mapped one-to-one from the kernel's base on, where the machine leaves that to the kernel: as
    /// Linux has its low memory on i386.
    pub low_memory: bool,
    /// The communication area, for a kernel that has one.
    pub area: Option<AreaConfig>,
    /// Which entry of the TLB a refill takes, where the kernel loads it and hardware has a counter.
    pub choice: EntryChoice,
    /// A defect to plant; [`PmapDefect::None`] but in tests.
    pub defect: PmapDefect,
}

impl PmapConfig {
    /// Makes a choice by its word, for names of test machines: `slow`, `hash`, `pte`, `bat`, `bat-io`, `bat-process`,
    /// `2m`, `1g`, `fragmented` (every third superpage), `renew` (already from four pages on), `tags`, `low` (memory),
    /// or `unused` (entries of the TLB first). False when there is no such word.
    pub fn choose(&mut self, word: &str) -> bool {
        match word {
            "slow" => self.refill.reload = Reload::Slow,
            "hash" => self.refill.hash = true,
            "pte" => self.mapping = KernelMapping::Pages,
            "bat" => self.mapping = KernelMapping::Blocks,
            "bat-io" => self.mapping = KernelMapping::BlocksAndDevices,
            "bat-process" => self.mapping = KernelMapping::BlocksAndProcess,
            "2m" => self.mapping = KernelMapping::Superpages,
            "1g" => self.mapping = KernelMapping::Huge,
            "fragmented" => self.mapping = KernelMapping::Fragmented { percent: 34 },
            "renew" => self.renew_pages = Some(4),
            "tags" => self.tags = true,
            "low" => self.low_memory = true,
            "unused" => self.choice = EntryChoice::UnusedFirst,
            _ => return false,
        }
        true
    }

    /// A plain one: ranged shootdowns, a refill handler that takes no time, the board's mapping.
    pub const fn new(arena_bytes: usize, paths: PmapPaths) -> PmapConfig {
        PmapConfig {
            arena_bytes,
            paths,
            ranged_shootdown: true,
            refill: RefillConfig::NONE,
            mapping: KernelMapping::Board,
            renew_pages: None,
            tags: false,
            low_memory: false,
            area: None,
            choice: EntryChoice::Hardware,
            defect: PmapDefect::None,
        }
    }
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
