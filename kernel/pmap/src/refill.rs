//! The refill handler: what the kernel does when its machine cannot translate an access by itself.
//!
//! It finds the mapping in the page tables of the space that runs, or in the kernel's; notes that the page is used, and
//! modified if it is a store; and loads the TLB, or puts an entry into the hash table and lets hardware look again.
//! Where the kernel keeps a hash table of its own accord, it looks there first. Of a direct map that is in no table it
//! makes the entry from the address. A miss in a communication area whose pages are attached by reserved entries is
//! refused at once, without a look at any table: what is attached does not miss. It runs on whatever it interrupts,
//! with interrupts off.
//!
//! # Fast and slow
//! The **fast** handler works in a few registers, with physical addresses, so that it cannot miss itself. The **slow**
//! one saves all registers, goes back to virtual addresses and calls C, which fetches its text, uses its stack and
//! reads the tables like the rest of the kernel; only what changes tables is done with physical addresses again. Where
//! the kernel's memory is mapped by pages it can miss in any of that. Then it is called within itself, and *that* call
//! is fast whatever the kernel's choice: it cannot miss, so each miss of the outer one is over when it returns, and the
//! outer one makes as many accesses as its code has. Under blocks nothing of it misses. (PPC paper; what each takes is
//! counted in Linux/PPC's head.S, see [`RefillPaths`].)
//!
//! # Locks
//! None but that of the hash table, which the slow handler takes only while it works with physical addresses: a call
//! within itself may take it too.
//!
//! Page tables are changed under locks that it does not take. So it notes by compare-and-swap, and what it has loaded
//! and another CPU is changing, that CPU's shootdown drops: interrupts wait until the handler is through. A leaf table
//! that it has found stays, because a space's tables go only when nothing runs in it.
//!
//! [`RefillPaths`]: crate::RefillPaths

use crate::config::Reload;
use crate::config::{FRAME_BYTES, FRAMES};
use crate::counter::PmapCounter;
use crate::defect::PmapDefect;
use crate::pmap::Pmaps;
use crate::preload::SlotList;
use crate::tables::radix::{self, Walk, walk};
use crate::tables::second::{Searched, Second, decode};
use pageferry_hal::isa::hash::{ENTRY_BYTES, GROUP_ENTRIES, group};
use pageferry_hal::{
    Access, Asid, Attr, CodePath, Flush, Instructions, Machine, Miss, MissKind, Mmu, Mode, Pa, Slot, SpaceId,
    SpinLock, StructVa, TrapKind, Tte,
};

/// Whose translation is missing.
#[derive(Clone, Copy)]
struct Whose {
    space: SpaceId,
    root: Pa,
    asid: Asid,
}

impl<M: Machine> Pmaps<M> {
    /// To be set as the machine's refill handler, by [`Tlb::set_refill`](pageferry_hal::Tlb::set_refill).
    ///
    /// # Errors
    /// Why the access cannot be made.
    pub fn handle_miss(&self, miss: Miss) -> Result<(), TrapKind> {
        let m = &self.machine;
        let whose = match miss.va >= self.kernel.layout.user_end {
            true => Whose { space: SpaceId::KERNEL, root: self.kernel.root, asid: Asid::KERNEL },
            false => {
                let (space, root, asid) = self.active[m.cpu().index()].context();
                Whose { space, root, asid }
            }
        };
        let endless = self.config.defect.is(PmapDefect::EndlessRefill);
        let nested = m.refill_depth() > 1;
        let outermost = !nested || endless;
        if nested {
            m.count(PmapCounter::NestedRefills, 1);
        }
        if miss.va < self.kernel.layout.user_end && self.misses_what_is_not_attached(miss.va) {
            return Err(TrapKind::Protection);
        }
        if let Some((_, tte)) = self.kernel.computed(miss.va) {
            return self.refill_computed(whose, miss, tte);
        }
        let reload = if outermost { self.config.refill.reload } else { Reload::Fast };
        if reload == Reload::Slow {
            return self.refill_slowly(whose, miss, self.loads_tlb());
        }
        let paths = &self.config.refill.paths;
        let Some(second) = &self.second else {
            m.execute(paths.direct);
            let tte = self.note(whose, miss)?;
            self.load_tlb(whose, miss, tte);
            return Ok(());
        };
        if self.loads_tlb() {
            m.execute(paths.search);
            let searched = second.search(m, whose.asid, miss.va);
            self.probed(searched);
            if let Some(tte) = self.usable(searched, miss) {
                self.load_tlb(whose, miss, tte);
                return Ok(());
            }
        }
        if reload == Reload::SlowInsert {
            return self.refill_slowly(whose, miss, false);
        }
        self.count_hash_miss(miss);
        m.execute(paths.insert);
        let searched = self.insert(second, whose, miss)?;
        self.probed(searched.to_its_place());
        Ok(())
    }

    /// Loads the entry of the direct map that an address names: in registers, without any table, whatever the kernel's
    /// choice.
    fn refill_computed(&self, whose: Whose, miss: Miss, tte: Tte) -> Result<(), TrapKind> {
        if tte.frame.index() >= self.frame_count {
            return Err(TrapKind::NotPresent);
        }
        if miss.mode == Mode::User {
            return Err(TrapKind::Protection);
        }
        self.machine.execute(self.config.refill.paths.direct);
        self.load_tlb(whose, miss, tte);
        Ok(())
    }

    /// The kernel loads the TLB; hardware does so elsewhere, from the hash table.
    fn loads_tlb(&self) -> bool {
        matches!(self.machine.board().mmu, Mmu::Soft { .. })
    }

    fn count_hash_miss(&self, miss: Miss) {
        if miss.kind == MissKind::Absent {
            if miss.access == Access::Write && self.config.defect.is(PmapDefect::MissUnplaced) {
                return self.machine.count(PmapCounter::HashMisses, 1);
            }
            self.machine.count_at(PmapCounter::HashMisses, miss.va, 1);
        }
    }

    /// Takes the time of such a look through the hash table, besides its loads.
    fn probed(&self, searched: Searched) {
        let (m, paths) = (&self.machine, &self.config.refill.paths);
        m.execute(Instructions(paths.probe.instructions.0 * searched.probes));
        if searched.secondary {
            m.execute(paths.secondary);
        }
    }

    /// What was found in the hash table, if it permits the access. What it refuses is asked of the page tables.
    fn usable(&self, searched: Searched, miss: Miss) -> Option<Tte> {
        let (_, entry) = searched.found.filter(|_| miss.kind == MissKind::Absent)?;
        let tte = decode(entry, miss.va < self.kernel.layout.user_end);
        let write = miss.access == Access::Write;
        let closed = miss.mode == Mode::User && !tte.attr.contains(Attr::USER);
        (!closed && (!write || tte.attr.contains(Attr::WRITE))).then_some(tte)
    }

    /// Puts the page's entry into the hash table as the page tables have it, and into the TLB where the kernel loads
    /// it; answers where it looked for a place.
    fn insert(&self, second: &Second<M>, whose: Whose, miss: Miss) -> Result<Searched, TrapKind> {
        let m = &self.machine;
        let early = self.config.defect.is(PmapDefect::ReadBeforeLocked);
        let read_early = early.then(|| self.note(whose, miss)).transpose()?;
        let mut cursors = second.cursors.lock();
        let tte = read_early.map_or_else(|| self.note(whose, miss), Ok)?;
        let searched = second.search(m, whose.asid, miss.va);
        second.insert(m, &mut cursors, searched, (whose.asid, miss.va), tte);
        drop(cursors);
        if self.loads_tlb() {
            self.load_tlb(whose, miss, tte);
        } else if miss.kind != MissKind::Absent && !self.config.defect.is(PmapDefect::RefusedStays) {
            self.flush_own(Flush::Page(whose.asid, miss.va));
        }
        Ok(searched)
    }

    fn load_tlb(&self, whose: Whose, miss: Miss, tte: Tte) {
        let m = &self.machine;
        if miss.kind != MissKind::Absent {
            self.flush_own(Flush::Page(whose.asid, miss.va));
        }
        let (at, mut tte) = self.in_row((whose.space, whose.root, whose.asid), miss.va, tte);
        // Before what goes is laid there: it is not a neighbour of what comes.
        let neighbours = self.neighbours(whose.asid, miss.va);
        let mut taken = SlotList::default();
        let apart = matches!(m.board().mmu, Mmu::Soft { fetches_apart: true, .. });
        let slot = match miss.access {
            Access::Fetch if apart => Slot::Instruction,
            _ => self.choose_entry(whose.asid, at, &mut taken),
        };
        if self.config.defect.is(PmapDefect::ModifiedLost) {
            tte.attr |= Attr::MODIFIED;
        }
        if self.config.defect.is(PmapDefect::WriteAlways) {
            tte.attr |= Attr::WRITE | Attr::MODIFIED;
        }
        m.tlb_load(slot, whose.asid, at, tte);
        if miss.kind == MissKind::Absent {
            self.preload(whose.root, whose.asid, neighbours, &mut taken);
        }
    }

    // ------------------------------------------------------------------------------------------- slow

    /// Saves registers, calls C, restores them. C looks into the hash table first, unless hardware or another handler
    /// has.
    fn refill_slowly(&self, whose: Whose, miss: Miss, search: bool) -> Result<(), TrapKind> {
        let (m, paths) = (&self.machine, &self.config.refill.paths);
        let depth = (m.refill_depth() as usize).min(FRAMES) - 1;
        let frame = self.frames.element(m.cpu().index() * FRAMES + depth, FRAME_BYTES);
        m.execute(paths.save);
        m.touch(frame, FRAME_BYTES, Access::Write);
        let filled = match &self.second {
            None => {
                self.in_c(paths.walk, || self.read_tables(whose, miss));
                self.note(whose, miss).map(|tte| self.load_tlb(whose, miss, tte))
            }
            Some(second) => {
                let usable = match search {
                    true => {
                        self.in_c(paths.search_c, || self.read_groups(second, whose, miss));
                        self.usable(second.search(m, whose.asid, miss.va), miss)
                    }
                    false => None,
                };
                match usable {
                    Some(tte) => {
                        self.load_tlb(whose, miss, tte);
                        Ok(())
                    }
                    None => {
                        self.count_hash_miss(miss);
                        self.in_c(paths.walk, || self.read_tables(whose, miss));
                        self.in_c(paths.insert_c, || self.read_groups(second, whose, miss));
                        // The time of looking for a place is in the path of the C code.
                        self.insert(second, whose, miss).map(|_| ())
                    }
                }
            }
        };
        m.execute(paths.restore);
        m.touch(frame, FRAME_BYTES, Access::Read);
        filled
    }

    /// Runs a path of C code, and what it reads, with virtual addresses.
    fn in_c(&self, path: CodePath, reads: impl FnOnce()) {
        let m = &self.machine;
        m.translate_refill(true);
        m.execute(path);
        reads();
        m.translate_refill(false);
    }

    /// Reads what lies at a physical address by its address in the direct map.
    fn read(&self, at: Pa, len_bytes: usize) {
        let base = self.kernel.layout.direct_map.expect("a handler in C goes through all of memory");
        self.machine.touch(StructVa(base + at.0 as usize), len_bytes, Access::Read);
    }

    /// Reads the entries of the page tables on the way to a page.
    fn read_tables(&self, whose: Whose, miss: Miss) {
        let format = &self.kernel.format;
        let top = format.slot(whose.root, miss.va, format.levels - 1);
        self.read(top, format.width.bytes());
        if let Walk::Leaf(slot) = walk(&self.machine, format, whose.root, miss.va) {
            self.read(slot, format.width.bytes());
        }
    }

    /// Reads the two groups of a page.
    fn read_groups(&self, second: &Second<M>, whose: Whose, miss: Miss) {
        for secondary in [false, true] {
            let at = group(second.table, whose.asid, miss.va, secondary);
            self.read(at, GROUP_ENTRIES * ENTRY_BYTES);
        }
    }

    // ------------------------------------------------------------------------------------------- page tables

    /// The mapping that the access needs, with its use noted in the page table.
    fn note(&self, whose: Whose, miss: Miss) -> Result<Tte, TrapKind> {
        let (m, format) = (&self.machine, &self.kernel.format);
        debug_assert!(!matches!(m.board().mmu, Mmu::Radix(_)));
        if !format.is_canonical(miss.va) {
            return Err(TrapKind::NotPresent);
        }
        let Walk::Leaf(slot) = walk(m, format, whose.root, miss.va) else { return Err(TrapKind::NotPresent) };
        loop {
            let old = radix::load(m, format, slot).ok_or(TrapKind::NotPresent)?;
            let write = miss.access == Access::Write;
            let user_only = miss.mode == Mode::User && !old.attr.contains(Attr::USER);
            if user_only || (write && !old.attr.contains(Attr::WRITE)) {
                return Err(TrapKind::Protection);
            }
            let mut new = old;
            new.attr.set(Attr::REFERENCED, !self.config.defect.is(PmapDefect::ReferencedLost));
            new.attr.set(Attr::MODIFIED, write || old.attr.contains(Attr::MODIFIED));
            if new == old {
                return Ok(new);
            }
            let blindly = self.config.defect.is(PmapDefect::NotedBlindly);
            if blindly {
                radix::store(m, format, slot, new);
            }
            if blindly || radix::replace(m, format, slot, old, new) {
                m.mapping_changed(whose.space, miss.va.page(), Some(old), Some(new), None);
                return Ok(new);
            }
        }
    }
}
