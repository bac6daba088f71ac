//! The two pages of counters between a sender and a receiver, and the cells behind them.
//!
//! # What it holds
//! Two areas of 64-bit words. The sender alone writes *forward*: descriptors, and how many are published. The
//! receiver alone writes *reverse*: acknowledgements and how many there are. Each maps the other's area for
//! reading, so a peer can lie to us and cannot corrupt us. [`Outbox`] is the sender's side of both, [`Inbox`]
//! the receiver's.
//!
//! Every word of either area is read and written as an atomic, and a cell is read once, into registers: what
//! was checked is what is used. Whatever decides safety (how many are published, taken, acknowledged) is
//! counted again in private memory, and the peer's counters are only held against it. A counter that goes
//! backward, or further than can be, is a [`RingFault`].
//!
//! # Order
//! *Publish*: the words of the cell (relaxed), then the counter (release). *Look*: the counter (relaxed, for
//! memory that is mapped read-only allows no more), a fence (acquire), then the words. The bytes of a message
//! are stored before it is published, so the same pair orders them.
//!
//! # Sleeping
//! Who wants to sleep sets `asleep` in its own area, passes a SeqCst fence, looks once more, and only then
//! waits for the socket. Who publishes passes a SeqCst fence after the counter and looks at the peer's
//! `asleep`. One of the two sees the other, so no wake-up is lost.
//!
//! # How full
//! Every message is acknowledged once, in any order, and at most `capacity` are not. So the acknowledgements
//! never run over. Messages are taken in order, and what is acknowledged was taken: when `n - capacity + 1`
//! are acknowledged, message `n - capacity` was taken, and message `n` may have its cell. A receiver that
//! acknowledges what it has not taken reads its own messages wrong, and nobody else's.
//!
//! # Locks
//! None here. The owner of a side calls it from one thread at a time.

#![allow(unsafe_code, reason = "words of mapped memory; each block says why it is sound")]

mod fault;
#[cfg(all(test, loom, feature = "verify"))]
mod loom;
mod memory;
mod shape;
#[cfg(all(test, not(loom)))]
mod tests;

pub use fault::RingFault;
pub(crate) use memory::{Area, Mapped, RingMemory};
pub use shape::{ACK_WORDS, DESCRIPTOR_WORDS, RingGeometry};
use shape::{ASLEEP, COUNTERS, PUBLISHED};

#[cfg(all(test, loom))]
pub(crate) use ::loom::sync::atomic::{Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{Ordering, fence};

/// As many messages are out as there are cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingFull;

/// The sender's side.
#[derive(Debug)]
pub(crate) struct Outbox<M> {
    geometry: RingGeometry,
    forward: M,
    reverse: M,
    published: u64,
    /// Acknowledgements that were read.
    acks: u64,
}

impl<M: Area> Outbox<M> {
    /// `forward` is writable and zero, `reverse` the peer's.
    pub(crate) fn new(geometry: RingGeometry, forward: M, reverse: M) -> Outbox<M> {
        Outbox { geometry, forward, reverse, published: 0, acks: 0 }
    }

    pub(crate) fn geometry(&self) -> RingGeometry {
        self.geometry
    }

    pub(crate) fn forward(&self) -> &M {
        &self.forward
    }

    /// The sequence number of the next message, where a cell is free.
    pub(crate) fn next_sequence(&self) -> Result<u64, RingFull> {
        if self.published - self.acks < u64::from(self.geometry.capacity) {
            Ok(self.published)
        } else {
            Err(RingFull)
        }
    }

    /// Messages that were published.
    pub(crate) fn published(&self) -> u64 {
        self.published
    }

    /// Messages that are not acknowledged, as far as this side has read.
    pub(crate) fn out(&self) -> u64 {
        self.published - self.acks
    }

    /// Publishes a descriptor in the cell that [`Outbox::next_sequence`] has named. Whether the receiver must
    /// be woken.
    pub(crate) fn publish(&mut self, words: [u64; DESCRIPTOR_WORDS]) -> bool {
        let cell = COUNTERS + self.geometry.cell(self.published) * DESCRIPTOR_WORDS;
        for (index, word) in words.into_iter().enumerate() {
            self.forward.store(cell + index, word);
        }
        self.published += 1;
        self.forward.release(PUBLISHED, self.published);
        fence(Ordering::SeqCst);
        self.reverse.load(ASLEEP) != 0 && !planted!(NoWake)
    }

    /// The next acknowledgement.
    pub(crate) fn next_ack(&mut self) -> Result<Option<[u64; ACK_WORDS]>, RingFault> {
        let now = self.reverse.load(PUBLISHED);
        if now == self.acks {
            return Ok(None);
        }
        fence(Ordering::Acquire);
        let out = self.out();
        if now.checked_sub(self.acks).is_none_or(|fresh| fresh > out) && !planted!(NoCounterCheck) {
            return Err(RingFault::Acknowledged { before: self.acks, now, out });
        }
        let cell = COUNTERS + self.geometry.cell(self.acks) * ACK_WORDS;
        let words = core::array::from_fn(|index| self.reverse.load(cell + index));
        self.acks += 1;
        Ok(Some(words))
    }

    /// Whether an acknowledgement waits, or the counter is out of order.
    pub(crate) fn has_ack(&self) -> bool {
        self.reverse.load(PUBLISHED) != self.acks
    }

    /// Says that this side is about to sleep. Look once more, then wait.
    pub(crate) fn begin_sleep(&self) {
        self.forward.store(ASLEEP, 1);
        fence(Ordering::SeqCst);
    }

    /// This side is awake.
    pub(crate) fn end_sleep(&self) {
        self.forward.store(ASLEEP, 0);
    }
}

/// The receiver's side.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    geometry: RingGeometry,
    forward: M,
    reverse: M,
    taken: u64,
    acks: u64,
}

impl<M: Area> Inbox<M> {
    /// `reverse` is writable and zero, `forward` the peer's.
    pub(crate) fn new(geometry: RingGeometry, forward: M, reverse: M) -> Inbox<M> {
        Inbox { geometry, forward, reverse, taken: 0, acks: 0 }
    }

    pub(crate) fn geometry(&self) -> RingGeometry {
        self.geometry
    }

    pub(crate) fn forward(&self) -> &M {
        &self.forward
    }

    /// The sequence number of the next message.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.taken
    }

    /// Whether all messages before this number are published, as the peer says.
    pub(crate) fn has_published(&self, before: u64) -> bool {
        self.forward.load(PUBLISHED) >= before
    }

    /// Whether a message waits, or the counter is out of order.
    pub(crate) fn has_message(&self) -> bool {
        self.forward.load(PUBLISHED) != self.taken
    }

    /// The next descriptor, read once. Its cell stays in use until [`Inbox::taken`].
    pub(crate) fn peek(&self) -> Result<Option<[u64; DESCRIPTOR_WORDS]>, RingFault> {
        let now = self.forward.load(PUBLISHED);
        if now == self.taken {
            return Ok(None);
        }
        fence(Ordering::Acquire);
        let capacity = self.geometry.capacity;
        let can_be = now > self.taken && now - self.acks <= u64::from(capacity);
        if !can_be && !planted!(NoCounterCheck) {
            return Err(RingFault::Published { before: self.taken, now, capacity });
        }
        let cell = COUNTERS + self.geometry.cell(self.taken) * DESCRIPTOR_WORDS;
        Ok(Some(core::array::from_fn(|index| self.forward.load(cell + index))))
    }

    /// The descriptor that was looked at is done with. The sender uses its cell again when enough is acknowledged.
    pub(crate) fn taken(&mut self) {
        self.taken += 1;
    }

    /// Acknowledges a message. Whether the sender must be woken. The caller acknowledges each message that it
    /// has taken once.
    pub(crate) fn ack(&mut self, words: [u64; ACK_WORDS]) -> bool {
        let cell = COUNTERS + self.geometry.cell(self.acks) * ACK_WORDS;
        for (index, word) in words.into_iter().enumerate() {
            self.reverse.store(cell + index, word);
        }
        self.acks += 1;
        self.reverse.release(PUBLISHED, self.acks);
        fence(Ordering::SeqCst);
        self.forward.load(ASLEEP) != 0 && !planted!(NoWake)
    }

    /// Says that this side is about to sleep. Look once more, then wait.
    pub(crate) fn begin_sleep(&self) {
        self.reverse.store(ASLEEP, 1);
        fence(Ordering::SeqCst);
    }

    /// This side is awake.
    pub(crate) fn end_sleep(&self) {
        self.reverse.store(ASLEEP, 0);
    }
}
