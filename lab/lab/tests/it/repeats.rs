//! Repeats of a run: what they differ in, and that nothing else moves a result more than they do.

use pageferry_lab::files::{Experiment, KernelChoice, MachineChoice, Settings};
use pageferry_lab::run::{Choices, RunSpec, Silent, execute};
use pageferry_lab::{Registry, Spread};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

const REPEATS: u32 = 5;

/// The quick form of an experiment, as its file has it first, so often, with a setting.
fn repeats(experiment: &Arc<Experiment>, settings: &[String]) -> Option<Vec<RunSpec>> {
    let (machine, kernel) = experiment.file.first();
    let (machine, kernel) = (MachineChoice::find(machine).ok()?, KernelChoice::find(kernel).ok()?);
    let quick = Choices { quick: true, ..Choices::default() };
    let first: Vec<String> = experiment.file.matrix[0].set.iter().chain(settings).cloned().collect();
    let settings = Settings::parse(&first).ok()?;
    let run = RunSpec::new(&Registry::standard(), experiment, machine, kernel, &settings, quick).ok()?;
    run.check().ok()?;
    Some(run.repeats(REPEATS).ok()?.collect())
}

/// By metric, what the repeats gave.
fn spreads(plan: &[RunSpec]) -> BTreeMap<String, Spread> {
    let runs = execute(plan, 0, &Silent).expect("every run is made");
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in &runs {
        assert_eq!(run.record.broken(), Vec::<String>::new(), "{}", run.record.title());
        assert!(run.record.perturbed);
        for (name, value) in &run.record.results {
            all.entry(name.clone()).or_default().push(*value);
        }
    }
    all.into_iter().map(|(name, mut values)| (name, Spread::of(&mut values).expect("some"))).collect()
}

/// Settings that an experiment does not use: placebos, like pills without a drug. What they still move is where the
/// kernel's structures lie. How far a CPU runs ahead is the grain of the simulation, and used by none.
fn placebos(experiment: &Experiment, kernel: &str) -> Vec<String> {
    let workload = experiment.file.workload.as_str();
    let disk = ["dd", "postmark", "ephemeral-schemes", "file-read", "cost-growth", "file-server"]
        .contains(&workload);
    let mut some = vec!["machine.cpu.run_ahead_cycles=150".to_owned()];
    if ["original", "uvm", "linux-ppc", "ant", "linux-2.6"].contains(&kernel) {
        some.push("kernel.ephemeral.entries=40000".to_owned());
    }
    if !disk {
        some.push("kernel.disk.buffers=9000".to_owned());
    }
    some
}

/// In every third experiment, from the `first` on: so the thirds can be looked at side by side.
fn a_setting_that_is_not_used_moves_nothing(first: usize) {
    let registry = Registry::standard();
    let (mut moved, mut tried) = (String::new(), 0);
    for experiment in registry.experiments().expect("embedded").into_iter().skip(first).step_by(3) {
        let experiment = Arc::new(experiment);
        let plan = repeats(&experiment, &[]).unwrap_or_else(|| panic!("{} runs", experiment.name));
        let kernel = plan[0].kernel.name.clone();
        let without = spreads(&plan);
        // All at once: what one of them moves, nothing takes back.
        let placebos = placebos(&experiment, &kernel);
        let plan =
            repeats(&experiment, &placebos).unwrap_or_else(|| panic!("{} takes them", experiment.name));
        tried += 1;
        for (metric, with) in spreads(&plan) {
            let own = without[&metric];
            // Two medians differ when the intervals of both are apart. Where nothing varies but the last digits, those
            // are no effect.
            let digits = own.median.abs() * 1e-4;
            if with.high < own.low - digits || with.low > own.high + digits {
                let _ = writeln!(moved, "{}, {placebos:?}: {metric} {own:?}, now {with:?}", experiment.name);
            }
        }
    }
    assert!(tried > 10, "{tried}");
    assert_eq!(moved, "");
}

#[test]
fn a_setting_that_is_not_used_moves_nothing_beyond_the_interval() {
    a_setting_that_is_not_used_moves_nothing(0);
}

#[test]
fn a_setting_that_is_not_used_moves_nothing_in_the_next_third() {
    a_setting_that_is_not_used_moves_nothing(1);
}

#[test]
fn a_setting_that_is_not_used_moves_nothing_in_the_last_third() {
    a_setting_that_is_not_used_moves_nothing(2);
}

/// A perturbed run is another one, and the same seed gives it again.
#[test]
fn the_seed_decides_what_is_perturbed() {
    let experiment = Arc::new(Registry::standard().experiment("uvm-pipe").expect("embedded"));
    let plan = repeats(&experiment, &[]).expect("it runs");
    let cycles = || -> Vec<u64> {
        let runs = execute(&plan, 1, &Silent).expect("every run is made");
        runs.iter().map(|run| run.record.cycles.total).collect()
    };
    let (once, again) = (cycles(), cycles());
    assert_eq!(once, again);
    let mut distinct = once.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), once.len(), "{once:?}");
}
