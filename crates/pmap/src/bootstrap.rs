//! The kernel's page tables, made once at boot and never changed above the leaves.
//!
//! Physical memory from frame 0 on: the arena, then the root, then upper tables, then the leaf tables of the
//! addresses that are mapped page by page, one behind the other in order of their addresses. So the place of a kernel
//! page's entry is arithmetic, no walk. Boot is single-threaded: no locks here.

use crate::config::{PmapConfig, PmapError};
use alloc::vec::Vec;
use pageferry_hal::x86::{Format, Layout, PTE_A, PTE_D, PTE_G, PTE_P, PTE_PS, PTE_W};
use pageferry_hal::{Machine, PAGE_SHIFT, PAGE_SIZE, Pa, Pfn, StructArena, Va, VaRange};

/// Permanent kernel mappings: global, and with accessed and dirty set so that no walker need write to the entries.
const PERMANENT: u64 = PTE_P | PTE_W | PTE_G | PTE_A | PTE_D;
/// Entries that lead to a table.
const UPPER: u64 = PTE_P | PTE_W | PTE_A;

/// What the machine-independent floors find after bootstrap.
pub struct Bootstrap {
    /// Kernel structures take their modelled addresses from here.
    pub arena: StructArena,
    /// Kernel addresses that may be mapped page by page; their page tables exist already.
    pub kva: VaRange,
    /// Frames below this one belong to the kernel (arena, page tables); the others are free.
    pub first_free: Pfn,
}

/// The kernel's page tables.
pub(crate) struct KernelTables {
    pub(crate) format: Format,
    pub(crate) layout: Layout,
    pub(crate) root: Pa,
    /// Indices of the root's valid entries: every address space has the same ones.
    pub(crate) root_entries: Vec<usize>,
    /// The addresses that are mapped page by page.
    pub(crate) paged: VaRange,
    /// The entry of the first page of `paged`; the others follow.
    leaves: Pa,
}

impl KernelTables {
    /// Where the entry of the kernel page at `va` lies.
    ///
    /// # Panics
    /// When `va` is not mapped page by page.
    pub(crate) fn slot(&self, va: Va) -> Pa {
        assert!(self.paged.contains(va), "{va:?} is no kernel address that is mapped by pages");
        self.leaves + ((va - self.paged.start()) >> PAGE_SHIFT) * self.format.width.bytes()
    }
}

/// What bootstrap made: the tables, the arena, and the first frame behind both.
pub(crate) struct Built {
    pub(crate) tables: KernelTables,
    pub(crate) arena: StructArena,
    pub(crate) arena_bytes: usize,
    pub(crate) first_free: Pfn,
}

/// Builds the kernel's page tables in the lowest frames.
///
/// # Errors
/// [`PmapError::MemoryTooSmall`], [`PmapError::ArenaTooLarge`].
pub(crate) fn build<M: Machine>(machine: &M, config: &PmapConfig) -> Result<Built, PmapError> {
    let topology = machine.topology();
    let (format, layout) = (Format::of(topology.arch), Layout::of(topology.arch));
    let super_bytes = format.superpage_bytes();
    let room_bytes = layout.kernel_end - layout.kernel_base;
    let too_large = PmapError::ArenaTooLarge { arena_bytes: config.arena_bytes, room_bytes };
    let arena_bytes = config.arena_bytes.max(1).checked_next_multiple_of(super_bytes).ok_or(too_large)?;
    if arena_bytes >= room_bytes {
        return Err(too_large);
    }
    let paged = VaRange::new(layout.kernel_base + arena_bytes, layout.kernel_end);
    let direct = layout
        .direct_map
        .map(|start| VaRange::pages_from(start, topology.frames.next_multiple_of(super_bytes >> PAGE_SHIFT)));
    let arena_frames = arena_bytes >> PAGE_SHIFT;
    let wanted = arena_frames + count_tables(&format, &layout, &paged, direct.as_ref());
    if wanted >= topology.frames {
        return Err(PmapError::MemoryTooSmall { frames: topology.frames, wanted: wanted + 1 });
    }

    let mut b = Builder { machine, format, root: Pfn(arena_frames as u32).pa(), next: arena_frames };
    assert_eq!(b.table(), b.root, "the root is the first table");
    b.superpages(VaRange::new(layout.kernel_base, paged.start()));
    let leaves = b.leaf_tables(paged);
    if let Some(direct) = direct {
        b.superpages(direct);
    }
    assert_eq!(b.next, wanted, "bootstrap took as many frames as it said it would");
    let first_free = Pfn(b.next as u32);
    let root_entries = b.valid_root_entries();
    let tables = KernelTables { format, layout, root: b.root, root_entries, paged, leaves };
    Ok(Built { tables, arena: StructArena::new(layout.kernel_base, arena_bytes), arena_bytes, first_free })
}

/// How many frames the tables take, the root among them.
fn count_tables(format: &Format, layout: &Layout, paged: &VaRange, direct: Option<&VaRange>) -> usize {
    let kernel = VaRange::new(layout.kernel_base, layout.kernel_end);
    let spans = |r: &VaRange, shift: u32| (((r.end().0 - 1) >> shift) - (r.start().0 >> shift) + 1) as usize;
    // A table at `level` spans what one entry at `level + 1` spans.
    let upper = (1..format.levels - 1).map(|level| {
        let shift = format.shift(level + 1);
        spans(&kernel, shift) + direct.map_or(0, |d| spans(d, shift))
    });
    1 + upper.sum::<usize>() + spans(paged, format.shift(1))
}

/// Takes frames one after the other and fills them as tables.
struct Builder<'a, M: Machine> {
    machine: &'a M,
    format: Format,
    root: Pa,
    next: usize,
}

impl<M: Machine> Builder<'_, M> {
    /// The next frame, cleared.
    fn table(&mut self) -> Pa {
        let at = Pfn(self.next as u32).pa();
        self.next += 1;
        self.machine.pte_clear_frame(at);
        at
    }

    /// Where the level-1 entry for `va` lies; makes the tables above it.
    fn level1_slot(&mut self, va: Va) -> Pa {
        let mut table = self.root;
        for level in (2..self.format.levels).rev() {
            let slot = self.format.slot(table, va, level);
            let entry = self.machine.pte_load(slot, self.format.width);
            table = if entry & PTE_P != 0 {
                self.format.frame(entry).pa()
            } else {
                let made = self.table();
                self.machine.pte_fill(slot, self.format.width, made.0 | UPPER);
                made
            };
        }
        self.format.slot(table, va, 1)
    }

    /// Maps `range` to physical memory from 0 on.
    fn superpages(&mut self, range: VaRange) {
        let step = self.format.superpage_bytes();
        assert_eq!(range.len_bytes() % step, 0, "superpages cover {range:?}");
        for offset in (0..range.len_bytes()).step_by(step) {
            let slot = self.level1_slot(range.start() + offset);
            self.machine.pte_fill(slot, self.format.width, offset as u64 | PERMANENT | PTE_PS);
        }
    }

    /// Makes empty leaf tables for all of `range`, one behind the other; answers where the first entry lies.
    fn leaf_tables(&mut self, range: VaRange) -> Pa {
        let step = self.format.superpage_bytes();
        assert_eq!(range.len_bytes() % step, 0, "leaf tables cover {range:?}");
        // Upper tables first: the leaves must be contiguous.
        let offsets = (0..range.len_bytes()).step_by(step);
        let slots: Vec<Pa> = offsets.map(|offset| self.level1_slot(range.start() + offset)).collect();
        let first = Pfn(self.next as u32).pa();
        for (i, slot) in slots.into_iter().enumerate() {
            let leaf = self.table();
            assert_eq!(leaf, first + i * PAGE_SIZE, "leaf tables are contiguous");
            self.machine.pte_fill(slot, self.format.width, leaf.0 | UPPER);
        }
        first
    }

    fn valid_root_entries(&self) -> Vec<usize> {
        let width = self.format.width;
        let valid = |i: &usize| self.machine.pte_load(self.root + i * width.bytes(), width) & PTE_P != 0;
        (0..self.format.entries()).filter(valid).collect()
    }
}
