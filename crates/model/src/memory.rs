//! Physical memory: bytes, frame after frame.
//!
//! The host hands the pages of a large zeroed allocation out lazily, so that a machine of 3 GB costs the host only what
//! the run touches. Small memories are used again by the next machine of the same size on the same host thread: a test
//! that runs many small machines would else spend much of its time on zeros.

use pageferry_hal::{PAGE_SIZE, Pa, Pfn, Width};
use std::cell::RefCell;

/// Physical memory of one machine.
pub(crate) struct Memory {
    bytes: Vec<u8>,
    /// The frames that may hold something else than zeros.
    written: Vec<bool>,
}

/// Memories up to this size are kept for the next machine.
const SPARE_FRAMES: usize = (32 << 20) / PAGE_SIZE;
/// So many of them at a time.
const SPARES: usize = 4;

/// The contents of a [`Memory`].
type Spare = (Vec<u8>, Vec<bool>);

thread_local! {
    /// The one that was used last is at the end.
    static SPARE: RefCell<Vec<Spare>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.written.len() > SPARE_FRAMES {
            return;
        }
        let spare = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.written));
        // The thread may be ending, and the list be gone: then this goes with it.
        let _ = SPARE.try_with(|list| {
            let mut list = list.borrow_mut();
            if list.len() == SPARES {
                list.remove(0);
            }
            list.push(spare);
        });
    }
}

impl Memory {
    pub(crate) fn new(frames: usize) -> Memory {
        let spare = SPARE.with_borrow_mut(|list| {
            let at = list.iter().rposition(|(_, written)| written.len() == frames)?;
            Some(list.remove(at))
        });
        let Some((bytes, written)) = spare else {
            return Memory { bytes: vec![0; frames * PAGE_SIZE], written: vec![false; frames] };
        };
        let mut memory = Memory { bytes, written };
        (0..frames as u32).for_each(|frame| memory.clear_frame(Pfn(frame)));
        memory
    }

    fn range(&self, at: Pa, len_bytes: usize) -> std::ops::Range<usize> {
        let start = at.0 as usize;
        assert!(
            start.checked_add(len_bytes).is_some_and(|end| end <= self.bytes.len()),
            "{len_bytes} bytes at {at:?} lie outside physical memory: a translation leads nowhere"
        );
        start..start + len_bytes
    }

    pub(crate) fn bytes(&self, at: Pa, len_bytes: usize) -> &[u8] {
        &self.bytes[self.range(at, len_bytes)]
    }

    pub(crate) fn bytes_mut(&mut self, at: Pa, len_bytes: usize) -> &mut [u8] {
        let range = self.range(at, len_bytes);
        self.note(&range);
        &mut self.bytes[range]
    }

    /// The bytes of `range` are about to be written.
    fn note(&mut self, range: &std::ops::Range<usize>) {
        for frame in range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE) {
            self.written[frame] = true;
        }
    }

    /// Fills a frame with zeros; one that has them already is not touched on the host either.
    pub(crate) fn clear_frame(&mut self, frame: Pfn) {
        if std::mem::replace(&mut self.written[frame.index()], false) {
            let range = self.range(frame.pa(), PAGE_SIZE);
            self.bytes[range].fill(0);
        }
    }

    /// Moves bytes between frames.
    ///
    /// # Panics
    /// When the ranges overlap: the copy instruction modelled here would behave differently from a memmove.
    pub(crate) fn copy(&mut self, to: Pa, from: Pa, len_bytes: usize) {
        let (to, from) = (self.range(to, len_bytes), self.range(from, len_bytes));
        assert!(to.end <= from.start || from.end <= to.start, "a copy between overlapping physical ranges");
        self.note(&to);
        self.bytes.copy_within(from, to.start);
    }

    pub(crate) fn load_word(&self, at: Pa, width: Width) -> u64 {
        let bytes = self.bytes(at, width.bytes());
        match width {
            Width::Four => u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes"))),
            Width::Eight => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        }
    }

    pub(crate) fn store_word(&mut self, at: Pa, width: Width, value: u64) {
        let bytes = value.to_le_bytes();
        assert!(width == Width::Eight || value >> 32 == 0, "{value:#x} does not fit four bytes");
        self.bytes_mut(at, width.bytes()).copy_from_slice(&bytes[..width.bytes()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_machine_finds_zeros_whatever_the_last_one_left() {
        let frames = 3;
        for tag in 1..4 {
            let mut memory = Memory::new(frames);
            assert!(memory.bytes(Pa(0), frames * PAGE_SIZE).iter().all(|&b| b == 0));
            memory.bytes_mut(Pa(PAGE_SIZE as u64 - 1), 2).fill(tag);
            memory.copy(Pa(2 * PAGE_SIZE as u64 + 8), Pa(PAGE_SIZE as u64), 8);
            memory.store_word(Pa(16), Width::Four, u64::from(tag));
        }
    }

    #[test]
    fn a_frame_that_was_cleared_and_written_is_cleared_again() {
        let mut memory = Memory::new(1);
        for tag in 1..4 {
            memory.bytes_mut(Pa(100), 1).fill(tag);
            memory.clear_frame(Pfn(0));
            assert!(memory.bytes(Pa(0), PAGE_SIZE).iter().all(|&b| b == 0));
        }
    }
}
