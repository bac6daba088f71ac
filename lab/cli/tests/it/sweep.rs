//! Sweeps: the product that is run, what is left of it, and what is refused before the first run.

use crate::common::{done, entries, here, pageferry, text};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const SMALL: [&str; 12] = [
    "sweep",
    "pipe-sizes",
    "--machine",
    "xeon-up,today",
    "--kernel",
    "original,sf_buf",
    "--vary",
    "chunk_bytes=4K..16K:*2",
    "--set",
    "total_bytes=64K",
    "-j1",
    "--quick",
];

/// The rows of a table, each by the names of its columns.
fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let table = fs::read_to_string(path).expect("readable");
    let mut lines = table.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let head = lines.next().expect("a head");
    let row = |cells: Vec<String>| {
        assert_eq!(cells.len(), head.len());
        head.iter().cloned().zip(cells).collect()
    };
    lines.map(row).collect()
}

#[test]
fn a_sweep_runs_the_product_and_leaves_a_table_and_a_folder() {
    let dir = here();
    let (said, _) =
        done(dir.path(), &[&SMALL[..], &["--out", "out", "--repeat", "2", "--seed", "7"]].concat());
    assert!(said.contains("bandwidth_mb_s, median of 2 repeats"), "{said}");
    assert!(said.contains("xeon-up original") && said.contains("today sf_buf"), "{said}");
    let sizes: Vec<&str> = said.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(sizes, ["4K", "8K", "16K"], "{said}");
    let rows = rows(&dir.path().join("out/sweep.csv"));
    assert_eq!(rows.len(), 2 * 2 * 3 * 2);
    let keys = |n: usize| {
        ["experiment", "machine", "kernel", "seed", "chunk_bytes"].map(|key| rows[n][key].as_str())
    };
    assert_eq!(keys(0), ["pipe-sizes", "xeon-up", "original", "7", "4096"]);
    assert_eq!(keys(1), ["pipe-sizes", "xeon-up", "original", "8", "4096"]);
    assert_eq!(keys(2), ["pipe-sizes", "xeon-up", "original", "7", "8192"]);
    assert_eq!(keys(23), ["pipe-sizes", "today", "sf_buf", "8", "16384"]);
    // A row has what the run alone gives.
    let alone = [
        "run",
        "pipe-sizes",
        "--machine",
        "today",
        "--kernel",
        "sf_buf",
        "--seed",
        "8",
        "--perturbed",
        "--quick",
        "--json",
    ];
    let (alone, _) = done(
        dir.path(),
        &[&alone[..], &["--set", "total_bytes=65536", "--set", "chunk_bytes=16384"]].concat(),
    );
    let alone: serde_json::Value = serde_json::from_str(&alone).expect("one JSON object");
    let bandwidth = alone["results"]["bandwidth_mb_s"].as_f64().expect("measured");
    assert_eq!(rows[23]["bandwidth_mb_s"].parse::<f64>().expect("a number"), bandwidth);
    assert_eq!(rows[23]["cycles.total"], alone["cycles"]["total"].to_string());
    let last = said.lines().last().expect("a row");
    let shown = pageferry_lab::text::number(bandwidth);
    assert!(last.contains(&shown), "{bandwidth}: {said}");
    // The folder is one that `report` reads, with a curve for each machine.
    for machine in ["xeon-up", "today"] {
        let figure = format!("figures/pipe-sizes-{machine}.svg");
        let svg = fs::read_to_string(dir.path().join("out").join(&figure)).expect("drawn");
        assert!(svg.contains("chunk") && svg.contains("sf_buf"), "{svg}");
        let data = fs::read_to_string(dir.path().join(format!("out/figures/pipe-sizes-{machine}.csv")))
            .expect("there");
        assert_eq!(data.lines().count(), 1 + 2 * 3, "one point for each size and kernel: {data}");
    }
    done(dir.path(), &["report", "out", "--out", "again"]);
    for file in ["results.json", "runs.csv", "report.html", "figures/pipe-sizes-today.svg"] {
        let read = |out: &str| fs::read(dir.path().join(out).join(file)).expect("readable");
        assert!(read("out") == read("again"), "{file} differs");
    }
}

#[test]
fn repeats_that_change_nothing_are_said_to() {
    let dir = here();
    let same = ["sweep", "bw-pipe", "--set", "total_bytes=64K", "--repeat", "2"];
    let (_, said) = done(dir.path(), &same);
    assert!(said.contains("All repeats gave the same results"), "{said}");
    let drawn = ["sweep", "web", "--quick", "--repeat", "2", "--metric", "requests_per_s"];
    let (table, said) = done(dir.path(), &drawn);
    assert!(!said.contains("All repeats gave the same results"), "{said}");
    assert!(table.contains(" to "), "{table}");
    assert_eq!(entries(dir.path()), Vec::<String>::new());
}

#[test]
fn a_sweep_that_goes_on_gives_the_same_bytes() {
    let dir = here();
    let whole = [&SMALL[..], &["--repeat", "3"]].concat();
    done(dir.path(), &[&whole[..], &["--out", "whole"]].concat());
    // What an interruption after some runs leaves: those of a smaller sweep that another did not have.
    let fewer = [&SMALL[..7], &["chunk_bytes=4K,8K"], &SMALL[8..]].concat();
    let other = [&SMALL[..7], &["chunk_bytes=16K"], &SMALL[8..], &["--out", "out"]].concat();
    let mut child =
        crate::common::command(dir.path(), &[&fewer[..], &["--out", "out", "--repeat", "400"]].concat())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
    let journal = dir.path().join("out.unfinished/runs.jsonl");
    let began = std::time::Instant::now();
    while fs::read(&journal).map_or(0, |kept| kept.iter().filter(|byte| **byte == b'\n').count()) < 3 {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "nothing is kept");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let (_, said) = done(dir.path(), &[&whole[..], &["--out", "out", "--resume"]].concat());
    assert!(said.contains(" of 36 runs are finished."), "{said}");
    assert!(said.lines().any(|line| line.ends_with("  kept")), "{said}");
    for file in [
        "sweep.csv",
        "results.json",
        "results.csv",
        "runs.csv",
        "inputs.json",
        "figures/pipe-sizes-today.svg",
    ] {
        let read = |out: &str| fs::read(dir.path().join(out).join(file)).expect("readable");
        assert!(read("out") == read("whole"), "{file} differs");
    }
    // And a sweep of other values replaces it.
    done(dir.path(), &other);
    assert_eq!(rows(&dir.path().join("out/sweep.csv")).len(), 4);
}

#[test]
fn what_cannot_be_run_is_refused_before_the_first_run() {
    for (arguments, expected) in [
        (&["bw-pip"][..], "there is no experiment `bw-pip`; did you mean `bw-pipe`?"),
        (
            &["bw-pipe", "--machine", "today,xeon-pu"],
            "there is no machine `xeon-pu`; did you mean `xeon-up`?",
        ),
        (&["bw-pipe", "--kernel", "sfbuf"], "there is no kernel `sfbuf`; did you mean `sf_buf`?"),
        (&["bw-pipe", "--machine", "today,today"], "--machine: `today` is there twice"),
        (
            &["bw-pipe", "--machine", "today,"],
            "--machine today,: expected names or files with commas between",
        ),
        (&["bw-pipe", "--machine", "today,sh-4", "--kernel", "original"], "there is no machine `sh-4`"),
        (&["bw-pipe", "--vary", "chunk_byte=4K"], "did you mean `chunk_bytes`?"),
        (
            &["bw-pipe", "--vary", "chunk_bytes=4K,0"],
            "--vary chunk_bytes: `0`, expected a whole number of bytes",
        ),
        (
            &["bw-pipe", "--vary", "chunk_bytes=4K..8K"],
            "--vary chunk_bytes: `4K..8K`, expected a step behind it",
        ),
        (&["bw-pipe", "--vary", "machine.cpu.clok_mhz=1"], "did you mean `machine.cpu.clock_mhz`?"),
        (&["uvm-pipe", "--vary", "send=copy,laon"], "--vary send: `laon`, did you mean `loan`?"),
        (
            &["bw-pipe", "--set", "chunk_bytes=1", "--vary", "chunk_bytes=2"],
            "--vary chunk_bytes: the setting is there",
        ),
        (
            &["bw-pipe", "--metric", "bandwith_mb_s"],
            "--metric bandwith_mb_s: there is no such metric; did you mean",
        ),
        (
            &["bw-pipe", "--metric", "requests_per_s", "--quick"],
            "does not measure it; its results are bandwidth_mb_s",
        ),
        (&["bw-pipe", "--seed", "18446744073709551615", "--repeat", "2"], "the last of 2 seeds is above"),
        (&["bw-pipe", "--vary", "chunk_bytes=1..9999:1", "--repeat", "100"], "999900 runs, expected at most"),
        (&["bw-pipe", "--repeat", "0"], "expected 1 to 10000"),
        (&["bw-pipe", "--resume"], "--out"),
    ] {
        let dir = here();
        let output = pageferry(dir.path(), &[&["sweep"], arguments].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        let was_run = said.lines().any(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        assert!(output.stdout.is_empty() && !was_run, "{arguments:?} was run: {said}");
        assert_eq!(entries(dir.path()), Vec::<String>::new());
    }
}
