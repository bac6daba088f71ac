//! Measuring what moving data costs on this machine, before anybody chooses by it.
//!
//! # When
//! Never inside a call that sends or receives: a choice without costs copies. A kernel whose configuration says so
//! ([`crate::KernelConfig::measures_at_boot`]) has a process of its own measure, as soon as threads run; programs that
//! were made at boot begin when it is done. In any kernel a program may ask for it ([`User::measure_moves`]). It is
//! done once; a kernel in which nobody asks does not pay for it.
//!
//! # What is where
//! `bench` measures what one thread can, in the address space of the caller, because the kernel's own has no anons;
//! `passing` what takes two address spaces, `requests` what takes two processes. `rally` has two threads take turns.
//!
//! # Locks
//! The thread that measures has a sleep lock in a monitor of class `Pipe`; others wait for it. No spin lock may be
//! held.
//!
//! # What can fail
//! Measuring, for want of memory or of a thread structure. Then everything goes on being copied, and another call may
//! try again: memory may have grown by then.

mod bench;
mod measuring;
mod passing;
mod rally;
mod requests;

pub(crate) use measuring::Measuring;

use crate::Kernel;
use crate::sys::{Program, User};
use alloc::boxed::Box;
use alloc::sync::Arc;
use measuring::AtBoot;
use pageferry_abi::Errno;
use pageferry_core::fs::FileTable;
use pageferry_core::proc::{Role, Syscall};
use pageferry_hal::{Cause, Machine, Threads};

impl<M: Machine> Kernel<M> {
    /// Measures what moving data costs here, if that is not known. Sleeps.
    fn measure(self: &Arc<Self>, call: &Syscall<'_, M>) -> Result<(), Errno> {
        let (moves, measuring) = (&self.core.moves, &self.measuring);
        if moves.known().is_some() {
            return Ok(());
        }
        let state = &measuring.state;
        // No signal ends this wait, so it has no error.
        drop(state.acquire(call.thread, state.lock(), |state| &mut state.lock, "measuring", false).0);
        // Another process may have measured while this one waited.
        let measured = match moves.known().is_some() {
            true => Ok(()),
            false => bench::measure(call, &measuring.rally).map(|costs| {
                moves.set(costs, requests::measure(self, call));
            }),
        };
        state.release(call.thread, &mut state.lock(), |state| &mut state.lock);
        measured
    }
}

impl<M: Machine> User<M> {
    /// Has the kernel measure what copying and moving data costs on this machine, unless it has. It takes a few
    /// milliseconds and memory, in which the other processes go on, and sleeps. From then on the kernel chooses between
    /// them wherever it is left to it; before, it copies.
    ///
    /// # Errors
    /// [`Errno::NoMemory`] for want of memory or of a structure: it may be called again. [`Errno::Killed`].
    pub fn measure_moves(&self) -> Result<(), Errno> {
        self.system_call(|call| self.kernel().measure(call))
    }
}

impl<M: Machine> Kernel<M> {
    /// What a process that is made at boot runs for `program`: it begins when the costs are known that are to be. The
    /// first such process has another one begun, which measures.
    pub(crate) fn behind_measuring(self: &Arc<Self>, program: Program<M>, boot: &dyn Threads) -> Program<M> {
        if !self.config.measures_at_boot {
            return program;
        }
        let first = {
            let mut held = self.measuring.state.lock();
            let first = held.at_boot == AtBoot::None;
            held.at_boot = AtBoot::Measures;
            first
        };
        if first && self.begin_measuring(boot).is_err() {
            // Without it there are no costs, and programs begin at once.
            self.measuring.boot_is_over(boot);
        }
        Box::new(move |user| {
            user.kernel().measuring.wait_for_boot(user.thread());
            program(user);
        })
    }

    fn begin_measuring(self: &Arc<Self>, boot: &dyn Threads) -> Result<(), Errno> {
        let program: Program<M> = Box::new(|user| {
            let _c = user.machine().scope(Cause::Boot);
            // What cannot be measured is not chosen.
            _ = user.measure_moves();
            user.kernel().measuring.boot_is_over(user.thread());
        });
        self.begin_process(boot, "measure", Role::Partner, FileTable::new(), program).map(drop)
    }
}
