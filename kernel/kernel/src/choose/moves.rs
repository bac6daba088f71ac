//! What moving data costs on this machine: the table that choices are made from, and its place in the kernel.
//!
//! # What it holds
//! [`MoveCosts`] is a table of numbers. [`Moves`] keeps it: written once, when a cost is first asked for, by what
//! `measure` does; read without a lock from then on. Kernels in which no call asks do not pay for it.
//!
//! # Locks
//! The thread that measures has a sleep lock in a monitor of class `Pipe`; others wait for it. No spin lock may be
//! held.
//!
//! # What can fail
//! Measuring, for want of memory or of a thread structure. Then everything but copying is taken to cost more than it
//! can be worth, until the costs have been asked for a thousand times more: memory may have grown by then.

use super::rally::{RALLY_BYTES, Rally};
use crate::proc::Syscall;
use crate::sched::{Monitor, SleepLock};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use once_cell::race::OnceBox;
use pageferry_abi::Errno;
use pageferry_costs::{MoveCosts, RequestCosts};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Access, Machine, StructArena, StructVa};

/// How often the costs are asked for in vain between two attempts to measure them.
const ASKED_IN_VAIN: u32 = 1000;

/// What a decision reads of the costs.
const READ_BYTES: usize = 64;

/// Where the costs are kept. See the [module](self).
pub(crate) struct Moves<M: Machine> {
    at: StructVa,
    known: OnceBox<MoveCosts>,
    /// How often the costs are still taken to be unknown before they are measured again.
    unknown: AtomicU32,
    pub(super) measuring: Monitor<M, SleepLock>,
    /// How they are measured: given at boot, because measuring sends and receives, and stands above what reads the
    /// costs.
    measure: Measure<M>,
    /// What a request of a server costs; measured when that is first asked for.
    pub(super) requests: OnceBox<RequestCosts>,
    /// What happens between two threads is measured by it.
    pub(super) rally: Arc<Rally<M>>,
}

/// Measures the costs, for a call.
pub(crate) type Measure<M> = fn(&Syscall<'_, M>) -> Result<MoveCosts, Errno>;

impl<M: Machine> Moves<M> {
    pub(crate) fn new(m: &M, measure: Measure<M>, arena: &mut StructArena) -> Result<Moves<M>, ArenaFull> {
        let at = arena.array("costs of moving", 1, size_of::<MoveCosts>())?;
        let bench = arena.array("rally", 1, RALLY_BYTES)?;
        let (measuring, rally) = (Monitor::new(m, at, SleepLock::default()), Arc::new(Rally::new(m, bench)));
        Ok(Moves {
            at,
            known: OnceBox::new(),
            unknown: AtomicU32::new(0),
            measuring,
            measure,
            requests: OnceBox::new(),
            rally,
        })
    }
}

impl<M: Machine> Moves<M> {
    /// True while the costs are taken to be unknown: one time less from now on.
    fn asked_in_vain(&self) -> bool {
        self.unknown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl<M: Machine> Syscall<'_, M> {
    /// What moving data costs here; measured now if it never was.
    pub(crate) fn move_costs(&self) -> &MoveCosts {
        let moves = &self.kernel.moves;
        self.machine().touch(moves.at, READ_BYTES, Access::Read);
        if let Some(known) = moves.known.get() {
            return known;
        }
        if moves.asked_in_vain() {
            return &MoveCosts::UNKNOWN;
        }
        let measuring = &moves.measuring;
        // No signal ends this wait, so it has no error.
        drop(measuring.acquire(self.thread, measuring.lock(), |lock| lock, "measuring", false).0);
        // Another process may have tried while this one waited.
        if moves.known.get().is_none() && !moves.asked_in_vain() {
            match (moves.measure)(self) {
                Ok(costs) => drop(moves.known.set(Box::new(costs))),
                Err(_) => moves.unknown.store(ASKED_IN_VAIN, Ordering::Relaxed),
            }
        }
        measuring.release(self.thread, &mut measuring.lock(), |lock| lock);
        moves.known.get().unwrap_or(&MoveCosts::UNKNOWN)
    }
}
