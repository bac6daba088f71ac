//! Page tables in levels: walking and growing them, entry by entry.
//!
//! On machines whose hardware walks page tables these are what it walks; on others they are the truth that a hash table
//! and the TLB are filled from. This file alone knows the bits of an entry; all else speaks of a [`Tte`].
//!
//! [`Tables`] lists the frames that an address space's tables take, and counts what they map. Tables are added under
//! the space's lock and go only when the space goes: a walk that found a leaf table may rely on it as long as it holds
//! the lock, or runs in the space. Every entry read or written is an access through the machine, and so accounted.

use alloc::vec::Vec;
use pageferry_hal::isa::RadixFormat;
use pageferry_hal::isa::radix::{PTE_A, PTE_P, PTE_PS, PTE_U, PTE_W};
use pageferry_hal::{Machine, Mmu, PAGE_SHIFT, Pa, Pfn, Tte, Va, VaRange};

/// Entries that lead to a user table: what is permitted is said by the leaves.
const UPPER: u64 = PTE_P | PTE_W | PTE_U;
/// Entries that lead to a table of the kernel's.
const KERNEL_UPPER: u64 = PTE_P | PTE_W | PTE_A;

/// The format of the tables on machines of this kind.
pub(crate) fn format_of(mmu: Mmu) -> RadixFormat {
    match mmu {
        Mmu::Radix(format) => format,
        Mmu::Hash | Mmu::Soft { .. } => RadixFormat::SOFT,
    }
}

/// Reads the leaf entry at `slot`.
#[inline]
pub(crate) fn load<M: Machine>(m: &M, format: &RadixFormat, slot: Pa) -> Option<Tte> {
    format.decode(m.pt_load(slot, format.width))
}

/// Writes a leaf entry that held no mapping.
#[inline]
pub(crate) fn store<M: Machine>(m: &M, format: &RadixFormat, slot: Pa, new: Tte) {
    m.pt_store(slot, format.width, format.encode(new));
}

/// Replaces a leaf entry and answers what it said in the moment before.
#[inline]
pub(crate) fn swap<M: Machine>(m: &M, format: &RadixFormat, slot: Pa, new: Option<Tte>) -> Option<Tte> {
    format.decode(m.pt_swap(slot, format.width, new.map_or(0, |tte| format.encode(tte))))
}

/// Replaces a leaf entry if it still says `old`.
#[inline]
pub(crate) fn replace<M: Machine>(m: &M, format: &RadixFormat, slot: Pa, old: Tte, new: Tte) -> bool {
    m.pt_replace(slot, format.width, format.encode(old), format.encode(new)).is_ok()
}

/// Writes an entry above the leaves of the kernel's tables.
pub(crate) fn store_upper<M: Machine>(m: &M, format: &RadixFormat, slot: Pa, table: Pa) {
    m.pt_store(slot, format.width, table.0 | KERNEL_UPPER);
}

/// The table that an entry above the leaves leads to.
pub(crate) fn load_upper<M: Machine>(m: &M, format: &RadixFormat, slot: Pa) -> Option<Pa> {
    let entry = m.pt_load(slot, format.width);
    (entry & PTE_P != 0).then(|| format.frame(entry).pa())
}

/// The page tables of one address space.
pub(crate) struct Tables {
    /// The root first, then the others as they were added.
    pub(crate) frames: Vec<Pfn>,
    /// Valid leaf entries.
    pub(crate) resident: usize,
    /// Those of them that are wired.
    pub(crate) wired: usize,
}

impl Tables {
    pub(crate) fn new(root: Pfn) -> Tables {
        Tables { frames: Vec::from([root]), resident: 0, wired: 0 }
    }

    pub(crate) fn root(&self) -> Pa {
        self.frames[0].pa()
    }

    /// Counts a leaf entry that changed from wired or not to wired or not.
    pub(crate) fn count_wired(&mut self, was: bool, is: bool) {
        self.wired = self.wired + usize::from(is) - usize::from(was);
        assert!(self.wired <= self.resident, "{} pages wired of {}", self.wired, self.resident);
    }
}

/// Where a walk ended.
pub(crate) enum Walk {
    /// At the leaf entry, valid or not.
    Leaf(Pa),
    /// At an entry at `level` (1 or more) that leads nowhere: as many tables are missing.
    Missing { slot: Pa, level: u32 },
}

/// Walks from `root` towards the leaf entry of `va`.
pub(crate) fn walk<M: Machine>(m: &M, format: &RadixFormat, root: Pa, va: Va) -> Walk {
    let mut table = root;
    for level in (1..format.levels).rev() {
        let slot = format.slot(table, va, level);
        let entry = m.pt_load(slot, format.width);
        if entry & PTE_P == 0 {
            return Walk::Missing { slot, level };
        }
        assert!(entry & PTE_PS == 0, "there is no leaf table below a superpage: {va:?}");
        table = format.frame(entry).pa();
    }
    Walk::Leaf(format.slot(table, va, 0))
}

/// The entry for `va`, with tables added from `spare`, which are cleared; `Err` with how many more it needs.
pub(crate) fn walk_or_grow<M: Machine>(
    m: &M,
    format: &RadixFormat,
    tables: &mut Tables,
    va: Va,
    spare: &mut Vec<Pfn>,
) -> Result<Pa, usize> {
    loop {
        match walk(m, format, tables.root(), va) {
            Walk::Leaf(slot) => return Ok(slot),
            Walk::Missing { level, .. } if spare.len() < level as usize => {
                return Err(level as usize - spare.len());
            }
            Walk::Missing { slot, .. } => {
                let frame = spare.pop().expect("counted above");
                m.pt_store(slot, format.width, frame.pa().0 | UPPER);
                tables.frames.push(frame);
            }
        }
    }
}

/// The leaf tables of a range, in order; what has no table is skipped in strides of what is missing.
pub(crate) struct Leaves<'a, M: Machine> {
    m: &'a M,
    format: RadixFormat,
    root: Pa,
    rest: VaRange,
}

impl<'a, M: Machine> Leaves<'a, M> {
    pub(crate) fn new(m: &'a M, format: RadixFormat, root: Pa, range: VaRange) -> Leaves<'a, M> {
        Leaves { m, format, root, rest: range }
    }
}

impl<M: Machine> Iterator for Leaves<'_, M> {
    /// The entry of the first page, and the pages whose entries follow it in the same table.
    type Item = (Pa, VaRange);

    fn next(&mut self) -> Option<(Pa, VaRange)> {
        while !self.rest.is_empty() {
            let start = self.rest.start();
            let (found, level) = match walk(self.m, &self.format, self.root, start) {
                Walk::Leaf(slot) => (Some(slot), 1),
                Walk::Missing { level, .. } => (None, level),
            };
            // What one entry at `level` spans, from its start on; the range may end before.
            let span = 1u64 << self.format.shift(level);
            let end =
                (start.0 | (span - 1)).checked_add(1).map_or(self.rest.end(), |e| Va(e).min(self.rest.end()));
            self.rest = VaRange::new(end, self.rest.end());
            if let Some(slot) = found {
                return Some((slot, VaRange::new(start, end)));
            }
        }
        None
    }
}

/// The entries of consecutive pages of one leaf table, each with its page.
pub(crate) fn entries(format: RadixFormat, first: Pa, pages: VaRange) -> impl Iterator<Item = (Pa, Va)> {
    let start = pages.start();
    pages.pages().map(move |va| (first + ((va - start) >> PAGE_SHIFT) * format.width.bytes(), va))
}
