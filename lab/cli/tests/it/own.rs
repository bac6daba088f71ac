//! Files and workloads of one's own: what is said of them where they are wrong, and that the command knows them.

use crate::common::{command, done, pageferry, text};
use std::fs;
use std::path::Path;
use std::process::Command;

fn refused_in(dir: &Path, arguments: &[&str]) -> String {
    let output = pageferry(dir, arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    said
}

/// What is said of a machine file with these contents.
fn of_machine(contents: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("box.toml"), contents).expect("written");
    refused_in(dir.path(), &["machines", "box.toml"])
}

fn settings_of(arguments: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, _) = done(dir.path(), arguments);
    serde_json::from_str::<serde_json::Value>(&out).expect("a run")["settings"].clone()
}

#[test]
fn a_number_may_have_its_unit_in_each_command() {
    let set = ["chunk_bytes=16K", "kernel.ephemeral.entries=2K", "machine.cpu.clock_mhz=1_000"];
    let sets = set.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["run", "bw-pipe", "--quick", "--json", "--kernel", "sf_buf"].into();
    let settings = settings_of(&arguments.into_iter().chain(sets).collect::<Vec<_>>());
    assert_eq!(settings["chunk_bytes"], 16384);
    assert_eq!(settings["kernel.ephemeral.entries"], 2048);
    assert_eq!(settings["machine.cpu.clock_mhz"], 1000);
    // A word may look like such a number.
    let words = [
        "sweep",
        "kernel-pages-read",
        "--quick",
        "--vary",
        "kernel.pmap.mapping=pte,2m",
        "--set",
        "second_superpages=true",
    ];
    let (out, _) = done(tempfile::tempdir().expect("a directory").path(), &words);
    assert!(out.contains("  2m "), "{out}");
}

#[test]
fn what_is_wrong_with_a_machine_is_told_in_its_units() {
    let said = of_machine("extends = \"xeon-up\"\n[cpu]\nclock_mhz = 2900000000\n");
    assert!(said.contains("box.toml:3:") && said.contains("2900000000, expected "), "{said}");
    assert!(said.trim_end().ends_with(" MHz"), "{said}");
    let said = of_machine("extends = \"xeon-up\"\n[cpu]\ncpus = 4\n");
    assert!(said.contains("`cpu.packages` times `cpu.threads_per_package`"), "{said}");
}

#[test]
fn a_key_without_its_table_is_told_with_the_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = refused_in(dir.path(), &["run", "bw-pipe", "--set", "machine.clock_mhz=3000"]);
    assert!(said.contains("did you mean `machine.cpu.clock_mhz`?"), "{said}");
    let said = refused_in(dir.path(), &["run", "bw-pipe", "--set", "machin.cpu.clock_mhz=3000"]);
    assert!(said.contains("did you mean `machine.cpu.clock_mhz`?"), "{said}");
    let said = refused_in(dir.path(), &["run", "bw-pipe", "--set", "machine.cpu.cpus=2"]);
    assert!(said.contains("`cpu.packages` times"), "{said}");
    let said = refused_in(dir.path(), &["sweep", "bw-pipe", "--vary", "kernel.entires=1,2"]);
    assert!(said.contains("did you mean `kernel.ephemeral.entries`?"), "{said}");
}

#[test]
fn a_file_that_extends_another_is_not_called_like_it() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("box4.toml"), "extends = \"xeon-up\"\ncpu.clock_mhz = 3000\n")
        .expect("written");
    let (out, _) = done(dir.path(), &["machines", "box4.toml"]);
    assert!(out.contains("title = \"box4, made from "), "{out}");
    fs::write(dir.path().join("mine.toml"), "extends = \"sf_buf\"\n").expect("written");
    let (out, _) = done(dir.path(), &["kernels", "mine.toml"]);
    assert!(out.contains("title = \"mine, made from "), "{out}");
}

/// Writes a run of `bw-pipe` on `machine` to `folder`.
fn run_into(dir: &Path, folder: &str, machine: &str, kernel: &str) {
    let run = ["run", "bw-pipe", "--quick", "--json", "--machine", machine, "--kernel", kernel];
    let (out, _) = done(dir, &run);
    fs::create_dir_all(dir.join(folder)).expect("made");
    fs::write(dir.join(folder).join(format!("{kernel}.json")), out).expect("written");
}

#[test]
fn runs_of_a_machine_of_ones_own_ask_for_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("box.toml"), "extends = \"xeon-up\"\n").expect("written");
    run_into(dir.path(), "runs", "box.toml", "sf_buf");
    for arguments in [["report", "runs", "--out=a"], ["diff", "runs", "runs"]] {
        let said = refused_in(dir.path(), &arguments);
        assert!(said.contains("runs: a run is of the machine `box`, which is not built in"), "{said}");
        assert!(said.contains("put its file, `box.toml`, into the folder"), "{said}");
    }
    fs::copy(dir.path().join("box.toml"), dir.path().join("runs/box.toml")).expect("copied");
    done(dir.path(), &["report", "runs"]);
}

#[test]
fn folders_of_two_machines_are_a_sweep() {
    let dir = tempfile::tempdir().expect("a directory");
    for kernel in ["original", "sf_buf"] {
        run_into(dir.path(), "old", "xeon-up", kernel);
        run_into(dir.path(), "new", "today", kernel);
    }
    let said = refused_in(dir.path(), &["diff", "old", "new"]);
    assert!(
        said.contains("`pageferry sweep bw-pipe --machine xeon-up,today` puts both in one table"),
        "{said}"
    );
}

#[test]
fn an_own_experiment_that_nothing_is_compared_with_counts_no_published_results() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = "extends = \"bw-pipe\"\ntitle = \"Mine\"\ncompare = []\n\
                matrix = [{ machines = [\"xeon-up\"], kernels = [\"sf_buf\"] }]\n";
    fs::write(dir.path().join("mine.toml"), file).expect("written");
    let (out, _) = done(dir.path(), &["reproduce", "--quick", "mine.toml"]);
    assert!(!out.contains("are judged") && !out.contains("were not run"), "{out}");
    assert!(out.contains("0 runs broke a law."), "{out}");
}

#[test]
fn rows_that_look_alike_say_of_which_runs_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let paper = "title = \"Pipes\"\nauthors = \"N. N.\"\nvenue = \"here\"\nshort = \"my paper\"\n\
                 [[number]]\nid = \"mine\"\nsection = \"2\"\nmetric = \"gain\"\nvalue = 0\nunit = \"%\"\n\
                 relation = \"eq\"\nrole = \"result\"\n";
    fs::write(dir.path().join("mine.toml"), paper).expect("written");
    let rule = |chunk: &str| {
        format!(
            "{{ published = \"mine\", how = \"gain\", metric = \"bandwidth_mb_s\", kernel = \"sf_buf\", \
             over = \"original\", machines = [\"xeon-mp\"], set = [\"chunk_bytes={chunk}\"] }}"
        )
    };
    let file = format!(
        "extends = \"bw-pipe\"\ntitle = \"Mine\"\npaper = \"mine.toml\"\ncurves = []\n\
         matrix = [{{ machines = [\"xeon-mp\"], kernels = [\"original\", \"sf_buf\"], \
         vary = [{{ key = \"chunk_bytes\", values = [16384, 65536] }}] }}]\ncompare = [{}, {}]\n",
        rule("16K"),
        rule("65536")
    );
    fs::write(dir.path().join("pipe.toml"), file).expect("written");
    let (out, _) = done(dir.path(), &["reproduce", "--quick", "pipe.toml"]);
    for chunk in ["16384", "65536"] {
        assert!(out.contains(&format!(" (pipe, chunk_bytes={chunk}, sf_buf)")), "{out}");
    }
    // What is published as nothing has no ratio.
    assert!(!out.contains("inf"), "{out}");
}

#[test]
fn each_number_is_listed_with_its_range() {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, _) = done(dir.path(), &["machines", "xeon-up", "--ranges"]);
    let line = out.lines().find(|line| line.starts_with("cpu.packages ")).expect("it is a number");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["cpu.packages", "1", "1", "64"]);
    let (out, _) = done(dir.path(), &["kernels", "sf_buf", "--ranges"]);
    assert!(out.contains("ephemeral.entries "), "{out}");
}

#[test]
fn a_sweep_says_that_what_its_file_says_is_of_the_experiment() {
    let dir = tempfile::tempdir().expect("a directory");
    done(dir.path(), &["sweep", "bw-pipe", "--quick", "--vary", "chunk_bytes=4K,16K", "--out", "s"]);
    let page = fs::read_to_string(dir.path().join("s/report.html")).expect("written");
    assert!(
        page.contains("A sweep over chunk_bytes, of the experiment that its file describes so: "),
        "{page}"
    );
}

/// `cargo test` builds the example beside the command.
#[test]
fn the_command_knows_the_workloads_of_another_registry() {
    let own = Path::new(env!("CARGO_BIN_EXE_pageferry")).with_file_name("examples").join("own_command");
    assert!(own.is_file(), "{}: `cargo build --examples -p pageferry-cli` makes it", own.display());
    let dir = tempfile::tempdir().expect("a directory");
    let said = |arguments: &[&str]| {
        let output = Command::new(&own).args(arguments).current_dir(dir.path()).output().expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(said(&["experiments"]).contains("fork-touch"));
    assert!(said(&["sweep", "fork-touch", "--quick", "--vary", "pages=8,16"]).contains("16"));
    let output = command(dir.path(), &["run", "fork-touch"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
}
