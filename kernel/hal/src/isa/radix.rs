//! Page tables in levels: the shape of a table, and the bits of an entry.
//!
//! i386 and amd64 share their bits; they differ in depth, width of an entry and size of a superpage. The table in which
//! a kernel keeps the truth where hardware knows no table has the same shape ([`RadixFormat::SOFT`]). Sources: Intel
//! SDM vol. 3 (32-bit paging), AMD64 APM vol. 2 (long mode paging).

use crate::addr::{PAGE_SHIFT, Pa, Pfn, Va};
use crate::mmu::{Attr, Tte, Width};

/// Valid.
pub const PTE_P: u64 = 1 << 0;
/// Writable.
pub const PTE_W: u64 = 1 << 1;
/// Reachable from user mode.
pub const PTE_U: u64 = 1 << 2;
/// Set when the entry is loaded into a TLB.
pub const PTE_A: u64 = 1 << 5;
/// Set at the first store.
pub const PTE_D: u64 = 1 << 6;
/// This entry maps a superpage.
pub const PTE_PS: u64 = 1 << 7;
/// The same in all address spaces: survives a change of the context.
pub const PTE_G: u64 = 1 << 8;
/// For software: the mapping is wired.
pub const PTE_WIRED: u64 = 1 << 9;
/// For software: the mapping is in the table of reverse mappings.
pub const PTE_MANAGED: u64 = 1 << 10;
/// Instructions are not fetched from there; in entries of 8 bytes, and where EFER.NXE is set.
pub const PTE_NX: u64 = 1 << 63;

/// Each bit of an entry, and what it says.
const BITS: [(u64, Attr); 8] = [
    (PTE_W, Attr::WRITE),
    (PTE_U, Attr::USER),
    (PTE_G, Attr::GLOBAL),
    (PTE_A, Attr::REFERENCED),
    (PTE_D, Attr::MODIFIED),
    (PTE_WIRED, Attr::WIRED),
    (PTE_MANAGED, Attr::MANAGED),
    (PTE_NX, Attr::NO_EXECUTE),
];

/// The shape of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RadixFormat {
    /// Levels; level 0 is the leaf.
    pub levels: u32,
    /// log2 of the entries of one table.
    pub index_bits: u32,
    /// Bytes of an entry.
    pub width: Width,
    /// The bits of an entry that hold the physical address.
    pub frame_mask: u64,
    /// Bits of an address; those above repeat the highest.
    pub address_bits: u32,
    /// An entry can say that nothing is executed from its page ([`PTE_NX`]).
    pub no_execute: bool,
}

impl RadixFormat {
    /// The table of a kernel on a 32-bit machine whose hardware knows none: two levels of 1024 entries of 4 bytes.
    pub const SOFT: RadixFormat = RadixFormat {
        levels: 2,
        index_bits: 10,
        width: Width::Four,
        frame_mask: 0xffff_f000,
        address_bits: 32,
        no_execute: false,
    };

    /// The shift of the address bits that index the table at `level`.
    pub const fn shift(&self, level: u32) -> u32 {
        PAGE_SHIFT + level * self.index_bits
    }
    /// log2 of the size of a superpage, which an entry at level 1 maps.
    pub const fn superpage_shift(&self) -> u32 {
        self.shift(1)
    }
    /// log2 of the size of a huge page, which an entry at level 2 maps where there is such a level.
    pub const fn huge_shift(&self) -> u32 {
        self.shift(2)
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
    /// True when `va` is an address of this format: the bits above [`RadixFormat::address_bits`] are all zero where an
    /// address has 32 bits, and repeat the highest of them where it has more.
    pub const fn is_canonical(&self, va: Va) -> bool {
        match self.width {
            Width::Four => va.0 >> self.address_bits == 0,
            Width::Eight => {
                let unused = 64 - self.address_bits;
                ((va.0 as i64) << unused >> unused) as u64 == va.0
            }
        }
    }

    /// The entry that says `tte`: of a leaf table, or of level 1 or 2 for a larger page ([`Tte::shift`]).
    ///
    /// An entry that leads to the next table is made by this too, as one of a page, the table's frame. Hardware permits
    /// an access only if the entries of *all* levels do. So an inner entry needs [`Attr::WRITE`] if any page below it
    /// is to be written, and [`Attr::USER`] if any is the user's; the leaf then decides for each page. Inner entries
    /// usually have both in the user's half, and [`Attr::WRITE`] alone in the kernel's. [`Attr::GLOBAL`] and
    /// [`Attr::MODIFIED`] mean nothing in them; a walk sets [`Attr::REFERENCED`] at every level.
    ///
    /// ```
    /// use pageferry_hal::isa::x86::I386;
    /// use pageferry_hal::{Attr, Pfn, Tte};
    ///
    /// // The table in frame 2, below which the user's pages lie; and one of them, which the user may only read.
    /// let inner = I386.encode(Tte::page(Pfn(2), Attr::USER | Attr::WRITE));
    /// let leaf = I386.encode(Tte::page(Pfn(5), Attr::USER));
    /// assert_eq!((inner, leaf), (0x2007, 0x5005));
    /// ```
    pub fn encode(&self, tte: Tte) -> u64 {
        let bits =
            BITS.iter().filter(|(_, attr)| tte.attr.contains(*attr)).fold(0, |all, (bit, _)| all | bit);
        let size = if u32::from(tte.shift) == PAGE_SHIFT { 0 } else { PTE_PS };
        PTE_P | tte.frame.pa().0 | bits | size
    }

    /// What the entry of a leaf table says; `None` when it is not valid.
    pub fn decode(&self, pte: u64) -> Option<Tte> {
        (pte & PTE_P != 0).then(|| Tte::page(self.frame(pte), attr(pte)))
    }
}

/// What the bits of an entry say.
pub fn attr(pte: u64) -> Attr {
    BITS.iter().filter(|(bit, _)| pte & bit != 0).fold(Attr::empty(), |all, (_, attr)| all | *attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_say_what_was_put_into_them() {
        let format = RadixFormat::SOFT;
        for bits in 0..1 << 7 {
            let tte = Tte::page(Pfn(0x12345), Attr::from_bits_truncate(bits));
            assert_eq!(format.decode(format.encode(tte)), Some(tte));
        }
        assert_eq!(format.decode(0), None);
    }
}
