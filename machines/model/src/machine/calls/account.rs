//! What the kernel says that it does, and what a modelled machine charges for it.

use crate::machine::Model;
use crate::machine::driver::Scope;
use crate::machine::inner::Inner;
use crate::watch::Action;
use pageferry_hal::{
    Access, Account, Cause, CodePath, Crossing, LockCosts, MemoryUse, Metric, Mode, Pfn, StructVa, Va,
};
use std::panic::Location;

impl Account for Model {
    type Scope = Scope;

    const ACCOUNTING: bool = true;

    fn scope(&self, cause: Cause) -> Scope {
        self.0.scope(cause)
    }

    #[inline]
    #[track_caller]
    fn execute(&self, path: impl Into<CodePath>) {
        let path = path.into();
        self.0.poll();
        if let Some(text) = path.text {
            self.0.fetch_text(Location::caller(), text.get(), path.instructions);
        }
        self.0.step(|hw, cpu| {
            hw.execute(cpu, path.instructions);
            hw.execute_locked(cpu, path.locked);
            hw.did(cpu, Action::Executes(path));
        });
    }

    fn set_text(&self, at: StructVa) {
        self.0.text.set(Some(at.0));
    }

    fn set_use(&self, at: Va, len_bytes: usize, what: MemoryUse) {
        self.0.step(|hw, _| hw.uses.set(at, len_bytes, what));
    }

    fn set_direct_map(&self, at: Va, frames: usize) {
        self.0.step(|hw, _| hw.uses.set_direct_map(at, frames));
    }

    fn set_frame_use(&self, frame: Pfn, what: MemoryUse) {
        self.0.step(|hw, _| hw.uses.set_frame(frame, what));
    }

    #[inline]
    fn count(&self, counter: impl Into<Metric>, n: u64) {
        self.0.count(counter.into(), n);
    }

    fn count_at(&self, counter: impl Into<Metric>, at: Va, n: u64) {
        let counter = counter.into();
        self.0.count(counter, n);
        self.0.step(|hw, _| hw.count_by_use(counter, at, n));
    }

    #[track_caller]
    fn touch(&self, at: StructVa, len_bytes: usize, access: Access) {
        if !self.0.running.get() {
            // Looked at from outside: nothing is accounted, and nothing missed.
            return;
        }
        let mut lines = 0;
        let by = Location::caller();
        let touched = self.0.access(by, |hw, cpu| hw.touch(cpu, at.0, len_bytes, access, &mut lines));
        touched.unwrap_or_else(|trap| panic!("a kernel structure is not mapped: {trap}"));
        self.0.step(|hw, cpu| hw.did(cpu, Action::Touches(at.0, access)));
    }

    fn touch_timer(&self, accesses: u32) {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let cycles = u64::from(accesses) * hw.params.timer_access;
            hw.charge(cpu, cycles);
        });
    }

    fn set_locks(&self, costs: LockCosts) {
        self.0.step(|hw, _| hw.locks_are(costs));
    }

    #[track_caller]
    fn touch_register(&self, at: Va, access: Access) {
        let by = Location::caller();
        self.0.poll();
        let touched = self.0.access(by, |hw, cpu| {
            let found = hw.translate(cpu, at, Mode::Kernel, access)?;
            assert!(found.pa.pfn().index() >= hw.params.frames, "{at:?} is no register of a device");
            let cycles = hw.params.register;
            hw.charge(cpu, cycles);
            Ok(())
        });
        touched.unwrap_or_else(|trap| panic!("a register of a device is not mapped: {trap}"));
    }

    fn cross(&self, crossing: Crossing) {
        self.0.poll();
        self.0.step(|hw, cpu| {
            let cycles = match crossing {
                Crossing::SyscallEnter => hw.params.syscall_enter,
                Crossing::SyscallExit => hw.params.syscall_exit,
                Crossing::TrapEnter => hw.params.trap_enter,
                Crossing::TrapExit => hw.params.trap_exit,
            };
            hw.charge(cpu, cycles);
        });
    }
}

impl Inner {
    fn count(&self, counter: Metric, n: u64) {
        self.step(|hw, cpu| {
            hw.counters[counter.index()] += n;
            let at = hw.cpus[cpu].clock;
            if let Some(recorder) = &mut hw.recorder {
                recorder.count(at, counter, n);
            }
        });
    }
}
