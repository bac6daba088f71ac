//! Memory of the sender: to be filled, and lent.

use super::send::SendShared;
use crate::choose::StoreChoice;
use crate::error::{Error, Usage};
use crate::sync::Instant;
use crate::sys::copy::Stores;
use crate::view::{Draft, Run, SenderView, Snapshot};
use crate::wire::Verb;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// Memory to be filled and sent: a run of slots of the channel's pool. A new pool is zero; slots that were
/// used before hold older bytes.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) shared: Arc<SendShared>,
    /// Taken out by sending and by `drop`. A buffer that could not be sent, and whose memory could not be had back, has
    /// none.
    pub(crate) store: Option<Store>,
    pub(crate) len: usize,
    /// It was written since it was last sent.
    pub(crate) filled: bool,
}

/// Where a buffer is.
#[derive(Debug)]
pub(crate) enum Store {
    /// In the pool.
    Slots(Run),
    /// In memory that is sealed when it is sent.
    Draft(Draft),
}

impl Store {
    pub(crate) fn bytes<'a>(&'a self, view: &'a SenderView, len: usize) -> &'a [u8] {
        match self {
            Store::Slots(run) => view.bytes(run, len),
            Store::Draft(draft) => &draft.bytes()[..len],
        }
    }

    pub(crate) fn bytes_mut<'a>(&'a mut self, view: &'a SenderView, len: usize) -> &'a mut [u8] {
        match self {
            Store::Slots(run) => view.bytes_mut(run, len),
            Store::Draft(draft) => &mut draft.bytes_mut()[..len],
        }
    }
}

impl Buffer {
    pub(crate) fn new(shared: Arc<SendShared>, store: Store, len: usize) -> Buffer {
        Buffer { shared, store: Some(store), len, filled: true }
    }

    /// Copies `from` to the start; the buffer's length becomes that of `from`. The channel learns which kind
    /// of stores is faster for it, and uses that.
    pub fn write_from(&mut self, from: &[u8]) -> Result<(), Error> {
        self.shared.check_ours()?;
        self.write_learning(from, |shared| &shared.stores)
    }

    /// The same; what is learnt is kept apart by what is written for.
    pub(crate) fn write_learning(
        &mut self,
        from: &[u8],
        choice: fn(&SendShared) -> &StoreChoice,
    ) -> Result<(), Error> {
        self.fits(from.len() as u64, self.capacity())?;
        self.len = from.len();
        self.put_learning(0, from, choice);
        Ok(())
    }

    fn fits(&self, len: u64, pool: usize) -> Result<(), Error> {
        if len > pool as u64 { Err(Usage::TooLong { len, pool: pool as u64 }.into()) } else { Ok(()) }
    }

    fn put_learning(&mut self, offset: usize, from: &[u8], choice: fn(&SendShared) -> &StoreChoice) {
        let (stores, timed) = choice(&self.shared).pick(from.len());
        let began = timed.then(Instant::now);
        self.put(offset, from, stores);
        if let Some(began) = began {
            choice(&self.shared).learn(from.len(), stores, began.elapsed());
        }
    }

    fn put(&mut self, offset: usize, from: &[u8], stores: Stores) {
        self.filled = true;
        let view = &self.shared.view;
        match &mut self.store {
            Some(Store::Slots(run)) => view.copy_in(run, offset, from, stores),
            Some(Store::Draft(draft)) => draft.copy_in(offset, from, stores),
            None => (),
        }
    }

    /// The same, by stores of one's choice.
    pub fn write_with(&mut self, from: &[u8], stores: Stores) -> Result<(), Error> {
        self.fits(from.len() as u64, self.capacity())?;
        self.len = from.len();
        self.put(0, from, stores);
        Ok(())
    }

    /// Copies `from` to `offset`, by the stores that the channel has learnt. The buffer's length stays.
    pub fn write_at(&mut self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.shared.check_ours()?;
        self.fits((offset as u64).saturating_add(from.len() as u64), self.len.min(self.capacity()))?;
        self.put_learning(offset, from, |shared| &shared.stores);
        Ok(())
    }

    /// Has `fill` write the bytes in place. What it finds there is older, or zero.
    pub fn fill_with<R>(&mut self, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        fill(self)
    }

    /// The bytes as memory to be overwritten.
    pub fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        self.filled = true;
        let len = self.len;
        match &mut self.store {
            Some(Store::Slots(run)) => self.shared.view.uninit_mut(run, len),
            Some(Store::Draft(draft)) => draft.uninit_mut(len),
            None => &mut [],
        }
    }

    /// Bytes that it may have.
    pub fn capacity(&self) -> usize {
        match &self.store {
            Some(Store::Slots(run)) => run.slots() as usize * self.shared.view.geometry().slot_bytes,
            Some(Store::Draft(draft)) => draft.len(),
            None => 0,
        }
    }

    /// Sets how many bytes are sent: 1 to [`Buffer::capacity`].
    pub fn set_len(&mut self, len: usize) -> Result<(), Error> {
        match len {
            0 => Err(Usage::Empty.into()),
            len if len > self.capacity() => {
                Err(Usage::TooLong { len: len as u64, pool: self.capacity() as u64 }.into())
            }
            len => {
                self.len = len;
                Ok(())
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.store.as_ref().map_or(&[], |store| store.bytes(&self.shared.view, self.len))
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.filled = true;
        let (view, len) = (&self.shared.view, self.len);
        self.store.as_mut().map_or(&mut [], |store| store.bytes_mut(view, len))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(Store::Slots(run)) = self.store.take() {
            self.shared.give(run);
        }
    }
}

/// Memory that is lent: the sender may read it, and has it back when the receiver has dropped its loan.
/// Dropping this token sends the memory home by itself.
#[derive(Debug)]
#[must_use = "wait for it to have the buffer back, or drop it to let the memory come home by itself"]
pub struct Lent {
    pub(crate) shared: Arc<SendShared>,
    pub(crate) sequence: u64,
    pub(crate) store: Option<LentStore>,
    pub(crate) len: usize,
    pub(crate) verb: Verb,
}

/// Where lent memory is.
#[derive(Debug)]
pub(crate) enum LentStore {
    /// In the pool, frozen.
    Slots(Run),
    /// Sealed for good.
    Sealed(Arc<Snapshot>),
}

impl Lent {
    /// What happened to the memory: it was lent, or copied.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Whether the receiver has given it back.
    pub fn is_home(&self) -> Result<bool, Error> {
        self.shared.is_home(self.sequence)
    }

    /// Whether this process has stored to it since it was lent, with [`crate::Config::copy_on_write`]: what
    /// [`Lent`] derefs to is then another than what the receiver sees. Where the kernel cannot say: `true`.
    pub fn is_written(&self) -> Result<bool, Error> {
        self.shared.check_ours()?;
        match &self.store {
            Some(LentStore::Slots(run)) => Ok(self.shared.view.is_written(run, self.shared.host)),
            Some(LentStore::Sealed(snapshot)) if self.shared.config.copy_on_write => {
                Ok(snapshot.is_written(self.shared.host))
            }
            _ => Ok(false),
        }
    }

    /// Waits until the receiver has given it back. A receiver that is gone has given back all that it had.
    /// Sealed memory stays sealed: what comes back is a copy.
    pub fn wait(self) -> Result<Buffer, Error> {
        self.wait_until(None).map_err(|(error, _)| error)
    }

    /// The same, for a time; the error brings the token back.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Buffer, (Error, Lent)> {
        let until = Instant::now().checked_add(timeout);
        self.wait_until(until).map_err(|(error, lent)| match error {
            Error::WouldBlock => (Error::TimedOut(timeout), lent),
            error => (error, lent),
        })
    }

    pub(crate) fn wait_until(mut self, until: Option<Instant>) -> Result<Buffer, (Error, Lent)> {
        match self.shared.wait_home(self.sequence, until) {
            Ok(true) => (),
            Ok(false) => return Err((Error::WouldBlock, self)),
            Err(error) => return Err((error, self)),
        }
        let shared = Arc::clone(&self.shared);
        let store = match self.store.take() {
            Some(LentStore::Slots(mut run)) => {
                if let Err(error) = shared.open(&mut run) {
                    if shared.view.is_readable(&run) {
                        self.store = Some(LentStore::Slots(run));
                    } else {
                        shared.give(run);
                    }
                    return Err((error, self));
                }
                Store::Slots(run)
            }
            Some(LentStore::Sealed(snapshot)) => {
                // What is sealed stays so: the buffer is a new one, with the same bytes.
                let copied = shared.draft(self.len).and_then(|mut draft| {
                    draft.copy_sealed(&snapshot, self.len)?;
                    Ok(draft)
                });
                match copied {
                    Ok(draft) => Store::Draft(draft),
                    Err(error) => {
                        self.store = Some(LentStore::Sealed(snapshot));
                        return Err((error, self));
                    }
                }
            }
            None => return Err((Usage::Empty.into(), self)),
        };
        Ok(Buffer { shared, store: Some(store), len: self.len, filled: false })
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.store {
            Some(LentStore::Slots(run)) => self.shared.view.bytes(run, self.len),
            Some(LentStore::Sealed(snapshot)) => &snapshot.bytes()[..self.len],
            None => &[],
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(LentStore::Slots(run)) = self.store.take() {
            self.shared.park(self.sequence, core::iter::once(run));
        }
    }
}

/// Memory that the receiver sees while the sender writes it.
#[derive(Debug)]
#[must_use = "wait for it to have the buffer back, or drop it to let the memory come home by itself"]
pub struct Sharing {
    pub(crate) lent: Lent,
}

impl Sharing {
    /// Waits until the receiver has given it back.
    pub fn wait(self) -> Result<Buffer, Error> {
        self.lent.wait()
    }

    /// The same, for a time; the error brings the token back.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Buffer, (Error, Sharing)> {
        self.lent.wait_timeout(timeout).map_err(|(error, lent)| (error, Sharing { lent }))
    }

    /// Whether the receiver has given it back.
    pub fn is_home(&self) -> Result<bool, Error> {
        self.lent.is_home()
    }
}

impl Deref for Sharing {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.lent
    }
}

impl DerefMut for Sharing {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.lent.len;
        match &mut self.lent.store {
            Some(LentStore::Slots(run)) => self.lent.shared.view.bytes_mut(run, len),
            _ => &mut [],
        }
    }
}

/// Zero memory at the place of a buffer that was donated. When it was dropped, and the donation has come
/// home, its slots are free.
#[derive(Debug)]
pub struct Zeroed {
    pub(crate) lent: Lent,
}

impl Zeroed {
    /// Whether the donation has come home.
    pub fn is_home(&self) -> Result<bool, Error> {
        self.lent.is_home()
    }
}

impl Deref for Zeroed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.lent
    }
}

impl DerefMut for Zeroed {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.lent.len;
        match &mut self.lent.store {
            Some(LentStore::Slots(run)) => self.lent.shared.view.bytes_mut(run, len),
            _ => &mut [],
        }
    }
}
