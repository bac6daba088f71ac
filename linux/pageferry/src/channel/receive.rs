//! The receiver's state, which its loans share.
//!
//! # What it holds
//! The view of the peer's pool, the receiver's side of the ring, the slots that are out (as runs, each in one
//! loan), sealed memory that has come and whose message has not, and loans that cannot be given back yet
//! because a child may still see them.
//!
//! # Locks
//! One, around the ring and these tables. It is never held while a thread sleeps. Only the one
//! [`super::Receiver`] waits; loans are given back from any thread.
//!
//! # Death
//! When the peer is gone, what it had published is received first. What was received stays valid: the memory
//! lives as long as somebody maps it.

use super::admit::{admit, admit_extents};
use super::config::Config;
use super::place::{Arrival, Piece, Place};
use super::settled::Settled;
use super::spin::{Next, Spin};
use crate::error::{Broken, Error, PeerFault, Usage};
use crate::host::Host;
use crate::ring::{Inbox, Mapped};
use crate::sync::{AtomicU64, Instant, Mutex, MutexGuard};
use crate::sys::copy::Stores;
use crate::sys::socket::{self, Came, Socket};
use crate::sys::{Errno, fork};
use crate::view::{Anonymous, ReceiverView, Recycled, Run, Snapshot};
use crate::wire::{Descriptor, Extent, Level, Note, Verb};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What a receiver and its loans share.
#[derive(Debug)]
pub(crate) struct RecvShared {
    /// It leaves the registry before the socket's number can be another's.
    _registered: fork::Registration,
    socket: Socket,
    generation: u32,
    pub(crate) host: &'static Host,
    pub(crate) config: Config,
    pub(crate) settled: Settled,
    pub(crate) view: ReceiverView,
    pub(crate) recycled: Arc<Recycled>,
    /// Bytes of the peer's pool and of the ring.
    base: u64,
    /// Bytes of copies and sealed memory that loans hold.
    held: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ring: Inbox<Mapped>,
    /// Why no more will come.
    fault: Option<Error>,
    /// The peer will publish no more.
    ended: Option<Error>,
    objects: HashMap<u64, OwnedFd>,
    retired: Vec<Retired>,
    /// A wake-up of the peer has failed.
    owes_wake: bool,
    /// Somebody polls the socket ([`RecvShared::watch`]).
    watching: bool,
}

/// What was dropped and cannot be given back yet: a child could still see it, or the kernel has refused to
/// make it as it was before.
#[derive(Debug)]
struct Retired {
    sequence: u64,
    verb: Verb,
    runs: Vec<Run>,
    /// Those still to be cleaned, and whether each was made writable.
    dirty: Vec<(Run, bool)>,
    pages: u64,
    born: u64,
    /// A part of it must never be given back, so none of it is.
    lost: bool,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvCounters {
    /// Messages received.
    pub received: u64,
    /// Slots of the peer's pool that loans hold.
    pub slots_held: u32,
    /// Bytes of copies and sealed memory that loans hold.
    pub bytes_held: u64,
    /// Loans that were dropped and wait for the end of a child, or for the kernel to clean their memory.
    pub retired: usize,
}

impl RecvShared {
    pub(crate) fn new(
        socket: Socket,
        config: Config,
        settled: Settled,
        view: ReceiverView,
        ring: Inbox<Mapped>,
        registered: fork::Registration,
    ) -> Arc<RecvShared> {
        let pool = view.geometry().bytes();
        let base = pool as u64 + ring.geometry().bytes();
        let state = State {
            ring,
            fault: None,
            ended: None,
            objects: HashMap::new(),
            retired: Vec::new(),
            owes_wake: false,
            watching: false,
        };
        Arc::new(RecvShared {
            socket,
            generation: fork::generation(),
            host: Host::get(),
            config,
            settled,
            recycled: Recycled::new(pool),
            view,
            base,
            held: AtomicU64::new(0),
            state: Mutex::new(state),
            _registered: registered,
        })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    pub(crate) fn check_ours(&self) -> Result<(), Error> {
        if self.is_ours() || planted!(NoForkedCheck) { Ok(()) } else { Err(Usage::Forked.into()) }
    }

    pub(crate) fn counters(&self) -> RecvCounters {
        if !self.is_ours() {
            return RecvCounters::default();
        }
        let state = self.lock();
        RecvCounters {
            received: state.ring.next_sequence(),
            slots_held: self.view.slots().taken(),
            bytes_held: self.held.load(Ordering::Relaxed),
            retired: state.retired.len(),
        }
    }

    /// The next message, if one is there.
    pub(crate) fn try_recv(&self) -> Result<Option<Arrival>, Error> {
        self.check_ours()?;
        let mut state = self.lock();
        if core::mem::take(&mut state.watching) {
            state.ring.end_sleep();
        }
        self.release_retired(&mut state);
        if self.view.is_broken() {
            state.fault.get_or_insert(Broken::LeaseBroken.into());
        }
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let taken = self.take(&mut state);
        match taken {
            Err(error) => {
                if let Error::Peer(_) = &error {
                    state.fault = Some(error.clone());
                }
                Err(error)
            }
            Ok(None) => match state.ended.clone() {
                None => Ok(None),
                Some(ended) => {
                    state.fault = Some(ended.clone());
                    Err(ended)
                }
            },
            found => found,
        }
    }

    fn take(&self, state: &mut State) -> Result<Option<Arrival>, Error> {
        if planted!(NoDrain) && state.ended.is_some() {
            return Ok(None);
        }
        let Some(mut words) = state.ring.peek()? else { return Ok(None) };
        let sequence = state.ring.next_sequence();
        let pool = self.view.geometry();
        let mut descriptor = admit(&words, sequence, &self.settled, state.ring.geometry(), pool)?;
        if planted!(DoubleRead) {
            widen!(DoubleRead);
            words = state.ring.peek()?.unwrap_or(words);
            descriptor = Descriptor::parse(&words).unwrap_or(descriptor);
        }
        let born = fork::forks();
        let place = self.place(state, &descriptor)?;
        state.ring.taken();
        if matches!(place, Place::Inline(_) | Place::Copied(_)) {
            self.ack(state, sequence, 0);
        }
        Ok(Some(Arrival { descriptor, place, born }))
    }

    /// Where the bytes of an admitted message are from now on.
    fn place(&self, state: &mut State, descriptor: &Descriptor) -> Result<Place, Error> {
        let len = descriptor.len as usize;
        if descriptor.extents > 0 {
            return Ok(Place::Pieces(self.pieces(state, descriptor)?));
        }
        let claim = || self.claim(descriptor.sequence, descriptor.first_slot, descriptor.slots);
        match descriptor.verb {
            Verb::Inline => {
                self.charge(descriptor.len, "a message in the ring")?;
                let mut bytes = vec![0; len].into_boxed_slice();
                let at = state.ring.geometry().inline_offset(descriptor.sequence);
                state.ring.forward().read_bytes(at, &mut bytes);
                Ok(Place::Inline(bytes))
            }
            Verb::Copy => {
                let run = claim()?;
                let copied = self.memory(len, "a copy").map(|mut copied| {
                    self.view.copy_out(
                        &run,
                        descriptor.offset as usize,
                        copied.uninit_mut(),
                        Stores::Ordinary,
                    );
                    Place::Copied(copied)
                });
                self.view.slots().give(run);
                copied
            }
            Verb::Loan if descriptor.level == Level::Sealed => self.sealed(state, descriptor),
            Verb::Loan => Ok(Place::Lent { run: Some(self.hold(descriptor, claim()?)?), own: false }),
            Verb::Donate => {
                let mut run = claim()?;
                match self.view.take(&mut run) {
                    Ok(()) => Ok(Place::Donated { run: Some(run) }),
                    Err(error) => {
                        self.view.slots().give(run);
                        Err(error)
                    }
                }
            }
            Verb::Share => Ok(Place::Shared { run: Some(claim()?) }),
        }
    }

    /// A lent run, once nobody can write to it.
    fn hold(&self, descriptor: &Descriptor, run: Run) -> Result<Run, Error> {
        let what = "something can still write to its slots";
        let held = match self.view.hold(&run) {
            Ok(true) => return Ok(run),
            Ok(false) => Broken::Descriptor { sequence: descriptor.sequence, what }.into(),
            Err(error) => error,
        };
        self.view.slots().give(run);
        Err(held)
    }

    fn claim(&self, sequence: u64, first_slot: u32, slots: u32) -> Result<Run, Broken> {
        let run = self.view.slots().claim(first_slot, slots);
        run.ok_or(Broken::Descriptor { sequence, what: "its slots are out already" })
    }

    /// The pieces of a message that lies in several runs, all of them or none.
    fn pieces(&self, state: &mut State, descriptor: &Descriptor) -> Result<Vec<Piece>, Error> {
        use zerocopy::IntoBytes as _;
        let empty = Extent { at: 0, len: 0, offset: 0, first_slot: 0, slots: 0 };
        let mut extents = vec![empty; descriptor.extents.into()];
        let at = state.ring.geometry().inline_offset(descriptor.sequence);
        state.ring.forward().read_bytes(at, extents.as_mut_slice().as_mut_bytes());
        admit_extents(descriptor, &extents, self.view.geometry())?;
        let mut pieces: Vec<Piece> = Vec::with_capacity(extents.len());
        for extent in &extents {
            let claimed =
                self.claim(descriptor.sequence, extent.first_slot, extent.slots).map_err(Error::from);
            let piece = claimed.and_then(|mut run| match descriptor.verb {
                Verb::Loan => self.hold(descriptor, run),
                Verb::Donate => match self.view.take(&mut run) {
                    Ok(()) => Ok(run),
                    Err(error) => {
                        self.view.slots().give(run);
                        Err(error)
                    }
                },
                _ => Ok(run),
            });
            match piece {
                Ok(run) => pieces.push(Piece::new(extent, run)),
                Err(error) => {
                    for mut piece in pieces {
                        if let Some(mut run) = piece.run.take() {
                            // The message stays in the ring, and is the next that is taken: what cannot be
                            // closed is open then.
                            if descriptor.verb == Verb::Donate {
                                let _ = self.view.give_up(&mut run);
                            }
                            if descriptor.verb == Verb::Loan {
                                let _ = self.view.let_go(&run);
                            }
                            self.view.slots().give(run);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(pieces)
    }

    fn sealed(&self, state: &mut State, descriptor: &Descriptor) -> Result<Place, Error> {
        let broken = |what| Broken::Descriptor { sequence: descriptor.sequence, what };
        // An honest sender has sent the memory before the message, and perhaps many a wake-up before that. What it
        // sends meanwhile is not waited for for ever.
        for _ in 0..MAX_BATCHES {
            if state.objects.contains_key(&descriptor.object) || self.read_notes(state) {
                break;
            }
        }
        let fd = state.objects.remove(&descriptor.object);
        let fd = fd.ok_or_else(|| match (&state.fault, &state.ended) {
            // Why it did not come.
            (Some(fault), _) => fault.clone(),
            (None, Some(error @ Error::Host(_))) => error.clone(),
            _ => broken("its sealed memory did not come").into(),
        })?;
        let len = crate::sys::memfd::len(&fd)?;
        if let Err(error) = self.charge(len, "sealed memory") {
            state.objects.insert(descriptor.object, fd);
            return Err(error);
        }
        let snapshot = match Snapshot::open(fd, len) {
            Ok(snapshot) => snapshot,
            Err((error, fd)) => {
                self.discharge(len);
                // What this host refused can be tried again.
                state.objects.insert(descriptor.object, fd);
                return Err(error);
            }
        };
        let end = descriptor.offset.checked_add(descriptor.len);
        if descriptor.len == 0 || end.is_none_or(|end| end > snapshot.len() as u64) {
            self.discharge(len);
            return Err(broken("its bytes are not in its sealed memory").into());
        }
        Ok(Place::Sealed(Arc::new(snapshot)))
    }

    /// Memory of this process, which counts against the budget: see [`RecvShared::discharge`].
    pub(crate) fn memory(&self, len: usize, what: &'static str) -> Result<Anonymous, Error> {
        let min = Recycled::whole(len) as u64;
        self.charge(min, what)?;
        let memory = self.recycled.take(len).inspect_err(|_| self.discharge(min))?;
        let more = memory.held().saturating_sub(min);
        self.charge(more, what).inspect_err(|_| self.discharge(min))?;
        Ok(memory)
    }

    /// Counts bytes that a loan will hold against the budget.
    pub(crate) fn charge(&self, bytes: u64, what: &'static str) -> Result<(), Error> {
        let budget = self.config.max_bytes();
        let pool = self.view.geometry().bytes() as u64;
        let fits = |held: u64| {
            let all = held.checked_add(bytes)?.checked_add(self.base)?;
            (all <= budget || planted!(NoBudgetCheck)).then_some(held + bytes)
        };
        match self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(held) => {
                // What is kept to be used again is at most as much as the pool.
                if held + bytes + self.base + pool > budget {
                    self.recycled.clear();
                }
                Ok(())
            }
            Err(held) => {
                let holders =
                    format!("the peer's pool has {pool} bytes, messages that were not dropped have {held}");
                Err(Error::Budget { what, wanted: bytes, budget, holders })
            }
        }
    }

    pub(crate) fn discharge(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn ack(&self, state: &mut State, sequence: u64, pages: u64) {
        if state.ring.ack([sequence, pages]) || state.owes_wake {
            // Where the peer is gone, nobody waits. What the kernel refuses for long is tried again with the next.
            let woken = socket::wake(self.socket(), &Note::Wake.bytes());
            let gone = |errno| matches!(errno, Errno::PIPE | Errno::CONNRESET);
            state.owes_wake = woken.is_err_and(|failed| !gone(failed.errno));
        }
    }

    /// Cleans the slots of a message and gives them back; or keeps them, while that cannot be. With each run
    /// comes whether it was made writable.
    pub(crate) fn release(&self, sequence: u64, verb: Verb, runs: Vec<(Run, bool)>, born: u64) {
        let mut retired =
            Retired { sequence, verb, runs: Vec::new(), dirty: runs, pages: 0, born, lost: false };
        if planted!(AckBeforeDontNeed) {
            self.ack(&mut self.lock(), sequence, 0);
            widen!(AckBeforeDontNeed);
            self.clean(&mut retired);
            return self.give(retired.runs);
        }
        self.clean(&mut retired);
        if planted!(AckBeforeGive) {
            self.ack(&mut self.lock(), sequence, retired.pages);
            widen!(AckBeforeGive);
            return self.give(retired.runs);
        }
        let mut state = self.lock();
        self.release_retired(&mut state);
        self.give_back(&mut state, retired);
    }

    fn give_back(&self, state: &mut State, retired: Retired) {
        if !retired.dirty.is_empty() || fork::fenced_since(retired.born) {
            return state.retired.push(retired);
        }
        if retired.lost {
            return;
        }
        self.give(retired.runs);
        self.ack(state, retired.sequence, retired.pages);
    }

    /// Makes runs as they were before the message, so that they can be given back. Those that cannot be cleaned
    /// are tried again later.
    fn clean(&self, retired: &mut Retired) {
        for (mut run, own) in core::mem::take(&mut retired.dirty) {
            let cleaned = match retired.verb {
                Verb::Donate => self.view.give_up(&mut run).map(|()| 0),
                _ if own => {
                    let pages = self.view.written_pages(&run, self.host);
                    self.view.disown(&mut run, pages != Some(0)).map(|()| pages.unwrap_or(0))
                }
                _ => Ok(0),
            };
            match cleaned {
                // Somebody has tried to write to them, or may: such slots never go back.
                Ok(_) if retired.verb == Verb::Loan && !self.view.let_go(&run) => retired.lost = true,
                Ok(pages) => {
                    retired.pages += pages;
                    retired.runs.push(run);
                }
                Err(_) => retired.dirty.push((run, own)),
            }
        }
    }

    fn give(&self, runs: Vec<Run>) {
        runs.into_iter().for_each(|run| self.view.slots().give(run));
    }

    /// Acknowledges a message that took no slots.
    pub(crate) fn release_sealed(&self, sequence: u64, bytes: u64) {
        self.discharge(bytes);
        let mut state = self.lock();
        self.ack(&mut state, sequence, 0);
    }

    fn release_retired(&self, state: &mut State) {
        if state.retired.is_empty() {
            return;
        }
        for mut retired in core::mem::take(&mut state.retired) {
            self.clean(&mut retired);
            self.give_back(state, retired);
        }
    }

    /// Says that this side takes no more.
    pub(crate) fn bye(&self) {
        if self.is_ours() {
            let _ = socket::send(self.socket(), &Note::Bye.bytes(), &[]);
        }
    }

    /// Takes the notes that have come over the socket; whether all of them.
    fn read_notes(&self, state: &mut State) -> bool {
        let mut bytes = [0; 2 * Note::BYTES];
        for _ in 0..Note::MAX_AT_A_TIME {
            let packet = match socket::recv(self.socket(), &mut bytes) {
                Ok(Came::Nothing) => return true,
                Ok(Came::Packet(packet)) => packet,
                Ok(Came::End) => {
                    end(state, PeerFault::Dead.into());
                    return true;
                }
                Err(failed) => {
                    end(state, failed.into());
                    return true;
                }
            };
            if packet.fds_cut && !planted!(NoControlCheck) {
                state.fault = Some(Broken::DescriptorsLost.into());
                return true;
            }
            if packet.strange {
                state.fault = Some(Broken::NOT_MEMORY.into());
                return true;
            }
            let mut fds = packet.fds;
            match Note::parse(&bytes[..packet.len]) {
                Some(Note::Wake) if fds.is_empty() => (),
                Some(Note::Bye) if fds.is_empty() => end(state, PeerFault::Dead.into()),
                Some(Note::Evicted) if fds.is_empty() => end(state, PeerFault::Evicted.into()),
                Some(Note::Object(number)) if fds.len() == 1 && self.expects(state, number) => {
                    state.objects.extend(fds.pop().map(|fd| (number, fd)));
                }
                _ => {
                    state.fault = Some(Broken::Handshake("a note has no meaning").into());
                    return true;
                }
            }
        }
        false
    }

    /// Sealed memory comes with a number of a message that has not come; so there is never more of it than
    /// the ring has cells.
    fn expects(&self, state: &State, number: u64) -> bool {
        let next = state.ring.next_sequence();
        let last = next.saturating_add(u64::from(state.ring.geometry().capacity));
        // It was sent before its message and after the one before: a peer cannot have this side hold descriptors of
        // messages that it does not publish.
        (next..last).contains(&number)
            && state.ring.has_published(number)
            && !state.objects.contains_key(&number)
    }

    /// The next message, waited for until `until`; `None` when the time is up.
    pub(crate) fn recv(&self, until: Option<Instant>) -> Result<Option<Arrival>, Error> {
        let mut spin = Spin::new(self.config.spin);
        loop {
            if let Some(arrival) = self.try_recv()? {
                return Ok(Some(arrival));
            }
            match spin.next(until) {
                Next::Late => {
                    // Whoever never waits still has to see that the peer is gone.
                    self.read_notes(&mut self.lock());
                    return self.try_recv();
                }
                Next::Socket => {
                    self.read_notes(&mut self.lock());
                }
                Next::Ring => (),
                Next::Sleep => {
                    self.sleep(until)?;
                    spin.slept();
                }
            }
        }
    }

    /// Waits for the socket. What has come over it is taken before and not after: who is woken finds a message in the
    /// ring, and the note that woke it is taken while the peer works on what comes next.
    fn sleep(&self, until: Option<Instant>) -> Result<(), Error> {
        widen!(NoSecondLook);
        let mut state = self.lock();
        let all = self.read_notes(&mut state);
        state.ring.begin_sleep();
        let has_message = state.ring.has_message() && !planted!(NoSecondLook);
        let awake = !all || has_message || state.ended.is_some() || state.fault.is_some();
        // What was retired comes back when a child ends, of which nobody tells.
        let until = match state.retired.is_empty() {
            true => until,
            false => {
                let soon = Instant::now() + RETIRED_POLL;
                Some(until.map_or(soon, |until| until.min(soon)))
            }
        };
        drop(state);
        let waited = if awake { Ok(()) } else { self.wait_readable(until) };
        self.lock().ring.end_sleep();
        waited
    }

    /// Says that somebody polls the socket from now on, until the next look at the ring. Whether there is a reason to
    /// look at once. Notes that are left in the socket are none: they end the poll.
    pub(crate) fn watch(&self) -> bool {
        let mut state = self.lock();
        self.read_notes(&mut state);
        state.ring.begin_sleep();
        let look = state.ring.has_message() || state.ended.is_some() || state.fault.is_some();
        if look {
            state.ring.end_sleep();
        }
        state.watching = !look;
        look
    }

    /// Says that this side is about to sleep, for somebody who polls the socket. Whether there is a reason not to.
    #[cfg(feature = "tokio")]
    pub(crate) fn begin_sleep(&self) -> bool {
        let state = self.lock();
        state.ring.begin_sleep();
        state.ring.has_message() || state.ended.is_some()
    }

    /// This side is awake: takes what has come over the socket; whether all of it.
    #[cfg(feature = "tokio")]
    pub(crate) fn end_sleep(&self) -> bool {
        let mut state = self.lock();
        state.ring.end_sleep();
        self.read_notes(&mut state)
    }

    fn wait_readable(&self, until: Option<Instant>) -> Result<(), Error> {
        match socket::wait_readable(&[self.socket()], until) {
            Err(failed) if failed.errno != Errno::AGAIN => Err(failed.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for RecvShared {
    fn drop(&mut self) {
        // A child may still see what was retired. The sender uses those slots again when the socket hangs up,
        // so it stays open.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let seen = state.retired.iter().any(|retired| fork::fenced_since(retired.born));
        if self.generation == fork::generation() && seen {
            self.socket.leave_open();
        }
    }
}

/// Times that notes are taken from the socket while one of them is missed: more of them than a socket holds.
const MAX_BATCHES: usize = 256;

/// How often a receiver that sleeps looks whether a child has ended.
const RETIRED_POLL: std::time::Duration = std::time::Duration::from_millis(5);

/// The peer publishes no more.
fn end(state: &mut State, why: Error) {
    state.ended.get_or_insert(why);
}
