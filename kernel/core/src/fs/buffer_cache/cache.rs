//! The buffers of a disk: what each shows, what of it waits to be written, and since when; which blocks of files there
//! are.

use super::sectors::{BUFFER_BYTES, SECTOR, Sectors, bits, sectors};
use crate::config::SyncerDelays;
use crate::defect::KernelDefect;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_defects::Planted;
use pageferry_fs::SoftUpdates;
use pageferry_hal::Cycles;

/// What a buffer is for: a piece of the disk, or the block of a file that begins at a sector of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) piece: u64,
    pub(super) block: Option<u8>,
}

impl Place {
    /// The disk's byte that the piece begins with.
    pub(super) fn start(self) -> u64 {
        self.piece * BUFFER_BYTES as u64
    }
}

pub(super) struct Buffer<B> {
    pub(super) memory: B,
    /// What it shows of its piece.
    pub(super) shown: Sectors,
    pub(super) used: u64,
    /// When it began to wait.
    pub(super) dirty_since: u64,
    pub(super) dirty: Sectors,
    /// When the syncer is to write it.
    pub(super) due: Cycles,
    /// Only bytes of files wait, with soft updates.
    pub(super) is_files: bool,
}

/// The buffers of a disk. See the module above.
pub struct BufferCache<B> {
    pub(super) len_bytes: u64,
    pub(super) max: usize,
    pub(super) max_dirty: usize,
    pub(super) buffers: BTreeMap<Place, Buffer<B>>,
    /// Memory that shows nothing, and is used first.
    pub(super) hidden: Vec<B>,
    /// When each was used last, and since when each waits.
    pub(super) by_use: BTreeMap<u64, Place>,
    pub(super) by_wait: BTreeMap<u64, Place>,
    /// Sectors that the memory of pieces has.
    pub(super) valid: BTreeMap<u64, Sectors>,
    /// Blocks of files in each piece, by their sectors, in order. No two have one in common.
    pub(super) blocks: BTreeMap<u64, Vec<Range<usize>>>,
    pub(super) clock: u64,
    pub(super) soft: SoftUpdates,
    /// There is a syncer, and when it is to write what.
    pub(super) syncer: Option<SyncerDelays>,
    pub(super) by_due: BTreeSet<(Cycles, Place)>,
    pub(super) defect: Planted<KernelDefect>,
}

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

    pub(super) fn valid(&self, piece: u64) -> Sectors {
        self.valid.get(&piece).copied().unwrap_or(0)
    }

    /// The sectors of a piece that the disk has.
    pub(super) fn there(&self, piece: u64) -> usize {
        let left = self.len_bytes - piece * BUFFER_BYTES as u64;
        left.div_ceil(SECTOR as u64).min(Sectors::BITS.into()) as usize
    }

    /// What a buffer is to show.
    pub(super) fn sectors_of(&self, place: Place) -> Range<usize> {
        let blocks = self.blocks.get(&place.piece).into_iter().flatten();
        match place.block {
            None => 0..self.there(place.piece),
            Some(first) => {
                blocks.into_iter().find(|block| block.start == usize::from(first)).cloned().unwrap_or(0..0)
            }
        }
    }

    /// The sectors of a piece that are of blocks of files.
    pub(super) fn of_blocks(&self, piece: u64) -> Sectors {
        self.blocks.get(&piece).into_iter().flatten().fold(0, |all, block| all | bits(block))
    }

    /// The first bytes of a range that are one buffer's, which it is, and where in its piece.
    pub(super) fn first_of(&self, bytes: &Range<u64>) -> Option<(Place, Range<usize>)> {
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
    pub(super) fn spans(&self, bytes: Range<u64>) -> impl Iterator<Item = (Place, Range<usize>)> {
        let mut left = bytes;
        core::iter::from_fn(move || {
            let (place, span) = self.first_of(&left)?;
            left.start += span.len() as u64;
            Some((place, span))
        })
    }

    /// The buffers in which something of a range waits.
    pub(super) fn waiting_in(&self, bytes: Range<u64>) -> Vec<Place> {
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
    pub(super) fn end_block(&mut self, place: Place, which: Sectors) -> Option<Buffer<B>> {
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
    pub(super) fn mark_dirty(&mut self, place: Place, which: Sectors, now: Cycles) {
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
    pub(super) fn mark_clean_but(&mut self, place: Place, which: Sectors, now: Cycles) {
        let Some(buffer) = self.buffers.get_mut(&place).filter(|buffer| buffer.dirty != 0) else { return };
        self.by_wait.remove(&buffer.dirty_since);
        self.by_due.remove(&(buffer.due, place));
        buffer.dirty = 0;
        if which != 0 {
            self.mark_dirty(place, which, now);
        }
    }

    /// What waits in these sectors of a buffer waits no more.
    pub(super) fn forget(&mut self, place: Place, which: Sectors) {
        let Some(buffer) = self.buffers.get_mut(&place).filter(|buffer| buffer.dirty != 0) else { return };
        buffer.dirty &= !which;
        if buffer.dirty == 0 {
            self.by_wait.remove(&buffer.dirty_since);
            self.by_due.remove(&(buffer.due, place));
        }
    }

    /// What waits in a buffer is not the bytes of files alone, and is to be written by then.
    pub(super) fn hurry(&mut self, place: Place, due: Cycles) {
        let Some(buffer) = self.buffers.get_mut(&place).filter(|buffer| buffer.dirty != 0) else { return };
        buffer.is_files = false;
        if due < buffer.due {
            self.by_due.remove(&(buffer.due, place));
            buffer.due = due;
            self.by_due.insert((due, place));
        }
    }
}
