//! Traces for Perfetto (ui.perfetto.dev), in the Chrome trace event format.
//!
//! Each CPU has two tracks: which context runs, and what the time is spent on. Whatever goes from one owner to another, by
//! copy, loan, transfer or pass, is an arrow from the slice where its owner gives it to the slice where another gets it.
//! Beside the CPUs run curves: free frames, loans, ephemeral mappings, invalidations. Times are modelled microseconds since
//! the machine was switched on.

use super::output::PendingFile;
use crate::LabError;
use pageferry_hal::{Flow, Level, PAGE_SIZE, Place};
use pageferry_model::trace::{Arrow, Curve, End, Sample, Slice, Trace};
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
            let args = json!({ "context": self.context(slice.context), "cycles": cycles(slice) });
            put(self.slice(slice, cause_track(slice.cpu), slice.cause.name(), args))?;
        }
        self.contexts(put)?;
        for (arrow, id) in self.trace.arrows.iter().zip(1..) {
            put(self.arrow_end("s", arrow, &arrow.from, id))?;
            put(self.arrow_end("f", arrow, &arrow.to, id))?;
        }
        self.trace.samples.iter().try_for_each(|sample| put(self.sample(sample)))
    }

    fn micros(&self, cycles: u64) -> f64 {
        cycles as f64 / self.mhz
    }

    fn context(&self, index: usize) -> &str {
        &self.trace.contexts[index]
    }

    fn slice(&self, slice: &Slice, tid: usize, name: &str, args: Value) -> Value {
        let (start, end) = (self.micros(slice.start_cycles), self.micros(slice.end_cycles));
        json!({ "ph": "X", "name": name, "pid": 1, "tid": tid, "ts": start, "dur": end - start, "args": args })
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
                        put(self.context_slice(&last))?;
                    }
                }
            }
        }
        open.values().try_for_each(|last| put(self.context_slice(last)))
    }

    fn context_slice(&self, slice: &Slice) -> Value {
        let args = json!({ "cycles": cycles(slice) });
        self.slice(slice, context_track(slice.cpu), self.context(slice.context), args)
    }

    /// Both ends say the same, so that either can be looked at.
    fn arrow_end(&self, phase: &str, arrow: &Arrow, end: &End, id: u64) -> Value {
        let (tid, ts) = (cause_track(end.cpu), self.micros(end.at_cycles));
        let (name, args) = (name(&arrow.flow), self.arrow_args(arrow));
        json!({ "ph": phase, "cat": "move", "name": name, "id": id, "pid": 1, "tid": tid, "ts": ts, "bp": "e", "args": args })
    }

    fn arrow_args(&self, Arrow { flow, from, to }: &Arrow) -> Value {
        let len_bytes = from.parcel.len_bytes.min(to.parcel.len_bytes);
        let mut args = json!({
            "pages": len_bytes.div_ceil(PAGE_SIZE),
            "bytes": len_bytes,
            "given_by": from.parcel.by.name(),
            "taken_by": to.parcel.by.name(),
            "from": self.owner(from),
            "from_at": place(&from.parcel.at),
            "to": self.owner(to),
            "to_at": place(&to.parcel.at),
        });
        match flow {
            Flow::Page(frame) => args["frame"] = json!(frame.0),
            Flow::Range(offer) => args["offer"] = json!(offer),
            Flow::Buffer(at) => args["buffer"] = json!(hex(at.0)),
        }
        args
    }

    /// Whose it is: a process's by the context that acts for it, a file's, or a device's.
    fn owner(&self, end: &End) -> &str {
        match end.parcel.at {
            Place::User(_) => self.context(end.context),
            Place::File(_) => "file",
            Place::Device => "device",
        }
    }

    /// A track for each curve, with one series.
    fn sample(&self, sample: &Sample) -> Value {
        let (track, series) = match sample.curve {
            Curve::Level(Level::FreeFrames) => ("free frames", "frames"),
            Curve::Level(Level::Loans) => ("loans", "loans"),
            Curve::Level(Level::EphemeralMappings) => ("ephemeral mappings", "mappings"),
            Curve::InvalidationsLocal => ("invalidations, local", "pages"),
            Curve::InvalidationsRemote => ("invalidations, remote", "pages"),
        };
        let ts = self.micros(sample.at_cycles);
        json!({ "ph": "C", "name": track, "pid": 1, "ts": ts, "args": { series: sample.value } })
    }
}

fn cycles(slice: &Slice) -> u64 {
    slice.end_cycles - slice.start_cycles
}

fn name(flow: &Flow) -> &'static str {
    match flow {
        Flow::Page(_) => "page",
        Flow::Range(_) => "range",
        Flow::Buffer(_) => "bytes",
    }
}

fn place(place: &Place) -> Value {
    match place {
        Place::User(at) => json!(hex(at.0)),
        Place::File(from) => json!(format!("byte {from}")),
        Place::Device => Value::Null,
    }
}

fn hex(at: u64) -> String {
    format!("{at:#x}")
}

/// The track of which context runs.
fn context_track(cpu: usize) -> usize {
    2 * cpu + 1
}

/// The track of what the time is spent on.
fn cause_track(cpu: usize) -> usize {
    2 * cpu + 2
}
