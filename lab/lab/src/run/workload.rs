//! What a workload is: the program of an experiment's processes, its parameters, and what is made of its results.
//!
//! A workload is one file with one type that implements [`Workload`], and one line in a
//! [`Registry`](super::registry::Registry). Inside this crate [`Runnable`] is the same without the type.

use super::testbed::Testbed;
use crate::error::LabError;
use crate::files::{Experiment, Parameters, Reads, Setting};
use crate::judge::Reproduction;
use crate::kit::OutcomeCell;
use crate::plot::Plot;
use crate::record::Metric;
use pageferry_kernel::Program;
use pageferry_model::{MachineConfig, Model};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// What the processes of an experiment do, and what is measured of it.
///
pub trait Workload: 'static {
    /// The word by which experiment files name it.
    const NAME: &'static str;

    /// What it reads of the file.
    type Parameters: Parameters;

    /// Roughly how much work a run is for the host: 1000 take some 15 ms. For progress bars.
    fn weight(parameters: &Self::Parameters, machine: &MachineConfig) -> u64;

    /// What it measures and the [dictionary](crate::record::common_dictionary) does not have by itself.
    fn metrics() -> Vec<Metric> {
        Vec::new()
    }

    /// Changes the machine before it is built.
    fn adapt(parameters: &Self::Parameters, machine: &mut MachineConfig) {
        let _ = (parameters, machine);
    }

    /// Prepares the testbed, and gives the program of the first process, which leaves in `outcome` what it measures.
    ///
    /// # Errors
    /// A machine or a kernel that lacks what the workload needs ([`Testbed::incompatible`]); an input that cannot be
    /// used.
    fn program(
        parameters: Self::Parameters,
        testbed: &mut Testbed,
        outcome: OutcomeCell,
    ) -> Result<Program<Model>, LabError>;

    /// What is drawn of the runs of `experiment`, beside the curves that its file asks for.
    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        let _ = (of, experiment);
        Vec::new()
    }
}

/// A [`Workload`] without its type. Settings have been checked against [`Runnable::reads`].
pub(crate) trait Runnable: Sync {
    fn name(&self) -> &'static str;
    fn reads(&self) -> &'static [Reads];
    fn metrics(&self) -> Vec<Metric>;
    fn weight(&self, settings: &BTreeMap<String, Setting>, machine: &MachineConfig) -> u64;
    fn adapt(
        &self,
        settings: &BTreeMap<String, Setting>,
        machine: &mut MachineConfig,
    ) -> Result<(), LabError>;
    fn program(
        &self,
        settings: &BTreeMap<String, Setting>,
        testbed: &mut Testbed,
        outcome: OutcomeCell,
    ) -> Result<Program<Model>, LabError>;
    fn plots(&self, of: &Reproduction, experiment: &Experiment) -> Vec<Plot>;
}

impl fmt::Debug for dyn Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `W` as a value.
struct Erased<W>(PhantomData<fn() -> W>);

/// `W` without its type.
pub(super) fn erased<W: Workload>() -> &'static dyn Runnable {
    &Erased::<W>(PhantomData)
}

impl<W: Workload> Erased<W> {
    fn read(settings: &BTreeMap<String, Setting>) -> Result<W::Parameters, LabError> {
        W::Parameters::read(settings)
            .map_err(|problem| LabError::Setting { key: W::NAME.to_owned(), problem })
    }
}

impl<W: Workload> Runnable for Erased<W> {
    fn name(&self) -> &'static str {
        W::NAME
    }

    fn reads(&self) -> &'static [Reads] {
        W::Parameters::READS
    }

    fn metrics(&self) -> Vec<Metric> {
        W::metrics()
    }

    fn weight(&self, settings: &BTreeMap<String, Setting>, machine: &MachineConfig) -> u64 {
        Self::read(settings).map_or(1, |parameters| W::weight(&parameters, machine).max(1))
    }

    fn adapt(
        &self,
        settings: &BTreeMap<String, Setting>,
        machine: &mut MachineConfig,
    ) -> Result<(), LabError> {
        W::adapt(&Self::read(settings)?, machine);
        Ok(())
    }

    fn program(
        &self,
        settings: &BTreeMap<String, Setting>,
        testbed: &mut Testbed,
        outcome: OutcomeCell,
    ) -> Result<Program<Model>, LabError> {
        W::program(Self::read(settings)?, testbed, outcome)
    }

    fn plots(&self, of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        W::plots(of, experiment)
    }
}
