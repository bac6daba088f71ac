//! Experiments by name: found, checked, and given parameters.

use super::catalogue::{self, Kind, Source};
use super::curve_check;
use super::experiment_file::{ExperimentFile, Scale};
use super::matrix_check;
use super::papers::Paper;
use super::reads::{self, KnownWorkloads, Reads};
use super::rule_check;
use super::setting::{Setting, parse_integer};
use crate::error::LabError;
use pageferry_sourced::{ConfigError, Fault, Ranges, load_extending, load_toml, nearest, range};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the numbers of an experiment file may be, wherever they stand; a parameter's are bounded further by what the
/// workload can do.
const RANGES: Ranges = Ranges(&[
    range("order", 0, 1_000_000),
    range("repeat", 1, MAX_REPEAT as i64),
    range("curves.*.lines.*.min_percent_of_best", 1, 100),
    range("*", 0, 1 << 40),
]);

/// How often a run may be made, at most.
pub const MAX_REPEAT: u32 = 10_000;

/// The most runs of a block of the matrix.
const MAX_RUNS: usize = 10_000;

/// An experiment under its name.
#[derive(Clone, PartialEq, Debug)]
pub struct Experiment {
    /// The short name.
    pub name: String,
    /// Its contents.
    pub file: ExperimentFile,
    /// The paper that made it, if one did.
    pub paper: Option<Arc<Paper>>,
    /// What its workload reads.
    pub reads: &'static [Reads],
}

impl ExperimentFile {
    /// Refuses what no experiment could be.
    fn validate(&self, known: &KnownWorkloads<'_>) -> Result<(), Fault> {
        let fault = |key: &str, problem: String| Err(Fault { key: key.into(), problem, suggestion: None });
        let reads = reads::of(&self.workload, known)?;
        if self.matrix.is_empty() || self.matrix.iter().any(|b| b.machines.is_empty() || b.kernels.is_empty())
        {
            return fault("matrix", "no machine or no kernel, expected at least one of each".into());
        }
        for (i, block) in self.matrix.iter().enumerate() {
            if let Some(repeat) = block.repeat.filter(|repeat| !(1..=MAX_REPEAT).contains(repeat)) {
                return fault(
                    &format!("matrix[{i}].repeat"),
                    format!("{repeat}, expected 1 to {MAX_REPEAT}"),
                );
            }
            let counts = block.vary.iter().map(|vary| vary.values.len().max(vary.quick.len()));
            let all = counts.chain([block.machines.len(), block.kernels.len(), self.repeats(block) as usize]);
            let runs = all.fold(1usize, |runs, count| runs.saturating_mul(count));
            if runs > MAX_RUNS {
                return fault(&format!("matrix[{i}]"), format!("{runs} runs, expected at most {MAX_RUNS}"));
            }
        }
        for (name, choice) in &self.choices {
            if !choice.allowed.contains(&choice.value) {
                let problem = format!("`{}`, expected {}", choice.value, choice.allowed.join(" or "));
                return fault(&format!("choices.{name}.value"), problem);
            }
            if self.parameters.contains_key(name) {
                return fault(&format!("choices.{name}"), "a parameter has the same name".into());
            }
        }
        reads::check(self, reads)?;
        let metrics = (known.metrics)(&self.workload);
        curve_check::check(&self.as_recorded(), &metrics)?;
        rule_check::check(&self.as_recorded(), &metrics)
    }
}

/// `error`, or that its parameter or choice is none that the workload reads: then whatever else is wrong with it does
/// not matter. `base` gives the text of what a file extends.
fn stranger(
    error: ConfigError,
    source: &Source,
    known: &KnownWorkloads<'_>,
    base: &dyn Fn(&str) -> Option<String>,
) -> ConfigError {
    let mut segments = error.key.split('.');
    let (Some(table @ ("parameters" | "choices")), Some(name)) = (segments.next(), segments.next()) else {
        return error;
    };
    let mut text = source.text.clone();
    // A file that extends itself has no end.
    for _ in 0..100 {
        let Ok(file) = text.parse::<toml::Table>() else { return error };
        let word = |key: &str| file.get(key).and_then(toml::Value::as_str);
        if let Some(workload) = word("workload") {
            let Some(reads) = known.reads.get(workload) else { return error };
            return match reads::no_such(table, name, reads) {
                Some(Fault { key, problem, suggestion }) => {
                    let at = ConfigError::of_value(&source.file, &source.text, &key, problem);
                    ConfigError { suggestion, ..at }
                }
                None => error,
            };
        }
        let Some(next) = word("extends").and_then(base) else { return error };
        text = next;
    }
    error
}

/// `error` with what a file that lacks something could have said instead.
fn hinted(error: ConfigError, source: &Source) -> ConfigError {
    let extends = source.text.lines().any(|line| line.trim_start().starts_with("extends"));
    if extends || !error.problem.contains("missing") {
        return error;
    }
    let problem = format!(
        "{}; a file that says only in what it differs from another begins with `extends = \"NAME\"`",
        error.problem
    );
    ConfigError { problem, ..error }
}

impl Experiment {
    /// The experiment in `source`, whose workload is one of `known`. What it extends is one of `own`, one that is built
    /// in, or a path beside it.
    ///
    /// # Errors
    /// A file that cannot be used, or the paper that it names.
    pub fn load(
        source: &Source,
        known: &KnownWorkloads<'_>,
        own: &[(String, String)],
    ) -> Result<Experiment, LabError> {
        let check = |file: &ExperimentFile| file.validate(known);
        let file: ExperimentFile = catalogue::extending(Kind::Experiment, &source.file, |lookup| {
            let lookup = |name: &str| match own.iter().find(|(own, _)| own == name) {
                Some((_, text)) => Some(text.clone()),
                None => lookup(name),
            };
            load_extending(&source.file, &source.text, "experiment", &lookup, &RANGES, &[], &check)
        })
        .map_err(|error| {
            let base = |name: &str| match own.iter().find(|(own, _)| own == name) {
                Some((_, text)) => Some(text.clone()),
                None => catalogue::base(Kind::Experiment, &source.file, name).map(|base| base.text),
            };
            hinted(stranger(error, source, known, &base), source)
        })?;
        let file = file.as_recorded();
        let refused = |Fault { key, problem, suggestion }| {
            let error = ConfigError::of_value(&source.file, &source.text, &key, problem);
            ConfigError { suggestion, ..error }
        };
        let paper = match file.paper.as_str() {
            "" => None,
            name => Some(Paper::named(name, &source.file)?.map_err(refused)?),
        };
        match &paper {
            Some(paper) => rule_check::check_statements(&file, paper).map_err(refused)?,
            None if file.compare.is_empty() => {}
            None => {
                let problem = "it compares with what is published, and names no `paper`";
                return Err(refused(Fault {
                    key: "compare".into(),
                    problem: problem.into(),
                    suggestion: None,
                })
                .into());
            }
        }
        let reads = reads::of(&file.workload, known).map_err(refused)?;
        let experiment = Experiment { name: source.name.clone(), file, paper: paper.map(Arc::new), reads };
        // The matrices that are in the program are checked by a test.
        if !catalogue::is_embedded(Kind::Experiment, source) {
            experiment.check_matrix().map_err(refused)?;
        }
        Ok(experiment)
    }

    /// Refuses what the matrix names and nothing has.
    fn check_matrix(&self) -> Result<(), Fault> {
        matrix_check::check(&self.file, &|key: &str, value: &str| self.value(key, value).map(drop))
    }

    /// One whose runs were made: its file is not checked again. Its paper is one of `papers`, or built in.
    ///
    /// # Errors
    /// A paper that is neither.
    pub fn of_records(
        name: &str,
        file: ExperimentFile,
        papers: &BTreeMap<String, Arc<Paper>>,
    ) -> Result<Experiment, LabError> {
        let paper = match (file.paper_name(), papers.get(file.paper_name())) {
            ("", _) => None,
            (_, Some(paper)) => Some(paper.clone()),
            (name, None) => Some(Arc::new(Paper::find(name)?)),
        };
        Ok(Experiment { name: name.to_owned(), file, paper, reads: &[] })
    }

    /// The one in the program, as it is, for tests.
    #[cfg(test)]
    pub(crate) fn unchecked(name: &str) -> Experiment {
        let source = catalogue::embedded(Kind::Experiment, name).expect("embedded");
        let file: ExperimentFile = load_toml(&source.file, &source.text).expect("an experiment");
        let paper = Paper::find(&file.paper).ok().map(Arc::new);
        Experiment { name: source.name, file, paper, reads: &[] }
    }

    /// The greatest number that the parameter `key` may be.
    pub fn max_of(&self, key: &str) -> i64 {
        reads::max_of(self.reads, key)
    }

    /// Whether it is in the program like this.
    pub fn is_built_in(&self) -> bool {
        let built_in = catalogue::embedded(Kind::Experiment, &self.name);
        built_in.is_some_and(|source| {
            load_toml(&source.file, &source.text).is_ok_and(|file: ExperimentFile| file == self.file)
        })
    }

    /// The values of parameters and choices: those of `scale`, with `changes`.
    ///
    /// # Errors
    /// A key that the experiment does not have, or a word that is no choice (with the nearest); a number out of range.
    pub fn parameters(
        &self,
        scale: Scale,
        changes: &[(String, String)],
    ) -> Result<BTreeMap<String, Setting>, LabError> {
        let numbers = self.file.parameters.iter().map(|(k, p)| (k.clone(), Setting::Integer(p.at(scale))));
        let words = self.file.choices.iter().map(|(k, c)| (k.clone(), Setting::Text(c.value.clone())));
        let mut values: BTreeMap<String, Setting> = numbers.chain(words).collect();
        for (key, text) in changes {
            let value = self.value(key, text);
            let value = value.map_err(|problem| LabError::Setting { key: key.clone(), problem })?;
            values.insert(key.clone(), value);
        }
        Ok(values)
    }

    /// `text` as a value of `key`, or what is wrong with it.
    fn value(&self, key: &str, text: &str) -> Result<Setting, String> {
        if let Some(choice) = self.file.choices.get(key) {
            let allowed = choice.allowed.iter().map(String::as_str);
            if choice.or_file && std::path::Path::new(text).is_file() {
                return Ok(Setting::Text(text.to_owned()));
            }
            return match nearest(text, allowed.clone()) {
                _ if allowed.clone().any(|a| a == text) => Ok(Setting::Text(text.to_owned())),
                Some(near) => Err(format!("`{text}`, did you mean `{near}`?")),
                None if choice.or_file => {
                    Err(format!("there is no file `{text}`, nor one of {}", choice.allowed.join(", ")))
                }
                None => Err(format!("`{text}`, expected {}", choice.allowed.join(" or "))),
            };
        }
        let parameter = self.file.parameters.get(key).ok_or_else(|| self.unknown(key))?;
        let (min, max, unit) = (parameter.min, reads::max_of(self.reads, key), &parameter.unit);
        let number = parse_integer(text).filter(|value| (min..=max).contains(value));
        let expected =
            || format!("`{text}`, expected a whole number of {unit}, at least {min} and at most {max}");
        number.map(Setting::Integer).ok_or_else(expected)
    }

    fn unknown(&self, key: &str) -> String {
        let known: Vec<_> = self
            .file
            .parameters
            .keys()
            .chain(self.file.choices.keys())
            .chain(self.file.short.keys())
            .map(String::as_str)
            .collect();
        let prefixed = [format!("machine.{key}"), format!("kernel.{key}")];
        match nearest(key, known.iter().copied()) {
            Some(name) => format!("experiment `{}` has no such parameter; did you mean `{name}`?", self.name),
            None => match constants_like(key) {
                Some(like) => format!("unknown key; did you mean `{like}`?"),
                None => format!(
                    "experiment `{}` has no such parameter; it has {}; constants are `{}` or `{}`",
                    self.name,
                    known.join(", "),
                    prefixed[0],
                    prefixed[1]
                ),
            },
        }
    }
}

/// A key of a machine or a kernel whose first word is misspelt, as it should be.
fn constants_like(key: &str) -> Option<String> {
    let (first, rest) = key.split_once('.')?;
    Some(format!("{}.{rest}", nearest(first, ["machine", "kernel"])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::experiment_file::Choice;
    use crate::files::reads::Values;

    const SIZE: Reads = Reads { key: "size_bytes", values: Values::Numbers { min: 1, max: 1 << 32 } };
    const TOTAL: Reads = Reads { key: "total_bytes", values: Values::Numbers { min: 1, max: 1 << 40 } };
    const WARMUP: Reads = Reads { key: "warmup_writes", values: Values::Numbers { min: 0, max: 1 << 20 } };
    const SEND: Reads = Reads { key: "send", values: Values::Words(&["copy", "loan", "auto"]) };

    fn known() -> KnownWorkloads<'static> {
        let reads = [("null-write", &[SIZE, TOTAL, WARMUP, SEND] as &[_])].into();
        KnownWorkloads { reads, metrics: &|_| [("bandwidth_mb_s".to_owned(), "MB/s".to_owned())].into() }
    }

    #[test]
    fn a_matrix_has_an_end() {
        let mut file = Experiment::unchecked("null-write").file;
        let block = file.matrix.first_mut().expect("there is one");
        let vary = |key: &str| crate::files::Vary {
            key: key.into(),
            values: (1..1000).map(Setting::Integer).collect(),
            quick: Vec::new(),
        };
        block.vary.extend(["a", "b", "c", "d", "e", "f", "g"].map(vary));
        let refused = file.validate(&known()).expect_err("too many");
        assert_eq!(refused.key, "matrix[0]");
        assert!(refused.problem.ends_with("runs, expected at most 10000"), "{refused}");
    }

    #[test]
    fn choices_are_checked() {
        let mut experiment = Experiment::unchecked("null-write");
        let allowed = vec!["copy".to_owned(), "loan".to_owned()];
        let choice = Choice { value: "copy".into(), allowed, or_file: false, source: String::new() };
        experiment.file.choices.insert("send".into(), choice);
        let change = |value: &str| experiment.parameters(Scale::Full, &[("send".into(), value.into())]);
        assert_eq!(change("loan").expect("good")["send"], Setting::Text("loan".into()));
        let message = |value: &str| change(value).expect_err("no such choice").to_string();
        assert_eq!(message("laon"), "--set send: `laon`, did you mean `loan`?");
        assert_eq!(message("magic"), "--set send: `magic`, expected copy or loan");
        experiment.file.validate(&known()).expect("still an experiment");
        experiment.file.choices.get_mut("send").expect("just made").value = "move".into();
        assert_eq!(experiment.file.validate(&known()).expect_err("no default").key, "choices.send.value");
    }

    #[test]
    fn parameters_are_checked() {
        let experiment = Experiment::unchecked("bw-pipe");
        let change =
            |key: &str, value: &str| experiment.parameters(Scale::Full, &[(key.into(), value.into())]);
        assert_eq!(change("total_bytes", "1_000").expect("good")["total_bytes"], Setting::Integer(1000));
        let e = change("total_byte", "1").expect_err("no such key").to_string();
        assert!(e.ends_with("did you mean `total_bytes`?"), "{e}");
        let e = change("chunk_bytes", "0").expect_err("too small").to_string();
        assert!(e.contains("at least 1"), "{e}");
        let quick = experiment.parameters(Scale::Quick, &[]).expect("good");
        assert_eq!(quick["total_bytes"], Setting::Integer(4 << 20));
    }
}
