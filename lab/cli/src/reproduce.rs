//! `pageferry reproduce`.

use crate::args::Reproduce;
use crate::kept::{KeptRuns, make_kept, tell_others};
use crate::progress::note;
use crate::terminal::{self, print, table};
use pageferry_lab::files::Paper;
use pageferry_lab::judge::{AutoChoice, Comparison, Reproduction, Standing, Statement, statements};
use pageferry_lab::output::{About, PendingDir};
use pageferry_lab::run::{Choices, RunSpec, check_count, matrix, matrix_repeated};
use pageferry_lab::{LabError, text};
use pageferry_report::Report as _;
use pageferry_teach::finding::findings;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Runs experiments and writes the report.
pub(crate) fn reproduce(options: &Reproduce) -> Result<ExitCode, LabError> {
    let began = Instant::now();
    let choices = Choices { quick: options.quick, seed: options.seed, ..Choices::default() };
    let plan = plan(&options.names, choices, options.repeat)?;
    let about =
        About { full: !options.quick && options.names.is_empty(), quick: options.quick, ..About::default() };
    // Before the work: whether its results can be kept.
    let mut dir = PendingDir::begin(&options.out, about, options.force)?;
    let KeptRuns { runs, others, kept_at } = make_kept(&plan, options.jobs, &mut dir, options.resume)?;
    let registry = crate::registry::registry();
    let mut reproduction = registry.judged(&plan, runs, choices)?;
    reproduction.findings = findings(&reproduction)?;
    reproduction.write(dir)?;
    print(&shown(&reproduction))?;
    note(&format!(
        "\n{} runs in {}. The report: {}",
        reproduction.runs.len(),
        text::seconds(began.elapsed().as_secs_f64()),
        options.out.join("report.html").display()
    ));
    tell_others(others, &kept_at, "reproduce");
    if let Some((run, broken)) = reproduction.broken().into_iter().next() {
        return Err(LabError::Law { run, broken });
    }
    let unexpected = if options.check { reproduction.unexpected() } else { Vec::new() };
    for s in &unexpected {
        let outcome = if s.agrees {
            "agrees, and the paper's file gives a reason why it does not"
        } else {
            "differs, and the paper's file gives no reason"
        };
        note(&format!("{}: {} {outcome}", s.published, s.what));
    }
    let choices: Vec<&AutoChoice> =
        if options.check { reproduction.unexpected_choices().collect() } else { Vec::new() };
    for c in &choices {
        let outcome = if c.because.is_some() {
            "and its file gives a reason why it is further off (`worse`)"
        } else {
            "and its file gives no reason (`worse`)"
        };
        let place = format!("{} `{}` on {} at {} {}", c.experiment, c.line, c.machine, c.x, c.unit);
        note(&format!(
            "{place}: the kernel's choice comes to {:.1} % of the best, {outcome}",
            100.0 * c.ratio
        ));
    }
    let wrong = if options.check { reproduction.wrong_quotes() } else { Vec::new() };
    wrong.iter().for_each(|quote| note(&quote.to_string()));
    Ok(ExitCode::from(u8::from(!(unexpected.is_empty() && choices.is_empty() && wrong.is_empty()))))
}

/// The runs of the experiments of these names, each once; of all if there are none.
fn plan(wanted: &[String], choices: Choices, repeat: Option<u64>) -> Result<Vec<RunSpec>, LabError> {
    let mut experiments = Vec::new();
    if wanted.is_empty() {
        experiments = crate::registry::registry().experiments()?;
    }
    let mut seen = BTreeSet::new();
    for name in wanted.iter().filter(|name| seen.insert(name.as_str())) {
        experiments.push(crate::registry::registry().experiment(name)?);
    }
    let mut plan = Vec::new();
    for experiment in experiments {
        let (registry, experiment) = (crate::registry::registry(), Arc::new(experiment));
        plan.extend(match repeat {
            Some(repeat) => matrix_repeated(registry, &experiment, choices, repeat as u32)?,
            None => matrix(registry, &experiment, choices)?,
        });
        check_count(plan.len())?;
    }
    Ok(plan)
}

/// What of a reproduction fits a terminal.
pub(crate) fn shown(of: &Reproduction) -> String {
    let style = terminal::stdout();
    let all = statements(&of.comparisons);
    let mut out = covered(of);
    let mut section = |title: &str, standing: Standing, in_numbers: Option<bool>| {
        let meant = |s: &&Statement| {
            s.standing == standing && in_numbers.is_none_or(|numbers| s.in_numbers == numbers)
        };
        let found: Vec<&Statement> = all.iter().filter(meant).collect();
        if found.is_empty() {
            return;
        }
        let agree = found.iter().filter(|s| s.agrees).count();
        let heading = style.strong(&format!("{title}: {agree} of {} agree", found.len()));
        let ratio = if in_numbers == Some(false) { "" } else { ">ratio" };
        let of_several = |c: &Comparison| {
            let same = |other: &&Comparison| (&other.what, &other.machine) == (&c.what, &c.machine);
            found.iter().flat_map(|statement| &statement.rows).filter(same).count() > 1
        };
        let rows: Vec<_> = found.iter().flat_map(|statement| rows(statement, &of_several)).collect();
        let _ = writeln!(
            out,
            "{heading}\n{}",
            table(&["what", "machine", "published", "here", ratio, ""], &rows)
        );
    };
    section("Predicted numbers", Standing::Predicted, Some(true));
    section("Predicted tendencies", Standing::Predicted, Some(false));
    section("Calibrated: a constant was fitted to the number", Standing::Calibrated, Some(true));
    section("Given: the number is a constant of the model", Standing::Given, Some(true));
    section("Checks of the model, which can give nothing else", Standing::Construction, None);
    match of.not_compared() {
        0 => {}
        1 => out.push_str("1 comparison is left out: not all of its runs were made.\n\n"),
        some => {
            let _ = writeln!(out, "{some} comparisons are left out: not all of their runs were made.\n");
        }
    }
    let _ = write!(out, "{}{}{}", pays(of), mappings(of), chosen(of));
    let calibrated = of.calibrated().len();
    let _ = writeln!(out, "{calibrated} constants are calibrated. {} runs broke a law.", of.broken().len());
    out
}

/// How much of what is published is judged, and the same by paper.
fn covered(of: &Reproduction) -> String {
    // Where nothing is compared, nothing is covered.
    if of.papers.is_empty() || of.comparisons.is_empty() {
        return String::new();
    }
    let all = of.covered();
    let not_run = if all.not_run > 0 { format!(", {} were not run", all.not_run) } else { String::new() };
    let first = format!(
        "Published results: {} of {} are judged, {} agree, {} are off; {} check the model, {} restate others, {} \
         cannot be judged{not_run}",
        all.judged(),
        all.released,
        all.agree,
        all.off,
        all.checks,
        all.restated,
        all.not_judged
    );
    let row = |paper: &Paper| {
        let one = of.coverage(paper);
        let counts = [
            one.released,
            one.judged(),
            one.agree,
            one.off,
            one.checks,
            one.restated,
            one.not_judged,
            one.not_run,
            one.held_out,
        ];
        [paper.short.clone()].into_iter().chain(counts.map(|count| count.to_string())).collect()
    };
    let rows: Vec<Vec<String>> = of.papers.values().map(|paper| row(paper)).collect();
    let heads = [
        "paper",
        ">released",
        ">judged",
        ">agree",
        ">off",
        ">checks",
        ">restated",
        ">not judged",
        ">not run",
        ">predicted without a number",
    ];
    format!("{}\n{}\n", terminal::stdout().strong(&first), table(&heads, &rows))
}

/// From which size on each mechanism pays.
fn pays(of: &Reproduction) -> String {
    let rows: Vec<Vec<String>> = (of.pays_rows().into_iter())
        .map(|r| vec![r.experiment, r.mechanism, r.machine, r.then, r.now])
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading = terminal::stdout().strong("From where on each mechanism pays");
    // Machines and experiments of one's own are of no paper's time.
    let of_papers = of.own().is_empty() && of.machines.iter().all(|machine| machine.is_built_in());
    let there = if of_papers { "then" } else { "on it" };
    format!("{heading}\n{}\n", table(&["experiment", "mechanism", "machine", there, "today"], &rows))
}

/// What it is worth to map the kernel by few large pieces.
fn mappings(of: &Reproduction) -> String {
    let rows: Vec<Vec<String>> = (of.mapping_rows().into_iter())
        .map(|r| vec![r.experiment, r.machine, r.mapping, r.with, r.change_of_misses, r.change_of_time])
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading = terminal::stdout().strong("A kernel mapped by large pieces, beside one by pages of 4 KB");
    let head = ["experiment", "machine", "mapped by", "with", ">TLB misses", ">time"];
    format!("{heading}\n{}\n", table(&head, &rows))
}

/// How near the kernel's choices come to the best fixed ones.
fn chosen(of: &Reproduction) -> String {
    let rows: Vec<Vec<String>> = (of.chosen_rows().into_iter())
        .map(|r| vec![r.experiment, r.line, r.machine, format!("{} of {}", r.near, r.sizes), r.worst])
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading =
        terminal::stdout().strong("Choices by the kernel: within 5 % of the best fixed one, or better");
    format!("{heading}\n{}\n", table(&["experiment", "choice", "machine", "so at", "worst"], &rows))
}

/// A row for each comparison in numbers, with its experiment and settings where `of_several` says that there are others
/// like it; one row for a statement in words, and one for each test that it fails.
fn rows(statement: &Statement, of_several: &dyn Fn(&Comparison) -> bool) -> Vec<Vec<String>> {
    let verdict = |agrees: bool| {
        let style = terminal::stdout();
        if agrees { style.green("agrees") } else { style.red("differs") }
    };
    let what = statement.what.clone();
    if statement.in_numbers {
        let row = |c: &Comparison| {
            let ratio = c.ratio_told().unwrap_or_default();
            let what = if of_several(c) {
                let under = c.under.as_ref().map_or_else(String::new, |under| format!(", {under}"));
                format!("{what} ({}{under}, {})", c.experiment, c.kernel)
            } else {
                what.clone()
            };
            vec![what, c.machine.clone(), c.theirs.clone(), c.ours_told(), ratio, verdict(c.agrees)]
        };
        return statement.rows.iter().map(row).collect();
    }
    let mut machines: Vec<_> = statement.rows.iter().map(|c| c.machine.as_str()).collect();
    machines.dedup();
    let first = &statement.rows[0].ours_told();
    let ours = if statement.rows.iter().all(|c| c.ours_told() == *first) {
        first.clone()
    } else {
        let agree = statement.rows.iter().filter(|c| c.agrees).count();
        format!("so in {agree} of {}", statement.rows.len())
    };
    let row = |what, machines, theirs: &str, ours: &str, agrees| {
        vec![what, machines, theirs.to_owned(), ours.to_owned(), String::new(), verdict(agrees)]
    };
    let mut told = vec![row(what, machines.join(", "), &statement.theirs, &ours, statement.agrees)];
    if statement.rows.len() > 1 {
        for c in statement.rows.iter().filter(|c| !c.agrees) {
            let test = format!("  {}: {}", c.experiment, c.test().as_ref().unwrap_or(&c.kernel));
            told.push(row(test, c.machine.clone(), "", &c.ours_told(), false));
        }
    }
    told
}
