//! The buffer cache of a disk with a file system, whoever has it: the kernel (`buffers`) or a file server
//! (`pageferry_servers`).
//!
//! # What it holds
//! [`BufferCache`] holds buffers, each with memory that shows a piece of the disk, as many as there may be; when all
//! are in use, the one that was used least recently is written and shows another piece. Of each sector it is known
//! whether the memory has it, and whether it waits to be written. How memory comes to show a piece, and how bytes get
//! between it and the disk, is the owner's part, its [`Strategy`] (BSD's word). A file system gets both for the time of
//! a call, [`Cached`].
//!
//! A write at once writes the buffer as `bwrite` does: all of it that is valid and lies around what changed. Where it
//! is known that only bytes of files wait (with soft updates), those alone are written: several small files share a
//! buffer here, and in FreeBSD each has its own. Buffers that wait are written when there are too many, the oldest
//! first.
//!
//! With soft updates ([`BufferCache::use_soft_updates`]) what a buffer has may be ahead of what the disk may have: the
//! rest is rolled back while the buffer is written, which then still waits (`softdep_disk_io_initiation`). A buffer
//! that has waited for as long as what is in it may is written by whoever comes next ([`Cached::sync_due`]), who does
//! the work of FreeBSD's syncer. What in it may wait for the shortest time counts; where it still waits, that begins
//! anew.
//!
//! # Locks
//! None of its own: who has the volume does one thing at a time.
//!
//! # What can fail
//! The owner's part: showing a piece, and the disk.

use crate::config::SyncerDelays;
use crate::defect::KernelDefect;
use crate::proc::{Uio, UioRw};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_defects::Planted;
use pageferry_fs::soft::Swap;
use pageferry_fs::{IoError, SoftUpdates, Sort, Store, When};
use pageferry_hal::{Cycles, Va};

/// Bytes of a buffer (`BKVASIZE`).
pub const BUFFER_BYTES: usize = 16384;
const SECTOR: usize = 512;
/// A cache has so many buffers at least.
pub const MIN_BUFFERS: usize = 8;

/// Moves so many bytes between an address of a cached block and the buffer of a call, and that on.
pub type MovePiece<'a> = &'a mut dyn FnMut(Va, usize, &mut Uio) -> Result<(), Errno>;

/// What an owner does for a cache: memory that shows pieces of the disk, and the disk's input and output.
pub trait Strategy {
    /// Memory of a buffer.
    type Memory;
    /// What was valid of a piece stays valid when no buffer shows it any more.
    const KEEPS_PIECES: bool;

    /// Accounts for looking up one name of a path.
    fn account_name(&self);

    /// Accounts for getting a buffer.
    fn account_buffer(&self);

    /// The time.
    fn now(&self) -> Cycles;

    /// Memory that shows a piece: that of another, or new memory, of which there was so much before.
    ///
    /// # Errors
    /// For want of it.
    fn show(&mut self, index: u64, memory: Room<Self::Memory>) -> Result<Self::Memory, Errno>;

    /// Where it is.
    fn address(memory: &Self::Memory) -> Va;

    /// Moves whole sectors between the disk and memory.
    ///
    /// # Errors
    /// As of the disk.
    fn transfer(&mut self, bytes: Range<u64>, at: Va, rw: UioRw) -> Result<(), Errno>;

    /// Looks at bytes of a buffer.
    ///
    /// # Errors
    /// Where the owner is no more.
    fn load(&self, at: Va, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Changes bytes of a buffer.
    fn store(&self, at: Va, bytes: &[u8]);
}

/// Where memory for a buffer comes from.
pub enum Room<B> {
    /// There were so many buffers before.
    New(usize),
    /// It was another buffer's.
    Used(B),
}

struct Buffer<B> {
    memory: B,
    used: u64,
    /// When it began to wait.
    dirty_since: u64,
    dirty: Sectors,
    /// When the syncer is to write it.
    due: Cycles,
    /// Only bytes of files wait, with soft updates.
    is_files: bool,
}

fn delay(syncer: &SyncerDelays, sort: Sort) -> Cycles {
    match sort {
        Sort::Metadata => syncer.metadata_cycles,
        Sort::Directory => syncer.directory_cycles,
        Sort::File => syncer.file_cycles,
    }
}

/// The buffers of a disk. See the [module](self).
pub struct BufferCache<B> {
    len_bytes: u64,
    max: usize,
    max_dirty: usize,
    buffers: BTreeMap<u64, Buffer<B>>,
    /// When each was used last, and since when each waits.
    by_use: BTreeMap<u64, u64>,
    by_wait: BTreeMap<u64, u64>,
    /// Sectors that the memory of pieces has.
    valid: BTreeMap<u64, Sectors>,
    clock: u64,
    soft: SoftUpdates,
    /// There is a syncer, and when it is to write what.
    syncer: Option<SyncerDelays>,
    by_due: BTreeSet<(Cycles, u64)>,
    defect: Planted<KernelDefect>,
}

/// Does something with a piece of the disk at an address, so many bytes: how many it has moved, and why not more.
type DoPiece<'a, S> = &'a mut dyn FnMut(&S, Va, usize) -> (usize, Result<(), Errno>);

impl<B> BufferCache<B> {
    /// For a disk of so many bytes: so many buffers, of which some may wait to be written.
    pub fn new(len_bytes: u64, max: usize, max_dirty: usize) -> BufferCache<B> {
        BufferCache {
            len_bytes,
            max,
            max_dirty,
            buffers: BTreeMap::new(),
            by_use: BTreeMap::new(),
            by_wait: BTreeMap::new(),
            valid: BTreeMap::new(),
            clock: 0,
            soft: SoftUpdates::default(),
            syncer: None,
            by_due: BTreeSet::new(),
            defect: Planted::NONE,
        }
    }

    /// From now on what waits does so no longer than this.
    pub fn use_soft_updates(&mut self, delays: SyncerDelays, defect: Planted<KernelDefect>) {
        self.syncer = Some(delays);
        self.defect = defect;
    }

    /// The memory of all buffers; what waits is lost.
    pub fn into_memory(self) -> impl Iterator<Item = B> {
        self.buffers.into_values().map(|buffer| buffer.memory)
    }

    fn valid(&self, index: u64) -> Sectors {
        self.valid.get(&index).copied().unwrap_or(0)
    }

    /// New bytes are in these sectors of the buffer that was asked for last: they wait to be written.
    fn mark_dirty(&mut self, index: u64, which: Sectors, now: Cycles) {
        *self.valid.entry(index).or_default() |= which;
        self.clock += 1;
        let buffer = self.buffers.get_mut(&index).expect("its caller has just got it");
        if buffer.dirty == 0 {
            buffer.dirty_since = self.clock;
            self.by_wait.insert(self.clock, index);
            if let Some(delays) = self.syncer {
                buffer.due = now + delays.file_cycles;
                buffer.is_files = true;
                self.by_due.insert((buffer.due, index));
            }
        }
        buffer.dirty |= which;
    }

    /// These sectors of a buffer still wait, and no others.
    fn mark_clean_but(&mut self, index: u64, which: Sectors, now: Cycles) {
        let Some(buffer) = self.buffers.get_mut(&index).filter(|buffer| buffer.dirty != 0) else { return };
        self.by_wait.remove(&buffer.dirty_since);
        self.by_due.remove(&(buffer.due, index));
        buffer.dirty = 0;
        if which != 0 {
            self.mark_dirty(index, which, now);
        }
    }

    /// What waits in a buffer is not the bytes of files alone, and is to be written by then.
    fn hurry(&mut self, index: u64, due: Cycles) {
        let Some(buffer) = self.buffers.get_mut(&index).filter(|buffer| buffer.dirty != 0) else { return };
        buffer.is_files = false;
        if due < buffer.due {
            self.by_due.remove(&(buffer.due, index));
            buffer.due = due;
            self.by_due.insert((due, index));
        }
    }
}

/// A cache and its owner's part: what a file system gets for the time of a call.
pub struct Cached<'a, S: Strategy> {
    /// How its owner gets at the disk.
    pub strategy: S,
    /// What is in its buffers.
    pub cache: &'a mut BufferCache<S::Memory>,
}

impl<S: Strategy> Cached<'_, S> {
    /// Accounts for looking up one name of a path.
    pub fn account_name(&self) {
        self.strategy.account_name();
    }

    /// A buffer's address; it is made, or taken from the one used least recently.
    fn get(&mut self, index: u64) -> Result<Va, Errno> {
        self.strategy.account_buffer();
        self.cache.clock += 1;
        let now = self.cache.clock;
        if let Some(buffer) = self.cache.buffers.get_mut(&index) {
            self.cache.by_use.remove(&buffer.used);
            buffer.used = now;
            self.cache.by_use.insert(now, index);
            return Ok(S::address(&buffer.memory));
        }
        let count = self.cache.buffers.len();
        let room = if count < self.cache.max {
            Room::New(count)
        } else {
            let victim = self.victim()?;
            let buffer = self.cache.buffers.remove(&victim).expect("it is in the list");
            self.cache.by_use.remove(&buffer.used);
            if !S::KEEPS_PIECES {
                self.cache.valid.remove(&victim);
            }
            Room::Used(buffer.memory)
        };
        let memory = self.strategy.show(index, room)?;
        let at = S::address(&memory);
        self.cache.by_use.insert(now, index);
        self.cache.buffers.insert(
            index,
            Buffer { memory, used: now, dirty_since: 0, dirty: 0, due: Cycles(0), is_files: false },
        );
        Ok(at)
    }

    /// The buffer that was used least recently, of those of which nothing waits any more.
    fn victim(&mut self) -> Result<u64, Errno> {
        let mut after = None;
        loop {
            let next = match after {
                None => self.cache.by_use.first_key_value(),
                Some(used) => self.cache.by_use.range(used + 1..).next(),
            };
            // What is in all others waits for what is not in its buffer yet.
            let (used, index) = next.map(|(used, index)| (*used, *index)).ok_or(Errno::Io)?;
            self.write_out(index)?;
            let start = index * BUFFER_BYTES as u64;
            self.write_older(start..start + BUFFER_BYTES as u64)?;
            if self.cache.buffers[&index].dirty == 0 {
                return Ok(index);
            }
            after = Some(used);
        }
    }

    /// The address of a buffer that has these sectors; what it lacks of all comes from the disk.
    fn bread(&mut self, index: u64, needed: Sectors) -> Result<Va, Errno> {
        let at = self.get(index)?;
        let valid = self.cache.valid(index);
        if needed & !valid != 0 {
            let start = index * BUFFER_BYTES as u64;
            let there = (self.cache.len_bytes - start).min(BUFFER_BYTES as u64) as usize;
            let all = sectors(&(0..there));
            for run in runs(all & !valid) {
                self.transfer(index, at, run, UioRw::Read)?;
            }
            self.cache.valid.insert(index, all | valid);
        }
        Ok(at)
    }

    /// Moves some sectors of a buffer from the disk or to it.
    fn transfer(&mut self, index: u64, at: Va, run: Range<usize>, rw: UioRw) -> Result<(), Errno> {
        let start = index * BUFFER_BYTES as u64 + (run.start * SECTOR) as u64;
        let bytes = start..start + (run.len() * SECTOR) as u64;
        self.strategy.transfer(bytes, at + run.start * SECTOR, rw)
    }

    /// Writes what waits of a buffer, with what is valid around it.
    fn write_out(&mut self, index: u64) -> Result<(), Errno> {
        let Some(buffer) = self.cache.buffers.get(&index).filter(|buffer| buffer.dirty != 0) else {
            return Ok(());
        };
        let (at, dirty, is_files) = (S::address(&buffer.memory), buffer.dirty, buffer.is_files);
        let first = index * (BUFFER_BYTES / SECTOR) as u64;
        let mut waiting = 0;
        for run in runs(if is_files { dirty } else { self.cache.valid(index) }) {
            let which = sectors(&(run.start * SECTOR..run.end * SECTOR)) & dirty;
            if which == 0 {
                continue;
            }
            let numbers = run.clone().filter(|bit| which & 1 << bit != 0).map(|bit| first + bit as u64);
            self.swap(index, at, |soft, swap| soft.roll_back(numbers, swap));
            let written = self.transfer(index, at, run, UioRw::Write);
            let left = self.swap(index, at, |soft, swap| soft.written(written.is_ok(), swap));
            written?;
            waiting |= left.into_iter().fold(0, |bits, sector| bits | 1 << (sector - first));
        }
        self.cache.mark_clean_but(index, waiting, self.strategy.now());
        Ok(())
    }

    /// Does something with the soft updates that swaps bytes of a buffer.
    fn swap<R>(&mut self, index: u64, at: Va, work: impl FnOnce(&mut SoftUpdates, Swap<'_>) -> R) -> R {
        let strategy = &self.strategy;
        work(&mut self.cache.soft, &mut |byte, other| {
            let at = at + (byte - index * BUFFER_BYTES as u64) as usize;
            let mut bytes = vec![0; other.len()];
            // Where the owner is no more, nothing is written either.
            if strategy.load(at, &mut bytes).is_ok() {
                strategy.store(at, other);
                other.copy_from_slice(&bytes);
            }
        })
    }

    /// Writes what waits in these bytes by soft updates, and what that is after, the oldest first.
    fn write_older(&mut self, bytes: Range<u64>) -> Result<(), Errno> {
        let soft = &self.cache.soft;
        if soft.is_empty() {
            return Ok(());
        }
        for id in soft.with_older(soft.within(bytes)) {
            if let Some(bytes) = self.cache.soft.bytes_of(id) {
                for (index, _) in spans(bytes) {
                    self.write_out(index)?;
                }
            }
        }
        Ok(())
    }

    /// Writes what has waited for as long as it may, with soft updates.
    ///
    /// # Errors
    /// As of the disk.
    pub fn sync_due(&mut self) -> Result<(), Errno> {
        // What still waits begins anew, and has no second turn now: it may be due at once where delays are short, and
        // waits for what is due much later.
        let (now, all) = (self.strategy.now(), self.cache.by_due.len());
        for _ in 0..all {
            let Some(&(_, index)) = self.cache.by_due.first().filter(|(due, _)| *due <= now) else { break };
            if self.cache.defect.is(KernelDefect::SyncerForgets) {
                self.cache.by_due.pop_first();
                continue;
            }
            self.write_out(index)?;
        }
        Ok(())
    }

    /// Does `piece` with each piece of bytes of the disk, at an address and so many: to read them, or to write them
    /// later. It answers how many it has moved, and why not more.
    ///
    /// # Errors
    /// Those of the disk and of `piece`; the bytes before have moved.
    fn each_piece(&mut self, at: u64, len: usize, rw: UioRw, piece: DoPiece<'_, S>) -> Result<(), Errno> {
        for (index, span) in spans(at..at + len as u64) {
            // Where the writer's memory ends, whole sectors would be left with what was there before.
            let needed = if rw == UioRw::Write { cut_sectors(&span) } else { sectors(&span) };
            let va = self.bread(index, needed)?;
            let (bytes, moved) = piece(&self.strategy, va + span.start, span.len());
            if rw == UioRw::Write && bytes > 0 {
                let which = sectors(&(span.start..span.start + bytes));
                self.cache.mark_dirty(index, which, self.strategy.now());
            }
            moved?;
        }
        Ok(())
    }

    /// Moves bytes of the disk into a buffer on its way, or from it, to be written later.
    ///
    /// # Errors
    /// Those of the disk and of `piece`; the bytes before have moved.
    pub fn move_pieces(
        &mut self,
        at: u64,
        len: usize,
        uio: &mut Uio,
        piece: MovePiece<'_>,
    ) -> Result<(), Errno> {
        self.each_piece(at, len, uio.rw(), &mut |_, va, len| {
            let before = uio.done();
            let moved = piece(va, len, uio);
            (uio.done() - before, moved)
        })
    }

    /// Writes the oldest of what waits, if there is too much of it, until half may wait.
    ///
    /// # Errors
    /// As of the disk.
    pub fn limit(&mut self) -> Result<(), Errno> {
        if self.cache.by_wait.len() > self.cache.max_dirty {
            // With soft updates some wait on.
            for _ in 0..self.cache.by_wait.len() {
                if self.cache.by_wait.len() <= self.cache.max_dirty / 2 {
                    break;
                }
                let index = *self.cache.by_wait.first_key_value().expect("some wait").1;
                self.write_out(index)?;
            }
        }
        Ok(())
    }

    fn check(&self, at: u64, len: usize) -> Result<(), IoError> {
        let end = at.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.cache.len_bytes) { Ok(()) } else { Err(IoError::of_disk(at)) }
    }
}

impl<S: Strategy> Store for Cached<'_, S> {
    fn len_bytes(&self) -> u64 {
        self.cache.len_bytes
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.check(at, bytes.len())?;
        let mut done = 0;
        let result = self.each_piece(at, bytes.len(), UioRw::Read, &mut |strategy, va, len| {
            let loaded = strategy.load(va, &mut bytes[done..][..len]);
            done += len;
            (len, loaded)
        });
        result.map_err(|e| IoError { at: at + done as u64, why: e.into() })
    }

    fn write(&mut self, at: u64, bytes: &[u8], when: When) -> Result<(), IoError> {
        self.check(at, bytes.len())?;
        let mut done = 0;
        let result = self.each_piece(at, bytes.len(), UioRw::Write, &mut |strategy, va, len| {
            strategy.store(va, &bytes[done..][..len]);
            done += len;
            (len, Ok(()))
        });
        result.map_err(|e| IoError { at: at + done as u64, why: e.into() })?;
        match when {
            When::Now => self.flush(at..at + bytes.len() as u64),
            When::Later => self.limit().map_err(|e| IoError { at, why: e.into() }),
        }
    }

    fn forget(&mut self, bytes: Range<u64>) {
        self.cache.soft.forget(bytes.clone());
        for (index, span) in spans(bytes) {
            if let Some(buffer) = self.cache.buffers.get_mut(&index)
                && buffer.dirty != 0
            {
                buffer.dirty &= !(sectors(&span) & !cut_sectors(&span));
                if buffer.dirty == 0 {
                    self.cache.by_wait.remove(&buffer.dirty_since);
                    self.cache.by_due.remove(&(buffer.due, index));
                }
            }
        }
    }

    fn soft_updates(&mut self) -> Option<&mut SoftUpdates> {
        Some(&mut self.cache.soft)
    }

    fn hurry(&mut self, bytes: Range<u64>, sort: Sort) {
        if let Some(delays) = self.cache.syncer.filter(|_| sort != Sort::File) {
            let due = self.strategy.now() + delay(&delays, sort);
            spans(bytes).for_each(|(index, _)| self.cache.hurry(index, due));
        }
    }

    fn flush(&mut self, bytes: Range<u64>) -> Result<(), IoError> {
        let size = BUFFER_BYTES as u64;
        let within = bytes.start / size..bytes.end.div_ceil(size);
        let at = bytes.start;
        let waiting: Vec<u64> = if within.end - within.start <= 1 {
            Vec::from([within.start])
        } else {
            self.cache.by_wait.values().copied().filter(|index| within.contains(index)).collect()
        };
        for index in waiting {
            self.write_out(index).map_err(|e| IoError { at, why: e.into() })?;
        }
        self.write_older(bytes).map_err(|e| IoError { at, why: e.into() })
    }
}

// --------------------------------------------------------------------------------------------------- sectors

/// Some sectors of a buffer, a bit each.
type Sectors = u32;

fn sectors(span: &Range<usize>) -> Sectors {
    let (first, end) = (span.start / SECTOR, span.end.div_ceil(SECTOR));
    (((1u64 << end) - 1) & !((1u64 << first) - 1)) as Sectors
}

/// The sectors that a span has only a part of.
fn cut_sectors(span: &Range<usize>) -> Sectors {
    let mut cut = 0;
    if !span.start.is_multiple_of(SECTOR) {
        cut |= 1 << (span.start / SECTOR);
    }
    if !span.end.is_multiple_of(SECTOR) {
        cut |= 1 << (span.end / SECTOR);
    }
    cut
}

/// The runs of neighbours.
fn runs(of: Sectors) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    core::iter::from_fn(move || {
        let start = (from..Sectors::BITS as usize).find(|&bit| of & 1 << bit != 0)?;
        let end = (start..Sectors::BITS as usize).find(|&bit| of & 1 << bit == 0);
        from = end.unwrap_or(Sectors::BITS as usize);
        Some(start..from)
    })
}

/// The buffers that a range of the disk lies in, and what of each.
fn spans(bytes: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let size = BUFFER_BYTES as u64;
    let all = if bytes.is_empty() { 0..0 } else { bytes.start / size..bytes.end.div_ceil(size) };
    all.map(move |index| {
        let from = bytes.start.saturating_sub(index * size) as usize;
        (index, from..(bytes.end - index * size).min(size) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};

    /// The last buffer has a part of the disk only.
    const LEN: usize = 5 * BUFFER_BYTES + 3 * SECTOR;

    /// A disk that fails now and then, and the memory of buffers.
    struct Rig {
        disk: RefCell<Vec<u8>>,
        memory: RefCell<Vec<u8>>,
        may_fail: Cell<bool>,
        written: Cell<usize>,
        state: Cell<u64>,
    }

    impl Rig {
        fn new(seed: u64) -> Rig {
            Rig {
                disk: vec![0; LEN].into(),
                memory: vec![0; 6 * BUFFER_BYTES].into(),
                may_fail: Cell::default(),
                written: Cell::default(),
                state: seed.into(),
            }
        }

        fn below(&self, end: usize) -> usize {
            let next = self.state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.state.set(next);
            (next >> 33) as usize % end
        }

        /// Some bytes; half of the time they begin or end beside where a sector or a buffer does.
        fn range(&self) -> Range<usize> {
            let place = || match self.below(2) {
                0 => self.below(LEN),
                _ => (self.below(LEN / SECTOR) * SECTOR + self.below(3)).saturating_sub(1),
            };
            let (one, other) = (place(), place().min(LEN));
            let (start, end) = (one.min(other), one.max(other));
            start..end.min(start + 2 * BUFFER_BYTES)
        }
    }

    /// With memory for each piece, or for each buffer.
    struct Owner<'a, const KEEPS: bool>(&'a Rig);

    impl<const KEEPS: bool> Strategy for Owner<'_, KEEPS> {
        type Memory = u64;
        const KEEPS_PIECES: bool = KEEPS;

        fn account_name(&self) {}

        fn account_buffer(&self) {}

        fn now(&self) -> Cycles {
            Cycles(0)
        }

        fn show(&mut self, index: u64, room: Room<u64>) -> Result<u64, Errno> {
            if KEEPS {
                return Ok(index);
            }
            let number = match room {
                Room::New(count) => count as u64,
                Room::Used(number) => number,
            };
            self.0.memory.borrow_mut()[number as usize * BUFFER_BYTES..][..BUFFER_BYTES].fill(0xee);
            Ok(number)
        }

        fn address(number: &u64) -> Va {
            Va(number * BUFFER_BYTES as u64)
        }

        fn transfer(&mut self, bytes: Range<u64>, at: Va, rw: UioRw) -> Result<(), Errno> {
            let rig = self.0;
            if rig.may_fail.get() && rig.below(4) == 0 {
                return Err(Errno::Io);
            }
            let (mut disk, mut memory) = (rig.disk.borrow_mut(), rig.memory.borrow_mut());
            let disk = &mut disk[bytes.start as usize..bytes.end as usize];
            let memory = &mut memory[at.0 as usize..][..disk.len()];
            match rw {
                UioRw::Read => memory.copy_from_slice(disk),
                UioRw::Write => {
                    rig.written.set(rig.written.get() + 1);
                    disk.copy_from_slice(memory);
                }
            }
            Ok(())
        }

        fn load(&self, at: Va, bytes: &mut [u8]) -> Result<(), Errno> {
            bytes.copy_from_slice(&self.0.memory.borrow()[at.0 as usize..][..bytes.len()]);
            Ok(())
        }

        fn store(&self, at: Va, bytes: &[u8]) {
            self.0.memory.borrow_mut()[at.0 as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Reads give what was last written, whatever buffers there are and whatever fails; what was flushed is on the
    /// disk; no more waits than may, and nothing is written before that.
    fn holds_what_was_written<const KEEPS: bool>(seed: u64, max: usize, max_dirty: usize) {
        let rig = Rig::new(seed);
        let mut cache = BufferCache::<u64>::new(LEN as u64, max, max_dirty);
        // What each byte is, if that is known.
        let mut plain = vec![Some(0u8); LEN];
        for step in 0..400 {
            let range = rig.range();
            let (at, bytes) = (range.start as u64, range.start as u64..range.end as u64);
            let mut cached = Cached { strategy: Owner::<KEEPS>(&rig), cache: &mut cache };
            rig.may_fail.set(rig.below(3) == 0);
            match rig.below(8) {
                0..=3 => {
                    let new = vec![step as u8; range.len()];
                    let waiting = |cached: &Cached<'_, _>| cached.cache.by_wait.len();
                    let room = max - cached.cache.buffers.len();
                    let (may_wait, written) =
                        (waiting(&cached) + spans(bytes.clone()).count(), rig.written.get());
                    let result = cached.write(at, &new, When::Later);
                    if result.is_ok() {
                        assert!(waiting(&cached) <= max_dirty, "{} buffers wait", waiting(&cached));
                    }
                    if room >= 3 && may_wait <= max_dirty {
                        assert_eq!(rig.written.get(), written, "nothing has to be written yet");
                    }
                    plain[range].fill(result.is_ok().then_some(step as u8));
                }
                4..=5 => {
                    let mut found = vec![0; range.len()];
                    if cached.read(at, &mut found).is_ok() {
                        for (i, (found, known)) in found.iter().zip(&plain[range]).enumerate() {
                            assert!(
                                known.is_none_or(|known| known == *found),
                                "byte {} at step {step}",
                                at as usize + i
                            );
                        }
                    }
                }
                6 => {
                    if cached.flush(bytes).is_ok() {
                        for (found, known) in rig.disk.borrow()[range.clone()].iter().zip(&plain[range]) {
                            assert!(known.is_none_or(|known| known == *found), "step {step}");
                        }
                    }
                }
                _ => {
                    cached.forget(bytes);
                    plain[range].fill(None);
                }
            }
        }
        rig.may_fail.set(false);
        Cached { strategy: Owner::<KEEPS>(&rig), cache: &mut cache }
            .sync()
            .expect("the disk does not fail any more");
        let disk = rig.disk.borrow();
        let as_known =
            disk.iter().zip(&plain).all(|(found, known)| known.is_none_or(|known| known == *found));
        assert!(as_known, "all is on the disk in the end");
    }

    #[test]
    fn a_cache_holds_what_was_written_whatever_fails() {
        for seed in 0..12 {
            for (max, max_dirty) in [(1, 1), (2, 1), (3, 2), (6, 1), (6, 3), (6, 6)] {
                holds_what_was_written::<true>(seed, max, max_dirty);
                holds_what_was_written::<false>(seed, max, max_dirty);
            }
        }
    }
}
