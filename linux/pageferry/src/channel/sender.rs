//! The sender's end.

use super::buffer::{Buffer, Lent, LentStore, Sharing, Store, Zeroed};
use super::loan::Loan;
use super::send::{Outgoing, SendCounters, SendShared};
use crate::choose::Arrived;
use crate::error::{Error, Usage};
use crate::sync::Instant;
use crate::trust::{Same, Trust};
use crate::view::{Run, Snapshot};
use crate::wire::{Descriptor, Level, Verb};
use core::cell::Cell;
use core::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The sending end of a channel. One thread at a time uses it; it can move to another.
#[derive(Debug)]
pub struct Sender<T: Trust = Same> {
    shared: Arc<SendShared>,
    _trust: PhantomData<fn() -> T>,
    _not_sync: PhantomData<Cell<()>>,
}

impl<T: Trust> Sender<T> {
    pub(crate) fn new(shared: Arc<SendShared>) -> Sender<T> {
        Sender { shared, _trust: PhantomData, _not_sync: PhantomData }
    }

    /// Memory for a message of `len` bytes. Waits while the receiver holds what there is. At [`Level::Sealed`] it is
    /// new memory, which a thread of the sender's makes ahead once the same size is asked for again.
    pub fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        self.buffer_until(len, None)
    }

    /// The same, without waiting: [`Error::WouldBlock`] when no run of slots is free, and
    /// [`Usage::AllHeldHere`] when none would come back by itself.
    pub fn try_buffer(&self, len: usize) -> Result<Buffer, Error> {
        self.buffer_until(len, Some(Instant::now()))
    }

    /// The same, waiting for `timeout` at most.
    pub fn buffer_timeout(&self, len: usize, timeout: Duration) -> Result<Buffer, Error> {
        timed_out(self.buffer_until(len, Instant::now().checked_add(timeout)), timeout)
    }

    fn buffer_until(&self, len: usize, until: Option<Instant>) -> Result<Buffer, Error> {
        let shared = Arc::clone(&self.shared);
        shared.check_ours()?;
        let store = if shared.settled.level == Level::Sealed && len > 0 {
            // It is memory of its own, not slots of the pool.
            Store::Draft(shared.draft(len)?)
        } else {
            let slots = shared.view.geometry().slots_for(len)?;
            Store::Slots(shared.take(slots, until)?.ok_or(Error::WouldBlock)?)
        };
        Ok(Buffer::new(shared, store, len))
    }

    /// Waits until the ring has room for one more message, for `timeout` at most. The next message that this end
    /// sends does not wait for that, so whoever wants to look around meanwhile loses no buffer.
    pub fn wait_room(&self, timeout: Duration) -> Result<(), Error> {
        self.shared.check_ours()?;
        let room = self.shared.wait_room(Instant::now().checked_add(timeout))?;
        if room { Ok(()) } else { Err(Error::TimedOut(timeout)) }
    }

    pub(crate) fn shared(&self) -> &Arc<SendShared> {
        &self.shared
    }

    pub(crate) fn mine(&self, buffer: &Buffer) -> Result<(), Error> {
        self.shared.check_ours()?;
        if Arc::ptr_eq(&self.shared, &buffer.shared) { Ok(()) } else { Err(Usage::OtherChannel.into()) }
    }

    /// Lends a buffer: the receiver reads it where it is, and what this process stores from now on is its
    /// own. How that is promised, says [`Sender::level`]. Waits while as many messages are out as the ring
    /// has cells.
    pub fn loan(&self, buffer: Buffer) -> Result<Lent, Error> {
        self.loan_tagged(buffer, 0)
    }

    /// The same, with a number for the receiver.
    pub fn loan_tagged(&self, buffer: Buffer, tag: u64) -> Result<Lent, Error> {
        self.loan_or_return(buffer, tag).map_err(|(error, _)| error)
    }

    /// The same; the error brings the buffer back. Others may have its address: where the buffer is dropped, the
    /// next one may be at the same place. On a sealed channel it comes back at another address, or, where memory
    /// for that is not to be had, without bytes.
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    pub fn loan_or_return(&self, buffer: Buffer, tag: u64) -> Result<Lent, (Error, Buffer)> {
        self.loan_until(buffer, tag, None)
    }

    /// The same as [`Sender::loan`], waiting for `timeout` at most. A buffer for which there was no room by then is
    /// free again.
    pub fn loan_timeout(&self, buffer: Buffer, timeout: Duration) -> Result<Lent, Error> {
        let lent = self.loan_timeout_or_return(buffer, 0, timeout);
        lent.map_err(|(error, _)| error)
    }

    /// The same, with a number for the receiver; the error brings the buffer back: see [`Sender::loan_or_return`].
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    pub fn loan_timeout_or_return(
        &self,
        buffer: Buffer,
        tag: u64,
        timeout: Duration,
    ) -> Result<Lent, (Error, Buffer)> {
        let lent = self.loan_until(buffer, tag, Instant::now().checked_add(timeout));
        lent.map_err(|(error, buffer)| (late(error, timeout), buffer))
    }

    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    fn loan_until(
        &self,
        mut buffer: Buffer,
        tag: u64,
        until: Option<Instant>,
    ) -> Result<Lent, (Error, Buffer)> {
        if let Err(error) = self.mine(&buffer) {
            return Err((error, buffer));
        }
        let level = self.shared.settled.level;
        let verb = if level == Level::Copy { Verb::Copy } else { Verb::Loan };
        let descriptor = Descriptor::new(verb, level, buffer.len, tag);
        match buffer.store.take() {
            None => Err((Usage::Empty.into(), buffer)),
            Some(Store::Slots(run)) => {
                let descriptor = descriptor.in_slots(run.place());
                let freeze = level.freezes();
                let late = planted!(FreezeAfterPublish);
                if freeze
                    && !late
                    && let Err(error) = self.shared.view.freeze(&run, self.shared.config.copy_on_write)
                {
                    buffer.store = Some(Store::Slots(run));
                    return Err((error, buffer));
                }
                let lent = self.lend_from(buffer, run, descriptor, false, until)?;
                if let (true, Some(LentStore::Slots(run))) = (freeze && late, &lent.store) {
                    widen!(FreezeAfterPublish);
                    let _ = self.shared.view.freeze(run, self.shared.config.copy_on_write);
                }
                Ok(lent)
            }
            Some(Store::Draft(draft)) => {
                let store = match draft.seal(self.shared.host, self.shared.config.copy_on_write) {
                    Ok(snapshot) => LentStore::Sealed(Arc::new(snapshot)),
                    Err(error) => return Err((error, buffer)),
                };
                self.lend(buffer.len, store, descriptor, false, until).map_err(|(error, store)| {
                    // What is sealed stays so: the buffer is a new one, with the same bytes, where there is memory for
                    // it.
                    if let LentStore::Sealed(snapshot) = store
                        && let Ok(mut draft) = self.shared.draft(buffer.len)
                        && draft.copy_sealed(&snapshot, buffer.len).is_ok()
                    {
                        buffer.store = Some(Store::Draft(draft));
                    }
                    (error, buffer)
                })
            }
        }
    }

    /// Publishes what is in the buffer's slots, which are frozen, hidden or zeros by now. Where that fails they are a
    /// buffer again, and have the bytes that they had; where the kernel refuses that, too, they are nobody's from then
    /// on.
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    fn lend_from(
        &self,
        mut buffer: Buffer,
        run: Run,
        descriptor: Descriptor,
        donated: bool,
        until: Option<Instant>,
    ) -> Result<Lent, (Error, Buffer)> {
        self.lend(buffer.len, LentStore::Slots(run), descriptor, donated, until).map_err(|(error, store)| {
            // Slots that are not open are no buffer: what is stored there would never be sent. Nor are they free, for
            // others may have their address.
            if let LentStore::Slots(mut run) = store
                && self.shared.open(&mut run).is_ok()
            {
                buffer.store = Some(Store::Slots(run));
            }
            (error, buffer)
        })
    }

    /// Publishes what is in `store`, and makes the token for it. The error brings the store back.
    fn lend(
        &self,
        len: usize,
        store: LentStore,
        descriptor: Descriptor,
        donated: bool,
        until: Option<Instant>,
    ) -> Result<Lent, (Error, LentStore)> {
        let object = match &store {
            LentStore::Sealed(snapshot) => Some((snapshot.fd(), snapshot.len() as u64)),
            LentStore::Slots(_) => None,
        };
        let verb = descriptor.verb;
        let outgoing = Outgoing { donated, object, ..Outgoing::new(descriptor) };
        let published = self.shared.publish(outgoing, until);
        match published.and_then(|sequence| sequence.ok_or(Error::WouldBlock)) {
            Ok(sequence) => {
                Ok(Lent { shared: Arc::clone(&self.shared), sequence, store: Some(store), len, verb })
            }
            Err(error) => Err((error, store)),
        }
    }

    /// Lends what was lent once more, unchanged: waits until it is home, and makes no call that a buffer
    /// would need, for it is frozen still.
    pub fn loan_again(&self, lent: Lent) -> Result<Lent, Error> {
        self.loan_again_tagged(lent, 0)
    }

    /// The same, with a number for the receiver.
    pub fn loan_again_tagged(&self, lent: Lent, tag: u64) -> Result<Lent, Error> {
        self.loan_again_or_return(lent, tag).map_err(|(error, _)| error)
    }

    /// The same; the error brings the token back.
    #[allow(clippy::result_large_err, reason = "the error brings the token back")]
    pub fn loan_again_or_return(&self, mut lent: Lent, tag: u64) -> Result<Lent, (Error, Lent)> {
        let can_be = self.shared.check_ours().and_then(|()| {
            if !Arc::ptr_eq(&self.shared, &lent.shared) {
                return Err(Usage::OtherChannel.into());
            }
            if lent.verb != Verb::Loan {
                return Err(Usage::Verb("only a loan is lent again").into());
            }
            self.shared.wait_home(lent.sequence, None).map(drop)
        });
        if let Err(error) = can_be {
            return Err((error, lent));
        }
        let Some(store) = lent.store.take() else { return Err((Usage::Empty.into(), lent)) };
        let mut descriptor = Descriptor::new(Verb::Loan, self.shared.settled.level, lent.len, tag);
        if let LentStore::Slots(run) = &store {
            descriptor = descriptor.in_slots(run.place());
        }
        self.lend(lent.len, store, descriptor, false, None).map_err(|(error, store)| {
            lent.store = Some(store);
            (error, lent)
        })
    }

    /// Sends the same sealed memory once more: nothing is copied and nothing is sealed again.
    pub fn resend(&self, lent: &Lent) -> Result<Lent, Error> {
        self.resend_tagged(lent, 0)
    }

    /// The same, with a number for the receiver.
    pub fn resend_tagged(&self, lent: &Lent, tag: u64) -> Result<Lent, Error> {
        self.shared.check_ours()?;
        let Some(LentStore::Sealed(snapshot)) = &lent.store else {
            return Err(Usage::Verb(
                "only sealed memory is sent again; wait for lent memory and lend it again",
            )
            .into());
        };
        self.send_snapshot(Arc::clone(snapshot), 0, lent.len, tag, None)
    }

    /// Hands a message on. Sealed memory goes as it is, where this channel takes it; anything else is copied.
    pub fn forward(&self, loan: &Loan) -> Result<(), Error> {
        match loan.snapshot() {
            Some((snapshot, offset)) if self.shared.settled.level == Level::Sealed => {
                self.send_snapshot(Arc::clone(snapshot), offset, loan.len(), loan.tag(), None).map(drop)
            }
            _ => self.copy_tagged(loan, loan.tag()),
        }
    }

    /// Seals a buffer that is memory of its own; gives it back where it is not.
    #[cfg(feature = "tokio")]
    pub(crate) fn seal(&self, mut buffer: Buffer) -> Result<Result<Arc<Snapshot>, Buffer>, Error> {
        self.mine(&buffer)?;
        match buffer.store.take() {
            Some(Store::Draft(draft)) => {
                let copy_on_write = self.shared.config.copy_on_write;
                Ok(Ok(Arc::new(draft.seal(self.shared.host, copy_on_write)?)))
            }
            store => {
                buffer.store = store;
                Ok(Err(buffer))
            }
        }
    }

    /// Sends sealed memory, where that can be done without waiting.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_send_sealed(
        &self,
        snapshot: &Arc<Snapshot>,
        len: usize,
    ) -> Result<Option<Lent>, Error> {
        match self.send_snapshot(Arc::clone(snapshot), 0, len, 0, Some(Instant::now())) {
            Err(Error::WouldBlock) => Ok(None),
            sent => sent.map(Some),
        }
    }

    fn send_snapshot(
        &self,
        snapshot: Arc<Snapshot>,
        offset: usize,
        len: usize,
        tag: u64,
        until: Option<Instant>,
    ) -> Result<Lent, Error> {
        self.shared.check_ours()?;
        if self.shared.settled.level != Level::Sealed {
            return Err(Usage::Verb("this channel does not take sealed memory").into());
        }
        let whole = Descriptor::new(Verb::Loan, Level::Sealed, len, tag);
        let descriptor = Descriptor { offset: offset as u64, ..whole };
        let object = Some((snapshot.fd(), snapshot.len() as u64));
        let outgoing = Outgoing { object, ..Outgoing::new(descriptor) };
        let sequence = self.shared.publish(outgoing, until)?.ok_or(Error::WouldBlock)?;
        Ok(Lent {
            shared: Arc::clone(&self.shared),
            sequence,
            store: Some(LentStore::Sealed(snapshot)),
            len,
            verb: Verb::Loan,
        })
    }

    /// Sends bytes by copy: a short message in the ring, a longer one through a slot. Waits while there is no room.
    pub fn copy(&self, bytes: &[u8]) -> Result<(), Error> {
        self.copy_tagged(bytes, 0)
    }

    /// The same, with a number for the receiver.
    pub fn copy_tagged(&self, bytes: &[u8], tag: u64) -> Result<(), Error> {
        self.copy_until(bytes, tag, None)
    }

    /// The same, without waiting.
    pub fn try_copy(&self, bytes: &[u8]) -> Result<(), Error> {
        self.copy_until(bytes, 0, Some(Instant::now()))
    }

    /// The same, waiting for `timeout` at most.
    pub fn copy_timeout(&self, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        self.copy_tagged_timeout(bytes, 0, timeout)
    }

    /// The same, with a number for the receiver.
    pub fn copy_tagged_timeout(&self, bytes: &[u8], tag: u64, timeout: Duration) -> Result<(), Error> {
        timed_out(self.copy_until(bytes, tag, Instant::now().checked_add(timeout)), timeout)
    }

    fn copy_until(&self, bytes: &[u8], tag: u64, until: Option<Instant>) -> Result<(), Error> {
        self.shared.check_ours()?;
        let shape = self.shared.config.shapes(self.shared.host)?.0;
        if bytes.len() <= shape.inline_bytes as usize {
            let descriptor = Descriptor::new(Verb::Inline, Level::Copy, bytes.len(), tag);
            let outgoing = Outgoing { bytes: &[bytes], ..Outgoing::new(descriptor) };
            self.shared.publish(outgoing, until)?.ok_or(Error::WouldBlock)?;
            return Ok(());
        }
        let slots = self.shared.view.geometry().slots_for(bytes.len())?;
        let run = self.shared.take(slots, until)?.ok_or(Error::WouldBlock)?;
        let mut buffer = Buffer::new(Arc::clone(&self.shared), Store::Slots(run), bytes.len());
        buffer.write_learning(bytes, |shared| &shared.copied_stores)?;
        self.copy_buffer_until(buffer, tag, until).map(drop).map_err(|(error, _)| error)
    }

    /// Sends a buffer by copy: the receiver copies it out, and the memory comes home at once.
    pub fn copy_buffer(&self, buffer: Buffer) -> Result<Lent, Error> {
        self.copy_buffer_or_return(buffer, 0).map_err(|(error, _)| error)
    }

    /// The same, with a number for the receiver; the error brings the buffer back: see [`Sender::loan_or_return`].
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    pub fn copy_buffer_or_return(&self, buffer: Buffer, tag: u64) -> Result<Lent, (Error, Buffer)> {
        self.copy_buffer_until(buffer, tag, None)
    }

    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    fn copy_buffer_until(
        &self,
        mut buffer: Buffer,
        tag: u64,
        until: Option<Instant>,
    ) -> Result<Lent, (Error, Buffer)> {
        if let Err(error) = self.mine(&buffer) {
            return Err((error, buffer));
        }
        match buffer.store.take() {
            Some(Store::Slots(run)) => {
                let descriptor =
                    Descriptor::new(Verb::Copy, Level::Copy, buffer.len, tag).in_slots(run.place());
                self.lend_from(buffer, run, descriptor, false, until)
            }
            // A sealed channel's buffers are not in the pool.
            store => {
                buffer.store = store;
                Err((Usage::Verb("on a sealed channel send bytes by `copy`").into(), buffer))
            }
        }
    }

    /// Sends a buffer in the way that is cheapest, by what was measured on this host and seen on this
    /// channel: by copy or as a loan ([`Lent::verb`]). `arrived`: what the receiver will do with it.
    pub fn auto(&self, buffer: Buffer, arrived: Arrived) -> Result<Lent, Error> {
        self.auto_tagged(buffer, arrived, 0)
    }

    /// The same, with a number for the receiver.
    pub fn auto_tagged(&self, buffer: Buffer, arrived: Arrived, tag: u64) -> Result<Lent, Error> {
        self.auto_or_return(buffer, arrived, tag).map_err(|(error, _)| error)
    }

    /// The same; the error brings the buffer back: see [`Sender::loan_or_return`].
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    pub fn auto_or_return(
        &self,
        buffer: Buffer,
        arrived: Arrived,
        tag: u64,
    ) -> Result<Lent, (Error, Buffer)> {
        if let Err(error) = self.mine(&buffer) {
            return Err((error, buffer));
        }
        match self.cheapest(&buffer, arrived, false) {
            Verb::Copy => self.copy_buffer_until(buffer, tag, None),
            _ => self.loan_until(buffer, tag, None),
        }
    }

    fn cheapest(&self, buffer: &Buffer, arrived: Arrived, may_donate: bool) -> Verb {
        if matches!(buffer.store, Some(Store::Draft(_))) || self.shared.settled.level == Level::Copy {
            return Verb::Loan;
        }
        self.shared.choose(buffer.len, buffer.filled, arrived, may_donate)
    }

    /// For whoever waits by `poll`, beside other descriptors. Does `look`, a call that does not wait, such as
    /// [`Sender::try_buffer`]; where that says [`Error::WouldBlock`], this end's descriptor ([`AsFd`]) becomes readable
    /// when the receiver has given something back, or is gone. Look again then, by the same call. Of what this process
    /// itself gives back it does not tell.
    pub fn watch<R>(&self, mut look: impl FnMut(&Sender<T>) -> Result<R, Error>) -> Result<R, Error> {
        match look(self) {
            Err(Error::WouldBlock) => (),
            found => {
                self.shared.unwatch();
                return found;
            }
        }
        self.shared.check_ours()?;
        self.shared.end_sleep();
        self.shared.begin_sleep();
        // What has come back before that told nobody.
        let found = look(self);
        if found.as_ref().err() != Some(&Error::WouldBlock) {
            self.shared.unwatch();
        }
        found
    }

    /// What loans of this channel promise: what was asked for, or what both sides can have here.
    pub fn level(&self) -> Level {
        self.shared.settled.level
    }

    /// Whether huge pages lie behind the pool.
    pub fn huge_pages(&self) -> bool {
        self.shared.view.huge()
    }

    /// What was done so far.
    pub fn counters(&self) -> SendCounters {
        self.shared.counters()
    }

    /// Who was at the other end when the connection was made.
    pub fn peer(&self) -> Result<crate::Credentials, Error> {
        self.shared.check_ours()?;
        Ok(crate::sys::peer::credentials(self.shared.socket())?)
    }
}

impl Sender<Same> {
    /// Gives a buffer away: the receiver alone reads and writes it, where it is. Its slots come back when the
    /// receiver drops it.
    pub fn donate(&self, buffer: Buffer) -> Result<(), Error> {
        self.donate_tagged(buffer, 0)
    }

    /// The same, with a number for the receiver.
    pub fn donate_tagged(&self, buffer: Buffer, tag: u64) -> Result<(), Error> {
        self.donate_or_return(buffer, tag).map_err(|(error, _)| error)
    }

    /// The same; the error brings the buffer back: see [`Sender::loan_or_return`].
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    pub fn donate_or_return(&self, buffer: Buffer, tag: u64) -> Result<(), (Error, Buffer)> {
        let lent = self.give_away(buffer, tag, false)?;
        // Nobody looks at it here any more; the slots are parked until they come home.
        drop(lent);
        Ok(())
    }

    /// The same, and leaves zero memory of the same length in its place.
    pub fn donate_zero(&self, buffer: Buffer) -> Result<Zeroed, Error> {
        self.donate_zero_or_return(buffer, 0).map_err(|(error, _)| error)
    }

    /// The same, with a number for the receiver; the error brings the buffer back: see [`Sender::loan_or_return`].
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    pub fn donate_zero_or_return(&self, buffer: Buffer, tag: u64) -> Result<Zeroed, (Error, Buffer)> {
        Ok(Zeroed { lent: self.give_away(buffer, tag, true)? })
    }

    /// The buffer's slots, where both sides have agreed to a verb that needs the pool.
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    fn slots_for(
        &self,
        mut buffer: Buffer,
        verb: Verb,
        refusal: &'static str,
        sealed: &'static str,
    ) -> Result<(Buffer, Run), (Error, Buffer)> {
        if let Err(error) = self.mine(&buffer) {
            return Err((error, buffer));
        }
        if !self.shared.settled.allows(verb) {
            return Err((Usage::Verb(refusal).into(), buffer));
        }
        match buffer.store.take() {
            Some(Store::Slots(run)) => Ok((buffer, run)),
            store => {
                buffer.store = store;
                Err((Usage::Verb(sealed).into(), buffer))
            }
        }
    }

    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    fn give_away(&self, buffer: Buffer, tag: u64, zero: bool) -> Result<Lent, (Error, Buffer)> {
        let refusal =
            "this channel has no donations: see `Config::donations`, and both sides must trust each other";
        let (mut buffer, mut run) =
            self.slots_for(buffer, Verb::Donate, refusal, "sealed memory is not donated")?;
        let view = &self.shared.view;
        let hidden = if zero { self.shared.zero(&mut run) } else { view.hide(&mut run) };
        let descriptor = Descriptor::new(Verb::Donate, Level::Typed, buffer.len, tag).in_slots(run.place());
        if let Err(error) = hidden {
            buffer.store = Some(Store::Slots(run));
            return Err((error, buffer));
        }
        self.lend_from(buffer, run, descriptor, true, None)
    }

    /// As [`Sender::auto`], for a buffer that is not wanted back: it may also be donated. Says what was done.
    pub fn auto_give(&self, buffer: Buffer, arrived: Arrived) -> Result<Verb, Error> {
        self.auto_give_or_return(buffer, arrived, 0).map_err(|(error, _)| error)
    }

    /// The same, with a number for the receiver; the error brings the buffer back: see [`Sender::loan_or_return`].
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    pub fn auto_give_or_return(
        &self,
        buffer: Buffer,
        arrived: Arrived,
        tag: u64,
    ) -> Result<Verb, (Error, Buffer)> {
        if let Err(error) = self.mine(&buffer) {
            return Err((error, buffer));
        }
        let may_donate = self.shared.settled.allows(Verb::Donate);
        let lent = match self.cheapest(&buffer, arrived, may_donate) {
            Verb::Copy => self.copy_buffer_until(buffer, tag, None)?,
            Verb::Donate => self.give_away(buffer, tag, false)?,
            _ => self.loan_until(buffer, tag, None)?,
        };
        Ok(lent.verb())
    }

    /// Shows a buffer to the receiver while this side goes on to write it.
    pub fn share(&self, buffer: Buffer) -> Result<Sharing, Error> {
        self.share_or_return(buffer, 0).map_err(|(error, _)| error)
    }

    /// The same, with a number for the receiver; the error brings the buffer back: see [`Sender::loan_or_return`].
    #[allow(clippy::result_large_err, reason = "the error brings the buffer back")]
    pub fn share_or_return(&self, buffer: Buffer, tag: u64) -> Result<Sharing, (Error, Buffer)> {
        let refusal = "this channel has no shared memory: both sides must trust each other";
        let (buffer, run) =
            self.slots_for(buffer, Verb::Share, refusal, "sealed memory is not shared: it is lent")?;
        let descriptor = Descriptor::new(Verb::Share, Level::Typed, buffer.len, tag).in_slots(run.place());
        Ok(Sharing { lent: self.lend_from(buffer, run, descriptor, false, None)? })
    }
}

fn timed_out<T>(result: Result<T, Error>, timeout: Duration) -> Result<T, Error> {
    result.map_err(|error| late(error, timeout))
}

/// The error of a call that had so much time.
fn late(error: Error, timeout: Duration) -> Error {
    if error == Error::WouldBlock { Error::TimedOut(timeout) } else { error }
}

impl<T: Trust> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.bye();
        self.shared.prepared.end();
    }
}

impl<T: Trust> AsFd for Sender<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.socket()
    }
}

impl<T: Trust> AsRawFd for Sender<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.socket().as_raw_fd()
    }
}
