//! The scheduler of discrete events: which CPU runs next, how time passes, when interrupts are taken, and what a
//! context has in force.
//!
//! See the [module above](super) for the model. No borrow of the hardware or of the contexts lives across a suspension.

use crate::hw::priced::Work;
use crate::hw::{CpuState, Hw};
use crate::machine::event::EventKind;
use crate::machine::inner::{Inner, SEEDED_APART_CYCLES, SpinsFor};
use crate::machine::run_error::RunError;
use crate::machine::spinners::{Bounds, Spinner, take_turns};
use crate::mmu::access::Exception;
use crate::mmu::access::Site;
use crate::turns::NEVER;
use crate::watch::Action;
use corosensei::CoroutineResult;
use pageferry_hal::{
    Access, Cause, ContextId, CopyFault, CpuId, CpuSet, Instructions, Interrupt, Miss, Mode, Trap, TrapKind,
    Va,
};
use std::cell::Cell;
use std::rc::Rc;

/// Keeps a cause in force.
pub struct Scope {
    inner: Rc<Inner>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.inner.running.get() && !std::thread::panicking() {
            self.inner.pop_cause();
        }
    }
}

/// How deep refill handlers may miss within one another.
const MAX_NESTED: u32 = 16;

impl Inner {
    // ------------------------------------------------------------------------------------------------- the driver

    /// Runs CPUs until all have stopped.
    pub(super) fn drive(&self) -> Result<(), RunError> {
        while let Some(cpu) = self.pick()? {
            if self.spins(cpu) {
                if self.spin_together() {
                    continue;
                }
                if self.spin(cpu) {
                    self.hw.borrow_mut().take_turn(cpu);
                    continue;
                }
            }
            let index = self.current.borrow()[cpu];
            self.cpu.set(cpu);
            self.context.set(index);
            let mut routine = {
                let mut contexts = self.contexts.borrow_mut();
                let context = &mut contexts[index];
                let c = &mut self.hw.borrow_mut().cpus[cpu];
                (c.cause, c.context) = (*context.causes.last().expect("never empty"), index);
                context.routine.take().expect("a context that is to run has its stack")
            };
            let tested = self.tests(cpu);
            self.pulse.enter(cpu, index);
            let resumed = routine.resume(());
            self.pulse.leave();
            if !(tested && self.tests(cpu)) {
                self.acted();
            }
            match resumed {
                CoroutineResult::Yield(()) => {
                    if !self.is_waiting(cpu) {
                        self.progress();
                    }
                    let mut contexts = self.contexts.borrow_mut();
                    contexts[index].routine = Some(routine);
                    if self.current.borrow()[cpu] != index {
                        contexts[index].on_cpu = None;
                    }
                }
                CoroutineResult::Return(next) => self.finish(cpu, index, next),
            }
            self.hw.borrow_mut().take_turn(cpu);
        }
        Ok(())
    }

    /// A context's entry has returned.
    pub(super) fn finish(&self, cpu: usize, index: usize, next: Option<ContextId>) {
        let mut contexts = self.contexts.borrow_mut();
        let context = &mut contexts[index];
        assert!(context.held.is_empty(), "context {} ended holding {:?}", context.name, context.held);
        context.on_cpu = None;
        context.over = true;
        match next {
            Some(next) => {
                let next = next.0 as usize;
                let context = &mut contexts[next];
                context.check_free(CpuId(cpu as u8));
                context.on_cpu = Some(cpu);
                self.current.borrow_mut()[cpu] = next;
            }
            None => self.hw.borrow_mut().cpus[cpu].state = CpuState::Off,
        }
    }

    /// Chooses the CPU to run; ends its halt if it is in one. `None` when all have stopped.
    pub(super) fn pick(&self) -> Result<Option<usize>, RunError> {
        let mut hw = self.hw.borrow_mut();
        if hw.outside_at != NEVER || hw.has_far_end {
            self.let_outside_happen(&mut hw)?;
        }
        let Some((mut cpu, mut at, second)) = hw.turns.first() else {
            if hw.cpus.iter().all(|c| c.state == CpuState::Off) {
                return Ok(None);
            }
            drop(hw);
            let (waits, left) = (self.waits(), self.describe_contexts());
            return Err(RunError::Deadlock { waits, left, schedule: self.options.schedule });
        };
        if let Some(limit) = self.options.cycle_limit.filter(|limit| at > limit.0) {
            drop(hw);
            let (waits, left) = (self.waits(), self.describe_contexts());
            return Err(RunError::OutOfTime { limit, waits, left, schedule: self.options.schedule });
        }
        if let Some(chance) = self.chance.borrow_mut().as_mut() {
            let until = at.saturating_add(SEEDED_APART_CYCLES);
            let ready = || hw.turns.ready().filter(|&(_, at)| at <= until).map(|(cpu, _)| cpu);
            cpu = chance.next(ready, |cpu| self.only_tests(&hw, cpu));
            at = hw.turns.time(cpu);
        }
        self.others_at.set(second.min(hw.outside_at));
        if hw.cpus[cpu].state == CpuState::Halted {
            hw.idle_to(cpu, at);
            hw.cpus[cpu].state = CpuState::Running;
        }
        Ok(Some(cpu))
    }

    /// Gives the host thread back to the driver; returns when the context is resumed.
    pub(super) fn suspend(&self) {
        let yielder = self.contexts.borrow()[self.context.get()].yielder;
        assert!(!yielder.is_null(), "only a running context can be suspended");
        // SAFETY: `yielder` was stored by this very coroutine when it started, and points to a value that lives on its
        // stack as long as the coroutine does. We execute on that stack now: `context` names the coroutine that the
        // driver resumed last, and the driver sets it at every resumption.
        unsafe { &*yielder }.suspend(());
    }

    // ------------------------------------------------------------------------------------------------- errors

    /// Ends the run for the stale translation that was used last, by the caller at `by`.
    #[cold]
    fn fail_stale(&self, by: Site) {
        // A kernel that is looked at from outside is not ended: `Model::check` tells. Nor does one panic hide another.
        if !self.running.get() || std::thread::panicking() {
            return;
        }
        let stale = self.hw.borrow().oracle.error().cloned().expect("one was used");
        let context = self.contexts.borrow()[self.context.get()].name.clone();
        let (stale, schedule) = (Box::new(stale), self.options.schedule);
        self.fail(RunError::Stale { stale, used_by: by, context, schedule });
    }

    // ------------------------------------------------------------------------------------------------- time

    /// What every call does first: let CPUs that are behind catch up, and take interrupts.
    #[inline]
    pub(crate) fn poll(&self) {
        if !self.running.get() {
            return;
        }
        self.pulse.call();
        // Where the seed decides, every call is a turn; but a CPU that runs alone need not ask.
        let turn = self.seeded() && self.others_at.get() != NEVER;
        if turn || self.clock() > self.deadline() {
            self.suspend();
        }
        self.take_interrupts();
    }

    /// True when an interrupt has arrived that a CPU can take.
    #[inline]
    fn is_interrupted(&self, cpu: usize) -> bool {
        let hw = self.hw.borrow();
        let c = &hw.cpus[cpu];
        // In the order in which they arrive; where the seed decides, they may come early.
        let first = c.pending.front();
        first.is_some_and(|&(at, _)| at <= c.clock || self.seeded) && !c.in_handler && c.masked == 0
    }

    /// As [`Inner::poll`], and no other CPU is behind afterwards.
    pub(crate) fn sync(&self) {
        self.poll();
        if self.running.get() && !self.seeded() && self.clock() > self.others_at.get() {
            self.suspend();
            self.take_interrupts();
        }
    }

    /// Passes a little time in the cause in force, so that another CPU can do what this one waits for (since
    /// [`Inner::begin_wait`]). As long as that cannot have come, the driver takes the turns of this CPU by itself
    /// ([`Inner::spin`]): while a lock is `held`, where it waits for one; or else until somebody has done something.
    ///
    /// # Panics
    /// When no other CPU can run, or none does anything else: the wait would never end.
    pub(crate) fn wait(&self, held: Option<&Rc<Cell<bool>>>) {
        self.tested_in_vain();
        let cpu = self.cpu.get();
        if !self.pass_time(cpu) {
            self.fail_spinning(true);
        }
        let me = CpuId(cpu as u8);
        let condition = || SpinsFor::Condition { acts: self.acts.get() };
        self.spins_for.borrow_mut()[cpu] =
            Some(held.map_or_else(condition, |held| SpinsFor::Lock(held.clone())));
        self.spinners.set(self.spinners.get().union(CpuSet::only(me)));
        self.suspend();
        self.spins_for.borrow_mut()[cpu] = None;
        self.spinners.set(self.spinners.get().difference(CpuSet::only(me)));
        self.hw.borrow_mut().cpus[cpu].spinning = false;
        self.take_interrupts();
    }

    /// Lets a CPU that waits spin until another one has had a turn, or an interrupt comes; false when neither will be.
    fn pass_time(&self, cpu: usize) -> bool {
        let mut hw = self.hw.borrow_mut();
        let mine = hw.cpus[cpu].pending.front().map_or(NEVER, |&(at, _)| at);
        let next = self.others_at.get().min(mine);
        if next == NEVER {
            return false;
        }
        let clock = hw.cpus[cpu].clock;
        let until = if self.seeded() { clock + 1 } else { next.max(clock) + 1 };
        hw.charge(cpu, until - clock);
        hw.cpus[cpu].spinning = true;
        true
    }

    /// True while a CPU spins, and would find nothing if it looked.
    fn spins(&self, cpu: usize) -> bool {
        match &self.spins_for.borrow()[cpu] {
            None => false,
            Some(SpinsFor::Lock(held)) => held.get(),
            Some(SpinsFor::Condition { acts }) => *acts == self.acts.get(),
        }
    }

    /// Something was done that may end a wait.
    pub(super) fn acted(&self) {
        self.acts.set(self.acts.get() + 1);
    }

    /// True when a CPU waits, and no handler runs on it: then a turn of it is a test, unless it begins another wait.
    fn tests(&self, cpu: usize) -> bool {
        self.is_waiting(cpu) && !self.hw.borrow().cpus[cpu].in_handler
    }

    /// Takes the turn of a CPU that spins ([`Inner::spins`]), as [`Inner::wait`] would: without going to its context
    /// and back. False when there is more to do than to spin: then the context does it.
    fn spin(&self, cpu: usize) -> bool {
        !self.is_interrupted(cpu) && self.may_test_again() && self.pass_time(cpu)
    }

    /// Takes the turns of several CPUs that spin and would find nothing, one after the other as [`Inner::spin`]
    /// would, until one of the others or an event is next, or there is more to do than to spin: so many turns of a
    /// cycle or two are taken at once. False when none was.
    fn spin_together(&self) -> bool {
        let spinners = self.spinners.get();
        if self.seeded() || spinners.len() < 2 {
            return false;
        }
        let mut hw = self.hw.borrow_mut();
        let mut those = self.those_that_spin.borrow_mut();
        those.clear();
        let mut others_at = hw.outside_at;
        for cpu in 0..hw.cpus.len() {
            let spins = spinners.contains(CpuId(cpu as u8)) && self.spins(cpu);
            let c = &hw.cpus[cpu];
            if !spins || c.state != CpuState::Running {
                others_at = others_at.min(hw.turns.time(cpu));
                continue;
            }
            // What cannot be taken does not interrupt, but a wait looks when it comes.
            let pending = c.pending.front().map_or(NEVER, |&(at, _)| at);
            let taken_at = if c.in_handler || c.masked > 0 { NEVER } else { pending };
            those.push(Spinner { cpu, clock: c.clock, pending, taken_at });
        }
        if those.len() < 2 {
            return false;
        }
        let last = self.options.cycle_limit.map_or(NEVER, |limit| limit.0);
        let tests = take_turns(&mut those, Bounds { others_at, last, turns: self.tests_left() });
        for &Spinner { cpu, clock, .. } in those.iter() {
            let passed = clock - hw.cpus[cpu].clock;
            if passed > 0 {
                hw.charge(cpu, passed);
                hw.cpus[cpu].spinning = true;
                hw.take_turn(cpu);
            }
        }
        self.tested_more(tests);
        tests > 0
    }

    /// Runs the handler for every interrupt that has arrived.
    #[inline]
    pub(super) fn take_interrupts(&self) {
        if self.is_interrupted(self.cpu.get()) {
            self.run_handlers();
        }
    }

    #[inline(never)]
    fn run_handlers(&self) {
        self.acted();
        let before = self.calls_but_atomics();
        loop {
            let cpu = self.cpu.get();
            let interrupt = {
                let mut hw = self.hw.borrow_mut();
                let c = &mut hw.cpus[cpu];
                if c.in_handler || c.masked > 0 {
                    break;
                }
                // Where the seed decides, interrupts come early as well as late; but a timer is a matter of time.
                let early = |interrupt| self.seeded() && interrupt != Interrupt::Timer;
                let arrived = c.pending.iter().position(|&(at, i)| at <= c.clock || early(i));
                let Some((_, interrupt)) = arrived.and_then(|i| c.pending.remove(i)) else { break };
                c.in_handler = true;
                interrupt
            };
            let cause = match interrupt {
                Interrupt::Shootdown => Cause::ShootdownReceived,
                Interrupt::Reschedule | Interrupt::Timer | Interrupt::Device(_) => Cause::Interrupt,
            };
            self.push_cause(cause);
            self.note(EventKind::Handles(interrupt), None);
            {
                let mut hw = self.hw.borrow_mut();
                let entry = hw.params.ipi_entry;
                hw.charge_work(cpu, Work::Interrupts, entry);
                hw.counts.interrupts += 1;
                if let Interrupt::Device(device) = interrupt {
                    hw.device_arrived(device);
                }
            }
            let handler = self.handler.borrow().clone();
            let handler = handler.unwrap_or_else(|| {
                panic!(
                    "{:?} takes the interrupt {interrupt:?}, but no handler is set (`set_interrupt_handler`)",
                    CpuId(cpu as u8)
                )
            });
            handler(interrupt);
            assert_eq!(cpu, self.cpu.get(), "an interrupt handler changed CPUs");
            {
                let mut hw = self.hw.borrow_mut();
                hw.handled_at = hw.handled_at.max(hw.cpus[cpu].clock);
                let exit = hw.params.ipi_exit;
                hw.charge_work(cpu, Work::Interrupts, exit);
                hw.cpus[cpu].in_handler = false;
            }
            self.note(EventKind::Returns(interrupt), None);
            self.pop_cause();
            self.something_happened();
        }
        self.looks_go_on(before);
    }

    // ------------------------------------------------------------------------------------------------- refills

    /// Asks the kernel to make an access possible, with interrupts off.
    ///
    /// # Panics
    /// When the handler misses while it works with physical addresses, or again and again when it does not: there would
    /// be no end to it.
    pub(super) fn refill(&self, miss: Miss) -> Result<(), Trap> {
        let Miss { va, access, mode, .. } = miss;
        let handler = self.refill.borrow().clone();
        let handler = handler.unwrap_or_else(|| panic!("no refill handler was set for the miss at {va:?}"));
        self.push_cause(Cause::Refill);
        self.step(|hw, cpu| {
            let c = &mut hw.cpus[cpu];
            assert!(!c.untranslated, "the refill handler itself missed: {miss:?}");
            c.untranslated = true;
            c.refills += 1;
            c.masked += 1;
            assert!(
                c.refills <= MAX_NESTED,
                "{MAX_NESTED} refill handlers miss within one another: {miss:?}"
            );
            hw.charge(cpu, hw.params.refill_enter);
            hw.did(cpu, Action::Misses(miss));
        });
        let filled = handler(miss);
        self.step(|hw, cpu| {
            hw.charge(cpu, hw.params.refill_exit);
            hw.did(cpu, Action::Returns);
            let c = &mut hw.cpus[cpu];
            c.masked -= 1;
            c.refills -= 1;
            // What it interrupted was translated: else it could not have missed.
            c.untranslated = false;
        });
        self.pop_cause();
        filled.map_err(|kind| Trap { va, access, mode, kind })
    }

    /// Makes an access for the caller at `by`, and makes it again after each refill.
    ///
    /// # Panics
    /// When it uses a stale translation, unless that is tolerated.
    /// When the handler answers again and again that the access is possible, and it is not.
    pub(super) fn access<R>(
        &self,
        by: Site,
        mut attempt: impl FnMut(&mut Hw, usize) -> Result<R, Exception>,
    ) -> Result<R, Trap> {
        // A copy misses on either side, a fill may push the other side out, and another CPU may take a mapping away
        // again.
        const MAX_REFILLS: u32 = 64;
        for _ in 0..MAX_REFILLS {
            let (made, stale) = self.step(|hw, cpu| (attempt(hw, cpu), hw.oracle.error().is_some()));
            if stale {
                self.fail_stale(by);
            }
            match made {
                Ok(result) => return Ok(result),
                Err(Exception::Trap(trap)) => return Err(trap),
                Err(Exception::Miss(miss)) => self.refill(miss)?,
            }
        }
        panic!("{MAX_REFILLS} refills did not make an access possible");
    }

    /// Makes an access of `len_bytes`, which is `what`, part by part; `attempt` gets the bytes done and the deadline,
    /// and answers how many more it did.
    pub(super) fn by_parts(
        &self,
        by: Site,
        what: EventKind,
        len_bytes: usize,
        mut attempt: impl FnMut(&mut Hw, usize, usize, u64) -> Result<usize, Exception>,
    ) -> Result<(), CopyFault> {
        let mut done_bytes = 0;
        while done_bytes < len_bytes {
            self.poll();
            if done_bytes == 0 {
                self.note(what, Some(by));
            }
            let deadline = self.deadline();
            let part = self.access(by, |hw, cpu| attempt(hw, cpu, done_bytes, deadline));
            done_bytes += part.map_err(|trap| CopyFault { done_bytes, trap })?;
        }
        Ok(())
    }

    /// Fetches a path of the kernel's text. Before boot has said where that lies, and before the CPU has a context to
    /// translate by, there is nothing to go through; nor has a kernel that is looked at from outside.
    #[inline(never)]
    pub(super) fn fetch_text(&self, by: Site, text: u32, path: Instructions) {
        let Some(base) = self.text.get() else { return };
        if !self.running.get() || self.step(|hw, cpu| hw.cpus[cpu].translates_by.is_none()) {
            return;
        }
        let (at, len) = (base + text as usize, (path.0 * self.board.instruction_bytes) as usize);
        let mut done = 0;
        while done < len {
            let part =
                self.access(by, |hw, cpu| hw.fetch(cpu, at + done, len - done, Mode::Kernel, u64::MAX));
            done += part.unwrap_or_else(|trap| panic!("the kernel's text is not mapped: {trap}"));
        }
    }

    /// Refuses what is not all in user space.
    pub(super) fn within_user(&self, va: Va, len_bytes: usize, access: Access) -> Result<(), CopyFault> {
        if self.board.layout.is_user(va, len_bytes) {
            return Ok(());
        }
        let trap = Trap { va, access, mode: Mode::User, kind: TrapKind::Protection };
        Err(CopyFault { done_bytes: 0, trap })
    }

    // ------------------------------------------------------------------------------------------------- causes

    /// Puts a cause in force until the scope is dropped.
    pub(crate) fn scope(self: &Rc<Self>, cause: Cause) -> Scope {
        if self.running.get() {
            self.push_cause(cause);
        }
        Scope { inner: self.clone() }
    }

    pub(super) fn push_cause(&self, cause: Cause) {
        self.contexts.borrow_mut()[self.context.get()].causes.push(cause);
        self.hw.borrow_mut().cpus[self.cpu.get()].cause = cause;
    }

    pub(super) fn pop_cause(&self) {
        let mut contexts = self.contexts.borrow_mut();
        let causes = &mut contexts[self.context.get()].causes;
        causes.pop();
        let cause = *causes.last().expect("the first cause is never popped");
        self.hw.borrow_mut().cpus[self.cpu.get()].cause = cause;
    }

    /// Hands a request to a device; `hand_in` answers when its interrupt comes, to CPU 0.
    pub(crate) fn submit(&self, hand_in: impl FnOnce(&mut Hw, usize) -> u64) {
        self.sync();
        self.step(|hw, cpu| {
            let at = hand_in(hw, cpu);
            let first = &hw.cpus[0];
            if cpu != 0 && first.state == CpuState::Halted {
                self.others_at.set(self.others_at.get().min(at.max(first.clock)));
            }
        });
    }

    /// Runs `step` on the hardware as the executing CPU.
    pub(crate) fn step<R>(&self, step: impl FnOnce(&mut Hw, usize) -> R) -> R {
        step(&mut self.hw.borrow_mut(), self.cpu.get())
    }

    /// The moment at which the executing CPU must let others run.
    pub(super) fn deadline(&self) -> u64 {
        let last = self.options.cycle_limit.map_or(u64::MAX, |limit| limit.0);
        match self.others_at.get() {
            NEVER => last,
            _ if self.seeded() => 0,
            at => at.saturating_add(self.run_ahead).min(last),
        }
    }
}
