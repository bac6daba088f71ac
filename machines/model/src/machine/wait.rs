//! What CPUs wait for, as errors and events tell of it.

use crate::machine::locks::LockId;
use crate::mmu::access::Site;
use core::fmt;
use pageferry_hal::{CpuId, Cycles};

/// What a CPU waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// A condition, in [`spin_until`](pageferry_hal::Machine::spin_until).
    Condition,
    /// A condition, halted in [`idle_until`](pageferry_hal::Machine::idle_until).
    Interrupt,
    /// A lock.
    Lock(LockId),
    /// An atomic of [`crate::sync`], in a loop of its own.
    Atomic,
    /// A context that its CPU has not left yet, in [`context_switch`](pageferry_hal::Machine::context_switch).
    Context,
}

/// A CPU that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The CPU.
    pub cpu: CpuId,
    /// The name of the context that runs there.
    pub context: String,
    /// What it waits for.
    pub awaited: WaitCause,
    /// The call that waits.
    pub at: Site,
    /// Since when, on that CPU's clock.
    pub since: Cycles,
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitCause::Condition => f.write_str("spins"),
            WaitCause::Interrupt => f.write_str("is halted"),
            WaitCause::Lock(lock) => write!(f, "spins for the lock {lock}"),
            WaitCause::Atomic => f.write_str("spins for an atomic"),
            WaitCause::Context => f.write_str("spins for a context to be left by its CPU"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wait { cpu, context, awaited, at, since } = self;
        write!(f, "{cpu:?}, context {context}, {awaited} at {at} since cycle {}", since.0)
    }
}

/// All CPUs that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits(pub Vec<Wait>);

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, wait) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "; " })?;
            wait.fmt(f)?;
        }
        Ok(())
    }
}

/// What the machine notes of a CPU that waits.
#[derive(Clone, Copy)]
pub(crate) struct CpuWait {
    pub(crate) awaited: WaitCause,
    pub(crate) at: Site,
    pub(crate) since: u64,
    /// An interrupt handler waits. Where a handler runs on a CPU that waits without this, the handler does not.
    pub(crate) in_handler: bool,
}
