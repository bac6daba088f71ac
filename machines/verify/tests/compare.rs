//! What the comparison says of two logs and of what a witness saw: that all is equal where it is, and nowhere else.
#![cfg(feature = "host")]

use pageferry_hal::CpuId;
use pageferry_hal::tap::{Event, EventKind};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A page's translation is dropped, a fault comes, and two other CPUs are asked for invalidations.
fn events() -> Vec<Event> {
    let event = |cpu, kind, words| Event { cpu: CpuId(cpu), kind, words };
    vec![
        event(0, EventKind::Flush, [0, 7, 0, 0, 0]),
        event(1, EventKind::Fault, [0x1000, 2, 3, 4, 0]),
        event(1, EventKind::Send, [0, 0b1101, 0, 0, 0]),
        event(0, EventKind::Zero, [5, 6, 0, 0, 0]),
    ]
}

fn log(events: &[Event]) -> Vec<u8> {
    events.iter().flat_map(Event::encode).flat_map(u64::to_le_bytes).collect()
}

/// What the witness sees of [`events`].
const SEEN: &[u8] = b"i\0f\x01a\x01a\x01a\x01";

/// The exit code, and all that is said.
fn compared(files: &[(&str, &[u8])]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("written");
    }
    run(&["compare", &folder.path().display().to_string()])
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_pageferry-verify")).args(arguments).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn equal_logs_are_equal_and_others_are_not() {
    let model = log(&events());
    let mut other = events();
    other[1].words[3] ^= 1;
    let mut elsewhere = events();
    elsewhere[3].cpu = CpuId(2);
    let longer: Vec<Event> = events().into_iter().chain(events()).collect();
    for (metal, differ, first) in [
        (log(&events()), 0, None),
        (log(&other), 1, Some(1)),
        (log(&elsewhere), 1, Some(3)),
        (log(&events()[..3]), 1, Some(3)),
        (log(&events()[..1]), 3, Some(1)),
        (log(&longer), 4, Some(4)),
    ] {
        let (code, said) = compared(&[("model.bin", &model), ("metal.bin", &metal)]);
        assert_eq!(code, Some(i32::from(differ > 0)), "{said}");
        assert!(
            said.contains(&format!("\n{differ} lines differ\n")) && said.contains("no witness"),
            "{said}"
        );
        let line = first.map(|first| format!("the first is line {first}:"));
        assert!(line.is_none_or(|line| said.contains(&line)), "{said}");
    }
}

#[test]
fn the_witness_has_seen_what_both_have_done() {
    let mut events = events();
    // The kernel refuses its own addresses without asking a processor.
    let words = [u64::MAX << 40, 0, 1, 1, 0];
    events.push(Event { cpu: CpuId(0), kind: EventKind::Fault, words });
    let log = log(&events);
    for (seen, differ) in [
        (SEEN.to_vec(), 0),
        (SEEN[..8].to_vec(), 1),
        ([SEEN, b"c\0"].concat(), 1),
        ([b"i\x01", &SEEN[2..]].concat(), 1),
        ([&SEEN[..2], b"c\x01", &SEEN[4..]].concat(), 1),
        (Vec::new(), 5),
    ] {
        let (code, said) = compared(&[("model.bin", &log), ("metal.bin", &log), ("witness.bin", &seen)]);
        assert_eq!(code, Some(i32::from(differ > 0)), "{said}");
        let all = seen.len().max(SEEN.len()) / 2;
        assert!(said.contains(&format!("\n{differ} of {all} differ from the witness, in order\n")), "{said}");
        assert!(said.contains("\n0 lines differ\n"), "{said}");
    }
}

/// What is no log is an error that says so, and never a comparison.
#[test]
fn what_is_no_log_is_refused() {
    let log = log(&events());
    let mut none = log.clone();
    none[48..56].fill(0xff);
    for (metal, expected) in [
        (log[..log.len() - 1].to_vec(), "metal.bin: 191 bytes, expected whole events"),
        (none, "metal.bin: event 1 is none"),
        (Vec::new(), "metal.bin: no events, expected some"),
    ] {
        let (code, said) = compared(&[("model.bin", &log), ("metal.bin", &metal)]);
        assert!(code == Some(1) && said.contains(expected) && !said.contains("lines differ"), "{said}");
    }
    let (code, said) = compared(&[("model.bin", &log)]);
    assert!(code == Some(1) && said.contains("metal.bin: "), "{said}");
    let (code, said) = compared(&[("model.bin", &log), ("metal.bin", &log), ("witness.bin", &SEEN[..9])]);
    assert!(code == Some(1) && said.contains("witness.bin: 9 bytes, expected two for each"), "{said}");
}

/// A record is of the run, from its first turn to its last, and what it says is what came out.
#[test]
fn a_run_is_recorded_the_same_again() {
    let record = |seed: &str, folder: &Path| {
        let folder = folder.display().to_string();
        run(&["record", &folder, seed, "experiment=echo", "cpus=2", "frames=65536"])
    };
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    for (folder, seed) in folders.iter().zip(["7", "7", "8"]) {
        let (code, said) = record(seed, folder.path());
        assert!(code == Some(0) && said.contains(" 0 wrong; 2 processes ended, 0 failed; 0 uses"), "{said}");
    }
    let file = |nth: usize, name: &str| fs::read(folders[nth].path().join(name)).expect("written");
    assert!(file(0, "turns.bin") == file(1, "turns.bin") && file(0, "model.bin") == file(1, "model.bin"));
    assert!(file(0, "turns.bin") != file(2, "turns.bin"), "another order has other turns");
    let (code, said) = record("seven", folders[0].path());
    assert_eq!((code, &said[..]), (Some(1), "seed seven: expected a number or `timed`\n"));
    let (code, said) = run(&["record", "none", "7", "cpus=0"]);
    assert!(code == Some(1) && said.contains("`cpus=0`: expected 1 to 64 CPUs"), "{said}");
}
