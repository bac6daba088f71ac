//! An experiment of one's own, outside of the laboratory: what a fork costs by how much of its memory the child then
//! writes to.
//!
//! This file is the workload: its parameters, its processes, what it measures, its figure. `fork-touch.toml` beside it
//! is the experiment: values, machines and kernels. One line in the registry adds it. `cargo run -p pageferry-report
//! --example own_experiment -- FOLDER` writes the report to FOLDER, or to a temporary one.

// ANCHOR: imports
use pageferry_lab::files::Experiment;
use pageferry_lab::hal::{PAGE_SIZE, Prot};
use pageferry_lab::judge::Reproduction;
use pageferry_lab::kernel::Program;
use pageferry_lab::kit::{OutcomeCell, Stopwatch, first_process, named, other_process};
use pageferry_lab::model::{MachineConfig, Model};
use pageferry_lab::plot::{Axis, Bar, Chart, Group, Key, Plot, Table};
use pageferry_lab::record::{Metric, metric};
use pageferry_lab::run::{Choices, Silent, Testbed, Workload, execute, matrix};
use pageferry_lab::vm::Inherit;
use pageferry_lab::{LabError, Registry};
use pageferry_report::Report as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
// ANCHOR_END: imports

// ANCHOR: workload
pageferry_lab::choice! {
    /// What a child writes to.
    pub enum Touch {
        /// Nothing: it ends at once.
        None = "none",
        /// Every page, which is copied for it.
        All = "all",
    }
}

pageferry_lab::parameters! {
    /// What `fork-touch.toml` says.
    pub struct Parameters {
        pages: usize = 1..=1 << 14,
        times: u64 = 1..=1 << 20,
        touch: Touch,
    }
}

/// The workload.
pub struct ForkTouch;

impl Workload for ForkTouch {
    const NAME: &'static str = "fork-touch";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.pages as u64).saturating_mul(p.times)
    }

    fn metrics() -> Vec<Metric> {
        vec![metric("fork_us", "us", "Modelled time from a fork until its child has ended.")]
    }

    fn program(
        p: Parameters,
        testbed: &mut Testbed,
        outcome: OutcomeCell,
    ) -> Result<Program<Model>, LabError> {
        let (model, clock_mhz) = (testbed.model().clone(), testbed.clock_mhz());
        Ok(first_process(outcome.clone(), 2 * p.pages * PAGE_SIZE, move |user| {
            let memory = user.map(p.pages * PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map"))?;
            (0..p.pages).for_each(|page| user.store(memory + page * PAGE_SIZE, &[1]));
            let mut watch = Stopwatch::start(&model);
            // The first child finds cold caches.
            for time in 0..=p.times {
                if time == 1 {
                    watch = Stopwatch::start(&model);
                }
                let touched = if p.touch == Touch::All { p.pages } else { 0 };
                let child = other_process(outcome.clone(), move |user| {
                    (0..touched).for_each(|page| user.store(memory + page * PAGE_SIZE, &[2]));
                    Ok(())
                });
                user.fork("child", child).map_err(named("fork"))?;
                user.wait().map_err(named("wait"))?;
            }
            let outcome = &mut *outcome.borrow_mut();
            let us = watch.stop_cycles(&model, outcome) / clock_mhz / p.times as f64;
            outcome.results.insert("fork_us".into(), us);
            // The parent has what it had, whatever its children wrote.
            let mut byte = [0];
            user.load(memory, &mut byte);
            if byte != [1] {
                outcome.damage("a child has written to its parent's memory".into());
            }
            Ok(())
        }))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        let head = ["machine", "pages", "touched", "us"].map(String::from).to_vec();
        let mut table = Table { head, rows: Vec::new() };
        let mut groups = Vec::new();
        for machine in of.machines_of(&experiment.name) {
            let mut bars = Vec::new();
            for record in
                of.records().filter(|r| r.experiment == experiment.name && r.machine == machine.name)
            {
                let word = |key| record.settings.get(key).map(ToString::to_string).unwrap_or_default();
                let (pages, touch) = (word("pages"), word("touch"));
                let Some(value) = record.metric("fork_us") else { continue };
                let shown = format!("{value:.1}");
                table.rows.push(vec![machine.name.clone(), pages.clone(), touch.clone(), shown.clone()]);
                let name = format!("{touch} of {pages}");
                bars.push(Bar { series: touch, name, value, shown, published: None });
            }
            groups.push(Group { label: machine.name.clone(), bars });
        }
        vec![Plot {
            id: "fork-touch".into(),
            title: "A fork, by what its child writes to".into(),
            subtitle: "Microseconds until the child has ended".into(),
            chart: Chart::Bars(groups, Axis::linear("time of a fork", "us")),
            label: "Time of a fork for each machine, number of pages, and what the child writes to".into(),
            legend: vec![Key::bar("none", "none"), Key::bar("all", "all")],
            note: "A page that is written to is copied first.".into(),
            table,
        }]
    }
}
// ANCHOR_END: workload

// ANCHOR: registry
/// All workloads there are, and this one.
pub fn registry() -> Registry {
    Registry::standard().with::<ForkTouch>().with_experiment("fork-touch", include_str!("fork-touch.toml"))
}
// ANCHOR_END: registry

// ANCHOR: main
/// Makes the runs of the experiment, and writes their report to `out`.
///
/// # Errors
/// A faulty file, a run that cannot be made, or a place that cannot be written.
pub fn report(out: &Path) -> Result<Reproduction, LabError> {
    let (registry, choices) = (registry(), Choices::default());
    let experiment = Arc::new(registry.experiment("fork-touch")?);
    let plan = matrix(&registry, &experiment, choices)?;
    let runs = execute(&plan, 0, &Silent)?;
    let of = registry.judged(&plan, runs, choices)?;
    of.write_to(out)?;
    Ok(of)
}

/// Writes the report to the folder that is given, or to a temporary one. As `pageferry` does, it ends with 2 where it
/// was asked for something that cannot be, and with 1 where a run broke a law.
pub fn main() -> ExitCode {
    let out =
        std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("fork-touch"), PathBuf::from);
    let of = match report(&out) {
        Ok(of) => of,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!("{} runs: {}", of.runs.len(), out.join("report.html").display());
    for (run, laws) in of.broken() {
        eprintln!("{run}: {}", laws.join("; "));
    }
    ExitCode::from(u8::from(!of.broken().is_empty()))
}
// ANCHOR_END: main
