//! A hash table of translations that hardware looks into (PowerPC, 32 bits).
//!
//! The table is an array of *groups* of eight entries. The number of a virtual segment (VSID) and the index of a page
//! in it are hashed to a primary group and, inverted, to a secondary one; hardware takes the first valid entry of the
//! two that matches. Nothing orders entries, and nothing says which pages have one: the table is a cache of the
//! kernel's own. Source: IBM, PowerPC 604 User's Manual, 5.5; Motorola, PowerPC Microprocessor Family: The Programming
//! Environments, 7.6.

use crate::addr::{PAGE_SHIFT, Pa, Pfn, Va};
use crate::mmu::{Asid, HashTable};

/// Entries of a group.
pub const GROUP_ENTRIES: usize = 8;
/// Bytes of an entry: two words, the first of them the upper half here.
pub const ENTRY_BYTES: usize = 8;
/// Bytes of a group.
pub const GROUP_BYTES: usize = GROUP_ENTRIES * ENTRY_BYTES;

/// Valid.
pub const HPTE_V: u64 = 1 << 63;
/// In its secondary group.
pub const HPTE_H: u64 = 1 << 38;
/// Was used.
pub const HPTE_R: u64 = 0x100;
/// Was stored through.
pub const HPTE_C: u64 = 0x80;
/// What it permits (PP): 0 the kernel loads and stores, 1 the user may load, 2 the user may store, 3 both may only
/// load.
pub const HPTE_PP: u64 = 3;

/// log2 of the bytes of a segment, of which an address space has 16.
const SEGMENT_SHIFT: u32 = 28;

/// What numbers of address spaces are multiplied by, so that those given one after the other fall into groups far apart
/// (Linux 2.2, mmu_context.h). Any such factor is odd: no two numbers of 20 bits become one.
pub const SCATTER: u32 = 897;

/// The segment of `va` in the address space tagged `asid`, by the kernel's `scatter`: 16 consecutive VSIDs for each.
pub fn vsid(scatter: u32, asid: Asid, va: Va) -> u64 {
    ((u64::from(asid.0) * u64::from(scatter)) & 0xf_ffff) << 4 | (va.0 >> SEGMENT_SHIFT & 0xf)
}

/// The VSID that the upper half of an entry holds.
pub const fn vsid_of(entry: u64) -> u64 {
    entry >> 39 & 0xff_ffff
}

/// The number of the address space whose segment this is: the inverse of [`vsid`].
pub const fn asid_of(scatter: u32, vsid: u64) -> Asid {
    // The inverse of an odd number modulo powers of two, by Newton: three bits are right at first, then twice as many.
    let mut inverse = scatter;
    let mut bits = 3;
    while bits < 20 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(scatter.wrapping_mul(inverse)));
        bits *= 2;
    }
    Asid(((vsid >> 4) as u32).wrapping_mul(inverse) & 0xf_ffff)
}

/// The index of the page at `va` in its segment.
fn page_index(va: Va) -> u64 {
    va.0 >> PAGE_SHIFT & 0xffff
}

/// The group of `va`: the primary one, or the secondary one.
pub fn group(table: HashTable, asid: Asid, va: Va, secondary: bool) -> Pa {
    let hash = (vsid(table.scatter, asid, va) & 0x7_ffff) ^ page_index(va);
    let hash = if secondary { !hash } else { hash };
    table.at + (hash as usize & (table.groups - 1)) * GROUP_BYTES
}

/// The upper half of the entry for `va`, in its right place, with nothing below: what a look-up compares.
pub fn tag(table: HashTable, asid: Asid, va: Va, secondary: bool) -> u64 {
    let h = if secondary { HPTE_H } else { 0 };
    HPTE_V | vsid(table.scatter, asid, va) << 39 | h | page_index(va) >> 10 << 32
}

/// The bits of an entry that [`tag`] gives.
pub const TAG_MASK: u64 = 0xffff_ffff << 32;

/// The lower half: where it leads.
pub const fn frame(entry: u64) -> Pfn {
    Pfn((entry as u32) >> PAGE_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_tell_pages_of_a_group_apart() {
        let table = HashTable { at: Pa(0x10_0000), groups: 1024, scatter: SCATTER };
        let (a, b) = (Va(0x1000_0000), Va(0x1040_0000));
        assert_eq!(group(table, Asid(1), a, false), group(table, Asid(1), b, false), "ten bits apart");
        assert_ne!(tag(table, Asid(1), a, false), tag(table, Asid(1), b, false));
        assert_ne!(tag(table, Asid(1), a, false), tag(table, Asid(2), a, false));
        assert_ne!(tag(table, Asid(1), a, false), tag(table, Asid(1), a, true));
        assert_eq!(tag(table, Asid(3), a, true) & !TAG_MASK, 0);
        let (primary, secondary) = (group(table, Asid(5), a, false), group(table, Asid(5), a, true));
        assert_eq!((primary.0 - table.at.0) ^ (secondary.0 - table.at.0), 1023 * GROUP_BYTES as u64);
        for asid in (0..1 << 20).step_by(997).map(Asid) {
            for scatter in [1, 3, SCATTER, 0xf_ffff] {
                let table = HashTable { scatter, ..table };
                assert_eq!(asid_of(scatter, vsid_of(tag(table, asid, a, false))), asid);
            }
        }
        assert_eq!(frame(tag(table, Asid(1), a, false) | 0x1234_5000 | HPTE_R), Pfn(0x12345));
    }
}
