//! Threads: what each is, where it is, and who runs next; the monitors in which they wait for each other; the
//! threads behind interrupts, and what is done by the clock.

mod callout;
mod monitor;
mod runq;
#[expect(clippy::module_inception, reason = "the scheduler itself, in the folder that is named after it")]
mod sched;
mod select;
mod softint;
mod tcb;
mod thread;

pub use callout::{CalloutId, Callouts, Due};
pub use monitor::{Monitor, MonitorGuard, SleepLock, Which};
pub use sched::{MAX_THREADS, Sched, SchedPaths};
pub use select::{SELECT_CHANNEL, Select};
pub use softint::{SoftInt, SoftInts};
pub use tcb::ThreadId;
pub use thread::Thread;
pub use thread::Waker;
