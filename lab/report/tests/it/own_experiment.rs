//! An experiment that this workspace does not have: found by name, swept, run, reported; and what is said of its file
//! when it is wrong.

#[allow(dead_code, reason = "its `main` is for the example")]
#[path = "../../examples/own_experiment/main.rs"]
mod own;

use pageferry_lab::LabError;
use pageferry_lab::record::Record;
use pageferry_lab::run::{Choices, Silent, execute, matrix};
use pageferry_report::{Report as _, folder};
use std::fs;
use std::sync::Arc;

const TOML: &str = include_str!("../../examples/own_experiment/fork-touch.toml");

fn refused(text: &str) -> String {
    let registry = own::registry().with_experiment("own", text);
    registry.experiment("own").expect_err("refused").to_string()
}

#[test]
fn an_experiment_of_ones_own_is_swept_run_and_reported() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = dir.path().join("out");
    let of = own::report(&out).expect("it runs");
    assert_eq!(of.runs.len(), 2 * 3 * 2);
    assert_eq!(of.broken(), []);
    let us = |pages: i64, touch: &str| {
        let mut records = of.records().filter(|r| r.machine == "opteron-mp");
        let is_it = |r: &&Record| r.number("pages") == Some(pages as f64) && r.setting_is("touch", touch);
        records.find(is_it).and_then(|r| r.metric("fork_us")).expect("it was run")
    };
    assert!(us(256, "all") > us(64, "all") && us(64, "all") > us(64, "none"));

    let read = |file: &str| fs::read_to_string(out.join(file)).expect("written");
    assert!(read("results.csv").contains(",fork_us,us,"));
    assert!(
        read("dictionary.csv").contains("fork_us,us,Modelled time from a fork until its child has ended.")
    );
    assert!(read("report.html").contains("A fork, by what its child writes to"));
    assert!(read("figures/fork-touch.svg").starts_with("<svg"));
    // The folder is enough to report again, also for a program that does not know the workload; it cannot draw it.
    let again = folder::read(&pageferry_lab::Registry::standard(), &out).expect("read");
    assert_eq!(again.runs, of.runs);
    assert_eq!((of.plots.len(), again.plots.len()), (1, 0));
}

#[test]
fn a_file_of_ones_own_that_is_wrong_is_told_where() {
    let told = refused(&TOML.replace("workload = \"fork-touch\"", "workload = \"fork-tuch\""));
    assert!(told.starts_with("own.toml:4:12: `workload`: unknown workload `fork-tuch`"), "{told}");
    assert!(told.ends_with("did you mean `fork-touch`?"), "{told}");
    let told = refused(&TOML.replace("parameters.pages", "parameters.page"));
    assert!(told.contains("`pages` is missing, which the workload reads"), "{told}");
    let told = refused(&TOML.replacen("value = 64", "value = \"many\"", 1));
    assert!(told.starts_with("own.toml:7:9: `parameters.pages.value`: found the text \"many\""), "{told}");
    let told = refused(&TOML.replacen("value = 64", "value = 1_000_000", 1));
    assert!(told.contains("`parameters.pages.value`: 1000000, expected 1 to 16384"), "{told}");
    let told = refused(
        &TOML
            .replace("[\"none\", \"all\"]", "[\"none\", \"al\"]")
            .replace("value = \"all\"", "value = \"al\""),
    );
    assert!(
        told.contains("`al`, expected some of: none, all") && told.ends_with("did you mean `all`?"),
        "{told}"
    );
}

#[test]
fn an_experiment_of_ones_own_is_run_by_settings_too() {
    let registry = own::registry();
    let experiment = Arc::new(registry.experiment("fork-touch").expect("added"));
    let quick = Choices { quick: true, ..Choices::default() };
    let plan = matrix(&registry, &experiment, quick).expect("a matrix");
    assert!(plan.iter().all(|run| run.weight() > 1));
    assert_eq!(execute(&plan[..1], 1, &Silent).expect("it runs").len(), 1);
    let misspelt = registry.experiment("fork-tuch").expect_err("no such experiment");
    assert!(
        matches!(&misspelt, LabError::Unknown { nearest: Some(name), .. } if name == "fork-touch"),
        "{misspelt}"
    );
}

const PAPER: &str = "title = \"Pipes\"\nauthors = \"N. N.\"\nvenue = \"here\"\nshort = \"my paper\"\n\
                     [[number]]\nid = \"mine\"\nsection = \"2\"\nmetric = \"gain\"\nvalue = 1\nunit = \"%\"\n\
                     relation = \"eq\"\nrole = \"result\"\n";
const EXTENDING: &str = "extends = \"bw-pipe\"\ntitle = \"Mine\"\npaper = \"mine.toml\"\n\
                         parameters.total_bytes = 1048576\n\
                         matrix = [{ machines = [\"xeon-up\"], kernels = [\"original\", \"sf_buf\"] }]\n\
                         compare = [{ published = \"mine\", how = \"gain\", metric = \"bandwidth_mb_s\", \
                         kernel = \"sf_buf\", over = \"original\", machines = [\"xeon-up\"] }]\n";

/// An experiment that extends one that is built in, under a paper of one's own, is run, judged and reported, and the
/// folder is enough to report it again.
#[test]
fn an_experiment_stands_under_a_paper_of_ones_own() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("mine.toml"), PAPER).expect("written");
    let file = dir.path().join("pipe.toml");
    fs::write(&file, EXTENDING).expect("written");
    let registry = pageferry_lab::Registry::standard();
    let experiment = registry.experiment(&file.display().to_string()).expect("good");
    let of_base = registry.experiment("bw-pipe").expect("embedded");
    let (total, base) = (&experiment.file.parameters["total_bytes"], &of_base.file.parameters["total_bytes"]);
    assert_eq!((total.value, total.quick, &*total.source), (1048576, None, "yours"));
    assert_eq!((&total.unit, total.min), (&base.unit, base.min));
    assert_eq!(experiment.file.parameters["chunk_bytes"], of_base.file.parameters["chunk_bytes"]);

    let choices = Choices { quick: true, ..Choices::default() };
    let plan = matrix(&registry, &Arc::new(experiment), choices).expect("a matrix");
    let runs = execute(&plan, 1, &Silent).expect("it runs");
    let of = registry.judged(&plan, runs, choices).expect("judged");
    assert_eq!(of.comparisons.len(), 1);
    let out = dir.path().join("out");
    of.write_to(&out).expect("written");
    fs::remove_file(dir.path().join("mine.toml")).expect("it is there");
    let again = folder::read(&registry, &out).expect("read");
    assert_eq!(again.comparisons, of.comparisons);
    let page = fs::read_to_string(out.join("papers/mine.html")).expect("a page of its own");
    assert!(page.contains("<h1>Pipes</h1>") && page.contains("my paper: 0 of 1 numbers come out"), "{page}");
}

#[test]
fn a_paper_that_is_not_there_is_refused_before_any_run() {
    let told = refused(&TOML.replacen("summary =", "paper = \"sf-buff\"\nsummary =", 1));
    assert!(
        told.contains("`paper`: there is no paper `sf-buff`, expected one of page-flip, ppc-bat"),
        "{told}"
    );
    assert!(told.starts_with("own.toml:") && told.ends_with("did you mean `sf-buf`?"), "{told}");
    let told = refused("extends = \"bw-pip\"\n");
    assert!(told.contains("there is no experiment `bw-pip` to extend"), "{told}");
    assert!(told.ends_with("did you mean `bw-pipe`?"), "{told}");
}
