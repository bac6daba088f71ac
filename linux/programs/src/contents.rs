//! What memory holds, as a recipe: stores in order, each of which can be computed anywhere.

use serde::{Deserialize, Serialize};

/// A store: `len` bytes from `at` on, of the pattern of `stamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The first byte.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Which pattern; 0 is zeros.
    pub stamp: u64,
}

/// What `len` bytes of memory hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    len: usize,
    layers: Vec<Layer>,
}

/// Writes the pattern of a stamp as it is from byte `at` of the memory on. It depends on the place, so bytes
/// that end up elsewhere are seen.
pub fn pattern(stamp: u64, at: usize, out: &mut [u8]) {
    if stamp == 0 {
        out.fill(0);
        return;
    }
    let mut word = at / 8;
    let head = (8 - at % 8) % 8;
    let (first, rest) = out.split_at_mut(head.min(out.len()));
    if !first.is_empty() {
        let bytes = mix(stamp, word).to_ne_bytes();
        first.copy_from_slice(&bytes[at % 8..][..first.len()]);
        word += 1;
    }
    let mut whole = rest.chunks_exact_mut(8);
    for chunk in &mut whole {
        chunk.copy_from_slice(&mix(stamp, word).to_ne_bytes());
        word += 1;
    }
    let last = whole.into_remainder();
    let len = last.len();
    last.copy_from_slice(&mix(stamp, word).to_ne_bytes()[..len]);
}

/// A word of a pattern. No two stamps or places that a program has give the same by other than chance.
fn mix(stamp: u64, word: usize) -> u64 {
    let mut mixed =
        stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (word as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 29;
    mixed.wrapping_mul(0x94d0_49bb_1331_11eb)
}

impl Contents {
    /// `len` bytes of a pattern.
    pub fn new(len: usize, stamp: u64) -> Contents {
        Contents { len, layers: vec![Layer { at: 0, len, stamp }] }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "memory has bytes; a copy of none is told by its length")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Stores over what there is. The layer lies within.
    pub fn store(&mut self, layer: Layer) {
        assert!(layer.at + layer.len <= self.len, "a store lies in its memory");
        let covers = |old: &Layer| layer.at <= old.at && old.at + old.len <= layer.at + layer.len;
        self.layers.retain(|old| !covers(old));
        self.layers.push(layer);
    }

    /// Only the first `len` bytes from now on.
    pub fn cut(&mut self, len: usize) {
        self.len = len;
        self.layers.retain_mut(|layer| {
            layer.len = layer.len.min(len.saturating_sub(layer.at));
            layer.len > 0
        });
    }

    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        for layer in &self.layers {
            pattern(layer.stamp, layer.at, &mut bytes[layer.at..layer.at + layer.len]);
        }
        bytes
    }

    /// How `found` differs, in words; `None` where it does not.
    pub fn differs(&self, found: &[u8]) -> Option<String> {
        if found.len() != self.len {
            return Some(format!("there are {} bytes, not {}", found.len(), self.len));
        }
        let expected = self.bytes();
        if expected == found {
            return None;
        }
        let wrong: Vec<usize> = (0..self.len).filter(|&at| expected[at] != found[at]).collect();
        let (first, last) = (wrong[0], wrong[wrong.len() - 1]);
        let window = |bytes: &[u8]| bytes[first..bytes.len().min(first + 8)].to_vec();
        Some(format!(
            "{} of {} bytes differ, from {first} to {last}: {:02x?} instead of {:02x?}",
            wrong.len(),
            self.len,
            window(found),
            window(&expected)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_same_however_it_is_cut() {
        let mut whole = vec![0; 100];
        pattern(7, 3, &mut whole);
        for cut in 0..100 {
            let mut parts = vec![0; 100];
            let (first, last) = parts.split_at_mut(cut);
            pattern(7, 3, first);
            pattern(7, 3 + cut, last);
            assert_eq!(parts, whole, "cut at {cut}");
        }
        let mut other = vec![0; 100];
        pattern(8, 3, &mut other);
        assert_ne!(other, whole);
    }

    #[test]
    fn contents_are_what_stores_in_order_leave() {
        let mut contents = Contents::new(64, 0);
        contents.store(Layer { at: 10, len: 20, stamp: 1 });
        contents.store(Layer { at: 5, len: 10, stamp: 2 });
        contents.cut(40);
        let mut bytes = vec![0; 40];
        pattern(1, 10, &mut bytes[10..30]);
        pattern(2, 5, &mut bytes[5..15]);
        assert_eq!(contents.bytes(), bytes);
        assert_eq!(contents.differs(&bytes), None);
        bytes[17] ^= 1;
        assert!(contents.differs(&bytes).unwrap().contains("1 of 40 bytes differ, from 17 to 17"));
        contents.store(Layer { at: 0, len: 40, stamp: 3 });
        assert_eq!(contents.layers.len(), 1);
    }
}
