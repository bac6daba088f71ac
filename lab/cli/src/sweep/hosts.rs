//! A sweep on several hosts: planned in parts, run part by part, collected.
//!
//! What can fail: a file is not what it should be (see [`super::part`]); a run fails, or breaks a law; parts are
//! missing, or their records cannot be used: each is said by its number, and nothing is written.

use super::grid::Grid;
use super::part::{self, Part};
use super::results::{check_laws, end, give};
use crate::args::{Collect, RunParts};
use crate::kept::make;
use crate::progress::note;
use crate::terminal::tell;
use pageferry_lab::output::{About, PendingDir};
use pageferry_lab::record::RunResult;
use pageferry_lab::run::RunSpec;
use pageferry_lab::{LabError, Registry, text};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Writes the parts of a sweep to `folder`.
pub(super) fn plan(
    grid: &Grid,
    runs: &[RunSpec],
    metric: Option<String>,
    folder: &Path,
    parts: usize,
) -> Result<ExitCode, LabError> {
    let parts = parts.min(runs.len());
    let dir = PendingDir::begin(folder, About { quick: grid.quick, ..About::default() }, false)?;
    let (texts, files) = part::texts(grid, runs, metric, parts)?;
    for (at, text) in texts.iter().enumerate() {
        dir.write(&format!("part-{}.toml", at + 1), text.as_bytes())?;
    }
    dir.commit()?;
    let first = folder.join("part-1.toml");
    note(&format!(
        "{} runs in {parts} parts. `pageferry sweep run {}` makes the first; `pageferry sweep collect {}` puts all \
         together.",
        runs.len(),
        first.display(),
        folder.display()
    ));
    for file in files {
        note(&format!("Its runs read {file}: a host that makes them needs it under this name."));
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the runs of parts.
pub(super) fn run(options: &RunParts) -> Result<ExitCode, LabError> {
    let registry = crate::registry::registry();
    // What cannot be run is said before the first run.
    let parts = options.parts.iter().map(|path| Ok((path, Part::read(registry, path)?)));
    let mut broken = Ok(ExitCode::SUCCESS);
    for (path, part) in parts.collect::<Result<Vec<_>, LabError>>()? {
        let began = Instant::now();
        part.check_files()?;
        let (records, file) = Part::begin_records(path)?;
        let runs = make(&part.own(), options.jobs)?;
        part.write_records(&runs, &records, file)?;
        let took = text::seconds(began.elapsed().as_secs_f64());
        let (number, parts, count) = (part.number, part.parts, runs.len());
        note(&format!("Part {number} of {parts}, {count} runs in {took}: {}", records.display()));
        // Other parts may be sound: the numbers of all are kept.
        broken = broken.and_then(|_| check_laws(&runs));
    }
    broken
}

/// Puts the records of all parts together.
pub(super) fn collect(options: &Collect) -> Result<ExitCode, LabError> {
    let registry = crate::registry::registry();
    let folder = &options.folder;
    let part = any_part(registry, folder)?;
    let mut all: Vec<std::vec::IntoIter<RunResult>> = Vec::new();
    let mut bad = Vec::new();
    for number in 1..=part.parts {
        match part.records(folder, number) {
            Ok(runs) => all.push(runs.into_iter()),
            Err(problem) => {
                tell(&format!("part {number}: {problem}"));
                bad.push(number.to_string());
            }
        }
    }
    if !bad.is_empty() {
        let problem = format!(
            "{} of {} parts have to be run before it can be collected: {}",
            bad.len(),
            part.parts,
            bad.join(",")
        );
        return Err(LabError::Input { file: folder.display().to_string(), problem });
    }
    let turns = (0..part.runs.len()).map(|at| at % part.parts);
    let runs: Vec<RunResult> = turns.filter_map(|part| all[part].next()).collect();
    let kept = match &options.out {
        None => None,
        Some(out) => {
            let mut dir =
                PendingDir::begin(out, About { quick: part.grid.quick, ..About::default() }, options.force)?;
            let took = part.runs.iter().zip(&runs).map(|(spec, run)| (spec.title(), run.host.wall_ms));
            dir.about.wall_ms = took.collect();
            Some((out.as_path(), dir))
        }
    };
    give(registry, &part.grid, &part.runs, part.metric.clone(), &runs, kept)?;
    note(&format!("{} runs of {} parts.", runs.len(), part.parts));
    end(&part.grid, &runs)
}

/// The first part in `folder` that is whole: each says all of the sweep.
fn any_part(registry: &Registry, folder: &Path) -> Result<Part, LabError> {
    let refuse = |e| LabError::io("read", folder, e);
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(refuse)? {
        let path = entry.map_err(refuse)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix("part-").and_then(|name| name.strip_suffix(".toml"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    let mut first = None;
    for (_, path) in found {
        match Part::read(registry, &path) {
            Ok(part) => return Ok(part),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| {
        let problem = "it has no part of a sweep: expected a folder that `sweep --plan` wrote".to_owned();
        LabError::Input { file: folder.display().to_string(), problem }
    }))
}
