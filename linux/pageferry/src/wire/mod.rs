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
/// | `Mmu` | a snapshot; writes of either side stay its own | a store through any pointer that the sender ever had misses the message; the receiver cannot write to the pool, resize it or punch holes | nothing: it can keep a second writable mapping |
/// | `Sealed` | a snapshot for ever | the same | the same; it cannot be shrunk |
/// | `Copy` | a value | a value | a value, of whatever bytes it saw |
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
    /// As `Mmu`, and a file lease proves that no writer exists.
    Leased = 4,
    /// The memory is sealed: nobody can write it again, ever.
    Sealed = 5,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 5] = [Level::Copy, Level::Typed, Level::Mmu, Level::Leased, Level::Sealed];

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
