//! What CPUs wait for, and how a run ends in which they wait for ever.
//!
//! A CPU waits in a loop that tests a condition: for a lock, for a context, for what it spins or halts for. A test that
//! answers no is *in vain*. As long as some CPU executes anything else, the others may wait as long as they like: that
//! is progress, and the count of tests in vain begins anew. Interrupt handlers that run on a CPU that waits are none,
//! or a clock that ticks would keep a run alive in which all has stopped; what they change is seen by the next test.
//!
//! Tests are counted rather than cycles because a test is what the host spends time on: where all CPUs spin it takes a
//! cycle or two, and where a CPU waits for an interrupt that is far off, one test takes as long as that. Where no
//! interrupt is on its way nothing but the CPUs that wait could change anything, so a hundredth of the limit is enough.

use crate::hw::CpuState;
use crate::machine::event::EventKind;
use crate::machine::inner::{Inner, SEEDED_APART_CYCLES};
use crate::machine::run_error::RunError;
use crate::machine::wait::{CpuWait, Wait, WaitCause, Waits};
use crate::mmu::access::Site;
use crate::turns::NEVER;
use pageferry_hal::{CpuId, Cycles};

/// CPUs that all test in vain are no farther apart, where the clocks decide.
pub(super) const FAR_CYCLES: u64 = 1000;

impl Inner {
    /// The executing CPU begins to wait. Gives what it waited for before, when that was interrupted: for
    /// [`Inner::end_wait`].
    #[must_use = "the wait ends"]
    pub(crate) fn begin_wait(&self, awaited: WaitCause, at: Site) -> Option<CpuWait> {
        let (cpu, since) = (self.cpu(), self.clock());
        // Whatever it did before it had to wait.
        self.acted();
        let in_handler = self.hw.borrow().cpus[cpu].in_handler;
        let before = self.waits.borrow_mut()[cpu].replace(CpuWait { awaited, at, since, in_handler });
        if before.is_none() {
            self.progress();
        }
        self.note(EventKind::Waits(awaited), Some(at));
        before
    }

    pub(crate) fn end_wait(&self, before: Option<CpuWait>) {
        let over = std::mem::replace(&mut self.waits.borrow_mut()[self.cpu()], before);
        let CpuWait { awaited, at, .. } = over.expect("it waited");
        self.note(EventKind::GoesOn(awaited), Some(at));
    }

    /// Some CPU has executed something.
    pub(super) fn progress(&self) {
        self.in_vain.set(0);
        self.quiet_from.set(0);
    }

    /// An interrupt or an event has been taken: what waits may go on for that. (Handlers of CPUs that wait are no
    /// progress: a tick comes to them for ever.)
    pub(super) fn something_happened(&self) {
        self.quiet_from.set(self.in_vain.get());
    }

    /// True when one more test is no later than those after which a machine must have something pending to go on.
    fn is_soon(&self, tests: u64) -> bool {
        tests - self.quiet_from.get() < self.options.spin_limit / 100
    }

    /// True when the CPU waits; a handler may be running on it.
    pub(super) fn is_waiting(&self, cpu: usize) -> bool {
        self.waits.borrow()[cpu].is_some()
    }

    /// A test of what the executing CPU waits for has answered no.
    ///
    /// # Panics
    /// When there were too many in a row.
    pub(super) fn tested_in_vain(&self) {
        let tests = self.in_vain.get() + 1;
        self.in_vain.set(tests);
        if tests >= self.options.spin_limit || (!self.is_soon(tests) && self.nothing_pending()) {
            if self.some_cpu_goes_on() {
                return self.progress();
            }
            self.fail_spinning(false);
        }
    }

    /// A CPU that does not wait is ahead of those that do: it has done something that took long, and goes on when they
    /// have waited as long. So may one that waits, and is far ahead: it has not tested yet what the others have done
    /// since. (Where all have, their clocks are a few cycles apart. Where the seed decides, all that are not too far
    /// ahead to have turns have tested.)
    fn some_cpu_goes_on(&self) -> bool {
        let (hw, waits) = (self.hw.borrow(), self.waits.borrow());
        let running = || hw.cpus.iter().zip(waits.iter()).filter(|(c, _)| c.state == CpuState::Running);
        let clocks = || running().map(|(c, _)| c.clock);
        let apart = clocks().max().unwrap_or(0) - clocks().min().unwrap_or(0);
        let far = if self.seeded { SEEDED_APART_CYCLES } else { FAR_CYCLES };
        apart > far || running().any(|(_, wait)| wait.is_none())
    }

    /// The tests in vain that may follow before one must be looked at ([`Inner::tested_in_vain`]).
    pub(super) fn tests_left(&self) -> u64 {
        let until = self.quiet_from.get() + self.options.spin_limit / 100;
        until.min(self.options.spin_limit).saturating_sub(self.in_vain.get() + 1)
    }

    /// Counts `tests` that answer no.
    pub(super) fn tested_more(&self, tests: u64) {
        self.in_vain.set(self.in_vain.get() + tests);
    }

    /// Counts a test that answers no, unless that might be one too many.
    pub(super) fn may_test_again(&self) -> bool {
        let may = self.tests_left() > 0;
        if may {
            self.tested_more(1);
        }
        may
    }

    /// Ends the run because no CPU gets on; `alone` where nothing is left that could happen.
    pub(super) fn fail_spinning(&self, alone: bool) -> ! {
        let (waits, tests) = (self.waits(), self.in_vain.get());
        self.fail(RunError::Spinning { waits, tests, alone, schedule: self.options.schedule })
    }

    /// No interrupt is on its way, no handler at work, and nothing happens outside.
    pub(super) fn nothing_pending(&self) -> bool {
        let (hw, waits) = (self.hw.borrow(), self.waits.borrow());
        let handles = |cpu: usize| hw.cpus[cpu].in_handler && waits[cpu].is_none_or(|wait| !wait.in_handler);
        hw.outside_at == NEVER
            && (0..hw.cpus.len()).all(|cpu| hw.cpus[cpu].pending.is_empty() && !handles(cpu))
    }

    /// All CPUs that wait.
    pub(super) fn waits(&self) -> Waits {
        let (waits, current, contexts) = (self.waits.borrow(), self.current.borrow(), self.contexts.borrow());
        let wait = |(cpu, waiting): (usize, &Option<CpuWait>)| {
            let CpuWait { awaited, at, since, .. } = (*waiting)?;
            let context = contexts[current[cpu]].name.clone();
            Some(Wait { cpu: CpuId(cpu as u8), context, awaited, at, since: Cycles(since) })
        };
        Waits(waits.iter().enumerate().filter_map(wait).collect())
    }
}
