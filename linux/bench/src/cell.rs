//! What is compared: methods, what is done to a message, and how a side waits.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)+];

            /// For people.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }
    };
}

words! {
    /// How a message gets from one process to the other.
    Method {
        /// Slots that both sides map shared, and a ring of two counters: nothing is protected.
        Floor = "floor",
        /// A pipe of 1 MB.
        Pipe = "pipe 1 MB",
        /// A stream socket.
        Unix = "unix stream",
        /// The receiver copies out of the sender's memory.
        Readv = "process_vm_readv",
        /// The sender's pages go into a pipe, and are read from there.
        Vmsplice = "vmsplice + read",
        /// Copied into shared memory, and out of it.
        Shm = "shm, copy in + out",
        /// The library's loan at level mmu.
        Loan = "loan (mmu)",
        /// The library's loan at level typed.
        Typed = "loan (typed)",
        /// The library's loan at level leased.
        Leased = "loan (leased)",
        /// The library's donation.
        Donate = "donate",
        /// The library's copy out of a slot that was filled in place.
        CopyBuffer = "copy from a slot",
        /// The library's copy of bytes that lie elsewhere: in and out.
        Copy = "copy in + out",
        /// The library's choice.
        Auto = "auto",
        /// The library's loan of memory that is sealed, prepared before.
        Sealed = "sealed",
        /// The library's loan of memory that was sealed before, once more.
        Resent = "sealed, re-sent",
        /// A loan whose slot is filled from elsewhere by ordinary stores.
        LoanOrdinary = "loan, ordinary copy-in",
        /// The same by non-temporal stores.
        LoanStreamed = "loan, non-temporal copy-in",
        /// The same by the stores that the library picks.
        LoanWritten = "loan, write_from",
        /// A loan whose slot is filled in place by non-temporal stores.
        LoanFilled = "loan, non-temporal fill",
        /// iceoryx2 from Rust: memory that both sides can write to.
        IceoryxRust = "iceoryx2, Rust",
        /// From Python: the library, filled in place, or the same array sent again.
        Ferry = "pageferry",
        /// From Python: the library, into which the sender's own array is copied.
        FerryArray = "pageferry, own array",
        /// From Python: `multiprocessing.Queue` with the library behind it.
        FerryQueue = "mp.Queue, pageferry.mp",
        /// From Python: `multiprocessing.Queue`.
        MpQueue = "mp.Queue",
        /// From Python: pickle's protocol 5 over a socket, buffers beside it.
        Pickle5 = "pickle 5, socket",
        /// From Python: shared memory that is kept, copied into and out of.
        SharedMemory = "SharedMemory, kept",
        /// From Python: Arrow's stream over a socket.
        Arrow = "Arrow IPC, socket",
        /// From Python: a tensor in shared memory, sent again.
        TorchKept = "torch, kept tensor",
        /// From Python: a new tensor for each message.
        TorchNew = "torch, new tensor",
        /// iceoryx2 from Python.
        IceoryxPython = "iceoryx2, Python",
    }
}

words! {
    /// What the two sides do with a message.
    Pattern {
        /// Neither side touches it.
        Untouched = "untouched",
        /// The receiver reads all of it; the sender sends the same bytes again.
        Read = "read whole, re-sent",
        /// The sender fills it anew, the receiver reads all of it.
        Refilled = "refilled + read",
        /// The same, and the receiver writes one word.
        OneWord = "refilled + read, one word written",
        /// The same, and the receiver writes a word in each page.
        AllPages = "refilled + read, all pages written",
    }
}

words! {
    /// What a side that waits does.
    Wait {
        /// It looks, and never sleeps.
        Spin = "spin",
        /// It sleeps at once.
        Sleep = "sleep",
    }
}

impl Pattern {
    /// The sender fills each message anew.
    pub fn refills(self) -> bool {
        !matches!(self, Pattern::Untouched | Pattern::Read)
    }

    /// The receiver reads all of it.
    pub fn reads(self) -> bool {
        self != Pattern::Untouched
    }
}

/// What carries a method out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// This program.
    Own,
    /// `peers/python`, in the interpreter that the peers were installed for.
    Python,
    /// `peers/iceoryx2`.
    Iceoryx2,
}

impl Method {
    /// The word that JSON and the command line have for it.
    pub(crate) fn word(self) -> String {
        serde_json::to_value(self).ok().and_then(|word| Some(word.as_str()?.to_owned())).unwrap_or_default()
    }

    /// What carries it out.
    pub(crate) fn carrier(self) -> Carrier {
        match self {
            Method::IceoryxRust => Carrier::Iceoryx2,
            Method::Ferry
            | Method::FerryArray
            | Method::FerryQueue
            | Method::MpQueue
            | Method::Pickle5
            | Method::SharedMemory
            | Method::Arrow
            | Method::TorchKept
            | Method::TorchNew
            | Method::IceoryxPython => Carrier::Python,
            _ => Carrier::Own,
        }
    }

    /// Whether the method says something of the pattern.
    pub fn fits(self, pattern: Pattern) -> bool {
        match self {
            Method::FerryArray => pattern == Pattern::Refilled,
            _ if self.carrier() != Carrier::Own => !matches!(pattern, Pattern::OneWord | Pattern::AllPages),
            Method::Resent => !pattern.refills(),
            Method::LoanOrdinary | Method::LoanStreamed | Method::LoanWritten => pattern == Pattern::Refilled,
            Method::LoanFilled => pattern == Pattern::Refilled && cfg!(target_arch = "x86_64"),
            _ => true,
        }
    }

    /// Whether the end of a message is told by the bench's own ring: the method's own end comes before the
    /// receiver has read, or not at all.
    pub(crate) fn told_apart(self) -> bool {
        !matches!(
            self,
            Method::Loan
                | Method::Typed
                | Method::Leased
                | Method::Donate
                | Method::LoanOrdinary
                | Method::LoanStreamed
                | Method::LoanWritten
                | Method::LoanFilled
        )
    }

    /// By which of the channels it goes.
    pub(crate) fn channel(self) -> Option<Line> {
        match self {
            _ if self.carrier() != Carrier::Own => None,
            Method::Floor | Method::Pipe | Method::Unix | Method::Readv | Method::Vmsplice | Method::Shm => {
                None
            }
            Method::Typed => Some(Line::Typed),
            Method::Leased => Some(Line::Leased),
            Method::Sealed | Method::Resent => Some(Line::Sealed),
            _ => Some(Line::Mmu),
        }
    }
}

/// The channels of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    Mmu,
    Typed,
    Sealed,
    Leased,
}

impl Line {
    pub(crate) const ALL: [Line; 4] = [Line::Mmu, Line::Typed, Line::Sealed, Line::Leased];

    pub(crate) fn level(self) -> pageferry::Level {
        match self {
            Line::Mmu => pageferry::Level::Mmu,
            Line::Typed => pageferry::Level::Typed,
            Line::Leased => pageferry::Level::Leased,
            Line::Sealed => pageferry::Level::Sealed,
        }
    }
}
