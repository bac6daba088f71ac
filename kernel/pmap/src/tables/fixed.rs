//! What is mapped for ever: the arena of kernel structures and, where there is one, the direct map of all memory.
//!
//! How is the layout's business ([`Region`]): not at all, by block registers, by superpages, or by pages like any
//! other. Here is the plan of blocks: few, large, each aligned to its size, as the registers want them.

use crate::config::{KernelMapping, PmapConfig};
use crate::defect::PmapDefect;
use crate::error::PmapError;
use alloc::vec::Vec;
use pageferry_hal::isa::RadixFormat;
use pageferry_hal::{
    Attr, Block, BlockRegisters, Board, Layout, Mmu, PAGE_SHIFT, Pa, Pfn, Region, Va, VaRange,
};

/// What is left for pages that the kernel maps one by one, where it maps all of memory.
const MIN_PAGED_BYTES: u64 = 64 << 20;

/// What permanent mappings are: global, and used and modified beforehand, so that nothing need be noted.
pub(crate) const PERMANENT: Attr =
    Attr::WRITE.union(Attr::GLOBAL).union(Attr::REFERENCED).union(Attr::MODIFIED);

/// The blocks that map `len_bytes` of physical addresses from `first` on, at `base`: the largest that fit, and the last
/// one perhaps larger than what is left.
///
/// # Errors
/// [`PmapError::TooFewBlocks`].
pub(crate) fn plan(
    registers: BlockRegisters,
    base: Va,
    first: Pa,
    len_bytes: u64,
) -> Result<Vec<Block>, PmapError> {
    let mut blocks = Vec::new();
    let mut at = 0u64;
    while at < len_bytes {
        let va = Va(base.0 + at);
        let aligned = (va.0 | (first.0 + at) | 1 << registers.max_shift).trailing_zeros() as u8;
        let rest = len_bytes - at;
        let last = blocks.len() + 1 == registers.count;
        let wanted = if last { rest.next_power_of_two().ilog2() } else { rest.ilog2() } as u8;
        let shift = wanted.max(registers.min_shift).min(aligned);
        if shift < registers.min_shift || blocks.len() == registers.count {
            return Err(PmapError::TooFewBlocks { blocks: registers.count, bytes: len_bytes });
        }
        blocks.push(Block { va, pa: Pa(first.0 + at), shift, attr: PERMANENT });
        at += 1 << shift;
    }
    Ok(blocks)
}

/// Where things are in an address space, with the kernel's memory mapped as `mapping` says.
///
/// By pages it is mapped at the same addresses as by blocks, and what the kernel maps page by page begins behind it, as
/// Linux/PPC does it. Where page tables map superpages, the sizes of pages change nothing of where things are.
///
/// # Errors
/// [`PmapError::NoBlocks`], [`PmapError::NoSuchPages`], [`PmapError::MemoryTooLarge`].
pub(crate) fn layout(board: &Board, config: &PmapConfig) -> Result<Layout, PmapError> {
    let layout = by_mapping(board, config.mapping)?;
    if !config.low_memory || layout.direct_map.is_some() || layout.region != Region::Superpages {
        return Ok(layout);
    }
    let Mmu::Radix(format) = board.mmu else { return Ok(layout) };
    let super_frames = format.superpage_bytes() >> PAGE_SHIFT;
    let memory_bytes = (board.frames.next_multiple_of(super_frames) << PAGE_SHIFT) as u64;
    // Addresses that the kernel maps page by page are to be left, as Linux leaves 128 MB.
    let left = (layout.kernel_end - layout.kernel_base) as u64;
    if memory_bytes + MIN_PAGED_BYTES > left {
        return Err(PmapError::MemoryTooLarge { frames: board.frames });
    }
    let end = Va(layout.kernel_base.0 + memory_bytes);
    Ok(Layout { direct_map: Some(layout.kernel_base), paged_base: Some(end), ..layout })
}

/// Where things are, with the kernel's memory in pages of such sizes.
fn by_mapping(board: &Board, mapping: KernelMapping) -> Result<Layout, PmapError> {
    let layout = board.layout;
    match (mapping, layout.region, layout.paged_base) {
        (KernelMapping::Board, ..) => Ok(layout),
        (
            mapping @ (KernelMapping::Superpages | KernelMapping::Huge | KernelMapping::Fragmented { .. }),
            region,
            _,
        ) => match board.mmu {
            Mmu::Radix(format) if region == Region::Superpages => {
                let huge = board.huge_pages && board.frames >= 1 << (format.huge_shift() - PAGE_SHIFT);
                let can = mapping != KernelMapping::Huge || huge;
                if can { Ok(layout) } else { Err(PmapError::NoSuchPages(mapping)) }
            }
            _ => Err(PmapError::NoSuchPages(mapping)),
        },
        (KernelMapping::Pages, Region::Superpages, _) => Ok(layout),
        (mapping, Region::Blocks, _) if mapping.blocks_memory() => Ok(layout),
        (KernelMapping::Pages, Region::Blocks, Some(paged_base)) => {
            let table_frames = RadixFormat::SOFT.superpage_bytes() >> PAGE_SHIFT;
            let memory = VaRange::pages_from(layout.kernel_base, board.frames.next_multiple_of(table_frames));
            Ok(Layout {
                region: Region::Pages,
                paged_base: Some(memory.end()),
                kernel_end: memory.end() + (layout.kernel_end - paged_base),
                ..layout
            })
        }
        _ => Err(PmapError::NoBlocks(mapping)),
    }
}

/// What each entry of the page tables maps of `range`, by its level: superpages lead to physical memory from 0 on, or
/// `mapping` cuts it otherwise.
pub(crate) fn pieces(
    format: RadixFormat,
    mapping: KernelMapping,
    range: VaRange,
) -> impl Iterator<Item = (VaRange, u32)> {
    let step = format.superpage_bytes();
    let count = range.len_bytes() / step;
    assert_eq!(range.len_bytes() % step, 0, "superpages cover {range:?}");
    let mut number = 0;
    core::iter::from_fn(move || {
        (number < count).then(|| {
            let level = mapping.level(number, count - number, format.entries());
            let superpages = if level == 2 { format.entries() } else { 1 };
            let at = range.start() + number * step;
            number += superpages;
            (VaRange::new(at, at + superpages * step), level)
        })
    })
}

/// Where the kernel has the memory of devices, if it maps that by a block.
const DEVICES: Va = Va(0xf000_0000);

/// The blocks by which the kernel has the memory of devices: of data only, no instructions are fetched from there.
///
/// # Errors
/// [`PmapError::TooFewBlocks`]: `taken` registers are, and the last is for processes.
pub(crate) fn device_blocks(
    board: &Board,
    config: &PmapConfig,
    taken: usize,
) -> Result<Vec<Block>, PmapError> {
    let (Some(devices), Some(registers), true) =
        (board.device_memory, board.blocks, config.mapping.blocks_devices())
    else {
        return Ok(Vec::new());
    };
    let left = registers.count.saturating_sub(taken + 1);
    let first = Pfn(board.frames as u32).pa();
    // One block with room to spare is better than several.
    let len = Pfn(devices.pages() as u32).pa().0;
    let whole = len.next_power_of_two();
    let len = if first.0.is_multiple_of(whole) { whole } else { len };
    plan(BlockRegisters { count: left, ..registers }, DEVICES, first, len)
}

/// The blocks that this layout needs: none unless it says so.
///
/// # Errors
/// [`PmapError::TooFewBlocks`].
pub(crate) fn blocks(board: &Board, layout: &Layout, config: &PmapConfig) -> Result<Vec<Block>, PmapError> {
    if layout.region != Region::Blocks {
        return Ok(Vec::new());
    }
    let bytes = Pfn(board.frames as u32).pa().0;
    let registers = board.blocks.ok_or(PmapError::TooFewBlocks { blocks: 0, bytes })?;
    let mut blocks = plan(registers.for_both(), layout.kernel_base, Pa(0), bytes)?;
    if let (true, Some(va)) = (config.defect.is(PmapDefect::BlockOverPages), layout.paged_base) {
        blocks.push(Block { va, pa: Pa(0), shift: registers.min_shift, attr: PERMANENT });
    }
    if config.defect.is(PmapDefect::BlockMissing) {
        blocks.pop();
    }
    Ok(blocks)
}

/// A block of a process in one word, so that a switch reads it without a lock; 0 is none. Addresses have 32 bits here.
pub(crate) fn pack(block: Option<Block>) -> u64 {
    block.map_or(0, |block| (block.va.0 >> 12) << 32 | (block.pa.0 >> 12) << 8 | u64::from(block.shift))
}

/// The block that [`pack`] packed: the process may load from it and store to it, and so may the kernel.
pub(crate) fn unpack(word: u64) -> Option<Block> {
    (word != 0).then_some(Block {
        va: Va(word >> 32 << 12),
        pa: Pa((word >> 8 & 0xff_ffff) << 12),
        shift: word as u8,
        attr: Attr::WRITE.union(Attr::USER),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use pageferry_hal::isa::x86::AMD64;
    use proptest::prelude::*;

    const REGISTERS: BlockRegisters =
        BlockRegisters { count: 4, instruction_count: 0, min_shift: 17, max_shift: 28 };

    #[test]
    fn blocks_cover_memory_from_large_to_small() {
        let base = Va(0xc000_0000);
        let mb = |n: u64| n << 20;
        let shifts =
            |len| plan(REGISTERS, base, Pa(0), len).map(|b| b.iter().map(|b| b.shift).collect::<Vec<_>>());
        assert_eq!(shifts(mb(64)).unwrap(), [26]);
        assert_eq!(shifts(mb(96)).unwrap(), [26, 25]);
        assert_eq!(shifts(mb(96) + 5).unwrap(), [26, 25, 17]);
        assert_eq!(
            shifts(mb(64 + 32 + 16 + 8 + 4)).unwrap(),
            [26, 25, 24, 24],
            "the last covers what is left"
        );
        assert_eq!(shifts(mb(1024)).unwrap(), [28; 4]);
        assert!(shifts(mb(1025)).is_err());
        assert!(plan(REGISTERS, Va(0xc001_0000), Pa(0), mb(1)).is_err(), "aligned to less than a block");
    }

    #[test]
    fn a_block_of_a_process_fits_a_word() {
        let block =
            Block { va: Va(0x7fe0_0000), pa: Pa(0xffe0_0000), shift: 21, attr: Attr::WRITE | Attr::USER };
        assert_eq!(unpack(pack(Some(block))), Some(block));
        assert_eq!(unpack(pack(None)), None);
    }

    #[test]
    fn blocks_are_aligned_and_apart() {
        for pages in (1..20_000).step_by(7) {
            let len = pages << 12;
            let Ok(blocks) = plan(REGISTERS, Va(0xc000_0000), Pa(0), len) else { continue };
            for (i, b) in blocks.iter().enumerate() {
                assert_eq!((b.va.0 | b.pa.0) & (b.len_bytes() - 1), 0);
                assert!(blocks[..i].iter().all(|a| !a.overlaps(b)));
            }
            for at in [0, len / 2, len - 1] {
                let block = blocks.iter().find(|b| b.contains(Va(0xc000_0000 + at))).expect("mapped");
                assert_eq!(block.translate(Va(0xc000_0000 + at)).0, at);
            }
        }
    }

    /// How many of these blocks map the byte at `at`, and whether it leads where it should.
    fn mapped(blocks: &[Block], base: Va, at: u64) -> usize {
        let va = Va(base.0 + at);
        let found = || blocks.iter().filter(|b| b.contains(va));
        assert!(found().all(|b| b.translate(va) == Pa(at)), "{va:?} leads elsewhere");
        found().count()
    }

    /// What a plan promises, at every edge.
    fn check(r: BlockRegisters, base: Va, len: u64, blocks: &[Block]) {
        assert!(!blocks.is_empty() && blocks.len() <= r.count, "{blocks:?}");
        let mut end = 0;
        for (i, b) in blocks.iter().enumerate() {
            assert!((r.min_shift..=r.max_shift).contains(&b.shift), "no register holds {b:?}");
            assert_eq!((b.va.0 | b.pa.0) & (b.len_bytes() - 1), 0, "{b:?} is not aligned to its size");
            assert_eq!((b.va.0 - base.0, b.pa.0, b.attr), (end, end, PERMANENT), "one behind the other");
            assert!(end < len, "{b:?} maps nothing that there is");
            let rest = len - end;
            end += b.len_bytes();
            for at in [b.pa.0, end - 1] {
                assert_eq!(mapped(blocks, base, at), 1, "the first and the last byte of {b:?}");
            }
            // Greedy: the next larger one would not fit, or not lie so. The last may go beyond the end.
            let larger = b.len_bytes() * 2;
            let aligned = (b.va.0 | b.pa.0) & (larger - 1) == 0;
            if i + 1 < r.count && larger <= rest && aligned && b.shift < r.max_shift {
                panic!("{b:?} could be larger: {rest} bytes are left");
            }
            assert!(b.len_bytes() < 2 * rest || b.shift == r.min_shift, "{b:?} is larger than it need be");
        }
        assert!(end >= len, "the end of memory is not mapped");
        assert_eq!(mapped(blocks, base, len - 1), 1, "the last byte of memory");
        assert_eq!(mapped(blocks, base, end), 0, "the first byte behind the last block");
        assert_eq!(
            base.0.checked_sub(1).map_or(0, |_| blocks.iter().filter(|b| b.contains(Va(base.0 - 1))).count()),
            0
        );
    }

    fn registers() -> impl Strategy<Value = BlockRegisters> {
        (1..9usize, 17..22u8, 20..29u8).prop_map(|(count, min_shift, max_shift)| BlockRegisters {
            count,
            instruction_count: 0,
            min_shift,
            max_shift: max_shift.max(min_shift),
        })
    }

    /// Sizes near those of blocks and far from them, of pages.
    fn len_bytes() -> impl Strategy<Value = u64> {
        let near = (17..29u32, 0..4u64, -2..3i64)
            .prop_map(|(shift, more, pages)| (((1 + more) << shift) as i64 + pages * 4096).max(4096) as u64);
        prop_oneof![near, (1..131_072u64).prop_map(|pages| pages << 12)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        #[test]
        fn every_byte_of_memory_is_mapped_once(r in registers(), len in len_bytes(), base in 0..16u64) {
            // The kernel begins at a multiple of 64 MB.
            let base = Va(0xc000_0000 + (base << 26));
            let unlimited = plan(BlockRegisters { count: usize::MAX, ..r }, base, Pa(0), len).expect("registers \
                enough");
            check(BlockRegisters { count: usize::MAX, ..r }, base, len, &unlimited);
            match plan(r, base, Pa(0), len) {
                Ok(blocks) => check(r, base, len, &blocks),
                Err(e) => {
                    prop_assert_eq!(e, PmapError::TooFewBlocks { blocks: r.count, bytes: len });
                    prop_assert!(unlimited.len() > r.count, "{} would have done", unlimited.len());
                }
            }
        }
    }

    #[test]
    fn every_size_of_block_is_planned_and_its_neighbours() {
        let base = Va(0xc000_0000);
        for shift in 17..=28 {
            let size = 1u64 << shift;
            let planned = |len| plan(REGISTERS, base, Pa(0), len).unwrap();
            assert_eq!(planned(size).iter().map(|b| b.shift).collect::<Vec<_>>(), [shift]);
            for len in [size - 4096, size - 1, size, size + 1, size + 4096] {
                check(REGISTERS, base, len, &planned(len));
            }
        }
        let few = BlockRegisters { count: 1, ..REGISTERS };
        let blocks = plan(few, base, Pa(0), 3 << 20).unwrap();
        assert_eq!(blocks[0].shift, 22, "one that is too large is better than none");
        let planned = plan(few, base, Pa(0), (256 << 20) + 1);
        assert_eq!(planned, Err(PmapError::TooFewBlocks { blocks: 1, bytes: (256 << 20) + 1 }));
        assert!(plan(BlockRegisters { count: 0, ..REGISTERS }, base, Pa(0), 1).is_err());
    }

    /// The levels of the pieces of so many superpages, as a string; they lie end to end, and each is as long as its
    /// level says.
    fn levels(mapping: KernelMapping, superpages: usize) -> String {
        let format = AMD64;
        let (step, huge) = (format.superpage_bytes(), format.entries());
        let range = VaRange::new(Va(1 << 40), Va(1 << 40) + superpages * step);
        let mut at = range.start();
        let of = |(piece, level): (VaRange, u32)| {
            assert_eq!(piece.start(), at, "{mapping:?} {superpages}");
            assert_eq!(
                piece.len_bytes(),
                if level == 2 { huge * step } else { step },
                "{mapping:?} {superpages}"
            );
            at = piece.end();
            char::from_digit(level, 10).expect("a digit")
        };
        let levels = pieces(format, mapping, range).map(of).collect();
        assert_eq!(at, range.end(), "{mapping:?} {superpages}");
        levels
    }

    #[test]
    fn memory_is_cut_as_its_mapping_says() {
        let huge = AMD64.entries();
        for count in [0, 1, 2, huge - 1, huge, huge + 1, 2 * huge + 3] {
            assert_eq!(levels(KernelMapping::Pages, count), "0".repeat(count));
            for whole in [KernelMapping::Board, KernelMapping::Superpages] {
                assert_eq!(levels(whole, count), "1".repeat(count), "{whole:?}");
            }
            let (larger, left) = (count / huge, count % huge);
            assert_eq!(levels(KernelMapping::Huge, count), "2".repeat(larger) + &"1".repeat(left));
            for percent in [0, 1, 34, 50, 99, 100] {
                let cut = levels(KernelMapping::Fragmented { percent }, count);
                assert_eq!(cut.len(), count);
                // However many begin the range, their share is split, and at most one is not there yet.
                for some in 0..=count {
                    let split = cut[..some].matches('0').count();
                    assert_eq!(split, some * usize::from(percent) / 100, "{percent} {some}");
                }
            }
        }
    }
}
