//! The experiments over sockets: sound on every machine, and moving what they say they move.

use pageferry_lab::LabError;
use pageferry_lab::Registry;
use pageferry_lab::files::{KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::Record;
use pageferry_lab::run::{Choices, RunSpec, Schedule};
use std::sync::Arc;

fn try_run(
    experiment: &str,
    machine: &str,
    settings: &[&str],
    schedule: Schedule,
) -> Result<Record, LabError> {
    let experiment = Arc::new(Registry::standard().experiment(experiment)?);
    let (machine, kernel) = (MachineChoice::find(machine)?, KernelChoice::find("uvm")?);
    let choices = Choices { quick: true, schedule, ..Choices::default() };
    let spec = RunSpec::new(
        &Registry::standard(),
        &experiment,
        machine,
        kernel,
        &Settings::parse(settings)?,
        choices,
    )?;
    pageferry_lab::run::run(&spec).map(|result| result.record)
}

fn run(experiment: &str, machine: &str, settings: &[&str]) -> Record {
    let record = try_run(experiment, machine, settings, Schedule::Timed)
        .unwrap_or_else(|e| panic!("{settings:?}: {e}"));
    assert_eq!(record.broken(), Vec::<String>::new(), "{} {settings:?}", record.title());
    record
}

const TOTAL: &str = "total_bytes=1048576";
const PAGES: u64 = 256;

#[test]
fn what_is_said_to_be_moved_is_moved() {
    let at = |experiment: &str, settings: &[&str]| {
        run(experiment, "pentium-pro", &[settings, &[TOTAL, "size_bytes=65536"]].concat())
    };
    let count = |record: &Record, name: &str| record.counters[name];
    let copied = 1 << 20;

    let write = at("null-write", &["send=copy"]);
    assert_eq!((count(&write, "bytes_copied"), count(&write, "pages_lent")), (copied, 0));
    let write = at("null-write", &["send=loan"]);
    assert_eq!((count(&write, "bytes_copied"), count(&write, "pages_lent")), (0, PAGES));

    let read = at("null-read", &["receive=copy"]);
    assert_eq!((count(&read, "bytes_copied"), count(&read, "pages_donated")), (copied, 0));
    let read = at("null-read", &["receive=transfer"]);
    assert_eq!((count(&read, "bytes_copied"), count(&read, "pages_donated")), (0, PAGES));
    assert_eq!(count(&read, "page_faults"), 0, "a page that was received is mapped");

    let moved = |send: &str, receive: &str| {
        let record = at("uvm-pipe", &[send, receive]);
        ["bytes_copied", "pages_lent", "pages_donated", "pages_lent_on"].map(|name| record.counters[name])
    };
    // The measured part begins with the reader; the writer may be a write ahead.
    let near = |counts: [u64; 4], expected: [u64; 4]| {
        let slack = [65536, 16, 0, 0];
        for (i, (&count, &expected)) in counts.iter().zip(&expected).enumerate() {
            assert!(count.abs_diff(expected) <= slack[i], "{counts:?}, not {expected:?}");
        }
    };
    near(moved("send=copy", "receive=copy"), [2 * copied, 0, 0, 0]);
    near(moved("send=copy", "receive=transfer"), [copied, 0, PAGES, 0]);
    near(moved("send=loan", "receive=copy"), [copied, PAGES, 0, 0]);
    near(moved("send=loan", "receive=transfer"), [0, PAGES, 0, PAGES]);
}

#[test]
fn any_size_on_any_machine_and_any_schedule() {
    for machine in ["pentium-pro", "xeon-mp-htt", "opteron-mp"] {
        for size in ["size_bytes=1", "size_bytes=5000", "size_bytes=69632"] {
            let total = if size == "size_bytes=1" { "total_bytes=50" } else { "total_bytes=60000" };
            // Booting is most of a short run's time.
            let memory = "machine.memory.size_mb=32";
            for send in ["send=copy", "send=loan"] {
                run("null-write", machine, &[size, send, total, memory]);
                for receive in ["receive=copy", "receive=transfer"] {
                    if send == "send=copy" {
                        run("null-read", machine, &[size, receive, total, memory]);
                    }
                    let all = [size, send, receive, total, memory];
                    run("uvm-pipe", machine, &all);
                    let seeded = try_run("uvm-pipe", machine, &all, Schedule::Seeded).expect("a run");
                    assert_eq!(seeded.broken(), Vec::<String>::new(), "{machine} {all:?}, seeded");
                }
            }
        }
    }
}

#[test]
fn moving_pages_pays_for_large_sizes() {
    let at = |experiment: &str, choice: &str, size: &str| {
        let settings = [choice, size, TOTAL];
        run(experiment, "pentium-pro", &settings).metric("bandwidth_mb_s").expect("measured")
    };
    let (small, large) = ("size_bytes=4096", "size_bytes=262144");
    assert!(at("null-write", "send=loan", large) > at("null-write", "send=copy", large));
    assert!(at("null-read", "receive=transfer", large) > at("null-read", "receive=copy", large));
    assert!(at("null-read", "receive=transfer", small) < at("null-read", "receive=copy", small));
}

#[test]
fn a_wrong_choice_and_a_kernel_without_null_protocol_are_told() {
    let message = |settings: &[&str]| {
        try_run("null-write", "pentium-pro", settings, Schedule::Timed).expect_err("refused").to_string()
    };
    assert_eq!(message(&["send=laon"]), "--set send: `laon`, did you mean `loan`?");
    assert!(message(&["receive=copy"]).contains("no such parameter"));
    assert!(message(&["size_bytes=0"]).contains("at least 1"));
    assert!(message(&["kernel.socket.null_protocol=false"]).contains("EOPNOTSUPP"));
    assert!(message(&["size_bytes=67108864"]).contains("do not fit"));
}
