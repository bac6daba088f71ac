//! Tidy tables: a row for each run and metric.

use crate::judge::{Crossover, Pays};
use crate::run::Record;
use std::collections::BTreeSet;

/// The records as CSV: experiment, machine, kernel, seed, a column for each setting, then the metric's kind (`result`,
/// `counter`, `cycles`, `hardware`, `check`), name and value. A setting that a run does not have is empty.
///
/// # Panics
/// Never: memory can be written.
pub fn csv<'a>(records: impl Iterator<Item = &'a Record>) -> String {
    let records: Vec<&Record> = records.collect();
    let settings: BTreeSet<&str> =
        records.iter().flat_map(|r| r.settings.keys().map(String::as_str)).collect();
    let mut out = ::csv::Writer::from_writer(Vec::new());
    let head = ["experiment", "machine", "kernel", "seed"].into_iter();
    let head = head.chain(settings.iter().copied()).chain(["kind", "metric", "value"]);
    out.write_record(head).expect("memory");
    for record in records {
        for (kind, metric, value) in metrics(record) {
            let mut row = vec![
                record.experiment.clone(),
                record.machine.clone(),
                record.kernel.clone(),
                record.seed.to_string(),
            ];
            let setting = |key: &&str| record.settings.get(*key).map(ToString::to_string).unwrap_or_default();
            row.extend(settings.iter().map(setting));
            row.extend([kind.to_owned(), metric.to_owned(), value]);
            out.write_record(&row).expect("memory");
        }
    }
    String::from_utf8(out.into_inner().expect("memory")).expect("text in, text out")
}

fn metrics(record: &Record) -> Vec<(&'static str, &str, String)> {
    let mut rows = Vec::new();
    rows.extend(record.results.iter().map(|(name, value)| ("result", name.as_str(), value.to_string())));
    rows.extend(record.counters.iter().map(|(name, value)| ("counter", name.as_str(), value.to_string())));
    rows.push(("cycles", "total", record.cycles.total.to_string()));
    rows.extend(
        record.cycles.by_cause.iter().map(|(name, value)| ("cycles", name.as_str(), value.to_string())),
    );
    rows.extend(record.hardware.iter().map(|(name, value)| ("hardware", name.as_str(), value.to_string())));
    rows.push(("check", "payload_ok", u8::from(record.payload_ok).to_string()));
    rows.push(("check", "stale_translations", record.stale_translations.to_string()));
    rows
}

/// Crossovers as CSV: from which size on each mechanism pays, in bytes; `always` and `never` are words.
///
/// # Panics
/// Never: memory can be written.
pub(super) fn crossovers(all: &[Crossover]) -> String {
    let mut out = ::csv::Writer::from_writer(Vec::new());
    let head = ["experiment", "mechanism", "over", "machine", "pays_from_bytes", "gain_at_largest"];
    out.write_record(head).expect("memory");
    for c in all {
        let from = match c.pays {
            Pays::Always => "always".to_owned(),
            Pays::From(bytes) => bytes.to_string(),
            Pays::Never => "never".to_owned(),
        };
        let gain = c.gain_at_largest.to_string();
        out.write_record([&c.experiment, &c.mechanism, &c.over, &c.machine, &from, &gain]).expect("memory");
    }
    String::from_utf8(out.into_inner().expect("memory")).expect("text in, text out")
}
