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
use super::requests::RequestCosts;
use crate::proc::Syscall;
use crate::sched::{Monitor, SleepLock};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use once_cell::race::OnceBox;
use pageferry_abi::Errno;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Access, Machine, PAGE_SIZE, StructArena, StructVa};

/// Working sets are measured up to 2 to the power of this many pages (8 MB), if a quarter of the free memory is so
/// much.
pub(super) const CLASSES: usize = 11;

/// The cost of one call of `n` pages: `call_cycles + n * page_cycles`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Linear {
    /// Once.
    pub call_cycles: u64,
    /// For each page.
    pub page_cycles: u64,
}

impl Linear {
    /// More than anything is worth.
    pub(super) const NEVER: Linear = Linear { call_cycles: u64::MAX >> 32, page_cycles: 0 };

    /// From the costs of one page and of `pages`; of one alone, where that is all that can be measured.
    pub(super) fn through(one: u64, pages: usize, many: u64) -> Linear {
        let page_cycles = match pages {
            0 | 1 => one,
            _ => many.saturating_sub(one) / (pages as u64 - 1),
        };
        Linear { call_cycles: one.saturating_sub(page_cycles), page_cycles }
    }

    /// The cost of `pages`.
    pub fn of(&self, pages: usize) -> u64 {
        self.call_cycles + pages as u64 * self.page_cycles
    }
}

/// What was measured, in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveCosts {
    /// Copying one page to or from the user, by the working set: pages of 2 to the power of the index and 1.
    pub(super) copy_page: [u64; CLASSES],
    /// An mbuf with a cluster: made, handed to the protocol, and freed.
    pub cluster_cycles: u64,
    /// An ephemeral mapping of a page, made and given up: each page of a file that is copied takes one.
    pub map_cycles: u64,
    /// Lending pages to a socket, until they are given back.
    pub lend: Linear,
    /// Receiving clusters by donation, and freeing what was received.
    pub donate: Linear,
    /// Receiving lent pages by lending them on, and freeing what was received.
    pub lend_on: Linear,
    /// Passing pages that no receiver touches: exported, imported.
    pub pass: Linear,
    /// Passing pages, each of which every receiver touches.
    pub pass_touched: Linear,
    /// The first write to a page after its loan, beside what a loan of the page costs more then.
    pub rewrite_cycles: u64,
    /// A write that breaks a loan.
    pub break_cycles: u64,
    /// From one thread's run to the other's, when they wait for each other.
    pub switch_cycles: u64,
}

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

impl MoveCosts {
    /// What it is taken to be where it could not be measured: nothing is worth more than a copy.
    const UNKNOWN: MoveCosts = {
        let never = Linear::NEVER;
        MoveCosts {
            copy_page: [0; CLASSES],
            cluster_cycles: 0,
            map_cycles: 0,
            lend: never,
            donate: never,
            lend_on: never,
            pass: never,
            pass_touched: never,
            rewrite_cycles: 0,
            break_cycles: 0,
            switch_cycles: 0,
        }
    };

    /// Copying a page while `working_set_bytes` are used over and over.
    pub fn copy_page_cycles(&self, working_set_bytes: usize) -> u64 {
        let set = working_set_bytes.max(2 * PAGE_SIZE);
        let class = set.ilog2() as usize - (2 * PAGE_SIZE).ilog2() as usize;
        if class >= CLASSES - 1 {
            return self.copy_page[CLASSES - 1];
        }
        let (below, above) = (self.copy_page[class], self.copy_page[class + 1]);
        let size = (2 * PAGE_SIZE) << class;
        // Between two sets that were measured the cost is taken to change evenly.
        (below * (2 * size - set) as u64 + above * (set - size) as u64) / size as u64
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
