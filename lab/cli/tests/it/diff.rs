//! What `diff` tells of two sets of runs, and its exit codes. Numbers are changed by hand, so that what has to be told
//! is known.

use crate::common::{entries, here, pageferry, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Writes a run into `file`, changed by `change`.
fn run(dir: &Path, file: &str, arguments: &[&str], change: impl FnOnce(&mut Value)) {
    let all = [&["run", "bw-pipe", "--quick", "--json", "--machine", "xeon-mp"], arguments].concat();
    let output = pageferry(dir, &all);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut run: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    change(&mut run);
    let path = dir.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, run.to_string()).expect("written");
}

/// What `diff` tells, its errors, and its exit code.
fn diff(dir: &Path, arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = pageferry(dir, &[&["diff"], arguments].concat());
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Adds to a number.
fn add(value: &mut Value, percent: f64) {
    *value = (value.as_f64().expect("a number") * (1.0 + percent / 100.0)).into();
}

#[test]
fn equal_results_have_not_moved() {
    let dir = here();
    for out in ["a", "b"] {
        let output = pageferry(dir.path(), &["reproduce", "--quick", "invalidate", "--out", out]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let (told, _, code) = diff(dir.path(), &["a", "b", "--threshold", "0", "--all"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.starts_with("Nothing moved by more than 0 % in 20 runs: 0 of "), "{told}");
    // A run is found in a folder by what it ran, and there is no second one to be compared with whatever it ran.
    let output = pageferry(dir.path(), &["run", "invalidate", "--quick", "--machine", "486", "--json"]);
    fs::write(dir.path().join("486.json"), output.stdout).expect("written");
    let (told, _, code) = diff(dir.path(), &["a", "486.json"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("in 1 run: 0 of ") && told.trim_end().ends_with("19 only in a."), "{told}");
}

#[test]
fn what_moved_is_told_by_size_with_its_causes_and_what_one_side_has() {
    let dir = here();
    let at = dir.path();
    for kernel in ["sf_buf", "original"] {
        run(at, &format!("a/{kernel}.json"), &["--kernel", kernel], |_| ());
    }
    run(at, "a/gone.json", &["--kernel", "sf_buf-shared"], |_| ());
    run(at, "b/new.json", &["--kernel", "sf_buf", "--set", "total_bytes=1048576"], |_| ());
    run(at, "b/sf_buf.json", &["--kernel", "sf_buf"], |run| {
        add(&mut run["results"]["bandwidth_mb_s"], -5.0);
        // No metric of judgement of this experiment.
        run["results"]["elapsed_us"] = 1.into();
    });
    run(at, "b/original.json", &["--kernel", "original"], |run| {
        add(&mut run["results"]["bandwidth_mb_s"], 20.0);
        let causes = run["cycles"]["by_cause"].as_object_mut().expect("causes");
        causes["copy"] = (causes["copy"].as_u64().expect("cycles") + 300_000).into();
        causes["idle"] = (causes["idle"].as_u64().expect("cycles") - 100_000).into();
    });
    let (told, said, code) = diff(at, &["a", "b", "--csv", "moved.csv"]);
    assert_eq!(code, Some(1), "{told}{said}");
    let lines: Vec<&str> = told.lines().collect();
    let row = |line: &str, ends: &[&str]| ends.iter().all(|end| line.contains(end));
    assert!(row(lines[1], &["xeon-mp, original", "bandwidth_mb_s", "+20 %"]), "{told}");
    assert!(row(lines[2], &["xeon-mp, sf_buf", "bandwidth_mb_s", "-5.0 %"]) && lines[3].is_empty(), "{told}");
    assert!(told.contains("copy +75 %, idle -25 %"), "{told}");
    assert!(told.contains("Only in a\n  bw-pipe, xeon-mp, sf_buf-shared, total_bytes=4194304\n"), "{told}");
    assert!(told.contains("Only in b\n  bw-pipe, xeon-mp, sf_buf, total_bytes=1048576\n"), "{told}");
    let summary = lines.last().expect("a summary");
    assert!(summary.starts_with("2 of 2 runs moved by more than 3 %: 2 of "), "{told}");
    assert!(summary.ends_with("1 only in a. 1 only in b."), "{told}");
    let csv = fs::read_to_string(at.join("moved.csv")).expect("written");
    let kinds: Vec<&str> = csv.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(kinds, ["metric", "metric", "cause", "cause", "only_a", "only_b"], "{csv}");

    // What moves as far as the threshold has not moved by more.
    let (told, _, code) = diff(at, &["a", "b", "--threshold", "25%"]);
    assert_eq!(code, Some(0), "{told}");
    let (told, _, _) = diff(at, &["a", "b", "--threshold=10 %", "--all"]);
    assert!(told.contains("elapsed_us") && !told.contains("-5.0 %"), "{told}");
}

#[test]
fn two_runs_are_compared_whatever_they_ran_on() {
    let dir = here();
    run(dir.path(), "original.json", &["--kernel", "original"], |_| ());
    run(dir.path(), "sf_buf.json", &["--kernel", "sf_buf"], |_| ());
    let (told, _, code) = diff(dir.path(), &["original.json", "sf_buf.json"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("bw-pipe, xeon-mp, original -> sf_buf  bandwidth_mb_s"), "{told}");
    assert!(told.contains("invalidate_local -") && told.contains("tlb_invalidations"), "{told}");
    // The other way round, what is gone comes back: from 0 it moves by more than any threshold.
    let (told, _, code) = diff(dir.path(), &["sf_buf.json", "original.json", "--threshold", "1000000%"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.lines().any(|line| line.contains("tlb_invalidations") && line.ends_with("new")), "{told}");
}

#[test]
fn runs_that_differ_in_their_seeds_are_matched_in_order() {
    let dir = here();
    for (file, seed) in [("a/1.json", "7"), ("a/2.json", "3"), ("b/1.json", "3"), ("b/2.json", "7")] {
        // The result says the seed.
        run(dir.path(), file, &["--kernel", "sf_buf", "--seed", seed], |run| {
            run["results"]["bandwidth_mb_s"] = seed.parse::<u64>().expect("a number").into();
        });
    }
    let (told, _, code) = diff(dir.path(), &["a", "b", "--threshold", "0"]);
    assert_eq!(code, Some(0), "{told}");
}

/// A folder that is older than a parameter: its runs were made as the default has it, and match those that have it.
#[test]
fn runs_from_before_a_parameter_match_those_with_its_default() {
    let dir = here();
    let at = dir.path();
    let forget = |run: &mut Value| {
        assert!(run["settings"].as_object_mut().expect("settings").remove("pin").is_some());
    };
    for kernel in ["original", "sf_buf"] {
        run(at, &format!("old/{kernel}.json"), &["--kernel", kernel], forget);
        run(at, &format!("new/{kernel}.json"), &["--kernel", kernel], |_| ());
        run(at, &format!("bound/{kernel}.json"), &["--kernel", kernel, "--set", "pin=same"], |_| ());
    }
    for (a, b) in [("old", "new"), ("new", "old")] {
        let (told, said, code) = diff(at, &[a, b, "--threshold", "0"]);
        assert_eq!(code, Some(0), "{told}{said}");
        let mut lines = told.lines();
        assert!(
            lines.next().is_some_and(|line| line.starts_with("Nothing moved by more than 0 % in 2 runs"))
        );
        let expected =
            "The runs of bw-pipe in old do not say pin=free, the default now: they are taken to have had it.";
        assert_eq!((lines.next(), lines.next()), (Some(expected), None), "{told}");
    }
    // What moved is told without a word of it.
    run(at, "new/original.json", &["--kernel", "original"], |run| {
        add(&mut run["results"]["bandwidth_mb_s"], 20.0);
    });
    let (told, _, code) = diff(at, &["old", "new"]);
    assert!(code == Some(1) && told.contains("bw-pipe, xeon-mp, original  bandwidth_mb_s"), "{told}");
    // Another value than the default is another run.
    let (_, said, code) = diff(at, &["old", "bound"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("has pin as in its file here and pin=same there"), "{said}");
}

#[test]
fn bad_input_is_named() {
    let dir = here();
    let at = dir.path();
    run(at, "runs/one.json", &["--kernel", "sf_buf"], |_| ());
    run(at, "other.json", &["--kernel", "original"], |run| run["experiment"] = "uvm-pipe".into());
    run(at, "short.json", &["--kernel", "sf_buf"], |run| {
        run["settings"]["total_bytes"] = 5.into();
    });
    fs::create_dir(at.join("empty")).expect("made");
    fs::write(at.join("notes.json"), "{}").expect("written");
    fs::write(at.join("results.json"), "{}").expect("written");
    fs::write(at.join("cut.json"), "{\"experiment\": ").expect("written");
    fs::create_dir(at.join("two")).expect("made");
    for file in ["short.json", "other.json"] {
        fs::copy(at.join(file), at.join("two").join(file)).expect("copied");
    }
    let before = entries(at);
    for (arguments, expected) in [
        (vec!["run", "runs"], "run: it is not there: expected a folder of results"),
        (vec!["runs", "othr.json"], "did you mean `other.json`?"),
        (vec!["runs", "empty"], "empty: it has no records: expected results.json"),
        (
            vec!["runs", "notes.json"],
            "notes.json: it is no run: expected what `pageferry run --json` printed",
        ),
        (
            vec!["runs", "results.json"],
            "results.json: it is a part of a folder of results: name the folder, `.`",
        ),
        (vec!["cut.json", "runs"], "cut.json: EOF"),
        (vec!["runs", "other.json"], "the first here is bw-pipe on xeon-mp under sf_buf, there uvm-pipe on"),
        (
            vec!["runs", "two"],
            "bw-pipe on xeon-mp under sf_buf has total_bytes=4194304 here and total_bytes=5 there",
        ),
        (vec!["runs", "runs", "--threshold", "a bit"], "expected a percentage such as 3%"),
        (vec!["runs", "runs", "--threshold=-3%"], "expected a percentage"),
        (vec!["runs", "runs", "--csv", "none/x.csv"], "cannot write none/x.csv"),
    ] {
        let (told, said, code) = diff(at, &arguments);
        assert_eq!((code, &*told), (Some(2), ""), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert_eq!(entries(at), before);
}

#[test]
fn a_run_that_broke_a_law_is_named() {
    let dir = here();
    run(dir.path(), "good.json", &["--kernel", "sf_buf"], |_| ());
    run(dir.path(), "bad.json", &["--kernel", "sf_buf"], |run| run["laws"][0]["held"] = false.into());
    let (told, said, code) = diff(dir.path(), &["good.json", "bad.json"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.starts_with("Nothing moved") && said.contains("bad.json: bw-pipe on xeon-mp"), "{said}");
}

#[test]
fn machines_and_kernels_are_compared_by_their_constants() {
    let dir = here();
    let told = |arguments: &[&str], code: i32| {
        let output = pageferry(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        text(if code == 0 { &output.stdout } else { &output.stderr })
    };
    let mine = "extends = \"xeon-up\"\n\
                [cpu]\n\
                clock_mhz = { value = 1234, source = \"a test of mine\", kind = \"assumed\" }\n";
    fs::write(dir.path().join("mine.toml"), mine).expect("written");
    let said = told(&["machines", "--diff", "xeon-up", "mine.toml"], 0);
    let row = said.lines().nth(1).expect("a row");
    assert!(row.starts_with("cpu.clock_mhz") && row.contains("2400  1234"), "{said}");
    assert!(row.ends_with("a test of mine"), "{said}");
    assert!(said.contains("xeon-up and mine differ in 1 of "), "{said}");
    let json = told(&["machines", "--json", "--diff", "mine.toml", "xeon-up"], 0);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(1), "{json}");
    assert_eq!((&json[0]["a"]["value"], &json[0]["b"]["value"]), (&"1234".into(), &"2400".into()));
    let same = told(&["kernels", "--diff", "sf_buf", "sf_buf"], 0);
    assert!(same.starts_with("sf_buf and sf_buf differ in 0 of "), "{same}");
    let said = told(&["kernels", "--diff", "original", "sf_buf"], 0);
    assert!(said.contains("ephemeral.scheme"), "{said}");
    assert!(told(&["machines", "--diff", "xeon-up", "xeon-mq"], 2).contains("did you mean `xeon-mp`?"));
    assert!(told(&["machines", "--diff", "xeon-up"], 2).contains("2 values required"));
    assert!(
        told(&["machines", "xeon-mp", "--diff", "xeon-up", "xeon-mp"], 2).contains("cannot be used with")
    );
}
