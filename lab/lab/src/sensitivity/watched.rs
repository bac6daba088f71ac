//! What is watched while constants turn: comparisons, crossovers, and gains on machines that the paper has not.
//!
//! A gain that a rule compares with a published one on some machines is there on the others that ran both kernels, too;
//! it has no verdict, and is watched for cliffs. Nothing here can fail.

use crate::files::{Experiment, How};
use crate::judge::{Comparison, Crossover, Pays, compare, crossovers, points};
use crate::record::{Entry, Record};
use pageferry_sourced::Constant;
use std::sync::Arc;

/// What kind of value is watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Watch {
    /// One that a paper has.
    Published,
    /// A gain that a paper has of other machines.
    Gain,
    /// From where on a mechanism pays.
    Crossover,
}

impl Watch {
    /// The word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Watch::Published => "published",
            Watch::Gain => "gain",
            Watch::Crossover => "crossover",
        }
    }
}

/// One watched value.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Value {
    pub(super) watch: Watch,
    /// What finds it again.
    pub(super) id: String,
    /// The published id, or mechanism and what it is held against.
    pub(super) name: String,
    pub(super) experiment: String,
    pub(super) machine: String,
    /// As tables have it.
    pub(super) told: String,
    /// Of a crossover its gain at the largest size, as a ratio.
    pub(super) value: f64,
    /// Whether it is a gain in percent, or can be read as one.
    pub(super) gain_percent: Option<f64>,
    /// Whether it agrees with what is published; none without a verdict.
    pub(super) agrees: Option<bool>,
}

/// Whether anything of `experiment` is watched: it is judged, or has crossovers.
pub fn is_watched(experiment: &Experiment) -> bool {
    let file = &experiment.file;
    !file.compare.is_empty() || file.curves.iter().any(|c| c.lines.iter().any(|line| line.over.is_some()))
}

/// An experiment with all that is watched of it.
pub(super) struct Observer {
    pub(super) experiment: Arc<Experiment>,
    /// With the rules of gains on machines that the paper has not.
    beyond: Experiment,
    machines: Vec<String>,
    /// What its metrics are.
    dictionary: Vec<Entry>,
}

impl Observer {
    pub(super) fn new(
        experiment: &Arc<Experiment>,
        machines: Vec<String>,
        dictionary: Vec<Entry>,
    ) -> Observer {
        let mut beyond = (**experiment).clone();
        let rules = std::mem::take(&mut beyond.file.compare);
        let gains = || rules.iter().filter(|rule| rule.how == How::Gain);
        for rule in gains() {
            let same = |other: &&crate::files::Compare| {
                (&other.metric, &other.kernel, &other.over, &other.set, &other.base)
                    == (&rule.metric, &rule.kernel, &rule.over, &rule.set, &rule.base)
            };
            if beyond.file.compare.iter().any(|other| same(&other)) {
                continue;
            }
            let has = |machine: &String| gains().filter(same).any(|other| other.machines.contains(machine));
            let mut rule = rule.clone();
            rule.machines = machines.iter().filter(|machine| !has(machine)).cloned().collect();
            beyond.file.compare.push(rule);
        }
        Observer { experiment: experiment.clone(), beyond, machines, dictionary }
    }

    /// All watched values of `records`.
    pub(super) fn values(&self, records: &[Record]) -> Vec<Value> {
        let none: &[Constant] = &[];
        let mut all = Vec::new();
        if let Some(paper) = &self.experiment.paper {
            let known = compare(&self.experiment, paper, records, none);
            all.extend(known.iter().map(|c| compared(c, Watch::Published)));
            let beyond = compare(&self.beyond, paper, records, none);
            all.extend(beyond.iter().map(|c| compared(c, Watch::Gain)));
        }
        let records: Vec<&Record> = records.iter().collect();
        let crossed_over = crossovers(&self.experiment, &self.machines, &records, &self.dictionary);
        all.extend(crossed_over.iter().map(crossed));
        // Several rules may look at one thing: the first, the second, and so on.
        for at in (0..all.len()).rev() {
            let before = all[..at].iter().filter(|other| other.id == all[at].id).count();
            all[at].id.push_str(&format!(" {before}"));
        }
        all
    }

    /// Whether what is watched needs `records[at]`; `values` is all that there is with it.
    pub(super) fn needs(&self, records: &[Record], at: usize, values: &[Value]) -> bool {
        let record = &records[at];
        let on_curve = self.experiment.file.curves.iter().any(|curves| {
            let held = |name: &String| curves.lines.iter().any(|line| line.over.as_ref() == Some(name));
            let lines = curves.lines.iter().filter(|line| line.over.is_some() || held(&line.name));
            lines.into_iter().any(|line| {
                let name = &self.experiment.name;
                !points(std::iter::once(record), name, curves, &record.machine, line).is_empty()
            })
        });
        on_curve || {
            let mut rest = records.to_vec();
            rest.remove(at);
            self.values(&rest) != values
        }
    }
}

fn compared(c: &Comparison, watch: Watch) -> Value {
    let test = c.test().unwrap_or_default();
    let is_gain = watch == Watch::Gain || (c.ours.starts_with(['+', '-']) && c.ours.ends_with('%'));
    let name = match watch {
        Watch::Gain => format!("{} under {}", c.what, c.kernel),
        _ => c.published.clone(),
    };
    Value {
        watch,
        id: format!("{watch:?} {} {} {} {} {test}", c.published, c.experiment, c.machine, c.kernel),
        name,
        experiment: c.experiment.clone(),
        machine: c.machine.clone(),
        told: c.ours.clone(),
        value: c.ours_value,
        gain_percent: is_gain.then_some(c.ours_value),
        agrees: (watch == Watch::Published).then_some(c.agrees),
    }
}

fn crossed(c: &Crossover) -> Value {
    let told = match c.pays {
        Pays::Always => "always".to_owned(),
        Pays::From(x) => x.to_string(),
        Pays::Never => "never".to_owned(),
    };
    let name = format!("{} over {}", c.mechanism, c.over);
    Value {
        watch: Watch::Crossover,
        id: format!("crossover {} {name} {} {}", c.experiment, c.x, c.machine),
        name,
        experiment: c.experiment.clone(),
        machine: c.machine.clone(),
        told,
        value: c.gain_at_largest,
        gain_percent: Some((c.gain_at_largest - 1.0) * 100.0),
        agrees: None,
    }
}
