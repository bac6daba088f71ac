//! The words of a ring in mapped memory.
//!
//! # What it holds
//! [`Area`] is what the ring needs of memory: words that are read relaxed and written relaxed or by release.
//! [`Mapped`] is an area of a memfd; tests that try all orders of execution bring their own.

use super::Ordering;
use super::shape::RingGeometry;
use crate::error::{Broken, Error};
use crate::sync;
use crate::sys::copy::{self, Stores};
use crate::sys::map::{Prot, Region};
use crate::sys::{self, memfd};
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use rustix::fd::{AsFd, OwnedFd};

/// Words of 64 bits that two processes share.
pub(crate) trait Area {
    /// Reads a word, relaxed: memory that is mapped read-only allows nothing stronger.
    fn load(&self, word: usize) -> u64;
    /// Writes a word of an area of our own, relaxed.
    fn store(&self, word: usize, value: u64);
    /// Writes a word of an area of our own, after all that came before.
    fn release(&self, word: usize, value: u64);
}

/// An area of a memfd.
#[derive(Debug)]
pub(crate) struct Mapped {
    region: Region,
    words: usize,
    ours: bool,
}

impl Mapped {
    /// Bytes of the area, the inline messages among them.
    pub(crate) fn len(&self) -> usize {
        self.region.len()
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.words, "a word lies in its area");
        let at = self.region.at(word * 8).cast::<u64>();
        // SAFETY: the area is mapped readable for as long as the region lives (its file cannot shrink: its
        // seals were made or verified), it is aligned to a page, and all accesses of all processes to its
        // words are atomic ones.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// Writes the bytes of an inline message. The cell is the caller's: its last message was taken.
    pub(crate) fn write_bytes(&self, offset: usize, bytes: &[u8]) {
        assert!(self.ours && offset >= self.words * 8 && offset + bytes.len() <= self.len());
        // SAFETY: within the area, behind its words, and mapped writable; one thread at a time works on a
        // side of the ring.
        unsafe { copy::in_to(self.region.at(offset), bytes, Stores::Ordinary) }
    }

    /// Reads the bytes of an inline message, once. The peer may be writing them.
    pub(crate) fn read_bytes(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset >= self.words * 8 && offset + bytes.len() <= self.len());
        // SAFETY: the same memory and length; bytes are stored there and nothing else.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<MaybeUninit<u8>>(), bytes.len())
        };
        // SAFETY: within the area, and mapped readable.
        unsafe { copy::out_of(bytes, self.region.at(offset), Stores::Ordinary) }
    }
}

impl Area for Mapped {
    fn load(&self, word: usize) -> u64 {
        sync::turn();
        self.word(word).load(Ordering::Relaxed)
    }

    fn store(&self, word: usize, value: u64) {
        sync::turn();
        assert!(self.ours, "only its owner writes an area");
        self.word(word).store(value, Ordering::Relaxed);
    }

    fn release(&self, word: usize, value: u64) {
        sync::turn();
        assert!(self.ours, "only its owner writes an area");
        self.word(word).store(value, Ordering::Release);
    }
}

/// Which area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Reverse,
}

/// Makes and opens areas.
#[derive(Debug)]
pub(crate) struct RingMemory;

impl RingMemory {
    fn shape(geometry: RingGeometry, direction: Direction) -> (usize, usize) {
        let (words, bytes) = match direction {
            Direction::Forward => (geometry.forward_words(), geometry.forward_bytes()),
            Direction::Reverse => (geometry.reverse_words(), geometry.reverse_bytes()),
        };
        (words, bytes.next_multiple_of(sys::page_bytes()))
    }

    /// Makes the sender's area, and the descriptor that the receiver gets.
    pub(crate) fn forward(geometry: RingGeometry) -> Result<(Mapped, OwnedFd), Error> {
        Self::make(geometry, Direction::Forward)
    }

    /// Makes the receiver's area.
    pub(crate) fn reverse(geometry: RingGeometry) -> Result<(Mapped, OwnedFd), Error> {
        Self::make(geometry, Direction::Reverse)
    }

    fn make(geometry: RingGeometry, direction: Direction) -> Result<(Mapped, OwnedFd), Error> {
        let (words, len) = Self::shape(geometry, direction);
        let fd = memfd::create("pageferry-ring", len)?;
        let region = Region::reserve(len, sys::page_bytes())?;
        // SAFETY: the region is new. Its pages are touched now, so that a limit of memory bites here and not
        // in a store.
        unsafe {
            region.map_shared_here(0, len, Prot::ReadWrite, fd.as_fd())?;
            region.populate(0, len, sys::page_bytes());
        }
        memfd::seal(&fd, memfd::POOL_SEALS)?;
        Ok((Mapped { region, words, ours: true }, fd))
    }

    /// Maps the sender's area.
    pub(crate) fn open_forward(geometry: RingGeometry, fd: &OwnedFd) -> Result<Mapped, Error> {
        Self::open(geometry, Direction::Forward, fd)
    }

    /// Maps the receiver's area.
    pub(crate) fn open_reverse(geometry: RingGeometry, fd: &OwnedFd) -> Result<Mapped, Error> {
        Self::open(geometry, Direction::Reverse, fd)
    }

    /// The peer made it: its size and its seals are looked at, so that no access here can fail.
    fn open(geometry: RingGeometry, direction: Direction, fd: &OwnedFd) -> Result<Mapped, Error> {
        let (words, len) = Self::shape(geometry, direction);
        let seals = memfd::seals(fd)?;
        if !seals.contains(memfd::POOL_SEALS) && !planted!(NoSealCheck) {
            return Err(Broken::NotSealed { what: "ring" }.into());
        }
        let found = memfd::len(fd)?;
        if found != len as u64 && !planted!(NoSizeCheck) {
            return Err(Broken::Size { what: "ring", found, expected: len as u64 }.into());
        }
        let region = Region::reserve(len, sys::page_bytes())?;
        // SAFETY: the region is new.
        unsafe { region.map_shared_here(0, len, Prot::Read, fd.as_fd())? };
        Ok(Mapped { region, words, ours: false })
    }
}
