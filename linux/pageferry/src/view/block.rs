//! A block while it is filled, and what it is lent by.

use super::{Counted, Filling};
use crate::arena::Store;
use crate::error::{Error, Usage};
use crate::host::Host;
use crate::sys::fork::{self, Own, Registration};
use core::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Memory to be filled and lent. Dropping it gives it back to its arena.
#[derive(Debug)]
pub struct Block {
    store: Arc<Store>,
    /// There until it is lent or dropped.
    memory: Option<Filling>,
    /// What it is lent by. Children map what they find of it by this one, and are counted.
    reader: Option<Own>,
    len: usize,
    generation: u32,
    _registered: Registration,
}

/// A descriptor by which others have a block: it can be sent over Unix sockets any number of times. The block is used
/// again when this, its copies, and all that was mapped by them is gone, in whatever process. A child has it no more.
#[derive(Debug)]
pub struct Handle {
    reader: Own,
    whole: usize,
    store: Arc<Store>,
    number: u64,
}

impl Handle {
    /// It was sent this way, a number of the caller's: see `Arena::received`.
    pub fn went(&self, way: u64) {
        self.store.went(self.number, way);
    }

    /// The block, for this process itself to read: a sender may find that it cannot be sent.
    pub fn view(&self) -> Result<Counted, Error> {
        Counted::map(self.reader.as_fd(), self.whole, crate::sys::page_bytes())
    }
}

impl Block {
    /// The error brings the memory back.
    pub(crate) fn new(store: Arc<Store>, memory: Filling, len: usize) -> Result<Block, (Error, Filling)> {
        let reader = match memory.reader(Host::get()) {
            Ok(reader) => reader,
            Err(failed) => return Err((failed.into(), memory)),
        };
        let registered = memory.seen_by_children(&reader);
        let generation = fork::generation();
        Ok(Block {
            store,
            memory: Some(memory),
            reader: Some(reader),
            len,
            generation,
            _registered: registered,
        })
    }

    fn memory(&self) -> &Filling {
        self.memory.as_ref().expect("memory is there until the block is lent or dropped")
    }

    /// Copies `from` to `offset`, by the stores that are faster here.
    ///
    /// # Panics
    /// If it does not fit there.
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        // SAFETY: a reference to bytes, which are not this block's: that is borrowed as well.
        unsafe { self.write_from(offset, from.as_ptr(), from.len()) }
    }

    /// The same with `len` bytes that others may write meanwhile: what is copied is a value, of whatever was there.
    ///
    /// # Panics
    /// If they do not fit there.
    ///
    /// # Safety
    /// `from` and the bytes behind it are mapped for reading, and are not part of the block.
    pub unsafe fn write_from(&mut self, offset: usize, from: *const u8, len: usize) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "what is written lies in its block"
        );
        let store = Arc::clone(&self.store);
        let choice = store.stores();
        let (stores, timed) = choice.pick(len);
        let began = timed.then(Instant::now);
        let memory = self.memory.as_mut().expect("memory is there until the block is lent or dropped");
        // SAFETY: as the caller promises.
        unsafe { memory.copy_in(offset, from, len, stores) };
        if let Some(began) = began {
            choice.learn(len, stores, began.elapsed());
        }
    }

    /// Gives it up to whoever gets the descriptor.
    pub fn lend(mut self) -> Result<Handle, Error> {
        if self.generation != fork::generation() {
            return Err(Usage::Forked.into());
        }
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (whole, number) = (self.memory().len(), NEXT.fetch_add(1, Ordering::Relaxed));
        if let Some(memory) = self.memory.take() {
            self.store.keep(memory, number, false);
        }
        let reader = self.reader.take().expect("a reader is there until the block is lent or dropped");
        Ok(Handle { reader, whole, store: Arc::clone(&self.store), number })
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory().bytes()[..self.len]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut().expect("memory is there until the block is lent or dropped");
        &mut memory.bytes_mut()[..self.len]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // In a child the parent's arena is not to be had; what is dropped there frees nothing.
        if let Some(memory) = self.memory.take().filter(|_| self.generation == fork::generation()) {
            drop(self.reader.take());
            self.store.keep(memory, 0, true);
        }
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        self.reader.fd().as_raw_fd()
    }
}
