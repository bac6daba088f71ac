//! Drawings and measurements: what is on its way, how much there is of something, whose memory is attached where.
//!
//! Recording costs nothing and changes nothing. By default nothing is recorded.

use crate::addr::{Pa, Va};
use crate::flow::{Attachment, Flow, FlowStep, Level};

/// The recorder of a machine. See the [module](self).
pub trait Recorder {
    /// Says that something is on its way between protection domains. For drawings: costs nothing and changes nothing.
    fn trace_flow(&self, flow: Flow, step: FlowStep) {
        let _ = (flow, step);
    }

    /// Says that there is so much more, or less, of something. For drawings, as [`Recorder::trace_flow`].
    fn trace_level(&self, level: Level, change: i64) {
        let _ = (level, change);
    }

    /// Says that the context that executes this is a process's from now on, which has this number and name. For
    /// drawings, as [`Recorder::trace_flow`].
    fn trace_process(&self, number: u32, name: &str) {
        let _ = (number, name);
    }

    /// Says that memory is attached to a process. For drawings, as [`Recorder::trace_flow`].
    fn trace_attached(&self, process: u32, attachment: Attachment) {
        let _ = (process, attachment);
    }

    /// Says that what was attached to a process at `at` is so no more. For drawings, as [`Recorder::trace_flow`].
    fn trace_detached(&self, process: u32, at: Va) {
        let _ = (process, at);
    }

    /// True when what is traced is recorded; lets callers skip work that only feeds it.
    fn is_traced(&self) -> bool {
        false
    }

    /// Writes the cache line at `at` back and drops it from all caches (`clflush`); for measurements.
    fn flush_line(&self, at: Pa);
}
