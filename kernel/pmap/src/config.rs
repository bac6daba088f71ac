//! What a pmap is built from, and what it asks for.

use crate::defect::PmapDefect;
use pageferry_defects::Planted;
use pageferry_hal::isa::hash::SCATTER;
use pageferry_hal::{Pfn, paths};

mod area;
mod refill;

pub use area::{AreaConfig, AreaPage, AreaPaths};
pub use refill::{EntryChoice, Preload, PreloadPaths, RefillConfig, RefillPaths, Reload};
pub(crate) use refill::{FRAME_BYTES, FRAMES, MAX_ROW};

paths! {
    /// Path lengths of this floor. Accesses to page tables and reverse mappings are accounted by themselves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PmapPaths {
        /// Entering one user mapping.
        pub enter: CodePath,
        /// Removing one user mapping, or changing its permissions or its referenced and modified bits.
        pub remove: CodePath,
        /// Entering or removing one kernel mapping (`pmap_kenter`, `pmap_kremove`).
        pub kenter: CodePath,
        /// Initiating a shootdown, without the interprocessor interrupt and the waiting.
        pub shootdown_send: CodePath,
        /// The handler's instructions around its invalidations.
        pub shootdown_handle: CodePath,
    }
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
    /// The first of these bytes that are no structure's: the kernel's own image lies there, and what it has for a heap,
    /// where it runs in the memory that it manages. Some structures hold bytes (an mbuf has those of a short message).
    pub image_bytes: usize,
    /// Path lengths.
    pub paths: PmapPaths,
    /// True: one shootdown for a whole range (FreeBSD 5, `IPI_INVLRNG`). False: one for each page.
    pub ranged_shootdown: bool,
    /// Up to this many user pages are invalidated one by one; beyond it, all of the address space is: without tags by
    /// loading the page-table root again, which spares the kernel's global entries.
    pub full_flush_pages: usize,
    /// The refill handler, on machines that have one.
    pub refill: RefillConfig,
    /// How the kernel's own memory is mapped.
    pub mapping: KernelMapping,
    /// Changing more pages of a space at once than this gives the space another tag, instead of invalidating them one
    /// by one; only where entries carry tags, on a uniprocessor. `None`: never.
    pub renew_pages: Option<usize>,
    /// Where there is a hash table: what numbers of address spaces are multiplied by, so that their pages fall into
    /// groups far apart; an odd number.
    pub scatter: u32,
    /// A CPU with nothing to do looks through the hash table for what address spaces have left behind that are no more.
    pub idle_reclaim: bool,
    /// The number of the first address space, where numbers are the same on all CPUs: as if as many had been before.
    pub first_number: u32,
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
    /// Bytes of a reverse mapping (`pv_entry`), if not those of FreeBSD 5: 24, with pointers of 8 bytes 48.
    pub pv_bytes: Option<usize>,
    /// A defect to plant; [`Planted::NONE`] but in tests.
    pub defect: Planted<PmapDefect>,
}

impl PmapConfig {
    /// Makes a choice by its word, for names of test machines: `slow`, `hash`, `pte`, `bat`, `bat-io`, `bat-process`,
    /// `2m`, `1g`, `fragmented` (every third superpage), `renew` (already from four pages on), `tags`, `low` (memory),
    /// `unused` (entries of the TLB first), `recency` or `recency-flushed` (what is loaded beside what was missed),
    /// `counts` (entries of each space), `rows` (of pages, by one entry), or `left` (what spaces leave behind in the
    /// hash table). False when there is no such word.
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
            "recency" => self.refill.preload = Preload::Recency,
            "recency-flushed" => self.refill.preload = Preload::RecencyFlushed,
            "counts" => self.refill.counts = true,
            "rows" => self.refill.rows = true,
            "left" => self.idle_reclaim = false,
            _ => return false,
        }
        true
    }

    /// The kernel notes which entry of the TLB it loads with what.
    pub(crate) fn notes_loads(&self) -> bool {
        let wants = self.refill.counts || self.refill.preload != Preload::None;
        wants || self.choice == EntryChoice::UnusedFirst
    }

    /// A plain one: ranged shootdowns, a refill handler that takes no time, the board's mapping.
    pub const fn new(arena_bytes: usize, paths: PmapPaths) -> PmapConfig {
        PmapConfig {
            arena_bytes,
            image_bytes: 0,
            paths,
            ranged_shootdown: true,
            full_flush_pages: 32,
            refill: RefillConfig::NONE,
            mapping: KernelMapping::Board,
            renew_pages: None,
            scatter: SCATTER,
            idle_reclaim: true,
            first_number: 1,
            tags: false,
            low_memory: false,
            area: None,
            choice: EntryChoice::Hardware,
            pv_bytes: None,
            defect: Planted::NONE,
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
