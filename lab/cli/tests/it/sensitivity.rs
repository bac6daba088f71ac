//! The sensitivity of results to constants: what is changed gives what `run --set` gives, and what is refused.

use crate::common::{done, entries, here, pageferry, text};
use crate::outputs::{interrupted, journal, lines, tree};
use std::fs;
use std::path::Path;

/// The bandwidth of one quick run.
fn bandwidth(dir: &Path, kernel: &str, set: &str) -> f64 {
    let run = ["run", "bw-pipe", "--quick", "--json", "--machine", "xeon-up", "--kernel", kernel];
    let set: &[&str] = if set.is_empty() { &[] } else { &["--set", set] };
    let output = pageferry(dir, &[&run[..], set].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    json["results"]["bandwidth_mb_s"].as_f64().expect("a bandwidth")
}

#[test]
fn a_changed_constant_gives_what_two_runs_with_it_set_give() {
    let dir = here();
    let study = ["sensitivity", "bw-pipe", "--machine", "xeon-up", "--key", "cpu.cpi_milli", "--out", "out"];
    let output = pageferry(dir.path(), &study);
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(said.contains("machine.cpu.cpi_milli"), "{said}");
    assert!(told.contains("Quick runs") && told.contains("1 constants in 3 of "), "{told}");
    assert!(entries(&dir.path().join("out")).contains(&"tornado.svg".to_owned()));

    let table = fs::read_to_string(dir.path().join("out/sensitivity.csv")).expect("readable");
    let row = |direction: &str| -> Vec<String> {
        let meant = |line: &&str| line.contains("sfbuf-pipe-gain-xeon-up") && line.contains(direction);
        let line = table.lines().find(meant).unwrap_or_else(|| panic!("no {direction}: {table}"));
        line.split(',').map(str::to_owned).collect()
    };
    let gain = |set: &str| {
        (bandwidth(dir.path(), "sf_buf", set) / bandwidth(dir.path(), "original", set) - 1.0) * 100.0
    };
    let as_it_is = gain("");
    for direction in ["up", "down"] {
        let row = row(&format!(",{direction},"));
        assert_eq!(row[0], "machine.cpu.cpi_milli");
        let number = |at: usize| row[at].parse::<f64>().expect("a number");
        let changed = gain(&format!("machine.cpu.cpi_milli={}", row[5]));
        assert!((number(12) - as_it_is).abs() < 1e-9, "{row:?} {as_it_is}");
        assert!((number(13) - changed).abs() < 1e-9, "{row:?} {changed}");
        assert!((number(14) - (changed / as_it_is - 1.0)).abs() < 1e-9, "{row:?}");
    }

    let again = pageferry(dir.path(), &study);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert_eq!(fs::read_to_string(dir.path().join("out/sensitivity.csv")).expect("readable"), table);
}

#[test]
fn a_study_that_was_stopped_goes_on_with_the_runs_that_it_has() {
    let dir = here();
    let study = ["sensitivity", "bw-pipe", "--machine", "xeon-up", "--key", "cpu.cpi_milli", "-j1", "--out"];
    let to = |out, more: &[&'static str]| [&study[..], &[out], more].concat();
    let (whole, told) = done(dir.path(), &to("whole", &[]));
    let runs = |told: &str| told.lines().filter(|line| line.contains("  bw-pipe on ")).count();
    let all = runs(&told);
    // Stopped before the constant is changed, gone on with, killed behind that, and gone on with to the end.
    interrupted(dir.path(), &to("out", &[]), 1, "TERM");
    let first = lines(&journal(dir.path()));
    assert!((1..all).contains(&first), "{first} of {all}");
    interrupted(dir.path(), &to("out", &["--resume"]), all - 3 - first, "KILL");
    let second = lines(&journal(dir.path()));
    assert!((first + 1..all).contains(&second), "{second} of {all}");
    assert_eq!(entries(dir.path()), ["out.unfinished", "whole"]);
    let (said, told) = done(dir.path(), &to("out", &["--resume"]));
    let kept = told.lines().filter(|line| line.ends_with("  kept")).count();
    assert_eq!((kept, runs(&told)), (second, all), "{told}");
    assert_eq!(said, whole);
    assert_eq!(tree(&dir.path().join("out")), tree(&dir.path().join("whole")));
    assert_eq!(entries(dir.path()), ["out", "whole"]);
}

#[test]
fn what_cannot_be_studied_is_refused() {
    let dir = here();
    let refused = |arguments: &[&str], expected: &str| {
        let output = pageferry(dir.path(), &[&["sensitivity"], arguments].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
        assert!(entries(dir.path()).is_empty(), "{arguments:?} left something");
    };
    refused(&["bw-pipe", "--key", "cpu.clock_mh"], "did you mean `cpu.clock_mhz`?");
    refused(&["bw-pipe", "--by", "0%"], "expected more than 0% and at most 90%");
    refused(&["bw-pipe", "--by", "91%"], "expected more than 0% and at most 90%");
    refused(&["bw-pip"], "did you mean `bw-pipe`?");
    refused(&["bw-pipe", "--machine", "toda"], "did you mean `today`?");
    refused(&["bw-pipe", "--machine", "bonnie"], "there is no machine");
    refused(&["bw-pipe", "--resume"], "--out");
}
