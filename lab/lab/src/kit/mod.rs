//! What workloads are written with: processes, payloads that are checked, a stopwatch, and what they leave behind.

mod link;
mod mode;
mod net;
mod os;
mod outcome;
mod payload;
mod process;
mod stopwatch;

pub(crate) use link::{Link, modify, write_over};
pub(crate) use mode::{By, by_pass};
pub use mode::{measure_first, receive_by};
pub use net::stream_socket;
pub(crate) use os::Process;
pub use outcome::{Outcome, OutcomeCell};
pub use pageferry_workloads::{CallError, named};
pub use payload::{Payload, bytes_behind, differs, differs_behind, fill_behind};
pub use process::{first_process, other_process, over_a_pipe, room_for};
pub use stopwatch::Stopwatch;
