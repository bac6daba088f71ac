//! The page-table formats of i386 and amd64, and the kernel's address layout on them.
//!
//! Both formats share their bits; they differ in depth, width of an entry and size of a superpage. Walkers of modelled
//! machines and the pmap use this one description. Sources: Intel SDM vol. 3 (32-bit paging), AMD64 APM vol. 2 (long
//! mode paging).

use crate::addr::{PAGE_SHIFT, Pa, Pfn, Va};
use crate::machine::{Arch, PteWidth};

/// Valid.
pub const PTE_P: u64 = 1 << 0;
/// Writable.
pub const PTE_W: u64 = 1 << 1;
/// Reachable from user mode.
pub const PTE_U: u64 = 1 << 2;
/// Set by the walker when it loads the entry into a TLB.
pub const PTE_A: u64 = 1 << 5;
/// Set by the walker at the first store.
pub const PTE_D: u64 = 1 << 6;
/// This entry maps a superpage.
pub const PTE_PS: u64 = 1 << 7;
/// Survives a load of the page-table root.
pub const PTE_G: u64 = 1 << 8;
/// For software: the mapping is wired.
pub const PTE_WIRED: u64 = 1 << 9;
/// For software: the mapping is in the table of reverse mappings.
pub const PTE_MANAGED: u64 = 1 << 10;

/// The shape of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Levels; level 0 is the leaf.
    pub levels: u32,
    /// log2 of the entries of one table.
    pub index_bits: u32,
    /// Bytes of an entry.
    pub width: PteWidth,
    /// The bits of an entry that hold the physical address.
    pub frame_mask: u64,
}

impl Format {
    /// Two levels of 1024 entries of 4 bytes; superpages of 4 MB.
    pub const I386: Format =
        Format { levels: 2, index_bits: 10, width: PteWidth::Four, frame_mask: 0xffff_f000 };
    /// Four levels of 512 entries of 8 bytes; superpages of 2 MB.
    pub const AMD64: Format =
        Format { levels: 4, index_bits: 9, width: PteWidth::Eight, frame_mask: 0x000f_ffff_ffff_f000 };

    /// The format of `arch`.
    pub const fn of(arch: Arch) -> Format {
        match arch {
            Arch::I386 => Format::I386,
            Arch::Amd64 => Format::AMD64,
        }
    }

    /// The shift of the address bits that index the table at `level`.
    pub const fn shift(&self, level: u32) -> u32 {
        PAGE_SHIFT + level * self.index_bits
    }
    /// log2 of the size of a superpage, which an entry at level 1 maps.
    pub const fn superpage_shift(&self) -> u32 {
        self.shift(1)
    }
    /// Bytes of a superpage.
    pub const fn superpage_bytes(&self) -> usize {
        1 << self.superpage_shift()
    }
    /// Entries of one table.
    pub const fn entries(&self) -> usize {
        1 << self.index_bits
    }
    /// The index of `va` in the table at `level`.
    pub const fn index(&self, va: Va, level: u32) -> usize {
        ((va.0 >> self.shift(level)) & ((1 << self.index_bits) - 1)) as usize
    }
    /// Where the entry for `va` lies in the table `table` at `level`.
    pub fn slot(&self, table: Pa, va: Va, level: u32) -> Pa {
        table + self.index(va, level) * self.width.bytes()
    }
    /// The frame in an entry.
    pub const fn frame(&self, pte: u64) -> Pfn {
        Pa(pte & self.frame_mask).pfn()
    }
    /// True when `va` is an address of this format: on amd64, bits 48 to 63 repeat bit 47.
    pub const fn is_canonical(&self, va: Va) -> bool {
        match self.width {
            PteWidth::Four => va.0 >> 32 == 0,
            PteWidth::Eight => ((va.0 as i64) << 16 >> 16) as u64 == va.0,
        }
    }
}

/// Where things are in an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// First address of user space.
    pub user_start: Va,
    /// First address behind user space.
    pub user_end: Va,
    /// First address of the kernel: the arena of kernel structures begins here, in superpages.
    pub kernel_base: Va,
    /// First address behind what the kernel may map page by page.
    pub kernel_end: Va,
    /// Where physical address 0 appears in the direct map of all memory, if there is one.
    pub direct_map: Option<Va>,
}

impl Layout {
    /// The split of the sf_buf paper (4.2): 3 GB user, 1 GB kernel. The topmost 4 MB stay free.
    pub const I386: Layout = Layout {
        user_start: Va(0x1000),
        user_end: Va(0xbfc0_0000),
        kernel_base: Va(0xc000_0000),
        kernel_end: Va(0xffc0_0000),
        direct_map: None,
    };
    /// A 47-bit user space, the kernel in the topmost 8 GB (room for a million ephemeral mappings), and all memory mapped
    /// one-to-one (sf_buf paper, 4.3).
    pub const AMD64: Layout = Layout {
        user_start: Va(0x1000),
        user_end: Va(0x0000_7fff_ffff_f000),
        kernel_base: Va(0xffff_fffe_0000_0000),
        kernel_end: Va(0xffff_ffff_ffc0_0000),
        direct_map: Some(Va(0xffff_ff00_0000_0000)),
    };

    /// The layout of `arch`.
    pub const fn of(arch: Arch) -> Layout {
        match arch {
            Arch::I386 => Layout::I386,
            Arch::Amd64 => Layout::AMD64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices() {
        let va = Va(0xc040_3abc);
        assert_eq!((Format::I386.index(va, 1), Format::I386.index(va, 0)), (0x301, 3));
        assert_eq!(Format::I386.superpage_bytes(), 4 << 20);
        let va = Va(0xffff_ffff_8020_1000);
        assert_eq!([3, 2, 1, 0].map(|l| Format::AMD64.index(va, l)), [511, 510, 1, 1]);
        assert!(Format::AMD64.is_canonical(va) && !Format::AMD64.is_canonical(Va(1 << 50)));
        assert_eq!(Format::AMD64.superpage_bytes(), 2 << 20);
    }
}
