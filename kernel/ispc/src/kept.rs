//! Requests that the kernel makes for a process, in a system call of its, and the pieces of the area that it keeps for
//! them.
//!
//! # What it holds
//! A process that makes such calls keeps a control piece and data pieces of several lengths between them. They are
//! attached to it only for the time of a call, so a process that does something else has no reserved entry; and they
//! are clear only when they are new, because what is in them is the process's own and its servers'. Where the area is
//! full, kept pieces make way.
//!
//! # Locks
//! That of [`super::state::State`], not while a request is made.
//!
//! # What can fail
//! Attaching both, for want of reserved entries: the caller has none of them while it waits for as many as it needs.
//! The server, by its end.

use super::port::{RequestId, Stage};
use super::state::{Holder, Ispc, State};
use alloc::vec::Vec;
use pageferry_abi::{Errno, Pid};
use pageferry_core::proc::Syscall;
use pageferry_hal::{Cause, Machine, SpinLock, Va};

/// Pieces in use.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    /// For what is to be done.
    pub control: Va,
    /// For bytes.
    pub data: Option<Va>,
}

impl<M: Machine> Ispc<M> {
    /// Attaches the caller's kept pieces to it: a control piece, and, if it is of any pages, a data piece.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: the area is full, or the caller itself has the reserved entries that it would wait for.
    /// [`Errno::Interrupted`], only if `interruptible`.
    pub fn take_kept(
        &self,
        call: &Syscall<'_, M>,
        data_pages: usize,
        interruptible: bool,
    ) -> Result<Pieces, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        loop {
            let mut state = self.state.lock();
            self.port(call, &mut state)?;
            let control = self.kept_piece(call, &mut state, None)?;
            let wanted = Some(data_pages).filter(|pages| *pages > 0);
            let data = match wanted {
                None => None,
                wanted => Some(self.kept_piece(call, &mut state, wanted)?),
            };
            let needed = self.entries_of(1) + self.entries_of(data_pages);
            let mut attached = match self.lacks_entries(call, &state, needed) {
                true => Err(Errno::WouldBlock),
                false => self.attach(call, &mut state, control),
            };
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
                    kept.take(None);
                    wanted.iter().for_each(|_| kept.take(wanted));
                    return Ok(Pieces { control: self.va(control), data: data.map(|page| self.va(page)) });
                }
                Err(Errno::WouldBlock) => {
                    if self.never_free(call, &state, needed) {
                        return Err(Errno::NoMemory);
                    }
                    self.wait_for_entry(call, state, interruptible)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The caller's own piece of a kind, which it keeps, or a new one: of so many pages of data, or for control.
    fn kept_piece(
        &self,
        call: &Syscall<'_, M>,
        state: &mut State,
        data_pages: Option<usize>,
    ) -> Result<usize, Errno> {
        if let Some(page) = state.kept.entry(call.pid).or_default().of(data_pages) {
            return Ok(page);
        }
        let page = self.place(call, state, data_pages.unwrap_or(1), Holder::Kept(call.pid))?;
        state.kept.entry(call.pid).or_default().put(data_pages, page);
        Ok(page)
    }

    /// Entries that there are for pieces of programs.
    fn entries_of_programs(&self) -> usize {
        let servers = if self.attaching.servers_see_all { self.config.server_entries } else { 0 };
        self.config.reserved.saturating_sub(servers)
    }

    /// The most pages of a data piece that can be attached beside a control piece.
    pub fn max_data_pages(&self) -> usize {
        let all = self.range.len_pages().saturating_sub(1);
        let entries = self.entries_of_programs().saturating_sub(self.entries_of(1));
        match (self.attaching.by_entries, self.attaching.large) {
            (false, _) => all,
            (true, []) => entries / self.entries_of(1),
            (true, _) => (0..=all).rev().find(|pages| self.entries_of(*pages) <= entries).unwrap_or(0),
        }
    }

    /// Sleeps until an entry may be free, of so many in all; the lock is let go meanwhile.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: there will not be so many as long as the caller waits. [`Errno::Interrupted`].
    pub(super) fn wait_for_entries(
        &self,
        call: &Syscall<'_, M>,
        state: <M::Lock<State> as SpinLock<State>>::Guard<'_>,
        needed: usize,
    ) -> Result<(), Errno> {
        if self.never_free(call, &state, needed) {
            return Err(Errno::NoMemory);
        }
        self.wait_for_entry(call, state, true)
    }

    /// True when so many entries will not be free as long as the caller waits: it has them, or there are fewer.
    fn never_free(&self, call: &Syscall<'_, M>, state: &State, needed: usize) -> bool {
        let own = (state.icas.values()).filter(|ica| ica.holder == Holder::Process(call.pid));
        needed + own.map(|ica| ica.entries.len()).sum::<usize>() > self.entries_of_programs()
    }

    /// The call is over: its pieces are kept for the next, or given back, when another thread inside the process has
    /// left some meanwhile.
    pub fn put_kept(&self, call: &Syscall<'_, M>, pieces: Pieces) {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        let mut state = self.state.lock();
        for (va, is_data) in [(Some(pieces.control), false), (pieces.data, true)] {
            // A program that gives pieces back that it never asked for has given this back.
            let Some(page) = va.and_then(|va| self.own(call, &state, va)) else { continue };
            if state.icas[&page].holder == Holder::Process(call.pid) {
                self.detach(call, &mut state, page, Holder::Kept(call.pid));
            }
            let kind = is_data.then(|| state.icas[&page].pages);
            let kept = state.kept.entry(call.pid).or_default();
            if kept.of(kind).is_none() {
                kept.put(kind, page);
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
        for (_, kept) in core::mem::take(&mut state.kept) {
            let pages = kept.control.into_iter().chain(kept.data.into_iter().map(|(_, page)| page));
            pages.for_each(|page| self.free(call.machine(), state, page));
        }
        state.kept.extend(own.map(|own| (call.pid, own)));
    }

    /// Makes a request of the server of `service`, which must be `expected` if that is said, and waits for its end. The
    /// pieces are the caller's again then, whatever comes of it. Answers which server it was.
    ///
    /// # Errors
    /// [`Errno::ConnectionRefused`]: nobody serves that. [`Errno::ConnectionReset`]: the server has died, or is not the
    /// one that was expected. [`Errno::Interrupted`], only if `interruptible`: the server has not seen the request.
    /// [`Errno::NoMemory`].
    pub fn request_for(
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
