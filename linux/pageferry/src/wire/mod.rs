//! What goes between the two sides, byte for byte. `WIRE.md` beside this crate has the same in prose; tests
//! hold golden bytes.
//!
//! # What it holds
//! [`Descriptor`], the eight words of a message in the ring; [`Extent`], a piece of a message that lies in
//! several runs of slots; [`Greeting`], the messages of the handshake; [`Note`], what goes over the socket
//! afterwards. All numbers are in the byte order of the machine: both sides run on one.
//!
//! # What can fail
//! Everything that comes is from a peer. [`Descriptor::parse`] and [`Greeting::parse`] refuse what has no
//! meaning; whether a message fits the pool and the channel is judged by whoever knows these
//! (`channel::admit`). Nothing panics, and no field is skipped because it is unknown.

mod descriptor;
mod greeting;
#[cfg(test)]
mod tests;

pub use descriptor::{Descriptor, Extent, Verb};
pub use greeting::{Greeting, Kind, Note, VERSION};

/// What the two sides are promised about the bytes of a message. The order is no order of strength.
///
/// | level | a peer that runs this library | a buggy peer | a hostile peer |
/// |---|---|---|---|
/// | `Typed` | a snapshot | nothing | nothing |
/// | `Mmu` | a snapshot | see below | nothing: it can keep a second writable mapping |
/// | `Sealed` | a snapshot for ever | the same | the same; it cannot be shrunk |
/// | `Copy` | a value | a value | a value, of whatever bytes it saw |
///
/// At `Mmu` what the receiver writes stays its own, and what the sender writes too (`Config::copy_on_write`) or is a
/// fault. A store of a buggy sender through any pointer that it ever had misses the message; a buggy receiver cannot
/// write to the pool, resize it or punch holes.
///
/// None holds against a process that may write to this one's memory by ptrace or /proc/PID/mem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The receiver has its own copy.
    Copy = 1,
    /// The receiver reads the sender's memory, and only the types of this library keep the sender from writing to it.
    Typed = 2,
    /// The sender's own view is frozen by the MMU, and the receiver cannot write to the pool. A hostile
    /// sender can evade it.
    Mmu = 3,
    /// As `Mmu`, and before each message is read, the kernel says that nobody can write to it. With the feature
    /// `leased` of this library, where a sender asks for it.
    ///
    /// The *receiver* makes the slots, so they count as its memory. The sender opens a slot for writing for each
    /// message and freezes it as at level `Mmu`. The receiver takes a file lease, which the kernel grants when no
    /// descriptor and no mapping that can write is left, in any process, in any queue of a socket; otherwise the
    /// message is refused and the channel closed. While the message is held, whoever opens its memory for writing
    /// waits or fails. The kernel takes a lease away `fs.lease-break-time` (45 s) after that; before, the library
    /// makes the memory the receiver's own, in place, and closes the channel. What was received stays as it was.
    ///
    /// *What holds against which sender.*
    /// * One that runs this library: as `Mmu`.
    /// * One with bugs: as `Mmu`; and other mappings, children and descriptors that could write are found. What the
    ///   kernel or a device still has to write to *pinned* pages is not (io_uring fixed buffers, O_DIRECT): finish
    ///   your I/O before `loan`.
    /// * A hostile one that was started [confined](crate::Confined) without a gap, on Linux 6.12 or later: a
    ///   snapshot. It cannot pin pages, trace the receiver, or stop it for as long as a break takes. A
    ///   [`Guarded`](crate::trust::Guarded) receiver accepts leases from such a child and from nobody else.
    /// * A hostile one that is not confined, or has a helper that is not: nothing, for it can pin pages, and have
    ///   them written later. Use `Sealed`, whose seal waits for pins.
    ///
    /// Nothing holds against a hostile *receiver*, which can write to the slots: a sender offers leases only to a
    /// receiver that it trusts as itself. It does not hold in a child that the receiver makes by `fork` while it
    /// holds a message, nor in a receiver that is stopped (SIGSTOP, a debugger) for longer than a break takes. A
    /// break sends the receiver SIGURG, which is ignored by default.
    ///
    /// There are 256 slots at most; each takes a descriptor on either side. There are neither donations nor shared
    /// memory. The level is `Copy` instead where /proc is missing, `fs.leases-enable` is 0, `fs.lease-break-time` is
    /// less than 10, or `vm.overcommit_memory` is 2 on the receiver's side.
    ///
    /// A loan costs 11 microseconds more than at level `Mmu`, at any size: more calls, no copies. (Untouched, between
    /// two CPUs of an AMD EPYC, Linux 6.18, both sides polling: 14 to 18 microseconds up to 16 MB, and 3.5 to 7 at
    /// `Mmu`.)
    Leased = 4,
    /// The memory is sealed: nobody can write it again, ever.
    Sealed = 5,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 5] = [Level::Copy, Level::Typed, Level::Mmu, Level::Leased, Level::Sealed];

    /// Whether a sender freezes its own view of what it lends.
    pub(crate) fn freezes(self) -> bool {
        matches!(self, Level::Mmu | Level::Leased)
    }

    /// Its bit in a set of levels.
    pub(crate) fn bit(self) -> u32 {
        1 << self as u8
    }

    pub(crate) fn from_u8(number: u8) -> Option<Level> {
        Level::ALL.into_iter().find(|&level| level as u8 == number)
    }
}

impl core::fmt::Display for Level {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Level::Copy => "copy",
            Level::Typed => "typed",
            Level::Mmu => "mmu",
            Level::Leased => "leased",
            Level::Sealed => "sealed",
        })
    }
}
