//! Pieces of the communication area (ICAs): the owner of each, and what attaches it.
//!
//! A *piece* is some pages of the area in a row. It is attached to one process, or on its way with a request and
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

use super::state::{Holder, Ica, Ispc, State};
use crate::IspcDefect;
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_core::counter::KernelCounter;
use pageferry_core::proc::Syscall;
use pageferry_hal::{AttachedBy, Attachment, Cause, Machine, PAGE_SHIFT, PAGE_SIZE, SpinLock, Threads, Va};
use pageferry_pmap::AreaPage;

impl<M: Machine> Ispc<M> {
    /// A piece of so many pages, clear, attached to the caller.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]: the area is full. As of [`Ispc::attach`].
    pub fn alloc(&self, call: &Syscall<'_, M>, state: &mut State, pages: usize) -> Result<Va, Errno> {
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
        let (mut first, step) = (0, self.step_pages(pages));
        for (&page, ica) in &state.icas {
            if first + pages <= page {
                break;
            }
            first = (page + ica.pages).next_multiple_of(step);
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
            let kernel_va = call.core.vm.pmaps().area_kernel_va(first).0;
            m.zero(kernel_va, pages * PAGE_SIZE).expect("the arena is mapped for ever");
        }
        state
            .icas
            .insert(first, Ica { pages, at, holder, entries: Vec::new(), tabled: false, servers_own: false });
        Ok(first)
    }

    /// Gives a piece back that is attached nowhere. One that the card reads is given to nobody before it has read it.
    pub fn free(&self, m: &M, state: &mut State, page: usize) {
        m.execute(self.config.paths.ica);
        let ica = state.icas.get_mut(&page).expect("a piece is freed once");
        assert!(ica.entries.is_empty() && !ica.tabled, "a piece is freed that is attached");
        if state.sending.values().any(|sending| sending.page == page) && !self.has(IspcDefect::FreedWhileSent)
        {
            ica.holder = Holder::Card;
            return;
        }
        let ica = state.icas.remove(&page).expect("it is there");
        state.structures.free(ica.at);
    }

    /// The piece at `va`, if the caller has it.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: there is none. [`Errno::Access`]: it is another's.
    pub fn held_by(&self, call: &Syscall<'_, M>, state: &State, va: Va) -> Result<usize, Errno> {
        let page = self.page(va)?;
        let ica = state.icas.get(&page).ok_or(Errno::Invalid)?;
        if ica.holder == Holder::Process(call.pid) { Ok(page) } else { Err(Errno::Access) }
    }

    /// True when too few reserved entries are free to attach pieces that take so many to the caller. Of several pieces
    /// it is asked for all before the first is attached: to detach that again would wake others that wait for entries,
    /// who would do the same to the caller.
    pub(super) fn lacks_entries(&self, call: &Syscall<'_, M>, state: &State, needed: usize) -> bool {
        let sees_all = self.attaching.servers_see_all && state.is_server(call.pid);
        let by_entries = self.attaching.by_entries && !sees_all && !self.has(IspcDefect::SilentlyByTable);
        by_entries && state.free.len() < needed
    }

    /// Attaches a piece to the caller, who has it from then on.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`]: no reserved entry is free. [`Errno::NoMemory`]: no frame for a page table. Nothing has
    /// changed then.
    pub fn attach(&self, call: &Syscall<'_, M>, state: &mut State, page: usize) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::IcaAttach);
        let is_server = state.is_server(call.pid);
        let (pmaps, pmap) = (call.core.vm.pmaps(), call.space.pmap());
        let ica = state.icas.get_mut(&page).expect("what is attached is there");
        if self.attaching.servers_see_all && is_server {
            ica.holder = Holder::Process(call.pid);
            return Ok(());
        }
        m.execute(self.config.paths.ica);
        self.touch(m, ica.at);
        let (at, len_bytes) = (self.range.start() + (page << PAGE_SHIFT), ica.pages * PAGE_SIZE);
        let shown = |by| Attachment { at, len_bytes, by };
        let silently = self.has(IspcDefect::SilentlyByTable) && state.free.len() < self.entries_of(ica.pages);
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
            if state.free.len() < self.entries_of(ica.pages) {
                return Err(Errno::WouldBlock);
            }
            for what in self.pages_of_piece(page, ica.pages) {
                m.execute(self.config.paths.entry);
                let entry = match self.has(IspcDefect::EntryTaken) {
                    true => *state.free.last().expect("there are enough"),
                    false => state.free.pop().expect("there are enough"),
                };
                pmaps.wire(pmap, entry, what);
                ica.entries.push(entry);
            }
            m.trace_attached(call.pid.0, shown(AttachedBy::Entries));
        }
        ica.holder = Holder::Process(call.pid);
        Ok(())
    }

    /// Detaches a piece from the caller, who has it no more. True when entries became free that others may wait for.
    pub fn detach(&self, call: &Syscall<'_, M>, state: &mut State, page: usize, to: Holder) {
        let m = call.machine();
        let _c = m.scope(Cause::IcaDetach);
        let (pmaps, pmap) = (call.core.vm.pmaps(), call.space.pmap());
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
    pub fn show_all(&self, call: &Syscall<'_, M>, state: &mut State) -> Result<Vec<usize>, Errno> {
        let needed = self.config.entries_of_a_server();
        if state.free_server.len() < needed {
            return Err(Errno::WouldBlock);
        }
        let entries: Vec<usize> = (0..needed).filter_map(|_| state.free_server.pop()).collect();
        let bytes = self.config.server_page_bytes;
        let shift = bytes.ilog2() as u8;
        for (i, &entry) in entries.iter().enumerate() {
            let page = AreaPage { offset_bytes: i * bytes, shift };
            call.core.vm.pmaps().wire(call.space.pmap(), entry, page);
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
    pub fn wait_for_entry(
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
