//! Why a run did not come to its end.

use crate::machine::locks::{LockCircle, LockId};
use crate::machine::options::Schedule;
use crate::machine::wait::Waits;
use crate::mmu::access::Site;
use crate::mmu::oracle::StaleUse;
use pageferry_hal::{Cycles, LockClass};

/// Why a run did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Every CPU is halted and no interrupt is on its way.
    #[error(
        "deadlock: every CPU is halted and no interrupt is on its way (contexts left: {left}): {waits} ({schedule})"
    )]
    Deadlock {
        /// Where they are halted.
        waits: Waits,
        /// The names of all contexts that are not over.
        left: String,
        /// The schedule in which it happens again.
        schedule: Schedule,
    },
    /// No CPU does anything but test what it waits for: see [`Options::spin_limit`](crate::Options::spin_limit), and,
    /// of what the test may do, [`Machine::spin_until`](pageferry_hal::Machine::spin_until).
    #[error("no CPU gets on: {waits}; {} ({schedule})", why(*.tests, *.alone))]
    Spinning {
        /// What they wait for, and where.
        waits: Waits,
        /// How often it was tested, by all CPUs together, since one of them did anything else.
        tests: u64,
        /// No other CPU runs, and no interrupt is on its way: nothing is left that could end the wait.
        alone: bool,
        /// The schedule in which it happens again.
        schedule: Schedule,
    },
    /// A context takes a lock that the [order](pageferry_hal::lock) forbids while it holds another.
    #[error(
        "lock order: context {context} takes {} at {} while it holds {}, taken at {}; {} ({schedule})",
        takes.0, takes.1, holds.0, holds.1, ranks(takes.0.class, holds.0.class)
    )]
    LockOrder {
        /// The context's name.
        context: String,
        /// The lock that it takes, and the call that does.
        takes: Box<(LockId, Site)>,
        /// The lock that it holds, and the call that took it.
        holds: Box<(LockId, Site)>,
        /// The schedule in which it happens again.
        schedule: Schedule,
    },
    /// Contexts wait for locks that they hold themselves.
    #[error("deadlock of locks: {circle} ({schedule})")]
    LockDeadlock {
        /// Which context waits for which.
        circle: LockCircle,
        /// The schedule in which it happens again.
        schedule: Schedule,
    },
    /// Every CPU's clock has passed [`Options::cycle_limit`](crate::Options::cycle_limit).
    #[error("the run takes more than {} cycles; contexts left: {left}; waiting: {waits} ({schedule})", limit.0)]
    OutOfTime {
        /// The limit.
        limit: Cycles,
        /// The CPUs that wait, if there are any.
        waits: Waits,
        /// The names of all contexts that are not over.
        left: String,
        /// The schedule in which it happens again.
        schedule: Schedule,
    },
    /// A translation was used that no longer stands; see [`crate::mmu::oracle`] and
    /// [`Options::tolerate_stale`](crate::Options::tolerate_stale).
    #[error("{stale}; used at {used_by} by context {context} ({schedule})")]
    Stale {
        /// The use, in the oracle's words.
        stale: Box<StaleUse>,
        /// The call that used it.
        used_by: Site,
        /// The name of the context that made the call.
        context: String,
        /// The schedule in which it happens again.
        schedule: Schedule,
    },
    /// Kernel code, or the machine on its behalf, panicked.
    #[error("panic: {0}")]
    Panicked(String),
}

/// Why the order forbids it.
fn ranks(takes: LockClass, holds: LockClass) -> String {
    const RULE: &str = "locks are taken in ascending order of rank";
    match (takes.rank(), holds.rank()) {
        (Some(takes), Some(holds)) if takes == holds => format!("both have rank {takes}, and {RULE}"),
        (Some(takes), Some(holds)) => format!("rank {takes} after rank {holds}, and {RULE}"),
        _ => RULE.into(),
    }
}

/// How it is known that the wait would not end.
fn why(tests: u64, alone: bool) -> String {
    if alone {
        return "no other CPU runs and no interrupt is on its way, so nothing can end the wait".into();
    }
    let times = if tests == 1 { "the one time".into() } else { format!("all {tests} times") };
    format!("what is waited for was false {times} that it was tested, and no CPU did anything else meanwhile")
}
