//! What moving data costs on this machine: the tables that choices are made from, and their place in the kernel.
//!
//! # What it holds
//! [`Moves`] keeps tables of numbers ([`MoveCosts`], [`RequestCosts`]): written once, by what `measure` does at boot
//! or in a call that is for it; read without a lock from then on. Until then nothing is known, and everything is
//! copied: no choice measures, or waits.
//!
//! # Locks, failures
//! None.

use crate::proc::Syscall;
use alloc::boxed::Box;
use once_cell::race::OnceBox;
use pageferry_costs::{MoveCosts, RequestCosts};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Access, Machine, StructArena, StructVa};

/// What a decision reads of the costs.
const READ_BYTES: usize = 64;

/// Where the costs are kept. See the [module](self).
pub(crate) struct Moves {
    at: StructVa,
    known: OnceBox<(MoveCosts, RequestCosts)>,
}

impl Moves {
    pub(crate) fn new(arena: &mut StructArena) -> Result<Moves, ArenaFull> {
        let at = arena.array("costs of moving", 1, size_of::<MoveCosts>())?;
        Ok(Moves { at, known: OnceBox::new() })
    }

    pub(crate) fn at(&self) -> StructVa {
        self.at
    }

    /// What was measured.
    pub(crate) fn known(&self) -> Option<&(MoveCosts, RequestCosts)> {
        self.known.get()
    }

    /// They were measured. What is known already stays.
    pub(crate) fn set(&self, costs: MoveCosts, requests: RequestCosts) {
        drop(self.known.set(Box::new((costs, requests))));
    }
}

impl<M: Machine> Syscall<'_, M> {
    /// What moving data costs here, as far as that is known.
    pub(super) fn move_costs(&self) -> &MoveCosts {
        let moves = &self.kernel.moves;
        self.machine().touch(moves.at, READ_BYTES, Access::Read);
        moves.known.get().map_or(&MoveCosts::UNKNOWN, |(costs, _)| costs)
    }

    /// What requests of servers cost here, likewise.
    pub(super) fn request_costs(&self) -> &RequestCosts {
        self.kernel.moves.known.get().map_or(&RequestCosts::NEVER, |(_, requests)| requests)
    }
}
