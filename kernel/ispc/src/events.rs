//! What a server of the kernel's waits for: requests, ends of its own, and notices, whichever comes first.
//!
//! Such a server makes requests without waiting for their answers, and works on what no request asks for: the time, an
//! interrupt. A *notice* says that there is such work; several are one. The pieces of the server's own requests are
//! kept by it between two uses, attached to nobody, so a server that has many takes no reserved entry for them; they
//! are given back when it ends, and make way for nobody before.
//!
//! # Locks
//! That of [`super::state::State`]. A notice may be given with any lock held that comes before it.
//!
//! # What can fail
//! Attaching, for want of reserved entries: nothing is attached then. The server of a request, by its end.

use super::call::Wait;
use super::gate::Inquiry;
use super::port::{RequestId, Stage};
use super::state::{Holder, Ispc, State};
use pageferry_abi::Errno;
use pageferry_core::proc::Syscall;
use pageferry_hal::{Cause, Machine, SpinLock, Threads, Va};

/// What has come.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A request made of the caller.
    Request(Inquiry),
    /// A request that the caller has made is done. Its pieces are kept; one is missing if a server that died had handed
    /// it on.
    Done(Finished),
    /// There is work that nobody asks for.
    Notice,
}

/// A request that is done.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// Its number.
    pub id: RequestId,
    /// What it has come to.
    pub outcome: Result<(), Errno>,
}

impl<M: Machine> Ispc<M> {
    /// Tells the server of `service` that there is work; false when nobody serves that.
    pub fn notify(&self, threads: &dyn Threads, m: &M, service: u32) -> bool {
        let mut state = self.state.lock();
        let Some(&server) = state.servers.get(&service) else { return false };
        let Some(port) = state.ports.get_mut(&server) else { return false };
        m.execute(self.config.paths.queue);
        self.touch(m, port.at);
        port.notice = true;
        threads.wakeup(port.channel());
        if port.wants_entry {
            threads.wakeup(self.entries());
        }
        true
    }

    /// The next that comes for the caller.
    ///
    /// # Errors
    /// [`Errno::NotSupported`]: it is no server. [`Errno::WouldBlock`], if it does not wait; [`Errno::Interrupted`].
    /// [`Errno::NoMemory`]: a request is there, and no reserved entries will be as long as the caller waits.
    pub fn next_event(&self, call: &Syscall<'_, M>, wait: Wait) -> Result<Event, Errno> {
        self.receive(call, wait, "work", |state| self.own_event(call, state), Event::Request)
    }

    /// A notice, or an end of the caller's own requests.
    fn own_event(&self, call: &Syscall<'_, M>, state: &mut State) -> Option<Event> {
        let port = state.ports.get_mut(&call.pid).expect("the caller serves");
        if core::mem::take(&mut port.notice) {
            return Some(Event::Notice);
        }
        let id = port.results.pop_front()?;
        call.machine().execute(self.config.paths.queue);
        let request = state.requests.remove(&id).expect("its maker takes it out");
        state.structures.free(request.at);
        for page in request.pieces() {
            state.icas.get_mut(&page).expect("it came back").holder = Holder::Kept(call.pid);
        }
        let Stage::Done(outcome) = request.stage else { unreachable!("only what is done is told") };
        Some(Event::Done(Finished { id, outcome }))
    }

    /// A piece of so many pages, clear, which the caller keeps.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: the area is full.
    pub fn alloc_kept(&self, call: &Syscall<'_, M>, pages: usize) -> Result<Va, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        let mut state = self.state.lock();
        self.port(call, &mut state)?;
        let page = self.place(call, &mut state, pages, Holder::Kept(call.pid))?;
        state.icas.get_mut(&page).expect("just made").servers_own = true;
        Ok(self.va(page))
    }

    /// Frees a piece that the caller keeps.
    pub fn drop_piece(&self, call: &Syscall<'_, M>, at: Va) {
        let mut state = self.state.lock();
        let Ok(page) = self.page(at) else { return };
        if state.icas.get(&page).is_some_and(|ica| ica.holder == Holder::Kept(call.pid)) {
            self.free(call.machine(), &mut state, page);
        }
    }

    /// Attaches pieces that the caller keeps: all, or none.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`]: too few reserved entries are free, and it does not wait. [`Errno::NoMemory`]: no frame
    /// for a page table, or there will not be so many entries as long as the caller waits. [`Errno::Access`]: one of
    /// them is not the caller's to attach. [`Errno::Interrupted`].
    pub fn attach_kept(&self, call: &Syscall<'_, M>, pieces: &[Va], wait: Wait) -> Result<(), Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        let mut state = loop {
            let state = self.state.lock();
            let mut entries = 0;
            for va in pieces {
                let ica = state.icas.get(&self.page(*va)?).ok_or(Errno::Access)?;
                if ica.holder != Holder::Kept(call.pid) {
                    return Err(Errno::Access);
                }
                entries += self.entries_of(ica.pages);
            }
            if !self.lacks_entries(call, &state, entries) {
                break state;
            }
            if wait == Wait::No {
                return Err(Errno::WouldBlock);
            }
            self.wait_for_entries(call, state, entries)?;
        };
        for (done, va) in pieces.iter().enumerate() {
            let page = self.page(*va)?;
            if let Err(error) = self.attach(call, &mut state, page) {
                for back in &pieces[..done] {
                    let page = self.page(*back)?;
                    self.detach(call, &mut state, page, Holder::Kept(call.pid));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Detaches pieces of the caller's, which it keeps.
    pub fn keep(&self, call: &Syscall<'_, M>, pieces: &[Va]) {
        let _c = call.machine().scope(Cause::Protocol);
        let mut state = self.state.lock();
        for page in pieces.iter().filter_map(|va| self.page(*va).ok()) {
            if state.icas.get(&page).is_some_and(|ica| ica.holder == Holder::Process(call.pid)) {
                self.detach(call, &mut state, page, Holder::Kept(call.pid));
            }
        }
    }

    /// Makes a request of a server without waiting for its answer, which comes as [`Event::Done`]. The pieces are the
    /// caller's, attached to it; where this fails they still are.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`]: nobody serves that, or no more. [`Errno::NoMemory`].
    pub fn post(
        &self,
        call: &Syscall<'_, M>,
        service: u32,
        pieces: (Va, Option<Va>),
    ) -> Result<RequestId, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        let to = self.server_of(call, service)?;
        self.enqueue(call, to, pieces, false)
    }

    /// Makes a request of a server by going there, with pieces that are the caller's, attached to it; and keeps them
    /// then, whatever comes of it.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`], [`Errno::ConnectionReset`]: nobody serves that, or it died. [`Errno::NoMemory`].
    pub fn visit(
        &self,
        call: &Syscall<'_, M>,
        service: u32,
        (control, data): (Va, Option<Va>),
    ) -> Result<(), Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        let gone = self.server_of(call, service).and_then(|to| self.go(call, to, (control, data)));
        let outcome = gone.and_then(|id| {
            let mut state = self.state.lock();
            let request = state.requests.remove(&id).expect("its maker takes it out");
            state.structures.free(request.at);
            for page in request.pieces() {
                state.icas.get_mut(&page).expect("it came back").holder = Holder::Kept(call.pid);
            }
            let Stage::Done(outcome) = request.stage else { unreachable!("who went there is back") };
            outcome
        });
        self.keep(call, &[control]);
        data.into_iter().for_each(|data| self.keep(call, &[data]));
        outcome
    }
}
