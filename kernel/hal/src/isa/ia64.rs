//! IA-64: where FreeBSD puts things (sys/ia64/include/vmparam.h).
//!
//! The highest three bits of an address choose a region. There a process has the regions 0 to 4, and the kernel maps
//! page by page in region 5. Here a process has the lowest 2 GB, and those kernel addresses follow: tables are those of
//! a machine of 32 bits.

use crate::addr::Va;
use crate::mmu::{Layout, Region};

/// All memory in region 7, with the kernel's structures at its beginning: the handler of a miss there makes an entry of
/// the address.
pub const LAYOUT: Layout = Layout {
    user_start: Va(0x1000),
    user_end: Va(0x7fff_f000),
    kernel_base: Va(0xe000_0000_0000_0000),
    paged_base: Some(Va(0xc000_0000)),
    kernel_end: Va(0xe000_0000),
    direct_map: Some(Va(0xe000_0000_0000_0000)),
    region: Region::Computed(DIRECT_SHIFT),
};

/// log2 of the bytes that an entry of the direct map maps: 256 MB (`LOG2_ID_PAGE_SIZE`).
pub const DIRECT_SHIFT: u8 = 28;
