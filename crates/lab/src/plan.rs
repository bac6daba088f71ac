//! From experiments to runs.

use crate::error::LabError;
use crate::experiments::{Experiment, Workload};
use crate::kernels::KernelChoice;
use crate::machines::MachineChoice;
use crate::result::Setting;
use crate::settings::{Settings, parse_integer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How the modelled CPUs take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// By their clocks, as hardware would. For measurements.
    #[default]
    Timed,
    /// By the seed, at every call on the machine. For finding races; times mean nothing.
    Seeded,
}

/// What may be chosen for all runs of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choices {
    /// Shorter runs.
    pub quick: bool,
    /// What the payload, and a seeded schedule, are made from.
    pub seed: u64,
    /// How CPUs take turns.
    pub schedule: Schedule,
}

impl Default for Choices {
    fn default() -> Self {
        Choices { quick: false, seed: 1, schedule: Schedule::Timed }
    }
}

/// One run, ready to go. Everything in it is shared or small: it may go to another thread.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The experiment.
    pub experiment: Arc<Experiment>,
    /// The machine, with its changes.
    pub machine: Arc<MachineChoice>,
    /// The kernel, with its changes.
    pub kernel: Arc<KernelChoice>,
    /// The experiment's parameters.
    pub parameters: BTreeMap<String, i64>,
    /// Changed constants, by their full keys.
    pub changes: BTreeMap<String, Setting>,
    /// Seed and schedule.
    pub choices: Choices,
}

impl RunSpec {
    /// A run of `experiment` on `machine` under `kernel`, with `settings`.
    ///
    /// # Errors
    /// A setting that cannot be.
    pub fn new(
        experiment: &Arc<Experiment>,
        machine: MachineChoice,
        kernel: KernelChoice,
        settings: &Settings,
        choices: Choices,
    ) -> Result<RunSpec, LabError> {
        let changed = |prefix: &str, list: &[(String, String)]| -> Vec<(String, Setting)> {
            list.iter().map(|(key, text)| (format!("{prefix}.{key}"), as_setting(text))).collect()
        };
        let mut changes = changed("machine", &settings.machine);
        changes.extend(changed("kernel", &settings.kernel));
        Ok(RunSpec {
            experiment: experiment.clone(),
            parameters: experiment.parameters(choices.quick, &settings.parameters)?,
            machine: Arc::new(settings.machine(machine)?),
            kernel: Arc::new(settings.kernel(kernel)?),
            changes: changes.into_iter().collect(),
            choices,
        })
    }

    /// The run in a few words.
    pub fn title(&self) -> String {
        let mut title =
            format!("{} on {} under {}", self.experiment.name, self.machine.name, self.kernel.name);
        for (key, value) in &self.changes {
            let key = key.rsplit('.').next().unwrap_or(key);
            title.push_str(&format!(", {key} {value}"));
        }
        title
    }

    /// Roughly how much work the run is for the host, in arbitrary units: for progress bars.
    pub fn weight(&self) -> u64 {
        let parameter = |key: &str| self.parameters.get(key).copied().unwrap_or(0).max(0) as u64;
        let cpus = self.machine.config.cpus() as u64;
        let work = match self.experiment.file.workload {
            Workload::BwPipe => parameter("total_bytes") / 4096 * (2 + cpus),
            Workload::Invalidate => parameter("times") * (1 + 4 * (cpus - 1)) / 4,
            Workload::EphemeralHit => parameter("times") / 10,
        };
        work.max(1)
    }

    /// A parameter's value.
    ///
    /// # Panics
    /// When the experiment's file does not have it: the file and the workload are one piece.
    pub fn parameter(&self, key: &str) -> i64 {
        *self.parameters.get(key).unwrap_or_else(|| panic!("{} has no parameter {key}", self.experiment.name))
    }

    /// All settings, for the record.
    pub fn settings(&self) -> BTreeMap<String, Setting> {
        let parameters = self.parameters.iter().map(|(k, v)| (k.clone(), Setting::Integer(*v)));
        let mut settings: BTreeMap<String, Setting> = parameters.chain(self.changes.clone()).collect();
        if self.choices.schedule == Schedule::Seeded {
            settings.insert("schedule".into(), Setting::Text("seeded".into()));
        }
        settings
    }
}

/// The runs of an experiment's matrix, in the order of its file.
///
/// # Errors
/// A name or setting that cannot be.
pub fn matrix(experiment: &Arc<Experiment>, choices: Choices) -> Result<Vec<RunSpec>, LabError> {
    let mut runs = Vec::new();
    for block in &experiment.file.matrix {
        let common = Settings::parse(&block.set)?;
        let variants: Vec<Settings> = match &block.vary {
            None => vec![common],
            Some(vary) => {
                let one = |value: &i64| {
                    let mut settings = common.clone();
                    settings.add(&vary.key, &value.to_string());
                    settings
                };
                vary.values.iter().map(one).collect()
            }
        };
        for machine in &block.machines {
            for kernel in &block.kernels {
                for settings in &variants {
                    let (machine, kernel) = (MachineChoice::find(machine)?, KernelChoice::find(kernel)?);
                    runs.push(RunSpec::new(experiment, machine, kernel, settings, choices)?);
                }
            }
        }
    }
    Ok(runs)
}

fn as_setting(text: &str) -> Setting {
    parse_integer(text).map_or_else(|| Setting::Text(text.to_owned()), Setting::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str) -> Vec<RunSpec> {
        matrix(&Arc::new(Experiment::find(name).expect("embedded")), Choices::default()).expect("good")
    }

    #[test]
    fn matrices_are_expanded_in_order() {
        let runs = plan("bw-pipe");
        assert_eq!(runs.len(), 15);
        assert_eq!(runs[0].title(), "bw-pipe on xeon-up under original");
        assert_eq!(runs[14].title(), "bw-pipe on opteron-mp under sf_buf-shared");
        assert_eq!(plan("invalidate").len(), 18);
    }

    #[test]
    fn varied_settings_show_in_titles_and_records() {
        let runs = plan("ephemeral-hit");
        assert_eq!(runs[0].title(), "ephemeral-hit on xeon-up under sf_buf, entries 1024");
        assert_eq!(runs[0].settings()["kernel.ephemeral.entries"], Setting::Integer(1024));
        assert_eq!(runs[0].kernel.file.ephemeral.entries.value, 1024);
    }
}
