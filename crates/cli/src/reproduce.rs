//! `pageferry reproduce`.

use crate::args::Reproduce;
use crate::progress::{Runs, note};
use crate::terminal::{self, print, table};
use pageferry_lab::compare::{Comparison, Standing};
use pageferry_lab::execute::execute;
use pageferry_lab::experiments::Experiment;
use pageferry_lab::output::PendingDir;
use pageferry_lab::plan::{Choices, RunSpec, Schedule, matrix};
use pageferry_lab::registry::{Kind, names};
use pageferry_lab::report::Reproduction;
use pageferry_lab::result::RunResult;
use pageferry_lab::{LabError, text};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Runs experiments and writes the report.
pub(crate) fn reproduce(options: &Reproduce) -> Result<ExitCode, LabError> {
    let began = Instant::now();
    let choices = Choices { quick: options.quick, seed: options.seed, schedule: Schedule::Timed };
    let plan = plan(&options.names, choices)?;
    // Before the work: whether its results can be kept.
    let dir = PendingDir::create(&options.out)?;
    let progress = Runs::new(&plan);
    let results = execute(&plan, options.jobs, &progress);
    progress.finish();
    let runs = results.into_iter().collect::<Result<Vec<RunResult>, LabError>>()?;
    let reproduction = Reproduction::new(&plan, runs, choices)?;
    reproduction.write(dir)?;
    print(&shown(&reproduction))?;
    note(&format!(
        "\n{} runs in {}. The report: {}",
        reproduction.runs.len(),
        text::seconds(began.elapsed().as_secs_f64()),
        options.out.join("report.html").display()
    ));
    match reproduction.broken().into_iter().next() {
        None => Ok(ExitCode::SUCCESS),
        Some((run, broken)) => Err(LabError::Law { run, broken }),
    }
}

/// The runs of the experiments of these names, each once; of all if there are none.
fn plan(wanted: &[String], choices: Choices) -> Result<Vec<RunSpec>, LabError> {
    let all = names(Kind::Experiment);
    let wanted: Vec<&str> = if wanted.is_empty() { all } else { wanted.iter().map(String::as_str).collect() };
    let mut seen = BTreeSet::new();
    let mut plan = Vec::new();
    for name in wanted.into_iter().filter(|name| seen.insert(*name)) {
        plan.extend(matrix(&Arc::new(Experiment::find(name)?), choices)?);
    }
    Ok(plan)
}

fn shown(of: &Reproduction) -> String {
    let style = terminal::stdout();
    let mut out = String::new();
    for standing in [Standing::Predicted, Standing::Calibrated, Standing::Given] {
        let rows: Vec<_> = of.comparisons.iter().filter(|c| c.standing == standing).map(row).collect();
        if rows.is_empty() {
            continue;
        }
        let (agree, all) = of.tally(standing);
        let meaning = match standing {
            Standing::Predicted => "Predicted",
            Standing::Calibrated => "Calibrated: a constant was fitted to it",
            Standing::Given => "Given: the number is a constant of the model",
        };
        out += &format!("{} ({agree} of {all} agree)\n", style.strong(meaning));
        out += &table(&["", "machine", ">published", ">here", ">ratio", ""], &rows);
        out += "\n";
    }
    let calibrated = of.calibrated().len();
    let broken = of.broken().len();
    out += &format!("Calibrated constants: {calibrated}. Runs that broke a law: {broken}.\n");
    out
}

fn row(c: &Comparison) -> Vec<String> {
    let style = terminal::stdout();
    let agrees = if c.agrees { style.green("agrees") } else { style.red("differs") };
    let ratio = c.ratio.map_or(String::new(), |r| format!("{r:.2}"));
    vec![c.what.clone(), c.machine.clone(), c.theirs.clone(), c.ours.clone(), ratio, agrees]
}
