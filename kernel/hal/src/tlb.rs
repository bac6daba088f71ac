//! What a machine has for translations beside a CPU that walks page tables: a TLB that the kernel loads, block
//! registers, a hash table that hardware looks into, a data cache that is indexed by virtual addresses.
//!
//! [`Board`](crate::Board) says which of them there are. A kernel calls nothing here that the board does not have; a
//! machine that is called all the same has a kernel to refuse. So nothing here has a default: each port says for itself
//! what it has.

use crate::addr::{Pa, Va};
use crate::mmu::{Asid, Block, BlockRegister, HashTable, Miss, Slot, Tte};
use crate::trap::TrapKind;
use alloc::boxed::Box;

/// What the kernel does about a miss: makes the access possible, or says why not. See [`Tlb::set_refill`].
pub type Refill = Box<dyn Fn(Miss) -> Result<(), TrapKind>>;

/// The parts of a machine that the kernel itself has to manage for translations. See the [module](self).
pub trait Tlb {
    /// Puts a translation into the own TLB, tagged `asid` unless it is global.
    ///
    /// # Panics
    /// When the kernel does not load the TLB of this machine. On a modelled machine whose entries are all compared at
    /// once, also when another entry maps the page already, whatever its size: a multiple hit.
    #[track_caller]
    fn tlb_load(&self, slot: Slot, asid: Asid, va: Va, tte: Tte);

    /// The entry that [`Slot::Replace`] would take now: for software that chooses by itself, and takes hardware's word
    /// where it has no better one.
    ///
    /// # Panics
    /// When no counter names entries of this machine's TLB.
    fn tlb_random(&self) -> usize;

    /// Looks through all entries of the own TLB for the one that maps the page at `va` of the address space tagged
    /// `asid`: by software, which reads one after the other, and goes on to the last when it has found it.
    ///
    /// # Panics
    /// When software cannot read the TLB of this machine.
    fn tlb_search(&self, asid: Asid, va: Va) -> Option<usize>;

    /// Reserves the first `entries` entries of the own TLB: from here on only [`Slot::Reserved`] loads them, and
    /// nothing but a flush of their page or a load takes them away.
    ///
    /// # Panics
    /// When the kernel does not load the TLB of this machine, or no other entries would be left.
    fn tlb_reserve(&self, entries: usize);

    /// Sets the own block register `register`, or switches it off.
    ///
    /// # Panics
    /// When there is no such register, it cannot hold such a block, or the block overlaps another.
    fn block_set(&self, register: BlockRegister, block: Option<Block>);

    /// Says where the hash table lies that hardware looks into. Called once, at boot, for all CPUs.
    ///
    /// # Panics
    /// When this machine's hardware uses none.
    fn set_hash_table(&self, table: HashTable);

    /// Sets what is called, on the CPU and the stack of the access, when a machine cannot translate it by itself: the
    /// kernel's own code, with interrupts off. It makes the access possible, by loading the TLB or the hash table, or
    /// says why not; then the access is made again. It touches page tables by [`Machine::pt_load`] and its like only,
    /// takes no lock but those of [`LockClass::HASH_TABLE`], and does not sleep. Called once, at boot; never on
    /// machines that walk page tables.
    ///
    /// [`Machine::pt_load`]: crate::Machine::pt_load
    /// [`LockClass::HASH_TABLE`]: crate::LockClass::HASH_TABLE
    fn set_refill(&self, refill: Refill);

    /// In the refill handler: has the handler's own fetches and touches translated like all others from here on, or no
    /// more. It begins untranslated, with physical addresses. A translated one may miss; then the handler is called
    /// again, within itself.
    fn translate_refill(&self, on: bool);

    /// How deep the refill handlers of this CPU are nested: 1 in one that interrupted no other.
    fn refill_depth(&self) -> u32;

    /// Writes back and drops what a virtually indexed cache holds of the frame at `at` under a colour: before the frame
    /// is used at addresses of another, where one of both uses stores.
    ///
    /// # Panics
    /// A modelled machine panics when [`Board::colours`](crate::Board::colours) is not above `colour`, or is 1.
    fn dcache_purge(&self, at: Pa, colour: u32);
}
