//! The journal of finished runs: what is found in it again. Here and not beside its code, since a test that makes a run
//! is compiled with the whole kernel once more.

use pageferry_lab::Registry;
use pageferry_lab::record::RunResult;
use pageferry_lab::run::{Choices, Journal, matrix, run};
use std::sync::Arc;

#[test]
fn a_run_is_found_again_to_the_last_digit_and_only_where_it_would_be_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("runs.jsonl");
    let experiment = Arc::new(Registry::standard().experiment("invalidate").expect("embedded"));
    let quick = Choices { quick: true, ..Choices::default() };
    let plan = matrix(&Registry::standard(), &experiment, quick).expect("good");
    let result = run(&plan[0]).expect("it runs");
    Journal::open(&path).and_then(|journal| journal.add(&plan[0], &result)).expect("kept");
    // A process was killed in the middle of a line.
    let torn = std::fs::read(&path).expect("there");
    std::fs::write(&path, [&torn[..], &torn[..torn.len() / 2]].concat()).expect("written");
    let journal = Journal::open(&path).expect("open");
    let same = |a: &RunResult, b: &RunResult| {
        serde_json::to_string(a).expect("JSON") == serde_json::to_string(b).expect("JSON")
    };
    assert!(same(journal.find(&plan[0]).expect("kept"), &result));
    assert!(journal.find(&plan[1]).is_none());
    let other = matrix(&Registry::standard(), &experiment, Choices { seed: 2, ..quick }).expect("good");
    assert!(journal.find(&other[0]).is_none(), "another seed");
    journal.add(&plan[1], &result).expect("kept");
    let journal = Journal::open(&path).expect("open");
    assert!(journal.find(&plan[0]).is_some() && journal.find(&plan[1]).is_some());
    let mut changed = plan[0].clone();
    Arc::make_mut(&mut changed.machine).config.cpu.clock_mhz.value += 1;
    assert!(journal.find(&changed).is_none(), "another machine under the same name");
}
