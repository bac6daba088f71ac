//! Events: what was called, with what, and what was answered. Six words each, so that a log is a list of words.

use crate::cpu::CpuId;
use crate::machine::Interrupt;
use crate::mmu::{Flush, Tte};
use crate::trap::{Access, CopyFault, Mode, TrapKind};
use core::fmt;

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $name:ident($($word:ident),*),)+) => {
        /// What was done.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum EventKind { $($(#[doc = $doc])+ $name,)+ }

        impl EventKind {
            /// All of them.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name),+];

            /// What the words of such an event are.
            pub const fn words(self) -> &'static [&'static str] {
                match self { $(EventKind::$name => &[$(stringify!($word)),*],)+ }
            }
        }
    };
}

events! {
    /// The clock was read.
    Now(at),
    /// Bytes were loaded; with what they add up to.
    Load(va, len, mode, sum),
    /// Bytes were stored; likewise.
    Store(va, len, mode, sum),
    /// Copied from user memory.
    CopyIn(to, from, len),
    /// Copied to user memory.
    CopyOut(to, from, len),
    /// Copied within the kernel.
    CopyKernel(to, from, len),
    /// Cleared.
    Zero(va, len),
    /// The MMU refused what the event before asks for.
    Fault(va, access, mode, kind, done),
    /// A word of a page table was read.
    PtLoad(at, value),
    /// A word of a page table was written.
    PtStore(at, value),
    /// A word of a page table was replaced.
    PtSwap(at, value, old),
    /// A word of a page table was replaced, or found to be another one.
    PtReplace(at, old, new, found),
    /// A page table was cleared.
    PtClear(at),
    /// An address space was switched to.
    Activate(space, root, asid, keep),
    /// Something was invalidated in the own TLB.
    Flush(what, asid, va),
    /// A mapping was declared.
    Mapping(space, va, old, new),
    /// A flush window was closed.
    CloseWindow(),
    /// An interrupt was sent.
    Send(interrupt, cpus),
    /// The timer was set.
    SetTimer(at),
    /// An interrupt's handler begins.
    Handle(interrupt),
    /// It returns.
    Return(interrupt),
    /// A lock was tried, and was taken or not.
    TryLock(taken),
    /// A context was made.
    ContextNew(context),
    /// A context was left for another.
    ContextSwitch(to),
    /// A context begins.
    ContextBegin(context),
    /// A CPU was started.
    StartCpu(cpu, context),
    /// The kernel was entered or left.
    Cross(crossing),
    /// Something was counted.
    Count(metric, n),
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The CPU.
    pub cpu: CpuId,
    /// What it did.
    pub kind: EventKind,
    /// With what: see [`EventKind::words`].
    pub words: [u64; Event::WORDS],
}

impl Event {
    /// Words of an event, beside the one that says whose it is and what.
    pub const WORDS: usize = 5;

    /// As words.
    pub fn encode(&self) -> [u64; Event::WORDS + 1] {
        let [a, b, c, d, e] = self.words;
        [u64::from(self.cpu.0) << 8 | self.kind as u64, a, b, c, d, e]
    }

    /// Of words; nothing if they are none.
    pub fn decode(words: [u64; Event::WORDS + 1]) -> Option<Event> {
        let [first, words @ ..] = words;
        let kind = *EventKind::ALL.get((first & 0xff) as usize)?;
        let cpu = u8::try_from(first >> 8).ok()?;
        Some(Event { cpu: CpuId(cpu), kind, words })
    }

    /// The words of a refusal.
    pub fn fault(fault: &CopyFault) -> [u64; Event::WORDS] {
        let CopyFault { done_bytes, trap } = fault;
        let access = match trap.access {
            Access::Read => 0,
            Access::Write => 1,
            Access::Fetch => 2,
        };
        let kind = match trap.kind {
            TrapKind::NotPresent => 0,
            TrapKind::Protection => 1,
        };
        [trap.va.0, access, Event::mode(trap.mode), kind, *done_bytes as u64]
    }

    /// A privilege as a word.
    pub const fn mode(mode: Mode) -> u64 {
        match mode {
            Mode::User => 0,
            Mode::Kernel => 1,
        }
    }

    /// An interrupt as a word.
    pub fn interrupt(interrupt: Interrupt) -> u64 {
        match interrupt {
            Interrupt::Shootdown => 0,
            Interrupt::Reschedule => 1,
            Interrupt::Timer => 2,
            Interrupt::Device(device) => 3 + u64::from(device.0),
        }
    }

    /// The words of a [`Flush`]: its kind, and what it goes to, where it goes to something.
    pub fn flush(what: Flush) -> [u64; Event::WORDS] {
        let (kind, asid, va) = match what {
            Flush::Page(asid, va) => (0, asid.0, va.0),
            Flush::Context(asid) => (1, asid.0, 0),
            Flush::All => (2, 0, 0),
            Flush::Everything => (3, 0, 0),
            Flush::Broadcast(asid, va) => (4, asid.0, va.0),
            Flush::Synchronise => (5, 0, 0),
        };
        [kind, u64::from(asid), va, 0, 0]
    }

    /// A mapping as a word; none is 0.
    pub fn tte(tte: Option<Tte>) -> u64 {
        tte.map_or(0, |tte| {
            (tte.frame.0 as u64) << 24 | u64::from(tte.shift) << 16 | u64::from(tte.attr.bits())
        })
    }

    /// What bytes add up to (FNV-1a).
    pub fn sum(bytes: &[u8]) -> u64 {
        bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.cpu, self.kind)?;
        self.kind.words().iter().zip(self.words).try_for_each(|(name, word)| write!(f, " {name}={word:#x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_six_words() {
        for &kind in EventKind::ALL {
            assert!(kind.words().len() <= Event::WORDS);
            let event = Event { cpu: CpuId(63), kind, words: [1, 2, u64::MAX, 4, 5] };
            assert_eq!(Event::decode(event.encode()), Some(event));
        }
        assert_eq!(Event::decode([255; 6]), None);
    }
}
