//! A message that was received.

use super::place::{Arrival, Place};
use super::receive::RecvShared;
use crate::error::{Error, Usage};
use crate::view::{Anonymous, Snapshot};
use crate::wire::{Descriptor, Level, Verb};
use core::ops::Deref;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A message that was received: bytes that nobody changes, and a token. Dropping it gives the memory back to
/// the sender.
///
/// It can be sent to another thread, and outlives the [`super::Receiver`] and the sender.
#[derive(Debug)]
#[must_use = "dropping a loan gives the memory back to the sender"]
pub struct Loan {
    shared: Arc<RecvShared>,
    descriptor: Descriptor,
    place: Place,
    /// Forks that this process had made when it came.
    born: u64,
}

impl Loan {
    pub(super) fn new(shared: Arc<RecvShared>, arrival: Arrival) -> Loan {
        let Arrival { descriptor, place, born } = arrival;
        Loan { shared, descriptor, place, born }
    }

    /// Where in its memory the message starts, and its bytes.
    pub(super) fn range(&self) -> (usize, usize) {
        (self.descriptor.offset as usize, self.descriptor.len as usize)
    }

    /// What happened to the memory: lent, donated, copied.
    pub fn verb(&self) -> Verb {
        self.descriptor.verb
    }

    /// What is promised of the bytes.
    pub fn level(&self) -> Level {
        self.descriptor.level
    }

    /// The number that the sender gave it; 0 if none.
    pub fn tag(&self) -> u64 {
        self.descriptor.tag
    }

    /// How many messages came before on this channel.
    pub fn sequence(&self) -> u64 {
        self.descriptor.sequence
    }

    /// The bytes, to be written to. Nobody else sees what is written. Of lent memory the kernel copies each
    /// page (4 KB) at the first store to it; donated and copied memory is written where it is; sealed memory
    /// is copied whole first.
    pub fn as_mut(&mut self) -> Result<&mut [u8], Error> {
        self.shared.check_ours()?;
        let (offset, len) = self.range();
        if let Place::Sealed(snapshot) = &self.place {
            let mut copied = self.shared.memory(len, "a copy of sealed memory")?;
            copied.bytes_mut().copy_from_slice(&snapshot.bytes()[offset..offset + len]);
            let sealed = core::mem::replace(&mut self.place, Place::Copied(copied));
            if let Place::Sealed(snapshot) = sealed {
                self.shared.release_sealed(self.descriptor.sequence, snapshot.len() as u64);
            }
        }
        match &mut self.place {
            Place::Inline(bytes) => Ok(bytes),
            Place::Copied(copied) => Ok(copied.bytes_mut()),
            Place::Lent { run: Some(run), own } => {
                if !*own {
                    self.shared.view.own(run)?;
                    *own = true;
                }
                Ok(self.shared.view.bytes_mut(run, offset, len, false))
            }
            Place::Donated { run: Some(run) } => Ok(self.shared.view.bytes_mut(run, offset, len, true)),
            _ => Err(Usage::Verb("shared memory is not written by its receiver").into()),
        }
    }

    /// The bytes as a value of another type.
    pub fn cast<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<&T, Error> {
        T::ref_from_bytes(self).map_err(|_| self.no_cast::<T>())
    }

    /// The bytes as values of another type, as many as there are.
    pub fn cast_slice<T: FromBytes + Immutable>(&self) -> Result<&[T], Error> {
        <[T]>::ref_from_bytes(self).map_err(|_| self.no_cast::<T>())
    }

    fn no_cast<T>(&self) -> Error {
        Usage::Cast { len: self.len(), what: core::any::type_name::<T>() }.into()
    }

    /// Moves the bytes to memory of this process, and gives the sender its memory back.
    pub fn transfer(self) -> Result<Owned, Error> {
        self.copied()
    }

    /// Copies the bytes to memory of this process. The message stays, also where that fails.
    pub fn copied(&self) -> Result<Owned, Error> {
        self.shared.check_ours()?;
        let mut owned = self.shared.recycled.take(self.len().max(1))?;
        owned.bytes_mut()[..self.len()].copy_from_slice(self);
        Ok(Owned { memory: owned, len: self.len() })
    }

    /// The sealed memory that the bytes are in, and where.
    pub(crate) fn snapshot(&self) -> Option<(&Arc<Snapshot>, usize)> {
        match &self.place {
            Place::Sealed(snapshot) => Some((snapshot, self.range().0)),
            _ => None,
        }
    }

    /// A shared message becomes a value: its bytes as they are now.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        let (offset, len) = self.range();
        if let Place::Shared { run: Some(run) } = &self.place {
            let mut copied = self.shared.memory(len, "a copy of shared memory")?;
            let read = self.shared.view.copy_shared(run, offset, copied.uninit_mut());
            read.inspect_err(|_| self.shared.discharge(copied.held()))?;
            let shared = core::mem::replace(&mut self.place, Place::Copied(copied));
            if let Place::Shared { run: Some(run) } = shared {
                self.shared.release(self.descriptor.sequence, Verb::Share, vec![(run, false)], u64::MAX);
            }
        }
        Ok(())
    }

    /// A message of `len` unset bytes of this process, with all else as in this one.
    pub(super) fn fresh_copy(&self, len: u64) -> Result<Loan, Error> {
        let what = "ranges in one piece (take them as they are by `recv_message`)";
        let copied = self.shared.memory(len as usize, what)?;
        let descriptor = Descriptor { offset: 0, len, extents: 0, ..self.descriptor };
        Ok(Loan {
            shared: Arc::clone(&self.shared),
            descriptor,
            place: Place::Copied(copied),
            born: self.born,
        })
    }

    /// Bytes of a piece that may be written.
    pub(super) fn piece_mut(&mut self, index: usize, offset: usize, len: usize) -> Result<&mut [u8], Error> {
        let donated = self.descriptor.verb == Verb::Donate;
        let Place::Pieces(pieces) = &mut self.place else { return Ok(&mut []) };
        match pieces.get_mut(index).and_then(|piece| piece.run.as_mut()) {
            Some(run) => Ok(self.shared.view.bytes_mut(run, offset, len, donated)),
            None => Ok(&mut []),
        }
    }

    pub(super) fn shared(&self) -> &Arc<RecvShared> {
        &self.shared
    }

    pub(super) fn place_mut(&mut self) -> &mut Place {
        &mut self.place
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let (offset, len) = self.range();
        let view = &self.shared.view;
        match &self.place {
            Place::Inline(bytes) => bytes,
            Place::Copied(copied) => copied.bytes(),
            Place::Lent { run: Some(run), .. } => view.bytes(run, offset, len, self.level(), false),
            Place::Donated { run: Some(run) } => view.bytes(run, offset, len, self.level(), true),
            Place::Sealed(snapshot) => &snapshot.bytes()[offset..offset + len],
            // Messages of other kinds are a `Shared` or a `Passed`, and only drop takes a run out.
            Place::Shared { .. } | Place::Pieces(_) | Place::Lent { .. } | Place::Donated { .. } => &[],
        }
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // In a child the memory and the ring are the parent's affair.
        if !self.shared.is_ours() {
            return;
        }
        let (shared, sequence, born) = (&self.shared, self.descriptor.sequence, self.born);
        match &mut self.place {
            Place::Inline(bytes) => shared.discharge(bytes.len() as u64),
            Place::Copied(copied) => shared.discharge(copied.held()),
            Place::Sealed(snapshot) => shared.release_sealed(sequence, snapshot.len() as u64),
            Place::Lent { run, own } => {
                let Some(run) = run.take() else { return };
                shared.release(sequence, Verb::Loan, vec![(run, *own)], born);
            }
            Place::Donated { run } => {
                let Some(run) = run.take() else { return };
                shared.release(sequence, Verb::Donate, vec![(run, false)], born);
            }
            Place::Shared { run } => {
                let Some(run) = run.take() else { return };
                shared.release(sequence, Verb::Share, vec![(run, false)], u64::MAX);
            }
            Place::Pieces(pieces) => {
                let verb = self.descriptor.verb;
                let born = if verb == Verb::Share { u64::MAX } else { born };
                let runs: Vec<_> =
                    pieces.drain(..).filter_map(|piece| Some((piece.run?, piece.own))).collect();
                shared.release(sequence, verb, runs, born);
            }
        }
    }
}

/// Bytes of this process alone, which were a message's.
#[derive(Debug)]
pub struct Owned {
    memory: Anonymous,
    len: usize,
}

impl Deref for Owned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[..self.len]
    }
}

impl core::ops::DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[..self.len]
    }
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
