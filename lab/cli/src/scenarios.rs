//! `pageferry scenarios`.

use crate::args;
use crate::terminal::{self, print, table};
use pageferry_lab::LabError;
use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::run::Schedule;
use pageferry_teach::{Scenario, play};
use std::process::ExitCode;

/// Plays scenarios, in all their variants.
pub(crate) fn scenarios(options: &args::Scenarios) -> Result<ExitCode, LabError> {
    let machine = MachineChoice::find(&options.machine)?;
    let kernel = KernelChoice::find(&options.kernel)?;
    let scenarios = match options.names.as_slice() {
        [] => Scenario::all()?,
        names => names.iter().map(|name| Scenario::find(name)).collect::<Result<_, _>>()?,
    };
    let seeded = options.pct.map_or(Schedule::Seeded, Schedule::Pct);
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for scenario in &scenarios {
        let mut outcomes = play(scenario, &machine, &kernel, (Schedule::Timed, 0))?;
        for seed in 0..options.seeds {
            outcomes.extend(play(scenario, &machine, &kernel, (seeded, seed))?);
        }
        let failed: Vec<_> = outcomes.iter().filter(|o| o.wrong.is_some()).collect();
        let style = terminal::stdout();
        let told = if failed.is_empty() {
            style.green("as expected")
        } else {
            style.red(&format!("{} fail", failed.len()))
        };
        rows.push(vec![scenario.name.clone(), scenario.file.title.clone(), outcomes.len().to_string(), told]);
        let first = failed
            .first()
            .map(|o| format!("{} [{}]: {}", scenario.name, o.variant, o.wrong.as_deref().unwrap_or("")));
        failures.extend(first);
    }
    print(&table(&["scenario", "what must hold", ">variants", ""], &rows))?;
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(LabError::Law { run: "scenarios".into(), broken: failures })
}
