//! What of an experiment's matrix a rule or a line of curves means, and the names that it may say it by.
//!
//! Rules and lines name machines and kernels as records do, without folders and `.toml`, and settings by full keys.

use super::experiment_file::{ExperimentFile, Matrix, Vary};
use super::reads::Metrics;
use super::setting::{Setting, key_value};
use pageferry_sourced::{Fault, nearest};

/// A fault at `key`, with the one of `known` that is nearest to what stands there.
pub(super) fn unknown<'a>(
    key: impl Into<String>,
    problem: String,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Fault {
    Fault { key: key.into(), problem, suggestion: nearest(name, known).map(str::to_owned) }
}

/// Refuses a metric that no run has.
pub(super) fn check_metric(key: &str, metric: &str, metrics: &Metrics) -> Result<(), Fault> {
    if metrics.contains_key(metric) {
        return Ok(());
    }
    let problem = format!("no run has the metric `{metric}`");
    Err(unknown(key, problem, metric, metrics.keys().map(String::as_str)))
}

/// Refuses a kernel that the matrix does not name.
pub(super) fn check_kernel(file: &ExperimentFile, key: &str, kernel: &str) -> Result<(), Fault> {
    let there = || file.matrix.iter().flat_map(|block| &block.kernels).map(|name| bare(name));
    if there().any(|name| name == kernel) {
        return Ok(());
    }
    Err(unknown(key, format!("the matrix has no kernel `{kernel}`"), kernel, there()))
}

/// Refuses a machine that the matrix does not name.
pub(super) fn check_machine(file: &ExperimentFile, key: &str, machine: &str) -> Result<(), Fault> {
    let there = || file.matrix.iter().flat_map(|block| &block.machines).map(|name| bare(name));
    if there().any(|name| name == machine) {
        return Ok(());
    }
    Err(unknown(key, format!("the matrix has no machine `{machine}`"), machine, there()))
}

/// Refuses `key=value` whose key no run has.
pub(super) fn check_set(file: &ExperimentFile, key: &str, text: &str) -> Result<(), Fault> {
    let (name, value) = key_value(text);
    if value.is_empty() {
        let problem = format!("`{text}`, expected key=value");
        return Err(Fault { key: key.into(), problem, suggestion: None });
    }
    let known =
        || file.parameters.keys().chain(file.choices.keys()).map(String::as_str).chain(file.set_keys());
    if known().any(|known| known == name) {
        return Ok(());
    }
    Err(unknown(key, format!("the runs have no setting `{name}`"), name, known()))
}

/// The name that a file has in records: without folders and `.toml`.
pub(super) fn bare(name: &str) -> &str {
    match name.strip_suffix(".toml") {
        Some(path) => path.rsplit(['/', '\\']).next().unwrap_or(path),
        None => name,
    }
}

/// How many runs of the matrix on `machine`, or any, and under `kernel`, or any, have all of `wanted`.
pub(super) fn runs_with(
    file: &ExperimentFile,
    machine: Option<&str>,
    kernel: Option<&str>,
    wanted: &[String],
) -> usize {
    let of_block = |block: &Matrix| -> usize {
        let may_be = |text: &String| {
            let (key, value) = key_value(text);
            let set = || block.set.iter().map(|text| key_value(text)).find(|set| file.full_key(set.0) == key);
            block.vary.iter().any(|vary| file.full_key(&vary.key) == key)
                || set().map_or_else(|| file.default(key), |set| Some(file.digits(key, set.1))).as_deref()
                    == Some(value)
        };
        let ways = |vary: &Vary| {
            let key = file.full_key(&vary.key);
            let wanted = wanted.iter().map(|text| key_value(text)).find(|wanted| wanted.0 == key);
            vary.values
                .iter()
                .filter(|v| wanted.is_none_or(|wanted| file.digits(key, &v.to_string()) == wanted.1))
                .count()
        };
        if wanted.iter().all(may_be) { block.vary.iter().map(ways).product() } else { 0 }
    };
    let is_in = |names: &[String], name: Option<&str>| {
        name.is_none_or(|name| names.iter().any(|other| bare(other) == name))
    };
    let here = |block: &&Matrix| is_in(&block.machines, machine) && is_in(&block.kernels, kernel);
    file.matrix.iter().filter(here).map(of_block).sum()
}

impl ExperimentFile {
    /// What the matrix sets, by full keys.
    pub(super) fn set_keys(&self) -> impl Iterator<Item = &str> {
        self.matrix.iter().flat_map(|block| {
            let vary = block.vary.iter().map(|vary| vary.key.as_str());
            vary.chain(block.set.iter().map(|text| key_value(text).0)).map(|key| self.full_key(key))
        })
    }

    /// A key written out where the file has a short name for it.
    pub(super) fn full_key<'a>(&'a self, key: &'a str) -> &'a str {
        self.short.get(key).map_or(key, String::as_str)
    }

    /// The value of a setting as records have it: a number in digits.
    pub(super) fn digits(&self, key: &str, value: &str) -> String {
        match self.parameters.contains_key(key) {
            true => Setting::with_unit(value).to_string(),
            false => Setting::parse(value).to_string(),
        }
    }

    /// The rules and curves as records have it: keys written out, numbers in digits, files by their names.
    pub(super) fn as_recorded(&self) -> ExperimentFile {
        let text = |text: &String| {
            let (key, value) = key_value(text);
            let (full, plain) = (self.full_key(key), self.digits(key, value));
            if full == key && plain == value { text.clone() } else { format!("{full}={plain}") }
        };
        let texts = |list: &[String]| list.iter().map(text).collect::<Vec<_>>();
        let names = |list: &[String]| list.iter().map(|name| bare(name).to_owned()).collect::<Vec<_>>();
        let mut file = self.clone();
        for rule in &mut file.compare {
            rule.set = texts(&rule.set);
            rule.other_set = texts(&rule.other_set);
            rule.base = texts(&rule.base);
            rule.machines = names(&rule.machines);
            rule.other_machines = names(&rule.other_machines);
            rule.kernel = bare(&rule.kernel).to_owned();
            rule.over = rule.over.as_deref().map(|name| bare(name).to_owned());
            if let Some(along) = &mut rule.along {
                along.key = self.full_key(&along.key).to_owned();
            }
        }
        for curves in &mut file.curves {
            curves.x = self.full_key(&curves.x).to_owned();
            for line in &mut curves.lines {
                line.set = texts(&line.set);
                line.kernel = line.kernel.as_deref().map(|name| bare(name).to_owned());
                for worse in &mut line.worse {
                    worse.machine = bare(&worse.machine).to_owned();
                }
            }
        }
        file
    }
}
