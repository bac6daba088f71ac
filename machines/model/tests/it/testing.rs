//! One body under many schedules, and the failing one again.

use pageferry_hal::*;
use pageferry_model::testing::{Wrong, find, replay, seeds};
use pageferry_model::{EventKind, MachineConfig, Model, Options, RunError};
use std::cell::Cell;
use std::process::Command;
use std::rc::Rc;

fn machine() -> MachineConfig {
    MachineConfig::named("xeon-mp").expect("it is built in")
}

/// Two CPUs count to two, with a lock or without.
fn count(m: &Model, locked: bool) -> Option<ContextId> {
    let lock = Rc::new(m.new_lock(LockClass::new("count", 1), ()));
    let (sum, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let add = {
        let (m, sum, done) = (m.clone(), sum.clone(), done.clone());
        move || {
            let _held = locked.then(|| lock.lock());
            let old = sum.get();
            m.execute(Instructions(10));
            sum.set(old + 1);
            m.tlb_flush(Flush::All);
            done.set(done.get() + 1);
        }
    };
    let other = add.clone();
    let entry = move || {
        other();
        None
    };
    m.start_cpu(CpuId(1), m.context_new("other", Box::new(entry)));
    add();
    m.spin_until(&mut || done.get() == 2);
    assert_eq!(sum.get(), 2, "both have counted");
    None
}

#[test]
fn what_is_right_is_right_under_all_seeds() {
    seeds(&machine(), Options::default(), 0..50, |m| count(m, true));
    assert!(find(&machine(), Options::default(), 0..50, |m| count(m, true)).is_none());
}

#[test]
fn a_seed_that_goes_wrong_goes_wrong_again_and_tells_what_was_done() {
    let options = Options::default();
    let wrong = find(&machine(), options, 0..50, |m| count(m, false)).expect("one loses an addition");
    let again = replay(&machine(), options, wrong.seed, 1000, |m| count(m, false));
    assert!(
        matches!(&again.result, Err(Wrong::Run(RunError::Panicked(text))) if text.contains("both have counted"))
    );
    assert_eq!((&again.result, &again.accounts), (&wrong.result, &wrong.accounts));
    assert!(again.events.ends_with(&wrong.events));
    let starts = again.events.iter().find(|e| e.what == EventKind::Starts(CpuId(1))).expect("it is noted");
    assert!(starts.context == "boot" && starts.by.is_some_and(|by| by.file().ends_with("testing.rs")));
    let few = replay(&machine(), options, wrong.seed, 2, |m| count(m, false));
    assert!(few.events.len() == 2 && again.events.ends_with(&few.events), "the last ones are kept");
    let none = replay(&machine(), options, wrong.seed, 0, |m| count(m, false));
    assert_eq!((none.events, none.accounts), (vec![], again.accounts), "what is noted costs nothing");
}

#[test]
#[should_panic(expected = "to see all of it: PAGEFERRY_SEED=")]
fn the_seed_is_told() {
    seeds(&machine(), Options::default(), 0..50, |m| count(m, false));
}

/// For the tests below, which run it in a process of its own.
#[test]
#[ignore = "goes wrong on purpose"]
fn goes_wrong() {
    seeds(&machine(), Options::default(), 0..50, |m| count(m, false));
}

#[test]
fn one_seed_is_replayed_by_the_environment() {
    let wrong = find(&machine(), Options::default(), 0..50, |m| count(m, false)).expect("one is wrong");
    let run = |seed: &str| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--ignored", "--exact", "testing::goes_wrong", "--nocapture"])
            .env("PAGEFERRY_SEED", seed);
        let output = command.output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (well, said) = run(&wrong.seed.to_string());
    assert!(!well && said.contains(&format!("seed {}: panic: ", wrong.seed)), "{said}");
    assert!(said.contains("cpu0 boot         starts cpu1"), "{said}");
    let right = (0..50)
        .find(|&seed| replay(&machine(), Options::default(), seed, 0, |m| count(m, false)).result.is_ok());
    let (well, said) = run(&right.expect("one is right").to_string());
    assert!(well && said.contains("all is well"), "{said}");
    let (well, said) = run("seventeen");
    assert!(!well && said.contains("PAGEFERRY_SEED=seventeen: expected a number"), "{said}");
}

/// For `failing_seeds_print_nothing_of_their_own`, which runs it in a process of its own.
#[test]
#[ignore = "prints on purpose"]
fn finds_the_one_that_goes_wrong() {
    let wrong = find(&machine(), Options::default(), 0..50, |m| count(m, false)).expect("one is wrong");
    for seed in 0..20 {
        let _ = replay(&machine(), Options::default(), seed, 0, |m| count(m, false));
    }
    eprintln!("found:\n{wrong}");
}

#[test]
fn failing_seeds_print_nothing_of_their_own() {
    let run = |backtrace: &str| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--ignored", "--exact", "testing::finds_the_one_that_goes_wrong", "--nocapture"])
            .env_remove("PAGEFERRY_SEED")
            .env("RUST_BACKTRACE", backtrace);
        let output = command.output().expect("it runs");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run("0");
    let (before, told) = said.split_once("found:\n").expect("one was found");
    assert_eq!(before, "", "the seeds are quiet");
    // All that a panic would have printed is there, once: its words, its place, and the calls if they are asked for.
    for words in ["both have counted", "panicked at machines/model/tests/it/testing.rs:"] {
        assert_eq!(told.matches(words).count(), 1, "{told}");
    }
    // Calls are told by their names: places of theirs are in programs only that were built with tables of lines.
    let calls = |said: &str| said.matches("testing::count").count();
    let with_calls = run("1");
    assert!(with_calls.starts_with("found:\n") && calls(&with_calls) > calls(told), "{with_calls}");
    assert!(!with_calls.contains("corosensei"), "the calls of the kernel, not of the host: {with_calls}");
}

#[test]
fn the_failing_seed_is_told_once() {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--ignored", "--exact", "testing::goes_wrong", "--nocapture"]);
    let output = command.env_remove("PAGEFERRY_SEED").env("RUST_BACKTRACE", "0").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.matches("both have counted").count(), 1, "{said}");
    assert_eq!(said.matches("panicked at").count(), 2, "of the seed, and of the test: {said}");
}
