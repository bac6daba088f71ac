//! A trace holds what the run told, to the nanosecond: slices fill each CPU's time without overlap, arrows lead from
//! who gave to who got, curves follow what was counted; and recording it changes nothing.

use crate::drawing::{ByTrack, Drawing, Event, Value};
use pageferry_hal::{Attachment, Flow, Level, Means, PAGE_SIZE, Place};
use pageferry_lab::Registry;
use pageferry_lab::files::{KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::Record;
use pageferry_lab::run::{Choices, RunSpec, TraceWindow};
use pageferry_model::trace::{
    Arrow, AttachmentSpan, Curve, End, Part, Process, Sample, Sink, Slice, Stretch, Trace,
};
use pageferry_report::trace::TraceWriter;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a run told, which is what was drawn.
struct Picture {
    record: Record,
    told: Trace,
    mhz: u64,
}

/// Tells both: in memory, and to a file.
struct Both(Rc<RefCell<Trace>>, TraceWriter);

impl Sink for Both {
    fn context(&mut self, name: &str) {
        self.0.context(name);
        self.1.context(name);
    }
    fn process(&mut self, process: &Process) {
        self.0.process(process);
        self.1.process(process);
    }
    fn slice(&mut self, slice: &Slice) {
        self.0.slice(slice);
        self.1.slice(slice);
    }
    fn stretch(&mut self, stretch: &Stretch) {
        self.0.stretch(stretch);
        self.1.stretch(stretch);
    }
    fn holding(&mut self, holding: &AttachmentSpan) {
        self.0.holding(holding);
        self.1.holding(holding);
    }
    fn arrow(&mut self, arrow: &Arrow) {
        self.0.arrow(arrow);
        self.1.arrow(arrow);
    }
    fn sample(&mut self, sample: &Sample) {
        self.0.sample(sample);
        self.1.sample(sample);
    }
    fn part(&mut self, part: Part, cycles: Range<u64>) {
        self.0.part(part, cycles.clone());
        self.1.part(part, cycles);
    }
}

fn drawn(experiment: &str, machine: &str, kernel: &str, settings: &[&str], window: TraceWindow) -> Picture {
    let experiment = Arc::new(Registry::standard().experiment(experiment).expect("it is built in"));
    let machine = MachineChoice::find(machine).expect("it is built in");
    let kernel = KernelChoice::find(kernel).expect("it is built in");
    let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
    let settings = Settings::parse(&settings).expect("valid");
    let choices = Choices { quick: true, ..Choices::default() };
    let mhz = machine.config.cpu.clock_mhz.value;
    let spec =
        RunSpec::new(&Registry::standard(), &experiment, machine, kernel, &settings, choices).expect("valid");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.perfetto-trace");
    let (told, writer) = (Rc::default(), TraceWriter::create(&file, "it", mhz).expect("created"));
    let both = Box::new(Both(Rc::clone(&told), writer.clone()));
    let (result, _) = pageferry_lab::run::run_traced(&spec, window, both).expect("it runs");
    assert!(!file.exists(), "it appears when it is whole");
    let events = writer.finish().expect("written");
    let plain = pageferry_lab::run::run(&spec).expect("it runs");
    assert_eq!(result.record, plain.record, "recording changes nothing");
    assert!(result.record.broken().is_empty());

    let picture = Picture { record: result.record, told: told.take(), mhz };
    let Trace { slices, stretches, holdings, arrows, samples, .. } = &picture.told;
    let counts = [slices.len(), stretches.len(), holdings.len(), arrows.len(), samples.len()];
    assert_eq!(events, counts.iter().sum::<usize>() as u64, "{counts:?}");
    let drawing = Drawing::read(&std::fs::read(&file).expect("read"));
    assert_eq!(drawing.slices, picture.slices());
    assert_eq!(drawing.moments, picture.moments());
    assert_eq!(drawing.samples, picture.samples());
    picture
}

fn number(number: usize) -> Value {
    Value::Number(number as u64)
}

fn word(word: &str) -> Value {
    Value::Word(word.into())
}

fn on<T>(by: &mut ByTrack<T>, group: &str, track: String, what: T) {
    by.entry((group.into(), track)).or_default().push(what);
}

/// What must be drawn of what was told.
impl Picture {
    fn nanos(&self, cycles: u64) -> u64 {
        cycles * 1000 / self.mhz
    }

    fn slice(&self, name: &str, start: u64, end: u64, tells: &[(&str, Value)]) -> Event {
        let length = ("cycles", Value::Number(end - start));
        let tells =
            tells.iter().cloned().chain([length]).map(|(name, told)| (name.to_owned(), told)).collect();
        Event { name: name.into(), nanos: (self.nanos(start), self.nanos(end)), tells, flows: Vec::new() }
    }

    fn group(&self, process: u32) -> String {
        let process = self.told.processes.iter().find(|p| p.number == process).expect("it is told");
        format!("{} (process {})", process.name, process.number)
    }

    fn slices(&self) -> ByTrack<Event> {
        let (mut by, told) = (ByTrack::new(), &self.told);
        let mut running: BTreeMap<usize, Slice> = BTreeMap::new();
        let mut contexts: Vec<Slice> = Vec::new();
        for s in &told.slices {
            let context = ("context", word(&told.contexts[s.context]));
            let slice = self.slice(s.cause.name(), s.start_cycles, s.end_cycles, &[context]);
            on(&mut by, "it", format!("cpu{} does", s.cpu), slice);
            match running.get_mut(&s.cpu) {
                Some(last) if (last.context, last.end_cycles) == (s.context, s.start_cycles) => {
                    last.end_cycles = s.end_cycles;
                }
                _ => contexts.extend(running.insert(s.cpu, *s)),
            }
        }
        contexts.extend(running.into_values());
        for s in contexts {
            let slice = self.slice(&told.contexts[s.context], s.start_cycles, s.end_cycles, &[]);
            on(&mut by, "it", format!("cpu{} runs", s.cpu), slice);
        }
        for s in &told.stretches {
            let slice = self.slice(&format!("cpu{}", s.cpu), s.start_cycles, s.end_cycles, &[]);
            on(&mut by, &self.group(s.process), "runs".into(), slice);
        }
        // Of tracks of one name: in the order of their ends.
        for h in &told.holdings {
            let Attachment { at, len_bytes, by: means } = h.attachment;
            let tells = [
                ("at", Value::Address(at.0)),
                ("pages", number(len_bytes / PAGE_SIZE)),
                ("by", word(means.name())),
            ];
            let name = format!("{:#x} by {}", at.0, means.name());
            let slice = self.slice(&name, h.start_cycles, h.end_cycles, &tells);
            on(&mut by, &self.group(h.process), "attached".into(), slice);
        }
        for (part, cycles) in &told.parts {
            let name = match part {
                Part::Boot => "boot",
                Part::SetUp => "set-up",
                Part::Measured => "what is measured",
                Part::Rest => "the rest",
            };
            on(&mut by, "it", "parts".into(), self.slice(name, cycles.start, cycles.end, &[]));
        }
        by.values_mut().for_each(|slices| slices.sort_by_key(|slice| slice.nanos.1));
        by
    }

    /// Both ends of each arrow, on the tracks of what their CPUs did.
    fn moments(&self) -> ByTrack<Event> {
        let mut by = ByTrack::new();
        for (arrow, id) in self.told.arrows.iter().zip(1..) {
            let Arrow { flow, from, to } = arrow;
            let bytes = from.parcel.len_bytes.min(to.parcel.len_bytes);
            let mut tells = BTreeMap::from([
                ("pages".into(), number(bytes.div_ceil(PAGE_SIZE))),
                ("bytes".into(), number(bytes)),
                ("given_by".into(), word(from.parcel.by.name())),
                ("taken_by".into(), word(to.parcel.by.name())),
                ("from".into(), word(self.owner(from))),
                ("to".into(), word(self.owner(to))),
            ]);
            for (end, what) in [(from, "from"), (to, "to")] {
                match end.parcel.at {
                    Place::User(at) => _ = tells.insert(format!("{what}_at"), Value::Address(at.0)),
                    Place::File(byte) => _ = tells.insert(format!("{what}_byte"), Value::Number(byte)),
                    Place::Device => {}
                }
            }
            let (name, which, told) = match flow {
                Flow::Page(frame) => ("page", "frame", Value::Number(frame.0.into())),
                Flow::Range(offer) => ("range", "offer", Value::Number(*offer)),
                Flow::Buffer(at) => ("bytes", "buffer", Value::Address(at.0)),
            };
            tells.insert(which.into(), told);
            for (end, tells) in [(from, BTreeMap::new()), (to, tells)] {
                let at = self.nanos(end.at_cycles);
                let event = Event { name: name.into(), nanos: (at, at), tells, flows: vec![id] };
                on(&mut by, "it", format!("cpu{} does", end.cpu), event);
            }
        }
        by.values_mut().for_each(|moments| moments.sort_by_key(|moment| moment.nanos));
        by
    }

    fn samples(&self) -> ByTrack<(u64, i64)> {
        let mut by = ByTrack::new();
        for Sample { curve, at_cycles, value } in &self.told.samples {
            let name = match curve {
                Curve::Level(Level::FreeFrames) => "free frames",
                Curve::Level(Level::Loans) => "loans",
                Curve::Level(Level::EphemeralMappings) => "ephemeral mappings",
                Curve::InvalidationsLocal => "invalidations, local",
                Curve::InvalidationsRemote => "invalidations, remote",
            };
            on(&mut by, "it", name.into(), (self.nanos(*at_cycles), *value));
        }
        by
    }

    fn owner(&self, end: &End) -> &str {
        match end.parcel.at {
            Place::User(_) => &self.told.contexts[end.context],
            Place::File(_) => "file",
            Place::Device => "device",
        }
    }

    /// How many arrows there are of each kind, for messages.
    fn kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for Arrow { from, to, .. } in &self.told.arrows {
            let (given, taken) = (from.parcel.by.name(), to.parcel.by.name());
            let kind = format!("{} to {}: {given}, {taken}", self.owner(from), self.owner(to));
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }

    /// The values of a curve, in order of time.
    fn curve(&self, curve: Curve) -> Vec<(u64, i64)> {
        let of = self.told.samples.iter().filter(|sample| sample.curve == curve);
        let of: Vec<_> = of.map(|sample| (sample.at_cycles, sample.value)).collect();
        assert!(of.is_sorted_by_key(|(at, _)| *at), "{curve:?} goes back in time");
        of
    }

    fn end_cycles(&self) -> u64 {
        self.told.slices.iter().map(|slice| slice.end_cycles).max().unwrap_or(0)
    }
}

fn whole() -> TraceWindow {
    TraceWindow { from: Some(Duration::ZERO), length: None }
}

fn is_user(end: &End) -> bool {
    matches!(end.parcel.at, Place::User(_))
}

#[test]
fn a_pipe_drawn() {
    let drawn = drawn("bw-pipe", "xeon-mp", "sf_buf", &["total_bytes=262144"], whole());
    let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
    for slice in &drawn.told.slices {
        let end = ends.entry(slice.cpu).or_insert(slice.start_cycles);
        assert_eq!(slice.start_cycles, *end, "a gap or an overlap: {slice:?}");
        *end = slice.end_cycles;
        assert!(slice.end_cycles > slice.start_cycles);
    }
    assert_eq!(ends.len(), 2, "two CPUs");
    // 64 pages of data and 256 KB of warm-up, each wired by the writer and copied by the reader.
    let wired = drawn.told.arrows.iter().filter(|arrow| arrow.from.parcel.by == Means::Wire).count();
    assert_eq!(wired, 128, "{:?}", drawn.kinds());
    for Arrow { from, to, .. } in &drawn.told.arrows {
        assert_ne!(drawn.owner(from), drawn.owner(to), "a pipe leads to another process");
        assert!(is_user(from) && is_user(to));
        assert!(from.parcel.len_bytes.min(to.parcel.len_bytes) <= PAGE_SIZE);
    }
}

#[test]
fn each_way_through_a_socket_is_drawn() {
    for (send, receive, given, taken) in [
        ("copy", "copy", "copy", "copy"),
        ("copy", "transfer", "copy", "transfer"),
        ("loan", "copy", "loan", "copy"),
        ("loan", "transfer", "loan", "transfer"),
    ] {
        let (send, receive) = (format!("send={send}"), format!("receive={receive}"));
        let settings = [&*send, &*receive, "size_bytes=16384", "total_bytes=131072"];
        let drawn = drawn("uvm-pipe", "pentium-pro", "uvm", &settings, whole());
        let of = |arrow: &&Arrow| {
            let (from, to) = (&arrow.from.parcel, &arrow.to.parcel);
            (from.by.name(), to.by.name()) == (given, taken) && from.len_bytes.min(to.len_bytes) == PAGE_SIZE
        };
        let of = drawn.told.arrows.iter().filter(of);
        let pages = of.filter(|arrow| drawn.owner(&arrow.from) != drawn.owner(&arrow.to)).count();
        assert!(pages >= 32, "{send} {receive}: {:?}", drawn.kinds());
    }
}

#[test]
fn a_range_that_is_passed_is_an_arrow_each_time() {
    let settings = ["by=pass", "size_bytes=65536", "rounds=4"];
    let drawn = drawn("ping-pong", "pentium-pro", "uvm", &settings, whole());
    let passed: Vec<_> = drawn.told.arrows.iter().filter(|a| a.from.parcel.by.name() == "pass").collect();
    // To and fro four times, and the warm-up.
    assert!(passed.len() >= 8, "{:?}", drawn.kinds());
    for Arrow { from, to, .. } in &passed {
        assert_eq!((from.parcel.len_bytes, to.parcel.by.name()), (16 * PAGE_SIZE, "pass"));
        assert_ne!(drawn.owner(from), drawn.owner(to));
        assert!(is_user(from));
    }
    let givers: BTreeSet<_> = passed.iter().map(|arrow| drawn.owner(&arrow.from)).collect();
    assert_eq!(givers.len(), 2, "each gives to the other: {givers:?}");
}

#[test]
fn pages_of_a_file_go_to_their_reader() {
    for (receive, given, taken) in [("transfer", "loan", "transfer"), ("copy", "copy", "copy")] {
        let receive = format!("receive={receive}");
        let settings = [&*receive, "size_bytes=16384", "file_bytes=65536", "passes=2"];
        let drawn = drawn("file-read", "pentium-pro", "uvm", &settings, whole());
        let mut bytes = Vec::new();
        for Arrow { from, to, .. } in &drawn.told.arrows {
            if let Place::File(byte) = from.parcel.at
                && (from.parcel.by.name(), to.parcel.by.name()) == (given, taken)
            {
                bytes.push(byte);
            }
        }
        assert!(bytes.len() >= 32, "{receive}: {:?}", drawn.kinds());
        let bytes: BTreeSet<_> = bytes.into_iter().collect();
        assert_eq!(bytes.len(), 16, "each page of the file: {bytes:?}");
    }
}

#[test]
fn pages_of_a_file_go_to_the_card_without_a_stop() {
    let settings = ["requests=60"];
    let drawn = drawn("web", "xeon-mp", "sf_buf", &settings, TraceWindow::default());
    let lent = drawn.told.arrows.iter().filter(|arrow| {
        matches!((arrow.from.parcel.at, arrow.to.parcel.at), (Place::File(_), Place::Device))
            && arrow.from.parcel.by == Means::Loan
    });
    let pages = lent.count() as u64;
    assert!(pages > 0 && pages >= drawn.record.counters["pages_lent"], "{pages}: {:?}", drawn.kinds());
}

#[test]
fn what_the_card_has_received_is_flipped_or_copied_to_its_reader() {
    for (method, taken) in [("flip", "transfer"), ("copy", "copy")] {
        let drawn = drawn(
            "flip-receive",
            "p4-flip",
            "linux-2.6",
            &[&*format!("by={method}")],
            TraceWindow::default(),
        );
        let of = |arrow: &&Arrow| {
            arrow.from.parcel.at == Place::Device && is_user(&arrow.to) && arrow.to.parcel.by.name() == taken
        };
        let pages = drawn.told.arrows.iter().filter(of).count();
        assert!(pages >= 32, "{method}: {:?}", drawn.kinds());
    }
}

/// When processes ran, by their names' first word; none of a process's stretches overlap.
fn runs(drawn: &Picture) -> BTreeMap<&str, usize> {
    let mut runs = BTreeMap::new();
    for process in &drawn.told.processes {
        let of: Vec<_> = drawn.told.stretches.iter().filter(|s| s.process == process.number).collect();
        assert!(of.windows(2).all(|pair| pair[0].end_cycles <= pair[1].start_cycles), "{process:?}: {of:?}");
        assert!(of.iter().all(|stretch| stretch.start_cycles < stretch.end_cycles));
        *runs.entry(process.name.split([' ', '-']).next().expect("a name")).or_default() += of.len();
    }
    runs
}

#[test]
fn processes_have_tracks_and_what_is_attached_to_them_is_drawn() {
    for (method, by, servers_by) in [
        ("random", "page table", "page table"),
        ("previous", "TLB entries", "TLB entries"),
        ("proposed", "TLB entries", "service"),
        ("migrating", "TLB entries", "service"),
    ] {
        let method_is = format!("kernel.ispc.method={method}");
        let settings = ["op=sync-request", "data=true", &method_is];
        let drawn = drawn("ispc", "sh7751r", "ant", &settings, whole());
        let processes = &drawn.told.processes;
        assert_eq!(processes.len(), 3, "{processes:?}");
        let of = |name: &str| processes.iter().find(|p| p.name.starts_with(name)).expect("it is told").number;
        let (server, application) = (of("server"), of("ispc"));
        // Where threads cross into it, the server's own only begins and ends.
        let runs = runs(&drawn);
        assert!(runs["ispc"] >= 3 && runs["server"] >= if method == "migrating" { 1 } else { 3 }, "{runs:?}");
        let held = |process| drawn.told.holdings.iter().filter(move |h| h.process == process);
        assert_eq!(held(of("toucher")).count(), 0, "it is refused");
        assert!(held(application).all(|h| h.attachment.by.name() == by), "{method}");
        assert!(held(server).all(|h| h.attachment.by.name() == servers_by), "{method}");
        // Where a server sees all, it does so once.
        assert_eq!(held(server).count() == 1, servers_by == "service");
        // A piece is one's at a time.
        let pieces = drawn.told.holdings.iter().filter(|h| h.attachment.by.name() != "service");
        let mut pieces: Vec<_> = pieces.collect();
        pieces.sort_by_key(|h| (h.attachment.at, h.start_cycles));
        for pair in pieces.windows(2).filter(|pair| pair[0].attachment.at == pair[1].attachment.at) {
            assert!(pair[0].end_cycles <= pair[1].start_cycles, "{method}: {pair:?} overlap");
        }
        // What is measured is a part of what is drawn.
        let pages: usize = pieces.iter().map(|h| h.attachment.len_bytes / PAGE_SIZE).sum();
        let counted = drawn.record.counters["ica_attachments"];
        assert!(counted > 0 && pages as u64 >= counted, "{method}: {pages} drawn of {counted}");
    }
}

#[test]
fn processes_of_several_cpus_are_drawn_one_stretch_after_the_other() {
    let drawn = drawn("bw-pipe", "xeon-mp", "sf_buf", &["total_bytes=262144"], whole());
    let processes: BTreeSet<_> = drawn.told.stretches.iter().map(|s| s.process).collect();
    assert_eq!(processes.len(), 2);
    let runs = runs(&drawn);
    assert!(runs.values().sum::<usize>() > 8 && drawn.told.holdings.is_empty(), "{runs:?}");
}

#[test]
fn curves_follow_what_is_counted() {
    let drawn = drawn("bw-pipe", "xeon-mp", "original", &["total_bytes=262144"], whole());
    for (curve, counter) in [
        (Curve::InvalidationsLocal, "tlb_invalidations_local"),
        (Curve::InvalidationsRemote, "tlb_invalidations_remote_issued"),
    ] {
        // The record has the measured part, the curve all from the start.
        let counted = drawn.record.counters[counter] as i64;
        assert!(counted > 0 && drawn.curve(curve).last().expect("a value").1 >= counted, "{curve:?}");
    }
    let free = drawn.curve(Curve::Level(Level::FreeFrames));
    assert!(free.iter().skip(1).all(|(_, frames)| *frames > 0) && free.len() > 10);

    let ephemeral = self::drawn("bw-pipe", "xeon-mp", "sf_buf", &["total_bytes=262144"], whole());
    let mappings = ephemeral.curve(Curve::Level(Level::EphemeralMappings));
    assert_eq!(mappings.last().expect("a value").1, 0, "all are given back");
    assert!(mappings.iter().any(|(_, live)| *live > 0) && mappings.iter().all(|(_, live)| *live >= 0));

    let settings = ["send=loan", "receive=transfer", "size_bytes=16384", "total_bytes=131072"];
    let loans = self::drawn("uvm-pipe", "pentium-pro", "uvm", &settings, whole());
    let loans = loans.curve(Curve::Level(Level::Loans));
    assert_eq!(loans.last().expect("a value").1, 0, "all loans end");
    assert!(loans.iter().any(|(_, loans)| *loans >= 4) && loans.iter().all(|(_, loans)| *loans >= 0));
}

#[test]
fn a_window_is_a_part_of_the_whole_and_parts_are_named() {
    let settings = ["total_bytes=262144"];
    let all = drawn("bw-pipe", "xeon-mp", "sf_buf", &settings, whole());
    let parts: Vec<_> = all.told.parts.iter().map(|(part, _)| *part).collect();
    assert_eq!(parts, [Part::Boot, Part::SetUp, Part::Measured, Part::Rest]);
    let (_, measured) = all.told.parts[2].clone();

    let end_us = all.end_cycles() / all.mhz;
    let (from, length) = (Duration::from_micros(end_us / 2), Duration::from_micros(end_us / 4));
    let window = TraceWindow { from: Some(from), length: Some(length) };
    let part = drawn("bw-pipe", "xeon-mp", "sf_buf", &settings, window);
    let inside = end_us / 2 * all.mhz..=(end_us / 2 + end_us / 4) * all.mhz;
    assert!(part.told.slices.len() > 100);
    let mut ends = part.told.slices.iter().flat_map(|slice| [slice.start_cycles, slice.end_cycles]);
    assert!(ends.all(|at| inside.contains(&at)));
    assert!((1..all.told.arrows.len()).contains(&part.told.arrows.len()));
    let free = part.curve(Curve::Level(Level::FreeFrames));
    assert!(free[0].0 == *inside.start() && free[0].1 > 0, "a curve begins where it stands: {free:?}");

    // Without being told, it begins with what is measured.
    let own = drawn("bw-pipe", "xeon-mp", "sf_buf", &settings, TraceWindow::default());
    assert_eq!(own.told.parts[0], (Part::Measured, measured.clone()));
    let first = own.told.slices.iter().map(|slice| slice.start_cycles).min();
    assert_eq!(first, Some(measured.start));
}
