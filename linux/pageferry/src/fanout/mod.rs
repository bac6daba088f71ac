//! One pool, many receivers.
//!
//! # What it holds
//! [`Fanout`] fills a buffer once and lends it to all receivers: no copy for each, and one freeze for all of
//! them. Each receiver has a channel of its own to it. How many of them still read a buffer is counted in the
//! sender's private memory; the last one that gives it back frees it.
//!
//! # Who sees what
//! All receivers map the same pool, so each can read every message, those for others and old ones too.
//! Receivers that must not see each other's messages have channels of their own, or a fan-out at
//! [`Level::Sealed`], where a message is memory of its own that only its receivers get.
//!
//! # A slow receiver
//! [`Slow`] says what happens to a receiver that gives nothing back: the sender waits for it and gives it up
//! after a time, or goes on, and the receiver misses the oldest messages that it has not been sent. What a
//! receiver has been sent and still reads stays as it is in any case: its slots are used again when it gives
//! them back, or is gone.
//!
//! # Locks
//! None of its own; one thread at a time uses a fan-out.

use crate::channel::{
    Config, FannedSlots, Offer, Offered, Outgoing, Peer, Receiver, SendShared, SharedMemory, Store, Welcomed,
    own,
};
use crate::error::{Error, Usage};
use crate::host::Host;
use crate::sync::Instant;
use crate::sys::socket::{self, For, Socket};
use crate::trust::Same;
use crate::view::{Draft, Reuse, SenderView, Snapshot};
use crate::wire::{Descriptor, Level, Verb};
use rustix::fd::{AsFd as _, OwnedFd};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// What happens when a receiver does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// The sender waits for it, and gives it up when it has given nothing back for so long: it gets no more,
    /// and is told ([`crate::PeerFault::Evicted`]).
    Wait(Duration),
    /// The sender goes on. So many messages wait for the receiver, at most, while it holds `window` of them;
    /// of more, the oldest is dropped.
    DropOldest {
        /// Messages that a receiver holds at a time, at most: at least 1, and so few that the pool has slots
        /// for all receivers and one to fill.
        window: usize,
        /// Messages that wait for it.
        backlog: usize,
    },
}

/// A sender to many.
#[derive(Debug)]
pub struct Fanout {
    view: Arc<SenderView>,
    host: &'static Host,
    config: Config,
    level: Level,
    slow: Slow,
    members: Vec<Member>,
    /// Receivers that get no more, and still hold something.
    leaving: Vec<Arc<SendShared>>,
    next: u64,
    evicted: Vec<u64>,
    dropped: u64,
}

/// A receiver, as its sender knows it.
#[derive(Debug)]
struct Member {
    number: u64,
    shared: Arc<SendShared>,
    backlog: VecDeque<Shot>,
}

/// A message, for any of the receivers.
#[derive(Clone, Debug)]
struct Shot {
    memory: Memory,
    len: usize,
    tag: u64,
}

#[derive(Clone, Debug)]
enum Memory {
    Slots(Arc<FannedSlots>),
    Sealed(Arc<Snapshot>),
}

/// A buffer that is lent to many. The sender may read it. Its slots are free when all have given it back and
/// this token is gone.
#[derive(Debug)]
#[must_use = "dropping it lets the memory come home by itself"]
pub struct Fan {
    shot: Shot,
}

impl Fan {
    /// Receivers that still read it, or wait for it, as far as the fan-out has looked.
    pub fn readers(&self) -> usize {
        match &self.shot.memory {
            Memory::Slots(fanned) => Arc::strong_count(fanned) - 1,
            Memory::Sealed(snapshot) => Arc::strong_count(snapshot) - 1,
        }
    }
}

impl Deref for Fan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.shot.memory {
            Memory::Slots(fanned) => fanned.bytes(self.shot.len),
            Memory::Sealed(snapshot) => &snapshot.bytes()[..self.shot.len],
        }
    }
}

impl Fanout {
    /// Makes the pool. `config.level` is [`Level::Mmu`], [`Level::Typed`] or [`Level::Sealed`].
    pub fn new(config: Config, slow: Slow) -> Result<Fanout, Error> {
        if let Slow::DropOldest { window: 0, .. } = slow {
            return Err(Usage::Config { key: "window", value: 0, expected: "1 or more".to_owned() }.into());
        }
        let host = Host::get();
        let level = Offer::to_many(&config, host)?.level();
        let view = SenderView::new(config.shapes(host)?.1, host)?;
        view.seal()?;
        Ok(Fanout {
            view: Arc::new(view),
            host,
            level,
            config,
            slow,
            members: Vec::new(),
            leaving: Vec::new(),
            next: 0,
            evicted: Vec::new(),
            dropped: 0,
        })
    }

    /// Adds the receiver at the other end of a socket ([`crate::Channel::receiver`],
    /// [`crate::Parent::receiver`]). Waits for it. Says its number.
    pub fn add(&mut self, socket: OwnedFd) -> Result<u64, Error> {
        let shared = self.offer(own(socket)?)?.settle()?.finish()?;
        Ok(self.enter(shared))
    }

    /// Adds a receiver in this process.
    pub fn receiver(&mut self) -> Result<Receiver<Same>, Error> {
        let (ours, theirs) = Socket::pair()?;
        let offered = self.offer(ours)?;
        let welcomed = Welcomed::welcome(theirs, self.config.clone(), Peer::Same)?;
        let concluded = offered.settle()?;
        let receive = welcomed.ready()?;
        let shared = concluded.finish()?;
        self.enter(shared);
        Ok(Receiver::new(receive))
    }

    fn offer(&self, socket: Socket) -> Result<Offered, Error> {
        if let Slow::DropOldest { window, .. } = self.slow {
            let receivers = self.members.len() + self.leaving.len() + 1;
            let slots = self.view.geometry().slots as usize;
            if self.level != Level::Sealed && window.saturating_mul(receivers) >= slots {
                let expected =
                    format!("fewer than the pool's {slots} slots for all {receivers} receivers together");
                return Err(Usage::Config { key: "window", value: window as u64, expected }.into());
            }
        }
        let offer = Offer::to_many(&self.config, self.host)?;
        Offered::hello_with(socket, self.config.clone(), offer, Arc::clone(&self.view))
    }

    fn enter(&mut self, shared: Arc<SendShared>) -> u64 {
        self.next += 1;
        self.members.push(Member { number: self.next, shared, backlog: VecDeque::new() });
        self.next
    }

    #[cfg(all(test, shuttle, feature = "verify"))]
    pub(crate) fn view(&self) -> &Arc<SenderView> {
        &self.view
    }

    /// Receivers that get messages.
    pub fn receivers(&self) -> usize {
        self.members.len()
    }

    /// Receivers that were given up since this was last asked.
    pub fn take_evicted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.evicted)
    }

    /// Messages that some receiver has missed, counted for each.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Slots that are buffers, or lent.
    pub fn slots_taken(&self) -> u32 {
        self.view.slots().taken()
    }

    /// Memory for a message. Waits while receivers hold what there is.
    pub fn buffer(&mut self, len: usize) -> Result<FanBuffer, Error> {
        let slots = self.view.geometry().slots_for(len)?;
        if self.level == Level::Sealed {
            return Ok(FanBuffer {
                store: Some(Store::Draft(Draft::new(len, self.host)?)),
                view: Arc::clone(&self.view),
                len,
            });
        }
        let mut since = Instant::now();
        loop {
            self.view.freed().withdraw();
            self.pump();
            self.view.freed().want();
            if let Some(mut run) = self.view.slots().take(slots, Reuse::default()) {
                self.view.freed().withdraw();
                if let Err(error) = self.view.open(&mut run) {
                    self.view.give(run);
                    return Err(error);
                }
                return Ok(FanBuffer { store: Some(Store::Slots(run)), view: Arc::clone(&self.view), len });
            }
            let out: usize = self.everybody().map(|shared| shared.out()).sum();
            if out == 0 {
                return Err(Usage::AllHeldHere.into());
            }
            self.wait(&mut since)?;
        }
    }

    fn everybody(&self) -> impl Iterator<Item = &Arc<SendShared>> {
        self.members.iter().map(|member| &member.shared).chain(&self.leaving)
    }

    /// Lends a buffer to all receivers.
    pub fn loan(&mut self, buffer: FanBuffer) -> Result<Fan, Error> {
        self.loan_tagged(buffer, 0)
    }

    /// The same, with a number for the receivers.
    pub fn loan_tagged(&mut self, mut buffer: FanBuffer, tag: u64) -> Result<Fan, Error> {
        if !Arc::ptr_eq(&buffer.view, &self.view) {
            return Err(Usage::OtherChannel.into());
        }
        let len = buffer.len;
        let memory = match buffer.store.take() {
            Some(Store::Slots(run)) => {
                if self.level == Level::Mmu
                    && let Err(error) = self.view.freeze(&run, self.config.copy_on_write)
                {
                    buffer.store = Some(Store::Slots(run));
                    return Err(error);
                }
                Memory::Slots(Arc::new(FannedSlots::new(Arc::clone(&self.view), run)))
            }
            Some(Store::Draft(draft)) => {
                Memory::Sealed(Arc::new(draft.seal(self.host, self.config.copy_on_write)?))
            }
            None => return Err(Usage::Empty.into()),
        };
        let shot = Shot { memory, len, tag };
        for member in &mut self.members {
            member.backlog.push_back(shot.clone());
        }
        self.pump();
        if let Slow::Wait(_) = self.slow {
            let mut since = Instant::now();
            while self.members.iter().any(|member| !member.backlog.is_empty()) {
                self.wait(&mut since)?;
                self.pump();
            }
        }
        Ok(Fan { shot })
    }

    /// Sends what waits for receivers that have given something back since. A fan-out that drops the oldest
    /// does so in every call; call this when nothing is to be sent for a while.
    pub fn pump(&mut self) {
        let (window, backlog) = match self.slow {
            Slow::Wait(_) => (usize::MAX, usize::MAX),
            Slow::DropOldest { window, backlog } => (window, backlog),
        };
        let mut gone = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.shared.look().is_err() {
                gone.push(index);
                continue;
            }
            while member.shared.out() < window
                && let Some(shot) = member.backlog.front()
            {
                match publish(&member.shared, shot, self.level) {
                    Ok(true) => member.backlog.pop_front(),
                    Ok(false) => break,
                    Err(_) => {
                        gone.push(index);
                        break;
                    }
                };
            }
            while member.backlog.len() > backlog {
                member.backlog.pop_front();
                self.dropped += 1;
            }
        }
        for index in gone.into_iter().rev() {
            self.leaving.push(self.members.remove(index).shared);
        }
        self.leaving.retain(|shared| {
            let _ = shared.look();
            shared.out() > 0
        });
    }

    /// Waits until somebody has given something back. Who keeps all waiting for too long is given up.
    fn wait(&mut self, since: &mut Instant) -> Result<(), Error> {
        let until = match self.slow {
            Slow::Wait(stall) => since.checked_add(stall),
            Slow::DropOldest { .. } => None,
        };
        let before: usize = self.everybody().map(|shared| shared.out()).sum();
        let awake = self.everybody().any(|shared| shared.begin_sleep());
        if !awake {
            let freed = self.view.freed();
            let mut polled: Vec<_> =
                self.everybody().map(|shared| (shared.socket(), shared.waits_for())).collect();
            polled.push((freed.as_fd(), For::Reading));
            let waited = socket::wait(&polled, until);
            if waited.as_ref().is_ok_and(|ready| ready.last() == Some(&true)) {
                freed.seen();
            }
            self.everybody().for_each(|shared| {
                let _ = shared.end_sleep();
            });
            waited?;
        } else {
            self.everybody().for_each(|shared| {
                let _ = shared.end_sleep();
            });
        }
        let after: usize = self.everybody().map(|shared| shared.out()).sum();
        let now = Instant::now();
        if after < before {
            *since = now;
        } else if until.is_some_and(|until| until <= now) {
            self.evict_slowest();
            *since = now;
        }
        Ok(())
    }

    /// Gives up those that hold most.
    fn evict_slowest(&mut self) {
        let max = self.members.iter().map(|member| member.shared.out()).max().unwrap_or(0);
        if max == 0 {
            return;
        }
        let (slowest, others) =
            self.members.drain(..).partition(|member: &Member| member.shared.out() == max);
        self.members = others;
        for member in slowest {
            member.shared.evict();
            self.evicted.push(member.number);
            self.leaving.push(member.shared);
        }
    }
}

impl Drop for Fanout {
    fn drop(&mut self) {
        self.members.iter().for_each(|member| member.shared.bye());
    }
}

/// Publishes a message to one receiver; whether there was room.
fn publish(shared: &SendShared, shot: &Shot, level: Level) -> Result<bool, Error> {
    let settled = shared.settled.level;
    let (verb, level) = if settled == Level::Copy { (Verb::Copy, Level::Copy) } else { (Verb::Loan, level) };
    let descriptor = Descriptor::new(verb, level, shot.len, shot.tag);
    let outgoing = match &shot.memory {
        Memory::Slots(fanned) => {
            let descriptor = descriptor.in_slots(fanned.slots());
            Outgoing { kept: Some(Arc::<FannedSlots>::clone(fanned)), ..Outgoing::new(descriptor) }
        }
        Memory::Sealed(snapshot) => {
            let object = Some((snapshot.fd(), snapshot.len() as u64));
            let kept: Option<Arc<dyn SharedMemory>> = Some(Arc::<Snapshot>::clone(snapshot));
            Outgoing { object, kept, ..Outgoing::new(descriptor) }
        }
    };
    Ok(shared.publish(outgoing, Some(Instant::now()))?.is_some())
}

/// Memory of a fan-out, to be filled and lent.
#[derive(Debug)]
pub struct FanBuffer {
    view: Arc<SenderView>,
    store: Option<Store>,
    len: usize,
}

impl Deref for FanBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.store.as_ref().map_or(&[], |store| store.bytes(&self.view, self.len))
    }
}

impl std::ops::DerefMut for FanBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (view, len) = (&self.view, self.len);
        self.store.as_mut().map_or(&mut [], |store| store.bytes_mut(view, len))
    }
}

impl Drop for FanBuffer {
    fn drop(&mut self) {
        if let Some(Store::Slots(run)) = self.store.take() {
            self.view.give(run);
        }
    }
}
