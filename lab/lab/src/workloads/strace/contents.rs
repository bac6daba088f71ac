//! What files hold that was not recorded: bytes by number and offset; and sums to compare bytes by.

/// A number that every bit of the last one has changed (splitmix64).
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Bytes `at` to `at + len` of what has number `seed`.
pub(super) fn contents(seed: u64, at: u64, len: usize) -> Vec<u8> {
    let word = |index: u64| mixed(mixed(seed.wrapping_add(1)).wrapping_add(index)).to_le_bytes();
    let first = at / 8;
    let skipped = (at % 8) as usize;
    let mut bytes = Vec::with_capacity(len + 16);
    for index in first..(at + len as u64).div_ceil(8) {
        bytes.extend_from_slice(&word(index));
    }
    bytes.drain(..skipped.min(bytes.len()));
    bytes.truncate(len);
    bytes
}

/// A sum in which every byte and its place count.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).fold(bytes.len() as u64, |sum, chunk| mixed(sum.rotate_left(17) ^ word(chunk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_part_of_the_whole() {
        let whole = contents(7, 0, 1000);
        for (at, len) in [(0, 1000), (1, 5), (8, 8), (993, 7), (500, 0), (3, 900)] {
            assert_eq!(contents(7, at as u64, len), whole[at..at + len]);
        }
        assert_ne!(contents(8, 0, 1000), whole);
        let mut other = whole.clone();
        other.swap(9, 17);
        assert_ne!(sum(&other), sum(&whole));
    }
}
