//! The page: what the template is given.

use super::differences::{Difference, anchor, differences};
use super::figure::Figure;
use super::real_host::{self, RealHost};
use super::schemes::{SchemeRow, scheme_rows};
use super::svg;
use super::then_now::{ChosenRow, MappingRow, PaysRow, chosen_rows, mapping_rows, pays_rows};
use super::{figures, looks};
use minijinja::value::Serde;
use minijinja::{Environment, Value};
use pageferry_lab::files::{Choice, Experiment, Paper, Parameter};
use pageferry_lab::judge::Finding;
use pageferry_lab::judge::{Calibration, Reproduction};
use pageferry_lab::judge::{Standing, Statement, statements};
use pageferry_lab::record::RunResult;
use pageferry_sourced::Constant;
use serde::Serialize;
use std::collections::BTreeMap;

const PAGE: &str = include_str!("report.html");
const STYLE: &str = include_str!("style.css");
const FIGURE_STYLE: &str = include_str!("figure.css");
const DARK_STYLE: &str = include_str!("dark.css");
const SCRIPT: &str = include_str!("open.js");

/// A figure as a file of its own.
pub(super) fn standalone(figure: &Figure) -> String {
    let legend = figure.legend.iter().map(|key| (key.sample.as_str(), key.label.as_str())).collect();
    let style = format!("{FIGURE_STYLE}{}", looks::css(false));
    let frame = svg::Frame { style: &style, title: &figure.title, subtitle: &figure.subtitle, legend };
    svg::standalone(&figure.wide, &frame)
}

/// Everything that the template names.
#[derive(Serialize)]
struct Page<'a> {
    version: &'a str,
    style: String,
    script: &'a str,
    quick: bool,
    /// Experiments of one's own: with any, this is no reproduction.
    own: Vec<String>,
    seed: u64,
    runs: usize,
    broken: Vec<(String, Vec<String>)>,
    stale: u64,
    laws: Vec<&'a str>,
    /// Predicted numbers: how many agree, and how many there are.
    numbers: (usize, usize),
    /// Predicted tendencies, likewise.
    words: (usize, usize),
    constants: usize,
    calibrated_constants: Vec<CalibratedView>,
    answers: Vec<&'a Figure>,
    differences: Vec<Difference>,
    findings: &'a [Finding],
    groups: Vec<StatementGroup>,
    not_compared: usize,
    pays: Vec<PaysRow>,
    mappings: Vec<MappingRow>,
    schemes: Vec<SchemeRow>,
    chosen: Vec<ChosenRow>,
    real_hosts: Vec<RealHost<'a>>,
    experiments: Vec<ExperimentView<'a>>,
    papers: Vec<&'a Paper>,
    machines: Vec<ConstantsView>,
    kernels: Vec<ConstantsView>,
    hosts: Vec<HostView>,
}

/// Published statements of one standing.
#[derive(Serialize)]
struct StatementGroup {
    id: &'static str,
    title: &'static str,
    agree: usize,
    statements: Vec<Statement>,
}

#[derive(Serialize)]
struct ExperimentView<'a> {
    name: &'a str,
    title: &'a str,
    summary: &'a str,
    source: String,
    parameters: Vec<ParameterView<'a>>,
    figures: Vec<&'a Figure>,
}

#[derive(Serialize)]
struct ParameterView<'a> {
    name: &'a str,
    value: String,
    unit: &'a str,
    source: &'a str,
}

/// The constants of one file: all of them, or how they differ from those of another.
#[derive(Serialize)]
struct ConstantsView {
    name: String,
    title: String,
    summary: String,
    like: Option<String>,
    rows: Vec<Constant>,
    sources: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct CalibratedView {
    #[serde(flatten)]
    constant: Calibration,
    statement: String,
}

#[derive(Serialize)]
struct HostView {
    run: String,
    wall: String,
    /// Of lines streamed, dependent accesses, and instructions charged.
    rates: [String; 3],
}

pub(super) fn html(of: &Reproduction) -> String {
    let figures = figures::all(of);
    let page = Page {
        version: env!("CARGO_PKG_VERSION"),
        style: style(),
        script: SCRIPT,
        own: of.own(),
        quick: of.quick,
        seed: of.seed,
        runs: of.runs.len(),
        broken: of.broken(),
        stale: of.records().map(|r| r.stale_translations).sum(),
        laws: of.runs.first().map_or(Vec::new(), |r| r.record.laws.iter().map(|l| l.name.as_str()).collect()),
        numbers: of.tally(Standing::Predicted, true),
        words: of.tally(Standing::Predicted, false),
        constants: of.machines.iter().map(|m| m.constants().len()).max().unwrap_or(0)
            + of.kernels.first().map_or(0, |k| k.constants().len()),
        calibrated_constants: calibrated_view(of, of.calibrated()),
        answers: figures.iter().filter(|f| of.papers.contains_key(&f.experiment)).collect(),
        differences: differences(of),
        findings: &of.findings,
        groups: groups(of),
        not_compared: of.not_compared(),
        pays: pays_rows(of),
        mappings: mapping_rows(of),
        schemes: scheme_rows(of),
        chosen: chosen_rows(of),
        real_hosts: if of.own().is_empty() { real_host::hosts(&figures) } else { Vec::new() },
        experiments: of.experiments.iter().map(|e| experiment(of, e, &figures)).collect(),
        papers: of.papers.values().collect(),
        machines: machines(of),
        kernels: kernels(of),
        hosts: hosts(of),
    };
    let mut environment = Environment::new();
    environment.add_filter("code", code);
    environment.add_filter("differs", |published: &str| anchor(published));
    environment.add_template("report.html", PAGE).expect("the template is part of the program");
    let template = environment.get_template("report.html").expect("just added");
    template.render(Value::from(Serde(&page))).expect("the template names only what it is given")
}

/// The page's style: colours for light pages, and for dark ones where these are preferred.
fn style() -> String {
    let (light, dark) = (looks::css(false), looks::css(true));
    format!("{FIGURE_STYLE}{light}{STYLE}@media(prefers-color-scheme:dark){{\n{DARK_STYLE}{dark}}}\n")
}

/// Text in which what is between backticks is code.
fn code(text: &str) -> Value {
    let parts = text.split('`').enumerate().map(|(i, part)| match i % 2 {
        0 => svg::escape(part),
        _ => format!("<code>{}</code>", svg::escape(part)),
    });
    Value::from_safe_string(parts.collect())
}

fn groups(of: &Reproduction) -> Vec<StatementGroup> {
    let all = statements(&of.comparisons);
    let group = |id, title, standing, in_numbers| {
        let meant = |s: &&Statement| s.standing == standing && s.in_numbers == in_numbers;
        let statements: Vec<_> = all.iter().filter(meant).cloned().collect();
        StatementGroup { id, title, agree: statements.iter().filter(|s| s.agrees).count(), statements }
    };
    let groups = vec![
        group("predicted-numbers", "Predicted numbers", Standing::Predicted, true),
        group("predicted-tendencies", "Predicted tendencies", Standing::Predicted, false),
        group(
            "calibrated-numbers",
            "Calibrated: a constant was fitted to the number",
            Standing::Calibrated,
            true,
        ),
        group("given-numbers", "Given: the number is a constant of the model", Standing::Given, true),
    ];
    groups.into_iter().filter(|g| !g.statements.is_empty()).collect()
}

fn experiment<'a>(
    of: &'a Reproduction,
    experiment: &'a Experiment,
    figures: &'a [Figure],
) -> ExperimentView<'a> {
    let file = &experiment.file;
    let short = of.papers.get(&file.paper).map_or("", |paper| paper.short.as_str());
    let value = |name: &String| {
        let runs = of.records().filter(|r| r.experiment == experiment.name);
        let mut values: Vec<_> = runs.filter_map(|r| r.settings.get(name)).collect();
        values.sort();
        values.dedup();
        values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let parameter = |(name, p): (&'a String, &'a Parameter)| ParameterView {
        name,
        value: value(name),
        unit: &p.unit,
        source: &p.source,
    };
    let choice = |(name, c): (&'a String, &'a Choice)| ParameterView {
        name,
        value: value(name),
        unit: "",
        source: &c.source,
    };
    ExperimentView {
        name: &experiment.name,
        title: &file.title,
        summary: &file.summary,
        source: [short, &file.section]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", "),
        parameters: file.parameters.iter().map(parameter).chain(file.choices.iter().map(choice)).collect(),
        figures: figures.iter().filter(|f| f.experiment == experiment.name).collect(),
    }
}

fn calibrated_view(of: &Reproduction, constants: Vec<Calibration>) -> Vec<CalibratedView> {
    let statement = |id: &str| match of.published(id) {
        Some(p) => format!("{}: {}", p.metric, p.shown()),
        None => id.to_owned(),
    };
    constants.into_iter().map(|c| CalibratedView { statement: statement(&c.against), constant: c }).collect()
}

/// Lists `all` as differences from the earlier file that shares most, where it shares nearly all.
fn shortened(
    name: &str,
    all: Vec<Constant>,
    earlier: &[(String, Vec<Constant>)],
) -> (Option<String>, Vec<Constant>) {
    let shared = |other: &[Constant]| all.iter().filter(|c| other.contains(c)).count();
    let best = earlier.iter().max_by_key(|(_, constants)| shared(constants));
    match best {
        Some((other, constants)) if other != name && shared(constants) * 10 >= all.len() * 7 => {
            let rows = all.into_iter().filter(|c| !constants.contains(c)).collect();
            (Some(other.clone()), rows)
        }
        _ => (None, all),
    }
}

/// Name, title, summary, constants and bibliography of a file.
type FileConstants<'a> = (&'a str, &'a str, &'a str, Vec<Constant>, &'a BTreeMap<String, String>);

/// The constants of each of `files`, where they are not those of an earlier one.
fn listed<'a>(files: impl Iterator<Item = FileConstants<'a>>) -> Vec<ConstantsView> {
    let mut earlier: Vec<(String, Vec<Constant>)> = Vec::new();
    let view = |(name, title, summary, all, sources): FileConstants<'_>| {
        let (like, rows) = shortened(name, all.clone(), &earlier);
        if like.is_none() {
            earlier.push((name.to_owned(), all));
        }
        let (name, title, summary) = (name.to_owned(), title.to_owned(), summary.to_owned());
        ConstantsView { name, title, summary, sources: cited(&rows, sources), like, rows }
    };
    files.map(view).collect()
}

fn machines(of: &Reproduction) -> Vec<ConstantsView> {
    listed(of.machines.iter().map(|m| {
        let config = &m.config;
        (&*m.name, &*config.title, &*config.description, m.constants(), &config.sources)
    }))
}

fn kernels(of: &Reproduction) -> Vec<ConstantsView> {
    listed(of.kernels.iter().map(|k| {
        let file = &k.file;
        (&*k.name, &*file.title, &*file.summary, k.constants(), &file.sources)
    }))
}

/// The entries of the bibliography that `rows` cite.
fn cited(rows: &[Constant], sources: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_cited =
        |key: &str| rows.iter().any(|c| c.source.split(&[',', ':', ';'][..]).any(|s| s.trim() == key));
    sources.iter().filter(|(key, _)| is_cited(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn hosts(of: &Reproduction) -> Vec<HostView> {
    let rate = |per_s: f64| if per_s > 0.0 { format!("{:.1}", per_s / 1e6) } else { String::new() };
    let host = |run: &RunResult| HostView {
        run: run.record.title(),
        wall: format!("{:.2}", run.host.wall_ms / 1e3),
        rates: [
            run.host.lines_streamed_per_s,
            run.host.dependent_accesses_per_s,
            run.host.instructions_charged_per_s,
        ]
        .map(rate),
    };
    of.runs.iter().map(host).collect()
}
