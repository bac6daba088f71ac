//! Whether the figures that reasons quote are those of the runs.
//!
//! Of an experiment that was not run nothing is said; of one that was, a figure without a run is as wrong as one that
//! the runs contradict. Nothing here can fail.

use super::reproduction::Reproduction;
use crate::files::{Quote, Setting};
use crate::record::Record;
use crate::text;
use std::collections::BTreeMap;

/// A figure in a reason that the runs do not give.
#[derive(Clone, PartialEq, Debug)]
pub struct WrongQuote {
    /// The id of the published number whose reason it is in.
    pub published: String,
    /// The figure.
    pub text: String,
    /// The experiment that it is of.
    pub experiment: String,
    /// What the runs give; nothing where there is no such run.
    pub found: Vec<f64>,
}

impl Reproduction {
    /// The figures in reasons that are not those of these runs. Quick runs are shorter than those that reasons are of.
    pub fn wrong_quotes(&self) -> Vec<WrongQuote> {
        if self.quick {
            return Vec::new();
        }
        let numbers = self.papers.values().flat_map(|paper| &paper.numbers);
        let quotes = numbers.flat_map(|number| number.quotes.iter().map(move |quote| (number, quote)));
        let ran = |quote: &Quote| self.experiments.iter().any(|e| e.name == quote.experiment);
        quotes
            .filter(|(_, quote)| ran(quote))
            .map(|(number, quote)| (number, quote, found(self, quote)))
            .filter(|(_, quote, found)| !quote.says(found))
            .map(|(number, quote, found)| WrongQuote {
                published: number.id.clone(),
                text: quote.text.clone(),
                experiment: quote.experiment.clone(),
                found,
            })
            .collect()
    }
}

impl std::fmt::Display for WrongQuote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found: Vec<String> = self.found.iter().map(|value| text::number(*value)).collect();
        let found = if found.is_empty() { "no such run".to_owned() } else { found.join(", ") };
        write!(f, "{}: its reason says `{}`, and the runs give {found}", self.published, self.text)
    }
}

/// What the runs give, machine by machine.
fn found(of: &Reproduction, quote: &Quote) -> Vec<f64> {
    let mut all = Vec::new();
    for machine in &quote.machines {
        let meant = |r: &&Record| {
            let same = (&r.experiment, &r.machine, &r.kernel) == (&quote.experiment, machine, &quote.kernel);
            let has = |set: &[String]| set.iter().all(|text| r.has_setting(text));
            same && (has(&quote.set) || (!quote.or_set.is_empty() && has(&quote.or_set)))
        };
        let mut by_settings: BTreeMap<&BTreeMap<String, Setting>, Vec<f64>> = BTreeMap::new();
        for record in of.records().filter(meant) {
            if let Some(value) = value(of, quote, record) {
                by_settings.entry(&record.settings).or_default().push(value);
            }
        }
        for mut values in by_settings.into_values() {
            if quote.each {
                all.extend(values);
            } else {
                all.push(text::median(&mut values));
            }
        }
    }
    all
}

/// Of one run, beside the one with the same seed that it is compared with.
fn value(of: &Reproduction, quote: &Quote, record: &Record) -> Option<f64> {
    let metric = |r: &Record| Some(r.metric(&quote.metric)? / quote.per.unwrap_or(1.0));
    let value = metric(record)?;
    if quote.over.is_none() && quote.base.is_empty() {
        return Some(value);
    }
    let kernel = quote.over.as_ref().unwrap_or(&record.kernel);
    let mut settings = record.settings.clone();
    for text in &quote.base {
        let (key, word) = text.split_once('=')?;
        settings.insert(key.to_owned(), Setting::parse(word));
    }
    let is_base = |r: &&Record| {
        let same = (&r.experiment, &r.machine, r.seed) == (&record.experiment, &record.machine, record.seed);
        same && r.kernel == *kernel && r.settings == settings
    };
    let base = metric(of.records().find(is_base)?)?;
    Some(if quote.difference { base - value } else { 100.0 * (value / base - 1.0) })
}
