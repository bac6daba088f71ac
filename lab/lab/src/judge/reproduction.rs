//! Finished runs, and what they are set beside: what figures, tables and a report are made from.
//!
//! [`Records`] is what was run; it may come from a plan that was just executed, or from a folder. A [`Reproduction`]
//! has besides what is judged of it.

use super::compare::{Comparison, Standing, Statement, compare, statements};
use super::crossover::{AutoChoice, Crossover, chosen, crossovers};
use crate::error::LabError;
use crate::files::{Compare, Experiment, How, KernelChoice, MachineChoice, Paper, Published};
use crate::plot::{Key, Plot};
use crate::record::{Entry, Record, RunResult};
use pageferry_sourced::{Constant, SourceKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

/// A finding of a lesson, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// In a line.
    pub title: String,
    /// In plain text, one after the other.
    pub paragraphs: Vec<String>,
}

/// A calibrated constant, and what it was fitted to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Calibration {
    /// The id of the published number.
    pub against: String,
    /// The constant's key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// How it was fitted.
    pub source: String,
    /// The files that hold it.
    pub files: Vec<String>,
}

/// What was run, and with what.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Shorter runs.
    pub quick: bool,
    /// What payloads were made from.
    pub seed: u64,
    /// The experiments, in order.
    pub experiments: Vec<Arc<Experiment>>,
    /// Machines that were run, in order of appearance.
    pub machines: Vec<Arc<MachineChoice>>,
    /// Kernels that were run, in order of appearance.
    pub kernels: Vec<Arc<KernelChoice>>,
    /// The runs, in the order of the plan.
    pub runs: Vec<RunResult>,
    /// For each of them, a hash of all that it depends on.
    pub configurations: Vec<String>,
    /// What each metric is.
    pub dictionary: Vec<Entry>,
}

/// Finished runs and what they are set beside.
#[derive(Debug)]
pub struct Reproduction {
    records: Records,
    /// Papers by the names of their files.
    pub papers: BTreeMap<String, Arc<Paper>>,
    /// Results beside published numbers.
    pub comparisons: Vec<Comparison>,
    /// From which size on each mechanism pays.
    pub crossovers: Vec<Crossover>,
    /// What the kernel chose, beside the best fixed choice.
    pub chosen: Vec<AutoChoice>,
    /// What lessons have found about a paper that is reproduced here.
    pub findings: Vec<Finding>,
    /// What is drawn of each experiment, beside the curves that its file asks for.
    pub plots: BTreeMap<String, Vec<Plot>>,
}

impl Deref for Reproduction {
    type Target = Records;

    fn deref(&self) -> &Records {
        &self.records
    }
}

impl Records {
    /// The deterministic parts of the runs.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.runs.iter().map(|run| &run.record)
    }

    /// Each run once, of repeats the first: for figures and tables that show single runs.
    pub fn firsts(&self) -> impl Iterator<Item = &RunResult> {
        let mut seen = BTreeSet::new();
        self.runs.iter().filter(move |run| {
            let Record { experiment, machine, kernel, settings, .. } = &run.record;
            let settings: Vec<String> =
                settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
            seen.insert((experiment, machine, kernel, settings))
        })
    }

    /// The machines on which `experiment` ran, in order.
    pub fn machines_of<'a>(&'a self, experiment: &'a str) -> impl Iterator<Item = &'a MachineChoice> {
        let ran = move |m: &&MachineChoice| {
            self.records().any(|r| r.experiment == experiment && r.machine == m.name)
        };
        self.machines.iter().map(|m| &**m).filter(ran)
    }

    /// The first run of `experiment` on `machine` under `kernel`.
    pub fn record(&self, experiment: &str, machine: &str, kernel: &str) -> Option<&Record> {
        self.records().find(|r| r.experiment == experiment && r.machine == machine && r.kernel == kernel)
    }

    /// The experiments that are not as they are built in: what was run is one's own, and no reproduction.
    pub fn own(&self) -> Vec<String> {
        let own = self.experiments.iter().filter(|experiment| !experiment.is_built_in());
        own.map(|experiment| experiment.name.clone()).collect()
    }

    /// Keys of the kernels that ran `experiment`, each made by `key` of its name and title.
    pub fn kernel_keys(&self, experiment: &str, key: fn(&str, &str) -> Key) -> Vec<Key> {
        let ran = |name: &str| self.records().any(|r| r.experiment == experiment && r.kernel == name);
        let kernels = self.kernels.iter().filter(|k| ran(&k.name));
        kernels.map(|k| key(&k.name, &k.file.title)).collect()
    }
}

impl Reproduction {
    /// Judges `records`.
    ///
    /// # Errors
    /// Two papers of one name.
    pub fn new(records: Records) -> Result<Reproduction, LabError> {
        let mut papers: BTreeMap<String, Arc<Paper>> = BTreeMap::new();
        for experiment in &records.experiments {
            let Some(paper) = &experiment.paper else { continue };
            let name = experiment.file.paper_name().to_owned();
            if papers.get(&name).is_some_and(|other| other != paper) {
                let problem = format!("two papers are called `{name}`, expected a name of its own for each");
                return Err(LabError::Input { file: experiment.name.clone(), problem });
            }
            papers.insert(name, paper.clone());
        }
        let of_machines = records.machines.iter().flat_map(|m| m.constants());
        let constants: Vec<Constant> =
            of_machines.chain(records.kernels.iter().flat_map(|k| k.constants())).collect();
        let names: Vec<String> = records.machines.iter().map(|m| m.name.clone()).collect();
        let cloned: Vec<Record> = records.records().cloned().collect();
        let all: Vec<&Record> = cloned.iter().collect();
        let compared = |e: &Arc<Experiment>| {
            e.paper.as_ref().map(|paper| compare(e, paper, &cloned, &constants)).unwrap_or_default()
        };
        let comparisons = records.experiments.iter().flat_map(compared).collect();
        let units = &records.dictionary[..];
        let crossovers =
            records.experiments.iter().flat_map(|e| crossovers(e, &names, &all, units)).collect();
        let chosen = records.experiments.iter().flat_map(|e| chosen(e, &names, &all, units)).collect();
        Ok(Reproduction {
            records,
            papers,
            comparisons,
            crossovers,
            chosen,
            findings: Vec::new(),
            plots: BTreeMap::new(),
        })
    }

    /// The published value that a rule of `experiment` compares with `metric` on `machine`.
    pub fn value_of(&self, experiment: &str, how: How, machine: &str, metric: &str) -> Option<f64> {
        let experiment = self.experiments.iter().find(|e| e.name == experiment)?;
        let meant =
            |c: &&Compare| c.how == how && c.metric == metric && c.machines.iter().any(|m| m == machine);
        let rule = experiment.file.compare.iter().find(meant)?;
        self.published(&rule.published)?.value
    }

    /// Runs with broken laws, each with what is broken.
    pub fn broken(&self) -> Vec<(String, Vec<String>)> {
        let broken = self.records().map(|record| (record.title(), record.broken()));
        broken.filter(|(_, laws)| !laws.is_empty()).collect()
    }

    /// The published number called `id`.
    pub fn published(&self, id: &str) -> Option<&Published> {
        self.papers.values().find_map(|paper| paper.number(id))
    }

    /// Every calibrated constant once, however many files share it.
    pub fn calibrated(&self) -> Vec<Calibration> {
        let mut found: BTreeMap<(String, String, String, String), BTreeSet<String>> = BTreeMap::new();
        let mut add = |file: &str, constants: Vec<Constant>| {
            for c in constants.into_iter().filter(|c| c.kind == SourceKind::Calibrated) {
                let id = (c.against.unwrap_or_default(), c.key, c.value, c.source);
                found.entry(id).or_default().insert(file.to_owned());
            }
        };
        self.machines.iter().for_each(|m| add(&m.name, m.constants()));
        self.kernels.iter().for_each(|k| add(&k.name, k.constants()));
        let one = |((against, key, value, source), files): (_, BTreeSet<String>)| Calibration {
            against,
            key,
            value,
            source,
            files: files.into_iter().collect(),
        };
        found.into_iter().map(one).collect()
    }

    /// Published statements of one standing, in numbers or in words: how many agree, and how many there are.
    pub fn tally(&self, standing: Standing, in_numbers: bool) -> (usize, usize) {
        let all = statements(&self.comparisons);
        let of = all.iter().filter(|s| s.standing == standing && s.in_numbers == in_numbers);
        (of.clone().filter(|s| s.agrees).count(), of.count())
    }

    /// Published statements that come out otherwise than their paper's file says: a reason is there for each that
    /// differs (`otherwise`), and for no other.
    pub fn unexpected(&self) -> Vec<Statement> {
        let stated = |s: &Statement| self.published(&s.published).is_some_and(|n| n.otherwise.is_some());
        statements(&self.comparisons).into_iter().filter(|s| s.agrees == stated(s)).collect()
    }

    /// Choices by the kernel that are further from the best than they should be, without a reason in their experiment's
    /// file, and those that are not, with one.
    pub fn unexpected_choices(&self) -> impl Iterator<Item = &AutoChoice> {
        self.chosen.iter().filter(|choice| choice.is_near() == choice.because.is_some())
    }

    /// How many comparisons that the experiments ask for were not made, because runs that they need were not.
    pub fn not_compared(&self) -> usize {
        let rules = self.experiments.iter().flat_map(|experiment| &experiment.file.compare);
        rules.map(|rule| rule.machines.len()).sum::<usize>() - self.comparisons.len()
    }
}
