//! `pageferry soak`.

use crate::args;
use crate::progress;
use crate::terminal::{self, print, table, tell};
use pageferry_lab::output::PendingFile;
use pageferry_lab::{LabError, input};
use pageferry_soak::{Found, MACHINES, Planted, Program, Soak, SoakError};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs random programs, one kept program, or the planted defects.
pub(crate) fn soak(options: &args::Soak) -> Result<ExitCode, LabError> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let soak = Soak {
        seed: options.seed,
        steps: if options.minutes.is_some() { u64::MAX } else { options.steps },
        machine: MACHINES.into_iter().find(|m| options.machine.as_deref() == Some(m)),
        depth: options.pct,
        threads: if options.jobs == 0 { cores() } else { options.jobs },
        defect: None,
    };
    match &options.replay {
        Some(file) => replay(file),
        None if options.planted => planted(soak),
        None => search(soak, options),
    }
}

fn search(soak: Soak, options: &args::Soak) -> Result<ExitCode, LabError> {
    // Before the work: whether what is found can be kept.
    PendingFile::check(&options.keep)?;
    let start = Instant::now();
    let limit = options.minutes.map(|m| Duration::from_secs(60 * m));
    let bar = progress::steps(options.minutes.is_none().then_some(soak.steps));
    let done = |steps| {
        bar.inc(steps);
        limit.is_none_or(|limit| start.elapsed() < limit)
    };
    let result = soak.run(&done);
    bar.finish_and_clear();
    match result {
        Ok(steps) => {
            let seconds = start.elapsed().as_secs_f64();
            let rate = steps as f64 / seconds / soak.threads as f64;
            print(&format!(
                "{steps} steps in {seconds:.1} s, {rate:.0} a second and thread: every law held at every step, and \
                 every byte was as the copying model has it.\n"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(SoakError::Found(found)) => {
            failed(&found);
            keep(&found, &options.keep);
            Ok(ExitCode::from(1))
        }
        Err(SoakError::Threads { started, error }) => Err(no_threads(started, &error)),
    }
}

fn no_threads(started: usize, error: &io::Error) -> LabError {
    LabError::Threads { threads: started + 1, problem: error.to_string() }
}

fn failed(found: &Found) {
    let style = terminal::stderr();
    tell(&format!("{}: step {}: {}", style.strong_red("pageferry"), found.step, found.failure.message));
    tell(&format!("{} steps are enough to see it, on {}:", found.program.len(), found.program.machine));
    found.program.lines().iter().for_each(|line| tell(&format!("  {line}")));
}

/// Keeps the program. What was found has been told: that it cannot be kept any more does not hide it.
fn keep(found: &Found, file: &Path) {
    let text = serde_json::to_string_pretty(&found.program).expect("a program is plain data");
    let write = || -> Result<(), LabError> {
        let mut pending = PendingFile::create(file)?;
        pending.write_all(text.as_bytes()).map_err(|e| LabError::io("write", file, e))?;
        pending.commit()
    };
    match write() {
        Ok(()) => tell(&format!("Run them again: pageferry soak --replay {}", file.display())),
        Err(error) => tell(&format!("{}: {error}\n{text}", terminal::stderr().strong_red("pageferry"))),
    }
}

fn replay(file: &Path) -> Result<ExitCode, LabError> {
    let text = input::text(file)?;
    let wrong = |problem: String| LabError::Input { file: file.display().to_string(), problem };
    let program: Program = serde_json::from_str(&text)
        .map_err(|e| wrong(format!("not a program that `pageferry soak` has kept: {e}")))?;
    program.validate().map_err(wrong)?;
    match program.run() {
        Ok(()) => {
            print(&format!("{} steps: every law held at every step.\n", program.len()))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let style = terminal::stderr();
            tell(&format!("{}: step {}: {}", style.strong_red("pageferry"), failure.step, failure.message));
            Ok(ExitCode::from(1))
        }
    }
}

fn planted(soak: Soak) -> Result<ExitCode, LabError> {
    let bar = progress::steps(Some(Planted::all().count() as u64));
    let mut rows = Vec::new();
    let mut missed = 0;
    for defect in Planted::all() {
        let machine = defect.machine().or(soak.machine);
        let result = Soak { defect: Some(defect), machine, ..soak }.run(&|_| true);
        bar.inc(1);
        let (caught, shortest, how) = match result {
            Ok(steps) => {
                missed += 1;
                (format!("not in {steps}"), String::new(), String::new())
            }
            Err(SoakError::Threads { started, error }) => return Err(no_threads(started, &error)),
            Err(SoakError::Found(found)) => {
                let how = found.failure.message.lines().next().unwrap_or_default().replace("panic: ", "");
                let shortest = found.program.len();
                let shortest = if shortest == 0 { String::new() } else { shortest.to_string() };
                (found.step.to_string(), shortest, how)
            }
        };
        let on = defect.machine().unwrap_or_default().to_owned();
        rows.push(vec![defect.sentence().to_owned(), on, caught, shortest, how]);
    }
    bar.finish_and_clear();
    print(&table(&["defect", "on", ">caught at step", ">shortest program", "as"], &rows))?;
    print(&format!("\n{} defects planted, {} caught.\n", rows.len(), rows.len() - missed))?;
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
