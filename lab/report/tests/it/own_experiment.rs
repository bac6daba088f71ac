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
    assert!(told.starts_with("own.toml:6:1: `parameters.page`: the workload reads no such thing"), "{told}");
    assert!(told.ends_with("did you mean `pages`?"), "{told}");
    let told = refused(&TOML.replace("choices.touch", "choices.tuoch"));
    assert!(told.contains("`choices.tuoch`: ") && told.ends_with("did you mean `touch`?"), "{told}");
    for text in ["parameters.chunk_byte = 4096", "[parameters.chunk_byte]\nvalue = 4096"] {
        let told = refused(&format!("extends = \"bw-pipe\"\n{text}\n"));
        assert!(told.starts_with("own.toml:2:") && told.contains("`parameters.chunk_byte`: "), "{told}");
        assert!(told.ends_with("did you mean `chunk_bytes`?"), "{told}");
    }
    let told = refused(&TOML.replace("summary =", "# summary ="));
    assert!(told.contains("begins with `extends = \"NAME\"`"), "{told}");
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

/// The experiment with `more` behind it.
fn with(more: &str) -> String {
    format!("{TOML}\n{more}")
}

const CURVES: &str = "[[curves]]\ntitle = \"Forks\"\nsubtitle = \"us\"\nnote = \"\"\nx = \"pages\"\n\
                      metric = \"fork_us\"\nlines = [\n\
                      { name = \"all\", kernel = \"uvm\", set = [\"touch=all\"] },\n\
                      { name = \"none\", kernel = \"uvm\", set = [\"touch=none\"], over = \"all\" },\n]\n";

#[test]
fn a_name_in_curves_that_nothing_has_is_told_with_the_nearest() {
    own::registry().with_experiment("own", &with(CURVES)).experiment("own").expect("good curves");
    for (right, wrong, key, near) in [
        ("x = \"pages\"", "x = \"page\"", "curves[0].x", "pages"),
        ("fork_us", "fork_su", "curves[0].metric", "fork_us"),
        ("\"all\", kernel = \"uvm\"", "\"all\", kernel = \"uvn\"", "curves[0].lines[0].kernel", "uvm"),
        ("touch=none", "tuoch=none", "curves[0].lines[1].set", "touch"),
        ("over = \"all\"", "over = \"al\"", "curves[0].lines[1].over", "all"),
    ] {
        let text = with(&CURVES.replace(right, wrong));
        let told = refused(&text);
        let line = text.lines().position(|line| line.contains(wrong)).expect("it is there") + 1;
        assert!(told.starts_with(&format!("own.toml:{line}:")), "{told}");
        assert!(told.contains(&format!("`{key}`: ")), "{told}");
        assert!(told.ends_with(&format!("did you mean `{near}`?")), "{told}");
    }
    let told = refused(&with(&CURVES.replace("touch=none", "touch=noen")));
    assert!(told.contains("no run of the matrix under uvm has touch=noen"), "{told}");
    let told = refused(&with(&CURVES.replace("x = \"pages\"", "x = \"touch\"")));
    assert!(told.contains("`touch` is a word, expected a number"), "{told}");
}

#[test]
fn a_name_in_a_comparison_that_nothing_has_is_told_with_the_nearest() {
    let refused = |right: &str, wrong: &str| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join("mine.toml"), PAPER.replace(right, wrong)).expect("written");
        let file = dir.path().join("pipe.toml");
        fs::write(&file, EXTENDING.replace(right, wrong)).expect("written");
        let registry = pageferry_lab::Registry::standard();
        registry.experiment(&file.display().to_string()).expect_err("refused").to_string()
    };
    let told = refused("bandwidth_mb_s", "bandwith_mb_s");
    assert!(told.contains("pipe.toml:6:") && told.contains("`compare[0].metric`"), "{told}");
    assert!(told.ends_with("did you mean `bandwidth_mb_s`?"), "{told}");
    let told = refused("value = 1\n", "value = \"25%\"\n");
    assert!(told.contains("mine.toml:9:9: ") && told.ends_with("such as `value = 25`"), "{told}");
    let told = refused("over = \"original\"", "over = \"orginal\"");
    assert!(told.contains("`compare[0].over`") && told.ends_with("did you mean `original`?"), "{told}");
    let told = refused("\"original\", machines = [\"xeon-up\"]", "\"original\", machines = [\"xeon-pu\"]");
    assert!(told.contains("`compare[0].machines`") && told.ends_with("did you mean `xeon-up`?"), "{told}");
}

#[test]
fn a_name_or_a_value_in_the_matrix_that_nothing_has_is_told_where() {
    let told = refused(&TOML.replace("[\"pentium-pro\",", "[\"pentium-por\","));
    assert!(told.starts_with("own.toml:26:13: `matrix[0].machines[0]`: there is no machine"), "{told}");
    assert!(told.ends_with("did you mean `pentium-pro`?"), "{told}");
    let told = refused(&TOML.replace("key = \"pages\"", "key = \"page\""));
    assert!(told.starts_with("own.toml:28:") && told.contains("did you mean `pages`?"), "{told}");
    let told = refused(&TOML.replace("[16, 64, 256]", "[16, 64, 0]"));
    assert!(told.contains("`matrix[0].vary[0].values`") && told.contains("at least 1"), "{told}");
    let told = refused(&TOML.replace("key = \"pages\"", "key = \"machine.cpu.clok_mhz\""));
    assert!(told.contains("did you mean `machine.cpu.clock_mhz`?"), "{told}");
}

#[test]
fn a_unit_that_contradicts_the_name_is_refused() {
    let text = pageferry_lab::files::catalogue::embedded(
        pageferry_lab::files::catalogue::Kind::Experiment,
        "bw-pipe",
    );
    let text = text.expect("embedded").text.replacen("unit = \"bytes\"", "unit = \"KB\"", 1);
    let told = refused(&text);
    assert!(told.contains(".unit`: `KB`, expected `bytes`: the name says it"), "{told}");
}

#[test]
fn a_mechanism_pays_where_it_takes_less_time() {
    let registry = own::registry().with_experiment("own", &with(CURVES));
    let experiment = Arc::new(registry.experiment("own").expect("good"));
    let quick = Choices { quick: true, ..Choices::default() };
    let plan = matrix(&registry, &experiment, quick).expect("a matrix");
    let runs = execute(&plan, 1, &Silent).expect("it runs");
    let of = registry.judged(&plan, runs, quick).expect("judged");
    assert_eq!(of.crossovers.len(), 2);
    for crossover in &of.crossovers {
        assert_eq!(crossover.pays, pageferry_lab::judge::Pays::Always, "{crossover:?}");
        assert!(crossover.gain_at_largest > 1.0, "{crossover:?}");
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = dir.path().join("out");
    of.write_to(&out).expect("written");
    let page = fs::read_to_string(out.join("report.html")).expect("written");
    assert!(page.contains("none below all everywhere"), "{page}");
    // Nothing here is of a paper's time.
    assert!(!page.contains("of the papers' time") && !page.contains("machines of the time"), "{page}");
    assert!(!page.contains("every byte is checked"), "{page}");
}

#[test]
fn which_is_better_is_said_where_the_unit_does_not_say_it() {
    let count = CURVES.replace("fork_us", "page_faults");
    let registry = own::registry().with_experiment("own", &with(&count));
    let Err(told) = registry.experiment("own") else { panic!("refused") };
    let told = told.to_string();
    assert!(told.contains("say `better = \"more\"` or `better = \"less\"`"), "{told}");
    let said = count.replace("x = ", "better = \"less\"\nx = ");
    own::registry().with_experiment("own", &with(&said)).experiment("own").expect("it says so");
}

#[test]
fn a_result_that_is_not_listed_is_an_error() {
    struct Misspelt;
    impl pageferry_lab::run::Workload for Misspelt {
        const NAME: &'static str = "fork-touch";
        type Parameters = own::Parameters;
        fn weight(p: &own::Parameters, machine: &pageferry_lab::model::MachineConfig) -> u64 {
            <own::ForkTouch as pageferry_lab::run::Workload>::weight(p, machine)
        }
        fn metrics() -> Vec<pageferry_lab::record::Metric> {
            vec![pageferry_lab::record::metric("forks_us", "us", "Modelled time of a fork.")]
        }
        fn program(
            p: own::Parameters,
            testbed: &mut pageferry_lab::run::Testbed,
            outcome: pageferry_lab::kit::OutcomeCell,
        ) -> Result<pageferry_lab::kernel::Program<pageferry_lab::model::Model>, LabError> {
            <own::ForkTouch as pageferry_lab::run::Workload>::program(p, testbed, outcome)
        }
    }
    let registry = own::registry().with::<Misspelt>();
    let experiment = Arc::new(registry.experiment("fork-touch").expect("added"));
    let quick = Choices { quick: true, ..Choices::default() };
    let plan = matrix(&registry, &experiment, quick).expect("a matrix");
    let told = execute(&plan[..1], 1, &Silent).expect_err("not listed").to_string();
    assert!(told.contains("workload `fork-touch`: a run left the result `fork_us`"), "{told}");
    assert!(told.ends_with("did you mean `forks_us`?"), "{told}");
    // As what a `main` returns, an error is told in words.
    assert_eq!(told, format!("{:?}", execute(&plan[..1], 1, &Silent).expect_err("not listed")));
}

#[test]
fn an_experiment_of_ones_own_without_figures_shows_its_runs() {
    let registry = own::registry();
    let experiment = Arc::new(registry.experiment("fork-touch").expect("added"));
    let quick = Choices { quick: true, ..Choices::default() };
    let plan = matrix(&registry, &experiment, quick).expect("a matrix");
    let runs = execute(&plan, 1, &Silent).expect("it runs");
    let mut of = registry.judged(&plan, runs, quick).expect("judged");
    of.plots.clear();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = dir.path().join("out");
    of.write_to(&out).expect("written");
    let page = fs::read_to_string(out.join("report.html")).expect("written");
    assert!(page.contains("<th class=\"n\">fork_us, us</th>"), "{page}");
    assert!(page.contains("<td>opteron-mp</td><td>uvm</td>"), "{page}");
    assert_eq!(page.contains("<code>figures/</code>"), out.join("figures").is_dir(), "{page}");
}

#[test]
fn few_repeats_have_a_range_and_no_interval() {
    let registry = own::registry().with_experiment("own", &with(CURVES));
    let experiment = Arc::new(registry.experiment("own").expect("good"));
    let quick = Choices { quick: true, ..Choices::default() };
    let plan = pageferry_lab::run::matrix_repeated(&registry, &experiment, quick, 3).expect("a matrix");
    let runs = execute(&plan, 0, &Silent).expect("it runs");
    let of = registry.judged(&plan, runs, quick).expect("judged");
    let page = &of.pages()[0].html;
    assert!(page.contains("from the lowest to the highest of its repeats"), "{page}");
    assert!(!page.contains("93 of 100") && !page.contains("interval of the median"), "{page}");
}

/// A workload that never ends, or that ends by a fatal signal.
struct Faulty;

impl pageferry_lab::run::Workload for Faulty {
    const NAME: &'static str = "fork-touch";
    type Parameters = own::Parameters;

    fn weight(_: &own::Parameters, _: &pageferry_lab::model::MachineConfig) -> u64 {
        1
    }

    fn program(
        p: own::Parameters,
        _: &mut pageferry_lab::run::Testbed,
        outcome: pageferry_lab::kit::OutcomeCell,
    ) -> Result<pageferry_lab::kernel::Program<pageferry_lab::model::Model>, LabError> {
        use pageferry_lab::hal::{PAGE_SIZE, Prot};
        use pageferry_lab::kit::{first_process, named};
        let is_killed = p.touch == own::Touch::All;
        Ok(first_process(outcome, PAGE_SIZE, move |user| {
            let inherit = pageferry_lab::vm::Inherit::Copy;
            let memory = user.map(PAGE_SIZE, Prot::RW, inherit).map_err(named("map"))?;
            if is_killed {
                user.store(memory + (1 << 20), &[1]);
                return Ok(());
            }
            // Nobody writes.
            let (read, _write) = user.pipe().map_err(named("pipe"))?;
            user.read(read, memory, 1).map(drop).map_err(named("read"))
        }))
    }
}

#[test]
fn a_process_that_waits_for_ever_or_is_killed_is_named() {
    let registry = own::registry().with::<Faulty>();
    let experiment = Arc::new(registry.experiment("fork-touch").expect("added"));
    let plan = matrix(&registry, &experiment, Choices::default()).expect("a matrix");
    let broken = |touch: &str| {
        let run = plan.iter().position(|run| run.parameters["touch"].to_string() == touch).expect("one");
        let runs = execute(&plan[run..=run], 1, &Silent).expect("it runs");
        runs[0].record.broken().join("\n")
    };
    let told = broken("none");
    assert!(told.contains("; asleep: fork-touch: "), "{told}");
    let told = broken("all");
    assert!(told.contains("no process was killed: fork-touch (process 1): Write of "), "{told}");
    assert!(!told.contains("Killed {"), "{told}");
}
