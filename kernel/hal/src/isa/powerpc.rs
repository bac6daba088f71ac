//! 32-bit PowerPC: where a kernel lies (Linux/PPC: from 0xc0000000 on), with and without block registers.

use crate::addr::Va;
use crate::mmu::{Layout, Region};

/// The kernel's structures are mapped by pages like everything else, and there is no direct map.
pub const PAGES: Layout = Layout {
    user_start: Va(0x1000),
    user_end: Va(0x7fff_f000),
    kernel_base: Va(0xc000_0000),
    paged_base: None,
    kernel_end: Va(0xd000_0000),
    direct_map: None,
    region: Region::Pages,
};

/// All of memory, the kernel's structures at its beginning, is mapped by blocks; pages lie above.
pub const BLOCKS: Layout = Layout {
    paged_base: Some(Va(0xe000_0000)),
    kernel_end: Va(0xe800_0000),
    direct_map: Some(PAGES.kernel_base),
    region: Region::Blocks,
    ..PAGES
};
