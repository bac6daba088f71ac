//! Turns: which CPU went on, and how. A word each, so that a schedule is a list of words.

use crate::cpu::CpuId;
use crate::machine::Interrupt;
use core::fmt;

macro_rules! calls {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What has a turn.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Call { $($(#[doc = $doc])+ $name,)+ }

        impl Call {
            const ALL: &'static [Call] = &[$(Call::$name),+];
        }
    };
}

calls! {
    /// The clock is read; the turn's value is what it says.
    Now,
    /// A load, store, copy, or what else goes to data.
    Data,
    /// A page-table entry.
    Table,
    /// The own TLB.
    Tlb,
    /// Accounting at which CPUs may change.
    Account,
    /// An interrupt is sent.
    Send,
    /// The timer is set.
    Timer,
    /// A condition is waited for.
    Spin,
    /// An interrupt is waited for.
    Idle,
    /// A lock is taken.
    Lock,
    /// A lock is tried; the turn's value is 1 if it was taken.
    Try,
    /// A context is left.
    Leave,
    /// A context goes on.
    GoOn,
    /// A context begins.
    Begin,
    /// A shootdown's handler begins.
    Shootdown,
    /// The handler of a request to schedule begins.
    Reschedule,
    /// The timer's handler begins.
    TimerHandler,
}

impl Call {
    /// The turn of an interrupt's handler; devices have none here.
    pub fn handler(interrupt: Interrupt) -> Option<Call> {
        match interrupt {
            Interrupt::Shootdown => Some(Call::Shootdown),
            Interrupt::Reschedule => Some(Call::Reschedule),
            Interrupt::Timer => Some(Call::TimerHandler),
            Interrupt::Device(_) => None,
        }
    }

    /// The interrupt whose handler's turn this is.
    pub fn interrupt(self) -> Option<Interrupt> {
        match self {
            Call::Shootdown => Some(Interrupt::Shootdown),
            Call::Reschedule => Some(Interrupt::Reschedule),
            Call::TimerHandler => Some(Interrupt::Timer),
            _ => None,
        }
    }
}

/// A turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The CPU.
    pub cpu: CpuId,
    /// What it does.
    pub call: Call,
    /// What belongs to it: see [`Call`]. Below 2^48.
    pub value: u64,
}

const VALUE_BITS: u32 = 48;

impl Turn {
    /// As a word.
    pub fn word(self) -> u64 {
        let value = self.value & ((1 << VALUE_BITS) - 1);
        u64::from(self.cpu.0) << 56 | (self.call as u64) << VALUE_BITS | value
    }

    /// Of a word; nothing if that is none.
    pub fn of(word: u64) -> Option<Turn> {
        let call = *Call::ALL.get((word >> VALUE_BITS & 0xff) as usize)?;
        Some(Turn { cpu: CpuId((word >> 56) as u8), call, value: word & ((1 << VALUE_BITS) - 1) })
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.call, self.cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_a_word() {
        for (i, &call) in Call::ALL.iter().enumerate() {
            let turn = Turn { cpu: CpuId(63), call, value: (1 << 47) + i as u64 };
            assert_eq!(Turn::of(turn.word()), Some(turn));
        }
        assert_eq!(Turn::of(u64::MAX), None);
    }
}
