//! System calls by number, for programs that are in a privilege of their own: what they put into registers, and what
//! they get back. Plain values: they hold nothing, take no lock and cannot fail.
//!
//! On amd64 the number is in RAX, and arguments are in RDI, RSI, RDX, R10 and R8; the answer is in RAX and RDX. An
//! answer whose highest bit is set is the negative number of an [`Errno`]. All other registers are kept but RCX and
//! R11, which the instruction itself uses.

use crate::{Errno, InvalidateKind, PassMode, ReceiveMode, SendMode};

macro_rules! calls {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A system call. What it does is said where the kernel has it; here are its arguments and its answer.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Call { $($(#[doc = $doc])+ $name,)+ }

        impl Call {
            const ALL: &'static [Call] = &[$(Call::$name),+];

            /// The call of a number, if there is one.
            pub fn of(number: u64) -> Option<Call> {
                usize::try_from(number).ok().and_then(|number| Call::ALL.get(number)).copied()
            }
        }
    };
}

calls! {
    /// (): does nothing.
    Null,
    /// (status): ends the process; anything but 0 is a failure.
    Exit,
    /// (address, length): writes text to the console.
    Print,
    /// (address, length): waits for input of the console; how much came.
    Input,
    /// (address and length of a name, address and length of a line): begins a child that runs the program of that
    /// name, which gets the line; its number.
    Spawn,
    /// (address and length of a name): begins a child that goes on where its parent does; its number, and 0 there.
    Fork,
    /// (): waits until a child has ended; its number.
    Wait,
    /// (): the number of the process.
    Pid,
    /// (number): kills a process.
    Kill,
    /// (CPU): binds the process to it.
    BindCpu,
    /// (milliseconds): sleeps.
    Sleep,
    /// (): lets others run.
    Yield,
    /// (length): maps memory; its address.
    Map,
    /// (address, length): unmaps memory.
    Unmap,
    /// (): a pipe; the end to read from, and the end to write to.
    Pipe,
    /// (): two sockets.
    SocketPair,
    /// (): a socket of the null protocol.
    NullSocket,
    /// (descriptor, address, length): how much was read.
    Read,
    /// (descriptor, address, length): how much was written.
    Write,
    /// (descriptor, address, length, [`SendMode`]): how much was sent.
    Send,
    /// (descriptor, address, length, [`ReceiveMode`]): how much was received; 1 if pages came.
    Receive,
    /// (address, length): frees pages that were received.
    Flush,
    /// (descriptor): closes it.
    Close,
    /// (address, length, [`PassMode`], process plus one, or 0 for any): the number of an offer.
    Export,
    /// (offer): where it is, and how long.
    Import,
    /// (): measures what moving pages costs.
    MeasureMoves,
    /// (length, 1 if the other end touches what arrives): 1 if passing costs less than a socket.
    ChooseCarrier,
    /// ([`InvalidateKind`], times): cycles.
    Invalidate,
    /// (which of [`Report`], address, length): text about the machine; how long it is.
    Report,
    /// (0 or 1): what is counted begins here, or ends here.
    Mark,
}

/// A value that is passed in a register.
pub trait Word: Sized + Copy + 'static {
    /// All values, each at its number.
    const ALL: &'static [Self];

    /// The value of a number, if there is one.
    fn of(number: u64) -> Option<Self> {
        usize::try_from(number).ok().and_then(|number| Self::ALL.get(number)).copied()
    }

    /// Its number.
    fn word(self) -> u64;
}

macro_rules! words {
    ($($name:ident: $($value:ident),+;)+) => {
        $(impl Word for $name {
            const ALL: &'static [$name] = &[$($name::$value),+];

            fn word(self) -> u64 {
                self as u64
            }
        })+
    };
}

/// What a process can be told of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// A line for each process: number, parent, state, name.
    Processes,
    /// A line for each counter: name, value; since the machine began.
    Counters,
    /// The scheme of ephemeral mappings, CPUs, frames.
    Machine,
    /// The names of the programs.
    Programs,
}

words! {
    SendMode: Copy, Loan, Auto, Pin;
    ReceiveMode: Copy, Transfer, Auto;
    PassMode: Share, Copy, Donate, DonateZero;
    InvalidateKind: LocalCached, LocalUncached, Remote;
    Report: Processes, Counters, Machine, Programs;
    Errno: BadFd, Invalid, Fault, BrokenPipe, Access, Busy, Removed, Interrupted, WouldBlock, NoMemory, Io, NoFile,
        Exists, CrossDevice, NotDirectory, IsDirectory, NotEmpty, Loop, NameTooLong, TooLarge, NotExecutable, NoDevice,
        NoSpace, NoProcess, NotSupported, NoChild, TooManyFiles, ConnectionRefused, ConnectionReset, ConnectionAborted,
        TimedOut, NotConnected, IsConnected, InProgress, AlreadyInProgress, AddressInUse, AddressNotAvailable,
        NetUnreachable, MessageSize, DestinationRequired, Killed;
}

/// What a call answers, as two registers have it.
pub fn encode(answer: Result<[u64; 2], Errno>) -> [u64; 2] {
    answer.unwrap_or_else(|errno| [(errno.word() + 1).wrapping_neg(), 0])
}

/// What two registers answer. A number that is no errno's is [`Errno::NotSupported`].
///
/// # Errors
/// The call's.
pub fn decode([first, second]: [u64; 2]) -> Result<[u64; 2], Errno> {
    if first >> 63 == 0 {
        return Ok([first, second]);
    }
    Err(Errno::of(first.wrapping_neg() - 1).unwrap_or(Errno::NotSupported))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        fn all<T: Word + PartialEq + core::fmt::Debug>() {
            for (number, &value) in T::ALL.iter().enumerate() {
                assert_eq!((value.word(), T::of(number as u64)), (number as u64, Some(value)));
            }
            assert_eq!((T::of(T::ALL.len() as u64), T::of(u64::MAX)), (None, None));
        }
        all::<SendMode>();
        all::<ReceiveMode>();
        all::<PassMode>();
        all::<InvalidateKind>();
        all::<Report>();
        all::<Errno>();
        for (number, &call) in Call::ALL.iter().enumerate() {
            assert_eq!((call as usize, Call::of(number as u64)), (number, Some(call)));
        }
        assert_eq!(Call::of(u64::MAX), None);
    }

    #[test]
    fn answers_come_back() {
        for &errno in Errno::ALL {
            assert_eq!(decode(encode(Err(errno))), Err(errno));
        }
        assert_eq!(decode(encode(Ok([7, 8]))), Ok([7, 8]));
        assert_eq!(decode([1 << 63, 0]), Err(Errno::NotSupported));
    }
}
