//! Requests of both servers, as they are written in a control piece: six words each.
//!
//! An address and a port are one word, and so is an option with its value. The data piece has bytes only: those of a
//! stream, of a datagram, or a frame.
//!
//! # What can fail
//! Reading what is no request, or has a word that no value has.

use super::super::answer::{error_of, number_of};
use super::super::word::{Word, at_place, bytes_of, place_of, requests, words};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use pageferry_abi::{Errno, Readiness, Shutdown, SocketKind, SocketOption};
use pageferry_hal::{NicChecksum, NicVerdict};

const WORDS: usize = 6;

requests! {
    /// What is to be done.
    pub(super) enum Request in Envelope {
        /// Answers a handle.
        Socket { kind: SocketKind = at },
        Bind { handle: u64 = handle, name: Option<SocketAddrV4> = at },
        /// With so many that may wait.
        Listen { handle: u64 = handle, backlog: usize = at },
        Connect { handle: u64 = handle, to: Option<SocketAddrV4> = at },
        /// How that is doing.
        ConnectOutcome { handle: u64 = handle },
        /// Answers a handle, and the name of the other end.
        Accept { handle: u64 = handle },
        Shutdown { handle: u64 = handle, how: Shutdown = at },
        /// Answers the names of both ends.
        Names { handle: u64 = handle },
        SetOption { handle: u64 = handle, option: SocketOption = at },
        /// Answers the number of the error.
        TakeError { handle: u64 = handle },
        /// Answers readiness.
        Ready { handle: u64 = handle },
        /// Of a stream; if `is_rest` only what is there is of interest, and no error.
        Read { handle: u64 = handle, is_rest: bool = at, len: usize = len },
        /// Takes bytes of a stream back, from a byte of the data piece on: they were read and not taken.
        Unread { handle: u64 = handle, from: usize = at, len: usize = len },
        Write { handle: u64 = handle, len: usize = len },
        /// To where the socket is connected to, without a name. A datagram of more than come with it is too long.
        SendTo { handle: u64 = handle, to: Option<SocketAddrV4> = at, len: usize = len, of: usize = of },
        /// Answers a length, and the name of the sender.
        ReceiveFrom { handle: u64 = handle, len: usize = len },
        Close { handle: u64 = handle },
        /// From the driver's server: a frame has arrived.
        FrameIn { verdict: NicVerdict = at, len: usize = len },
        /// From the driver's server: the card was removed.
        CardGone,
        /// To the driver's server: a frame is to be sent.
        FrameOut { checksum: Option<NicChecksum> = at, len: usize = len },
        /// The server is to end.
        End,
    }
}

/// A request as words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Envelope {
    number: u64,
    handle: u64,
    at: u64,
    len: u64,
    of: u64,
}

impl Envelope {
    /// Bytes of it.
    pub(super) const BYTES: usize = WORDS * 8;

    /// The same, with other bytes in the data piece than the request says.
    pub(super) fn with_len(self, len: usize) -> Envelope {
        Envelope { len: len as u64, ..self }
    }

    /// As it is written.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Envelope { number, handle, at, len, of } = *self;
        bytes_of(&[number, handle, at, len, of, 0])
    }
}

impl Request {
    /// What is written.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: that is no request.
    pub(super) fn of(bytes: &[u8; Envelope::BYTES]) -> Result<Request, Errno> {
        let [number, handle, at, len, of, _] = words::<WORDS>(bytes);
        Request::of_envelope(Envelope { number, handle, at, len, of })
    }
}

/// A bit of a word that may be empty: it is not.
const SOME: u64 = 1 << 48;

/// A name, or none.
impl Word for Option<SocketAddrV4> {
    fn word(&self) -> u64 {
        self.map_or(0, |name| SOME | u64::from(u32::from(*name.ip())) << 16 | u64::from(name.port()))
    }

    fn of_word(word: u64) -> Result<Self, Errno> {
        match word >> 48 {
            0 if word == 0 => Ok(None),
            1 => Ok(Some(SocketAddrV4::new(Ipv4Addr::from((word >> 16) as u32), word as u16))),
            _ => Err(Errno::Invalid),
        }
    }
}

const KINDS: [SocketKind; 2] = [SocketKind::Stream, SocketKind::Datagram];

impl Word for SocketKind {
    fn word(&self) -> u64 {
        place_of(&KINDS, self)
    }

    fn of_word(word: u64) -> Result<Self, Errno> {
        at_place(&KINDS, word)
    }
}

/// Directions.
const SHUTDOWNS: [Shutdown; 3] = [Shutdown::Receive, Shutdown::Send, Shutdown::Both];

impl Word for Shutdown {
    fn word(&self) -> u64 {
        place_of(&SHUTDOWNS, self)
    }

    fn of_word(word: u64) -> Result<Self, Errno> {
        at_place(&SHUTDOWNS, word)
    }
}

/// An option in the lowest byte, its value above. More bytes than any buffer can have are as wrong as more than that.
impl Word for SocketOption {
    fn word(&self) -> u64 {
        let (which, value) = match *self {
            SocketOption::SendBuffer(bytes) => (0, bytes as u64),
            SocketOption::ReceiveBuffer(bytes) => (1, bytes as u64),
            SocketOption::ReuseAddress(on) => (2, on.word()),
            SocketOption::NoDelay(on) => (3, on.word()),
            SocketOption::ResetOnClose(on) => (4, on.word()),
            SocketOption::ReceiveLowWater(bytes) => (5, bytes as u64),
        };
        value.min(u64::MAX >> 8) << 8 | which
    }

    fn of_word(word: u64) -> Result<Self, Errno> {
        let value = word >> 8;
        Ok(match word & 0xff {
            0 => SocketOption::SendBuffer(usize::of_word(value)?),
            1 => SocketOption::ReceiveBuffer(usize::of_word(value)?),
            2 => SocketOption::ReuseAddress(bool::of_word(value)?),
            3 => SocketOption::NoDelay(bool::of_word(value)?),
            4 => SocketOption::ResetOnClose(bool::of_word(value)?),
            5 => SocketOption::ReceiveLowWater(usize::of_word(value)?),
            _ => return Err(Errno::Invalid),
        })
    }
}

/// What a socket is ready for: a bit each.
impl Word for Readiness {
    fn word(&self) -> u64 {
        let Readiness { readable, writable, hung_up } = self;
        readable.word() | writable.word() << 1 | hung_up.word() << 2
    }

    fn of_word(word: u64) -> Result<Self, Errno> {
        match word {
            0..8 => {
                Ok(Readiness { readable: word & 1 != 0, writable: word & 2 != 0, hung_up: word & 4 != 0 })
            }
            _ => Err(Errno::Invalid),
        }
    }
}

/// What is to be told of a socket.
impl Word for Option<Errno> {
    fn word(&self) -> u64 {
        self.map_or(0, number_of)
    }

    fn of_word(word: u64) -> Result<Self, Errno> {
        Ok(error_of(word))
    }
}

const VERDICTS: [NicVerdict; 3] = [NicVerdict::Unchecked, NicVerdict::Good, NicVerdict::Bad];

/// What a card says of a frame's sums.
impl Word for NicVerdict {
    fn word(&self) -> u64 {
        place_of(&VERDICTS, self)
    }

    fn of_word(word: u64) -> Result<Self, Errno> {
        at_place(&VERDICTS, word)
    }
}

/// What a card is to put into a frame.
impl Word for Option<NicChecksum> {
    fn word(&self) -> u64 {
        self.map_or(0, |NicChecksum { from, at }| SOME | (from as u64) << 16 | at as u64)
    }

    fn of_word(word: u64) -> Result<Self, Errno> {
        let checksum = NicChecksum { from: (word >> 16) as u16 as usize, at: word as u16 as usize };
        match word >> 32 {
            0 if word == 0 => Ok(None),
            0x1_0000 => Ok(Some(checksum)),
            _ => Err(Errno::Invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUESTS: u64 = 21;

    fn name() -> impl Strategy<Value = Option<SocketAddrV4>> {
        prop::option::of(any::<(u32, u16)>().prop_map(|(ip, port)| SocketAddrV4::new(ip.into(), port)))
    }

    fn option() -> impl Strategy<Value = SocketOption> {
        (0..6_u8, 0..usize::MAX >> 8, any::<bool>()).prop_map(|(which, bytes, on)| match which {
            0 => SocketOption::SendBuffer(bytes),
            1 => SocketOption::ReceiveBuffer(bytes),
            2 => SocketOption::ReuseAddress(on),
            3 => SocketOption::NoDelay(on),
            4 => SocketOption::ReceiveLowWater(bytes),
            _ => SocketOption::ResetOnClose(on),
        })
    }

    fn checksum() -> impl Strategy<Value = Option<NicChecksum>> {
        prop::option::of(
            any::<(u16, u16)>()
                .prop_map(|(from, at)| NicChecksum { from: usize::from(from), at: usize::from(at) }),
        )
    }

    /// Every request, with words of any value.
    fn request() -> impl Strategy<Value = Request> {
        let numbers = (0..REQUESTS, any::<u64>(), any::<[usize; 3]>(), any::<bool>());
        let words = (name(), option(), checksum(), 0..2_usize, 0..3_usize);
        (numbers, words).prop_map(
            |((number, handle, [len, of, from], is_rest), (name, option, checksum, two, three))| match number
            {
                0 => Request::Socket { kind: KINDS[two] },
                1 => Request::Bind { handle, name },
                2 => Request::Listen { handle, backlog: of },
                3 => Request::Connect { handle, to: name },
                4 => Request::ConnectOutcome { handle },
                5 => Request::Accept { handle },
                6 => Request::Shutdown { handle, how: SHUTDOWNS[three] },
                7 => Request::Names { handle },
                8 => Request::SetOption { handle, option },
                9 => Request::TakeError { handle },
                10 => Request::Ready { handle },
                11 => Request::Read { handle, is_rest, len },
                12 => Request::Unread { handle, from, len },
                13 => Request::Write { handle, len },
                14 => Request::SendTo { handle, to: name, len, of },
                15 => Request::ReceiveFrom { handle, len },
                16 => Request::Close { handle },
                17 => Request::FrameIn { verdict: VERDICTS[three], len },
                18 => Request::CardGone,
                19 => Request::FrameOut { checksum, len },
                _ => Request::End,
            },
        )
    }

    fn round_trips<W: Word + PartialEq + Copy + core::fmt::Debug>(value: W) -> bool {
        W::of_word(value.word()) == Ok(value)
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(request in request()) {
            let envelope = request.envelope();
            let bytes: [u8; Envelope::BYTES] = envelope.bytes().try_into().unwrap();
            prop_assert_eq!(words::<1>(&bytes)[0], envelope.number);
            prop_assert_eq!(Request::of(&bytes), Ok(request));
        }

        #[test]
        fn what_is_answered_is_what_was_to_be(name in name(), bits in 0..8_u8) {
            let bit = |bit: u32| bits & 1 << bit != 0;
            prop_assert!(round_trips(name));
            let ready = Readiness { readable: bit(0), writable: bit(1), hung_up: bit(2) };
            prop_assert!(round_trips(ready));
            prop_assert!(round_trips(Some(Errno::ConnectionReset)) && round_trips(None::<Errno>));
        }

        /// Whatever a client writes, it is a request that is written the same again, or refused.
        #[test]
        fn other_bytes_are_refused(
            number in 0..REQUESTS + 3, wild in any::<[u64; 4]>(), small in 0..70_000_u64, named in any::<[bool; 4]>(),
        ) {
            let at = match named {
                [true, true, ..] => wild[1],
                [true, false, ..] => SOME | wild[1] >> 16,
                _ => small,
            };
            let bytes = bytes_of(&[number, wild[0], at, wild[2], wild[3], 0]).try_into().unwrap();
            if let Ok(request) = Request::of(&bytes) {
                prop_assert!(number < REQUESTS);
                let again = request.envelope().bytes().try_into().unwrap();
                prop_assert_eq!(Request::of(&again), Ok(request));
            }
        }
    }
}
