//! The end of a process that communicates, and the laws that hold between its calls.
//!
//! A process ends in its own space, which still runs: what is attached to it is detached as in any call. Requests that
//! it has taken and not answered are done, with an error, and their pieces go back to those who made them. Requests
//! that it has made go with it: those in a queue at once, those that a server has when that answers. A process that
//! threads cross into waits first until all have left it. A piece that it got with a request and handed on with one of
//! its own is freed when that is answered.

use super::config::IspcDefect;
use super::driver_card::Sending;
use super::port::{RequestId, Stage};
use super::state::{Holder, Ispc, State};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_core::base::Core;
use pageferry_core::proc::Syscall;
use pageferry_hal::{Cause, Machine, SpinLock, Threads, Va};

impl<M: Machine> Ispc<M> {
    /// The calling process ends.
    pub fn end(&self, call: &Syscall<'_, M>) {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        self.wait_sent(call);
        let mut state = self.state.lock();
        let Some(port) = state.ports.get(&call.pid) else { return };
        let (at, service) = (port.at, port.service);
        if let Some(service) = service {
            state.servers.remove(&service);
            self.give_requests_back(call, &mut state);
        }
        self.withdraw_own(call, &mut state);
        state.kept.remove(&call.pid);
        state.sent.retain(|(pid, _)| *pid != call.pid);
        let own: Vec<usize> = (state.icas.iter())
            .filter(|(_, ica)| [Holder::Process(call.pid), Holder::Kept(call.pid)].contains(&ica.holder))
            .map(|(&page, _)| page)
            .collect();
        for page in own {
            let holder = Holder::Process(call.pid);
            self.detach(call, &mut state, page, holder);
            self.free(m, &mut state, page);
        }
        let port = state.ports.remove(&call.pid).expect("seen above");
        if !port.entries.is_empty() {
            m.trace_detached(call.pid.0, self.range.start());
        }
        for entry in port.entries {
            call.core.vm.pmaps().unwire(entry);
            if !self.has(IspcDefect::EntriesLost) {
                state.free_server.push(entry);
            }
        }
        state.structures.free(at);
        call.thread.wakeup(self.entries());
    }

    /// Requests made of the calling process are done: it ends.
    fn give_requests_back(&self, call: &Syscall<'_, M>, state: &mut State) {
        let of_it: Vec<RequestId> = (state.requests.iter())
            .filter(|(_, r)| r.to == call.pid && !matches!(r.stage, Stage::Done(_)))
            .map(|(&id, _)| id)
            .collect();
        for id in of_it {
            let request = &state.requests[&id];
            let served = request.stage == Stage::Served;
            if served && self.has(IspcDefect::RequestLost) {
                continue;
            }
            if served {
                self.take_back(call, state, id);
            }
            self.complete(call, state, id, Err(Errno::ConnectionReset));
        }
    }

    /// Detaches the pieces of a request from the server that has them, the calling process. What it has handed on goes
    /// with that request, and is no more this one's.
    pub(super) fn take_back(&self, call: &Syscall<'_, M>, state: &mut State, id: RequestId) {
        let pieces: Vec<usize> = state.requests.get(&id).expect("it is there").pieces().collect();
        for page in pieces {
            if state.icas.get(&page).is_some_and(|ica| ica.holder == Holder::Process(call.pid)) {
                self.detach(call, state, page, Holder::Request(id));
            } else {
                let request = state.requests.get_mut(&id).expect("it is there");
                request.control = request.control.filter(|own| *own != page);
                request.data = request.data.filter(|own| *own != page);
            }
        }
    }

    /// Requests that the calling process has made have no maker any more.
    fn withdraw_own(&self, call: &Syscall<'_, M>, state: &mut State) {
        let own: Vec<RequestId> =
            state.requests.iter().filter(|(_, r)| r.from == Some(call.pid)).map(|(&id, _)| id).collect();
        for id in own {
            let request = state.requests.get_mut(&id).expect("listed above");
            request.from = None;
            if request.stage == Stage::Served {
                continue;
            }
            let to = request.to;
            let request = state.requests.remove(&id).expect("listed above");
            if let Some(port) = state.ports.get_mut(&to) {
                port.requests.retain(|other| *other != id);
            }
            state.structures.free(request.at);
            request.pieces().for_each(|page| self.free(call.machine(), state, page));
        }
    }

    /// Tests the laws: the owner of a piece is there, what attaches it is what the TLB has reserved, no entry is two
    /// things, and every structure is something's.
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self, core: &Core<M>) -> Result<(), String> {
        let state = self.state.lock();
        let pmaps = core.vm.pmaps();
        let mut used = litemap::LiteMap::new_vec();
        for (page, ica) in &state.icas {
            let known = match ica.holder {
                Holder::Process(pid) | Holder::Kept(pid) => state.ports.contains_key(&pid),
                Holder::Request(id) => state.requests.contains_key(&id),
                Holder::Card => {
                    state.receiving.has(*page) || state.sending.values().any(|sending| sending.page == *page)
                }
            };
            if !known {
                return Err(format!("page {page} of the area is {:?}'s, which is not there", ica.holder));
            }
            if !matches!(ica.holder, Holder::Process(_)) && (!ica.entries.is_empty() || ica.tabled) {
                return Err(format!(
                    "page {page} of the area is {:?}'s and nobody's, and attached",
                    ica.holder
                ));
            }
            if ica.tabled && self.attaching.by_entries {
                return Err(format!("page {page} of the area is attached by a page table"));
            }
            for (entry, part) in ica.entries.iter().zip(self.pages_of_piece(*page, ica.pages)) {
                let wired = pmaps.wired(*entry);
                let is_there =
                    |va: Va, shift: u8| (va, shift) == (self.range.start() + part.offset_bytes, part.shift);
                if wired.is_none_or(|(_, va, tte)| !is_there(va, tte.shift)) {
                    return Err(format!(
                        "entry {entry} attaches {wired:?}, and not {part:?} of page {page} of the area"
                    ));
                }
                if used.insert(*entry, *page).is_some() {
                    return Err(format!("entry {entry} attaches two pieces"));
                }
            }
        }
        self.check_kept(&state)?;
        for Sending { pid, page, request } in state.sending.values() {
            let holder = state.icas.get(page).map(|ica| ica.holder);
            if request.is_some() && holder != Some(Holder::Process(*pid)) {
                return Err(format!(
                    "the card reads page {page} of the area for {pid:?}, which is {holder:?}'s"
                ));
            }
        }
        self.check_inside(core, &state)?;
        let (there, live) =
            (state.icas.len() + state.requests.len() + state.ports.len(), state.structures.live());
        if live != there {
            return Err(format!("{live} structures are allocated, for {there} pieces, requests and ports"));
        }
        let servers = state.ports.values().flat_map(|port| &port.entries);
        for entry in servers.chain(&state.free_server).chain(&state.free) {
            if let Some(page) = used.insert(*entry, usize::MAX) {
                return Err(format!("entry {entry} is a server's or free, and attaches page {page}"));
            }
        }
        let reserved = pmaps.reserved_entries();
        if used.len() != reserved {
            return Err(format!("{} reserved entries are known of {reserved}", used.len()));
        }
        for free in state.free_server.iter().chain(&state.free) {
            if let Some(wired) = pmaps.wired(*free) {
                return Err(format!("entry {free} is free, and attaches {wired:?}"));
            }
        }
        Ok(())
    }

    /// What is kept for a process's next call is that process's, and attached nowhere; and what a process keeps is kept
    /// for its next call, or a server knows of it.
    fn check_kept(&self, state: &State) -> Result<(), String> {
        for (&pid, cache) in &state.kept {
            for page in cache.control.iter().chain(cache.data.iter().map(|(_, page)| page)) {
                let holder = state.icas.get(page).map(|ica| ica.holder);
                if holder != Some(Holder::Kept(pid)) {
                    return Err(format!("page {page} of the area is kept for {pid:?}, and {holder:?}'s"));
                }
            }
        }
        for (page, ica) in state.icas.iter().filter(|(_, ica)| !ica.servers_own) {
            if let Holder::Kept(pid) = ica.holder
                && !state.kept.get(&pid).is_some_and(|cache| cache.has(*page))
            {
                return Err(format!(
                    "page {page} of the area is kept for {pid:?}, which does not know of it"
                ));
            }
        }
        Ok(())
    }

    /// Tests that nothing is left.
    ///
    /// # Errors
    /// What is left, in words.
    pub fn check_quiescent(&self) -> Result<(), String> {
        let state = self.state.lock();
        if !state.receiving.is_empty() || !state.sending.is_empty() || !state.sent.is_empty() {
            return Err("the card of a driver's server has something left".into());
        }
        let left = (state.icas.len(), state.requests.len(), state.ports.len(), state.structures.live());
        drop(state);
        let gates = self.gates.lock().len();
        if gates > 0 {
            return Err(format!("{gates} servers that are crossed into are left"));
        }
        if left == (0, 0, 0, 0) {
            return Ok(());
        }
        let (icas, requests, ports, structures) = left;
        Err(format!(
            "{icas} pieces of the area, {requests} requests, {ports} ports and {structures} structures are left"
        ))
    }
}
