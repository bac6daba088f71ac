//! What amd64 has not: its page tables are walked by hardware, and nothing else translates. [`board`] says so, and a
//! kernel that calls one of these all the same has not read it.
//!
//! [`board`]: pageferry_verify::kernel::board

use crate::metal::Metal;
use pageferry_hal::{Asid, Block, BlockRegister, HashTable, Pa, Refill, Slot, Tlb, Tte, Va};

const WALKS: &str = "amd64 walks page tables, and has nothing else";

impl Tlb for Metal {
    fn tlb_load(&self, _: Slot, _: Asid, va: Va, _: Tte) {
        panic!("{va:?} is to be loaded into the TLB: {WALKS}");
    }
    fn tlb_random(&self) -> usize {
        panic!("an entry of the TLB is asked for: {WALKS}");
    }
    fn tlb_search(&self, _: Asid, va: Va) -> Option<usize> {
        panic!("{va:?} is looked for in the TLB: {WALKS}");
    }
    fn tlb_reserve(&self, entries: usize) {
        panic!("{entries} entries of the TLB are to be reserved: {WALKS}");
    }
    fn block_set(&self, register: BlockRegister, _: Option<Block>) {
        panic!("{register:?} is to be set: {WALKS}");
    }
    fn set_hash_table(&self, table: HashTable) {
        panic!("{table:?} is to be used: {WALKS}");
    }
    /// Never called: nothing is missed that hardware does not find.
    fn set_refill(&self, _: Refill) {}
    fn translate_refill(&self, _: bool) {
        panic!("a refill handler runs: {WALKS}");
    }
    fn refill_depth(&self) -> u32 {
        panic!("a refill handler runs: {WALKS}");
    }
    fn dcache_purge(&self, at: Pa, _: u32) {
        panic!("{at:?} is to be purged by colour: caches of amd64 know none");
    }
}
