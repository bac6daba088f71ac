//! An experiment on a page: what it does, its figures, and its parameters with their sources.

use super::super::data::Table;
use super::super::figure::Figure;
use pageferry_lab::files::{Choice, Experiment, Parameter};
use pageferry_lab::judge::Reproduction;
use pageferry_lab::record::Record;
use pageferry_lab::{Spread, text};
use serde::Serialize;
use std::collections::BTreeSet;

/// An experiment with its figures and parameters.
#[derive(Serialize)]
pub(super) struct ExperimentView<'a> {
    name: &'a str,
    title: &'a str,
    summary: &'a str,
    source: String,
    parameters: Vec<ParameterView<'a>>,
    figures: Vec<&'a Figure>,
    /// What the runs gave, where nothing is drawn of them; how many columns of it say which run it was, and how many
    /// runs it leaves out.
    runs: Table,
    words: usize,
    more: usize,
}

#[derive(Serialize)]
struct ParameterView<'a> {
    name: &'a str,
    value: String,
    unit: &'a str,
    source: &'a str,
}

/// The experiments of a paper, or of none, in order.
pub(super) fn experiments<'a>(
    of: &'a Reproduction,
    paper: &str,
    figures: &'a [Figure],
) -> Vec<ExperimentView<'a>> {
    let here = of.experiments.iter().filter(|e| e.file.paper_name() == paper);
    here.map(|e| experiment(of, e, figures)).collect()
}

fn experiment<'a>(
    of: &'a Reproduction,
    experiment: &'a Experiment,
    figures: &'a [Figure],
) -> ExperimentView<'a> {
    let file = &experiment.file;
    let short = of.papers.get(file.paper_name()).map_or("", |paper| paper.short.as_str());
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
    let figures: Vec<&Figure> = figures.iter().filter(|f| f.experiment == experiment.name).collect();
    let (mut runs, words) = if figures.is_empty() { runs(of, experiment) } else { (Table::default(), 0) };
    let more = runs.rows.len().saturating_sub(MAX_RUNS);
    runs.rows.truncate(MAX_RUNS);
    let source = [short, &file.section].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
    ExperimentView {
        name: &experiment.name,
        title: &file.title,
        summary: &file.summary,
        source: source.join(", "),
        parameters: file.parameters.iter().map(parameter).chain(file.choices.iter().map(choice)).collect(),
        figures,
        runs,
        words,
        more,
    }
}

/// So many runs a table on a page has.
const MAX_RUNS: usize = 200;

/// What comes with every run, whatever its workload measures.
const OF_ALL: [&str; 3] = ["ephemeral_hit_rate_percent", "ephemeral_invalidations", "tlb_invalidations"];

/// The runs of `experiment`: on what, with which of the settings that vary, and what its workload measured, of repeats
/// the median. Beside it, how many columns are no numbers.
fn runs(of: &Reproduction, experiment: &Experiment) -> (Table, usize) {
    let records: Vec<&Record> = of.records().filter(|r| r.experiment == experiment.name).collect();
    let keys: BTreeSet<&String> = records.iter().flat_map(|r| r.settings.keys()).collect();
    let varies =
        |key: &&&String| records.iter().any(|r| r.settings.get(**key) != records[0].settings.get(**key));
    let keys: Vec<&String> = keys.iter().filter(varies).copied().collect();
    let measured: BTreeSet<&String> = records.iter().flat_map(|r| r.results.keys()).collect();
    let own: Vec<&String> =
        measured.iter().filter(|name| !OF_ALL.contains(&name.as_str())).copied().collect();
    let unit = |metric: &String| {
        let entry = of.dictionary.iter().find(|entry| entry.metric == *metric);
        entry.map_or("", |entry| entry.unit.as_str())
    };
    let mut head = vec!["machine".to_owned(), "kernel".to_owned()];
    head.extend(keys.iter().map(|key| key.rsplit('.').next().unwrap_or(key).to_owned()));
    let words = head.len();
    head.extend(own.iter().map(|metric| match unit(metric) {
        "" => (*metric).clone(),
        unit => format!("{metric}, {unit}"),
    }));
    let mut rows: Vec<(Vec<String>, Vec<&Record>)> = Vec::new();
    for record in records.iter().copied() {
        let value = |key: &&String| record.settings.get(*key).map(ToString::to_string).unwrap_or_default();
        let mut place = vec![record.machine.clone(), record.kernel.clone()];
        place.extend(keys.iter().map(value));
        match rows.iter_mut().find(|row| row.0 == place) {
            Some(row) => row.1.push(record),
            None => rows.push((place, vec![record])),
        }
    }
    let cell = |repeats: &[&Record], metric: &String| {
        let mut values: Vec<f64> = repeats.iter().filter_map(|r| r.metric(metric)).collect();
        let Some(spread) = Spread::of(&mut values) else { return String::new() };
        let median = text::number(spread.median);
        spread.told().map_or(median.clone(), |(low, high)| format!("{median} ({low} to {high})"))
    };
    let whole = |(mut row, repeats): (Vec<String>, Vec<&Record>)| {
        row.extend(own.iter().map(|metric| cell(&repeats, metric)));
        row
    };
    (Table { head, rows: rows.into_iter().map(whole).collect() }, words)
}
