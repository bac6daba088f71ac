//! The web server: sound where it runs, and its cache of mappings in the state that is said.

use pageferry_lab::LabError;
use pageferry_lab::Registry;
use pageferry_lab::files::{KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::Record;
use pageferry_lab::run::{Choices, RunSpec};
use std::sync::Arc;

const SMALL: [&str; 3] = ["requests=30", "warmup_requests=10", "kernel.ephemeral.entries=64"];

fn try_run(machine: &str, kernel: &str, settings: &[&str]) -> Result<Record, LabError> {
    let experiment = Arc::new(Registry::standard().experiment("web")?);
    let (machine, kernel) = (MachineChoice::find(machine)?, KernelChoice::find(kernel)?);
    let settings: Vec<&str> = SMALL.iter().chain(settings).copied().collect();
    let choices = Choices { quick: true, ..Choices::default() };
    let spec = RunSpec::new(
        &Registry::standard(),
        &experiment,
        machine,
        kernel,
        &Settings::parse(&settings)?,
        choices,
    )?;
    pageferry_lab::run::run(&spec).map(|result| result.record)
}

fn run(machine: &str, kernel: &str, settings: &[&str]) -> Record {
    let record = try_run(machine, kernel, settings).unwrap_or_else(|e| panic!("{machine} {kernel}: {e}"));
    assert_eq!(record.broken(), Vec::<String>::new(), "{}", record.title());
    record
}

#[test]
fn files_arrive_as_they_are() {
    for machine in ["xeon-up", "today"] {
        for kernel in ["original", "sf_buf"] {
            let record = run(machine, kernel, &[]);
            assert!(record.results["throughput_mbit_s"] > 100.0, "{}", record.title());
            assert!(record.counters["pages_lent"] > 30, "{}", record.title());
        }
    }
}

/// sf_buf paper, 6.5.2: with the card's checksums nobody looks at the pages, and a miss invalidates nothing.
#[test]
fn who_sums_decides_what_a_miss_costs() {
    let card = run("xeon-mp", "sf_buf", &["offload=true"]);
    let cpu = run("xeon-mp", "sf_buf", &["offload=false"]);
    for record in [&card, &cpu] {
        assert!(record.counters["ephemeral_misses"] > 50, "{}", record.title());
    }
    assert!(card.results["tlb_invalidations"] < 10.0, "{:?}", card.results);
    let misses = cpu.counters["ephemeral_misses"];
    assert!(cpu.counters["tlb_invalidations_remote_issued"] > misses / 2, "{:?}", cpu.counters);
}

/// More mappings than pages: all that the trace has used is there.
#[test]
fn mappings_are_there_before_the_first_request() {
    let log = ["a", "b", "a", "c"].iter().cycle().take(400).enumerate().map(|(second, name)| {
        let at = format!("[01/Aug/1995:00:{:02}:{:02} -0400]", second / 60, second % 60);
        format!("host - - {at} \"GET /{name} HTTP/1.0\" 200 {}\n", 5000 * name.len() + second % 7)
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    std::fs::write(&path, log.chain(["broken\n".to_owned()]).collect::<String>()).expect("written");
    let trace = format!("trace={}", path.display());
    let record = run("xeon-up", "sf_buf", &[&trace]);
    assert_eq!(record.counters["ephemeral_misses"], 0);
    assert_eq!(record.results["ephemeral_hit_rate_percent"], 100.0);
    assert_eq!(record.results["log_lines_skipped"], 1.0);
    assert_eq!(record.results["log_first_skipped_line"], 401.0);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("empty.log");
    std::fs::write(&path, "").expect("written");
    let trace = format!("trace={}", path.display());
    let error = try_run("xeon-up", "sf_buf", &[&trace]).expect_err("empty").to_string();
    assert!(error.contains("empty.log") && error.contains("none of its 0 lines"), "{error}");
    let error = try_run("xeon-up", "sf_buf", &["trace=nsa"]).expect_err("no such trace").to_string();
    assert!(error.contains("did you mean `nasa`"), "{error}");
    let error = try_run("ppc603", "linux-ppc", &[]).expect_err("no card").to_string();
    assert!(error.contains("expected a"), "{error}");
}
