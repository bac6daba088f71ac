//! Finished runs, and what they are set beside: what the report, the figures and the tables are made from.

use crate::error::LabError;
use crate::files::{Experiment, KernelChoice, MachineChoice, Paper, Published};
use crate::judge::{Chosen, Comparison, Crossover, Standing, chosen, compare, crossovers, statements};
use crate::record::{Entry, Record, RunResult};
use crate::run::{Choices, Registry, RunSpec};
use crate::teach::finding::{Finding, accessed_bit};
use pageferry_sourced::{Constant, SourceKind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A calibrated constant, and what it was fitted to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Calibrated {
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

/// Finished runs and what they are set beside.
pub struct Reproduction {
    /// The choices for all runs.
    pub choices: Choices,
    /// What each metric is.
    pub dictionary: Vec<Entry>,
    /// The experiments, in order.
    pub experiments: Vec<Arc<Experiment>>,
    /// Papers by the names of their files.
    pub papers: BTreeMap<String, Paper>,
    /// Machines that were run, in order of appearance.
    pub machines: Vec<Arc<MachineChoice>>,
    /// Kernels that were run, in order of appearance.
    pub kernels: Vec<Arc<KernelChoice>>,
    /// The runs, in the order of the plan.
    pub runs: Vec<RunResult>,
    /// For each of them, a hash of all that it depends on.
    pub configurations: Vec<String>,
    /// Results beside published numbers.
    pub comparisons: Vec<Comparison>,
    /// From which size on each mechanism pays.
    pub crossovers: Vec<Crossover>,
    /// What the kernel chose, beside the best fixed choice.
    pub chosen: Vec<Chosen>,
    /// What lessons have found about a paper that is reproduced here.
    pub findings: Vec<Finding>,
}

impl Reproduction {
    /// Puts together what `plan` gave.
    ///
    /// # Errors
    /// A paper that an experiment names and that is not there; a law that is broken in a lesson.
    ///
    /// # Panics
    /// When there is not one result for each run of the plan.
    pub fn new(
        registry: &Registry,
        plan: &[RunSpec],
        runs: Vec<RunResult>,
        choices: Choices,
    ) -> Result<Reproduction, LabError> {
        assert_eq!(plan.len(), runs.len(), "a result for each run");
        let mut experiments: Vec<Arc<Experiment>> = Vec::new();
        let mut machines: Vec<Arc<MachineChoice>> = Vec::new();
        let mut kernels: Vec<Arc<KernelChoice>> = Vec::new();
        for spec in plan {
            if experiments.iter().all(|e| e.name != spec.experiment.name) {
                experiments.push(spec.experiment.clone());
            }
            if machines.iter().all(|m| m.name != spec.machine.name) {
                machines.push(spec.machine.clone());
            }
            if kernels.iter().all(|k| k.name != spec.kernel.name) {
                kernels.push(spec.kernel.clone());
            }
        }
        let mut papers = BTreeMap::new();
        for experiment in &experiments {
            papers.insert(experiment.file.paper.clone(), Paper::find(&experiment.file.paper)?);
        }
        let records: Vec<Record> = runs.iter().map(|run| run.record.clone()).collect();
        let constants: Vec<Constant> = machines
            .iter()
            .flat_map(|m| m.constants())
            .chain(kernels.iter().flat_map(|k| k.constants()))
            .collect();
        let compared = |e: &Arc<Experiment>| compare(e, &papers[&e.file.paper], &records, &constants);
        let comparisons = experiments.iter().flat_map(compared).collect();
        let names: Vec<String> = machines.iter().map(|m| m.name.clone()).collect();
        let all: Vec<&Record> = records.iter().collect();
        let crossovers = experiments.iter().flat_map(|e| crossovers(e, &names, &all)).collect();
        let chosen = experiments.iter().flat_map(|e| chosen(e, &names, &all)).collect();
        let findings = if papers.contains_key("sf-buf") { vec![accessed_bit()?] } else { Vec::new() };
        Ok(Reproduction {
            choices,
            dictionary: registry.dictionary(),
            experiments,
            papers,
            machines,
            kernels,
            runs,
            configurations: plan.iter().map(RunSpec::configuration).collect(),
            comparisons,
            crossovers,
            chosen,
            findings,
        })
    }

    /// The deterministic parts of the runs.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.runs.iter().map(|run| &run.record)
    }

    /// The machines on which `experiment` ran, in order.
    pub(super) fn machines_of<'a>(&'a self, experiment: &'a str) -> impl Iterator<Item = &'a MachineChoice> {
        let ran = move |m: &&MachineChoice| {
            self.records().any(|r| r.experiment == experiment && r.machine == m.name)
        };
        self.machines.iter().map(|m| &**m).filter(ran)
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
    pub fn calibrated(&self) -> Vec<Calibrated> {
        let mut found: BTreeMap<(String, String, String, String), BTreeSet<String>> = BTreeMap::new();
        let mut add = |file: &str, constants: Vec<Constant>| {
            for c in constants.into_iter().filter(|c| c.kind == SourceKind::Calibrated) {
                let id = (c.against.unwrap_or_default(), c.key, c.value, c.source);
                found.entry(id).or_default().insert(file.to_owned());
            }
        };
        self.machines.iter().for_each(|m| add(&m.name, m.constants()));
        self.kernels.iter().for_each(|k| add(&k.name, k.constants()));
        let one = |((against, key, value, source), files): (_, BTreeSet<String>)| Calibrated {
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

    /// How many comparisons that the experiments ask for were not made, because runs that they need were not.
    pub fn not_compared(&self) -> usize {
        let rules = self.experiments.iter().flat_map(|experiment| &experiment.file.compare);
        rules.map(|rule| rule.machines.len()).sum::<usize>() - self.comparisons.len()
    }
}
