//! The bytes that a workload moves, made from a seed; filled in and compared from outside of the machine, at no modelled
//! cost.

use pageferry_hal::{PAGE_SIZE, Va};
use pageferry_kernel::User;
use pageferry_model::Model;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::cell::OnceCell;

/// What is sent: each chunk is another window of one pool of random bytes.
pub(crate) struct Payload {
    seed: u64,
    chunk_bytes: usize,
    pool: OnceCell<Vec<u8>>,
}

impl Payload {
    pub(crate) fn new(seed: u64, chunk_bytes: usize) -> Payload {
        Payload { seed, chunk_bytes, pool: OnceCell::new() }
    }

    /// The contents of chunk `index`.
    pub(crate) fn chunk(&self, index: u64) -> &[u8] {
        let pool = self.pool.get_or_init(|| random_bytes(self.seed, 2 * self.chunk_bytes));
        // Any step that is prime to most chunk sizes: neighbours differ in every place but by chance.
        let at = (index.wrapping_mul(977) % self.chunk_bytes as u64) as usize;
        &pool[at..at + self.chunk_bytes]
    }
}

/// `len_bytes` random bytes made from `seed`.
fn random_bytes(seed: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Compares user memory with what should be there, at no modelled cost.
pub(super) fn differs(model: &Model, at: Va, expected: &[u8], scratch: &mut Vec<u8>) -> Option<usize> {
    scratch.resize(expected.len(), 0);
    if !model.peek(at, scratch) {
        return Some(0);
    }
    (scratch[..] != *expected).then(|| scratch.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0))
}

/// Compares the data of user memory with what should be there, mapped or not, at no modelled cost. `at` is page-aligned.
pub(crate) fn differs_behind(user: &User<Model>, model: &Model, at: Va, expected: &[u8]) -> Option<usize> {
    // Through the mapping where there is one: looking behind it takes the kernel's locks, and a CPU that holds one of them is
    // stopped during an inspection.
    let mut seen = [0; PAGE_SIZE];
    let mapped = |page: usize, expected: &[u8], seen: &mut [u8]| {
        model.peek(at + page * PAGE_SIZE, seen) && *seen == *expected
    };
    model.inspect(|| {
        for (page, expected) in expected.chunks(PAGE_SIZE).enumerate() {
            let start = page * PAGE_SIZE;
            if mapped(page, expected, &mut seen[..expected.len()]) {
                continue;
            }
            let Some(frame) = user.frame_behind(at + start) else { return Some(start) };
            let bytes = model.frame_bytes(frame);
            if let Some(wrong) = expected.iter().zip(&bytes).position(|(a, b)| a != b) {
                return Some(start + wrong);
            }
        }
        None
    })
}

/// Gives user memory other contents, mapped or not, at no modelled cost. `at` is page-aligned.
///
/// # Panics
/// When a page is not in memory; the workload stores to it first.
pub(super) fn fill_behind(user: &User<Model>, model: &Model, at: Va, bytes: &[u8]) {
    model.inspect(|| {
        for (page, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
            let frame = user.frame_behind(at + page * PAGE_SIZE).expect("the buffer was stored to");
            model.poke_frame(frame, 0, bytes);
        }
    });
}
