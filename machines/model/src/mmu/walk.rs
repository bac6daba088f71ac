//! Hardware that looks for a translation in memory: through page tables, level by level, or in a hash table.

use crate::hw::Hw;
use crate::mmu::size::PageSize;
use crate::mmu::tlb::Entry;
use crate::watch::Action;
use pageferry_hal::isa::hash::{
    ENTRY_BYTES, GROUP_ENTRIES, HPTE_C, HPTE_PP, HPTE_R, TAG_MASK, frame, group, tag,
};
use pageferry_hal::isa::radix::{PTE_A, PTE_D, PTE_G, PTE_NX, PTE_P, PTE_PS, PTE_U, PTE_W, RadixFormat};
use pageferry_hal::{Access, CpuId, MissKind, Mode, PAGE_SHIFT, Pa, TrapKind, Va, Width};

impl Hw {
    /// Walks the tables, sets accessed and dirty bits; the entry that the TLB is to have.
    pub(super) fn walk_radix(
        &mut self,
        format: RadixFormat,
        cpu: usize,
        va: Va,
        mode: Mode,
        access: Access,
    ) -> Result<Entry, TrapKind> {
        let write = access == Access::Write;
        self.counts.walks += 1;
        self.charge_walk(cpu, self.params.walk_overhead);
        if !format.is_canonical(va) {
            return Err(TrapKind::NotPresent);
        }
        let mut table = self.context(cpu).root;
        let shifts = self.params.shifts;
        let (mut writable, mut user) = (true, true);
        for level in (0..format.levels).rev() {
            let slot = format.slot(table, va, level);
            let cost = self.line(cpu, slot, false);
            self.charge_walk(cpu, cost);
            let pte = self.memory.load_word(slot, format.width);
            if pte & PTE_P == 0 {
                return Err(TrapKind::NotPresent);
            }
            writable &= pte & PTE_W != 0;
            user &= pte & PTE_U != 0;
            let size = match (level, pte & PTE_PS != 0) {
                (0, _) => Some(PageSize::Base),
                (1, true) => Some(PageSize::Super),
                (2, true) if shifts.huge.is_some() => Some(PageSize::Huge),
                // The bit is reserved: such a fault is one of protection, for the entry is valid.
                (_, true) => return Err(TrapKind::Protection),
                (_, false) => None,
            };
            let Some(size) = size else {
                self.set_bits(cpu, slot, format.width, pte, PTE_A);
                table = format.frame(pte).pa();
                continue;
            };
            // Of the tables above no entry says that nothing is executed: no kernel here puts it there.
            let closed = access == Access::Fetch && pte & PTE_NX != 0;
            if (mode == Mode::User && !user) || (write && !writable) || closed {
                return Err(TrapKind::Protection);
            }
            self.set_bits(cpu, slot, format.width, pte, if write { PTE_A | PTE_D } else { PTE_A });
            let mut entry = Entry::new(va, shifts, size, CpuId(cpu as u8));
            entry.base = format.frame(pte).pa();
            (entry.writable, entry.user) = (writable, user);
            entry.dirty = write || pte & PTE_D != 0;
            entry.global = pte & PTE_G != 0;
            if write && pte & PTE_D == 0 {
                self.oracle.note_modified(self.space_for(cpu, va), va, shifts.of(size) as u8);
            }
            return Ok(entry);
        }
        unreachable!("the last level is a leaf");
    }

    fn set_bits(&mut self, cpu: usize, slot: Pa, width: Width, word: u64, bits: u64) {
        if word & bits != bits {
            self.memory.store_word(slot, width, word | bits);
            let cost = self.line(cpu, slot, true);
            self.charge_walk(cpu, cost);
        }
    }

    /// Looks into the primary group of the hash table, then into the secondary one; sets referenced and changed
    /// bits; the entry that the TLB is to have.
    pub(super) fn walk_hash(
        &mut self,
        cpu: usize,
        va: Va,
        mode: Mode,
        access: Access,
    ) -> Result<Entry, MissKind> {
        self.counts.walks += 1;
        self.charge_walk(cpu, self.params.walk_overhead);
        let table = self.hash_table.expect("an access before a hash table was set");
        let asid = self.asid_for(cpu, va);
        for secondary in [false, true] {
            let first = group(table, asid, va, secondary);
            let wanted = tag(table, asid, va, secondary);
            for (i, slot) in (0..GROUP_ENTRIES).map(|i| first + i * ENTRY_BYTES).enumerate() {
                let begins_line = (slot.0 as usize).is_multiple_of(self.params.line_bytes);
                let cost = match self.params.hash_probe {
                    Some(cycles) if !begins_line => cycles,
                    _ => self.line(cpu, slot, false),
                };
                self.charge_walk(cpu, cost);
                let entry = self.memory.load_word(slot, Width::Eight);
                if entry & TAG_MASK == wanted {
                    self.did(cpu, Action::Looks { va, secondary, entries: i as u32 + 1, found: true });
                    return self.use_hashed(cpu, va, mode, access, slot, entry);
                }
            }
            self.did(cpu, Action::Looks { va, secondary, entries: GROUP_ENTRIES as u32, found: false });
        }
        Err(MissKind::Absent)
    }

    fn use_hashed(
        &mut self,
        cpu: usize,
        va: Va,
        mode: Mode,
        access: Access,
        slot: Pa,
        found: u64,
    ) -> Result<Entry, MissKind> {
        let write = access == Access::Write;
        // The segments of user space have both keys set, the kernel's none; those are closed to user mode altogether.
        let user = va < self.params.layout.user_end;
        let (readable, writable) = match (user, found & HPTE_PP) {
            (true, 0) => (false, false),
            (true, 1) | (_, 3) => (true, false),
            _ => (true, true),
        };
        if !readable || (write && !writable) || (mode == Mode::User && !user) {
            return Err(MissKind::Refused);
        }
        self.set_bits(cpu, slot, Width::Eight, found, if write { HPTE_R | HPTE_C } else { HPTE_R });
        if write && found & HPTE_C == 0 {
            self.oracle.note_modified(self.space_for(cpu, va), va, PAGE_SHIFT as u8);
        }
        let mut entry = Entry::new(va, self.params.shifts, PageSize::Base, CpuId(cpu as u8));
        entry.base = frame(found).pa();
        entry.writable = writable;
        entry.user = user;
        entry.dirty = write || found & HPTE_C != 0;
        entry.global = !entry.user;
        Ok(entry)
    }
}
