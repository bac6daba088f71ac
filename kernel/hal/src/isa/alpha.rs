//! Alpha: where FreeBSD puts things (sys/alpha/include/alpha_cpu.h).
//!
//! A process has the lowest 4 TB there (USEG), and what the kernel maps page by page lies at the top (K1SEG). Here it
//! has the lowest 2 GB, and those kernel addresses follow: tables are those of a machine of 32 bits. Addresses have 43
//! bits, of which the highest is not repeated above.

use crate::addr::Va;
use crate::mmu::{Layout, Region};

/// All memory, and the kernel's structures at its beginning, in K0SEG, which the processor takes for physical addresses
/// without a look at the TLB.
pub const LAYOUT: Layout = Layout {
    user_start: Va(0x1000),
    user_end: Va(0x7fff_f000),
    kernel_base: Va(0x400_0000_0000),
    paged_base: Some(Va(0xc000_0000)),
    kernel_end: Va(0xe000_0000),
    direct_map: Some(Va(0x400_0000_0000)),
    region: Region::Unmapped,
};
