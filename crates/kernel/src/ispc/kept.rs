//! Requests that the kernel makes for a process, in a system call of its, and the pieces of the area that it keeps for them.
//!
//! # What it holds
//! A process that makes such calls keeps a control piece and a data piece between them. They are attached to it only for the time
//! of a call, so a process that does something else has no reserved entry; and they are clear only when they are new, because what is
//! in them is the process's own and its servers'. Where the area is full, kept pieces make way.
//!
//! # Locks
//! That of [`super::ica::State`], not while a request is made.
//!
//! # What can fail
//! Attaching both, for want of reserved entries: the caller has none of them while it waits for as many as it needs. The server, by its
//! end.

use super::ica::{Holder, Ispc, State};
use super::port::{RequestId, Stage};
use crate::error::Errno;
use crate::proc::{Pid, Syscall};
use alloc::vec::Vec;
use pageferry_hal::{Cause, Machine, SpinLock, Va};

/// The pieces of a process, by first page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    control: Option<usize>,
    data: Option<usize>,
}

/// Pieces in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub(crate) control: Va,
    pub(crate) data: Option<Va>,
}

impl<M: Machine> Ispc<M> {
    /// Attaches the caller's kept pieces to it: a control piece, and, if it is of any pages, a data piece.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: the area is full, or the caller itself has the reserved entries that it would wait for.
    /// [`Errno::Interrupted`], only if `interruptible`.
    pub(crate) fn take_kept(
        &self,
        call: &Syscall<'_, M>,
        data_pages: usize,
        interruptible: bool,
    ) -> Result<Pieces, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        loop {
            let mut state = self.state.lock();
            self.port(call, &mut state)?;
            let control = self.kept_piece(call, &mut state, 1, |kept| &mut kept.control)?;
            let data = match data_pages {
                0 => None,
                pages => Some(self.kept_piece(call, &mut state, pages, |kept| &mut kept.data)?),
            };
            let mut attached = self.attach(call, &mut state, control);
            if attached.is_ok()
                && let Some(data) = data
            {
                attached = self.attach(call, &mut state, data);
                if attached.is_err() {
                    self.detach(call, &mut state, control, Holder::Kept(call.pid));
                }
            }
            match attached {
                Ok(()) => {
                    let kept = state.kept.get_mut(&call.pid).expect("just made");
                    kept.control = None;
                    kept.data = kept.data.filter(|_| data.is_none());
                    return Ok(Pieces { control: self.va(control), data: data.map(|page| self.va(page)) });
                }
                Err(Errno::WouldBlock) => {
                    if self.never_free(call, &state, 1 + data_pages) {
                        return Err(Errno::NoMemory);
                    }
                    self.wait_for_entry(call, state, interruptible)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The caller's own piece of a kind, which it keeps, or a new one.
    fn kept_piece(
        &self,
        call: &Syscall<'_, M>,
        state: &mut State,
        pages: usize,
        which: fn(&mut Kept) -> &mut Option<usize>,
    ) -> Result<usize, Errno> {
        if let Some(page) = *which(state.kept.entry(call.pid).or_default()) {
            return Ok(page);
        }
        let page = self.place(call, state, pages, Holder::Kept(call.pid))?;
        *which(state.kept.entry(call.pid).or_default()) = Some(page);
        Ok(page)
    }

    /// True when so many entries will not be free as long as the caller waits: it has them.
    fn never_free(&self, call: &Syscall<'_, M>, state: &State, needed: usize) -> bool {
        let servers = if self.attaching.servers_see_all { self.config.server_entries } else { 0 };
        let own = (state.icas.values()).filter(|ica| ica.holder == Holder::Process(call.pid));
        needed + own.map(|ica| ica.entries.len()).sum::<usize>() > self.config.reserved - servers
    }

    /// The call is over: its pieces are kept for the next, or given back, when another thread inside the process has left some meanwhile.
    pub(crate) fn put_kept(&self, call: &Syscall<'_, M>, pieces: Pieces) {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        let mut state = self.state.lock();
        for (va, is_control) in [(Some(pieces.control), true), (pieces.data, false)] {
            // A program that gives pieces back that it never asked for has given this back.
            let Some(page) = va.and_then(|va| self.own(call, &state, va)) else { continue };
            if state.icas[&page].holder == Holder::Process(call.pid) {
                self.detach(call, &mut state, page, Holder::Kept(call.pid));
            }
            let kept = state.kept.entry(call.pid).or_default();
            let slot = if is_control { &mut kept.control } else { &mut kept.data };
            if slot.is_none() {
                *slot = Some(page);
            } else {
                self.free(m, &mut state, page);
            }
        }
    }

    /// The first page of a piece at `va` that is the caller's, attached or kept.
    fn own(&self, call: &Syscall<'_, M>, state: &State, va: Va) -> Option<usize> {
        let page = self.page(va).ok()?;
        let holder = state.icas.get(&page)?.holder;
        [Holder::Process(call.pid), Holder::Kept(call.pid)].contains(&holder).then_some(page)
    }

    /// Gives back all that others than the caller only keep.
    pub(super) fn drop_kept(&self, call: &Syscall<'_, M>, state: &mut State) {
        let own = state.kept.remove(&call.pid);
        for kept in core::mem::take(&mut state.kept).into_values() {
            let pages = kept.control.into_iter().chain(kept.data);
            pages.for_each(|page| self.free(call.machine(), state, page));
        }
        state.kept.extend(own.map(|own| (call.pid, own)));
    }

    /// Makes a request of the server of `service`, which must be `expected` if that is said, and waits for its end. The pieces are the
    /// caller's again then, whatever comes of it. Answers which server it was.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`]: nobody serves that. [`Errno::ConnectionReset`]: the server has died, or is not the one that was
    /// expected. [`Errno::Interrupted`], only if `interruptible`: the server has not seen the request. [`Errno::NoMemory`].
    pub(crate) fn request_for(
        &self,
        call: &Syscall<'_, M>,
        (service, expected): (u32, Option<Pid>),
        pieces: Pieces,
        interruptible: bool,
    ) -> Result<Pid, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        let to = match self.server_of(call, service) {
            Err(Errno::ConnectionRefused) if expected.is_some() => return Err(Errno::ConnectionReset),
            to => to?,
        };
        if expected.is_some_and(|expected| expected != to) {
            return Err(Errno::ConnectionReset);
        }
        let places = (pieces.control, pieces.data);
        let id = if self.config.method.crosses() {
            self.go(call, to, places)?
        } else {
            let id = self.enqueue(call, to, places, true)?;
            self.wait_for_answer(call, id, interruptible);
            id
        };
        self.take_answer(call, id).map(|()| to)
    }

    /// Attaches the pieces of a request that is done to the caller, and ends it. What cannot be attached is kept.
    fn take_answer(&self, call: &Syscall<'_, M>, id: RequestId) -> Result<(), Errno> {
        loop {
            let mut state = self.state.lock();
            let attached = self.attach_all(call, &mut state, id);
            if attached == Err(Errno::WouldBlock) {
                self.wait_for_entry(call, state, false)?;
                continue;
            }
            let request = state.requests.remove(&id).expect("its maker takes it out");
            state.structures.free(request.at);
            if let Err(error) = attached {
                let pieces: Vec<usize> = request.pieces().collect();
                for page in pieces {
                    state.icas.get_mut(&page).expect("it came back").holder = Holder::Kept(call.pid);
                }
                return Err(error);
            }
            let Stage::Done(outcome) = request.stage else { unreachable!("only what is done is taken") };
            return outcome;
        }
    }
}
