//! What CPUs did: the words for it, and the last events of a run.

use crate::machine::locks::LockId;
use crate::machine::wait::WaitCause;
use crate::mmu::access::Site;
use core::fmt;
use pageferry_hal::{CpuId, CpuSet, Cycles, Flush, Interrupt, SpaceId, Tte, Va};
use std::collections::VecDeque;

/// Something that a CPU did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The CPU.
    pub cpu: CpuId,
    /// When, on that CPU's clock.
    pub at: Cycles,
    /// The name of the context that ran there.
    pub context: String,
    /// What it did.
    pub what: EventKind,
    /// The call that did, but for interrupts.
    pub by: Option<Site>,
}

/// What a CPU can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// Loads so many bytes.
    Load(Va, usize),
    /// Stores so many bytes.
    Store(Va, usize),
    /// Executes so many bytes of instructions.
    Fetch(Va, usize),
    /// Makes so many references of a program.
    Refers(usize),
    /// Copies so many bytes.
    Copy {
        /// To here,
        to: Va,
        /// from here.
        from: Va,
        /// Bytes.
        len_bytes: usize,
    },
    /// Declares a mapping.
    Maps {
        /// The space that it is in.
        space: SpaceId,
        /// The page.
        va: Va,
        /// The mapping before.
        old: Option<Tte>,
        /// The mapping from now on.
        new: Option<Tte>,
    },
    /// Invalidates in its TLB.
    Flushes(Flush),
    /// Closes the window of a change of mappings.
    ClosesWindow,
    /// Has taken a lock.
    Takes(LockId),
    /// Has found a lock taken, by `try_lock`.
    FailsToTake(LockId),
    /// Releases a lock.
    Releases(LockId),
    /// Operates on an atomic of [`crate::sync`]; when it finds again what it found there, that is no event.
    Atomic {
        /// The operation's name.
        name: &'static str,
        /// The value before.
        was: u64,
        /// The value behind.
        is: u64,
    },
    /// Begins to wait.
    Waits(WaitCause),
    /// Has waited.
    GoesOn(WaitCause),
    /// Sends an interrupt.
    Sends(Interrupt, CpuSet),
    /// Takes an interrupt.
    Handles(Interrupt),
    /// Returns from an interrupt handler.
    Returns(Interrupt),
    /// Leaves a context for another, the one with this number.
    Switches(u32),
    /// Sets another CPU going.
    Starts(CpuId),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9} {:?} {:<12} {}", self.at.0, self.cpu, self.context, self.what)?;
        self.by.map_or(Ok(()), |by| write!(f, "  ({by})"))
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame =
            |tte: &Option<Tte>| tte.map_or("nothing".into(), |t| format!("{:?}, {:?}", t.frame, t.attr));
        match self {
            EventKind::Load(va, len) => write!(f, "loads {len} bytes at {va:?}"),
            EventKind::Store(va, len) => write!(f, "stores {len} bytes at {va:?}"),
            EventKind::Fetch(va, len) => write!(f, "executes {len} bytes at {va:?}"),
            EventKind::Refers(references) => write!(f, "makes {references} references of a program"),
            EventKind::Copy { to, from, len_bytes } => {
                write!(f, "copies {len_bytes} bytes from {from:?} to {to:?}")
            }
            EventKind::Maps { space, va, old, new } => {
                write!(f, "maps {va:?} of {space:?} to {}; it was {}", frame(new), frame(old))
            }
            EventKind::Flushes(what) => write!(f, "invalidates {what:?}"),
            EventKind::ClosesWindow => f.write_str("closes the window of its changes"),
            EventKind::Takes(lock) => write!(f, "takes {lock}"),
            EventKind::FailsToTake(lock) => write!(f, "does not get {lock}"),
            EventKind::Releases(lock) => write!(f, "releases {lock}"),
            EventKind::Atomic { name, was, is } if was == is => {
                write!(f, "{name} of an atomic: it is {is:#x}")
            }
            EventKind::Atomic { name, was, is } => {
                write!(f, "{name} of an atomic: it was {was:#x}, and is {is:#x}")
            }
            EventKind::Waits(awaited) => write!(f, "{awaited}"),
            EventKind::GoesOn(_) => f.write_str("goes on"),
            EventKind::Sends(interrupt, to) => write!(f, "sends {interrupt:?} to {to:?}"),
            EventKind::Handles(interrupt) => write!(f, "takes the interrupt {interrupt:?}"),
            EventKind::Returns(interrupt) => write!(f, "returns from {interrupt:?}"),
            EventKind::Switches(context) => write!(f, "switches to context {context}"),
            EventKind::Starts(cpu) => write!(f, "starts {cpu:?}"),
        }
    }
}

/// An event, with its context's number.
#[derive(Clone, Copy)]
pub(crate) struct NumberedEvent {
    pub(super) cpu: CpuId,
    pub(super) at: u64,
    pub(crate) context: usize,
    pub(super) what: EventKind,
    pub(super) by: Option<Site>,
}

impl NumberedEvent {
    /// The same, with the context's name.
    pub(crate) fn named(&self, context: &str) -> Event {
        let NumberedEvent { cpu, at, what, by, .. } = *self;
        Event { cpu, at: Cycles(at), context: context.into(), what, by }
    }
}

/// The last events, and room for no more.
pub(crate) struct Events {
    pub(crate) room: usize,
    pub(crate) last: VecDeque<NumberedEvent>,
}

impl Events {
    pub(crate) fn with_room(room: usize) -> Events {
        Events { room, last: VecDeque::with_capacity(room.min(1 << 16)) }
    }
}
