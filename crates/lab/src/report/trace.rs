//! Traces for Perfetto (ui.perfetto.dev), in the Chrome trace event format.
//!
//! Each CPU has two tracks: which context runs, and what the time is spent on. A page that is lent, put into a buffer or received,
//! and a range of map entries that is passed, is an arrow from the slice where it leaves its sender to the slices where
//! it is received. Times are modelled microseconds.

use super::output::PendingFile;
use crate::LabError;
use pageferry_hal::{Flow, FlowStep};
use pageferry_model::trace::{Move, Slice, Trace};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

/// Writes a trace.
///
/// # Errors
/// When the file cannot be written.
pub fn write(trace: &Trace, machine: &str, clock_mhz: u64, path: &Path) -> Result<(), LabError> {
    let mut file = PendingFile::create(path)?;
    let io = |e| LabError::io("write", path, e);
    let mut out = std::io::BufWriter::new(&mut file);
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n").map_err(io)?;
    let mut first = true;
    let mut put = |event: Value| {
        let comma = if std::mem::take(&mut first) { "" } else { ",\n" };
        write!(out, "{comma}{event}").map_err(io)
    };
    Events { trace, machine, mhz: clock_mhz as f64 }.each(&mut put)?;
    out.write_all(b"\n]}\n").and_then(|()| out.flush()).map_err(io)?;
    drop(out);
    file.commit()
}

struct Events<'a> {
    trace: &'a Trace,
    machine: &'a str,
    mhz: f64,
}

type Put<'a> = dyn FnMut(Value) -> Result<(), LabError> + 'a;

impl Events<'_> {
    fn each(&self, put: &mut Put<'_>) -> Result<(), LabError> {
        put(json!({ "ph": "M", "name": "process_name", "pid": 1, "args": { "name": self.machine } }))?;
        let cpus = self.trace.slices.iter().map(|s| s.cpu + 1).max().unwrap_or(0);
        for cpu in 0..cpus {
            for (tid, what) in [(context_track(cpu), "runs"), (cause_track(cpu), "does")] {
                let name = format!("cpu{cpu} {what}");
                put(
                    json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": { "name": name } }),
                )?;
                put(
                    json!({ "ph": "M", "name": "thread_sort_index", "pid": 1, "tid": tid, "args": { "sort_index": tid } }),
                )?;
            }
        }
        for slice in &self.trace.slices {
            let name = slice.cause.name();
            put(self.slice(slice, cause_track(slice.cpu), name))?;
        }
        self.contexts(put)?;
        self.flows(put)
    }

    fn micros(&self, cycles: u64) -> f64 {
        cycles as f64 / self.mhz
    }

    fn slice(&self, slice: &Slice, tid: usize, name: &str) -> Value {
        let (start, end) = (self.micros(slice.start_cycles), self.micros(slice.end_cycles));
        json!({ "ph": "X", "name": name, "pid": 1, "tid": tid, "ts": start, "dur": end - start })
    }

    /// Which contexts ran: stretches of the same context, whatever it did.
    fn contexts(&self, put: &mut Put<'_>) -> Result<(), LabError> {
        let mut open: BTreeMap<usize, Slice> = BTreeMap::new();
        for slice in &self.trace.slices {
            match open.get_mut(&slice.cpu) {
                Some(last) if last.context == slice.context && last.end_cycles == slice.start_cycles => {
                    last.end_cycles = slice.end_cycles;
                }
                _ => {
                    if let Some(last) = open.insert(slice.cpu, *slice) {
                        put(self.slice(&last, context_track(last.cpu), &self.trace.contexts[last.context]))?;
                    }
                }
            }
        }
        for last in open.values() {
            put(self.slice(last, context_track(last.cpu), &self.trace.contexts[last.context]))?;
        }
        Ok(())
    }

    /// A journey is a start, any number of steps, and an end. A start before the last journey has ended is a step of that one.
    fn flows(&self, put: &mut Put<'_>) -> Result<(), LabError> {
        let mut journeys: BTreeMap<Flow, u64> = BTreeMap::new();
        let mut next = 1;
        for moved in &self.trace.moves {
            let known = journeys.get(&moved.flow).copied();
            match (moved.step, known) {
                (FlowStep::Sent, None) => {
                    journeys.insert(moved.flow, next);
                    put(self.flow("s", moved, next))?;
                    next += 1;
                }
                (FlowStep::Sent | FlowStep::Received, Some(id)) => put(self.flow("t", moved, id))?,
                (FlowStep::Done, Some(id)) => {
                    journeys.remove(&moved.flow);
                    put(self.flow("f", moved, id))?;
                }
                (FlowStep::Received | FlowStep::Done, None) => {}
            }
        }
        Ok(())
    }

    fn flow(&self, phase: &str, moved: &Move, id: u64) -> Value {
        let name = match moved.flow {
            Flow::Page(_) => "page",
            Flow::Range(_) => "range",
        };
        let (tid, ts) = (cause_track(moved.cpu), self.micros(moved.at_cycles));
        json!({ "ph": phase, "cat": "move", "name": name, "id": id, "pid": 1, "tid": tid, "ts": ts, "bp": "e" })
    }
}

/// The track of which context runs.
fn context_track(cpu: usize) -> usize {
    2 * cpu + 1
}

/// The track of what the time is spent on.
fn cause_track(cpu: usize) -> usize {
    2 * cpu + 2
}
