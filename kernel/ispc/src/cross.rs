//! Crossing: a thread that makes a request goes into its server's space, and comes back with the answer (migrating
//! threads).
//!
//! # The model
//! A server names a *procedure*. A thread that makes a request of it detaches its pieces, changes its space, attaches
//! them there, and runs the procedure in user mode, as a thread of the server's process; then the same backwards.
//! Nothing is queued, nothing is woken, and the scheduler is not asked. A procedure may make requests itself: every
//! thread has a stack of [`Activation`]s. Any number of threads may be inside a server at a time, beside its own, which
//! waits for the end of its service.
//!
//! # Owners
//! [`Gate`]s are the servers' that may be crossed into; each holds its process, so the space is there as long as a
//! thread is inside. Activations are in [`super::state::State`], and are changed together with the space that their
//! thread runs in: the holder of the lock sees both or neither.
//!
//! # Locks
//! That of the state, for each way; the scheduler's within it. Not while the procedure runs.
//!
//! # What can fail
//! A server that dies while threads are inside. A procedure cannot be cut off, but its hands are tied, as those of all
//! that is killed are: its calls fail, its sleeps end, and its loads give zeros. So it returns, its maker is told
//! [`Errno::ConnectionReset`], and has its pieces. The server's memory goes when the last has left. A maker that is
//! killed while its thread is inside ends when that comes back.

use super::call::Wait;
use super::config::IspcDefect;
use super::gate::{Activation, Gate, Inquiry, Procedure};
use super::port::{RequestId, Stage};
use super::state::{Ispc, State};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use pageferry_abi::{Errno, Pid};
use pageferry_core::base::Core;
use pageferry_core::counter::KernelCounter;
use pageferry_core::proc::{Process, Syscall};
use pageferry_core::sched::Thread;
use pageferry_hal::{Cause, Crossing, Machine, SpinLock, Threads, Va};
use pageferry_vm::Space;

impl<M: Machine> Ispc<M> {
    /// Makes the caller the server of `service`, whose clients' threads run `procedure`.
    pub fn call_serve_by(
        &self,
        call: &Syscall<'_, M>,
        process: &Arc<Process<M>>,
        service: u32,
        procedure: Procedure<M>,
    ) -> Result<(), Errno> {
        if !self.config.method.crosses() {
            return Err(Errno::NotSupported);
        }
        self.become_server(call, service)?;
        self.gates.lock().insert(call.pid, Arc::new(Gate { process: process.clone(), procedure }));
        Ok(())
    }

    /// Makes a request of a server by going there.
    pub fn call_cross(
        &self,
        call: &Syscall<'_, M>,
        service: u32,
        pieces: (Va, Option<Va>),
        wait: Wait,
    ) -> Result<(), Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        let to = self.server_of(call, service)?;
        let id = self.go(call, to, pieces)?;
        self.finish(call, id, wait)?.outcome
    }

    /// Goes into a server with a request, and back: then that is done.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`]: the server has ended. As of [`Ispc::make_request`].
    pub(super) fn go(
        &self,
        call: &Syscall<'_, M>,
        to: Pid,
        pieces: (Va, Option<Va>),
    ) -> Result<RequestId, Errno> {
        let m = call.machine();
        let gate = self.gates.lock().get(&to).cloned().ok_or(Errno::ConnectionRefused)?;
        // What runs there is the caller's thread, and the server's process.
        let Process { space, pid, loans, .. } = &*gate.process;
        let inside = Syscall { core: call.core, thread: call.thread, space, pid: *pid, loans };
        let (last, inquiry) = {
            let mut state = self.state.lock();
            let is_dead = gate.process.killed.load(Ordering::Relaxed);
            if state.ports.get(&to).is_none_or(|port| port.service.is_none()) || is_dead {
                return Err(Errno::ConnectionRefused);
            }
            let id = self.make_request(call, &mut state, to, pieces, true)?;
            let last = Activation { id, to, space: space.pmap().id() };
            state.requests.get_mut(&id).expect("just made").stage = Stage::Crossed;
            state.inside.entry(call.thread.id()).or_default().push(last);
            self.change_space(call.thread, space);
            let attached = self.attach_all(&inside, &mut state, id);
            (last, attached.map(|()| self.served(&inside, &mut state, id, Stage::Crossed)))
        };
        let id = last.id;
        let mut outcome = match inquiry {
            Ok(inquiry) => {
                self.run(call, &gate, &inquiry);
                Ok(())
            }
            Err(error) => Err(error),
        };
        {
            let mut state = self.state.lock();
            if outcome.is_ok() {
                self.take_back(&inside, &mut state, id);
            }
            if gate.process.killed.load(Ordering::Relaxed) {
                if !self.has(IspcDefect::DeathUntold) {
                    outcome = Err(Errno::ConnectionReset);
                }
                // It was told to leave.
                call.thread.take_signals();
                let port = state.ports.get(&to).expect("a server is there as long as somebody is inside");
                call.thread.wakeup(port.channel());
            }
            let request = state.requests.get_mut(&id).expect("its maker takes it out");
            self.touch(m, request.at);
            request.stage = Stage::Done(outcome);
            self.leave(call, &mut state, last);
        }
        Ok(id)
    }

    /// The calling thread goes on in another space.
    fn change_space(&self, thread: &Thread<M>, to: &Arc<Space<M>>) {
        let m = thread.sched.machine();
        let _c = m.scope(Cause::Switch);
        m.execute(self.config.paths.cross);
        thread.sched.change_space(&thread.tcb, to);
    }

    /// Goes back to where the caller was before its last activation.
    fn leave(&self, call: &Syscall<'_, M>, state: &mut State, last: Activation) {
        let stack = state.inside.get_mut(&call.thread.id()).expect("who leaves is inside");
        assert_eq!(stack.pop(), Some(last), "activations end in the order of a stack");
        if stack.is_empty() {
            state.inside.remove(&call.thread.id());
        }
        if !self.has(IspcDefect::SpaceKept) {
            self.change_space(call.thread, call.space);
        }
    }

    /// Runs the procedure, in user mode.
    fn run(&self, call: &Syscall<'_, M>, gate: &Gate<M>, inquiry: &Inquiry) {
        let (m, thread) = (call.machine(), call.thread.clone());
        thread.return_to_user();
        thread.cross(Crossing::SyscallExit);
        {
            let _c = m.scope(Cause::User);
            (gate.procedure)(&gate.process, &thread, inquiry);
        }
        // Its return is a call of the kernel.
        thread.cross(Crossing::SyscallEnter);
        let _c = m.scope(Cause::Syscall);
        m.execute(call.core.config.paths.syscall);
        m.count(KernelCounter::Syscalls, 1);
    }

    /// The calling process ends: no thread crosses into it any more, and those inside are told to leave. Returns when
    /// all have.
    pub fn close_gate(&self, call: &Syscall<'_, M>, process: &Process<M>) {
        if self.gates.lock().remove(&call.pid).is_none() {
            return;
        }
        let _c = call.machine().scope(Cause::Protocol);
        process.killed.store(true, Ordering::Relaxed);
        loop {
            let mut state = self.state.lock();
            state.servers.retain(|_, pid| *pid != call.pid);
            let all: Vec<_> = (state.inside.iter())
                .filter(|(_, stack)| stack.iter().any(|at| at.to == call.pid))
                .map(|(&thread, _)| thread)
                .collect();
            if all.is_empty() || self.has(IspcDefect::InsideForgotten) {
                return;
            }
            all.into_iter().for_each(|thread| _ = call.thread.sched.signal(thread));
            let channel = state.ports[&call.pid].channel();
            let mut held = Some(state);
            let slept = call.thread.sleep(channel, "inside", false, &mut || drop(held.take()));
            assert!(slept.is_ok(), "this sleep is not interruptible");
        }
    }

    /// True when threads may cross into this process.
    pub fn has_gate(&self, pid: Pid) -> bool {
        self.gates.lock().contains_key(&pid)
    }

    /// Tests that every thread that has crossed runs where it has crossed to, for requests that know it.
    ///
    /// # Errors
    /// What is broken, in words.
    pub(super) fn check_inside(&self, core: &Core<M>, state: &State) -> Result<(), String> {
        let mut crossed = 0;
        for (thread, stack) in &state.inside {
            let (mut from, mut its) = (None, None);
            for &Activation { id, to, space } in stack {
                let request = state.requests.get(&id).filter(|r| r.to == to && r.stage == Stage::Crossed);
                let Some(request) = request else {
                    return Err(format!("{thread:?} is in {to:?} for {id:?}, which knows nothing of it"));
                };
                if from.is_some_and(|from| request.from != Some(from)) {
                    return Err(format!(
                        "{thread:?} is in {to:?} for {:?}, and came from {from:?}",
                        request.from
                    ));
                }
                if !state.ports.contains_key(&to) {
                    return Err(format!("{thread:?} is in {to:?}, which is not there"));
                }
                (from, its) = (Some(to), Some(space));
                crossed += 1;
            }
            let runs_in = core.sched.space_of(*thread);
            if runs_in != its {
                return Err(format!(
                    "{thread:?} is in {from:?}, whose space is {its:?}, and runs in {runs_in:?}"
                ));
            }
        }
        let stages = state.requests.values().filter(|r| r.stage == Stage::Crossed).count();
        match stages == crossed {
            true => Ok(()),
            false => Err(format!("{stages} requests have their makers in servers, where {crossed} are")),
        }
    }
}
