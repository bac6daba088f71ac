//! Tidy tables: every column has one type, every row is one fact, and numbers join them.

use super::data::Table;
use pageferry_lab::judge::Reproduction;
use pageferry_lab::judge::{Comparison, Crossover, Pays};
use pageferry_lab::record::{Entry, Record};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut out = ::csv::Writer::from_writer(Vec::new());
    out.write_record(head).expect("memory can be written");
    rows.for_each(|row| {
        out.write_record(&row).expect("memory can be written, and rows are as long as the head")
    });
    String::from_utf8(out.into_inner().expect("memory can be written")).expect("text in, text out")
}

/// The measurements: number of the run, metric, unit, value. A metric that the dictionary does not have has no unit.
pub fn results<'a>(records: impl Iterator<Item = &'a Record>, dictionary: &[Entry]) -> String {
    let units: BTreeMap<&str, &str> = dictionary.iter().map(|e| (&*e.metric, &*e.unit)).collect();
    let rows = records.enumerate().flat_map(|(run, record)| {
        let row = |(metric, value): (String, String)| {
            let unit = units.get(&*metric).copied().unwrap_or_default();
            vec![(run + 1).to_string(), metric.clone(), unit.to_owned(), value]
        };
        metrics(record).into_iter().map(row).collect::<Vec<_>>()
    });
    table(&["run", "metric", "unit", "value"], rows)
}

/// Every metric of a record once.
pub(super) fn metrics(record: &Record) -> BTreeMap<String, String> {
    let counts = record.counters.iter().chain(&record.hardware);
    let mut all: BTreeMap<String, String> =
        counts.map(|(name, value)| (name.clone(), value.to_string())).collect();
    all.extend(record.results.iter().map(|(name, value)| (name.clone(), value.to_string())));
    let causes = record.cycles.by_cause.iter();
    all.extend(causes.map(|(name, value)| (format!("cycles.{name}"), value.to_string())));
    all.insert("cycles.total".into(), record.cycles.total.to_string());
    all.insert("payload_ok".into(), u8::from(record.payload_ok).to_string());
    all
}

/// The runs in wide form, a row for each: experiment, machine, kernel, seed, each of `settings` (its name here, and its
/// key in the records), and every metric that one of them has. A metric that has the name of a column before it is
/// called `metric.NAME`.
pub fn wide(records: &[&Record], settings: &[(String, String)]) -> String {
    let all: Vec<BTreeMap<String, String>> = records.iter().map(|record| metrics(record)).collect();
    let names: BTreeSet<&str> = all.iter().flat_map(|metrics| metrics.keys().map(String::as_str)).collect();
    let mut head: Vec<String> = ["experiment", "machine", "kernel", "seed"].map(str::to_owned).into();
    head.extend(settings.iter().map(|(name, _)| name.clone()));
    let taken: BTreeSet<String> = head.iter().cloned().collect();
    let column =
        |name: &&str| if taken.contains(*name) { format!("metric.{name}") } else { (*name).to_owned() };
    head.extend(names.iter().map(column));
    let rows = records.iter().zip(&all).map(|(record, metrics)| {
        let Record { experiment, machine, kernel, seed, .. } = record;
        let mut row = vec![experiment.clone(), machine.clone(), kernel.clone(), seed.to_string()];
        let value = |key: &String| record.settings.get(key).map(ToString::to_string).unwrap_or_default();
        row.extend(settings.iter().map(|(_, key)| value(key)));
        row.extend(names.iter().map(|name| metrics.get(*name).cloned().unwrap_or_default()));
        row
    });
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table(&head, rows)
}

/// The runs: number, experiment, machine, kernel, seed, whether it was perturbed, the settings as JSON, and a hash of
/// all that the run depends on.
pub(super) fn runs(of: &Reproduction) -> String {
    let rows = of.records().zip(&of.configurations).enumerate().map(|(run, (record, configuration))| {
        let settings = serde_json::to_string(&record.settings).expect("plain data can be written as JSON");
        vec![
            (run + 1).to_string(),
            record.experiment.clone(),
            record.machine.clone(),
            record.kernel.clone(),
            record.seed.to_string(),
            record.perturbed.to_string(),
            settings,
            configuration.clone(),
        ]
    });
    table(&["run", "experiment", "machine", "kernel", "seed", "perturbed", "settings", "configuration"], rows)
}

/// A number that has a fraction, also where that is zero: a reader that guesses a column's type from its first rows
/// must not take it for one of whole numbers.
fn float(value: f64) -> String {
    format!("{value:?}")
}

/// Results beside published ones. What is published in words has no number, and no ratio.
pub(super) fn published(all: &[Comparison]) -> String {
    let head = [
        "published",
        "source",
        "experiment",
        "machine",
        "kernel",
        "what",
        "reading",
        "under",
        "here",
        "published_value",
        "ratio",
        "agrees",
        "standing",
        "repeats",
        "repeats_agree",
        "here_low",
        "here_high",
    ];
    let number = |value: Option<f64>| value.map(float).unwrap_or_default();
    let rows = all.iter().map(|c| {
        vec![
            c.published.clone(),
            c.source.clone(),
            c.experiment.clone(),
            c.machine.clone(),
            c.kernel.clone(),
            c.what.clone(),
            c.reading.clone().unwrap_or_default(),
            c.under.clone().unwrap_or_default(),
            float(c.ours_value),
            number(c.theirs_value),
            number(c.ratio),
            c.agrees.to_string(),
            format!("{:?}", c.standing).to_lowercase(),
            c.repeats.as_ref().map_or(1, |repeats| repeats.spread.repeats).to_string(),
            c.repeats.as_ref().map_or(usize::from(c.agrees), |repeats| repeats.agreeing).to_string(),
            float(c.repeats.as_ref().map_or(c.ours_value, |repeats| repeats.spread.low)),
            float(c.repeats.as_ref().map_or(c.ours_value, |repeats| repeats.spread.high)),
        ]
    });
    table(&head, rows)
}

/// Crossovers: whether each mechanism pays `always`, `never` or `from` a value of `x` on, and that value.
pub(super) fn crossovers(all: &[Crossover]) -> String {
    let rows = all.iter().map(|c| {
        let (pays, from) = match c.pays {
            Pays::Always => ("always", String::new()),
            Pays::From(x) => ("from", float(x)),
            Pays::Never => ("never", String::new()),
        };
        let (experiment, mechanism, over) = (c.experiment.clone(), c.mechanism.clone(), c.over.clone());
        let gain = float(c.gain_at_largest);
        let holds_if = c.holds_if.clone().unwrap_or_default();
        let (x, unit) = (c.x.clone(), c.unit.clone());
        vec![experiment, mechanism, over, holds_if, c.machine.clone(), x, unit, pays.to_owned(), from, gain]
    });
    let head = [
        "experiment",
        "mechanism",
        "over",
        "holds_if",
        "machine",
        "x",
        "unit",
        "pays",
        "from",
        "gain_at_largest",
    ];
    table(&head, rows)
}

/// What a figure draws.
pub(super) fn figure(of: &Table) -> String {
    let head: Vec<&str> = of.head.iter().map(String::as_str).collect();
    table(&head, of.rows.iter().cloned())
}

/// The dictionary: metric, unit, meaning.
pub(super) fn metrics_table(dictionary: &[Entry]) -> String {
    let rows = dictionary.iter().map(|e| vec![e.metric.clone(), e.unit.clone(), e.about.clone()]);
    table(&["metric", "unit", "about"], rows)
}
