//! The bytes that a workload moves, made from a seed; filled in and compared from outside of the machine, at no
//! modelled cost.

use pageferry_hal::{PAGE_SIZE, Va};
use pageferry_kernel::User;
use pageferry_model::Model;
use pageferry_vm::Space;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};

/// What is sent: each chunk is another window of one pool of random bytes.
pub struct Payload {
    seed: u64,
    chunk_bytes: usize,
    pool: OnceCell<Arc<Vec<u8>>>,
}

impl Payload {
    /// Chunks of so many bytes, made from `seed`.
    pub fn new(seed: u64, chunk_bytes: usize) -> Payload {
        Payload { seed, chunk_bytes, pool: OnceCell::new() }
    }

    /// The contents of chunk `index`.
    pub fn chunk(&self, index: u64) -> &[u8] {
        let pool = self.pool.get_or_init(|| random_bytes(self.seed, 2 * self.chunk_bytes));
        // Any step that is prime to most chunk sizes: neighbours differ in every place but by chance.
        let at = (index.wrapping_mul(977) % self.chunk_bytes as u64) as usize;
        &pool[at..at + self.chunk_bytes]
    }
}

/// The longest bytes made so far, and their seed: most runs of a process have the same, and fewer bytes are the
/// beginning of more.
static LONGEST: Mutex<Option<(u64, Arc<Vec<u8>>)>> = Mutex::new(None);

/// `len_bytes` random bytes made from `seed`, or more.
fn random_bytes(seed: u64, len_bytes: usize) -> Arc<Vec<u8>> {
    let mut longest = LONGEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, bytes)) = longest.as_ref().filter(|(of, bytes)| *of == seed && bytes.len() >= len_bytes) {
        return bytes.clone();
    }
    let mut bytes = vec![0; len_bytes];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    let bytes = Arc::new(bytes);
    *longest = Some((seed, bytes.clone()));
    bytes
}

/// Compares user memory with what should be there, at no modelled cost.
pub fn differs(model: &Model, at: Va, expected: &[u8], scratch: &mut Vec<u8>) -> Option<usize> {
    scratch.resize(expected.len(), 0);
    if !model.peek(at, scratch) {
        return Some(0);
    }
    (scratch[..] != *expected).then(|| scratch.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0))
}

/// Writes what a null socket answers the next read with, at no modelled cost; false when that is less than `contents`.
pub fn fill_answer(user: &User<Model>, model: &Model, contents: &[u8]) -> bool {
    let answer = model.inspect(|| user.kernel().null_answer());
    let pages = contents.chunks(PAGE_SIZE);
    pages.len() <= answer.len() && pages.zip(answer).all(|(page, at)| model.poke(at, page))
}

/// Compares the data of user memory with what should be there, mapped or not, at no modelled cost. `at` is
/// page-aligned.
pub fn differs_behind(user: &User<Model>, model: &Model, at: Va, expected: &[u8]) -> Option<usize> {
    differs_in(user.space(), model, at, expected)
}

/// The same in an address space.
pub(super) fn differs_in(space: &Space<Model>, model: &Model, at: Va, expected: &[u8]) -> Option<usize> {
    // Through the mapping where there is one: looking behind it takes the kernel's locks, and a CPU that holds one of
    // them is stopped during an inspection.
    model.inspect(|| {
        for (page, expected) in expected.chunks(PAGE_SIZE).enumerate() {
            let start = page * PAGE_SIZE;
            if model.shows(at + start, expected) {
                continue;
            }
            let Some(frame) = space.frame_behind(at + start) else { return Some(start) };
            let bytes = model.frame_bytes(frame);
            if *expected != bytes[..expected.len()] {
                let wrong = expected.iter().zip(&bytes).position(|(a, b)| a != b);
                return Some(start + wrong.expect("they differ"));
            }
        }
        None
    })
}

/// What user memory holds, mapped or not, at no modelled cost. `at` is page-aligned; a page that is not in memory gives
/// zeros.
pub fn bytes_behind(user: &User<Model>, model: &Model, at: Va, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    model.inspect(|| {
        for (page, bytes) in bytes.chunks_mut(PAGE_SIZE).enumerate() {
            let start = at + page * PAGE_SIZE;
            if model.peek(start, bytes) {
                continue;
            }
            if let Some(frame) = user.frame_behind(start) {
                bytes.copy_from_slice(&model.frame_bytes(frame)[..bytes.len()]);
            }
        }
    });
    bytes
}

/// Gives user memory other contents, mapped or not, at no modelled cost. `at` is page-aligned.
///
/// # Panics
/// When a page is not in memory; the workload stores to it first.
pub fn fill_behind(user: &User<Model>, model: &Model, at: Va, bytes: &[u8]) {
    fill_in(user.space(), model, at, bytes);
}

/// The same in an address space.
pub(super) fn fill_in(space: &Space<Model>, model: &Model, at: Va, bytes: &[u8]) {
    model.inspect(|| {
        for (page, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
            let frame = space.frame_behind(at + page * PAGE_SIZE).expect("the buffer was stored to");
            model.poke_frame(frame, 0, bytes);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_bytes_are_the_beginning_of_more() {
        let alone = |seed, len: usize| {
            let mut bytes = vec![0; len];
            ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
            bytes
        };
        for (seed, len) in [(1, 5000), (1, 4097), (1, 64), (2, 3), (2, 10_000), (1, 1)] {
            assert_eq!(random_bytes(seed, len)[..len], alone(seed, len), "{len} bytes of {seed}");
        }
    }
}
