//! What a process has lent to the kernel, and being told when it comes back (UVM paper, 4.1: a loan ends when the borrower is
//! done; here its lender learns that).
//!
//! A process that sends by loan may write to its buffer at once: that breaks the loan and costs a copy. One that would
//! rather wait asks how many of its pages are out, or sleeps until none is. Counting them takes a lock and a cache line that
//! lender and borrower write in turn; so it is done for who asks for it only, from then on. Each process has a [`Lending`],
//! which its loans refer to; so it lives as long as the last of them, which may be longer than the process.
//!
//! # Locks
//! The count is under a lock of class `Mbuf`, held for moments: loans are given back by whoever frees an mbuf.

use crate::error::Errno;
use crate::sched::Sched;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_hal::{Access, Channel, LockClass, Machine, SpinLock, StructVa, Threads};
use pageferry_vm::{KernelLoan, Lender};

/// What is touched of the process's structure.
const COUNT_BYTES: usize = 8;

/// The account of one process. See the [module](self).
pub(crate) struct Lending<M: Machine> {
    machine: M,
    sched: Arc<Sched<M>>,
    at: StructVa,
    watched: AtomicBool,
    state: M::Lock<State>,
}

#[derive(Default)]
struct State {
    pages_out: usize,
    wanted: bool,
}

impl<M: Machine> Lending<M> {
    /// `at` is in the process's structure.
    pub(crate) fn new(sched: &Arc<Sched<M>>, at: StructVa) -> Lending<M> {
        let machine = sched.machine().clone();
        let state = machine.new_lock(LockClass::Mbuf, State::default());
        Lending { machine, sched: sched.clone(), at, watched: AtomicBool::new(false), state }
    }

    /// Follows a loan, if this process wants that.
    pub(crate) fn follow(self: &Arc<Self>, loan: &mut KernelLoan) {
        if self.watched.load(Ordering::Relaxed) {
            self.machine.touch(self.at, COUNT_BYTES, Access::Write);
            self.state.lock().pages_out += loan.frames().len();
            loan.tell(self.clone());
        }
    }

    /// Begins, or ends, to watch loans.
    pub(crate) fn watch(&self, on: bool) {
        self.watched.store(on, Ordering::Relaxed);
    }

    fn when_watched(&self) -> Result<(), Errno> {
        if self.watched.load(Ordering::Relaxed) { Ok(()) } else { Err(Errno::Invalid) }
    }

    /// Pages on loan.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when loans are not watched.
    pub(crate) fn pages_out(&self) -> Result<usize, Errno> {
        self.when_watched()?;
        Ok(self.state.lock().pages_out)
    }

    /// Sleeps until none is.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when loans are not watched; [`Errno::Interrupted`].
    pub(crate) fn wait(&self, t: &dyn Threads) -> Result<(), Errno> {
        self.when_watched()?;
        let mut state = self.state.lock();
        while state.pages_out > 0 {
            state.wanted = true;
            let mut held = Some(state);
            t.sleep(self.channel(), "pages on loan", true, &mut || drop(held.take()))?;
            state = self.state.lock();
        }
        Ok(())
    }

    fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }
}

impl<M: Machine> Lender for Lending<M> {
    fn returned(&self, len_pages: usize) {
        self.machine.touch(self.at, COUNT_BYTES, Access::Write);
        let mut state = self.state.lock();
        state.pages_out = state.pages_out.checked_sub(len_pages).expect("no more comes back than was lent");
        let wake = state.pages_out == 0 && core::mem::take(&mut state.wanted);
        drop(state);
        if wake {
            self.sched.wakeup(self.channel(), usize::MAX);
        }
    }
}
