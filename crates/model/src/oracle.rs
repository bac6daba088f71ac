//! The oracle of stale translations.
//!
//! For every page-table entry that kernel code changes, the oracle marks the TLB entries that were made from it and no
//! longer say what the table says. Such an entry may still be *used* while the change's window is open: that is the
//! time between the store and the end of the invalidations, when hardware, too, promises nothing. A use after the
//! window has closed is reported, with who had mapped, who changed, and which CPUs should have been told.
//!
//! An upgrade (more permissions for the same frame) makes nothing stale. A cleared dirty bit does, for stores: the CPU
//! would not set it again.

use crate::tlb::NO_PTE;
use core::fmt;
use pageferry_hal::x86::{Format, PTE_D, PTE_P, PTE_PS, PTE_U, PTE_W};
use pageferry_hal::{Access, CpuId, CpuSet, Cycles, PAGE_SIZE, Pa, Pfn, PteWidth, Va};
use std::panic::Location;

/// A place in kernel code.
pub(crate) type Site = &'static Location<'static>;

/// A use of a translation whose mapping no longer stands, outside the window of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleUse {
    /// The CPU that used it.
    pub cpu: CpuId,
    /// When, on that CPU's clock.
    pub at: Cycles,
    /// The address used.
    pub va: Va,
    /// Load or store.
    pub access: Access,
    /// Who had made the mapping, if it was made by a traced store.
    pub mapped_by: Option<Site>,
    /// Who changed it.
    pub changed_by: Site,
    /// The CPU on which the change was made.
    pub changed_on: CpuId,
    /// When, on that CPU's clock.
    pub changed_at: Cycles,
    /// The CPUs whose TLBs held the translation at the change: all of them should have been told.
    pub held_by: CpuSet,
}

impl fmt::Display for StaleUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} of {:?} on {:?} at cycle {} used a stale translation: ",
            self.access, self.va, self.cpu, self.at.0
        )?;
        match self.mapped_by {
            Some(site) => write!(f, "mapped at {}:{}, ", site.file(), site.line())?,
            None => write!(f, "mapped at boot, ")?,
        }
        write!(
            f,
            "changed at {}:{} on {:?} at cycle {}; cached then by {:?}, and not invalidated on {:?}",
            self.changed_by.file(),
            self.changed_by.line(),
            self.changed_on,
            self.changed_at.0,
            self.held_by,
            self.cpu
        )
    }
}

/// What a change of an entry means for translations made from the old one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// They are still right.
    None,
    /// They are wrong.
    Stale,
}

/// Compares an entry with its replacement.
pub(crate) fn effect(format: Format, old: u64, new: u64) -> Effect {
    if old & PTE_P == 0 {
        return Effect::None;
    }
    let lost = old & !new;
    let moved = format.frame(old) != format.frame(new) || (old ^ new) & PTE_PS != 0;
    if moved || lost & (PTE_P | PTE_W | PTE_U | PTE_D) != 0 { Effect::Stale } else { Effect::None }
}

struct Change {
    window: u32,
    mapped_by: Option<Site>,
    by: Site,
    on: CpuId,
    at: Cycles,
    held_by: CpuSet,
}

/// What is known of the page-table entries of one frame, by place.
struct Table {
    /// The sum of `made_from`.
    cached: u32,
    /// How many live TLB entries were made from each.
    made_from: [u32; MOST_ENTRIES],
    /// Who made the mapping in each.
    mapped_by: [Option<Site>; MOST_ENTRIES],
}

/// Entries of a page table, at most.
const MOST_ENTRIES: usize = PAGE_SIZE / PteWidth::Four.bytes();

/// Book-keeping of one machine.
pub(crate) struct Oracle {
    changes: Vec<Change>,
    /// For each window ever opened: is it open?
    windows: Vec<bool>,
    /// For each frame: where in `tables` its page-table entries are, counted from 1; 0 if nothing is known of any.
    of_frame: Vec<u32>,
    tables: Vec<Box<Table>>,
    found: Vec<StaleUse>,
    /// All uses found; `found` keeps only the first.
    pub(crate) stale_uses: u64,
    /// Uses of stale translations inside open windows.
    pub(crate) uses_in_window: u64,
}

/// Reports kept in full; the rest is only counted.
const MAX_REPORTS: usize = 64;

/// Where in its table an entry is: some places stay unused where entries have eight bytes.
fn place(pte: Pa) -> usize {
    pte.offset() / PteWidth::Four.bytes()
}

impl Oracle {
    pub(crate) fn new(frames: usize) -> Oracle {
        Oracle {
            changes: Vec::new(),
            windows: Vec::new(),
            of_frame: vec![0; frames],
            tables: Vec::new(),
            found: Vec::new(),
            stale_uses: 0,
            uses_in_window: 0,
        }
    }

    fn table(&self, frame: Pfn) -> Option<&Table> {
        match self.of_frame[frame.index()] {
            0 => None,
            n => Some(&self.tables[n as usize - 1]),
        }
    }

    /// As [`Oracle::table`]; makes it, if there is none.
    fn table_mut(&mut self, frame: Pfn) -> &mut Table {
        let n = &mut self.of_frame[frame.index()];
        if *n == 0 {
            let (made_from, mapped_by) = ([0; MOST_ENTRIES], [None; MOST_ENTRIES]);
            self.tables.push(Box::new(Table { cached: 0, made_from, mapped_by }));
            *n = self.tables.len() as u32;
        }
        &mut self.tables[*n as usize - 1]
    }

    pub(crate) fn found(&self) -> &[StaleUse] {
        &self.found
    }

    pub(crate) fn open(&mut self) -> u32 {
        self.windows.push(true);
        (self.windows.len() - 1) as u32
    }

    pub(crate) fn close(&mut self, window: u32) {
        assert!(std::mem::replace(&mut self.windows[window as usize], false), "a window was closed twice");
    }

    pub(crate) fn open_windows(&self) -> usize {
        self.windows.iter().filter(|&&open| open).count()
    }

    pub(crate) fn note_mapping(&mut self, pte: Pa, value: u64, by: Site) {
        self.table_mut(pte.pfn()).mapped_by[place(pte)] = (value & PTE_P != 0).then_some(by);
    }

    pub(crate) fn entry_made(&mut self, path: &[Pa; 4]) {
        for &pte in path.iter().filter(|p| **p != NO_PTE) {
            let table = self.table_mut(pte.pfn());
            table.made_from[place(pte)] += 1;
            table.cached += 1;
        }
    }

    pub(crate) fn entry_gone(&mut self, path: &[Pa; 4]) {
        for &pte in path.iter().filter(|p| **p != NO_PTE) {
            let table = self.table_mut(pte.pfn());
            let count = &mut table.made_from[place(pte)];
            *count = count.checked_sub(1).expect("an entry was made before it goes");
            table.cached -= 1;
        }
    }

    /// True when a TLB has a translation that was made from the page-table entry at `pte`.
    pub(crate) fn is_cached(&self, pte: Pa) -> bool {
        self.table(pte.pfn()).is_some_and(|t| t.made_from[place(pte)] > 0)
    }

    /// True when a TLB has a translation that was made from any page-table entry in `frame`.
    pub(crate) fn is_frame_cached(&self, frame: Pfn) -> bool {
        self.table(frame).is_some_and(|t| t.cached > 0)
    }

    /// Records a change that made translations stale; the number to mark them with.
    pub(crate) fn changed(&mut self, pte: Pa, window: u32, by: Site, on: CpuId, at: Cycles) -> u32 {
        assert!(self.windows[window as usize], "an entry was changed in a window that is closed");
        let mapped_by = self.table(pte.pfn()).and_then(|t| t.mapped_by[place(pte)]);
        self.changes.push(Change { window, mapped_by, by, on, at, held_by: CpuSet::EMPTY });
        self.changes.len() as u32
    }

    /// True when a translation marked with `change` should not exist any more: its window is closed.
    pub(crate) fn is_overdue(&self, change: u32) -> bool {
        change != 0 && !self.windows[self.changes[change as usize - 1].window as usize]
    }

    pub(crate) fn held(&mut self, change: u32, cpu: CpuId) {
        self.changes[change as usize - 1].held_by.insert(cpu);
    }

    /// A translation that `change` made stale is being used.
    pub(crate) fn used(&mut self, change: u32, cpu: CpuId, at: Cycles, va: Va, access: Access) {
        let change = &self.changes[change as usize - 1];
        if self.windows[change.window as usize] {
            self.uses_in_window += 1;
            return;
        }
        self.stale_uses += 1;
        if self.found.len() < MAX_REPORTS {
            self.found.push(StaleUse {
                cpu,
                at,
                va,
                access,
                mapped_by: change.mapped_by,
                changed_by: change.by,
                changed_on: change.on,
                changed_at: change.at,
                held_by: change.held_by,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_translation_stale() {
        let f = Format::I386;
        let base = 0x5000 | PTE_P | PTE_W;
        assert_eq!(effect(f, 0, base), Effect::None);
        assert_eq!(effect(f, base, base | PTE_U), Effect::None);
        assert_eq!(effect(f, base, base & !PTE_W), Effect::Stale);
        assert_eq!(effect(f, base, 0x6000 | PTE_P | PTE_W), Effect::Stale);
        assert_eq!(effect(f, base, 0), Effect::Stale);
        assert_eq!(effect(f, base | PTE_D, base), Effect::Stale);
    }
}
