//! Threads: what each is, where it is, and who runs next; and the monitors in which they wait for each other.

mod monitor;
mod runq;
#[expect(clippy::module_inception, reason = "the scheduler itself, in the folder that is named after it")]
mod sched;
mod tcb;
mod thread;

pub(crate) use monitor::{Held, Monitor, SleepLock, Which};
pub(crate) use sched::{MAX_THREADS, Sched, SchedPaths};
pub use tcb::ThreadId;
pub use thread::Thread;
