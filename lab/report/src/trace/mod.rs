//! Traces for Perfetto (ui.perfetto.dev), in its own format ([`packet`]).
//!
//! Each CPU has two tracks: which context runs, and what the time is spent on. Each process has a track of when its
//! thread runs, and beside it what memory for communication is attached to it, each piece from its attachment to its
//! detachment. Whatever goes from one owner to another, by copy, loan, transfer or pass, is an arrow from a moment in
//! the slice where its owner gives it to one in the slice where another gets it, which tells all about it. Beside the
//! CPUs run curves (free frames, loans, ephemeral mappings, invalidations) and a track of the run's parts. Times are
//! modelled nanoseconds since the machine was switched on, rounded down; slices tell their length in cycles, too.
//!
//! A trace is written while the run goes on: [`TraceWriter`] holds some thousand packets, each word and each track
//! once, and the slice that each CPU is in. It is the machine's ([`Sink`]) and its caller's, on one thread; there are
//! no locks. What cannot be written is told at the end, and ends the writing.

pub mod packet;
mod words;

use packet::{
    CounterDescriptor, DebugAnnotation, EventType, ProcessDescriptor, ThreadDescriptor, TraceFile,
    TracePacket, TrackDescriptor, TrackEvent,
};
use pageferry_hal::{Attachment, Flow, Level, PAGE_SIZE, Place};
use pageferry_lab::LabError;
use pageferry_lab::output::PendingFile;
use pageferry_model::trace::{
    Arrow, AttachmentSpan, Curve, End, Part, Process, Sample, Sink, Slice, Stretch,
};
use prost::Message as _;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use words::Words;

/// Packets that are written at once.
const BATCH: usize = 4096;

/// Writes a trace to a file, which appears when it is [finished](TraceWriter::finish). Clones are handles to the same.
#[derive(Clone)]
pub struct TraceWriter(Rc<RefCell<Writing>>);

struct Writing {
    path: PathBuf,
    /// Until something cannot be written, or all is.
    file: Option<PendingFile>,
    failed: Option<LabError>,
    mhz: u64,
    batch: TraceFile,
    words: Words,
    tracks: BTreeMap<Track, u64>,
    /// Names by number.
    contexts: Vec<String>,
    /// For each CPU, the context that runs there, and from when to when it did so far.
    running: BTreeMap<usize, Slice>,
    /// For each process and each of its tracks of what is attached, until when that is taken.
    lanes: BTreeMap<u32, Vec<u64>>,
    arrows: u64,
    events: u64,
}

/// Something to draw on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    Machine,
    Parts,
    /// Which context runs on the CPU.
    Contexts(usize),
    /// What the CPU's time is spent on.
    Causes(usize),
    Curve(Curve),
    Process(u32),
    /// When the process's thread runs.
    Stretches(u32),
    /// Pieces of memory that are attached to the process, one after the other.
    Lane(u32, usize),
}

/// What an event tells beside its name.
enum Value<'a> {
    Number(u64),
    Address(u64),
    Word(&'a str),
}

impl TraceWriter {
    /// Begins a trace of the machine with this name and clock.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path, machine: &str, clock_mhz: u64) -> Result<TraceWriter, LabError> {
        let mut writing = Writing {
            path: path.to_owned(),
            file: Some(PendingFile::create(path)?),
            failed: None,
            mhz: clock_mhz.max(1),
            batch: TraceFile::default(),
            words: Words::default(),
            tracks: BTreeMap::new(),
            contexts: Vec::new(),
            running: BTreeMap::new(),
            lanes: BTreeMap::new(),
            arrows: 0,
            events: 0,
        };
        let process = ProcessDescriptor { pid: Some(MACHINE), process_name: Some(machine.into()) };
        writing.track(Track::Machine, |_| TrackDescriptor { process: Some(process), ..Default::default() });
        Ok(TraceWriter(Rc::new(RefCell::new(writing))))
    }

    /// Ends the trace; the file appears. Gives how many slices, stretches, pieces, arrows and samples are in it.
    ///
    /// # Errors
    /// When something could not be written; then no file appears.
    pub fn finish(&self) -> Result<u64, LabError> {
        let mut writing = self.0.borrow_mut();
        for (_, last) in std::mem::take(&mut writing.running) {
            writing.context_slice(&last);
        }
        writing.write_batch();
        if let Some(error) = writing.failed.take() {
            return Err(error);
        }
        writing.file.take().map_or(Ok(()), PendingFile::commit)?;
        Ok(writing.events)
    }
}

/// The group of the machine's tracks; those of processes follow.
const MACHINE: i32 = 1;

fn group(process: u32) -> i32 {
    i32::try_from(process).unwrap_or(i32::MAX - 1) + 1
}

impl Writing {
    // ------------------------------------------------------------------------------------------------- packets

    fn put(&mut self, mut packet: TracePacket) {
        let first = self.words.is_new();
        packet.trusted_packet_sequence_id = Some(packet::SEQUENCE);
        packet.sequence_flags = Some(if first { packet::STATE_CLEARED } else { packet::NEEDS_STATE });
        packet.interned_data = self.words.take_new();
        self.batch.packet.push(packet);
        if self.batch.packet.len() >= BATCH {
            self.write_batch();
        }
    }

    fn write_batch(&mut self) {
        if let Some(file) = &mut self.file {
            let written = file.write_all(&self.batch.encode_to_vec());
            if let Err(error) = written {
                self.failed = Some(LabError::io("write", &self.path, error));
                self.file = None;
            }
        }
        self.batch.packet.clear();
    }

    fn event(&mut self, at_cycles: u64, event: TrackEvent) {
        let timestamp = Some(self.nanos(at_cycles));
        self.put(TracePacket { timestamp, track_event: Some(event), ..Default::default() });
    }

    fn slice(&mut self, track: u64, cycles: Range<u64>, name: &str, tells: &[(&str, Value<'_>)]) {
        let begin = TrackEvent {
            r#type: Some(EventType::SliceBegin.into()),
            track_uuid: Some(track),
            name_iid: Some(self.words.event(name)),
            debug_annotations: self.told(tells),
            ..Default::default()
        };
        self.event(cycles.start, begin);
        let r#type = Some(EventType::SliceEnd.into());
        self.event(cycles.end, TrackEvent { r#type, track_uuid: Some(track), ..Default::default() });
    }

    fn told(&mut self, tells: &[(&str, Value<'_>)]) -> Vec<DebugAnnotation> {
        let annotation = |(name, value): &(&str, Value<'_>)| {
            let told = DebugAnnotation { name_iid: Some(self.words.annotation(name)), ..Default::default() };
            match value {
                Value::Number(number) => DebugAnnotation { uint_value: Some(*number), ..told },
                Value::Address(at) => DebugAnnotation { pointer_value: Some(*at), ..told },
                Value::Word(word) => {
                    DebugAnnotation { string_value_iid: Some(self.words.value(word)), ..told }
                }
            }
        };
        tells.iter().map(annotation).collect()
    }

    fn nanos(&self, cycles: u64) -> u64 {
        (u128::from(cycles) * 1000 / u128::from(self.mhz)) as u64
    }

    // ------------------------------------------------------------------------------------------------- tracks

    /// The number of a track, which is described the first time.
    fn track(&mut self, track: Track, describe: impl FnOnce(&mut Writing) -> TrackDescriptor) -> u64 {
        if let Some(uuid) = self.tracks.get(&track) {
            return *uuid;
        }
        let uuid = self.tracks.len() as u64 + 1;
        self.tracks.insert(track, uuid);
        let described = TrackDescriptor { uuid: Some(uuid), ..describe(self) };
        self.put(TracePacket { track_descriptor: Some(described), ..Default::default() });
        uuid
    }

    fn machine_track(&self) -> Option<u64> {
        self.tracks.get(&Track::Machine).copied()
    }

    /// Which context runs, and below it what the time is spent on.
    fn cpu_track(&mut self, track: Track) -> u64 {
        let (cpu, place, what) = match track {
            Track::Contexts(cpu) => (cpu, 1, "runs"),
            Track::Causes(cpu) => (cpu, 2, "does"),
            _ => unreachable!("the other tracks are no CPU's"),
        };
        self.track(track, |_| {
            let (tid, thread_name) = (Some(2 * cpu as i32 + place), Some(format!("cpu{cpu} {what}")));
            let thread = ThreadDescriptor { pid: Some(MACHINE), tid, thread_name };
            TrackDescriptor { thread: Some(thread), ..Default::default() }
        })
    }

    fn stretches_track(&mut self, process: u32) -> u64 {
        self.track(Track::Stretches(process), |_| {
            let pid = group(process);
            // Behind the numbers of the machine's tracks.
            let (tid, thread_name) = (Some(pid.saturating_add(1000)), Some("runs".into()));
            let thread = ThreadDescriptor { pid: Some(pid), tid, thread_name };
            TrackDescriptor { thread: Some(thread), ..Default::default() }
        })
    }

    fn plain_track(&mut self, track: Track, name: &str, parent: Option<u64>, unit: Option<&str>) -> u64 {
        self.track(track, |_| TrackDescriptor {
            name: Some(name.into()),
            parent_uuid: parent,
            counter: unit.map(|unit| CounterDescriptor { unit_name: Some(unit.into()) }),
            ..Default::default()
        })
    }

    // ------------------------------------------------------------------------------------------------- contexts

    fn context(&self, number: usize) -> Rc<str> {
        self.contexts.get(number).map_or("?", String::as_str).into()
    }

    fn context_slice(&mut self, slice: &Slice) {
        let (track, name) = (self.cpu_track(Track::Contexts(slice.cpu)), self.context(slice.context));
        let cycles = slice.start_cycles..slice.end_cycles;
        self.slice(track, cycles.clone(), &name, &[("cycles", Value::Number(cycles.end - cycles.start))]);
    }

    /// Whose it is: a process's by the context that acts for it, a file's, or a device's.
    fn owner(&self, end: &End) -> Rc<str> {
        match end.parcel.at {
            Place::User(_) => self.context(end.context),
            Place::File(_) => "file".into(),
            Place::Device => "device".into(),
        }
    }

    /// A moment at which an arrow begins or ends.
    fn arrow_end(&mut self, end: &End, arrow: u64, name: &str, tells: &[(&str, Value<'_>)]) {
        let event = TrackEvent {
            r#type: Some(EventType::Instant.into()),
            track_uuid: Some(self.cpu_track(Track::Causes(end.cpu))),
            name_iid: Some(self.words.event(name)),
            debug_annotations: self.told(tells),
            flow_ids: vec![arrow],
            ..Default::default()
        };
        self.event(end.at_cycles, event);
    }
}

impl Sink for TraceWriter {
    fn context(&mut self, name: &str) {
        self.0.borrow_mut().contexts.push(name.into());
    }

    fn process(&mut self, &Process { number, ref name, .. }: &Process) {
        let name = format!("{name} (process {number})");
        let process = ProcessDescriptor { pid: Some(group(number)), process_name: Some(name) };
        self.0.borrow_mut().track(Track::Process(number), |_| TrackDescriptor {
            process: Some(process),
            ..Default::default()
        });
    }

    fn slice(&mut self, slice: &Slice) {
        let writing = &mut *self.0.borrow_mut();
        writing.events += 1;
        let (track, context) = (writing.cpu_track(Track::Causes(slice.cpu)), writing.context(slice.context));
        let cycles = slice.start_cycles..slice.end_cycles;
        let tells =
            [("context", Value::Word(&context)), ("cycles", Value::Number(cycles.end - cycles.start))];
        writing.slice(track, cycles, slice.cause.name(), &tells);
        // Which contexts ran: stretches of the same context, whatever it did.
        match writing.running.get_mut(&slice.cpu) {
            Some(last) if last.context == slice.context && last.end_cycles == slice.start_cycles => {
                last.end_cycles = slice.end_cycles;
            }
            _ => {
                if let Some(last) = writing.running.insert(slice.cpu, *slice) {
                    writing.context_slice(&last);
                }
            }
        }
    }

    fn stretch(&mut self, stretch: &Stretch) {
        let writing = &mut *self.0.borrow_mut();
        writing.events += 1;
        let track = writing.stretches_track(stretch.process);
        let cycles = stretch.start_cycles..stretch.end_cycles;
        let tells = [("cycles", Value::Number(cycles.end - cycles.start))];
        writing.slice(track, cycles, &format!("cpu{}", stretch.cpu), &tells);
    }

    /// Memory that is attached may overlap in time: what does lies on tracks of the same name.
    fn holding(&mut self, holding: &AttachmentSpan) {
        let writing = &mut *self.0.borrow_mut();
        writing.events += 1;
        let &AttachmentSpan { process, start_cycles, end_cycles, attachment } = holding;
        let Attachment { at, len_bytes, by } = attachment;
        let lanes = writing.lanes.entry(process).or_default();
        // They come in the order of their ends: any that is free by then will do, and the one that was so last leaves
        // room on the others.
        let free = (0..lanes.len()).filter(|&lane| lanes[lane] <= start_cycles);
        let lane = free.max_by_key(|&lane| lanes[lane]).unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(0);
        }
        lanes[lane] = end_cycles;
        let parent = writing.tracks.get(&Track::Process(process)).copied();
        let track = writing.plain_track(Track::Lane(process, lane), "attached", parent, None);
        let name = format!("{:#x} by {}", at.0, by.name());
        let tells = [
            ("at", Value::Address(at.0)),
            ("pages", Value::Number((len_bytes / PAGE_SIZE) as u64)),
            ("by", Value::Word(by.name())),
            ("cycles", Value::Number(end_cycles - start_cycles)),
        ];
        writing.slice(track, start_cycles..end_cycles, &name, &tells);
    }

    fn arrow(&mut self, arrow: &Arrow) {
        let writing = &mut *self.0.borrow_mut();
        writing.events += 1;
        writing.arrows += 1;
        let (id, Arrow { flow, from, to }) = (writing.arrows, arrow);
        let len_bytes = from.parcel.len_bytes.min(to.parcel.len_bytes);
        let (owner, receiver) = (writing.owner(from), writing.owner(to));
        let mut tells = vec![
            ("pages", Value::Number(len_bytes.div_ceil(PAGE_SIZE) as u64)),
            ("bytes", Value::Number(len_bytes as u64)),
            ("given_by", Value::Word(from.parcel.by.name())),
            ("taken_by", Value::Word(to.parcel.by.name())),
            ("from", Value::Word(&owner)),
            ("to", Value::Word(&receiver)),
        ];
        tells.extend(place(&from.parcel.at, ["from_at", "from_byte"]));
        tells.extend(place(&to.parcel.at, ["to_at", "to_byte"]));
        let (name, which) = match *flow {
            Flow::Page(frame) => ("page", ("frame", Value::Number(frame.0.into()))),
            Flow::Range(offer) => ("range", ("offer", Value::Number(offer))),
            Flow::Buffer(at) => ("bytes", ("buffer", Value::Address(at.0))),
        };
        tells.push(which);
        writing.arrow_end(from, id, name, &[]);
        writing.arrow_end(to, id, name, &tells);
    }

    fn sample(&mut self, sample: &Sample) {
        let (name, unit) = match sample.curve {
            Curve::Level(Level::FreeFrames) => ("free frames", "frames"),
            Curve::Level(Level::Loans) => ("loans", "loans"),
            Curve::Level(Level::EphemeralMappings) => ("ephemeral mappings", "mappings"),
            Curve::InvalidationsLocal => ("invalidations, local", "pages"),
            Curve::InvalidationsRemote => ("invalidations, remote", "pages"),
        };
        let writing = &mut *self.0.borrow_mut();
        writing.events += 1;
        let parent = writing.machine_track();
        let track = writing.plain_track(Track::Curve(sample.curve), name, parent, Some(unit));
        let event = TrackEvent {
            r#type: Some(EventType::Counter.into()),
            track_uuid: Some(track),
            counter_value: Some(sample.value),
            ..Default::default()
        };
        writing.event(sample.at_cycles, event);
    }

    fn part(&mut self, part: Part, cycles: Range<u64>) {
        let name = match part {
            Part::Boot => "boot",
            Part::SetUp => "set-up",
            Part::Measured => "what is measured",
            Part::Rest => "the rest",
        };
        let writing = &mut *self.0.borrow_mut();
        let parent = writing.machine_track();
        let track = writing.plain_track(Track::Parts, "parts", parent, None);
        writing.slice(track, cycles.clone(), name, &[("cycles", Value::Number(cycles.end - cycles.start))]);
    }
}

/// Where an end of an arrow is: an address, or a place in a file.
fn place<'a>(at: &Place, [address, byte]: [&'a str; 2]) -> Option<(&'a str, Value<'static>)> {
    match at {
        Place::User(at) => Some((address, Value::Address(at.0))),
        Place::File(from) => Some((byte, Value::Number(*from))),
        Place::Device => None,
    }
}
