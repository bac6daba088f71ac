//! SH-4: areas of fixed kind. Source: Renesas, SH7751 hardware manual, 3.3.
//!
//! P0 (2 GB, user) and P3 are translated by the TLB; P1 is physical memory, cached, with no translation at all.

use crate::addr::Va;
use crate::mmu::{Layout, Region};

/// The kernel's structures and all memory in P1; what the kernel maps page by page in the lowest 64 MB of P3.
pub const LAYOUT: Layout = Layout {
    user_start: Va(0x1000),
    user_end: Va(0x7fff_f000),
    kernel_base: Va(0x8000_0000),
    paged_base: Some(Va(0xc000_0000)),
    kernel_end: Va(0xc400_0000),
    direct_map: Some(Va(0x8000_0000)),
    region: Region::Unmapped,
};
