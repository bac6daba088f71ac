//! The buffer cache of a disk with a file system, whoever has it: the kernel (`buffers`) or a file server
//! (`pageferry_servers`).
//!
//! # What it holds
//! The disk lies in *pieces* of as many bytes as a buffer has addresses. [`BufferCache`] holds buffers, each with memory
//! that shows a piece, or one block of a file in it, as many as there may be; when all are in use, the one that was used
//! least recently is written and shows something else. Of each sector it is known whether the memory has it, and whether
//! it waits to be written. How memory comes to show sectors, and how bytes get between it and the disk, is the owner's
//! part, its [`Strategy`] (BSD's word). A file system gets both for the time of a call, [`Cached`].
//!
//! Each block of a file has a buffer of its own, as long as the block's fragments ([`Store::block`]): it shows more when
//! the block gets more of them (`allocbuf`), and is free for others as soon as the block is no file's any more
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

/// What a buffer is for: a piece of the disk, or the block of a file that begins at a sector of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    piece: u64,
    block: Option<u8>,
}

impl Place {
    /// The disk's byte that the piece begins with.
    fn start(self) -> u64 {
        self.piece * BUFFER_BYTES as u64
    }
}

struct Buffer<B> {
    memory: B,
    /// What it shows of its piece.
    shown: Sectors,
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
    buffers: BTreeMap<Place, Buffer<B>>,
    /// Memory that shows nothing, and is used first.
    hidden: Vec<B>,
    /// When each was used last, and since when each waits.
    by_use: BTreeMap<u64, Place>,
    by_wait: BTreeMap<u64, Place>,
    /// Sectors that the memory of pieces has.
    valid: BTreeMap<u64, Sectors>,
    /// Blocks of files in each piece, by their sectors, in order. No two have one in common.
    blocks: BTreeMap<u64, Vec<Range<usize>>>,
    clock: u64,
    soft: SoftUpdates,
    /// There is a syncer, and when it is to write what.
    syncer: Option<SyncerDelays>,
    by_due: BTreeSet<(Cycles, Place)>,
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
            hidden: Vec::new(),
            by_use: BTreeMap::new(),
            by_wait: BTreeMap::new(),
            valid: BTreeMap::new(),
            blocks: BTreeMap::new(),
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

    /// The memory of all buffers that show something, and of those that do not; what waits is lost.
    pub fn into_memory(self) -> (impl Iterator<Item = B>, Vec<B>) {
        (self.buffers.into_values().map(|buffer| buffer.memory), self.hidden)
    }

    fn valid(&self, piece: u64) -> Sectors {
        self.valid.get(&piece).copied().unwrap_or(0)
    }

    /// The sectors of a piece that the disk has.
    fn there(&self, piece: u64) -> usize {
        let left = self.len_bytes - piece * BUFFER_BYTES as u64;
        left.div_ceil(SECTOR as u64).min(Sectors::BITS.into()) as usize
    }

    /// What a buffer is to show.
    fn sectors_of(&self, place: Place) -> Range<usize> {
        let blocks = self.blocks.get(&place.piece).into_iter().flatten();
        match place.block {
            None => 0..self.there(place.piece),
            Some(first) => {
                blocks.into_iter().find(|block| block.start == usize::from(first)).cloned().unwrap_or(0..0)
            }
        }
    }

    /// The sectors of a piece that are of blocks of files.
    fn of_blocks(&self, piece: u64) -> Sectors {
        self.blocks.get(&piece).into_iter().flatten().fold(0, |all, block| all | bits(block))
    }

    /// The first bytes of a range that are one buffer's, which it is, and where in its piece.
    fn first_of(&self, bytes: &Range<u64>) -> Option<(Place, Range<usize>)> {
        if bytes.is_empty() {
            return None;
        }
        let size = BUFFER_BYTES as u64;
        let piece = bytes.start / size;
        let from = (bytes.start % size) as usize;
        let mut to = (bytes.end - piece * size).min(size) as usize;
        let sector = from / SECTOR;
        let mut block = None;
        // A block that is there, or the next one, is where the first bytes end.
        if let Some(next) = self.blocks.get(&piece).into_iter().flatten().find(|block| sector < block.end) {
            let is_there = next.start <= sector;
            to = to.min(SECTOR * if is_there { next.end } else { next.start });
            block = is_there.then_some(next.start as u8);
        }
        Some((Place { piece, block }, from..to))
    }

    /// The buffers of a range, and what of the piece of each.
    fn spans(&self, bytes: Range<u64>) -> impl Iterator<Item = (Place, Range<usize>)> {
        let mut left = bytes;
        core::iter::from_fn(move || {
            let (place, span) = self.first_of(&left)?;
            left.start += span.len() as u64;
            Some((place, span))
        })
    }

    /// The buffers in which something of a range waits.
    fn waiting_in(&self, bytes: Range<u64>) -> Vec<Place> {
        let size = BUFFER_BYTES as u64;
        let pieces = if bytes.is_empty() { 0..0 } else { bytes.start / size..bytes.end.div_ceil(size) };
        let of_piece = |piece: u64| {
            let from = bytes.start.saturating_sub(piece * size) as usize;
            let which = sectors(&(from..(bytes.end - piece * size).min(size) as usize));
            let all = Place { piece, block: None }..=Place { piece, block: Some(u8::MAX) };
            self.buffers
                .range(all)
                .filter(move |(_, buffer)| buffer.dirty & which != 0)
                .map(|(place, _)| *place)
        };
        pieces.flat_map(of_piece).collect()
    }

    /// These sectors are a block's no more, which may be all that it has, or the last ones. Its buffer, if it has one
    /// for nothing now.
    fn end_block(&mut self, place: Place, which: Sectors) -> Option<Buffer<B>> {
        let first = usize::from(place.block?);
        let blocks = self.blocks.get_mut(&place.piece)?;
        let at = blocks.iter().position(|block| block.start == first)?;
        let left = bits(&blocks[at]) & !which;
        if left != 0 {
            // Whatever else was forgotten of it is a hole in what is valid, and stays the block's.
            blocks[at].end = (Sectors::BITS - left.leading_zeros()) as usize;
            if let Some(buffer) = self.buffers.get_mut(&place) {
                buffer.shown &= bits(&blocks[at]) | buffer.dirty;
            }
            return None;
        }
        blocks.remove(at);
        if blocks.is_empty() {
            self.blocks.remove(&place.piece);
        }
        let buffer = self.buffers.remove(&place)?;
        self.by_use.remove(&buffer.used);
        Some(buffer)
    }

    /// New bytes are in these sectors of the buffer that was asked for last: they wait to be written.
    fn mark_dirty(&mut self, place: Place, which: Sectors, now: Cycles) {
        *self.valid.entry(place.piece).or_default() |= which;
        self.clock += 1;
        let buffer = self.buffers.get_mut(&place).expect("its caller has just got it");
        if buffer.dirty == 0 {
            buffer.dirty_since = self.clock;
            self.by_wait.insert(self.clock, place);
            if let Some(delays) = self.syncer {
                buffer.due = now + delays.file_cycles;
                buffer.is_files = true;
                self.by_due.insert((buffer.due, place));
            }
        }
        buffer.dirty |= which;
    }

    /// These sectors of a buffer still wait, and no others.
    fn mark_clean_but(&mut self, place: Place, which: Sectors, now: Cycles) {
        let Some(buffer) = self.buffers.get_mut(&place).filter(|buffer| buffer.dirty != 0) else { return };
        self.by_wait.remove(&buffer.dirty_since);
        self.by_due.remove(&(buffer.due, place));
        buffer.dirty = 0;
        if which != 0 {
            self.mark_dirty(place, which, now);
        }
    }

    /// What waits in these sectors of a buffer waits no more.
    fn forget(&mut self, place: Place, which: Sectors) {
        let Some(buffer) = self.buffers.get_mut(&place).filter(|buffer| buffer.dirty != 0) else { return };
        buffer.dirty &= !which;
        if buffer.dirty == 0 {
            self.by_wait.remove(&buffer.dirty_since);
            self.by_due.remove(&(buffer.due, place));
        }
    }

    /// What waits in a buffer is not the bytes of files alone, and is to be written by then.
    fn hurry(&mut self, place: Place, due: Cycles) {
        let Some(buffer) = self.buffers.get_mut(&place).filter(|buffer| buffer.dirty != 0) else { return };
        buffer.is_files = false;
        if due < buffer.due {
            self.by_due.remove(&(buffer.due, place));
            buffer.due = due;
            self.by_due.insert((due, place));
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
    fn get(&mut self, place: Place) -> Result<Va, Errno> {
        self.strategy.account_buffer();
        self.cache.clock += 1;
        let now = self.cache.clock;
        let sectors = self.cache.sectors_of(place);
        let shown = bits(&sectors);
        if let Some(buffer) = self.cache.buffers.get_mut(&place) {
            if shown & !buffer.shown != 0 {
                self.strategy.show_more(place.piece, sectors.end, &mut buffer.memory)?;
                buffer.shown |= shown;
            }
            self.cache.by_use.remove(&buffer.used);
            buffer.used = now;
            self.cache.by_use.insert(now, place);
            return Ok(S::address(&buffer.memory));
        }
        let count = self.cache.buffers.len() + self.cache.hidden.len();
        let shows = match self.cache.hidden.pop() {
            Some(memory) => self.strategy.show(place.piece, sectors.clone(), Room::Used(memory)),
            None if count < self.cache.max => {
                self.strategy.show(place.piece, sectors.clone(), Room::New(count))
            }
            None => Err(Errno::NoMemory),
        };
        let memory = match shows {
            // There may be as many buffers, but not the addresses or frames for one more.
            Err(Errno::NoMemory) if !self.cache.buffers.is_empty() => {
                let room = Room::Used(self.reclaim()?);
                self.strategy.show(place.piece, sectors, room)?
            }
            shows => shows?,
        };
        let at = S::address(&memory);
        self.cache.by_use.insert(now, place);
        self.cache.buffers.insert(
            place,
            Buffer { memory, shown, used: now, dirty_since: 0, dirty: 0, due: Cycles(0), is_files: false },
        );
        Ok(at)
    }

    /// Takes the memory of the buffer that was used least recently.
    fn reclaim(&mut self) -> Result<S::Memory, Errno> {
        let victim = self.victim()?;
        let buffer = self.cache.buffers.remove(&victim).expect("it is in the list");
        self.cache.by_use.remove(&buffer.used);
        if !S::KEEPS_PIECES {
            self.cache.valid.remove(&victim.piece);
        }
        Ok(buffer.memory)
    }

    /// The buffer that was used least recently, of those of which nothing waits any more.
    fn victim(&mut self) -> Result<Place, Errno> {
        let mut after = None;
        loop {
            let next = match after {
                None => self.cache.by_use.first_key_value(),
                Some(used) => self.cache.by_use.range(used + 1..).next(),
            };
            // What is in all others waits for what is not in its buffer yet.
            let (used, place) = next.map(|(used, place)| (*used, *place)).ok_or(Errno::Io)?;
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

// --------------------------------------------------------------------------------------------------- sectors

/// Some sectors of a buffer, a bit each.
type Sectors = u32;

/// The bits of a run of sectors.
fn bits(run: &Range<usize>) -> Sectors {
    (((1u64 << run.end) - 1) & !((1u64 << run.start) - 1)) as Sectors
}

/// Those that some bytes of a piece lie in.
fn sectors(span: &Range<usize>) -> Sectors {
    bits(&(span.start / SECTOR..span.end.div_ceil(SECTOR)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};

    /// The last buffer has a part of the disk only.
    const LEN: usize = 5 * BUFFER_BYTES + 3 * SECTOR;

    /// A disk that fails now and then, and the memory of pieces, or of buffers.
    struct Rig {
        disk: RefCell<Vec<u8>>,
        memory: RefCell<Vec<u8>>,
        /// What each buffer shows: a piece, and sectors of it.
        shown: RefCell<BTreeMap<u64, (u64, Range<usize>)>>,
        may_fail: Cell<bool>,
        written: Cell<usize>,
        state: Cell<u64>,
    }

    impl Rig {
        fn new(seed: u64) -> Rig {
            Rig {
                disk: vec![0; LEN].into(),
                memory: vec![0; 6 * BUFFER_BYTES].into(),
                shown: RefCell::default(),
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

    /// With memory for each piece, or for each buffer. An address tells the buffer.
    struct Owner<'a, const KEEPS: bool>(&'a Rig);

    const PER_BUFFER: u64 = 2 * BUFFER_BYTES as u64;

    impl<const KEEPS: bool> Owner<'_, KEEPS> {
        /// Where in the memory some bytes of a buffer are, which it shows.
        fn place(&self, at: Va, len: usize) -> Range<usize> {
            let (number, from) = (at.0 / PER_BUFFER, (at.0 % PER_BUFFER) as usize);
            let (piece, shown) = self.0.shown.borrow()[&number].clone();
            assert!(shown.start * SECTOR <= from && from + len <= shown.end * SECTOR, "{from} of {shown:?}");
            let start = if KEEPS { piece } else { number } as usize * BUFFER_BYTES + from;
            start..start + len
        }
    }

    impl<const KEEPS: bool> Strategy for Owner<'_, KEEPS> {
        type Memory = u64;
        const KEEPS_PIECES: bool = KEEPS;

        fn account_name(&self) {}

        fn account_buffer(&self) {}

        fn now(&self) -> Cycles {
            Cycles(0)
        }

        fn show(&mut self, piece: u64, sectors: Range<usize>, room: Room<u64>) -> Result<u64, Errno> {
            let number = match room {
                Room::New(count) => count as u64,
                Room::Used(number) => number,
            };
            if !KEEPS {
                self.0.memory.borrow_mut()[number as usize * BUFFER_BYTES..][..BUFFER_BYTES].fill(0xee);
            }
            self.0.shown.borrow_mut().insert(number, (piece, sectors));
            Ok(number)
        }

        fn show_more(&mut self, piece: u64, end: usize, number: &mut u64) -> Result<(), Errno> {
            let mut shown = self.0.shown.borrow_mut();
            let (of, sectors) = shown.get_mut(number).expect("it shows something");
            assert_eq!(*of, piece);
            // What a block has lost is shown until its buffer is another's.
            sectors.end = sectors.end.max(end);
            Ok(())
        }

        fn hide(&mut self, number: u64) -> u64 {
            self.0.shown.borrow_mut().remove(&number).expect("it shows something");
            number
        }

        fn address(number: &u64) -> Va {
            Va(number * PER_BUFFER)
        }

        fn transfer(&mut self, bytes: Range<u64>, at: Va, rw: UioRw) -> Result<(), Errno> {
            let rig = self.0;
            if rig.may_fail.get() && rig.below(4) == 0 {
                return Err(Errno::Io);
            }
            let place = self.place(at, (bytes.end - bytes.start) as usize);
            let (mut disk, mut memory) = (rig.disk.borrow_mut(), rig.memory.borrow_mut());
            let disk = &mut disk[bytes.start as usize..bytes.end as usize];
            let memory = &mut memory[place];
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
            let place = self.place(at, bytes.len());
            bytes.copy_from_slice(&self.0.memory.borrow()[place]);
            Ok(())
        }

        fn store(&self, at: Va, bytes: &[u8]) {
            let place = self.place(at, bytes.len());
            self.0.memory.borrow_mut()[place].copy_from_slice(bytes);
        }
    }

    /// Sectors of a fragment.
    const FRAGMENT: usize = 4;

    /// Blocks of files, by the disk's fragments: none overlap.
    #[derive(Default)]
    struct Blocks(Vec<Range<usize>>);

    impl Blocks {
        /// A block more, or one that becomes longer where it is: all within a piece.
        fn more(&mut self, rig: &Rig) -> Range<usize> {
            let per = BUFFER_BYTES / SECTOR / FRAGMENT;
            let first = rig.below(5 * per);
            let end = first + 1 + rig.below(per - first % per);
            let old = self.0.iter_mut().find(|block| block.contains(&first));
            let start = old.as_ref().map_or(first, |block| block.start);
            let free =
                |other: &Range<usize>| other.start == start || other.end <= start || end <= other.start;
            let is_longer = old.as_ref().is_none_or(|block| block.end <= end);
            if !is_longer || !self.0.iter().all(free) {
                return 0..0;
            }
            self.0.retain(|block| block.start != start);
            self.0.push(start..end);
            start..end
        }

        /// One that is gone, or is shorter by that.
        fn less(&mut self, rig: &Rig) -> Range<usize> {
            if self.0.is_empty() {
                return 0..0;
            }
            let which = rig.below(self.0.len());
            let block = self.0.swap_remove(which);
            let keep = block.start + rig.below(2) * rig.below(block.len());
            if keep > block.start {
                self.0.push(block.start..keep);
            }
            keep..block.end
        }
    }

    fn bytes_of(fragments: Range<usize>) -> Range<u64> {
        let bytes = |fragment: usize| (fragment * FRAGMENT * SECTOR) as u64;
        bytes(fragments.start)..bytes(fragments.end)
    }

    /// Reads give what was last written, whatever buffers there are and whatever fails; what was flushed is on the
    /// disk; no more waits than may, and nothing is written before that.
    fn holds_what_was_written<const KEEPS: bool>(seed: u64, max: usize, max_dirty: usize) {
        let rig = Rig::new(seed);
        let mut cache = BufferCache::<u64>::new(LEN as u64, max, max_dirty);
        // What each byte is, if that is known.
        let mut plain = vec![Some(0u8); LEN];
        let mut blocks = Blocks::default();
        for step in 0..400 {
            let range = rig.range();
            let (at, bytes) = (range.start as u64, range.start as u64..range.end as u64);
            let mut cached = Cached { strategy: Owner::<KEEPS>(&rig), cache: &mut cache };
            rig.may_fail.set(rig.below(3) == 0);
            match rig.below(11) {
                8 => {
                    let new = blocks.more(&rig);
                    if !new.is_empty() {
                        cached.block(bytes_of(new));
                    }
                }
                9 => {
                    let gone = bytes_of(blocks.less(&rig));
                    plain[gone.start as usize..gone.end as usize].fill(None);
                    cached.forget(gone);
                }
                0..=3 => {
                    let new = vec![step as u8; range.len()];
                    let waiting = |cached: &Cached<'_, _>| cached.cache.by_wait.len();
                    let room = max - cached.cache.buffers.len();
                    let shown = cached.cache.spans(bytes.clone()).count();
                    let (may_wait, written) = (waiting(&cached) + shown, rig.written.get());
                    let result = cached.write(at, &new, When::Later);
                    if result.is_ok() {
                        assert!(waiting(&cached) <= max_dirty, "{} buffers wait", waiting(&cached));
                    }
                    if room >= shown && may_wait <= max_dirty {
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
                7 => {
                    // A block is forgotten as a whole, or its end: so all of these are shown by pieces.
                    if cached.cache.spans(bytes.clone()).all(|(place, _)| place.block.is_none()) {
                        cached.forget(bytes);
                        plain[range].fill(None);
                    }
                }
                _ => cached.sync_due().expect("nothing is due without a syncer"),
            }
            let Cached { cache, .. } = &cached;
            assert!(cache.buffers.len() + cache.hidden.len() <= max);
            assert_eq!(cache.buffers.len(), cache.by_use.len());
            let wait = cache.buffers.values().filter(|buffer| buffer.dirty != 0).count();
            assert_eq!(wait, cache.by_wait.len());
            for (place, buffer) in &cache.buffers {
                let own = bits(&cache.sectors_of(*place)) | buffer.dirty;
                assert_eq!(buffer.shown & !own, 0, "it has what is not its block's any more");
            }
            for (place, span) in cache.spans(0..LEN as u64) {
                let others = cache.of_blocks(place.piece) & sectors(&span);
                assert!(place.block.is_some() || others == 0, "a block is shown by its piece");
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
        for seed in 0..40 {
            for (max, max_dirty) in [(1, 1), (2, 1), (3, 2), (6, 1), (6, 3), (6, 6)] {
                holds_what_was_written::<true>(seed, max, max_dirty);
                holds_what_was_written::<false>(seed, max, max_dirty);
            }
        }
    }
}
