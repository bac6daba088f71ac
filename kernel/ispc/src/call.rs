//! The system calls: a piece of the area, a service, a request, its answer.
//!
//! # Locks
//! That of [`super::state::State`], let go while a thread sleeps. A thread that wakes looks again.
//!
//! # What can fail
//! What the caller got wrong (a piece that it has not, a service that is not there), a reserved entry that is not free
//! where it does not wait for one, and a server that dies ([`Errno::ConnectionReset`]): then the pieces of the request
//! come back as they are.

use super::config::IspcDefect;
use super::gate::Inquiry;
use super::port::{Port, Request, RequestId, Stage};
use super::state::{Holder, Ispc, State};
use pageferry_abi::{Errno, Pid};
use pageferry_core::counter::KernelCounter;
use pageferry_core::proc::Syscall;
use pageferry_hal::{Cause, Machine, PAGE_SIZE, SpinLock, Threads, Va};

/// Whether a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For what it asks for, and for reserved entries to attach it.
    Yes,
    /// For neither: [`Errno::WouldBlock`] instead.
    No,
}

/// A request that is done, as its maker gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its number.
    pub id: RequestId,
    /// [`Errno::ConnectionReset`] when its server has died.
    pub outcome: Result<(), Errno>,
}

impl<M: Machine> Ispc<M> {
    /// The caller's port, made if it has none.
    pub(super) fn port<'a>(
        &self,
        call: &Syscall<'_, M>,
        state: &'a mut State,
    ) -> Result<&'a mut Port, Errno> {
        if !state.ports.contains_key(&call.pid) {
            let at = state.structures.alloc().ok_or(Errno::NoMemory)?;
            state.ports.insert(call.pid, Port::new(at));
        }
        let port = state.ports.get_mut(&call.pid).expect("there, or just made");
        self.touch(call.machine(), port.at);
        Ok(port)
    }

    /// A piece of the area for the caller.
    pub fn call_alloc(&self, call: &Syscall<'_, M>, pages: usize, wait: Wait) -> Result<Va, Errno> {
        if pages == 0 {
            return Err(Errno::Invalid);
        }
        let _c = call.machine().scope(Cause::Protocol);
        call.machine().execute(self.config.paths.call);
        loop {
            let mut state = self.state.lock();
            self.port(call, &mut state)?;
            match self.alloc(call, &mut state, pages) {
                Err(Errno::WouldBlock) if wait == Wait::Yes => {
                    self.wait_for_entries(call, state, self.entries_of(pages))?;
                }
                done => return done,
            }
        }
    }

    /// Gives a piece of the caller's back.
    pub fn call_free(&self, call: &Syscall<'_, M>, va: Va) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(self.config.paths.call);
        let mut state = self.state.lock();
        let page = self.held_by(call, &state, va)?;
        let asked = |r: &Request| matches!(r.stage, Stage::Served | Stage::Crossed);
        if state.requests.values().any(|r| asked(r) && r.pieces().any(|own| own == page)) {
            // Its maker gets it back.
            return Err(Errno::Busy);
        }
        let holder = Holder::Process(call.pid);
        self.detach(call, &mut state, page, holder);
        self.free(m, &mut state, page);
        Ok(())
    }

    /// Makes the caller the server of `service`, whose requests are queued.
    pub fn call_serve(&self, call: &Syscall<'_, M>, service: u32) -> Result<(), Errno> {
        match self.config.method.crosses() {
            true => Err(Errno::NotSupported),
            false => self.become_server(call, service),
        }
    }

    /// Makes the caller the server of `service`.
    pub(super) fn become_server(&self, call: &Syscall<'_, M>, service: u32) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(self.config.paths.call);
        let mut state = self.state.lock();
        if state.servers.contains_key(&service) {
            return Err(Errno::AddressInUse);
        }
        if self.port(call, &mut state)?.service.is_some() {
            return Err(Errno::Invalid);
        }
        // What it has already is seen from now on by what shows all.
        let own: alloc::vec::Vec<usize> = (state.icas.iter())
            .filter(|(_, ica)| ica.holder == Holder::Process(call.pid))
            .map(|(&page, _)| page)
            .collect();
        if self.attaching.servers_see_all {
            if state.free_server.len() < self.config.entries_of_a_server() {
                return Err(Errno::WouldBlock);
            }
            own.iter().for_each(|&page| self.detach(call, &mut state, page, Holder::Process(call.pid)));
            let entries = self.show_all(call, &mut state)?;
            state.ports.get_mut(&call.pid).expect("made above").entries = entries;
        }
        state.ports.get_mut(&call.pid).expect("made above").service = Some(service);
        state.servers.insert(service, call.pid);
        Ok(())
    }

    /// Makes a request of a server: the caller's pieces go there, and come back with the answer. A synchronous one
    /// waits for that.
    pub fn call_request(
        &self,
        call: &Syscall<'_, M>,
        service: u32,
        pieces: (Va, Option<Va>),
        synchronous: bool,
        wait: Wait,
    ) -> Result<RequestId, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        if self.config.method.crosses() {
            // A thread is in one place.
            return Err(Errno::NotSupported);
        }
        let to = self.server_of(call, service)?;
        let id = self.enqueue(call, to, pieces, synchronous)?;
        if !synchronous {
            return Ok(id);
        }
        self.wait_for_answer(call, id, true);
        let done = self.finish(call, id, wait)?;
        done.outcome.map(|()| id)
    }

    /// A request begins: which process serves this.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`]: none.
    pub(super) fn server_of(&self, call: &Syscall<'_, M>, service: u32) -> Result<Pid, Errno> {
        let m = call.machine();
        m.execute(self.config.paths.call);
        m.count(KernelCounter::IspcRequests, 1);
        self.state.lock().servers.get(&service).copied().ok_or(Errno::ConnectionRefused)
    }

    /// Puts a request into its server's queue.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`]: that has ended. As of [`Ispc::make_request`].
    pub(super) fn enqueue(
        &self,
        call: &Syscall<'_, M>,
        to: Pid,
        pieces: (Va, Option<Va>),
        synchronous: bool,
    ) -> Result<RequestId, Errno> {
        let m = call.machine();
        let mut state = self.state.lock();
        if state.ports.get(&to).is_none_or(|port| port.service.is_none()) {
            return Err(Errno::ConnectionRefused);
        }
        let id = self.make_request(call, &mut state, to, pieces, synchronous)?;
        m.execute(self.config.paths.queue);
        let request = &state.requests[&id];
        self.touch(m, request.at);
        let port = state.ports.get_mut(&to).expect("seen above");
        self.touch(m, port.at);
        port.requests.push_back(id);
        let server = port.channel();
        // Still locked: the server comes to the queue only when this thread is ready to be woken, or on its way.
        call.thread.wakeup(server);
        Ok(id)
    }

    /// Waits until a request in a queue is done. If `interruptible`, a signal calls it back, which ends it; but not
    /// what its server has taken already.
    pub(super) fn wait_for_answer(&self, call: &Syscall<'_, M>, id: RequestId, interruptible: bool) {
        let mut interruptible = interruptible;
        let mut state = self.state.lock();
        loop {
            let request = state.requests.get(&id).expect("its maker takes it out");
            if let Stage::Done(_) = request.stage {
                return;
            }
            let channel = request.channel();
            let mut held = Some(state);
            let slept = call.thread.sleep(channel, "reply", interruptible, &mut || drop(held.take()));
            state = self.state.lock();
            if slept.is_err() {
                interruptible = false;
                self.call_back(&mut state, id);
            }
        }
    }

    /// A request of the caller's of `to`; its pieces are attached nowhere.
    pub(super) fn make_request(
        &self,
        call: &Syscall<'_, M>,
        state: &mut State,
        to: Pid,
        (control, data): (Va, Option<Va>),
        synchronous: bool,
    ) -> Result<RequestId, Errno> {
        if to == call.pid {
            return Err(Errno::Invalid);
        }
        let control = self.held_by(call, state, control)?;
        let data = data.map(|va| self.held_by(call, state, va)).transpose()?;
        if data == Some(control) {
            return Err(Errno::Invalid);
        }
        self.port(call, state)?;
        let at = state.structures.alloc().ok_or(Errno::NoMemory)?;
        let id = RequestId(state.next);
        state.next += 1;
        let (from, control) = (Some(call.pid), Some(control));
        let request = Request { at, from, to, control, data, synchronous, stage: Stage::Queued };
        for page in request.pieces() {
            self.detach(call, state, page, Holder::Request(id));
        }
        state.requests.insert(id, request);
        Ok(id)
    }

    /// Takes a request out of its server's queue, if it is still there.
    fn call_back(&self, state: &mut State, id: RequestId) {
        let State { requests, ports, .. } = state;
        let request = requests.get_mut(&id).expect("its maker takes it out");
        if request.stage == Stage::Queued {
            let port = ports.get_mut(&request.to).expect("a server with a queue has a port");
            port.requests.retain(|other| *other != id);
            request.stage = Stage::Done(Err(Errno::Interrupted));
        }
    }

    /// Attaches the pieces of a request that is done to its maker, the caller, and ends the request. If it must not
    /// wait for entries and there are none, the request goes to the results.
    pub(super) fn finish(
        &self,
        call: &Syscall<'_, M>,
        id: RequestId,
        wait: Wait,
    ) -> Result<Completed, Errno> {
        loop {
            let mut state = self.state.lock();
            match self.attach_all(call, &mut state, id) {
                Ok(()) => {
                    let request = state.requests.remove(&id).expect("its maker takes it out");
                    state.structures.free(request.at);
                    let Stage::Done(outcome) = request.stage else {
                        unreachable!("only what is done is finished")
                    };
                    return Ok(Completed { id, outcome });
                }
                Err(Errno::WouldBlock) if wait == Wait::Yes => {
                    let entries = self.entries_of_request(&state, id);
                    if let Err(error) = self.wait_for_entries(call, state, entries) {
                        self.keep_result(call, id);
                        return Err(error);
                    }
                }
                Err(error) => {
                    drop(state);
                    self.keep_result(call, id);
                    return Err(error);
                }
            }
        }
    }

    fn keep_result(&self, call: &Syscall<'_, M>, id: RequestId) {
        let mut state = self.state.lock();
        state.ports.get_mut(&call.pid).expect("who makes requests has a port").results.push_front(id);
    }

    /// Attaches the pieces that go with a request to the caller: all, or none.
    pub(super) fn attach_all(
        &self,
        call: &Syscall<'_, M>,
        state: &mut State,
        id: RequestId,
    ) -> Result<(), Errno> {
        let pieces: alloc::vec::Vec<usize> = state.requests.get(&id).expect("it is there").pieces().collect();
        if self.lacks_entries(call, state, self.entries_of_request(state, id)) {
            return Err(Errno::WouldBlock);
        }
        for (done, &page) in pieces.iter().enumerate() {
            if let Err(error) = self.attach(call, state, page) {
                for &back in &pieces[..done] {
                    self.detach(call, state, back, Holder::Request(id));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The next request made of the caller.
    pub fn call_receive(&self, call: &Syscall<'_, M>, wait: Wait) -> Result<Inquiry, Errno> {
        self.receive(call, wait, "request", |_| None, |inquiry| inquiry)
    }

    /// What `first` finds for the caller; if that is nothing, the next request made of it, as `asked` puts it. It waits
    /// for either, for `what`.
    pub(super) fn receive<T>(
        &self,
        call: &Syscall<'_, M>,
        wait: Wait,
        what: &'static str,
        first: impl Fn(&mut State) -> Option<T>,
        asked: impl FnOnce(Inquiry) -> T,
    ) -> Result<T, Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(self.config.paths.call);
        loop {
            let mut state = self.state.lock();
            let port = state.ports.get_mut(&call.pid).filter(|port| port.service.is_some());
            let port = port.ok_or(Errno::NotSupported)?;
            self.touch(m, port.at);
            let (channel, next) = (port.channel(), port.requests.front().copied());
            if let Some(found) = first(&mut state) {
                return Ok(found);
            }
            let Some(id) = next else {
                if wait == Wait::No {
                    return Err(Errno::WouldBlock);
                }
                let mut held = Some(state);
                call.thread.sleep(channel, what, true, &mut || drop(held.take()))?;
                continue;
            };
            match self.attach_all(call, &mut state, id) {
                Ok(()) => {}
                Err(Errno::WouldBlock) if wait == Wait::Yes => {
                    let entries = self.entries_of_request(&state, id);
                    self.wait_for_entries(call, state, entries)?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            m.execute(self.config.paths.queue);
            let taken = state.ports.get_mut(&call.pid).expect("seen above").requests.pop_front();
            assert_eq!(taken, Some(id), "a queue of requests is its server's alone");
            return Ok(asked(self.served(call, &mut state, id, Stage::Served)));
        }
    }

    /// A server has a request: what it is told.
    pub(super) fn served(
        &self,
        call: &Syscall<'_, M>,
        state: &mut State,
        id: RequestId,
        stage: Stage,
    ) -> Inquiry {
        let State { requests, icas, .. } = state;
        let request = requests.get_mut(&id).expect("it is there");
        self.touch(call.machine(), request.at);
        request.stage = stage;
        let from = request.from.expect("a request goes with its maker, until it is served");
        let control = request.control.expect("a request has its pieces, until it is served");
        let data = request.data.map(|page| (self.va(page), icas[&page].pages * PAGE_SIZE));
        Inquiry { id, from, control: self.va(control), data }
    }

    /// Answers a request: its pieces go back to its maker.
    pub fn call_return(&self, call: &Syscall<'_, M>, id: RequestId) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(self.config.paths.call);
        let mut state = self.state.lock();
        let request = state.requests.get(&id).ok_or(Errno::Invalid)?;
        let others = request.to != call.pid && !self.has(IspcDefect::AnswerUnasked);
        if others || request.stage != Stage::Served {
            return Err(Errno::Access);
        }
        let mut pieces: alloc::vec::Vec<usize> = request.pieces().collect();
        let holder = Holder::Process(call.pid);
        if !self.has(IspcDefect::AnswerUnasked)
            && pieces.iter().any(|page| state.icas.get(page).is_none_or(|ica| ica.holder != holder))
        {
            // It has made a request of its own of them.
            return Err(Errno::Busy);
        }
        if self.has(IspcDefect::DataKept) {
            pieces.truncate(1);
        }
        pieces.into_iter().for_each(|page| self.detach(call, &mut state, page, Holder::Request(id)));
        self.complete(call, &mut state, id, Ok(()));
        Ok(())
    }

    /// A request is done, and its pieces are attached nowhere: tells its maker, if that is still there.
    pub fn complete(
        &self,
        call: &Syscall<'_, M>,
        state: &mut State,
        id: RequestId,
        outcome: Result<(), Errno>,
    ) {
        let m = call.machine();
        let request = state.requests.get_mut(&id).expect("it is there");
        self.touch(m, request.at);
        request.stage = Stage::Done(outcome);
        let (from, synchronous, channel) = (request.from, request.synchronous, request.channel());
        let Some(from) = from else {
            let request = state.requests.remove(&id).expect("it is there");
            state.structures.free(request.at);
            request.pieces().for_each(|page| self.free(m, state, page));
            return;
        };
        let port = state.ports.get_mut(&from).expect("who makes requests has a port");
        if synchronous {
            call.thread.wakeup(channel);
        } else {
            m.execute(self.config.paths.queue);
            self.touch(m, port.at);
            port.results.push_back(id);
            call.thread.wakeup(port.channel());
        }
    }

    /// The next of the caller's requests that is done.
    pub fn call_result(&self, call: &Syscall<'_, M>, wait: Wait) -> Result<Completed, Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(self.config.paths.call);
        loop {
            let mut state = self.state.lock();
            let outstanding = state.requests.values().any(|r| r.from == Some(call.pid));
            let port = self.port(call, &mut state)?;
            let channel = port.channel();
            if let Some(id) = port.results.pop_front() {
                m.execute(self.config.paths.queue);
                drop(state);
                return self.finish(call, id, wait);
            }
            if !outstanding {
                return Err(Errno::NoChild);
            }
            if wait == Wait::No {
                return Err(Errno::WouldBlock);
            }
            let mut held = Some(state);
            call.thread.sleep(channel, "result", true, &mut || drop(held.take()))?;
        }
    }
}
