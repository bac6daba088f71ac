//! 64-bit SPARC: where FreeBSD puts things (sys/sparc64/include/vmparam.h).
//!
//! On the real machine a process and the kernel each have all 64 bits, told apart by the context of an access. Here a
//! process has the lowest 2 GB: addresses of both are in one order, as on the other machines, and the kernel's are
//! where they are there.

use crate::addr::Va;
use crate::mmu::{Layout, Region};

/// The direct map at the top, made of addresses alone, with the kernel's structures at its beginning; what the kernel
/// maps page by page far below it.
pub const LAYOUT: Layout = Layout {
    user_start: Va(0x1000),
    user_end: Va(0x7fff_f000),
    kernel_base: Va(0xffff_f800_0000_0000),
    paged_base: Some(Va(0xc000_0000)),
    kernel_end: Va(0xe000_0000),
    direct_map: Some(Va(0xffff_f800_0000_0000)),
    region: Region::Computed(DIRECT_SHIFT),
};

/// log2 of the bytes that an entry of the direct map maps: 4 MB.
pub const DIRECT_SHIFT: u8 = 22;
