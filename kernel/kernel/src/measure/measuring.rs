//! Who measures what moving data costs, and with what; and those who wait until that is known.

use super::rally::{RALLY_BYTES, Rally};
use alloc::sync::Arc;
use pageferry_core::choose::Moves;
use pageferry_core::sched::{Monitor, SleepLock};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Machine, StructArena, Threads};

/// The process that measures at boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum AtBoot {
    /// There is none.
    #[default]
    None,
    /// It is not done yet.
    Measures,
    Done,
}

#[derive(Default)]
pub(super) struct State {
    /// Who measures has it.
    pub(super) lock: SleepLock,
    pub(super) at_boot: AtBoot,
}

/// Who measures, and with what.
pub(crate) struct Measuring<M: Machine> {
    pub(super) state: Monitor<M, State>,
    /// What happens between two threads is measured by it.
    pub(super) rally: Arc<Rally<M>>,
}

impl<M: Machine> Measuring<M> {
    /// For the costs that `moves` keeps.
    pub(crate) fn new(m: &M, moves: &Moves, arena: &mut StructArena) -> Result<Measuring<M>, ArenaFull> {
        let bench = arena.array("rally", 1, RALLY_BYTES)?;
        let state = Monitor::new(m, moves.at(), State::default());
        Ok(Measuring { state, rally: Arc::new(Rally::new(m, bench)) })
    }

    /// Returns when no process measures for the boot any more.
    pub(super) fn wait_for_boot(&self, threads: &dyn Threads) {
        let mut held = self.state.lock();
        while held.at_boot == AtBoot::Measures {
            // No signal ends this sleep, so it has no error.
            held = self.state.wait(threads, held, "measuring", false).0;
        }
    }

    /// What was to be known at boot is, or will not be.
    pub(super) fn boot_is_over(&self, threads: &dyn Threads) {
        self.state.lock().at_boot = AtBoot::Done;
        self.state.wake_all(threads);
    }
}
