//! Physical memory: bytes, frame after frame.
//!
//! The host hands the pages of a large zeroed allocation out lazily, so that a machine of 3 GB costs the host only what
//! the run touches.

use pageferry_hal::{PAGE_SIZE, Pa, Pfn, PteWidth};

/// Physical memory of one machine.
pub(crate) struct Memory {
    bytes: Vec<u8>,
    /// The frames that may hold something else than zeros.
    written: Vec<bool>,
}

impl Memory {
    pub(crate) fn new(frames: usize) -> Memory {
        Memory { bytes: vec![0; frames * PAGE_SIZE], written: vec![false; frames] }
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

    pub(crate) fn load_pte(&self, at: Pa, width: PteWidth) -> u64 {
        let bytes = self.bytes(at, width.bytes());
        match width {
            PteWidth::Four => u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes"))),
            PteWidth::Eight => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        }
    }

    pub(crate) fn store_pte(&mut self, at: Pa, width: PteWidth, value: u64) {
        let bytes = value.to_le_bytes();
        assert!(width == PteWidth::Eight || value >> 32 == 0, "entry {value:#x} does not fit four bytes");
        self.bytes_mut(at, width.bytes()).copy_from_slice(&bytes[..width.bytes()]);
    }
}
