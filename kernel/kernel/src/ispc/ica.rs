//! Pieces of the communication area (ICAs): the owner of each, and what attaches it.
//!
//! # What it holds
//! [`State`] is all of ISPC: pieces of the area by their first page, ports, requests, and the reserved entries that are
//! free. A *piece* is some pages of the area in a row. It is attached to one process, or on its way with a request and
//! attached nowhere. (Servers that see all of the area can reach every piece; it is not attached to them for that.) A
//! piece has the same address wherever it is.
//!
//! # Attaching
//! Always in the space that runs: the sender detaches, the receiver attaches, each in a call of its own. So an entry is
//! never written for a space whose tag is not known.
//!
//! # Locks
//! One of class `Pipe` over [`State`]. What attaches takes the pmap's locks within.
//!
//! # What can fail
//! An attachment, when no reserved entry is free: the caller waits or is told ([`Errno::WouldBlock`]); by a page table,
//! for want of a frame. Nothing is attached then.

use super::card::{DriverCard, Sending};
use super::config::{Attaching, IspcConfig, IspcDefect};
use super::cross::{Activation, Gate};
use super::kept::Kept;
use super::port::{Port, Request, RequestId};
use super::received::Receiving;
use crate::counter::KernelCounter;
use crate::error::BootError;
use crate::proc::Syscall;
use crate::sched::ThreadId;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_abi::{Errno, Pid};
use pageferry_hal::{
    Access, AttachedBy, Attachment, Cause, Channel, LockClass, Machine, PAGE_SHIFT, PAGE_SIZE, SpinLock,
    StructArena, StructVa, Threads, Va, VaRange, Zone,
};
use pageferry_pmap::AreaPage;

/// A port, a piece or a request: numbers, links, and what is said of them.
const STRUCTURE_BYTES: usize = 64;

/// The owner of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This process, to which it is attached.
    Process(Pid),
    /// No process: it goes with this request.
    Request(RequestId),
    /// Nobody: this process has it again when the kernel makes a request for it ([`super::kept`]).
    Kept(Pid),
    /// No process: the network card receives into it, or has ([`super::received`]).
    Card,
}

/// A piece of the area.
pub(crate) struct Ica {
    pub(crate) pages: usize,
    pub(crate) at: StructVa,
    pub(crate) holder: Holder,
    /// Reserved entries that attach it, one for each page.
    pub(crate) entries: Vec<usize>,
    /// A page table attaches it.
    pub(crate) tabled: bool,
}

/// All of it. See the [module](self).
pub(crate) struct State {
    /// By first page.
    pub(crate) icas: LiteMap<usize, Ica>,
    pub(crate) ports: LiteMap<Pid, Port>,
    pub(crate) requests: LiteMap<RequestId, Request>,
    pub(crate) next: u64,
    /// By service.
    pub(crate) servers: LiteMap<u32, Pid>,
    /// Reserved entries that are free: servers' permanent ones, and the others. The last is taken first.
    pub(crate) free_server: Vec<usize>,
    pub(crate) free: Vec<usize>,
    pub(crate) structures: Zone,
    /// Frames that the card has, and whose they are.
    pub(crate) sending: LiteMap<u64, Sending>,
    /// Requests whose frames were sent, and who is to answer them.
    pub(crate) sent: VecDeque<(Pid, RequestId)>,
    /// What the card receives into, and has received.
    pub(crate) receiving: Receiving,
    /// Where threads are that have crossed into servers: the last is where they run.
    pub(crate) inside: LiteMap<ThreadId, Vec<Activation>>,
    /// What processes keep for requests that the kernel makes for them.
    pub(crate) kept: LiteMap<Pid, Kept>,
}

impl State {
    pub(crate) fn is_server(&self, pid: Pid) -> bool {
        self.ports.get(&pid).is_some_and(|port| port.service.is_some())
    }

    /// Pages of the pieces that go with a request.
    pub(crate) fn pages_of(&self, id: RequestId) -> usize {
        let pieces = self.requests.get(&id).into_iter().flat_map(Request::pieces);
        pieces.map(|page| self.icas[&page].pages).sum()
    }
}

/// The part of a kernel. See the [module](super).
pub(crate) struct Ispc<M: Machine> {
    pub(crate) config: IspcConfig,
    pub(crate) attaching: Attaching,
    pub(crate) range: VaRange,
    /// Where threads sleep for an entry.
    at: StructVa,
    pub(crate) state: M::Lock<State>,
    /// What threads may cross into. Its lock is never held together with the other.
    pub(crate) gates: M::Lock<LiteMap<Pid, Arc<Gate<M>>>>,
    /// The card, where no protocols of the kernel's own have it.
    pub(crate) card: Option<DriverCard>,
}

impl<M: Machine> Ispc<M> {
    pub(crate) fn new(
        m: &M,
        config: IspcConfig,
        range: VaRange,
        card: Option<DriverCard>,
        arena: &mut StructArena,
    ) -> Result<Ispc<M>, BootError> {
        let attaching = config.attaching(&m.board())?;
        let at = arena.array("communication", 1, STRUCTURE_BYTES)?;
        let structures = arena.zone("pieces and requests", config.pieces, STRUCTURE_BYTES)?;
        let reserved = if attaching.by_entries { config.reserved } else { 0 };
        let servers = if attaching.servers_see_all { config.server_entries } else { 0 };
        let state = State {
            icas: LiteMap::new(),
            ports: LiteMap::new(),
            requests: LiteMap::new(),
            next: 1,
            servers: LiteMap::new(),
            free_server: (0..servers).rev().collect(),
            free: (servers..reserved).rev().collect(),
            structures,
            sending: LiteMap::new(),
            sent: VecDeque::new(),
            receiving: Receiving::default(),
            inside: LiteMap::new(),
            kept: LiteMap::new(),
        };
        let gates = m.new_lock(LockClass::PIPE, LiteMap::new());
        Ok(Ispc { config, attaching, range, at, state: m.new_lock(LockClass::PIPE, state), gates, card })
    }

    pub(crate) fn has(&self, defect: IspcDefect) -> bool {
        self.config.defect.is(defect)
    }

    /// What a thread sleeps on that wants an entry.
    pub(crate) fn entries(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// The first page of the piece at `va`.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: no page of the area begins there.
    pub(crate) fn page(&self, va: Va) -> Result<usize, Errno> {
        match self.range.contains(va) && va.is_page_aligned() {
            true => Ok((va - self.range.start()) >> PAGE_SHIFT),
            false => Err(Errno::Invalid),
        }
    }

    pub(crate) fn va(&self, page: usize) -> Va {
        self.range.start() + (page << PAGE_SHIFT)
    }

    pub(crate) fn touch(&self, m: &M, at: StructVa) {
        m.touch(at, STRUCTURE_BYTES, Access::Write);
    }

    // ------------------------------------------------------------------------------------------- pieces

    /// A piece of so many pages, clear, attached to the caller.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: the area is full. As of [`Ispc::attach`].
    pub(crate) fn alloc(&self, call: &Syscall<'_, M>, state: &mut State, pages: usize) -> Result<Va, Errno> {
        let first = self.place(call, state, pages, Holder::Process(call.pid))?;
        if let Err(error) = self.attach(call, state, first) {
            let ica = state.icas.remove(&first).expect("just put there");
            state.structures.free(ica.at);
            return Err(error);
        }
        Ok(self.va(first))
    }

    /// The first of so many pages that no piece has.
    fn room(&self, state: &State, pages: usize) -> Option<usize> {
        let mut first = 0;
        for (&page, ica) in &state.icas {
            if page - first >= pages {
                break;
            }
            first = page + ica.pages;
        }
        (first + pages <= self.range.len_pages()).then_some(first)
    }

    /// A piece of so many pages, clear, which is attached to nobody. What others only keep makes way for it.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: the area is full.
    pub(super) fn place(
        &self,
        call: &Syscall<'_, M>,
        state: &mut State,
        pages: usize,
        holder: Holder,
    ) -> Result<usize, Errno> {
        let m = call.machine();
        m.execute(self.config.paths.ica);
        let mut room = self.room(state, pages);
        if room.is_none() {
            self.drop_kept(call, state);
            room = self.room(state, pages);
        }
        let first = room.ok_or(Errno::NoMemory)?;
        let mut at = state.structures.alloc();
        if at.is_none() {
            self.drop_kept(call, state);
            at = state.structures.alloc();
        }
        let at = at.ok_or(Errno::NoMemory)?;
        self.touch(m, at);
        if !self.has(IspcDefect::NotCleared) {
            let _c = m.scope(Cause::Zero);
            let kernel_va = call.kernel.vm.pmaps().area_kernel_va(first).0;
            m.zero(kernel_va, pages * PAGE_SIZE).expect("the arena is mapped for ever");
        }
        state.icas.insert(first, Ica { pages, at, holder, entries: Vec::new(), tabled: false });
        Ok(first)
    }

    /// Gives a piece back that is attached nowhere.
    pub(crate) fn free(&self, m: &M, state: &mut State, page: usize) {
        m.execute(self.config.paths.ica);
        let ica = state.icas.remove(&page).expect("a piece is freed once");
        assert!(ica.entries.is_empty() && !ica.tabled, "a piece is freed that is attached");
        state.structures.free(ica.at);
    }

    /// The piece at `va`, if the caller has it.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: there is none. [`Errno::Access`]: it is another's.
    pub(crate) fn held_by(&self, call: &Syscall<'_, M>, state: &State, va: Va) -> Result<usize, Errno> {
        let page = self.page(va)?;
        let ica = state.icas.get(&page).ok_or(Errno::Invalid)?;
        if ica.holder == Holder::Process(call.pid) { Ok(page) } else { Err(Errno::Access) }
    }

    /// True when too few reserved entries are free to attach pieces of so many pages to the caller. Of several pieces
    /// it is asked for all before the first is attached: to detach that again would wake others that wait for entries,
    /// who would do the same to the caller.
    pub(super) fn lacks_entries(&self, call: &Syscall<'_, M>, state: &State, pages: usize) -> bool {
        let sees_all = self.attaching.servers_see_all && state.is_server(call.pid);
        let by_entries = self.attaching.by_entries && !sees_all && !self.has(IspcDefect::SilentlyByTable);
        by_entries && state.free.len() < pages * self.config.entries_of_a_page()
    }

    /// Attaches a piece to the caller, who has it from then on.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`]: no reserved entry is free. [`Errno::NoMemory`]: no frame for a page table. Nothing has
    /// changed then.
    pub(crate) fn attach(&self, call: &Syscall<'_, M>, state: &mut State, page: usize) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::IcaAttach);
        let is_server = state.is_server(call.pid);
        let (pmaps, pmap) = (call.kernel.vm.pmaps(), call.space.pmap());
        let ica = state.icas.get_mut(&page).expect("what is attached is there");
        if self.attaching.servers_see_all && is_server {
            ica.holder = Holder::Process(call.pid);
            return Ok(());
        }
        m.execute(self.config.paths.ica);
        self.touch(m, ica.at);
        let (at, len_bytes) = (self.range.start() + (page << PAGE_SHIFT), ica.pages * PAGE_SIZE);
        let shown = |by| Attachment { at, len_bytes, by };
        let (bytes, entries) = (self.config.piece_page_bytes, ica.pages * self.config.entries_of_a_page());
        let silently = self.has(IspcDefect::SilentlyByTable) && state.free.len() < entries;
        if self.has(IspcDefect::NotAttached) {
        } else if !self.attaching.by_entries || silently {
            for i in 0..ica.pages {
                if let Err(error) = call.space.area_enter(page + i) {
                    (0..i).for_each(|done| pmaps.area_remove(pmap, page + done));
                    return Err(error.into());
                }
            }
            ica.tabled = true;
            m.trace_attached(call.pid.0, shown(AttachedBy::Table));
        } else {
            if state.free.len() < entries {
                return Err(Errno::WouldBlock);
            }
            for i in 0..entries {
                m.execute(self.config.paths.entry);
                let entry = match self.has(IspcDefect::EntryTaken) {
                    true => *state.free.last().expect("there are enough"),
                    false => state.free.pop().expect("there are enough"),
                };
                let offset_bytes = (page << PAGE_SHIFT) + i * bytes;
                pmaps.wire(pmap, entry, AreaPage { offset_bytes, shift: bytes.ilog2() as u8 });
                ica.entries.push(entry);
            }
            m.trace_attached(call.pid.0, shown(AttachedBy::Entries));
        }
        ica.holder = Holder::Process(call.pid);
        Ok(())
    }

    /// Detaches a piece from the caller, who has it no more. True when entries became free that others may wait for.
    pub(crate) fn detach(&self, call: &Syscall<'_, M>, state: &mut State, page: usize, to: Holder) {
        let m = call.machine();
        let _c = m.scope(Cause::IcaDetach);
        let (pmaps, pmap) = (call.kernel.vm.pmaps(), call.space.pmap());
        let ica = state.icas.get_mut(&page).expect("what is detached is there");
        ica.holder = to;
        if self.has(IspcDefect::SenderKeeps) || ica.entries.is_empty() && !ica.tabled {
            return;
        }
        m.execute(self.config.paths.ica);
        self.touch(m, ica.at);
        m.trace_detached(call.pid.0, self.range.start() + (page << PAGE_SHIFT));
        if core::mem::take(&mut ica.tabled) {
            (0..ica.pages).for_each(|i| pmaps.area_remove(pmap, page + i));
        }
        let freed = !ica.entries.is_empty();
        for entry in core::mem::take(&mut ica.entries).into_iter().rev() {
            m.execute(self.config.paths.entry);
            pmaps.unwire(entry);
            if !self.has(IspcDefect::EntryTaken) {
                state.free.push(entry);
            }
        }
        if freed && state.ports.values().any(|port| port.wants_entry) {
            call.thread.wakeup(self.entries());
        }
    }

    /// Attaches all of the area to a server, for as long as it serves.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`]: no reserved entries of servers' are left.
    pub(crate) fn show_all(&self, call: &Syscall<'_, M>, state: &mut State) -> Result<Vec<usize>, Errno> {
        let needed = self.config.entries_of_a_server();
        if state.free_server.len() < needed {
            return Err(Errno::WouldBlock);
        }
        let entries: Vec<usize> = (0..needed).filter_map(|_| state.free_server.pop()).collect();
        let bytes = self.config.server_page_bytes;
        let shift = bytes.ilog2() as u8;
        for (i, &entry) in entries.iter().enumerate() {
            let page = AreaPage { offset_bytes: i * bytes, shift };
            call.kernel.vm.pmaps().wire(call.space.pmap(), entry, page);
        }
        let (at, len_bytes) = (self.range.start(), self.config.len_bytes);
        let by = AttachedBy::Service;
        call.machine().trace_attached(call.pid.0, Attachment { at, len_bytes, by });
        Ok(entries)
    }

    /// Sleeps until an entry may be free; the lock is let go meanwhile.
    ///
    /// # Errors
    /// [`Errno::Interrupted`] by a signal, only if `interruptible`.
    pub(crate) fn wait_for_entry(
        &self,
        call: &Syscall<'_, M>,
        guard: <M::Lock<State> as SpinLock<State>>::Guard<'_>,
        interruptible: bool,
    ) -> Result<(), Errno> {
        let mut guard = guard;
        if let Some(port) = guard.ports.get_mut(&call.pid) {
            port.wants_entry = true;
        }
        call.machine().count(KernelCounter::EntrySleeps, 1);
        let mut held = Some(guard);
        let slept = call.thread.sleep(self.entries(), "entry", interruptible, &mut || drop(held.take()));
        if let Some(port) = self.state.lock().ports.get_mut(&call.pid) {
            port.wants_entry = false;
        }
        Ok(slept?)
    }
}
