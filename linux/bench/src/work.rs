//! What the two sides do with bytes, and what they must then be.
//!
//! A message is filled from a *stamp*: its word `i` is `stamp * A + i * B`. So its sum is known without reading,
//! and no two stamps give the same word at the same place.

const A: u64 = 0x9E37_79B9_7F4A_7C15;
const B: u64 = 0xD6E8_FEB8_6659_FD93;
const WORD: usize = 8;

fn word(stamp: u64, index: usize) -> u64 {
    stamp.wrapping_mul(A).wrapping_add((index as u64).wrapping_mul(B))
}

/// Fills the bytes, whole words of them.
pub fn fill(bytes: &mut [u8], stamp: u64) {
    let mut value = word(stamp, 0);
    for chunk in bytes.as_chunks_mut::<WORD>().0 {
        *chunk = value.to_ne_bytes();
        value = value.wrapping_add(B);
    }
}

/// The same by stores that go past the caches.
pub(crate) fn fill_streamed(bytes: &mut [u8], stamp: u64) {
    crate::raw::streamed_fill(bytes, word(stamp, 0), B);
}

/// The sum of the words, all of which are read.
#[inline(never)]
pub fn sum(bytes: &[u8]) -> u64 {
    let (lines, rest) = bytes.as_chunks::<64>();
    let mut sums = [0u64; 8];
    for line in lines {
        for index in 0..8 {
            let word = line[8 * index..8 * index + 8].first_chunk().expect("a line has eight words");
            sums[index] = sums[index].wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    let rest = rest.as_chunks::<WORD>().0.iter().map(|word| u64::from_ne_bytes(*word));
    rest.chain(sums).fold(0, u64::wrapping_add)
}

/// What [`sum`] gives for bytes that were filled from the stamp.
pub fn sum_of(len: usize, stamp: u64) -> u64 {
    let words = (len / WORD) as u64;
    let pairs = if words.is_multiple_of(2) {
        (words / 2).wrapping_mul(words.wrapping_sub(1))
    } else {
        words.wrapping_mul((words - 1) / 2)
    };
    words.wrapping_mul(word(stamp, 0)).wrapping_add(pairs.wrapping_mul(B))
}

/// Whether each word is what the stamp makes it.
pub fn is_of(bytes: &[u8], stamp: u64) -> bool {
    let words = bytes.as_chunks::<WORD>().0.iter();
    words.enumerate().all(|(index, found)| u64::from_ne_bytes(*found) == word(stamp, index))
}

/// Writes one word.
pub(crate) fn write_one(bytes: &mut [u8]) {
    bytes[..WORD].copy_from_slice(&1u64.to_ne_bytes());
}

/// Reads a word in each page of 4 KB.
pub(crate) fn touch_pages(bytes: &[u8]) {
    for page in bytes.chunks(4096) {
        core::hint::black_box(page[0]);
    }
}

/// Writes a word in each page of 4 KB.
pub(crate) fn write_pages(bytes: &mut [u8]) {
    for page in bytes.chunks_mut(4096) {
        write_one(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_known_and_changes_are_seen() {
        for (len, stamp) in [(64, 1), (4096, 7), (72, 0), (65536, u64::MAX), (8, 3)] {
            let mut bytes = vec![0; len];
            fill(&mut bytes, stamp);
            assert_eq!(sum(&bytes), sum_of(len, stamp), "{len} {stamp}");
            assert!(is_of(&bytes, stamp) && !is_of(&bytes, stamp ^ 1));
            bytes[len - 1] ^= 1;
            assert!(!is_of(&bytes, stamp));
            assert_ne!(sum(&bytes), sum_of(len, stamp));
        }
    }

    /// `peers/python/test_peer.py` has the same numbers.
    #[test]
    fn programs_in_other_languages_fill_the_same_words() {
        for (count, stamp, sum) in
            [(8192, 7, 0x6B637CF6B2B93000), (131_072, (1 << 63) + 1, 0xC16E9360FA970000)]
        {
            assert_eq!(sum_of(8 * count, stamp), sum);
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn streamed_words_are_the_same() {
        let mut memory = crate::raw::Memory::own(1 << 20).unwrap();
        fill_streamed(memory.bytes_mut(0, 1 << 20), 12);
        assert!(is_of(memory.bytes(0, 1 << 20), 12));
    }

    #[test]
    fn writes_are_one_word_and_one_in_each_page() {
        let mut bytes = vec![0; 3 * 4096];
        write_one(&mut bytes);
        assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 1);
        write_pages(&mut bytes);
        assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 3);
    }
}
