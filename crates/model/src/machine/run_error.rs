//! Why a run did not come to its end.

use crate::machine::options::Schedule;
use crate::mmu::oracle::{Site, StaleUse};

/// Why a run did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Every CPU is halted and no interrupt is on its way.
    #[error("deadlock: every CPU is halted and no interrupt is on its way (contexts left: {0})")]
    Deadlock(String),
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
