//! The registry: which workloads and experiments there are, by their names.
//!
//! [`Registry::standard`] has those of this crate. An experiment of one's own is a [`Workload`] that is added with
//! [`Registry::with`], and an experiment file that names it: a path, or a text that is added with
//! [`Registry::with_experiment`].

use super::workload::{Runnable, Workload, erased};
use crate::error::LabError;
use crate::files::catalogue::{self, Kind, Source};
use crate::files::{Experiment, KnownWorkloads, Metrics};
use crate::judge::{Records, Reproduction};
use crate::record::{Entry, common_dictionary};
use pageferry_sourced::nearest;
use std::sync::Arc;

/// Workloads and experiments by their names.
#[derive(Clone, Default)]
pub struct Registry {
    workloads: Vec<&'static dyn Runnable>,
    /// Names and texts of experiment files beside those that are built in.
    experiments: Vec<(String, String)>,
}

impl Registry {
    /// Without any workload.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// With another workload. One that has the name of another takes its place.
    #[must_use]
    pub fn with<W: Workload>(mut self) -> Registry {
        self.workloads.retain(|other| other.name() != W::NAME);
        self.workloads.push(erased::<W>());
        self
    }

    /// With an experiment file whose text is `toml`, called `name`. It takes the place of any other of this name.
    #[must_use]
    pub fn with_experiment(mut self, name: &str, toml: &str) -> Registry {
        self.experiments.retain(|(other, _)| other != name);
        self.experiments.push((name.to_owned(), toml.to_owned()));
        self
    }

    /// The experiment called `name`, or in the file `name`.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be used: it names no workload of this registry, or has not what its
    /// workload reads.
    pub fn experiment(&self, name: &str) -> Result<Experiment, LabError> {
        let reads = self.workloads.iter().map(|workload| (workload.name(), workload.reads())).collect();
        let known = KnownWorkloads { reads, metrics: &|workload| self.metrics(workload) };
        Experiment::load(&self.source(name)?, &known, &self.experiments)
    }

    /// All experiments that are built in or were added, in order.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn experiments(&self) -> Result<Vec<Experiment>, LabError> {
        let mut all =
            self.names().into_iter().map(|name| self.experiment(name)).collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|experiment| experiment.file.order);
        Ok(all)
    }

    /// The names of all experiments that are built in or were added.
    pub fn names(&self) -> Vec<&str> {
        let built_in = catalogue::names(Kind::Experiment).into_iter();
        let other = built_in.filter(|name| self.experiments.iter().all(|(own, _)| own != name));
        other.chain(self.experiments.iter().map(|(own, _)| own.as_str())).collect()
    }

    /// Every metric that a run can have.
    pub fn dictionary(&self) -> Vec<Entry> {
        common_dictionary(self.workloads.iter().flat_map(|workload| workload.metrics()).collect())
    }

    /// Judges `records`, and draws what their workloads have to draw.
    ///
    /// # Errors
    /// Two papers of one name.
    pub fn reproduction(&self, records: Records) -> Result<Reproduction, LabError> {
        let mut all = Reproduction::new(records)?;
        let plots = |experiment: &Arc<Experiment>| {
            let workload = self.workload(&experiment.file.workload).ok()?;
            Some((experiment.name.clone(), workload.plots(&all, experiment)))
        };
        all.plots = all.experiments.iter().filter_map(plots).collect();
        Ok(all)
    }

    pub(crate) fn workload(&self, name: &str) -> Result<&'static dyn Runnable, LabError> {
        let known = || self.workloads.iter().map(|workload| workload.name());
        self.workloads.iter().find(|workload| workload.name() == name).copied().ok_or_else(|| {
            LabError::Unknown {
                kind: "workload",
                name: name.to_owned(),
                nearest: nearest(name, known()).map(str::to_owned),
                known: known().map(str::to_owned).collect(),
            }
        })
    }

    /// The metrics that runs of `workload` can have, with their units.
    pub fn metrics(&self, workload: &str) -> Metrics {
        let own = self.workload(workload).map(|workload| workload.metrics()).unwrap_or_default();
        common_dictionary(own).into_iter().map(|entry| (entry.metric, entry.unit)).collect()
    }

    fn source(&self, name: &str) -> Result<Source, LabError> {
        if let Some((own, text)) = self.experiments.iter().find(|(own, _)| *own == name) {
            return Ok(Source { name: own.clone(), file: format!("{own}.toml"), text: text.clone() });
        }
        catalogue::find(Kind::Experiment, name).map_err(|error| match error {
            LabError::Unknown { kind, name, .. } => LabError::Unknown {
                kind,
                nearest: nearest(&name, self.names()).map(str::to_owned),
                known: self.names().into_iter().map(str::to_owned).collect(),
                name,
            },
            other => other,
        })
    }
}
