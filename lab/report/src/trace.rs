//! Traces for Perfetto (ui.perfetto.dev), in the Chrome trace event format.
//!
//! Each CPU has two tracks: which context runs, and what the time is spent on. Each process has a track of when its
//! thread runs, and beside it what memory for communication is attached to it, each piece from its attachment to its
//! detachment. Whatever goes from one owner to another, by copy, loan, transfer or pass, is an arrow from the slice
//! where its owner gives it to the slice where another gets it. Beside the CPUs run curves: free frames, loans,
//! ephemeral mappings, invalidations. Times are modelled microseconds since the machine was switched on.

use pageferry_hal::{Attachment, Flow, Level, PAGE_SIZE, Place};
use pageferry_lab::LabError;
use pageferry_lab::output::PendingFile;
use pageferry_model::trace::{Arrow, AttachmentSpan, Curve, End, Process, Sample, Slice, Trace};
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
                let order = json!({ "sort_index": tid });
                put(json!({ "ph": "M", "name": "thread_sort_index", "pid": 1, "tid": tid, "args": order }))?;
            }
        }
        for slice in &self.trace.slices {
            let args = json!({ "context": self.context(slice.context), "cycles": cycles(slice) });
            put(self.slice(slice, cause_track(slice.cpu), slice.cause.name(), args))?;
        }
        if let Some(at) = self.trace.measured_from_cycles {
            let name = "the measured part begins";
            put(json!({ "ph": "i", "s": "g", "name": name, "pid": 1, "tid": 1, "ts": self.micros(at) }))?;
        }
        self.contexts(put)?;
        self.processes(put)?;
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

    /// When the thread of each process ran, and what was attached to it.
    fn processes(&self, put: &mut Put<'_>) -> Result<(), LabError> {
        for process in &self.trace.processes {
            let (pid, tid) = (process_group(process.number), process_track(process.number));
            let name = format!("{} (process {})", process.name, process.number);
            put(json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": name } }))?;
            put(
                json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": "runs" } }),
            )?;
            self.runs(process, put)?;
        }
        for (holding, id) in self.trace.holdings.iter().zip(1..) {
            for phase in ["b", "e"] {
                put(self.holding_end(phase, holding, id))?;
            }
        }
        Ok(())
    }

    /// Stretches in which the thread of a process ran on one CPU, whatever it did. CPUs' clocks differ by a little:
    /// none begins before the last has ended.
    fn runs(&self, process: &Process, put: &mut Put<'_>) -> Result<(), LabError> {
        let (pid, tid) = (process_group(process.number), process_track(process.number));
        let mut stretches: Vec<Slice> = Vec::new();
        let mut slices: Vec<&Slice> =
            self.trace.slices.iter().filter(|slice| slice.context == process.context).collect();
        slices.sort_by_key(|slice| (slice.start_cycles, slice.end_cycles));
        for slice in slices {
            match stretches.last_mut() {
                Some(last) if last.cpu == slice.cpu && last.end_cycles == slice.start_cycles => {
                    last.end_cycles = slice.end_cycles;
                }
                last => {
                    let start_cycles = last.map_or(0, |last| last.end_cycles).max(slice.start_cycles);
                    stretches.push(Slice {
                        start_cycles,
                        end_cycles: slice.end_cycles.max(start_cycles),
                        ..*slice
                    });
                }
            }
        }
        for stretch in stretches.iter().filter(|stretch| cycles(stretch) > 0) {
            let (start, end) = (self.micros(stretch.start_cycles), self.micros(stretch.end_cycles));
            let (name, args) = (format!("cpu{}", stretch.cpu), json!({ "cycles": cycles(stretch) }));
            let dur = end - start;
            put(
                json!({ "ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": dur, "args": args }),
            )?;
        }
        Ok(())
    }

    /// Memory that is attached may overlap in time, so each piece is drawn beside the others.
    fn holding_end(&self, phase: &str, holding: &AttachmentSpan, id: u64) -> Value {
        let &AttachmentSpan {
            process,
            start_cycles,
            end_cycles,
            attachment: Attachment { at, len_bytes, by },
        } = holding;
        let ts = self.micros(if phase == "b" { start_cycles } else { end_cycles });
        let name = format!("{} by {}", hex(at.0), by.name());
        let (pages, cycles) = (len_bytes / PAGE_SIZE, end_cycles - start_cycles);
        let args = json!({ "at": hex(at.0), "pages": pages, "by": by.name(), "cycles": cycles });
        let (pid, tid) = (process_group(process), process_track(process));
        json!({
            "ph": phase, "cat": "attached", "name": name, "id": id, "pid": pid, "tid": tid, "ts": ts, "args": args
        })
    }

    /// Both ends say the same, so that either can be looked at.
    fn arrow_end(&self, phase: &str, arrow: &Arrow, end: &End, id: u64) -> Value {
        let (tid, ts) = (cause_track(end.cpu), self.micros(end.at_cycles));
        let (name, args) = (name(&arrow.flow), self.arrow_args(arrow));
        json!({
            "ph": phase, "cat": "move", "name": name, "id": id, "pid": 1, "tid": tid, "ts": ts, "bp": "e", "args": args
        })
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

/// A process's group of tracks, behind that of the machine; and the track of its thread, whose number no track of a CPU
/// has.
fn process_group(number: u32) -> u64 {
    u64::from(number) + 1
}

fn process_track(number: u32) -> u64 {
    2 * u64::from(number) + 1001
}

/// The track of what the time is spent on.
fn cause_track(cpu: usize) -> usize {
    2 * cpu + 2
}
