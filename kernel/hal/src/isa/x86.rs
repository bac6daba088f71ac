//! i386 and amd64: page tables that hardware walks. Sources: Intel SDM vol. 3, AMD64 APM vol. 2.

use super::RadixFormat;
use crate::addr::Va;
use crate::mmu::{Layout, Region, Width};

/// Two levels of 1024 entries of 4 bytes; superpages of 4 MB.
pub const I386: RadixFormat = RadixFormat::SOFT;
/// Four levels of 512 entries of 8 bytes; superpages of 2 MB.
pub const AMD64: RadixFormat = RadixFormat {
    levels: 4,
    index_bits: 9,
    width: Width::Eight,
    frame_mask: 0x000f_ffff_ffff_f000,
    address_bits: 48,
    no_execute: true,
};

/// The split of the sf_buf paper (4.2): 3 GB user, 1 GB kernel. The topmost 4 MB stay free.
pub const I386_LAYOUT: Layout = Layout {
    user_start: Va(0x1000),
    user_end: Va(0xbfc0_0000),
    kernel_base: Va(0xc000_0000),
    paged_base: None,
    kernel_end: Va(0xffc0_0000),
    direct_map: None,
    region: Region::Superpages,
};

/// A 47-bit user space, the kernel in the topmost 8 GB (room for a million ephemeral mappings), and all memory mapped
/// one-to-one (sf_buf paper, 4.3).
pub const AMD64_LAYOUT: Layout = Layout {
    user_start: Va(0x1000),
    user_end: Va(0x0000_7fff_ffff_f000),
    kernel_base: Va(0xffff_fffe_0000_0000),
    paged_base: None,
    kernel_end: Va(0xffff_ffff_ffc0_0000),
    direct_map: Some(Va(0xffff_ff00_0000_0000)),
    region: Region::Superpages,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices() {
        let va = Va(0xc040_3abc);
        assert_eq!((I386.index(va, 1), I386.index(va, 0)), (0x301, 3));
        assert_eq!(I386.superpage_bytes(), 4 << 20);
        let va = Va(0xffff_ffff_8020_1000);
        assert_eq!([3, 2, 1, 0].map(|l| AMD64.index(va, l)), [511, 510, 1, 1]);
        assert!(AMD64.is_canonical(va) && !AMD64.is_canonical(Va(1 << 50)));
        assert!(!I386.is_canonical(Va(1 << 32)));
        assert_eq!(AMD64.superpage_bytes(), 2 << 20);
    }
}
