//! Atomics of code under test ([`crate::sync`]): their turns, their cost, and how a run ends in which CPUs read them
//! and do nothing else.
//!
//! An operation that leaves the value as it was is a *look*. Looks are counted as long as no CPU does anything else, as
//! tests of waits are ([`super::waits`]), with the same limits. Interrupt handlers are not anything else, or a clock
//! that ticks would keep such a run alive.

use crate::hw::{CpuState, Hw};
use crate::machine::event::EventKind;
use crate::machine::inner::{Inner, SEEDED_APART_CYCLES};
use crate::machine::look::Look;
use crate::machine::wait::{CpuWait, WaitCause};
use crate::machine::waits::FAR_CYCLES;
use crate::mmu::access::Site;
use crate::sync::Line;
use pageferry_hal::Instructions;

impl Inner {
    /// The executing CPU begins an operation on an atomic: waits for its turn, and pays.
    pub(crate) fn begin_atomic(&self, line: Option<(&Line, bool)>) {
        self.looks.borrow_mut().atomics += 1;
        self.sync();
        let mut hw = self.hw.borrow_mut();
        let cpu = self.cpu();
        hw.execute(cpu, Instructions(1));
        let Some((line, writes)) = line else { return };
        if hw.params.cpus > 1 && writes {
            let cycles = hw.params.atomic;
            hw.charge(cpu, cycles);
        }
        let package = hw.cpus[cpu].package;
        let others = line.use_by(self.number, package, writes);
        if others != 0 {
            let cycles = hw.params.transfer_from(others, writes, package);
            hw.charge(cpu, cycles);
        }
    }

    /// True while the executing CPU tests what it waits for, in a call of the machine: that looks at memory alone.
    pub(crate) fn is_testing(&self) -> bool {
        let in_handler = self.hw.borrow().cpus[self.cpu()].in_handler;
        self.waits.borrow()[self.cpu()].is_some_and(|wait| wait.in_handler == in_handler)
    }

    /// An operation on an atomic is over, at which `was` became `is`.
    pub(crate) fn looked(&self, name: &'static str, was: u64, is: u64, at: Site) {
        let again = was == is && self.look(at, is);
        let in_handler = self.hw.borrow().cpus[self.cpu()].in_handler;
        if was != is && !in_handler {
            self.looks.borrow_mut().end_row(self.board.cpus);
        }
        // A CPU that looks and looks would leave nothing else in the log.
        if !again {
            self.note(EventKind::Atomic { name, was, is }, Some(at));
        }
    }

    /// Time for others, in a loop that looks.
    pub(crate) fn pause(&self, at: Site) {
        self.begin_atomic(None);
        let found =
            self.looks.borrow().by_cpu.get(self.cpu()).copied().flatten().map(|look| (look.at, look.found));
        let (at, found) = found.unwrap_or((at, 0));
        self.look(at, found);
    }

    /// Calls on the machine that were no operations on atomics.
    pub(super) fn calls_but_atomics(&self) -> u64 {
        self.pulse.calls().wrapping_sub(self.looks.borrow().atomics)
    }

    /// The interrupt handlers that have run since there were `before` calls end no row of looks: what they changed is
    /// seen by the next look.
    pub(super) fn looks_go_on(&self, before: u64) {
        let calls = self.calls_but_atomics();
        let mut looks = self.looks.borrow_mut();
        if looks.calls == before {
            looks.calls = calls;
        }
    }

    /// True when all that the CPU does is to test what it waits for, and it has tested since another did anything else:
    /// of atomics that is known, of waits it is for the caller to know.
    pub(super) fn only_tests(&self, hw: &Hw, cpu: usize) -> bool {
        let handles = hw.cpus[cpu].in_handler;
        if self.waits.borrow()[cpu].is_some_and(|wait| wait.in_handler == handles) {
            return true;
        }
        let looks = self.looks.borrow();
        let row = looks.count > 0 && self.pulse.calls().wrapping_sub(looks.atomics) == looks.calls;
        row && looks.by_cpu[cpu].is_some()
    }

    /// Counts a look. True when the CPU has looked there before, and found the same.
    fn look(&self, at: Site, found: u64) -> bool {
        let (cpu, now, calls) = (self.cpu(), self.clock(), self.calls_but_atomics());
        let mut looks = self.looks.borrow_mut();
        if calls != looks.calls || looks.by_cpu.is_empty() {
            looks.end_row(self.board.cpus);
        }
        looks.calls = calls;
        looks.count += 1;
        let before = looks.by_cpu[cpu];
        let since = before.map_or(now, |look| look.since);
        looks.by_cpu[cpu] = Some(Look { at, since, found });
        let (count, limit) = (looks.count, self.options.spin_limit);
        drop(looks);
        if count >= limit || (count >= limit / 100 && self.nothing_pending()) {
            self.end_looks(count);
        }
        before.is_some_and(|look| look.at == at && look.found == found)
    }

    /// There were too many, unless a CPU goes on that does not look.
    ///
    /// # Panics
    /// When there were.
    fn end_looks(&self, count: u64) {
        let in_handler = self.hw.borrow().cpus[self.cpu()].in_handler;
        if self.some_other_goes_on() {
            self.looks.borrow_mut().end_row(self.board.cpus);
            return;
        }
        for (cpu, look) in self.looks.borrow().by_cpu.iter().enumerate() {
            let Some(Look { at, since, .. }) = *look else { continue };
            let wait = CpuWait { awaited: WaitCause::Atomic, at, since, in_handler };
            self.waits.borrow_mut()[cpu].get_or_insert(wait);
        }
        self.tested_more(count);
        self.fail_spinning(false);
    }

    /// As for waits: a CPU that neither looks nor waits is ahead of those that do, or one that does is far ahead.
    fn some_other_goes_on(&self) -> bool {
        let (hw, waits, looks) = (self.hw.borrow(), self.waits.borrow(), self.looks.borrow());
        let running = || (0..hw.cpus.len()).filter(|&cpu| hw.cpus[cpu].state == CpuState::Running);
        let clocks = || running().map(|cpu| hw.cpus[cpu].clock);
        let apart = clocks().max().unwrap_or(0) - clocks().min().unwrap_or(0);
        let far = if self.seeded() { SEEDED_APART_CYCLES } else { FAR_CYCLES };
        apart > far || running().any(|cpu| waits[cpu].is_none() && looks.by_cpu[cpu].is_none())
    }
}
