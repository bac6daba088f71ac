//! The buffer cache of a disk with a file system, whoever has it: the kernel (`buffers`) or a file server
//! (`pageferry_servers`).
//!
//! # What it holds
//! The disk lies in *pieces* of as many bytes as a buffer has addresses. [`BufferCache`] holds buffers, each with
//! memory that shows a piece, or one block of a file in it, as many as there may be; when all are in use, the one that
//! was used least recently is written and shows something else. Of each sector it is known whether the memory has it,
//! and whether it waits to be written. How memory comes to show sectors, and how bytes get between it and the disk, is
//! the owner's part, its [`Strategy`] (BSD's word). A file system gets both for the time of a call, [`Cached`].
//!
//! Each block of a file has a buffer of its own, as long as the block's fragments ([`Store::block`]): it shows more
//! when the block gets more of them (`allocbuf`), and is free for others as soon as the block is no file's any more
//! (`brelse` with `B_INVAL`). All else is shown by the piece. Where pieces have memory of their own for each buffer
//! (not [`Strategy::KEEPS_PIECES`]), blocks of files are shown by their pieces, too.
//!
//! A write at once writes the buffer as `bwrite` does: all of it that is valid and lies around what changed. Where
//! several files share a piece and it is known that only their bytes wait (with soft updates), those alone are written.
//! Buffers that wait are written when there are too many, the oldest first.
//!
//! With soft updates ([`BufferCache::use_soft_updates`]) what a buffer has may be ahead of what the disk may have: the
//! rest is rolled back while the buffer is written, which then still waits (`softdep_disk_io_initiation`). A buffer
//! that has waited for as long as what is in it may is written by whoever comes next ([`Cached::sync_due`]), who does
//! the work of FreeBSD's syncer. What in it may wait for the shortest time counts; where it still waits, that begins
//! anew.
//!
//! `cache` has what is known of buffers, `sectors` the arithmetic of a piece's sectors; here is what is done.
//!
//! # Locks
//! None of its own: who has the volume does one thing at a time.
//!
//! # What can fail
//! The owner's part: showing a piece, and the disk.

mod cache;
mod sectors;
#[cfg(test)]
mod tests;

pub use cache::BufferCache;
pub use sectors::BUFFER_BYTES;

use crate::config::SyncerDelays;
use crate::defect::KernelDefect;
use crate::proc::{Uio, UioRw};
use alloc::vec;
use alloc::vec::Vec;
use cache::{Buffer, Place};
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_fs::soft::Swap;
use pageferry_fs::{IoError, SoftUpdates, Sort, Store, When};
use pageferry_hal::{Cycles, Va};
use sectors::{SECTOR, Sectors, bits, cut_sectors, runs, sectors};

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

    /// Memory that shows some sectors of a piece: that of another, or new memory, of which there was so much before.
    ///
    /// # Errors
    /// For want of it.
    fn show(
        &mut self,
        piece: u64,
        sectors: Range<usize>,
        memory: Room<Self::Memory>,
    ) -> Result<Self::Memory, Errno>;

    /// The same memory shows more sectors of the piece, up to one.
    ///
    /// # Errors
    /// For want of memory: then it shows what it has shown.
    fn show_more(&mut self, piece: u64, end: usize, memory: &mut Self::Memory) -> Result<(), Errno>;

    /// The memory shows nothing any more, and is for another buffer.
    fn hide(&mut self, memory: Self::Memory) -> Self::Memory;

    /// Where the piece begins, or would if all of it were shown.
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

/// Does something with a piece of the disk at an address, so many bytes: how many it has moved, and why not more.
type DoPiece<'a, S> = &'a mut dyn FnMut(&S, Va, usize) -> (usize, Result<(), Errno>);

fn delay(syncer: &SyncerDelays, sort: Sort) -> Cycles {
    match sort {
        Sort::Metadata => syncer.metadata_cycles,
        Sort::Directory => syncer.directory_cycles,
        Sort::File => syncer.file_cycles,
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
    fn get(&mut self, place: Place) -> Result<Va, Errno> {
        self.strategy.account_buffer();
        self.cache.clock += 1;
        let now = self.cache.clock;
        let sectors = self.cache.sectors_of(place);
        let shown = bits(&sectors);
        if let Some(buffer) = self.cache.buffers.get_mut(&place) {
            self.cache.by_use.remove(&buffer.used);
            buffer.used = now;
            self.cache.by_use.insert(now, place);
            if shown & !buffer.shown != 0 {
                self.show_more(place, sectors)?;
            }
            return Ok(S::address(&self.cache.buffers[&place].memory));
        }
        let memory = self.show(place, sectors)?;
        let at = S::address(&memory);
        self.cache.by_use.insert(now, place);
        self.cache.buffers.insert(
            place,
            Buffer { memory, shown, used: now, dirty_since: 0, dirty: 0, due: Cycles(0), is_files: false },
        );
        Ok(at)
    }

    /// Memory that shows these sectors. There may be as many buffers, but not the addresses or frames for one more:
    /// then others give back theirs.
    fn show(&mut self, place: Place, sectors: Range<usize>) -> Result<S::Memory, Errno> {
        loop {
            let count = self.cache.buffers.len() + self.cache.hidden.len();
            let room = match self.cache.hidden.pop() {
                Some(memory) => Room::Used(memory),
                None if count < self.cache.max => Room::New(count),
                None => Room::Used(self.reclaim(place)?),
            };
            match self.strategy.show(place.piece, sectors.clone(), room) {
                Err(Errno::NoMemory) if !self.cache.buffers.is_empty() => self.give_back(place)?,
                shows => return shows,
            }
        }
    }

    /// Has a buffer show more of its piece, up to the end of these sectors; as [`Cached::show`].
    fn show_more(&mut self, place: Place, sectors: Range<usize>) -> Result<(), Errno> {
        let shown = bits(&sectors);
        loop {
            let count = self.cache.buffers.len();
            let buffer = self.cache.buffers.get_mut(&place).expect("it is there");
            match self.strategy.show_more(place.piece, sectors.end, &mut buffer.memory) {
                Err(Errno::NoMemory) if count > 1 => self.give_back(place)?,
                shows => return shows.map(|()| buffer.shown |= shown),
            }
        }
    }

    /// Another buffer than this one has no frames any more.
    fn give_back(&mut self, but: Place) -> Result<(), Errno> {
        let memory = self.reclaim(but)?;
        let memory = self.strategy.hide(memory);
        self.cache.hidden.push(memory);
        Ok(())
    }

    /// Takes the memory of the buffer that was used least recently, but not of this one.
    fn reclaim(&mut self, but: Place) -> Result<S::Memory, Errno> {
        let victim = self.victim(but)?;
        let buffer = self.cache.buffers.remove(&victim).expect("it is in the list");
        self.cache.by_use.remove(&buffer.used);
        if !S::KEEPS_PIECES {
            self.cache.valid.remove(&victim.piece);
        }
        Ok(buffer.memory)
    }

    /// The buffer that was used least recently, of those of which nothing waits any more, and but for one.
    fn victim(&mut self, but: Place) -> Result<Place, Errno> {
        let mut after = None;
        loop {
            let next = match after {
                None => self.cache.by_use.first_key_value(),
                Some(used) => self.cache.by_use.range(used + 1..).next(),
            };
            let next = next.map(|(used, place)| (*used, *place)).filter(|(_, place)| *place != but);
            // What is in all others waits for what is not in its buffer yet.
            let (used, place) = next.ok_or(Errno::Io)?;
            self.write_out(place)?;
            self.write_older(place.start()..place.start() + BUFFER_BYTES as u64)?;
            if self.cache.buffers[&place].dirty == 0 {
                return Ok(place);
            }
            after = Some(used);
        }
    }

    /// The address of the piece of a buffer that has these sectors; what it lacks of all comes from the disk.
    fn bread(&mut self, place: Place, needed: Sectors) -> Result<Va, Errno> {
        let at = self.get(place)?;
        let valid = self.cache.valid(place.piece);
        if needed & !valid != 0 {
            let all = bits(&self.cache.sectors_of(place));
            for run in runs(all & !valid) {
                self.transfer(place, at, run, UioRw::Read)?;
            }
            self.cache.valid.insert(place.piece, all | valid);
        }
        Ok(at)
    }

    /// Moves some sectors of a buffer from the disk or to it.
    fn transfer(&mut self, place: Place, at: Va, run: Range<usize>, rw: UioRw) -> Result<(), Errno> {
        let start = place.start() + (run.start * SECTOR) as u64;
        let bytes = start..start + (run.len() * SECTOR) as u64;
        self.strategy.transfer(bytes, at + run.start * SECTOR, rw)
    }

    /// Writes what waits of a buffer, with what is valid around it.
    fn write_out(&mut self, place: Place) -> Result<(), Errno> {
        let Some(buffer) = self.cache.buffers.get(&place).filter(|buffer| buffer.dirty != 0) else {
            return Ok(());
        };
        let (at, dirty) = (S::address(&buffer.memory), buffer.dirty);
        let around = match place.block {
            Some(_) => buffer.shown,
            None if buffer.is_files => dirty,
            None => !self.cache.of_blocks(place.piece) | dirty,
        };
        let first = place.piece * (BUFFER_BYTES / SECTOR) as u64;
        let mut waiting = 0;
        for run in runs(self.cache.valid(place.piece) & around) {
            let which = bits(&run) & dirty;
            if which == 0 {
                continue;
            }
            let numbers = run.clone().filter(|bit| which & 1 << bit != 0).map(|bit| first + bit as u64);
            self.swap(place, at, |soft, swap| soft.roll_back(numbers, swap));
            let written = self.transfer(place, at, run, UioRw::Write);
            let left = self.swap(place, at, |soft, swap| soft.written(written.is_ok(), swap));
            written?;
            waiting |= left.into_iter().fold(0, |bits, sector| bits | 1 << (sector - first));
        }
        self.cache.mark_clean_but(place, waiting, self.strategy.now());
        Ok(())
    }

    /// Does something with the soft updates that swaps bytes of a buffer.
    fn swap<R>(&mut self, place: Place, at: Va, work: impl FnOnce(&mut SoftUpdates, Swap<'_>) -> R) -> R {
        let strategy = &self.strategy;
        work(&mut self.cache.soft, &mut |byte, other| {
            let at = at + (byte - place.start()) as usize;
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
                for place in self.cache.waiting_in(bytes) {
                    self.write_out(place)?;
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
            let Some(&(_, place)) = self.cache.by_due.first().filter(|(due, _)| *due <= now) else { break };
            if self.cache.defect.is(KernelDefect::SyncerForgets) {
                self.cache.by_due.pop_first();
                continue;
            }
            self.write_out(place)?;
        }
        Ok(())
    }

    /// Does `piece` with each piece of bytes of the disk, at an address and so many: to read them, or to write them
    /// later. It answers how many it has moved, and why not more.
    ///
    /// # Errors
    /// Those of the disk and of `piece`; the bytes before have moved.
    fn each_piece(&mut self, at: u64, len: usize, rw: UioRw, piece: DoPiece<'_, S>) -> Result<(), Errno> {
        let mut left = at..at + len as u64;
        while let Some((place, span)) = self.cache.first_of(&left) {
            left.start += span.len() as u64;
            // Where the writer's memory ends, whole sectors would be left with what was there before.
            let needed = if rw == UioRw::Write { cut_sectors(&span) } else { sectors(&span) };
            let va = self.bread(place, needed)?;
            let (bytes, moved) = piece(&self.strategy, va + span.start, span.len());
            if rw == UioRw::Write && bytes > 0 {
                let which = sectors(&(span.start..span.start + bytes));
                self.cache.mark_dirty(place, which, self.strategy.now());
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
                let place = *self.cache.by_wait.first_key_value().expect("some wait").1;
                self.write_out(place)?;
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
        // What is shown by pieces may have waited since before it was a block's.
        for place in self.cache.waiting_in(bytes.clone()) {
            let from = bytes.start.saturating_sub(place.start()) as usize;
            let span = from..(bytes.end - place.start()).min(BUFFER_BYTES as u64) as usize;
            self.cache.forget(place, sectors(&span) & !cut_sectors(&span));
        }
        for (place, span) in self.cache.spans(bytes).collect::<Vec<_>>() {
            let whole = sectors(&span) & !cut_sectors(&span);
            if let Some(buffer) = self.cache.end_block(place, whole) {
                let memory = self.strategy.hide(buffer.memory);
                self.cache.hidden.push(memory);
            }
        }
    }

    fn block(&mut self, bytes: Range<u64>) {
        // Larger blocks are shown by pieces, as is what has memory of its own for each piece.
        let (piece, size) = (bytes.start / BUFFER_BYTES as u64, BUFFER_BYTES as u64);
        if !S::KEEPS_PIECES || bytes.end > (piece + 1) * size {
            return;
        }
        let first = (bytes.start % size) as usize / SECTOR;
        let new = first..first + (bytes.end - bytes.start) as usize / SECTOR;
        let blocks = self.cache.blocks.entry(piece).or_default();
        if blocks.contains(&new) {
            return;
        }
        // What waits there was another buffer's, if there is one.
        blocks.retain(|block| block.start == new.start || block.end <= new.start || new.end <= block.start);
        match blocks.iter_mut().find(|block| block.start == new.start) {
            Some(block) => *block = new.clone(),
            None => {
                let at = blocks.partition_point(|block| block.start < new.start);
                blocks.insert(at, new.clone());
            }
        }
    }

    fn soft_updates(&mut self) -> Option<&mut SoftUpdates> {
        Some(&mut self.cache.soft)
    }

    fn hurry(&mut self, bytes: Range<u64>, sort: Sort) {
        if let Some(delays) = self.cache.syncer.filter(|_| sort != Sort::File) {
            let due = self.strategy.now() + delay(&delays, sort);
            self.cache.waiting_in(bytes).into_iter().for_each(|place| self.cache.hurry(place, due));
        }
    }

    fn flush(&mut self, bytes: Range<u64>) -> Result<(), IoError> {
        let size = BUFFER_BYTES as u64;
        let within = bytes.start / size..bytes.end.div_ceil(size);
        let at = bytes.start;
        let waiting: Vec<Place> = if within.end - within.start <= 1 {
            let shown = self.cache.spans(bytes.clone()).map(|(place, _)| place);
            shown.chain(self.cache.waiting_in(bytes.clone())).collect()
        } else {
            self.cache.by_wait.values().copied().filter(|place| within.contains(&place.piece)).collect()
        };
        for place in waiting {
            self.write_out(place).map_err(|e| IoError { at, why: e.into() })?;
        }
        self.write_older(bytes).map_err(|e| IoError { at, why: e.into() })
    }
}
