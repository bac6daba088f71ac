//! How the refill handler works, and which entry of the TLB it takes.

use pageferry_hal::{Board, CodePath, Mmu, PAGE_SHIFT, paths};

paths! {
    /// Path lengths of the refill handler, on machines that have one; its accesses to tables are accounted by
    /// themselves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RefillPaths {
        /// In registers, from the page tables into the TLB: the whole handler.
        pub direct: CodePath,
        /// In registers, from the hash table into the TLB, but for the entries that are looked at.
        pub search: CodePath,
        /// Going on to the secondary group.
        pub secondary: CodePath,
        /// Each entry of the hash table that is looked at.
        pub probe: CodePath,
        /// In registers, from the page tables into the hash table: an exception of its own, but for the entries that
        /// are looked at.
        pub insert: CodePath,
        /// Saving registers and going to C: untranslated.
        pub save: CodePath,
        /// In C, translated: finding what is missing in the page tables.
        pub walk: CodePath,
        /// In C, translated: looking for what is missing in the hash table.
        pub search_c: CodePath,
        /// In C, translated: looking for a place in the hash table, and putting what was missing into it.
        pub insert_c: CodePath,
        /// Back from C: untranslated.
        pub restore: CodePath,
        /// Finding an entry of the TLB that is not in use, where the kernel does that ([`EntryChoice`]).
        pub choose: CodePath,
    }
}

paths! {
    /// Path lengths of what a refill does beside.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PreloadPaths {
        /// Noting which space's entry was loaded and which one's went, where the kernel counts them
        /// ([`RefillConfig::counts`]).
        pub count: CodePath,
        /// Taking what was missed out of its recency stack, and laying what goes on its own ([`Preload`]).
        pub stack: CodePath,
        /// Loading one neighbour, but for the accesses to page tables and stacks.
        pub neighbour: CodePath,
        /// Comparing one entry of the page tables with the one before it ([`RefillConfig::rows`]).
        pub row: CodePath,
    }
}

/// What a refill loads beside what was missed, where the kernel loads the TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preload {
    /// Nothing.
    #[default]
    None,
    /// The two neighbours of the page in its space's recency stack: pages that left the TLB just before it and just
    /// after it (Saulsbury et al., 2000).
    Recency,
    /// The same, and a page that is invalidated is laid on the stack like one that another displaces: one that is
    /// unmapped is often mapped there again.
    RecencyFlushed,
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
    /// What it loads beside.
    pub preload: Preload,
    /// Pages of user memory that lie in a row of frames are loaded by one entry, of the machine's next larger page.
    pub rows: bool,
    /// The kernel counts the entries of each space, so that [`crate::Pmaps::live_entries`] tells them.
    pub counts: bool,
    /// Path lengths.
    pub paths: RefillPaths,
    /// Of what it does beside.
    pub beside: PreloadPaths,
}

impl RefillConfig {
    /// Fast, without a hash table, and in no time.
    pub const NONE: RefillConfig = RefillConfig {
        reload: Reload::Fast,
        hash: false,
        preload: Preload::None,
        rows: false,
        counts: false,
        paths: RefillPaths::all(CodePath::of(0)),
        beside: PreloadPaths::all(CodePath::of(0)),
    };

    /// Whether a kernel on this board can preload and count as this says: where software decides which entry has what.
    pub const fn is_possible(&self, board: &Board) -> bool {
        let wants = self.counts || !matches!(self.preload, Preload::None);
        !wants || !self.hash && EntryChoice::UnusedFirst.is_possible(board)
    }

    /// Whether a kernel on this board can load rows of pages: where software loads larger pages, and nothing else keeps
    /// account of single ones.
    pub fn can_load_rows(&self, board: &Board) -> bool {
        let pages = |shift: u8| 1_usize << (u32::from(shift) - PAGE_SHIFT);
        let has = |large: &[u8]| large.first().is_some_and(|shift| pages(*shift) <= MAX_ROW);
        let beside = self.hash || self.counts || self.preload != Preload::None;
        !self.rows || !beside && matches!(board.mmu, Mmu::Soft { large, .. } if has(large))
    }
}

/// The most pages of a row ([`RefillConfig::rows`]).
pub(crate) const MAX_ROW: usize = 16;

/// How a refill chooses the entry of the TLB that it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EntryChoice {
    /// As hardware says: by its counter, or by use.
    #[default]
    Hardware,
    /// One that is not in use; by hardware's counter where all are. Only where there is one, and any entry may hold any
    /// page.
    UnusedFirst,
}

impl EntryChoice {
    /// Whether a kernel on this board can choose so.
    pub const fn is_possible(self, board: &Board) -> bool {
        match self {
            EntryChoice::Hardware => true,
            EntryChoice::UnusedFirst => {
                matches!(board.mmu, Mmu::Soft { is_fully_associative: true, has_counter: true, .. })
            }
        }
    }
}

/// What the slow handler saves: 29 registers by one instruction, and those that tell of the exception.
pub(crate) const FRAME_BYTES: usize = 192;
/// How deep handlers can be nested: a slow one, and a fast one within.
pub(crate) const FRAMES: usize = 2;
