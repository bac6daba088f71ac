//! What moving data costs on this machine: the tables that choices are made from, and their place in the kernel.
//!
//! # What it holds
//! [`Moves`] keeps tables of numbers ([`MoveCosts`], [`RequestCosts`]): written once, by what `measure` does at boot
//! or in a call that is for it; read without a lock from then on. Until then nothing is known, and everything is
//! copied: no choice measures, or waits.
//!
//! # Locks, failures
//! None.

use alloc::boxed::Box;
use once_cell::race::OnceBox;
use pageferry_costs::{MoveCosts, RequestCosts};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Access, Machine, StructArena, StructVa};

/// What a decision reads of the costs.
const READ_BYTES: usize = 64;

/// What moving data costs here: written once, where it was measured, and read without a lock from then on. Until
/// then everything is copied.
pub struct Moves {
    at: StructVa,
    known: OnceBox<(MoveCosts, RequestCosts)>,
}

impl Moves {
    /// A place for costs that are not known yet.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(arena: &mut StructArena) -> Result<Moves, ArenaFull> {
        let at = arena.array("costs of moving", 1, size_of::<MoveCosts>())?;
        Ok(Moves { at, known: OnceBox::new() })
    }

    /// Where they are in memory.
    pub fn at(&self) -> StructVa {
        self.at
    }

    /// What was measured.
    pub fn known(&self) -> Option<&(MoveCosts, RequestCosts)> {
        self.known.get()
    }

    /// They were measured. What is known already stays.
    pub fn set(&self, costs: MoveCosts, requests: RequestCosts) {
        drop(self.known.set(Box::new((costs, requests))));
    }

    /// What moving data costs here, as far as that is known, for a decision on this CPU.
    pub fn costs<M: Machine>(&self, m: &M) -> &MoveCosts {
        m.touch(self.at, READ_BYTES, Access::Read);
        self.known.get().map_or(&MoveCosts::UNKNOWN, |(costs, _)| costs)
    }

    /// What requests of servers cost here, likewise.
    pub fn request_costs(&self) -> &RequestCosts {
        self.known.get().map_or(&RequestCosts::NEVER, |(_, requests)| requests)
    }
}
