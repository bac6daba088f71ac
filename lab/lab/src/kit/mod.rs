//! What workloads are written with: processes, payloads that are checked, a stopwatch, and what they leave behind.

mod image;
mod net;
mod onlooker;
mod os;
mod outcome;
mod payload;
mod process;
mod stopwatch;

pub(crate) use image::{Image, ImageSize, Misses, misses_so_far};
pub use net::stream_socket;
pub(crate) use onlooker::Onlooker;
pub(crate) use os::Process;
pub use os::measure_first;
pub use outcome::{Outcome, OutcomeCell};
pub use pageferry_processes::receive_by;
pub use pageferry_workloads::{CallError, named};
pub use payload::{Payload, bytes_behind, differs, differs_behind, fill_answer, fill_behind};
pub use process::{first_process, other_process, room_for};
pub use stopwatch::Stopwatch;
