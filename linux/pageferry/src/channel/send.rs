//! The sender's state, which its buffers and lent memory share.
//!
//! # What it holds
//! The pool, the sender's side of the ring, and which messages are *out*: sent and not given back. The slots
//! of a message belong to whoever holds its [`super::Lent`]; when that was dropped they are parked here until
//! the message comes home.
//!
//! # Locks
//! One, around the ring and the table of what is out. It is never held while a thread sleeps. Of several
//! threads that wait, one polls the socket, and the others wait for its word on a condition variable.
//!
//! # Death
//! When the peer is gone, or has broken the protocol, nothing more is sent. Lent memory is home at once: the
//! peer could only read it. Memory that was donated is home when the socket hangs up, for a process's memory
//! is gone before its sockets are closed; of a peer that lives and has broken the protocol it stays away.

use super::config::Config;
use super::prepare::Prepared;
use super::settled::Settled;
use super::spin::{Next, Spin};
use crate::choose::{Arrived, Filled, HostCosts, Placement, Question, StoreChoice, WrittenPages, choose};
use crate::error::{Broken, Error, HostFault, PeerFault, Usage};
use crate::host::Host;
use crate::ring::{Mapped, Outbox};
use crate::sync::{self, Condvar, Instant, Mutex, MutexGuard};
use crate::sys::socket::{self, Came, For, Socket};
use crate::sys::{Errno, fork};
use crate::view::{Draft, Reuse, Run, SenderView, Snapshot};
use crate::wire::{Descriptor, Level, Note, Verb};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

/// What a sender, its buffers and its lent memory share.
#[derive(Debug)]
pub(crate) struct SendShared {
    /// It leaves the registry before the socket's number can be another's.
    _registered: fork::Registration,
    socket: Socket,
    generation: u32,
    pub(crate) host: &'static Host,
    /// What choices are made by: read when a channel is made, so that no message waits for it.
    costs: &'static HostCosts,
    pub(crate) config: Config,
    pub(crate) settled: Settled,
    pub(crate) view: Arc<SenderView>,
    /// What was learnt of buffers that are filled by [`super::Buffer::write_from`], and so of where the peer is.
    pub(crate) stores: StoreChoice,
    /// The same of messages that are copied in and out. It says nothing of where the peer is: their slot is always the
    /// one that the peer has just read.
    pub(crate) copied_stores: StoreChoice,
    /// The memory of sealed messages.
    pub(crate) prepared: Prepared,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug)]
struct State {
    ring: Outbox<Mapped>,
    out: HashMap<u64, Out>,
    /// Why nothing more can be sent.
    fault: Option<Error>,
    /// Nothing more will come back either.
    ended: bool,
    /// A thread polls the socket. No other takes notes from it meanwhile: they are what wakes that thread.
    polling: bool,
    /// Threads that wait for what it finds.
    waiting: u32,
    /// Sealed memory could not be sent, since the socket is full.
    wants_room: bool,
    /// Somebody polls the socket beside others ([`SendShared::begin_sleep`]).
    watching: bool,
    /// Messages since the socket was looked at.
    unlooked: u32,
    /// Pages that receivers have written, as they say.
    pages_written: u64,
    /// The same for each loan, smoothed.
    of_a_loan: WrittenPages,
    sealed_bytes: u64,
}

/// A message that is out.
#[derive(Debug, Default)]
struct Out {
    /// Its slots, when nobody here holds them any more.
    parked: Vec<Run>,
    donated: bool,
    /// The receiver reads it where it is, and may write to it.
    lent: bool,
    sealed_bytes: u64,
    /// What it shares with messages to other receivers.
    _kept: Option<Arc<dyn SharedMemory>>,
}

/// A message to be published.
pub(crate) struct Outgoing<'a> {
    /// All but its number, and the number of its sealed memory.
    pub(crate) descriptor: Descriptor,
    pub(crate) donated: bool,
    /// What goes in the ring itself.
    pub(crate) bytes: &'a [&'a [u8]],
    /// Sealed memory, and its bytes: it goes before the message.
    pub(crate) object: Option<(&'a OwnedFd, u64)>,
    /// What several receivers read: it is let go when the message is home.
    pub(crate) kept: Option<Arc<dyn SharedMemory>>,
}

impl<'a> Outgoing<'a> {
    pub(crate) fn new(descriptor: Descriptor) -> Outgoing<'a> {
        Outgoing { descriptor, donated: false, bytes: &[], object: None, kept: None }
    }
}

/// Memory that several receivers read.
pub(crate) trait SharedMemory: core::fmt::Debug + Send + Sync {}

impl SharedMemory for FannedSlots {}
impl SharedMemory for Snapshot {}

/// Slots that several receivers read: free again when the last of them has given them back, and nobody here
/// looks at them.
#[derive(Debug)]
pub(crate) struct FannedSlots {
    view: Arc<SenderView>,
    /// Taken out only by `drop`.
    run: Option<Run>,
    generation: u32,
}

impl FannedSlots {
    pub(crate) fn new(view: Arc<SenderView>, run: Run) -> FannedSlots {
        FannedSlots { view, run: Some(run), generation: fork::generation() }
    }

    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        self.run.as_ref().map_or(&[], |run| self.view.bytes(run, len))
    }

    pub(crate) fn slots(&self) -> (u32, u32) {
        self.run.as_ref().map_or((0, 0), |run| (run.first(), run.slots()))
    }
}

impl Drop for FannedSlots {
    fn drop(&mut self) {
        if let Some(run) = self.run.take()
            && self.generation == fork::generation()
        {
            self.view.give(run);
        }
    }
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Messages sent.
    pub sent: u64,
    /// Messages that are out: sent, and not given back.
    pub out: u64,
    /// Slots that are buffers, lent or donated.
    pub slots_taken: u32,
    /// Pages of lent memory that the receiver has written, and which the kernel therefore copied.
    pub pages_written: u64,
}

/// Messages after which a sender looks whether the peer still lives.
const LOOK_EVERY: u32 = 16;

impl SendShared {
    pub(crate) fn new(
        socket: Socket,
        config: Config,
        settled: Settled,
        view: Arc<SenderView>,
        ring: Outbox<Mapped>,
        registered: fork::Registration,
    ) -> Arc<SendShared> {
        let state = State {
            ring,
            out: HashMap::new(),
            fault: None,
            ended: false,
            polling: false,
            waiting: 0,
            wants_room: false,
            watching: false,
            unlooked: 0,
            pages_written: 0,
            of_a_loan: WrittenPages::default(),
            sealed_bytes: 0,
        };
        let budget = config.max_bytes();
        let room = budget.saturating_sub(view.geometry().bytes() as u64);
        Arc::new(SendShared {
            socket,
            generation: fork::generation(),
            host: Host::get(),
            costs: HostCosts::get(),
            config,
            settled,
            view,
            stores: StoreChoice::default(),
            copied_stores: StoreChoice::default(),
            prepared: Prepared::new(Host::get(), budget, room),
            state: Mutex::new(state),
            news: Condvar::new(),
            _registered: registered,
        })
    }

    /// What of the budget sealed memory may have.
    fn sealed_budget(&self) -> u64 {
        self.config.max_bytes().saturating_sub(self.view.geometry().bytes() as u64)
    }

    /// So much sealed memory is out: what is prepared has the room that is left.
    fn allow(&self, sealed_bytes: u64) {
        self.prepared.allow(self.sealed_budget().saturating_sub(sealed_bytes));
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process is the one that made the channel.
    pub(crate) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    pub(crate) fn check_ours(&self) -> Result<(), Error> {
        if self.is_ours() || planted!(NoForkedCheck) { Ok(()) } else { Err(Usage::Forked.into()) }
    }

    pub(crate) fn counters(&self) -> SendCounters {
        if !self.is_ours() {
            return SendCounters::default();
        }
        let mut state = self.lock();
        self.collect(&mut state);
        SendCounters {
            sent: state.ring.published(),
            out: state.ring.out(),
            slots_taken: self.view.slots().taken(),
            pages_written: state.pages_written,
        }
    }

    /// Slots for a message, and open, if there are any.
    pub(crate) fn try_take(&self, slots: u32) -> Result<Option<Run>, Error> {
        self.check_ours()?;
        let mut state = self.lock();
        self.collect(&mut state);
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        drop(state);
        let Some(mut run) = self.view.slots().take(slots, self.reuse(slots)) else { return Ok(None) };
        if let Err(error) = self.open(&mut run) {
            self.view.give(run);
            return Err(error);
        }
        Ok(Some(run))
    }

    /// Memory for a message that is sealed when it is sent.
    pub(crate) fn draft(&self, len: usize) -> Result<Draft, Error> {
        // What has come back leaves room for what is prepared.
        self.collect(&mut self.lock());
        self.prepared.take(len)
    }

    /// Opens slots that nobody has out. Where the receiver does not let that be, the channel is closed.
    pub(crate) fn open(&self, run: &mut Run) -> Result<(), Error> {
        self.view.open(run).inspect_err(|error| {
            if let Error::Peer(_) = error {
                self.close(&mut self.lock(), error.clone(), false);
            }
        })
    }

    /// Puts zero pages of this process's own in the place of slots, where this host can have the slots again.
    pub(crate) fn zero(&self, run: &mut Run) -> Result<(), Error> {
        if !self.host.alias() {
            return Err(HostFault::Unsupported {
                what: "leaving zero memory in the place of a donation",
                setting: "a kernel on which mremap duplicates shared mappings",
            }
            .into());
        }
        self.view.zero(run)
    }

    /// Slots for a message, waited for until `until`.
    pub(crate) fn take(&self, slots: u32, until: Option<Instant>) -> Result<Option<Run>, Error> {
        if let Some(run) = self.try_take(slots)? {
            return Ok(Some(run));
        }
        let view = &self.view;
        let run = self.wait(until, true, |state| {
            view.freed().want();
            if let Some(run) = view.slots().take(slots, self.reuse(slots)) {
                return Ok(Some(run));
            }
            // Only what is out can come back by itself.
            if state.out.is_empty() { Err(Usage::AllHeldHere.into()) } else { Ok(None) }
        })?;
        let Some(mut run) = run else { return Ok(None) };
        view.freed().withdraw();
        if let Err(error) = self.open(&mut run) {
            self.view.give(run);
            return Err(error);
        }
        Ok(Some(run))
    }

    /// Slots that a far core has read are left alone for as long as can be.
    fn reuse(&self, slots: u32) -> Reuse {
        match self.stores.placement(slots as usize * self.view.geometry().slot_bytes) {
            Placement::Near => Reuse::Near,
            Placement::Far => Reuse::Far,
        }
    }

    /// The cheapest verb for a message.
    pub(crate) fn choose(&self, bytes: usize, filled: bool, arrived: Arrived, may_donate: bool) -> Verb {
        let mut state = self.lock();
        self.collect(&mut state);
        let question = Question {
            bytes,
            arrived,
            filled: if filled { Filled::Anew } else { Filled::Before },
            placement: self.stores.placement(bytes),
            may_donate,
            written: state.of_a_loan,
            huge: self.view.huge(),
        };
        let choice = choose(self.costs, &question);
        state.of_a_loan.way(choice).into()
    }

    /// Gives slots back that were never sent.
    pub(crate) fn give(&self, run: Run) {
        if self.is_ours() {
            self.view.give(run);
        }
    }

    /// Publishes a message, waiting until `until` for a cell of the ring.
    pub(crate) fn publish(
        &self,
        outgoing: Outgoing<'_>,
        until: Option<Instant>,
    ) -> Result<Option<u64>, Error> {
        let Outgoing { mut descriptor, donated, bytes, object, kept } = outgoing;
        self.check_ours()?;
        let published = self.wait(until, true, |state| {
            let Ok(sequence) = state.ring.next_sequence() else { return Ok(None) };
            descriptor.sequence = sequence;
            if let Some((fd, sealed_bytes)) = object {
                descriptor.object = sequence;
                if state.sealed_bytes > 0 && state.sealed_bytes + sealed_bytes > self.sealed_budget() {
                    return Ok(None);
                }
                match socket::send(self.socket(), &Note::Object(sequence).bytes(), &[fd.as_fd()]) {
                    Ok(()) => {
                        state.sealed_bytes += sealed_bytes;
                        self.allow(state.sealed_bytes);
                    }
                    Err(failed) if failed.errno == Errno::AGAIN => {
                        state.wants_room = true;
                        return Ok(None);
                    }
                    Err(failed) if matches!(failed.errno, Errno::PIPE | Errno::CONNRESET) => {
                        self.close(state, PeerFault::Dead.into(), true);
                        return Err(PeerFault::Dead.into());
                    }
                    Err(failed) => return Err(failed.into()),
                }
            }
            let mut at = state.ring.geometry().inline_offset(sequence);
            for piece in bytes {
                state.ring.forward().write_bytes(at, piece);
                at += piece.len();
            }
            let sealed_bytes = object.map_or(0, |(_, bytes)| bytes);
            let lent = descriptor.verb == Verb::Loan && descriptor.level != Level::Sealed;
            let out = Out { parked: Vec::new(), donated, lent, sealed_bytes, _kept: kept.clone() };
            state.out.insert(sequence, out);
            let wake = state.ring.publish(descriptor.words());
            if wake {
                self.wake(state);
            }
            state.unlooked += 1;
            if state.unlooked >= LOOK_EVERY {
                // A look that fails is made up for by the next.
                let _ = self.read_notes(state);
            }
            Ok(Some(sequence))
        })?;
        Ok(published)
    }

    /// Wakes the peer.
    fn wake(&self, state: &mut State) {
        match socket::wake(self.socket(), &Note::Wake.bytes()) {
            Ok(()) => (),
            Err(failed) if matches!(failed.errno, Errno::PIPE | Errno::CONNRESET) => {
                self.close(state, PeerFault::Dead.into(), true);
            }
            Err(failed) => {
                // A receiver that sleeps would do so for ever. The end of what this side sends wakes it too.
                state.fault.get_or_insert(failed.into());
                socket::say_no_more(self.socket());
                self.tell_end(state);
            }
        }
    }

    /// Says that no more will come.
    pub(crate) fn bye(&self) {
        if self.is_ours() {
            socket::send_last(self.socket(), &Note::Bye.bytes());
        }
    }

    /// The slots of a message, which nobody here holds any more: they are free when it is home.
    pub(crate) fn park(&self, sequence: u64, runs: impl Iterator<Item = Run>) {
        if !self.is_ours() {
            return;
        }
        let mut state = self.lock();
        match state.out.get_mut(&sequence) {
            Some(out) => out.parked.extend(runs),
            None => runs.for_each(|run| self.view.give(run)),
        }
    }

    /// Whether a message is home.
    pub(crate) fn is_home(&self, sequence: u64) -> Result<bool, Error> {
        self.check_ours()?;
        let mut state = self.lock();
        self.collect(&mut state);
        if state.out.contains_key(&sequence) {
            // A peer that is gone has given all back.
            self.read_notes(&mut state)?;
        }
        Ok(!state.out.contains_key(&sequence))
    }

    /// Waits until a message is home; whether it is.
    pub(crate) fn wait_home(&self, sequence: u64, until: Option<Instant>) -> Result<bool, Error> {
        self.check_ours()?;
        let home = self.wait(until, false, |state| Ok((!state.out.contains_key(&sequence)).then_some(())))?;
        Ok(home.is_some())
    }

    /// Waits until the ring has room for a message; whether it has.
    pub(crate) fn wait_room(&self, until: Option<Instant>) -> Result<bool, Error> {
        let room = self.wait(until, true, |state| Ok(state.ring.next_sequence().ok()))?;
        Ok(room.is_some())
    }

    /// Takes what has come back.
    fn collect(&self, state: &mut State) {
        loop {
            let ack = match state.ring.next_ack() {
                Ok(None) => return,
                Ok(Some(ack)) => ack,
                Err(fault) => return self.close(state, fault.into(), false),
            };
            let [sequence, pages] = ack;
            match state.out.remove(&sequence) {
                Some(out) => {
                    state.pages_written = state.pages_written.saturating_add(pages);
                    if out.lent {
                        // A hostile count makes this side copy, and nothing worse.
                        state.of_a_loan.learn(pages);
                    }
                    if out.sealed_bytes > 0 {
                        state.sealed_bytes -= out.sealed_bytes;
                        self.allow(state.sealed_bytes);
                    }
                    out.parked.into_iter().for_each(|run| self.view.give(run));
                }
                None if planted!(NoAckCheck) => (),
                None => return self.close(state, Broken::Acknowledgement { sequence }.into(), false),
            }
        }
    }

    /// Nothing more is sent. `gone`: the peer's memory is no more.
    fn close(&self, state: &mut State, fault: Error, gone: bool) {
        state.fault.get_or_insert(fault);
        state.ended = true;
        state.out.retain(|_, out| {
            let stays = out.donated && !gone;
            if !stays {
                out.parked.drain(..).for_each(|run| self.view.give(run));
            }
            stays
        });
        self.tell_end(state);
    }

    /// Takes the notes that have come over the socket; whether all of them. Where the kernel refuses, nothing
    /// is known of the peer: what is out stays out.
    fn read_notes(&self, state: &mut State) -> Result<bool, Error> {
        state.unlooked = 0;
        if state.polling && !planted!(StolenNote) {
            return Ok(true);
        }
        let mut bytes = [0; 2 * Note::BYTES];
        for _ in 0..Note::MAX_AT_A_TIME {
            let packet = match socket::recv(self.socket(), &mut bytes) {
                Ok(Came::Nothing) => return Ok(true),
                Ok(Came::Packet(packet)) => packet,
                Ok(Came::End) => {
                    // What it gave back before it went counts.
                    self.collect(state);
                    self.close(state, PeerFault::Dead.into(), true);
                    return Ok(true);
                }
                Err(failed) => return Err(failed.into()),
            };
            match Note::parse(&bytes[..packet.len]).filter(|_| !packet.strange && !packet.fds_cut) {
                Some(Note::Wake) if packet.fds.is_empty() => (),
                Some(Note::Bye) if packet.fds.is_empty() => {
                    // It takes no more, and what is out comes home when it is given back.
                    state.fault.get_or_insert(PeerFault::Dead.into());
                }
                _ => {
                    self.close(state, Broken::Handshake("a note has no meaning").into(), false);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Waits until `ready` gives something; `None` when the time is up first. `sends`: it begins something
    /// new, which a peer at fault gets no more.
    fn wait<T>(
        &self,
        until: Option<Instant>,
        sends: bool,
        mut ready: impl FnMut(&mut State) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let mut spin = Spin::new(self.config.spin);
        let mut looked = false;
        let mut state = self.lock();
        loop {
            if sends {
                self.view.freed().withdraw();
            }
            self.collect(&mut state);
            if let Some(fault) = &state.fault
                && sends
            {
                return Err(fault.clone());
            }
            if let Some(found) = ready(&mut state)? {
                return Ok(Some(found));
            }
            if let Some(fault) = &state.fault
                && state.ended
            {
                return Err(fault.clone());
            }
            match spin.next(until) {
                Next::Late if looked => return Ok(None),
                Next::Late => {
                    // Whoever never waits still has to see that the peer is gone.
                    looked = true;
                    spin.slept();
                    self.read_notes(&mut state)?;
                }
                Next::Socket => {
                    self.read_notes(&mut state)?;
                }
                Next::Ring => {
                    // Others give memory back meanwhile.
                    drop(state);
                    state = self.lock();
                }
                Next::Sleep => {
                    state = if state.polling {
                        self.wait_for_news(state, until)
                    } else {
                        self.sleep(state, until)?
                    };
                    spin.slept();
                }
            }
        }
    }

    /// Takes what has come back, without waiting. Whether anything more can be sent.
    pub(crate) fn look(&self) -> Result<(), Error> {
        self.check_ours()?;
        let mut state = self.lock();
        if !state.ended {
            self.read_notes(&mut state)?;
        }
        self.collect(&mut state);
        state.fault.clone().map_or(Ok(()), Err)
    }

    /// What somebody who polls several channels waits for in this one.
    pub(crate) fn waits_for(&self) -> For {
        if core::mem::take(&mut self.lock().wants_room) { For::Both } else { For::Reading }
    }

    /// Messages that are out.
    pub(crate) fn out(&self) -> usize {
        self.lock().out.len()
    }

    /// Says that this side is about to sleep, for somebody who polls several channels. Whether there is a
    /// reason not to.
    pub(crate) fn begin_sleep(&self) -> bool {
        let mut state = self.lock();
        state.watching = true;
        state.ring.begin_sleep();
        state.ring.has_ack() || state.ended
    }

    /// This side is awake: takes what has come over the socket; whether all of it.
    pub(crate) fn end_sleep(&self) -> bool {
        let mut state = self.lock();
        state.watching = false;
        self.wake_up(&state);
        let all = if state.ended { Ok(true) } else { self.read_notes(&mut state) };
        self.collect(&mut state);
        all.unwrap_or_else(|error| {
            // Whoever polls would be told so again and again.
            state.fault.get_or_insert(error);
            self.tell_end(&state);
            true
        })
    }

    /// Nobody polls any more, without a look at the socket.
    pub(crate) fn unwatch(&self) {
        let mut state = self.lock();
        if core::mem::take(&mut state.watching) {
            self.wake_up(&state);
        }
    }

    /// Whether the ring has a cell for one more message.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_room(&self) -> Result<bool, Error> {
        self.check_ours()?;
        let mut state = self.lock();
        self.collect(&mut state);
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(state.ring.next_sequence().is_ok()),
        }
    }

    /// Nothing more is sent, and the receiver is told so. What is out comes home when it is given back.
    pub(crate) fn evict(&self) {
        socket::send_last(self.socket(), &Note::Evicted.bytes());
        self.lock().fault.get_or_insert(PeerFault::Dead.into());
    }

    fn wait_for_news<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        state.waiting += 1;
        // The thread that polls does not look for room in the socket.
        let soon = core::mem::take(&mut state.wants_room).then(|| Instant::now() + socket::ROOM_POLL);
        let mut state = match [until, soon].into_iter().flatten().min() {
            None => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = sync::patience(Some(until)).unwrap_or_default();
                sync::wait_timeout(&self.news, &self.state, state, left)
            }
        };
        state.waiting -= 1;
        state
    }

    /// Wakes the threads that wait for the one that polls. It costs a system call even where there is none.
    fn tell_news(&self, state: &State) {
        if state.waiting > 0 {
            self.news.notify_all();
        }
    }

    /// All that wait see that nothing more is sent, or comes back.
    fn tell_end(&self, state: &State) {
        self.tell_news(state);
        if (state.polling || state.watching) && !planted!(NoEndTold) {
            self.view.freed().wake();
        }
    }

    /// This side is awake, but for those that still sleep.
    fn wake_up(&self, state: &State) {
        if !state.polling && !state.watching {
            state.ring.end_sleep();
        }
    }

    /// Polls the socket, for all threads that wait. What has come over it is taken before and not after: who is woken
    /// finds an acknowledgement in the ring, and the note that woke it is taken while the peer works on what comes
    /// next.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>, Error> {
        widen!(NoSecondLook);
        let all = self.read_notes(&mut state)?;
        if !all || state.ended {
            return Ok(state);
        }
        state.ring.begin_sleep();
        let mut waited = Ok(());
        if !state.ring.has_ack() || planted!(NoSecondLook) {
            state.polling = true;
            // Whoever wants room says so again.
            let what = if core::mem::take(&mut state.wants_room) { For::Both } else { For::Reading };
            drop(state);
            widen!(StolenNote);
            let freed = self.view.freed();
            let ready = socket::wait(&[(self.socket(), what), (freed.as_fd(), For::Reading)], until);
            if ready.as_ref().is_ok_and(|ready| ready[1]) {
                freed.seen();
            }
            waited = ready.map(drop);
            state = self.lock();
            if planted!(PollsOn) {
                // The others look, see that somebody polls, and wait.
                self.news.notify_all();
                drop(state);
                widen!(PollsOn);
                state = self.lock();
                state.polling = false;
            } else {
                state.polling = false;
                if !planted!(NoNews) {
                    self.tell_news(&state);
                }
            }
        }
        self.wake_up(&state);
        waited?;
        Ok(state)
    }
}
