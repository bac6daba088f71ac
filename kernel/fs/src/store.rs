//! What a volume is kept on: a store of buffers, over a device of sectors.
//!
//! A [`Store`] is what a file system sees. What it writes [`When::Later`] stays in buffers until the store has a reason
//! to write it; a read sees it at once. A [`Device`] is what a store is over: sectors, each written as a whole or not
//! at all.
//!
//! [`Cached`] is the plain store: it keeps what it has read, and writes later when it is told to, or when too much
//! waits. [`MemoryDevice`] is the plain device; it can keep a journal of its writes, from which a test makes the disk
//! of any moment.

use crate::error::IoError;
pub use crate::sector::SECTOR_BYTES;
use crate::soft::SoftUpdates;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// When something is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// When the call returns, it is on the disk; of everything written earlier nothing is known.
    Now,
    /// At some time, unless its block is forgotten before.
    Later,
}

/// What bytes are of that are written later: how long they may wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sort {
    /// Inodes and what leads to blocks.
    Metadata,
    /// Names.
    Directory,
    /// The bytes of files, and all of which nothing is said.
    File,
}

/// The buffers of a disk.
pub trait Store {
    /// The disk's length.
    fn len_bytes(&self) -> u64;

    /// Reads what was last written.
    ///
    /// # Errors
    /// [`IoError`], also behind the end.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), IoError>;

    /// Writes. What lies in one sector is written as a whole.
    ///
    /// # Errors
    /// [`IoError`], also behind the end.
    fn write(&mut self, at: u64, bytes: &[u8], when: When) -> Result<(), IoError>;

    /// These bytes mean nothing any more: what waits to be written there is not written.
    fn forget(&mut self, bytes: Range<u64>);

    /// Writes what waits for these bytes, and what that is after.
    ///
    /// # Errors
    /// [`IoError`].
    fn flush(&mut self, bytes: Range<u64>) -> Result<(), IoError>;

    /// These bytes are the fragments of one block of a file, until they are forgotten or have become more: a store of
    /// buffers has one of their own for them.
    fn block(&mut self, bytes: Range<u64>) {
        _ = bytes;
    }

    /// The changes that wait, of a store that can keep to what they are after.
    fn soft_updates(&mut self) -> Option<&mut SoftUpdates> {
        None
    }

    /// These bytes, which wait, are of this sort.
    fn hurry(&mut self, bytes: Range<u64>, sort: Sort) {
        _ = (bytes, sort);
    }

    /// Writes all that waits.
    ///
    /// # Errors
    /// [`IoError`].
    fn sync(&mut self) -> Result<(), IoError> {
        self.flush(0..self.len_bytes())
    }
}

/// Sectors.
pub trait Device {
    /// How many.
    fn sectors(&self) -> u64;
    /// Reads whole sectors.
    ///
    /// # Errors
    /// [`IoError`].
    fn read(&mut self, sector: u64, bytes: &mut [u8]) -> Result<(), IoError>;
    /// Writes whole sectors.
    ///
    /// # Errors
    /// [`IoError`].
    fn write(&mut self, sector: u64, bytes: &[u8]) -> Result<(), IoError>;
}

/// A chunk of sectors that are buffered together.
const CHUNK_SECTORS: usize = 8;
const CHUNK_BYTES: usize = CHUNK_SECTORS * SECTOR_BYTES;

struct Chunk {
    bytes: Vec<u8>,
    /// A bit for each sector that waits to be written.
    dirty: u8,
}

/// The plain store. See the module.
pub struct Cached<D> {
    device: D,
    chunks: BTreeMap<u64, Chunk>,
    dirty_chunks: usize,
    max_dirty: usize,
    soft: SoftUpdates,
}

impl<D: Device> Cached<D> {
    /// A store over `device`, with nothing in its buffers.
    pub fn new(device: D) -> Cached<D> {
        Cached {
            device,
            chunks: BTreeMap::new(),
            dirty_chunks: 0,
            max_dirty: 1024,
            soft: SoftUpdates::default(),
        }
    }

    /// The same, in which no more than so many chunks wait to be written.
    pub fn with_limit(device: D, max_dirty: usize) -> Cached<D> {
        Cached { max_dirty, ..Cached::new(device) }
    }

    /// The device, without what waits.
    pub fn into_device(self) -> D {
        self.device
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device itself.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Writes what waits of the chunk that a byte is in, and nothing else: of soft updates, what may be written.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write_chunk_at(&mut self, at: u64) -> Result<(), IoError> {
        self.write_out(at / CHUNK_BYTES as u64, u8::MAX)
    }

    /// Drops all clean buffers.
    pub fn shrink(&mut self) {
        self.chunks.retain(|_, chunk| chunk.dirty != 0);
    }

    /// Tests that as many chunks wait to be written as it counts.
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check_counts(&self) -> Result<(), String> {
        let wait = self.chunks.values().filter(|chunk| chunk.dirty != 0).count();
        match wait == self.dirty_chunks {
            true => Ok(()),
            false => {
                Err(format!("{} chunks are counted that wait to be written, of {wait}", self.dirty_chunks))
            }
        }
    }

    fn check(&self, at: u64, len: usize) -> Result<(), IoError> {
        let end = at.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.len_bytes()) { Ok(()) } else { Err(IoError::of_disk(at)) }
    }

    fn chunk(&mut self, index: u64) -> Result<&mut Chunk, IoError> {
        if !self.chunks.contains_key(&index) {
            let sector = index * CHUNK_SECTORS as u64;
            let there = (self.device.sectors() - sector).min(CHUNK_SECTORS as u64) as usize;
            let mut bytes = vec![0; CHUNK_BYTES];
            self.device.read(sector, &mut bytes[..there * SECTOR_BYTES])?;
            self.chunks.insert(index, Chunk { bytes, dirty: 0 });
        }
        Ok(self.chunks.get_mut(&index).expect("just read"))
    }

    /// The chunks of a range, and what of each lies in it.
    fn spans(bytes: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
        let size = CHUNK_BYTES as u64;
        let chunks = if bytes.is_empty() { 0..0 } else { bytes.start / size..bytes.end.div_ceil(size) };
        chunks.map(move |index| {
            let from = bytes.start.saturating_sub(index * size) as usize;
            let to = (bytes.end - index * size).min(size) as usize;
            (index, from..to)
        })
    }

    fn sectors_of(span: &Range<usize>) -> u8 {
        let (first, end) = (span.start / SECTOR_BYTES, span.end.div_ceil(SECTOR_BYTES));
        (((1u16 << end) - 1) & !((1u16 << first) - 1)) as u8
    }

    fn write_out(&mut self, index: u64, which: u8) -> Result<(), IoError> {
        let Some(chunk) = self.chunks.get_mut(&index) else { return Ok(()) };
        let which = chunk.dirty & which;
        let was = chunk.dirty;
        for sector in (0..CHUNK_SECTORS).filter(|sector| which & 1 << sector != 0) {
            let number = index * CHUNK_SECTORS as u64 + sector as u64;
            let Chunk { bytes, dirty } = &mut *chunk;
            let bytes = &mut bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES];
            let swap = |bytes: &mut [u8], at: u64, other: &mut [u8]| {
                bytes[at as usize % SECTOR_BYTES..][..other.len()].swap_with_slice(other);
            };
            self.soft.roll_back([number].into_iter(), &mut |at, other| swap(bytes, at, other));
            let written = self.device.write(number, bytes);
            let waiting = self.soft.written(written.is_ok(), &mut |at, other| swap(bytes, at, other));
            written?;
            if waiting.is_empty() {
                *dirty &= !(1 << sector);
            }
        }
        self.dirty_chunks -= usize::from(was != 0 && chunk.dirty == 0);
        Ok(())
    }

    fn write_waiting(&mut self, bytes: Range<u64>) -> Result<(), IoError> {
        let size = CHUNK_BYTES as u64;
        let waiting: Vec<u64> = {
            let within = self.chunks.range(bytes.start / size..bytes.end.div_ceil(size));
            within.filter(|(_, chunk)| chunk.dirty != 0).map(|(index, _)| *index).collect()
        };
        for index in waiting {
            let from = bytes.start.saturating_sub(index * size).min(size) as usize;
            let to = (bytes.end - index * size).min(size) as usize;
            self.write_out(index, Self::sectors_of(&(from..to)))?;
        }
        Ok(())
    }
}

impl<D: Device> Store for Cached<D> {
    fn len_bytes(&self) -> u64 {
        self.device.sectors() * SECTOR_BYTES as u64
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.check(at, bytes.len())?;
        let mut done = 0;
        for (index, span) in Self::spans(at..at + bytes.len() as u64) {
            let part = span.len();
            bytes[done..][..part].copy_from_slice(&self.chunk(index)?.bytes[span]);
            done += part;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8], when: When) -> Result<(), IoError> {
        self.check(at, bytes.len())?;
        let mut done = 0;
        for (index, span) in Self::spans(at..at + bytes.len() as u64) {
            let which = Self::sectors_of(&span);
            let part = span.len();
            let chunk = self.chunk(index)?;
            chunk.bytes[span].copy_from_slice(&bytes[done..][..part]);
            let was = chunk.dirty;
            chunk.dirty |= which;
            self.dirty_chunks += usize::from(was == 0);
            done += part;
            if when == When::Now {
                self.write_out(index, which)?;
            }
        }
        if self.dirty_chunks > self.max_dirty { self.sync() } else { Ok(()) }
    }

    fn forget(&mut self, bytes: Range<u64>) {
        self.soft.forget(bytes.clone());
        for (index, span) in Self::spans(bytes) {
            if let Some(chunk) = self.chunks.get_mut(&index) {
                let was = chunk.dirty;
                chunk.dirty &= !Self::sectors_of(&span);
                self.dirty_chunks -= usize::from(was != 0 && chunk.dirty == 0);
            }
        }
    }

    fn flush(&mut self, bytes: Range<u64>) -> Result<(), IoError> {
        self.write_waiting(bytes.clone())?;
        let late = self.soft.with_older(self.soft.within(bytes));
        for id in late {
            if let Some(bytes) = self.soft.bytes_of(id) {
                self.write_waiting(bytes)?;
            }
        }
        Ok(())
    }

    fn soft_updates(&mut self) -> Option<&mut SoftUpdates> {
        Some(&mut self.soft)
    }
}

/// A device in memory. See the module.
#[derive(Clone, Debug, Default)]
pub struct MemoryDevice {
    bytes: Vec<u8>,
    /// Sectors written, in order, where they are kept.
    journal: Option<Vec<(u64, Vec<u8>)>>,
    /// So many writes succeed before all fail, in a test.
    #[cfg(feature = "verify")]
    writes_left: Option<u32>,
}

impl MemoryDevice {
    /// A device of clear sectors.
    pub fn new(len_bytes: usize) -> MemoryDevice {
        MemoryDevice::from_bytes(vec![0; len_bytes])
    }

    /// A device with these bytes.
    pub fn from_bytes(mut bytes: Vec<u8>) -> MemoryDevice {
        bytes.truncate(bytes.len() / SECTOR_BYTES * SECTOR_BYTES);
        MemoryDevice { bytes, ..MemoryDevice::default() }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// From now on keeps a journal.
    pub fn keep_journal(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// So many writes succeed from now on, and then none, until this is called again with none.
    #[cfg(feature = "verify")]
    pub fn fail_writes_after(&mut self, count: Option<u32>) {
        self.writes_left = count;
    }

    /// Fails where a test wants that.
    fn try_write(&mut self, at: u64) -> Result<(), IoError> {
        #[cfg(feature = "verify")]
        if let Some(left) = &mut self.writes_left {
            *left = left.checked_sub(1).ok_or(IoError::of_disk(at))?;
        }
        _ = at;
        Ok(())
    }

    /// How many sectors were written since.
    pub fn written(&self) -> usize {
        self.journal.as_ref().map_or(0, Vec::len)
    }

    /// What the device would be if `base` had got the first `count` sectors that were written to this one.
    pub fn cut(&self, base: &MemoryDevice, count: usize) -> MemoryDevice {
        let mut device = MemoryDevice::from_bytes(base.bytes.clone());
        for (sector, bytes) in self.journal.iter().flatten().take(count) {
            device.bytes[*sector as usize * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(bytes);
        }
        device
    }
}

impl Device for MemoryDevice {
    fn sectors(&self) -> u64 {
        (self.bytes.len() / SECTOR_BYTES) as u64
    }

    fn read(&mut self, sector: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        let at = sector as usize * SECTOR_BYTES;
        let there = self.bytes.get(at..at + bytes.len()).ok_or(IoError::of_disk(at as u64))?;
        bytes.copy_from_slice(there);
        Ok(())
    }

    fn write(&mut self, sector: u64, bytes: &[u8]) -> Result<(), IoError> {
        let at = sector as usize * SECTOR_BYTES;
        self.try_write(at as u64)?;
        let there = self.bytes.get_mut(at..at + bytes.len()).ok_or(IoError::of_disk(at as u64))?;
        there.copy_from_slice(bytes);
        if let Some(journal) = &mut self.journal {
            for (i, one) in bytes.chunks(SECTOR_BYTES).enumerate() {
                journal.push((sector + i as u64, one.to_vec()));
            }
        }
        Ok(())
    }
}
