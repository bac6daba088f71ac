//! A report of a folder: what was written there is read again, and gives the same.

use crate::report::reproduction;
use pageferry_lab::record::RunResult;
use pageferry_lab::{LabError, Registry};
use pageferry_report::{Report as _, folder};
use std::fs;
use std::path::Path;

const FILES: [&str; 9] = [
    "report.html",
    "papers/uvm.html",
    "figures/pays.csv",
    "results.json",
    "results.csv",
    "runs.csv",
    "published.csv",
    "crossovers.csv",
    "dictionary.csv",
];

fn same(a: &Path, b: &Path) {
    for file in FILES {
        let read = |dir: &Path| fs::read_to_string(dir.join(file)).expect("written");
        assert!(read(a) == read(b), "{file} differs");
    }
}

#[test]
fn a_folder_gives_the_same_report_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    reproduction(|_| ()).write_to(&first).expect("written");
    // Nothing of it depends on which workloads there are, but what they draw.
    folder::read(&Registry::standard(), &first).expect("read").write_to(&second).expect("written");
    same(&first, &second);
}

#[test]
fn runs_one_by_one_are_records_too() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let of = reproduction(|_| ());
    let runs: Vec<&RunResult> = of.runs.iter().collect();
    assert!(runs.len() < 10_000, "their names are in order");
    for (i, run) in runs.iter().enumerate() {
        let text = serde_json::to_string(run).expect("plain data");
        fs::write(dir.path().join(format!("run{i:04}.json")), text).expect("written");
    }
    fs::write(dir.path().join("other.json"), "{}").expect("written");
    let read = folder::read(&Registry::standard(), dir.path()).expect("read");
    assert_eq!(read.runs, of.runs);
    assert_eq!(read.comparisons.len(), of.comparisons.len());
    // A file of the experiment's name that lies beside them counts more than what is built in.
    let own = dir.path().join(format!("{}.toml", runs[0].record.experiment));
    fs::write(&own, "nonsense").expect("written");
    let refused = folder::read(&Registry::standard(), dir.path()).expect_err("no experiment");
    assert!(refused.to_string().starts_with(&own.display().to_string()), "{refused}");
}

#[test]
fn what_is_no_record_is_refused_with_its_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let told = |dir: &Path| folder::read(&Registry::standard(), dir).expect_err("refused").to_string();
    assert!(told(dir.path()).contains("it has no records: expected results.json"));
    assert!(matches!(
        folder::read(&Registry::standard(), &dir.path().join("none")),
        Err(LabError::Io { .. })
    ));
    fs::write(dir.path().join("results.json"), "{\"quick\": 3}").expect("written");
    let said = told(dir.path());
    assert!(said.contains("results.json: invalid type") && said.contains("another version"), "{said}");
    fs::remove_file(dir.path().join("results.json")).expect("it is there");
    // A run that is cut short, or lacks a part, is not left out in silence; what is about something else is.
    for (broken, why) in
        [("{\"experiment\": \"bw-pi", "EOF"), ("{\"experiment\": \"bw-pipe\"}", "another version")]
    {
        fs::write(dir.path().join("run.json"), broken).expect("written");
        let said = told(dir.path());
        assert!(said.contains("run.json") && said.contains(why), "{said}");
    }
    fs::write(dir.path().join("run.json"), "{\"name\": \"other\"}").expect("written");
    assert!(told(dir.path()).contains("it has no records"));
}
