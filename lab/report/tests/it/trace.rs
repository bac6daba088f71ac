//! A trace is sound JSON whose slices fill each CPU's time without overlap, whose arrows lead from who gave to who got,
//! and whose curves follow what the run counted; and recording it changes nothing.

use pageferry_lab::Registry;
use pageferry_lab::files::{KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::Record;
use pageferry_lab::run::{Choices, RunSpec, Schedule, TraceWindow};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

struct Picture {
    record: Record,
    events: Vec<Value>,
}

impl Picture {
    fn phase<'a>(&'a self, phase: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |e| e["ph"] == phase)
    }

    /// The arguments of arrows, in pairs of their ends, which must agree; and none leads back in time.
    fn arrows(&self) -> Vec<&Value> {
        let starts: BTreeMap<u64, &Value> =
            self.phase("s").map(|e| (e["id"].as_u64().expect("an id"), e)).collect();
        let ends: Vec<_> = self.phase("f").collect();
        assert_eq!(starts.len(), ends.len(), "each arrow has two ends");
        let pair = |end: &&'_ Value| {
            let start = starts[&end["id"].as_u64().expect("an id")];
            assert_eq!(start["args"], end["args"]);
            assert_eq!(end["bp"], "e");
        };
        ends.iter().for_each(pair);
        ends.into_iter().map(|end| &end["args"]).collect()
    }

    /// What is different of the arrows, and how many there are of each.
    fn kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for args in self.arrows() {
            let word = |key: &str| args[key].as_str().expect("a word").to_owned();
            let kind =
                format!("{} to {}: {}, {}", word("from"), word("to"), word("given_by"), word("taken_by"));
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }
}

fn drawn(experiment: &str, machine: &str, kernel: &str, settings: &[&str], window: TraceWindow) -> Picture {
    let experiment = Arc::new(Registry::standard().experiment(experiment).expect("it is built in"));
    let machine = MachineChoice::find(machine).expect("it is built in");
    let kernel = KernelChoice::find(kernel).expect("it is built in");
    let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
    let settings = Settings::parse(&settings).expect("valid");
    let choices = Choices { quick: true, seed: 1, schedule: Schedule::Timed };
    let mhz = machine.config.cpu.clock_mhz.value;
    let spec =
        RunSpec::new(&Registry::standard(), &experiment, machine, kernel, &settings, choices).expect("valid");
    let (result, trace) = pageferry_lab::run::run_traced(&spec, window).expect("it runs");
    let plain = pageferry_lab::run::run(&spec).expect("it runs");
    assert_eq!(result.record, plain.record, "recording changes nothing");
    assert!(result.record.broken().is_empty());
    assert_eq!(trace.lost, 0);

    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("trace.json");
    pageferry_report::trace::write(&trace, "it", mhz, &file).expect("written");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("read")).expect("JSON");
    Picture { record: result.record, events: json["traceEvents"].as_array().expect("events").clone() }
}

fn whole() -> TraceWindow {
    TraceWindow { from: Some(Duration::ZERO), length: None }
}

#[test]
fn a_pipe_drawn() {
    let drawn = drawn("bw-pipe", "xeon-mp", "sf_buf", &["total_bytes=262144"], whole());
    let mut ends: BTreeMap<u64, f64> = BTreeMap::new();
    let tid = |slice: &Value| slice["tid"].as_u64().expect("a track");
    for slice in drawn.phase("X").filter(|e| tid(e) % 2 == 0) {
        let (ts, dur) = (slice["ts"].as_f64().expect("a time"), slice["dur"].as_f64().expect("a time"));
        let end = ends.entry(tid(slice)).or_insert(ts);
        assert!((ts - *end).abs() < 1e-6, "a gap or an overlap at {ts}: {slice}");
        *end = ts + dur;
        assert!(slice["args"]["cycles"].as_u64().expect("cycles") > 0);
        assert!(slice["args"]["context"].is_string());
    }
    assert_eq!(ends.len(), 2, "two CPUs");
    // 64 pages of data and 256 KB of warm-up, each wired by the writer and copied by the reader.
    let pages = drawn.arrows().iter().filter(|args| args["given_by"] == "wire").count();
    assert_eq!(pages, 128, "{:?}", drawn.kinds());
    for args in drawn.arrows() {
        assert_ne!(args["from"], args["to"], "a pipe leads to another process: {args}");
        assert_eq!(args["pages"], 1);
        assert!(args["from_at"].as_str().expect("an address").starts_with("0x"));
        assert!(args["to_at"].as_str().expect("an address").starts_with("0x"));
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
        let arrows = drawn.arrows();
        let pages = arrows.iter().filter(|a| a["given_by"] == given && a["taken_by"] == taken);
        let pages = pages.filter(|a| a["from"] != a["to"] && a["bytes"] == 4096).count();
        assert!(pages >= 32, "{send} {receive}: {:?}", drawn.kinds());
    }
}

#[test]
fn a_range_that_is_passed_is_an_arrow_each_time() {
    let settings = ["by=pass", "size_bytes=65536", "rounds=4"];
    let drawn = drawn("ping-pong", "pentium-pro", "uvm", &settings, whole());
    let arrows = drawn.arrows();
    let passed: Vec<_> = arrows.iter().filter(|args| args["given_by"] == "pass").collect();
    // To and fro four times, and the warm-up.
    assert!(passed.len() >= 8, "{:?}", drawn.kinds());
    for args in &passed {
        assert_eq!((&args["pages"], &args["taken_by"]), (&16.into(), &"pass".into()));
        assert_ne!(args["from"], args["to"]);
        assert!(args["from_at"].as_str().expect("an address").starts_with("0x"));
    }
    let givers: BTreeSet<_> = passed.iter().map(|args| args["from"].to_string()).collect();
    assert_eq!(givers.len(), 2, "each gives to the other: {givers:?}");
}

#[test]
fn pages_of_a_file_go_to_their_reader() {
    for (receive, given, taken) in [("transfer", "loan", "transfer"), ("copy", "copy", "copy")] {
        let receive = format!("receive={receive}");
        let settings = [&*receive, "size_bytes=16384", "file_bytes=65536", "passes=2"];
        let drawn = drawn("file-read", "pentium-pro", "uvm", &settings, whole());
        let arrows = drawn.arrows();
        let read = arrows.iter().filter(|args| args["from"] == "file");
        let read: Vec<_> = read.filter(|a| a["given_by"] == given && a["taken_by"] == taken).collect();
        assert!(read.len() >= 32, "{receive}: {:?}", drawn.kinds());
        let bytes: BTreeSet<_> = read.iter().map(|args| args["from_at"].to_string()).collect();
        assert_eq!(bytes.len(), 16, "each page of the file: {bytes:?}");
    }
}

/// A process as it is drawn: its name, when it ran, and what it had when, by what.
#[derive(Default, Debug)]
struct DrawnProcess {
    name: String,
    runs: Vec<(f64, f64)>,
    holdings: Vec<(String, String, f64, f64, u64)>,
}

/// All processes by their groups; every slice has its pair, and on one track they do not overlap.
fn processes(drawn: &Picture) -> BTreeMap<u64, DrawnProcess> {
    let number = |e: &Value, key: &str| e[key].as_u64().expect("a number");
    let time = |e: &Value, key: &str| e[key].as_f64().expect("a time");
    let mut found: BTreeMap<u64, DrawnProcess> = BTreeMap::new();
    for e in drawn.phase("M").filter(|e| e["name"] == "process_name" && number(e, "pid") != 1) {
        let name = e["args"]["name"].as_str().expect("a name").to_owned();
        assert!(found.insert(number(e, "pid"), DrawnProcess { name, ..Default::default() }).is_none());
    }
    for e in drawn.phase("X").filter(|e| number(e, "pid") != 1) {
        let process = found.get_mut(&number(e, "pid")).expect("it has a name");
        let (start, end) = (time(e, "ts"), time(e, "ts") + time(e, "dur"));
        let last = process.runs.last().map_or(0.0, |(_, end)| *end);
        assert!(start >= last - 1e-6 && end > start, "{}: {start} to {end} behind {last}", process.name);
        process.runs.push((start, end));
    }
    let mut open: BTreeMap<u64, &Value> = BTreeMap::new();
    for e in drawn.events.iter().filter(|e| e["ph"] == "b" || e["ph"] == "e") {
        assert_eq!(e["cat"], "attached");
        if e["ph"] == "b" {
            assert!(open.insert(number(e, "id"), e).is_none(), "begun twice: {e}");
            continue;
        }
        let begun = open.remove(&number(e, "id")).expect("what ends has begun");
        for key in ["pid", "tid", "name", "args"] {
            assert_eq!(begun[key], e[key], "both ends say the same");
        }
        let (start, end) = (time(begun, "ts"), time(e, "ts"));
        assert!(start < end, "{e}");
        let word = |key: &str| e["args"][key].as_str().expect("a word").to_owned();
        let process = found.get_mut(&number(e, "pid")).expect("it has a name");
        process.holdings.push((word("at"), word("by"), start, end, number(&e["args"], "pages")));
    }
    assert!(open.is_empty(), "never ended: {open:?}");
    found
}

#[test]
fn processes_have_tracks_and_what_is_attached_to_them_is_drawn() {
    let settings = |method: &str| ["op=sync-request".to_owned(), "data=true".into(), method.into()];
    for (method, by, servers_by) in [
        ("random", "page table", "page table"),
        ("previous", "TLB entries", "TLB entries"),
        ("proposed", "TLB entries", "service"),
        ("migrating", "TLB entries", "service"),
    ] {
        let settings = settings(&format!("kernel.ispc.method={method}"));
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let drawn = drawn("ispc", "sh7751r", "ant", &settings, whole());
        let found = processes(&drawn);
        assert_eq!(found.len(), 2, "{found:?}");
        let of = |name: &str| found.values().find(|p| p.name.starts_with(name)).expect("it is drawn");
        let (server, application) = (of("server"), of("ispc"));
        // Where threads cross into it, the server's own only begins and ends.
        let runs = [(application, 3), (server, if method == "migrating" { 1 } else { 3 })];
        for (process, min) in runs {
            assert!(process.runs.len() >= min, "{method}: {} ran", process.name);
        }
        assert!(application.holdings.iter().all(|h| h.1 == by), "{method}: {application:?}");
        assert!(server.holdings.iter().all(|h| h.1 == servers_by), "{method}: {server:?}");
        // Where a server sees all, it does so once.
        assert_eq!(server.holdings.len() == 1, servers_by == "service");
        // A piece is one's at a time.
        let mut pieces: Vec<_> =
            found.values().flat_map(|p| &p.holdings).filter(|h| h.1 != "service").collect();
        pieces.sort_by(|a, b| (&a.0, a.2).partial_cmp(&(&b.0, b.2)).expect("times are numbers"));
        for pair in pieces.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[0].3 <= pair[1].2 + 1e-6, "{method}: {pair:?} overlap");
        }
        // What is measured is a part of what is drawn.
        let drawn_pages: u64 = pieces.iter().map(|h| h.4).sum();
        let counted = drawn.record.counters["ica_attachments"];
        assert!(counted > 0 && drawn_pages >= counted, "{method}: {drawn_pages} drawn of {counted}");
    }
}

#[test]
fn processes_of_several_cpus_are_drawn_one_stretch_after_the_other() {
    let found = processes(&drawn("bw-pipe", "xeon-mp", "sf_buf", &["total_bytes=262144"], whole()));
    assert_eq!(found.len(), 2);
    assert!(found.values().all(|process| process.runs.len() > 4 && process.holdings.is_empty()), "{found:?}");
}

/// The values of a curve, in order of time.
fn curve<'a>(drawn: &'a Picture, name: &'a str, series: &'a str) -> Vec<(f64, i64)> {
    let of = |e: &&Value| e["name"] == name;
    let mut last = 0.0;
    let value = |e: &Value| {
        let ts = e["ts"].as_f64().expect("a time");
        assert!(ts >= last, "{name} goes back in time");
        last = ts;
        (ts, e["args"][series].as_i64().expect("a number"))
    };
    drawn.phase("C").filter(of).map(value).collect()
}

#[test]
fn curves_follow_what_is_counted() {
    let drawn = drawn("bw-pipe", "xeon-mp", "original", &["total_bytes=262144"], whole());
    let last = |name, series| curve(&drawn, name, series).last().expect("a value").1;
    for (name, counter) in [
        ("invalidations, local", "tlb_invalidations_local"),
        ("invalidations, remote", "tlb_invalidations_remote_issued"),
    ] {
        // The record has the measured part, the curve all from the start.
        let counted = drawn.record.counters[counter] as i64;
        assert!(counted > 0 && last(name, "pages") >= counted, "{name}");
    }
    let free = curve(&drawn, "free frames", "frames");
    assert!(free.iter().skip(1).all(|(_, frames)| *frames > 0) && free.len() > 10);

    let ephemeral = self::drawn("bw-pipe", "xeon-mp", "sf_buf", &["total_bytes=262144"], whole());
    let mappings = curve(&ephemeral, "ephemeral mappings", "mappings");
    assert_eq!(mappings.last().expect("a value").1, 0, "all are given back");
    assert!(mappings.iter().any(|(_, live)| *live > 0) && mappings.iter().all(|(_, live)| *live >= 0));

    let settings = ["send=loan", "receive=transfer", "size_bytes=16384", "total_bytes=131072"];
    let lent = self::drawn("uvm-pipe", "pentium-pro", "uvm", &settings, whole());
    let loans = curve(&lent, "loans", "loans");
    assert_eq!(loans.last().expect("a value").1, 0, "all loans end");
    assert!(loans.iter().any(|(_, loans)| *loans >= 4) && loans.iter().all(|(_, loans)| *loans >= 0));
}

#[test]
fn a_window_is_a_part_of_the_whole() {
    let settings = ["total_bytes=262144"];
    let all = drawn("bw-pipe", "xeon-mp", "sf_buf", &settings, whole());
    let end =
        all.phase("X").map(|e| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap()).fold(0.0, f64::max);
    let (from, length) = ((end / 2.0) as u64, (end / 4.0) as u64);
    let window =
        TraceWindow { from: Some(Duration::from_micros(from)), length: Some(Duration::from_micros(length)) };
    let part = drawn("bw-pipe", "xeon-mp", "sf_buf", &settings, window);
    let inside = |ts: f64| ts >= from as f64 - 1e-6 && ts <= (from + length) as f64 + 1e-6;
    let timed = part.events.iter().filter_map(|e| e["ts"].as_f64());
    assert!(timed.clone().count() > 100 && timed.clone().all(inside));
    assert!(part.phase("X").all(|e| inside(e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap())));
    assert!((1..all.arrows().len()).contains(&part.arrows().len()));
    let free = curve(&part, "free frames", "frames");
    assert!(
        (free[0].0 - from as f64).abs() < 1e-6 && free[0].1 > 0,
        "a curve begins where it stands: {free:?}"
    );
}
