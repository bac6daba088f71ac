//! `pageferry run`.

use crate::args::Run;
use crate::progress::{Runs, note};
use crate::show::print_json;
use crate::terminal::{self, print, table};
use pageferry_lab::files::{Experiment, KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::{Cycles, LockCounts, Record, RunResult};
use pageferry_lab::run::{Choices, RunSpec, Schedule, TimeLeft, TraceWindow, execute, run_traced, threads};
use pageferry_lab::{LabError, Spread, text};
use pageferry_report::trace::TraceWriter;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs one experiment on one machine under one kernel.
pub(crate) fn run(options: &Run) -> Result<ExitCode, LabError> {
    if options.machine.as_deref().is_some_and(crate::metal::is_meant) {
        return crate::metal::run(options);
    }
    let experiment = Arc::new(crate::registry::registry().experiment(&options.experiment)?);
    let (machine, kernel) = experiment.file.first();
    let machine = MachineChoice::find(options.machine.as_deref().unwrap_or(machine))?;
    let kernel = KernelChoice::find(options.kernel.as_deref().unwrap_or(kernel))?;
    let settings = Settings::parse(&options.settings)?;
    let schedule = if options.seeded_schedule { Schedule::Seeded } else { Schedule::Timed };
    let choices =
        Choices { quick: options.quick, seed: options.seed, schedule, perturbed: options.perturbed };
    let spec = RunSpec::new(crate::registry::registry(), &experiment, machine, kernel, &settings, choices)?;
    if options.repeat > 1 {
        return run_repeated(options, &spec);
    }
    let (result, trace) = match &options.trace {
        None => (pageferry_lab::run::run(&spec)?, None),
        Some(file) => {
            let window = TraceWindow { from: options.trace_from, length: options.trace_for };
            let mhz = spec.machine.config.cpu.clock_mhz.value;
            let trace = TraceWriter::create(file, &spec.machine.name, mhz)?;
            let (result, ended) = run_traced(&spec, window, Box::new(trace.clone()))?;
            (result, Some((trace, ended, file)))
        }
    };
    if options.json {
        print_json(&result)?;
    } else {
        print(&shown(&experiment, &result))?;
    }
    if let Some((trace, ended, file)) = trace {
        keep(&spec, &trace, ended, file)?;
    }
    let broken = result.record.broken();
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(LabError::Law { run: spec.title(), broken })
}

/// Runs it several times, and tells what they have in common and how much they differ.
fn run_repeated(options: &Run, spec: &RunSpec) -> Result<ExitCode, LabError> {
    let plan: Vec<RunSpec> = spec.repeats(options.repeat as u32)?.collect();
    let progress = Runs::new(&plan, TimeLeft::new(&plan, &BTreeMap::new(), threads(0, plan.len())));
    let results = execute(&plan, 0, &progress);
    progress.finish();
    let results = results?;
    if options.json {
        print_json(&results)?;
    } else {
        print(&shown_repeats(&spec.experiment, &results))?;
    }
    match results.iter().map(|result| &result.record).find(|record| !record.broken().is_empty()) {
        None => Ok(ExitCode::SUCCESS),
        Some(record) => Err(LabError::Law { run: record.title(), broken: record.broken() }),
    }
}

fn shown_repeats(experiment: &Experiment, results: &[RunResult]) -> String {
    let records = || results.iter().map(|result| &result.record);
    let Some(first) = records().next() else { return String::new() };
    let style = terminal::stdout();
    let mut out = format!(
        "{}  {} under {}, {} repeats from seed {}\n\n",
        style.strong(&experiment.file.title),
        first.machine,
        first.kernel,
        results.len(),
        first.seed
    );
    let row = |name: &String| {
        let mut values: Vec<f64> = records().filter_map(|r| r.results.get(name).copied()).collect();
        let spread = Spread::of(&mut values)?;
        let percent = match spread.median {
            0.0 => "-".to_owned(),
            median => format!("{:.2} %", 100.0 * (spread.high - spread.low) / median.abs()),
        };
        let [median, low, high] = [spread.median, spread.low, spread.high].map(text::number);
        Some(vec![name.clone(), median, low, high, percent])
    };
    let rows: Vec<Vec<String>> = first.results.keys().filter_map(row).collect();
    out += &table(&["result", ">median", ">from", ">to", ">width"], &rows);
    out += &style.faint(
        "\nFrom and to are an interval that holds the true median in at least 93 of 100 such sets of repeats; of fewer \
         than five, their range.\n",
    );
    out
}

/// Ends the trace, and says what is in it.
fn keep(spec: &RunSpec, trace: &TraceWriter, ended_cycles: u64, file: &Path) -> Result<(), LabError> {
    let events = trace.finish()?;
    note(&format!("{events} events are in {}: open it in ui.perfetto.dev", file.display()));
    if events == 0 {
        let ended = text::seconds(spec.machine.nanoseconds(ended_cycles as f64) / 1e9);
        note(&format!(
            "the run was over after {ended} of modelled time, before the trace began; `--trace-from 0s` has all of it"
        ));
    }
    Ok(())
}

fn shown(experiment: &Experiment, result: &RunResult) -> String {
    let (style, record) = (terminal::stdout(), &result.record);
    let mut out = format!(
        "{}  {} under {}, seed {}\n",
        style.strong(&experiment.file.title),
        record.machine,
        record.kernel,
        record.seed
    );
    let settings: Vec<_> = record.settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
    out += &format!("{}\n\n", style.faint(&settings.join("  ")));
    let rows: Vec<_> =
        record.results.iter().map(|(name, value)| vec![name.clone(), text::number(*value)]).collect();
    out += &table(&["result", ">value"], &rows);
    out += &format!("\n{}", stack(&record.cycles));
    let counted: Vec<_> = counts(&record.counters);
    if !counted.is_empty() {
        out += &format!("\n{}", table(&["counter", ">events"], &counted));
    }
    let contended: Vec<_> = contended(record);
    if !contended.is_empty() {
        let heads = ["lock", ">taken", ">waited for", ">cycles", ">of busy cycles"];
        out += &format!("\n{}", table(&heads, &contended));
    }
    out += &format!("\n{}\n", checks(record));
    out += &style.faint(&format!(
        "{:.2} s on this host; a second, {:.1} million lines streamed, {:.1} million dependent accesses, {:.1} million \
         instructions charged\n",
        result.host.wall_ms / 1e3,
        result.host.lines_streamed_per_s / 1e6,
        result.host.dependent_accesses_per_s / 1e6,
        result.host.instructions_charged_per_s / 1e6
    ));
    out
}

/// Spin locks that a CPU had to wait for, those first that took most time.
fn contended(record: &Record) -> Vec<Vec<String>> {
    let idle = record.cycles.by_cause.get("idle").copied().unwrap_or(0);
    let busy = (record.cycles.total - idle).max(1) as f64;
    let mut waited: Vec<_> = record.locks.iter().filter(|(_, used)| used.contended > 0).collect();
    waited.sort_by_key(|(name, used)| (std::cmp::Reverse(used.wait_cycles), *name));
    let row = |(name, used): (&String, &LockCounts)| {
        let [taken, contended, cycles] =
            [used.acquisitions, used.contended, used.wait_cycles].map(|count| text::grouped(count as i64));
        let share = format!("{:.1} %", 100.0 * used.wait_cycles as f64 / busy);
        vec![name.clone(), taken, contended, cycles, share]
    };
    waited.into_iter().map(row).collect()
}

/// Counters that are not zero.
pub(crate) fn counts(counters: &BTreeMap<String, u64>) -> Vec<Vec<String>> {
    let some = counters.iter().filter(|(_, count)| **count > 0);
    some.map(|(name, count)| vec![name.clone(), text::grouped(*count as i64)]).collect()
}

/// A machine and a kernel by their names, with `settings` of theirs: for commands that take no settings of a workload.
/// `hint` follows what a setting that is none of theirs is refused with.
pub(crate) fn chosen(
    settings: &[String],
    machine: &str,
    kernel: &str,
    hint: &str,
) -> Result<(MachineChoice, KernelChoice), LabError> {
    let settings = Settings::parse(settings)?;
    if let Some((key, _)) = settings.parameters.first() {
        let problem = format!("expected machine.KEY or kernel.KEY{hint}");
        return Err(LabError::Setting { key: key.clone(), problem });
    }
    let machine = settings.machine(MachineChoice::find(machine)?)?;
    let kernel = settings.kernel(KernelChoice::find(kernel)?)?;
    Ok((machine, kernel))
}

/// The stack of causes, largest first, with a bar for each.
pub(crate) fn stack(cycles: &Cycles) -> String {
    let mut causes: Vec<_> = cycles.by_cause.iter().filter(|(_, cycles)| **cycles > 0).collect();
    causes.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let total = cycles.total.max(1) as f64;
    let row = |(cause, cycles): (&String, &u64)| {
        let share = *cycles as f64 / total;
        let bar = "█".repeat((share * 30.0).round() as usize);
        vec![cause.clone(), text::grouped(*cycles as i64), format!("{:.1} %", share * 100.0), bar]
    };
    let mut rows: Vec<_> = causes.into_iter().map(row).collect();
    rows.push(vec!["total".into(), text::grouped(cycles.total as i64), "100.0 %".into(), String::new()]);
    table(&["cycles, all CPUs", ">cycles", ">share", ""], &rows)
}

fn checks(record: &Record) -> String {
    let style = terminal::stdout();
    let broken = record.broken();
    if broken.is_empty() {
        let count = record.laws.len();
        return style.green(&format!(
            "All {count} laws hold; no byte was found changed; no stale translation was used."
        ));
    }
    broken.iter().map(|law| style.red(&format!("broken: {law}"))).collect::<Vec<_>>().join("\n")
}
