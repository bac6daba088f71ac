//! What the memory of a replayed program must hold: the first word of each line, on the host.
//!
//! A store says what it stores, a file has words of its own, and other memory begins with zeros. What the kernel has
//! read into a buffer is known when it has been looked at.

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

/// Pages found last are found again by the low bits of their numbers.
const RECENT: usize = 64;

/// The words of a process.
pub(super) struct Shadow {
    /// Where the words of a page are.
    places: HashMap<u64, usize>,
    words: Vec<Page>,
    /// Places of pages that were cleared.
    free: Vec<usize>,
    recent: [Option<(u64, usize)>; RECENT],
}

impl Default for Shadow {
    fn default() -> Shadow {
        Shadow { places: HashMap::new(), words: Vec::new(), free: Vec::new(), recent: [None; RECENT] }
    }
}

impl Shadow {
    /// The program's file is mapped at these pages.
    pub(super) fn map_file(&mut self, pages: impl Iterator<Item = (u64, u64)>) {
        pages.for_each(|(page, of_file)| {
            let place = self.place(page);
            self.words[place] = file_words(of_file);
        });
    }

    /// Nothing is known of these pages but that they are zeros.
    pub(super) fn clear(&mut self, at: Va, len_bytes: usize) {
        let cleared = at.0 >> PAGE_SHIFT..(at.0 + len_bytes as u64).div_ceil(PAGE_SIZE as u64);
        let known: Vec<u64> = if cleared.end - cleared.start > self.places.len() as u64 {
            self.places.keys().copied().filter(|page| cleared.contains(page)).collect()
        } else {
            cleared.collect()
        };
        self.free.extend(known.iter().filter_map(|page| self.places.remove(page)));
        self.recent = [None; RECENT];
    }

    fn place(&mut self, page: u64) -> usize {
        *self.places.entry(page).or_insert_with(|| {
            if let Some(place) = self.free.pop() {
                *self.words[place] = [0; LINES];
                return place;
            }
            self.words.push(Box::new([0; LINES]));
            self.words.len() - 1
        })
    }

    /// The first word of the line at `at`.
    #[inline]
    pub(super) fn word(&mut self, at: Va) -> &mut u32 {
        let page = at.0 >> PAGE_SHIFT;
        let slot = page as usize % RECENT;
        let place = match self.recent[slot] {
            Some((recent, place)) if recent == page => place,
            _ => {
                let place = self.place(page);
                self.recent[slot] = Some((page, place));
                place
            }
        };
        &mut self.words[place][at.offset() / LINE_BYTES]
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
