//! Random reads, writes and blocks of files, beside plain bytes, on a disk that fails now and then, where memory is
//! short now and then.

use super::*;
use alloc::collections::BTreeMap;
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
    /// There is no memory the next time that some is asked for.
    short: Cell<bool>,
    /// Numbers of buffers that got none.
    lost: RefCell<Vec<u64>>,
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
            short: Cell::default(),
            lost: RefCell::default(),
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
        let mut lost = self.0.lost.borrow_mut();
        let number = match room {
            Room::New(count) => lost.pop().unwrap_or(count as u64),
            Room::Used(number) => number,
        };
        if self.0.short.replace(false) {
            lost.push(number);
            return Err(Errno::NoMemory);
        }
        if !KEEPS {
            self.0.memory.borrow_mut()[number as usize * BUFFER_BYTES..][..BUFFER_BYTES].fill(0xee);
        }
        self.0.shown.borrow_mut().insert(number, (piece, sectors));
        Ok(number)
    }

    fn show_more(&mut self, piece: u64, end: usize, number: &mut u64) -> Result<(), Errno> {
        if self.0.short.replace(false) {
            return Err(Errno::NoMemory);
        }
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
        let free = |other: &Range<usize>| other.start == start || other.end <= start || end <= other.start;
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
        let short = rig.below(4) == 0;
        rig.short.set(short);
        // Another buffer gives back what this one lacks.
        let may_lack = rig.may_fail.get() || cached.cache.buffers.len() < 2;
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
                assert!(result.is_ok() || may_lack, "{result:?} at step {step}");
                if result.is_ok() {
                    assert!(waiting(&cached) <= max_dirty, "{} buffers wait", waiting(&cached));
                }
                if room >= shown && may_wait <= max_dirty && !short {
                    assert_eq!(rig.written.get(), written, "nothing has to be written yet");
                }
                plain[range].fill(result.is_ok().then_some(step as u8));
            }
            4..=5 => {
                let mut found = vec![0; range.len()];
                let result = cached.read(at, &mut found);
                assert!(result.is_ok() || may_lack, "{result:?} at step {step}");
                if result.is_ok() {
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
    rig.short.set(false);
    Cached { strategy: Owner::<KEEPS>(&rig), cache: &mut cache }
        .sync()
        .expect("the disk does not fail any more");
    let disk = rig.disk.borrow();
    let as_known = disk.iter().zip(&plain).all(|(found, known)| known.is_none_or(|known| known == *found));
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
