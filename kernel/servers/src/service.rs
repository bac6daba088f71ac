//! Which process serves: what is known of a server of the kernel's, from the moment in which it is begun until it has
//! ended.
//!
//! # Locks
//! One of class `Pipe`; it is let go before a request is made, and while somebody waits.
//!
//! # What can fail
//! Making the process. What it fails at while it begins is told to those who wait for that.

use alloc::sync::Arc;
use pageferry_abi::{Errno, Pid};
use pageferry_core::fs::FileTable;
use pageferry_core::proc::{Role, Syscall};
use pageferry_core::sched::Monitor;
use pageferry_hal::{Machine, StructVa, Threads};
use pageferry_kernel::Kernel;
use pageferry_kernel::Program;

/// See the [module](self).
pub(super) struct Service<M: Machine> {
    /// Its number among the services ([`crate::ispc`]).
    pub(super) number: u32,
    name: &'static str,
    state: Monitor<M, State>,
}

#[derive(Default)]
pub(super) struct State {
    /// There is a process for it, which may not serve yet or any more.
    is_there: bool,
    /// How it began; nothing as long as it has not.
    began: Option<Result<(), Errno>>,
    /// The one that serves.
    server: Option<Pid>,
}

impl<M: Machine> Service<M> {
    pub(super) fn new(m: &M, at: StructVa, number: u32, name: &'static str) -> Service<M> {
        Service { number, name, state: Monitor::new(m, at, State::default()) }
    }

    /// The server, if there is one.
    pub(super) fn server(&self) -> Option<Pid> {
        self.state.lock().server
    }

    /// There is a process for it, which serves, is about to, or is about to end.
    pub(super) fn is_there(&self) -> bool {
        self.state.lock().is_there
    }

    /// The server, the caller, says how it began.
    pub(super) fn began(&self, threads: &dyn Threads, pid: Pid, how: Result<(), Errno>) {
        {
            let mut state = self.state.lock();
            state.server = how.is_ok().then_some(pid);
            state.began = Some(how);
        }
        self.state.wake_all(threads);
    }

    /// The server has ended, however it began; true if it has served.
    pub(super) fn ended(&self, threads: &dyn Threads) -> bool {
        let served = {
            let mut state = self.state.lock();
            (state.server, state.is_there) = (None, false);
            state.began.get_or_insert(Err(Errno::Io)).is_ok()
        };
        self.state.wake_all(threads);
        served
    }

    /// Makes the server's process.
    ///
    /// # Errors
    /// [`Errno::Busy`]: there is one. [`Errno::NoMemory`].
    pub(super) fn begin(
        &self,
        kernel: &Arc<Kernel<M>>,
        threads: &dyn Threads,
        program: Program<M>,
    ) -> Result<(), Errno> {
        {
            let mut state = self.state.lock();
            if state.is_there {
                return Err(Errno::Busy);
            }
            *state = State { is_there: true, ..State::default() };
        }
        let made =
            kernel.begin_process(threads, self.name, Role::Server(self.number), FileTable::new(), program);
        if made.is_err() {
            self.ended(threads);
        }
        made.map(|_| ())
    }

    /// Waits until the server serves, or has ended because it cannot.
    pub(super) fn wait_begun(&self, call: &Syscall<'_, M>) -> Result<(), Errno> {
        self.wait_until(call, |state| state.began.filter(|how| how.is_ok() || !state.is_there))
    }

    /// Waits until this server is none any more.
    pub(super) fn wait_ended(&self, call: &Syscall<'_, M>, server: Pid) {
        self.wait_until(call, |state| (state.server != Some(server)).then_some(()));
    }

    /// Waits until there is no process for it, or one that serves; answers the latter.
    pub(super) fn wait_settled(&self, call: &Syscall<'_, M>) -> Option<Pid> {
        self.wait_until(call, |state| (!state.is_there || state.server.is_some()).then_some(state.server))
    }

    /// Waits until `done` says so.
    fn wait_until<R>(&self, call: &Syscall<'_, M>, done: impl Fn(&State) -> Option<R>) -> R {
        let mut state = self.state.lock();
        loop {
            match done(&state) {
                Some(result) => return result,
                None => state = self.state.wait(call.thread, state, self.name, false).0,
            }
        }
    }
}
