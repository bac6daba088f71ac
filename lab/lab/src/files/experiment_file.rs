//! What is in an experiment's file: `experiments/*.toml`.
//!
//! An experiment names a workload (a program, in a [registry](crate::run::Registry)), its parameters with their
//! sources, the machines and kernels that it runs on, and the published numbers that its results stand beside, by
//! rules.

use super::rules::Compare;
use super::setting::Setting;
use super::units::unit_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An experiment file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// A few words for headings.
    pub title: String,
    /// The place among all experiments.
    #[serde(default)]
    pub order: u32,
    /// The paper that made it: the name of one that is built in, or a path beside the file that ends in `.toml`; empty
    /// where none did.
    #[serde(default)]
    pub paper: String,
    /// The section that describes it.
    #[serde(default)]
    pub section: String,
    /// What is done, in a sentence or two.
    pub summary: String,
    /// The program that is run, by its name in a registry.
    pub workload: String,
    /// Numbers that may be changed with `--set`.
    pub parameters: BTreeMap<String, Parameter>,
    /// Words that may be changed with `--set`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub choices: BTreeMap<String, Choice>,
    /// Short names for keys of the machine or the kernel that this experiment is about: as good as parameters in
    /// `--set`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub short: BTreeMap<String, String>,
    /// How often each run of the matrix is made, with a seed of its own and perturbed, where its results hang on what
    /// no real machine holds fixed.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub repeat: u32,
    /// What is run by default.
    pub matrix: Vec<Matrix>,
    /// What the results stand beside.
    #[serde(default)]
    pub compare: Vec<Compare>,
    /// What is drawn as curves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curves>,
}

impl ExperimentFile {
    /// How often each run of `block` is made.
    pub fn repeats(&self, block: &Matrix) -> u32 {
        block.repeat.unwrap_or(self.repeat)
    }

    /// Some of its runs are made several times.
    pub fn is_repeated(&self) -> bool {
        self.matrix.iter().any(|block| self.repeats(block) > 1)
    }
}

/// Curves over a parameter that varies in the matrix; both axes are logarithmic, but for one across that begins with 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curves {
    /// The title of the figure.
    pub title: String,
    /// What its axes are.
    pub subtitle: String,
    /// The parameter.
    pub x: String,
    /// The result.
    pub metric: String,
    /// Whether more of it is better, or less, where its unit does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
    /// What has to be said about it.
    pub note: String,
    /// The data sets, in the order of the legend.
    pub lines: Vec<CurveLine>,
}

/// Which of two values of a metric is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The greater one: work done.
    #[default]
    More,
    /// The smaller one: what something takes.
    Less,
}

impl Better {
    /// What is better of what has this unit; nothing where it is a count or a share, which may be of either kind.
    pub fn of_unit(unit: &str) -> Option<Better> {
        match unit {
            "s" | "ms" | "us" | "µs" | "ns" | "cycles" => Some(Better::Less),
            _ if unit.starts_with("times ") => Some(Better::Less),
            _ if unit.contains("/s") || unit == "Mbit/CPU" => Some(Better::More),
            _ => None,
        }
    }

    /// How many times as good `value` is as `other`.
    pub fn gain(self, value: f64, other: f64) -> f64 {
        match self {
            Better::More => value / other,
            Better::Less => other / value,
        }
    }
}

/// One data set of curves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveLine {
    /// Its name.
    pub name: String,
    /// Of the runs under this kernel only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The runs with these settings, as for `--set`.
    pub set: Vec<String>,
    /// The line that it replaces: it pays from where on it is better than that one. The report says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// What has to be so for that, where it is not so in general: for tables, behind the names of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds_if: Option<String>,
    /// The lines of which it should be as good as the best, where it is a choice that the kernel makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub best_of: Vec<String>,
    /// The share of the best that it should come to, in percent, where that is not [`SHARE_OF_BEST`] as for others.
    ///
    /// [`SHARE_OF_BEST`]: crate::judge::SHARE_OF_BEST
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_percent_of_best: Option<u32>,
    /// Where it is known to be further from the best, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worse: Vec<Worse>,
}

/// A place at which the kernel chooses worse than it should.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worse {
    /// The machine.
    pub machine: String,
    /// At which of what the curves are over.
    pub x: i64,
    /// The cause.
    pub because: String,
}

/// A number that an experiment depends on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The default.
    pub value: i64,
    /// The value in the runs of the matrix, where it is not the default: `reproduce` runs many, and a steady state
    /// needs no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<i64>,
    /// The value in quick runs, where it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<i64>,
    /// The least that makes sense.
    pub min: i64,
    /// Its unit.
    pub unit: String,
    /// Where the default is from.
    #[serde(default = "yours")]
    pub source: String,
}

/// One of a few ways to do something.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The default.
    pub value: String,
    /// All there are.
    pub allowed: Vec<String>,
    /// Besides these, the name of any file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_file: bool,
    /// What they mean, and where they are from.
    #[serde(default = "yours")]
    pub source: String,
}

fn once() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_once(repeat: &u32) -> bool {
    *repeat == 1
}

/// The source of a value that says none: whoever wrote the file.
fn yours() -> String {
    "yours".into()
}

/// A block of runs: each of the machines with each of the kernels, and each combination of the values that vary.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Names of machines.
    pub machines: Vec<String>,
    /// Names of kernels.
    pub kernels: Vec<String>,
    /// Settings of all its runs, as for `--set`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Settings that take several values. The last one changes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<Vary>,
    /// How often each of its runs is made, where that is not as in the rest of the matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
}

/// A setting that takes several values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// As for `--set`.
    pub key: String,
    /// The values.
    pub values: Vec<Setting>,
    /// Those of quick runs, where they are fewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quick: Vec<Setting>,
}

impl ExperimentFile {
    /// The name of its paper: that of its file, without folders and `.toml`. Empty where no paper made it.
    pub fn paper_name(&self) -> &str {
        match self.paper.strip_suffix(".toml") {
            Some(path) => path.rsplit(['/', '\\']).next().unwrap_or(path),
            None => &self.paper,
        }
    }

    /// The machine and the kernel that its matrix names first.
    ///
    /// # Panics
    /// When it names none: such a file cannot be loaded.
    pub fn first(&self) -> (&str, &str) {
        let block = self.matrix.first().expect("the matrix has a block");
        (&block.machines[0], &block.kernels[0])
    }

    /// The unit of the values of a parameter, or of a machine's or a kernel's key: empty for plain numbers.
    pub fn unit(&self, key: &str) -> &str {
        self.parameters.get(key).map_or_else(|| unit_of(key), |parameter| parameter.unit.as_str())
    }

    /// What a parameter or choice is in the runs of the matrix that do not set it.
    pub(super) fn default(&self, key: &str) -> Option<String> {
        let number = self.parameters.get(key).map(|p| p.at(Scale::Reproduce).to_string());
        number.or_else(|| self.choices.get(key).map(|choice| choice.value.clone()))
    }
}

/// Which of a parameter's values is meant where none is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// The default: what the paper did.
    Full,
    /// As one run of the matrix among many.
    Reproduce,
    /// A look in seconds.
    Quick,
}

impl Parameter {
    /// The value where none is given.
    pub fn at(&self, scale: Scale) -> i64 {
        match scale {
            Scale::Full => self.value,
            Scale::Reproduce => self.reproduce.unwrap_or(self.value),
            Scale::Quick => self.quick.unwrap_or(self.value),
        }
    }
}
