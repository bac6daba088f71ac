//! The turns of a run as a file: a head of four words, and a word for each turn. Words are little-endian.
//!
//! The head has a magic number, the fingerprint of what runs, the number of turns, and what the turns add up to. A file
//! that is cut off, damaged or of something else is told apart before anything runs.

use alloc::vec::Vec;
use core::fmt;
use pageferry_hal::tap::{Event, Turn};

const MAGIC: u64 = u64::from_le_bytes(*b"pfturns1");
const HEAD_WORDS: usize = 4;

/// Why a file is no schedule for this run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadSchedule {
    /// It is something else.
    NoSchedule,
    /// It has fewer bytes than it says, or more.
    Length {
        /// Bytes that there are.
        found: usize,
        /// Bytes that there should be.
        expected: usize,
    },
    /// Its turns do not add up.
    Damaged,
    /// It is of another program, kernel or machine.
    OfAnother,
}

impl fmt::Display for BadSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSchedule::NoSchedule => f.write_str("the module is no schedule"),
            BadSchedule::Length { found, expected } => {
                write!(f, "the schedule has {found} bytes, expected {expected}: it is cut off")
            }
            BadSchedule::Damaged => f.write_str("the schedule is damaged"),
            BadSchedule::OfAnother => f.write_str(
                "the schedule is of another program: expected the same experiment, scheme, CPUs and frames",
            ),
        }
    }
}

/// A file of these turns.
pub fn encode(fingerprint: u64, turns: &[Turn]) -> Vec<u8> {
    let turns: Vec<u8> = turns.iter().flat_map(|turn| turn.word().to_le_bytes()).collect();
    let head = [MAGIC, fingerprint, (turns.len() / 8) as u64, Event::sum(&turns)];
    head.iter().flat_map(|word| word.to_le_bytes()).chain(turns.iter().copied()).collect()
}

/// The turns of a file.
///
/// # Errors
/// [`BadSchedule`].
pub fn decode(file: &[u8], fingerprint: u64) -> Result<Vec<Turn>, BadSchedule> {
    let word = |bytes: &[u8]| u64::from_le_bytes(core::array::from_fn(|i| bytes[i]));
    let found = file.len();
    if found < 8 * HEAD_WORDS {
        return Err(BadSchedule::Length { found, expected: 8 * HEAD_WORDS });
    }
    let (head, turns) = file.split_at(8 * HEAD_WORDS);
    let head: Vec<u64> = head.chunks_exact(8).map(word).collect();
    if head[0] != MAGIC {
        return Err(BadSchedule::NoSchedule);
    }
    let expected = (head[2] as usize).saturating_mul(8).saturating_add(8 * HEAD_WORDS);
    if found != expected {
        return Err(BadSchedule::Length { found, expected });
    }
    if head[3] != Event::sum(turns) {
        return Err(BadSchedule::Damaged);
    }
    if head[1] != fingerprint {
        return Err(BadSchedule::OfAnother);
    }
    turns.chunks_exact(8).map(|bytes| Turn::of(word(bytes)).ok_or(BadSchedule::Damaged)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use pageferry_hal::CpuId;
    use pageferry_hal::tap::Call;

    #[test]
    fn a_schedule_is_read_as_it_was_written_and_no_other_way() {
        let turns = vec![Turn { cpu: CpuId(3), call: Call::Now, value: 77 }; 5];
        let file = encode(9, &turns);
        assert_eq!(decode(&file, 9), Ok(turns));
        assert_eq!(decode(&file, 8), Err(BadSchedule::OfAnother));
        for cut in 0..file.len() {
            assert!(matches!(decode(&file[..cut], 9), Err(BadSchedule::Length { .. })), "{cut}");
        }
        for more in [1, 8] {
            let longer = [&file[..], &vec![0; more]].concat();
            let (found, expected) = (longer.len(), file.len());
            assert_eq!(decode(&longer, 9), Err(BadSchedule::Length { found, expected }));
        }
        let damaged = |at: usize| {
            let mut file = file.clone();
            file[at] ^= 1;
            decode(&file, 9)
        };
        assert_eq!(damaged(0), Err(BadSchedule::NoSchedule));
        // Which run, how many turns, their sum; and each of the turns.
        assert_eq!(damaged(8), Err(BadSchedule::OfAnother));
        assert!(matches!(damaged(16), Err(BadSchedule::Length { .. })));
        for at in 24..file.len() {
            assert_eq!(damaged(at), Err(BadSchedule::Damaged), "{at}");
        }
        assert_eq!(decode(&encode(9, &[]), 9), Ok(Vec::new()));
    }
}
