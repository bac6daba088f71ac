//! `pageferry diff`: two folders of results, or two runs, side by side.
//!
//! What moved is told by size, then where the cycles of these runs moved, then what only one side has. Long tables are
//! cut for people, and say so; the file of `--csv` has all.
//!
//! What can fail: a side that is not there or has no runs; sides without a run in common; a file that cannot be
//! written.

use crate::args::Diff as Options;
use crate::terminal::{self, print, table};
use pageferry_lab::judge::Reproduction;
use pageferry_lab::output::PendingFile;
use pageferry_lab::record::Record;
use pageferry_lab::{LabError, nearest, text};
use pageferry_report::diff::{Change, Diff, RunChange, Scope};
use pageferry_report::folder;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Rows of a table, and runs that one side has.
const MAX_ROWS: usize = 40;
/// Causes that a row names.
const MAX_CAUSES: usize = 4;

/// Tells what moved from one set of runs to another.
pub(crate) fn diff(options: &Options) -> Result<ExitCode, LabError> {
    if let Some(file) = &options.csv {
        PendingFile::check(file)?;
    }
    let (first, second) = (read(&options.first)?, read(&options.second)?);
    let scope = Scope { threshold_percent: options.threshold, all_metrics: options.all };
    let diff = Diff::new(&first, &second, scope);
    if diff.runs_in_both == 0 {
        return Err(nothing_in_both(options, &first, &second));
    }
    if let Some(file) = &options.csv {
        let mut pending = PendingFile::create(file)?;
        pending.write_all(diff.csv().as_bytes()).map_err(|e| LabError::io("write", file, e))?;
        pending.commit()?;
    }
    print(&shown(&diff, options))?;
    let sides = [(&options.first, &first), (&options.second, &second)];
    for (side, of) in sides {
        if let Some((run, broken)) = of.broken().into_iter().next() {
            return Err(LabError::Law { run: format!("{}: {run}", side.display()), broken });
        }
    }
    Ok(ExitCode::from(u8::from(!diff.runs.is_empty())))
}

fn read(side: &Path) -> Result<Reproduction, LabError> {
    if !side.exists() {
        return Err(not_there(side));
    }
    // A reproduction is all of its files.
    if side.is_file() && side.ends_with("results.json") {
        let folder = side.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let problem = format!("it is a part of a folder of results: name the folder, `{}`", folder.display());
        return Err(LabError::Input { file: side.display().to_string(), problem });
    }
    folder::read(crate::registry::registry(), side)
}

/// The error of a side that is not there, with the name beside it that is most like it.
fn not_there(side: &Path) -> LabError {
    let parent = side.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let beside: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let name = side.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let like = nearest(name, beside.iter().map(String::as_str));
    let like = like
        .map_or(String::new(), |like| format!("; did you mean `{}`?", side.with_file_name(like).display()));
    let problem =
        format!("it is not there: expected a folder of results, or a run that `run --json` printed{like}");
    LabError::Input { file: side.display().to_string(), problem }
}

/// The error of sides that share no run, with what keeps two of them apart.
fn nothing_in_both(options: &Options, first: &Reproduction, second: &Reproduction) -> LabError {
    let alike = |a: &Record, b: &Record| a.title() == b.title();
    let near = first.records().find_map(|a| Some((a, second.records().find(|b| alike(a, b))?)));
    let why = match near {
        Some((a, b)) => {
            let word = |of: &Record, key: &str| {
                of.settings
                    .get(key)
                    .map_or_else(|| format!("{key} as in its file"), |word| format!("{key}={word}"))
            };
            let keys: BTreeSet<&String> = a.settings.keys().chain(b.settings.keys()).collect();
            let key = keys.into_iter().find(|key| a.settings.get(*key) != b.settings.get(*key));
            let key = key.map_or("", |key| key);
            format!("{} has {} here and {} there", a.title(), word(a, key), word(b, key))
        }
        None => {
            let title = |of: &Reproduction| of.records().next().map(Record::title).unwrap_or_default();
            format!("the first here is {}, there {}", title(first), title(second))
        }
    };
    let alike_but_for = |machine: bool| {
        let same = |a: &Record, b: &Record| {
            let place = if machine { (&a.kernel, &b.kernel) } else { (&a.machine, &b.machine) };
            a.experiment == b.experiment && place.0 == place.1 && a.settings == b.settings
        };
        first.records().find_map(|a| Some((a, second.records().find(|b| same(a, b))?)))
    };
    // Two machines, or two kernels, stand beside each other in one sweep.
    let both = |option: &str, experiment: &str, a: &str, b: &str| {
        format!("; `pageferry sweep {experiment} {option} {a},{b}` puts both in one table")
    };
    let hint = match (alike_but_for(true), alike_but_for(false)) {
        (Some((a, b)), _) => both("--machine", &a.experiment, &a.machine, &b.machine),
        (None, Some((a, b))) => both("--kernel", &a.experiment, &a.kernel, &b.kernel),
        (None, None) => String::new(),
    };
    let problem = format!(
        "none of its runs is in {}: {why}; expected runs of equal experiment, machine, kernel and settings{hint}",
        options.second.display()
    );
    LabError::Input { file: options.first.display().to_string(), problem }
}

fn shown(diff: &Diff<'_>, options: &Options) -> String {
    let style = terminal::stdout();
    let mut out = String::new();
    let changes = diff.changes();
    if !changes.is_empty() {
        let row = |(run, change): &(&RunChange<'_>, &Change)| {
            let value = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), text::number);
            let title = diff.title_of_change(run.from, run.to);
            let by = match change.percent() {
                Some(by) => percent(by),
                None if change.to.is_none() => "gone".to_owned(),
                None => "new".to_owned(),
            };
            vec![title, change.metric.clone(), value(change.from), value(change.to), by]
        };
        let rows: Vec<_> = changes.iter().take(MAX_ROWS).map(row).collect();
        out += &table(&["run", "metric", ">from", ">to", ">change"], &rows);
        out += &more(changes.len());
        out += &format!(
            "\n{}\n",
            style.strong("Their cycles, and each cause's share of those that came or went")
        );
        let mut runs: Vec<&RunChange<'_>> = Vec::new();
        for (run, _) in &changes {
            if !runs.iter().any(|known| std::ptr::eq(*known, *run)) {
                runs.push(run);
            }
        }
        let row = |run: &&RunChange<'_>| {
            let total = |record: &Record| text::number(record.cycles.total as f64);
            let title = diff.title_of_change(run.from, run.to);
            let change = run.cycles_percent().map_or_else(|| "new".to_owned(), percent);
            vec![title, total(run.from), total(run.to), change, causes(run)]
        };
        let rows: Vec<_> = runs.iter().take(MAX_ROWS).map(row).collect();
        out += &table(&["run", ">from", ">to", ">change", "causes"], &rows);
        out += &more(runs.len());
        out.push('\n');
    }
    let sides = [(&options.first, &diff.only_first), (&options.second, &diff.only_second)];
    for (side, runs) in sides.iter().filter(|(_, runs)| !runs.is_empty()) {
        out += &format!("{}\n", style.strong(&format!("Only in {}", side.display())));
        for record in runs.iter().take(MAX_ROWS) {
            out += &format!("  {}\n", diff.title(record));
        }
        out += &more(runs.len());
        out.push('\n');
    }
    out + &summary(diff, options)
}

/// What of a table is not shown.
fn more(rows: usize) -> String {
    match rows.saturating_sub(MAX_ROWS) {
        0 => String::new(),
        left => format!("... and {} more: `--csv FILE` has all\n", text::grouped(left as i64)),
    }
}

fn causes(run: &RunChange<'_>) -> String {
    if run.causes.is_empty() {
        return "the same in each".to_owned();
    }
    let named = run.causes.iter().take(MAX_CAUSES).filter(|cause| cause.share_percent.abs() >= 0.5);
    let named: Vec<_> = named.map(|c| format!("{} {:+.0} %", c.cause, c.share_percent)).collect();
    named.join(", ")
}

fn summary(diff: &Diff<'_>, options: &Options) -> String {
    let threshold = options.threshold;
    let both = match diff.runs_in_both {
        1 => "1 run".to_owned(),
        runs => format!("{} runs", text::grouped(runs as i64)),
    };
    let moved = diff.runs.iter().map(|run| run.changes.len()).sum::<usize>();
    let mut line = match moved {
        0 => format!("Nothing moved by more than {threshold} % in {both}"),
        _ => format!("{} of {both} moved by more than {threshold} %", diff.runs.len()),
    };
    line += &format!(": {} of {} metrics.", text::grouped(moved as i64), text::grouped(diff.metrics as i64));
    let sides = [(&options.first, &diff.only_first), (&options.second, &diff.only_second)];
    for (side, runs) in sides.iter().filter(|(_, runs)| !runs.is_empty()) {
        line += &format!(" {} only in {}.", text::grouped(runs.len() as i64), side.display());
    }
    line.push('\n');
    line + &taken(diff, options)
}

/// What is assumed of runs that are older than a parameter.
fn taken(diff: &Diff<'_>, options: &Options) -> String {
    let mut by_setting: BTreeMap<(bool, String), Vec<&str>> = BTreeMap::new();
    for t in &diff.taken {
        let setting = (t.by_second, format!("{}={}", t.key, t.value));
        by_setting.entry(setting).or_default().push(t.experiment);
    }
    let one = |((by_second, setting), experiments): (&(bool, String), &Vec<&str>)| {
        let side = if *by_second { &options.second } else { &options.first };
        format!(
            "The runs of {} in {} do not say {setting}, the default now: they are taken to have had it.\n",
            experiments.join(", "),
            side.display()
        )
    };
    by_setting.iter().map(one).collect()
}

/// A change as people read it.
fn percent(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{}{} %", if value < 0.0 { "" } else { "+" }, text::number(value.round())),
        v if v >= 10.0 => format!("{value:+.0} %"),
        v if v >= 0.1 || v == 0.0 => format!("{value:+.1} %"),
        _ => format!("{value:+.1e} %"),
    }
}
