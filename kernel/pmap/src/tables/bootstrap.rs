//! The kernel's page tables, made once at boot and never changed above the leaves.
//!
//! Physical memory from frame 0 on: the arena, then the root, then upper tables (and leaf tables of the arena, where
//! that is mapped by pages), then the leaf tables of the addresses that are mapped page by page, one behind the other
//! in order of their addresses. So the place of a kernel page's entry is arithmetic, no walk. Behind them lie the
//! tables of the direct map, and the hash table, where hardware uses one. Boot is single-threaded: no locks here.

use crate::config::{KernelMapping, PmapConfig};
use crate::error::PmapError;
use crate::tables::fixed::{self, PERMANENT};
use crate::tables::radix::{self, format_of};
use alloc::vec::Vec;
use pageferry_hal::isa::RadixFormat;
use pageferry_hal::isa::hash::GROUP_BYTES;
use pageferry_hal::{
    Block, Board, HashTable, Layout, Machine, MemoryUse, Mmu, PAGE_SHIFT, PAGE_SIZE, Pa, Pfn, Region,
    SpaceId, StructArena, Tte, Va, VaRange,
};

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
    pub(crate) format: RadixFormat,
    pub(crate) layout: Layout,
    pub(crate) root: Pa,
    /// Indices of the root's valid entries: every address space has the same ones.
    pub(crate) root_entries: Vec<usize>,
    /// The addresses that have leaf tables.
    tabled: VaRange,
    /// The entry of the first page of `tabled`; the others follow.
    leaves: Pa,
    /// What block registers map, on every CPU: memory,
    pub(crate) blocks: Vec<Block>,
    /// and the memory of devices, for data.
    pub(crate) device_blocks: Vec<Block>,
    /// Where the memory of devices is mapped.
    pub(crate) devices: Option<Va>,
    /// What hardware looks into.
    pub(crate) hash: Option<HashTable>,
}

impl KernelTables {
    /// True when the kernel page at `va`, if it is mapped at all, is mapped by an entry of its own.
    pub(crate) fn is_tabled(&self, va: Va) -> bool {
        self.tabled.contains(va)
    }

    /// Where the entry of the direct map that maps `va` begins, and what it is, where such entries are made of
    /// addresses alone.
    pub(crate) fn computed(&self, va: Va) -> Option<(Va, Tte)> {
        let (base, shift) = computed_from(&self.layout)?;
        (va >= base).then(|| computed(base, shift, va))
    }

    /// Where the entry of the kernel page at `va` lies.
    ///
    /// # Panics
    /// When `va` is not mapped page by page.
    pub(crate) fn slot(&self, va: Va) -> Pa {
        assert!(self.tabled.contains(va), "{va:?} is no kernel address that is mapped by pages");
        self.leaves + ((va - self.tabled.start()) >> PAGE_SHIFT) * self.format.width.bytes()
    }
}

/// What bootstrap made: the tables, the arena, the addresses to be mapped page by page, and the first frame behind all.
pub(crate) struct Built {
    pub(crate) tables: KernelTables,
    pub(crate) arena: StructArena,
    pub(crate) paged: VaRange,
    pub(crate) first_free: Pfn,
}

/// What goes where, before anything is made.
struct Plan {
    arena_bytes: usize,
    paged: VaRange,
    tabled: VaRange,
    /// What page tables map of the arena, in whole pages of the sizes that it is mapped by,
    arena: Option<VaRange>,
    /// and of the direct map.
    direct: Option<VaRange>,
    tables: usize,
    hash: Option<HashTable>,
    blocks: Vec<Block>,
    device_blocks: Vec<Block>,
    /// Frames for all of that.
    frames: usize,
}

fn plan(
    board: &Board,
    layout: &Layout,
    format: &RadixFormat,
    config: &PmapConfig,
) -> Result<Plan, PmapError> {
    let super_bytes = format.superpage_bytes();
    let granule = match layout.region {
        Region::Superpages => super_bytes,
        Region::Pages if layout.direct_map.is_none() => super_bytes,
        Region::Pages | Region::Unmapped | Region::Blocks | Region::Computed(_) => PAGE_SIZE,
    };
    let arena_end = match layout.paged_base {
        None => layout.kernel_end,
        Some(paged) if paged > layout.kernel_base => paged,
        Some(_) => Va(u64::MAX),
    };
    let room_bytes = arena_end - layout.kernel_base;
    let too_large = PmapError::ArenaTooLarge { arena_bytes: config.arena_bytes, room_bytes };
    let arena_bytes = config.arena_bytes.max(1).checked_next_multiple_of(granule).ok_or(too_large)?;
    if arena_bytes >= room_bytes || config.image_bytes > arena_bytes {
        return Err(too_large);
    }
    let mapped_bytes = match config.mapping {
        // What the kernel maps page by page begins behind whole huge pages.
        KernelMapping::Huge => arena_bytes.next_multiple_of(1 << format.huge_shift()),
        _ => arena_bytes,
    };
    if mapped_bytes >= room_bytes {
        return Err(too_large);
    }
    let paged =
        VaRange::new(layout.paged_base.unwrap_or(layout.kernel_base + mapped_bytes), layout.kernel_end);
    let tabled = match layout.region {
        // Also what lies between arena and pages, if anything does: all of memory.
        Region::Pages => VaRange::new(layout.kernel_base, layout.kernel_end),
        _ => paged,
    };
    let in_superpages =
        |start| VaRange::pages_from(start, board.frames.next_multiple_of(super_bytes >> PAGE_SHIFT));
    let by_tables = layout.region == Region::Superpages;
    // Where all of memory is mapped from there on, the arena is.
    let apart = by_tables && layout.direct_map != Some(layout.kernel_base);
    let arena = apart.then(|| VaRange::new(layout.kernel_base, layout.kernel_base + mapped_bytes));
    let direct = layout.direct_map.filter(|_| by_tables).map(in_superpages);
    let tables = count_tables(format, &tabled, config.mapping, arena.into_iter().chain(direct));
    let mut frames = (arena_bytes >> PAGE_SHIFT) + tables;
    let mut hash = None;
    if uses_hash_table(board, config) {
        if config.scatter.is_multiple_of(2) {
            return Err(PmapError::EvenScatter { scatter: config.scatter });
        }
        // Two entries for each frame, as Linux takes it (64 KB for 16 MB), and 64 KB at least; aligned to its size.
        let groups = (board.frames / 4).next_power_of_two().max(1024);
        let len_frames = groups * GROUP_BYTES / PAGE_SIZE;
        let first = frames.next_multiple_of(len_frames);
        hash = Some(HashTable { at: Pfn(first as u32).pa(), groups, scatter: config.scatter });
        frames = first + len_frames;
    }
    if frames >= board.frames {
        return Err(PmapError::MemoryTooSmall { frames: board.frames, wanted: frames + 1 });
    }
    let blocks = fixed::blocks(board, layout, config)?;
    let device_blocks = fixed::device_blocks(board, config, blocks.len())?;
    Ok(Plan { arena_bytes, paged, tabled, arena, direct, tables, hash, blocks, device_blocks, frames })
}

/// True when there is a hash table: hardware looks into one, or the kernel chooses to.
fn uses_hash_table(board: &Board, config: &PmapConfig) -> bool {
    match board.mmu {
        Mmu::Hash => true,
        Mmu::Soft { hashes, .. } => hashes && config.refill.hash,
        Mmu::Radix(_) => false,
    }
}

/// Where a direct map begins whose entries are made of addresses alone, and log2 of what an entry maps.
fn computed_from(layout: &Layout) -> Option<(Va, u8)> {
    match layout.region {
        Region::Computed(shift) => Some((layout.direct_map?, shift)),
        _ => None,
    }
}

/// The entry of a direct map at `base` that maps `va`, and where it begins.
fn computed(base: Va, shift: u8, va: Va) -> (Va, Tte) {
    let first = (va - base) as u64 >> shift << shift;
    (Va(base.0 + first), Tte { frame: Pa(first).pfn(), shift, attr: PERMANENT })
}

/// Builds the kernel's page tables in the lowest frames.
///
/// # Errors
/// [`PmapError::MemoryTooSmall`], [`PmapError::ArenaTooLarge`], [`PmapError::TooFewBlocks`].
pub(crate) fn build<M: Machine>(machine: &M, config: &PmapConfig) -> Result<Built, PmapError> {
    let board = machine.board();
    let (format, layout) = (format_of(board.mmu), fixed::layout(&board, config)?);
    let plan = plan(&board, &layout, &format, config)?;
    let arena_frames = plan.arena_bytes >> PAGE_SHIFT;
    let mut b = Builder { machine, format, root: Pfn(arena_frames as u32).pa(), next: arena_frames };
    assert_eq!(b.table(), b.root, "the root is the first table");
    if let Some(arena) = plan.arena {
        b.for_ever(arena, config.mapping, board.frames);
    }
    let leaves = b.leaf_tables(plan.tabled);
    if layout.region == Region::Pages {
        let frames = if layout.direct_map.is_some() { board.frames } else { arena_frames };
        b.pages(VaRange::pages_from(layout.kernel_base, frames), leaves, Pfn(0));
    }
    if let Some(direct) = plan.direct {
        b.for_ever(direct, config.mapping, board.frames);
    }
    if let Some((base, shift)) = computed_from(&layout) {
        for at in (0..board.frames << PAGE_SHIFT).step_by(1 << shift) {
            let (va, new) = computed(base, shift, base + at);
            machine.mapping_changed(SpaceId::KERNEL, va, None, Some(new), None);
        }
    }
    assert_eq!(b.next, arena_frames + plan.tables, "bootstrap took as many frames as it said it would");
    if let Some(hash) = plan.hash {
        let frames = hash.groups * GROUP_BYTES / PAGE_SIZE;
        (0..frames).for_each(|frame| machine.pt_clear(hash.at + frame * PAGE_SIZE));
        if board.mmu == Mmu::Hash {
            machine.set_hash_table(hash);
        }
    }
    let root_entries = b.valid_root_entries();
    let Plan { arena_bytes, paged, tabled, hash, blocks, device_blocks, frames, .. } = plan;
    let root = b.root;
    let (devices, paged) = match board.device_memory {
        // By pages, as `ioremap` does it: the first of those that the kernel maps page by page.
        Some(memory) if device_blocks.is_empty() => {
            let range = VaRange::pages_from(paged.start(), memory.pages());
            let first = leaves + ((range.start() - tabled.start()) >> PAGE_SHIFT) * format.width.bytes();
            b.pages(range, first, Pfn(board.frames as u32));
            (Some(range.start()), VaRange::new(range.end(), paged.end()))
        }
        _ => (device_blocks.first().map(|block| block.va), paged),
    };
    machine.set_use(layout.kernel_base, arena_bytes, MemoryUse::Data);
    if let Some(base) = layout.direct_map {
        machine.set_direct_map(base, board.frames);
    }
    (0..arena_frames).for_each(|frame| machine.set_frame_use(Pfn(frame as u32), MemoryUse::Data));
    (arena_frames..frames).for_each(|frame| machine.set_frame_use(Pfn(frame as u32), MemoryUse::Tables));
    if let (Some(at), Some(memory)) = (devices, board.device_memory) {
        machine.set_use(at, memory.pages() << PAGE_SHIFT, MemoryUse::Devices);
    }
    let tables = KernelTables {
        format,
        layout,
        root,
        root_entries,
        tabled,
        leaves,
        blocks,
        device_blocks,
        devices,
        hash,
    };
    Ok(Built {
        tables,
        arena: StructArena::new(layout.kernel_base + config.image_bytes, arena_bytes - config.image_bytes),
        paged,
        first_free: Pfn(frames as u32),
    })
}

/// How many frames the tables take, the root among them.
fn count_tables(
    format: &RadixFormat,
    tabled: &VaRange,
    mapping: KernelMapping,
    for_ever: impl Iterator<Item = VaRange>,
) -> usize {
    let leaves = (tabled.start().0..tabled.end().0).step_by(format.superpage_bytes()).map(|va| (Va(va), 0));
    let pieces = for_ever.flat_map(|range| fixed::pieces(*format, mapping, range));
    // Each table by its level and the place of what it spans: what one entry above it does.
    let mut tables: Vec<(u32, u64)> = (leaves.chain(pieces.map(|(piece, level)| (piece.start(), level))))
        .flat_map(|(va, leaf)| {
            (leaf..format.levels - 1).map(move |level| (level, va.0 >> format.shift(level + 1)))
        })
        .collect();
    tables.sort_unstable();
    tables.dedup();
    1 + tables.len()
}

/// Takes frames one after the other and fills them as tables.
struct Builder<'a, M: Machine> {
    machine: &'a M,
    format: RadixFormat,
    root: Pa,
    next: usize,
}

impl<M: Machine> Builder<'_, M> {
    /// The next frame, cleared.
    fn table(&mut self) -> Pa {
        let at = Pfn(self.next as u32).pa();
        self.next += 1;
        self.machine.pt_clear(at);
        at
    }

    /// Where the entry for `va` at `level` lies; makes the tables above it.
    fn slot_at(&mut self, va: Va, level: u32) -> Pa {
        let mut table = self.root;
        for above in (level + 1..self.format.levels).rev() {
            let slot = self.format.slot(table, va, above);
            table = match radix::load_upper(self.machine, &self.format, slot) {
                Some(table) => table,
                None => {
                    let made = self.table();
                    radix::store_upper(self.machine, &self.format, slot, made);
                    made
                }
            };
        }
        self.format.slot(table, va, level)
    }

    fn store(&self, slot: Pa, va: Va, new: Tte) {
        radix::store(self.machine, &self.format, slot, new);
        self.machine.mapping_changed(SpaceId::KERNEL, va, None, Some(new), None);
    }

    /// Maps `range` to physical memory from 0 on, by pages of the sizes that `mapping` says; single pages only where
    /// there are frames.
    fn for_ever(&mut self, range: VaRange, mapping: KernelMapping, frames: usize) {
        for (piece, level) in fixed::pieces(self.format, mapping, range) {
            let va = piece.start();
            let frame = Pa((va - range.start()) as u64).pfn();
            if level == 0 {
                let first = self.slot_at(va, 0);
                let there = frames.saturating_sub(frame.index()).min(self.format.entries());
                self.pages(VaRange::pages_from(va, there), first, frame);
            } else {
                let slot = self.slot_at(va, level);
                self.store(slot, va, Tte { frame, shift: self.format.shift(level) as u8, attr: PERMANENT });
            }
        }
    }

    /// Maps `range`, whose leaf entries begin at `leaves`, to the frames from `first` on.
    fn pages(&self, range: VaRange, leaves: Pa, first: Pfn) {
        for (i, va) in range.pages().enumerate() {
            let frame = Pfn(first.0 + i as u32);
            self.store(leaves + i * self.format.width.bytes(), va, Tte::page(frame, PERMANENT));
        }
    }

    /// Makes empty leaf tables for all of `range`, one behind the other; answers where the first entry lies.
    fn leaf_tables(&mut self, range: VaRange) -> Pa {
        let step = self.format.superpage_bytes();
        assert_eq!(range.len_bytes() % step, 0, "leaf tables cover {range:?}");
        // Upper tables first: the leaves must be contiguous.
        let offsets = (0..range.len_bytes()).step_by(step);
        let slots: Vec<Pa> = offsets.map(|offset| self.slot_at(range.start() + offset, 1)).collect();
        let first = Pfn(self.next as u32).pa();
        for (i, slot) in slots.into_iter().enumerate() {
            let leaf = self.table();
            assert_eq!(leaf, first + i * PAGE_SIZE, "leaf tables are contiguous");
            radix::store_upper(self.machine, &self.format, slot, leaf);
        }
        first
    }

    fn valid_root_entries(&self) -> Vec<usize> {
        let valid = |i: &usize| {
            let slot = self.root + i * self.format.width.bytes();
            radix::load_upper(self.machine, &self.format, slot).is_some()
        };
        (0..self.format.entries()).filter(valid).collect()
    }
}
