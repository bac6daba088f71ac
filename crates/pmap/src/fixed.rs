//! What is mapped for ever: the arena of kernel structures and, where there is one, the direct map of all memory.
//!
//! How is the layout's business ([`Region`]): not at all, by block registers, by superpages, or by pages like any other. Here
//! is the plan of blocks: few, large, each aligned to its size, as the registers want them.

use crate::config::{KernelMapping, PmapConfig, PmapDefect, PmapError};
use alloc::vec::Vec;
use pageferry_hal::isa::RadixFormat;
use pageferry_hal::{
    Attr, Block, BlockRegisters, Board, Layout, Mmu, PAGE_SHIFT, Pa, Pfn, Region, Va, VaRange,
};

/// What permanent mappings are: global, and used and modified beforehand, so that nothing need be noted.
pub(crate) const PERMANENT: Attr =
    Attr::WRITE.union(Attr::GLOBAL).union(Attr::REFERENCED).union(Attr::MODIFIED);

/// The blocks that map `len_bytes` of physical addresses from `first` on, at `base`: the largest that fit, and the last one
/// perhaps larger than what is left.
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
        let aligned = (va.0 | (first.0 + at) | 1 << registers.most_shift).trailing_zeros() as u8;
        let rest = len_bytes - at;
        let last = blocks.len() + 1 == registers.count;
        let wanted = if last { rest.next_power_of_two().ilog2() } else { rest.ilog2() } as u8;
        let shift = wanted.max(registers.least_shift).min(aligned);
        if shift < registers.least_shift || blocks.len() == registers.count {
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
/// [`PmapError::NoBlocks`], [`PmapError::NoSuchPages`].
pub(crate) fn layout(board: &Board, mapping: KernelMapping) -> Result<Layout, PmapError> {
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

/// What each entry of the page tables maps of `range`, by its level: superpages lead to physical memory from 0 on, or `mapping`
/// cuts it otherwise.
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
    if let (PmapDefect::BlockOverPages, Some(paged)) = (config.defect, layout.paged_base) {
        blocks.push(Block { va: paged, pa: Pa(0), shift: registers.least_shift, attr: PERMANENT });
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

    const REGISTERS: BlockRegisters =
        BlockRegisters { count: 4, instruction_count: 0, least_shift: 17, most_shift: 28 };

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
}
