//! What the memory of a replayed program must hold: the first word of each line, on the host.
//!
//! A store says what it stores, a file has words of its own, and other memory begins with zeros. What the kernel has read into a
//! buffer is known when it has been looked at.

use pageferry_hal::{PAGE_SHIFT, PAGE_SIZE, Va};
use std::collections::HashMap;

const LINE_BYTES: usize = 32;
const LINES: usize = PAGE_SIZE / LINE_BYTES;

type Page = Box<[u32; LINES]>;

/// The first words of the lines of a page of the program's file.
pub(super) fn file_page(page: u64) -> [u8; PAGE_SIZE] {
    let mut bytes = [0; PAGE_SIZE];
    for (line, word) in bytes.chunks_mut(LINE_BYTES).zip(file_words(page).iter()) {
        line[..4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn file_words(page: u64) -> Page {
    Box::new(std::array::from_fn(|line| (page as u32).wrapping_mul(0x9e37_79b9) ^ (line as u32) << 24 | 1))
}

/// The words of a process.
#[derive(Default)]
pub(super) struct Shadow {
    pages: HashMap<u64, Page>,
    last: Option<(u64, Page)>,
}

impl Shadow {
    /// The program's file is mapped at these pages.
    pub(super) fn map_file(&mut self, pages: impl Iterator<Item = (u64, u64)>) {
        pages.for_each(|(page, of_file)| {
            self.pages.insert(page, file_words(of_file));
        });
    }

    /// Nothing is known of these pages but that they are zeros.
    pub(super) fn clear(&mut self, at: Va, len_bytes: usize) {
        self.put_back();
        let cleared = at.0 >> PAGE_SHIFT..(at.0 + len_bytes as u64).div_ceil(PAGE_SIZE as u64);
        if cleared.end - cleared.start > self.pages.len() as u64 {
            self.pages.retain(|page, _| !cleared.contains(page));
        } else {
            cleared.for_each(|page| drop(self.pages.remove(&page)));
        }
    }

    fn put_back(&mut self) {
        if let Some((number, page)) = self.last.take() {
            self.pages.insert(number, page);
        }
    }

    /// The first word of the line at `at`.
    #[inline]
    pub(super) fn word(&mut self, at: Va) -> &mut u32 {
        let number = at.0 >> PAGE_SHIFT;
        if self.last.as_ref().is_none_or(|(last, _)| *last != number) {
            self.put_back();
            let page = self.pages.remove(&number).unwrap_or_else(|| Box::new([0; LINES]));
            self.last = Some((number, page));
        }
        let (_, page) = self.last.as_mut().expect("put there above");
        &mut page[at.offset() / LINE_BYTES]
    }

    /// The kernel has written to memory: takes over what is there, line by line.
    pub(super) fn take_over(&mut self, at: Va, len_bytes: usize, peek: impl Fn(Va) -> u32) {
        let first = at.0 / LINE_BYTES as u64;
        for line in first..(at.0 + len_bytes as u64).div_ceil(LINE_BYTES as u64) {
            let at = Va(line * LINE_BYTES as u64);
            *self.word(at) = peek(at);
        }
    }
}
