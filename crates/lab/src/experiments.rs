//! Experiments: `experiments/*.toml`.
//!
//! An experiment names a workload (a program here, in [`crate::workload`]), its parameters with their sources, the
//! machines and kernels that it runs on, and the published numbers that its results stand beside.

use crate::error::LabError;
use crate::registry::{self, Kind};
use crate::settings::parse_integer;
use pageferry_model::{load_toml, nearest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An experiment file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// A few words for headings.
    pub title: String,
    /// The place among all experiments.
    pub order: u32,
    /// The paper that made it: the name of a file in `papers/`.
    pub paper: String,
    /// The section that describes it.
    pub section: String,
    /// What is done, in a sentence or two.
    pub summary: String,
    /// The program that is run.
    pub workload: Workload,
    /// What may be changed with `--set`.
    pub parameters: BTreeMap<String, Parameter>,
    /// What is run by default.
    pub matrix: Vec<Matrix>,
    /// What the results stand beside.
    #[serde(default)]
    pub compare: Vec<Compare>,
}

/// The programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// [`crate::workload::invalidate`].
    Invalidate,
    /// [`crate::workload::bw_pipe`].
    BwPipe,
    /// [`crate::workload::ephemeral_hit`].
    EphemeralHit,
}

/// A parameter of an experiment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The default.
    pub value: i64,
    /// The value in quick runs.
    pub quick: i64,
    /// The least that makes sense.
    pub min: i64,
    /// Its unit.
    pub unit: String,
    /// Where the default is from.
    pub source: String,
}

/// A block of runs: each of the machines with each of the kernels.
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
    /// One setting that takes several values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vary: Option<Vary>,
}

/// A setting that takes several values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// As for `--set`.
    pub key: String,
    /// The values.
    pub values: Vec<i64>,
}

/// How a result stands beside a published number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The metric against the number, or against the range.
    #[default]
    Value,
    /// The metric's gain over that of another kernel against the number, a percentage; judged as a ratio.
    Gain,
    /// The metric is 0.
    Zero,
    /// The metric reaches `bound`.
    AtLeast,
    /// The metric exceeds that of another kernel, or of other machines.
    MoreThan,
}

/// One comparison with a published number.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The id of the number.
    pub published: String,
    /// What is compared.
    #[serde(default)]
    pub how: How,
    /// On each of these machines.
    pub machines: Vec<String>,
    /// Under this kernel.
    pub kernel: String,
    /// This result, counter or hardware count.
    pub metric: String,
    /// For gains and orders: the other kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// For orders: the other machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_machines: Vec<String>,
    /// For bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
}

/// An experiment under its name.
#[derive(Clone, PartialEq, Debug)]
pub struct Experiment {
    /// The short name.
    pub name: String,
    /// Its contents.
    pub file: ExperimentFile,
}

impl Experiment {
    /// The experiment called `name`, or in the file `name`.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be used.
    pub fn find(name: &str) -> Result<Experiment, LabError> {
        let source = registry::find(Kind::Experiment, name)?;
        let file = load_toml(&source.file, &source.text)?;
        Ok(Experiment { name: source.name, file })
    }

    /// All embedded experiments, in order.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn all() -> Result<Vec<Experiment>, LabError> {
        let names = registry::names(Kind::Experiment).into_iter();
        let mut all = names.map(Experiment::find).collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|e| e.file.order);
        Ok(all)
    }

    /// The parameters' values: the defaults, or those for quick runs, with `changes`.
    ///
    /// # Errors
    /// A key that the experiment does not have (with the nearest), or a value out of range.
    pub fn parameters(
        &self,
        quick: bool,
        changes: &[(String, String)],
    ) -> Result<BTreeMap<String, i64>, LabError> {
        let default = |p: &Parameter| if quick { p.quick } else { p.value };
        let mut values: BTreeMap<String, i64> =
            self.file.parameters.iter().map(|(key, p)| (key.clone(), default(p))).collect();
        for (key, text) in changes {
            let refuse = |problem: String| LabError::Setting { key: key.clone(), problem };
            let Some(parameter) = self.file.parameters.get(key) else {
                return Err(refuse(self.unknown(key)));
            };
            match parse_integer(text) {
                Some(value) if value >= parameter.min => values.insert(key.clone(), value),
                _ => {
                    let (min, unit) = (parameter.min, &parameter.unit);
                    return Err(refuse(format!(
                        "`{text}`, expected a whole number of {unit}, at least {min}"
                    )));
                }
            };
        }
        Ok(values)
    }

    fn unknown(&self, key: &str) -> String {
        let known: Vec<_> = self.file.parameters.keys().map(String::as_str).collect();
        let prefixed = [format!("machine.{key}"), format!("kernel.{key}")];
        match nearest(key, known.iter().copied()) {
            Some(name) => format!("experiment `{}` has no such parameter; did you mean `{name}`?", self.name),
            None => format!(
                "experiment `{}` has no such parameter; it has {}; constants are `{}` or `{}`",
                self.name,
                known.join(", "),
                prefixed[0],
                prefixed[1]
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::KernelChoice;
    use crate::machines::MachineChoice;
    use crate::papers::Paper;

    #[test]
    fn experiments_name_only_what_exists() {
        for name in registry::names(Kind::Experiment) {
            let experiment = Experiment::find(name).unwrap_or_else(|e| panic!("{e}")).file;
            let paper = Paper::find(&experiment.paper).unwrap_or_else(|e| panic!("{e}"));
            for block in &experiment.matrix {
                block
                    .machines
                    .iter()
                    .for_each(|m| drop(MachineChoice::find(m).unwrap_or_else(|e| panic!("{e}"))));
                block
                    .kernels
                    .iter()
                    .for_each(|k| drop(KernelChoice::find(k).unwrap_or_else(|e| panic!("{e}"))));
            }
            for compare in &experiment.compare {
                assert!(paper.number(&compare.published).is_some(), "{}", compare.published);
                for machine in compare.machines.iter().chain(&compare.other_machines) {
                    let runs =
                        |b: &Matrix| b.machines.contains(machine) && b.kernels.contains(&compare.kernel);
                    assert!(
                        experiment.matrix.iter().any(runs),
                        "{}: {machine} is not run",
                        compare.published
                    );
                }
            }
        }
    }

    #[test]
    fn parameters_are_checked() {
        let experiment = Experiment::find("bw-pipe").expect("embedded");
        let change = |key: &str, value: &str| experiment.parameters(false, &[(key.into(), value.into())]);
        assert_eq!(change("total_bytes", "1_000").expect("good")["total_bytes"], 1000);
        let e = change("total_byte", "1").expect_err("no such key").to_string();
        assert!(e.ends_with("did you mean `total_bytes`?"), "{e}");
        let e = change("chunk_bytes", "0").expect_err("too small").to_string();
        assert!(e.contains("at least 1"), "{e}");
        assert_eq!(experiment.parameters(true, &[]).expect("good")["total_bytes"], 4 << 20);
    }
}
