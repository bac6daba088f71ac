//! A pool as its owner sees it.
//!
//! # What it holds
//! Two ranges of addresses for the same memfd. `first` is the mapping with which the pool was made; it is inaccessible
//! for ever after, and is what open slots are duplicated from: once the pool is sealed FUTURE_WRITE, no other way leads
//! to a new writable mapping. `used` is where buffers are: each slot of it is open, frozen, private, hidden, or of this
//! process's own zero pages. The first mapping is needed again only for what was mapped anew: a frozen or hidden slot
//! is the same mapping with fewer rights. Of a leased channel the receiver has made the memory, each slot its own
//! memfd; `leased_sender` opens and freezes those.
//!
//! # Why the owner's references hold
//! The receiver cannot write to the pool: its descriptor is sealed before it gets it, or, where it is to take
//! donations, it maps the pool inaccessible before the seal, and promises to open only what it was given.
//! Nobody else has the descriptor. Leased slots are the receiver's, which can write to them: there the receiver is
//! trusted as this process trusts itself.

use super::leased_sender::LeasedSlots;
use super::{Geometry, Run, Slots, make_huge};
use crate::error::{Broken, Error};
use crate::host::Host;
use crate::sync::Mutex;
use crate::sys::copy::{self, Stores};
use crate::sys::map::{Prot, Region};
use crate::sys::nudge::Nudge;
use crate::sys::socket::Socket;
use crate::sys::{self, fork, memfd};
use core::mem::MaybeUninit;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;

/// What lies behind a slot of `used`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The pool, shared and writable.
    Open,
    /// What was open, for reading: a store is a fault. Of a leased channel, the same as private.
    Frozen,
    /// The pool, privately: a store makes a page of this process's own.
    Private,
    /// Nothing: a touch is a fault.
    Hidden,
    /// Zero pages of this process.
    Zero,
}

impl State {
    /// Nothing that this process stores reaches the pool.
    fn is_frozen(self) -> bool {
        matches!(self, State::Frozen | State::Private)
    }
}

/// The pool as its sender sees it.
#[derive(Debug)]
pub(crate) struct SenderView {
    geometry: Geometry,
    slots: Slots,
    states: Mutex<Vec<State>>,
    used: Region,
    memory: Memory,
    huge: bool,
    freed: Nudge,
}

/// What the slots are of.
#[derive(Debug)]
enum Memory {
    Pool { fd: OwnedFd, first: Region },
    Leased(LeasedSlots),
}

impl SenderView {
    /// Makes a pool. It is sealed against all but writing; [`SenderView::seal`] does the rest.
    pub(crate) fn new(geometry: Geometry, host: &Host) -> Result<SenderView, Error> {
        let mut view = Self::without_pages(geometry, host)?;
        view.populate(host);
        Ok(view)
    }

    /// The same, but there are no pages yet: [`SenderView::populate`] makes them.
    pub(crate) fn without_pages(geometry: Geometry, host: &Host) -> Result<SenderView, Error> {
        let len = geometry.bytes();
        let align = host.slot_align().max(sys::page_bytes());
        let fd = memfd::create("pageferry-pool", len)?;
        let first = Region::reserve(len, align)?;
        let used = Region::reserve(len, align)?;
        // A child that is made meanwhile could write to the pool.
        fork::without_children(|| {
            // SAFETY: both regions are new, and nobody has a reference into them.
            unsafe {
                first.map_shared(0, len, Prot::ReadWrite, fd.as_fd(), 0)?;
                if host.alias() {
                    used.alias(0, len, &first, 0)?;
                    used.protect(0, len, Prot::ReadWrite)?;
                } else {
                    used.map_shared(0, len, Prot::ReadWrite, fd.as_fd(), 0)?;
                }
                if !planted!(PoolLeftWritable) {
                    first.protect(0, len, Prot::None)?;
                }
            }
            if !planted!(NoDontFork) {
                first.dont_fork(0, len)?;
                used.dont_fork(0, len)?;
            }
            Ok::<(), sys::Failed>(())
        })?;
        first.keep_apart(geometry.slot_bytes);
        used.keep_apart(geometry.slot_bytes);
        memfd::seal(&fd, memfd::POOL_SEALS.difference(memfd::SEALED_LATER))?;
        Self::of(geometry, State::Open, used, Memory::Pool { fd, first }, false)
    }

    /// All memory is there from now on, so that a limit of memory bites here and not in a store.
    pub(crate) fn populate(&mut self, host: &Host) {
        // SAFETY: the slots are open, and nobody has a reference into them: no run was taken.
        self.huge = unsafe { make_huge(&self.used, host) };
    }

    /// A view of slots that the receiver has made and sent.
    pub(crate) fn leased(geometry: Geometry, fds: Vec<OwnedFd>, host: &Host) -> Result<SenderView, Error> {
        let used = Region::reserve(geometry.bytes(), host.slot_align().max(sys::page_bytes()))?;
        let leased = LeasedSlots::new(fds, &used, geometry.slot_bytes)?;
        let huge = host.is_huge(&used, 0, geometry.bytes());
        Self::of(geometry, State::Frozen, used, Memory::Leased(leased), huge)
    }

    fn of(
        geometry: Geometry,
        state: State,
        used: Region,
        memory: Memory,
        huge: bool,
    ) -> Result<SenderView, Error> {
        let states = Mutex::new(vec![state; geometry.slots as usize]);
        let slots = Slots::new(geometry.slots);
        Ok(SenderView { geometry, slots, states, used, memory, huge, freed: Nudge::new()? })
    }

    /// The pool's descriptor, and the mapping that open slots are duplicated from.
    fn pool(&self) -> (&OwnedFd, &Region) {
        match &self.memory {
            Memory::Pool { fd, first } => (fd, first),
            Memory::Leased(_) => unreachable!("a leased channel has no verbs that need a pool"),
        }
    }

    /// Whether huge pages lie behind it.
    pub(crate) fn huge(&self) -> bool {
        self.huge
    }

    /// Nobody can map the pool for writing from now on.
    pub(crate) fn seal(&self) -> Result<(), Error> {
        Ok(memfd::seal(self.pool().0, memfd::POOL_SEALS)?)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        self.pool().0
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Gives slots back, and tells whoever waits for some.
    pub(crate) fn give(&self, run: Run) {
        self.slots.give(run);
        self.freed.tell();
    }

    /// Tells of slots that are given back.
    pub(crate) fn freed(&self) -> &Nudge {
        &self.freed
    }

    /// Enters the process's registry of what `fork` must keep away from children.
    pub(crate) fn register(&self, socket: &Socket) -> fork::Registration {
        let piece = self.geometry.slot_bytes;
        let memory = match &self.memory {
            Memory::Pool { fd, .. } => vec![self.used.in_children(0, self.used.len(), piece, fd)],
            Memory::Leased(leased) => leased.memory(&self.used),
        };
        fork::register(socket.as_fd(), memory)
    }

    fn part(&self, run: &Run) -> (usize, usize) {
        (self.geometry.offset(run), self.geometry.len(run))
    }

    fn set(&self, run: &Run, state: State) {
        let first = run.first() as usize;
        self.set_slots(first..first + run.slots() as usize, state);
    }

    fn set_slots(&self, slots: core::ops::Range<usize>, state: State) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states[slots].fill(state);
    }

    fn is(&self, run: &Run, state: State) -> bool {
        self.states(run, |states| states.iter().all(|&of| of == state))
    }

    fn any(&self, run: &Run, of: &[State]) -> bool {
        self.states(run, |states| states.iter().any(|state| of.contains(state)))
    }

    fn states<R>(&self, run: &Run, look: impl FnOnce(&[State]) -> R) -> R {
        let first = run.first() as usize;
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        look(&states[first..first + run.slots() as usize])
    }

    /// Makes the run open, whatever it was: shared, writable, showing what the pool holds.
    pub(crate) fn open(&self, run: &mut Run) -> Result<(), Error> {
        if self.is(run, State::Open) || planted!(NoThaw) {
            return Ok(());
        }
        if let Memory::Leased(leased) = &self.memory {
            for slot in run.first()..run.first() + run.slots() {
                // SAFETY: `&mut Run`: nobody has a reference into the run.
                unsafe { leased.open(&self.used, slot)? };
                self.set_slots(slot as usize..slot as usize + 1, State::Open);
            }
            return Ok(());
        }
        let (at, len) = self.part(run);
        // SAFETY: `&mut Run`: nobody has a reference into the run.
        unsafe {
            if self.any(run, &[State::Private, State::Zero]) {
                self.used.alias(at, len, self.pool().1, at)?;
                self.set(run, State::Hidden);
            }
            if let Err(failed) = self.used.protect(at, len, Prot::ReadWrite) {
                // The bytes are to be read still, by whoever has the run.
                if self.any(run, &[State::Hidden])
                    && self.used.map_private(at, len, Prot::Read, self.pool().0.as_fd(), at as u64).is_ok()
                {
                    self.set(run, State::Private);
                }
                return Err(failed.into());
            }
        }
        self.set(run, State::Open);
        Ok(())
    }

    /// Whether the run's bytes can be read.
    pub(crate) fn is_readable(&self, run: &Run) -> bool {
        !self.any(run, &[State::Hidden])
    }

    /// Freezes the run: stores through any pointer of this process miss the pool from now on. They are faults, or, with
    /// `copy_on_write`, make pages of its own.
    pub(crate) fn freeze(&self, run: &Run, copy_on_write: bool) -> Result<(), Error> {
        if planted!(NoFreeze) || self.states(run, |states| states.iter().all(|state| state.is_frozen())) {
            return Ok(());
        }
        let (at, len) = self.part(run);
        let mut state = State::Frozen;
        // SAFETY: the bytes stay the same, so `&[u8]`s may go on; no `&mut` exists, for the caller has `&Run`
        // and gives up its buffer.
        unsafe {
            match &self.memory {
                Memory::Pool { fd, .. } if copy_on_write => {
                    self.used.map_private(at, len, Prot::ReadWrite, fd.as_fd(), at as u64)?;
                    state = State::Private;
                }
                Memory::Pool { .. } => self.used.protect(at, len, Prot::Read)?,
                // No mapping that could become writable is to be left.
                Memory::Leased(leased) => {
                    let prot = if copy_on_write { Prot::ReadWrite } else { Prot::Read };
                    for slot in run.first()..run.first() + run.slots() {
                        leased.freeze(&self.used, slot, prot)?;
                    }
                }
            }
        }
        self.set(run, state);
        Ok(())
    }

    /// Whether this process has pages of its own in the place of a frozen run, or may have.
    pub(crate) fn is_written(&self, run: &Run, host: &Host) -> bool {
        if self.is(run, State::Frozen) && matches!(self.memory, Memory::Pool { .. }) {
            return false;
        }
        let (at, len) = self.part(run);
        !host.scan() || sys::pages::written_pages(&self.used, at, len, 1).map_or(true, |pages| pages > 0)
    }

    /// Takes the run out of this process's sight.
    pub(crate) fn hide(&self, run: &mut Run) -> Result<(), Error> {
        let (at, len) = self.part(run);
        let prot = if planted!(NoHide) { Prot::ReadWrite } else { Prot::None };
        // SAFETY: `&mut Run`: nobody has a reference into the run.
        unsafe { self.used.protect(at, len, prot)? };
        self.set(run, State::Hidden);
        Ok(())
    }

    /// Puts zero pages of this process's own in the place of the run.
    pub(crate) fn zero(&self, run: &mut Run) -> Result<(), Error> {
        let (at, len) = self.part(run);
        // SAFETY: `&mut Run`: nobody has a reference into the run.
        unsafe { self.used.map_anonymous(at, len, Prot::ReadWrite)? };
        self.set(run, State::Zero);
        Ok(())
    }

    /// The first `len` bytes of a run that was not hidden.
    pub(crate) fn bytes<'a>(&'a self, run: &'a Run, len: usize) -> &'a [u8] {
        let (at, whole) = self.part(run);
        assert!(len <= whole);
        // SAFETY: mapped readable (callers hide a run only when they give up the value that reads it),
        // initialised (a pool is zero at first), and not written meanwhile: not here, for nobody has `&mut
        // Run`, and not by the receiver (see the top).
        unsafe { core::slice::from_raw_parts(self.used.at(at), len) }
    }

    /// The first `len` bytes of an open run, or of one of zero pages.
    pub(crate) fn bytes_mut<'a>(&'a self, run: &'a mut Run, len: usize) -> &'a mut [u8] {
        let (at, whole) = self.part(run);
        assert!(len <= whole);
        // SAFETY: as for `bytes`; `&mut Run` makes it the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.used.at(at), len) }
    }

    /// Copies `from` to the run, at `offset`.
    pub(crate) fn copy_in(&self, run: &mut Run, offset: usize, from: &[u8], stores: Stores) {
        let (at, whole) = self.part(run);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= whole));
        // SAFETY: within the run, mapped writable, and ours alone by `&mut Run`; `from` is a reference, so it
        // is not part of it.
        unsafe { copy::in_to(self.used.at(at + offset), from, stores) }
    }

    /// The run's bytes as they may be overwritten.
    pub(crate) fn uninit_mut<'a>(&'a self, run: &'a mut Run, len: usize) -> &'a mut [MaybeUninit<u8>] {
        let bytes = self.bytes_mut(run, len);
        // SAFETY: the same memory and length. The library's own reads of it are of bytes that some process
        // has stored, or zero.
        unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }
}

/// The shape of a pool that a peer offers, if it is one that can be mapped here.
pub(crate) fn offered(slots: u32, slot_bytes: u64) -> Result<Geometry, Error> {
    let shape = || Broken::Handshake("the pool has a shape that cannot be");
    let slot_bytes = usize::try_from(slot_bytes).map_err(|_| shape())?;
    let geometry = Geometry { slots, slot_bytes };
    let aligned = slot_bytes > 0 && slot_bytes.is_multiple_of(sys::page_bytes());
    if !aligned || !(1..=Geometry::MAX_SLOTS).contains(&slots) || geometry.checked_bytes().is_none() {
        return Err(shape().into());
    }
    Ok(geometry)
}
