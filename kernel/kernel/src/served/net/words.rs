//! Requests of both servers, as they are written in a control piece: six words each.
//!
//! An address and a port are one word, and so is an option with its value. The data piece has bytes only: those of a
//! stream, of a datagram, or a frame.

use super::super::answer::{bytes_of, error_of, number_of, words};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use pageferry_abi::{Errno, Readiness, Shutdown, SocketKind, SocketOption};
use pageferry_hal::{NicChecksum, NicVerdict};

const WORDS: usize = 6;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// Makes a socket of kind `at`; answers a handle.
    Socket,
    /// By the name in `at`.
    Bind,
    /// With so many that may wait (`at`).
    Listen,
    /// To the name in `at`.
    Connect,
    /// How that is doing.
    ConnectOutcome,
    /// Answers a handle, and the name of the other end.
    Accept,
    /// Which directions is in `at`.
    Shutdown,
    /// Answers the names of both ends.
    Names,
    /// The option is in `at`.
    SetOption,
    /// Answers the number of the error.
    TakeError,
    /// Answers [readiness](readiness_word).
    Ready,
    /// Of a stream; if `at` is not 0 only what is there is of interest, and no error.
    Read,
    /// Takes bytes of a stream back, from byte `at` of the data piece on: they were read and not taken.
    Unread,
    Write,
    /// To the name in `at`, or to where the socket is connected to if that is 0.
    SendTo,
    /// Answers a length, and the name of the sender.
    ReceiveFrom,
    Close,
    /// From the driver's server: a frame has arrived; `at` is the [verdict](verdict_word).
    FrameIn,
    /// From the driver's server: the card was removed.
    CardGone,
    /// To the driver's server: a frame is to be sent; `at` is the [checksum](checksum_word).
    FrameOut,
    /// The server is to end.
    End,
}

const OPS: [Op; 21] = [
    Op::Socket,
    Op::Bind,
    Op::Listen,
    Op::Connect,
    Op::ConnectOutcome,
    Op::Accept,
    Op::Shutdown,
    Op::Names,
    Op::SetOption,
    Op::TakeError,
    Op::Ready,
    Op::Read,
    Op::Unread,
    Op::Write,
    Op::SendTo,
    Op::ReceiveFrom,
    Op::Close,
    Op::FrameIn,
    Op::CardGone,
    Op::FrameOut,
    Op::End,
];

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) op: Op,
    pub(super) handle: u64,
    pub(super) at: u64,
    /// How many bytes come with it, or are to come with the answer.
    pub(super) len: usize,
    /// How many bytes the call is about: a datagram of more than come with it is too long.
    pub(super) of: usize,
}

impl Asked {
    pub(super) const BYTES: usize = WORDS * 8;

    pub(super) fn new(op: Op, at: u64) -> Asked {
        Asked { op, handle: 0, at, len: 0, of: 0 }
    }

    /// As it is written.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let op = OPS.iter().position(|op| *op == self.op).expect("it is one of them") as u64;
        bytes_of(&[op, self.handle, self.at, self.len as u64, self.of as u64, 0])
    }

    /// What is written.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: that is no request.
    pub(super) fn of(bytes: &[u8; Asked::BYTES]) -> Result<Asked, Errno> {
        let [op, handle, at, len, of, _] = words::<WORDS>(bytes);
        let op = *usize::try_from(op).ok().and_then(|op| OPS.get(op)).ok_or(Errno::Invalid)?;
        Ok(Asked { op, handle, at, len: len as usize, of: of as usize })
    }
}

/// A bit of a word with a name: there is one.
const NAMED: u64 = 1 << 48;

/// A name, or none.
pub(super) fn name_word(name: Option<SocketAddrV4>) -> u64 {
    name.map_or(0, |name| NAMED | u64::from(u32::from(*name.ip())) << 16 | u64::from(name.port()))
}

/// The same again.
pub(super) fn name_of(word: u64) -> Option<SocketAddrV4> {
    let name = SocketAddrV4::new(Ipv4Addr::from((word >> 16) as u32), word as u16);
    (word & NAMED != 0).then_some(name)
}

/// The kind of a socket.
pub(super) fn kind_word(kind: SocketKind) -> u64 {
    u64::from(kind == SocketKind::Datagram)
}

/// The same again.
pub(super) fn kind_of(word: u64) -> SocketKind {
    if word == 0 { SocketKind::Stream } else { SocketKind::Datagram }
}

/// Directions.
pub(super) fn shutdown_word(how: Shutdown) -> u64 {
    match how {
        Shutdown::Receive => 0,
        Shutdown::Send => 1,
        Shutdown::Both => 2,
    }
}

/// The same again.
pub(super) fn shutdown_of(word: u64) -> Shutdown {
    match word {
        0 => Shutdown::Receive,
        1 => Shutdown::Send,
        _ => Shutdown::Both,
    }
}

/// An option and its value.
pub(super) fn option_word(option: SocketOption) -> u64 {
    let (which, value) = match option {
        SocketOption::SendBuffer(bytes) => (0, bytes as u64),
        SocketOption::ReceiveBuffer(bytes) => (1, bytes as u64),
        SocketOption::ReuseAddress(on) => (2, u64::from(on)),
        SocketOption::NoDelay(on) => (3, u64::from(on)),
        SocketOption::ResetOnClose(on) => (4, u64::from(on)),
    };
    // More bytes than any buffer can have are as wrong as more than that.
    value.min(u64::MAX >> 8) << 8 | which
}

/// The same again.
///
/// # Errors
/// [`Errno::Invalid`]: there is no such option.
pub(super) fn option_of(word: u64) -> Result<SocketOption, Errno> {
    let (value, on) = ((word >> 8) as usize, word >> 8 != 0);
    Ok(match word & 0xff {
        0 => SocketOption::SendBuffer(value),
        1 => SocketOption::ReceiveBuffer(value),
        2 => SocketOption::ReuseAddress(on),
        3 => SocketOption::NoDelay(on),
        4 => SocketOption::ResetOnClose(on),
        _ => return Err(Errno::Invalid),
    })
}

/// What a socket is ready for.
pub(super) fn readiness_word(ready: Readiness) -> u64 {
    let Readiness { readable, writable, hung_up } = ready;
    u64::from(readable) | u64::from(writable) << 1 | u64::from(hung_up) << 2
}

/// The same again.
pub(super) fn readiness_of(word: u64) -> Readiness {
    Readiness { readable: word & 1 != 0, writable: word & 2 != 0, hung_up: word & 4 != 0 }
}

/// What is to be told of a socket.
pub(super) fn error_word(error: Option<Errno>) -> u64 {
    error.map_or(0, number_of)
}

/// The same again.
pub(super) fn told_error(word: u64) -> Option<Errno> {
    error_of(word)
}

/// What a card says of a frame's sums.
pub(super) fn verdict_word(verdict: NicVerdict) -> u64 {
    match verdict {
        NicVerdict::Unchecked => 0,
        NicVerdict::Good => 1,
        NicVerdict::Bad => 2,
    }
}

/// The same again.
pub(super) fn verdict_of(word: u64) -> NicVerdict {
    match word {
        1 => NicVerdict::Good,
        2 => NicVerdict::Bad,
        _ => NicVerdict::Unchecked,
    }
}

/// What a card is to put into a frame.
pub(super) fn checksum_word(checksum: Option<NicChecksum>) -> u64 {
    checksum.map_or(0, |NicChecksum { from, at }| NAMED | (from as u64) << 16 | at as u64)
}

/// The same again.
pub(super) fn checksum_of(word: u64) -> Option<NicChecksum> {
    let checksum = NicChecksum { from: (word >> 16) as u16 as usize, at: word as u16 as usize };
    (word & NAMED != 0).then_some(checksum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_was_said() {
        for (at, op) in OPS.into_iter().enumerate() {
            let asked = Asked { op, handle: 7, at: at as u64, len: 3, of: 4 };
            assert_eq!(Asked::of(&asked.bytes().try_into().unwrap()), Ok(asked));
        }
        let name = Some(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 255), 65535));
        assert_eq!((name_of(name_word(name)), name_of(name_word(None))), (name, None));
        for option in [
            SocketOption::SendBuffer(9000),
            SocketOption::ReceiveBuffer(usize::MAX >> 8),
            SocketOption::ReuseAddress(true),
            SocketOption::NoDelay(false),
            SocketOption::ResetOnClose(true),
        ] {
            assert_eq!(option_of(option_word(option)), Ok(option));
        }
        let checksum = Some(NicChecksum { from: 34, at: 50 });
        assert_eq!((checksum_of(checksum_word(checksum)), checksum_of(0)), (checksum, None));
        assert_eq!(Asked::of(&[0xff; Asked::BYTES]), Err(Errno::Invalid));
    }
}
