//! A trace is sound JSON whose slices fill each CPU's time without overlap and whose arrows have both ends.

use pageferry_lab::files::{Experiment, KernelChoice, MachineChoice, Settings};
use pageferry_lab::run::{Choices, RunSpec, Schedule};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn a_pipe_drawn() {
    let experiment = Arc::new(Experiment::find("bw-pipe").unwrap());
    let machine = MachineChoice::find("xeon-mp").unwrap();
    let kernel = KernelChoice::find("sf_buf").unwrap();
    let settings = Settings::parse(&["total_bytes=262144".to_owned()]).unwrap();
    let choices = Choices { quick: true, seed: 1, schedule: Schedule::Timed };
    let spec = RunSpec::new(&experiment, machine, kernel, &settings, choices).unwrap();
    let (result, trace) = pageferry_lab::run::run_traced(&spec).unwrap();
    let plain = pageferry_lab::run::run(&spec).unwrap();
    assert_eq!(result.record, plain.record, "recording changes nothing");
    assert_eq!(trace.lost, 0);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    pageferry_lab::report::trace::write(&trace, "xeon-mp", 2400, &file).unwrap();
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let mut ends: BTreeMap<u64, f64> = BTreeMap::new();
    for slice in events.iter().filter(|e| e["ph"] == "X" && e["tid"].as_u64().unwrap() % 2 == 0) {
        let (ts, dur) = (slice["ts"].as_f64().unwrap(), slice["dur"].as_f64().unwrap());
        let end = ends.entry(slice["tid"].as_u64().unwrap()).or_insert(ts);
        assert!((ts - *end).abs() < 1e-6, "a gap or an overlap at {ts}: {slice}");
        *end = ts + dur;
    }
    assert_eq!(ends.len(), 2, "two CPUs");
    let phase = |p: &str| events.iter().filter(|e| e["ph"] == p).count();
    // 64 pages of data and 256 KB of warm-up, each sent, received once, and done with.
    assert_eq!([phase("s"), phase("t"), phase("f")], [128, 128, 128]);
}
