//! TLBs that the kernel loads, block registers, hash tables, caches that know colours.

use crate::machine::Model;
use pageferry_hal::{Asid, Block, BlockRegister, HashTable, Pa, Refill, Slot, Tlb, Tte, Va};
use std::panic::Location;
use std::rc::Rc;

impl Tlb for Model {
    #[track_caller]
    fn tlb_load(&self, slot: Slot, asid: Asid, va: Va, tte: Tte) {
        self.0.poll();
        let by = Location::caller();
        self.0.step(|hw, cpu| hw.tlb_load(cpu, slot, asid, va, tte, by));
    }

    fn tlb_random(&self) -> usize {
        self.0.step(|hw, cpu| hw.tlb_random(cpu))
    }

    fn tlb_search(&self, asid: Asid, va: Va) -> Option<usize> {
        self.0.poll();
        self.0.step(|hw, cpu| hw.tlb_search(cpu, asid, va))
    }

    fn tlb_reserve(&self, entries: usize) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.tlb_reserve(cpu, entries));
    }

    fn block_set(&self, register: BlockRegister, block: Option<Block>) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.block_set(cpu, register, block));
    }

    fn set_hash_table(&self, table: HashTable) {
        let bytes = (table.groups * pageferry_hal::isa::hash::GROUP_BYTES) as u64;
        assert!(
            bytes.is_power_of_two() && table.at.0.is_multiple_of(bytes),
            "{table:?} is not aligned to its size"
        );
        let old = self.0.step(|hw, _| hw.hash_table.replace(table));
        assert!(old.is_none(), "the hash table is set once");
    }

    fn set_refill(&self, refill: Refill) {
        let old = self.0.refill.borrow_mut().replace(Rc::from(refill));
        assert!(old.is_none(), "the refill handler is set once");
    }

    fn translate_refill(&self, on: bool) {
        self.0.step(|hw, cpu| {
            let c = &mut hw.cpus[cpu];
            assert!(c.refills > 0, "only a refill handler works with physical addresses");
            c.untranslated = !on;
        });
    }

    fn refill_depth(&self) -> u32 {
        self.0.step(|hw, cpu| hw.cpus[cpu].refills)
    }

    fn dcache_purge(&self, at: Pa, colour: u32) {
        self.0.poll();
        self.0.step(|hw, cpu| hw.purge(cpu, at, colour));
    }
}
