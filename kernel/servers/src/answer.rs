//! Answers: three words at the beginning of the control piece, in the place of the request.

use super::word::words;
use pageferry_abi::Errno;

pub(super) const ANSWER_BYTES: usize = 24;

/// An answer: two values, and what went wrong; after that, what came before it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Answer {
    pub(super) value: u64,
    pub(super) more: u64,
    pub(super) error: Option<Errno>,
}

/// What a server may answer, by number from 1 on.
const ERRORS: [Errno; 39] = [
    Errno::BadFd,
    Errno::Invalid,
    Errno::Busy,
    Errno::Interrupted,
    Errno::NoMemory,
    Errno::Io,
    Errno::NoFile,
    Errno::Exists,
    Errno::NotDirectory,
    Errno::IsDirectory,
    Errno::NotEmpty,
    Errno::NameTooLong,
    Errno::TooLarge,
    Errno::NoDevice,
    Errno::NoSpace,
    Errno::NotSupported,
    Errno::Loop,
    Errno::WouldBlock,
    Errno::BrokenPipe,
    Errno::Fault,
    Errno::Access,
    Errno::Removed,
    Errno::TooManyFiles,
    Errno::ConnectionRefused,
    Errno::ConnectionReset,
    Errno::ConnectionAborted,
    Errno::TimedOut,
    Errno::NotConnected,
    Errno::IsConnected,
    Errno::InProgress,
    Errno::AlreadyInProgress,
    Errno::AddressInUse,
    Errno::AddressNotAvailable,
    Errno::NetUnreachable,
    Errno::MessageSize,
    Errno::DestinationRequired,
    Errno::NoProcess,
    Errno::Killed,
    Errno::CrossDevice,
];

/// The number of an error; an error that no server answers is one of input and output.
pub(super) fn number_of(error: Errno) -> u64 {
    let at = |error| ERRORS.iter().position(|known| *known == error);
    at(error).or(at(Errno::Io)).map_or(0, |at| at as u64 + 1)
}

/// The error of a number; none of 0.
pub(super) fn error_of(number: u64) -> Option<Errno> {
    (number as usize).checked_sub(1).map(|at| ERRORS.get(at).copied().unwrap_or(Errno::Io))
}

impl Answer {
    pub(super) fn value(value: u64) -> Answer {
        Answer { value, ..Answer::default() }
    }

    pub(super) fn bytes(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        for (to, word) in bytes.chunks_mut(8).zip([self.error.map_or(0, number_of), self.value, self.more]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn of(bytes: &[u8; ANSWER_BYTES]) -> Answer {
        let [number, value, more] = words(bytes);
        Answer { value, more, error: error_of(number) }
    }
}
