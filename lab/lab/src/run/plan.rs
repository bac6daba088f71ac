//! Plans: the runs that an experiment's matrix asks for, or one run with settings given.
//!
//! A [`RunSpec`] is checked and complete: experiment, machine and kernel with their changes, and a value for each
//! parameter. Running it needs no file.

use super::choices::{Choices, Schedule};
use super::registry::Registry;
use super::workload::Runnable;
use crate::error::LabError;
use crate::files::{Experiment, KernelChoice, MachineChoice, Matrix, Scale, Setting, Settings, Vary};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many runs a plan may have.
pub const MAX_RUNS: usize = 100_000;

/// Refuses a plan of more than [`MAX_RUNS`].
///
/// # Errors
/// It is one.
pub fn check_count(runs: usize) -> Result<(), LabError> {
    if runs <= MAX_RUNS {
        return Ok(());
    }
    let problem = format!("{runs} runs, expected at most {MAX_RUNS}");
    Err(LabError::Option { option: "the plan".to_owned(), problem })
}

/// One run, ready to go. Everything in it is shared or small: it may go to another thread.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The experiment.
    pub experiment: Arc<Experiment>,
    /// Its workload.
    pub(crate) workload: &'static dyn Runnable,
    /// The machine, with its changes.
    pub machine: Arc<MachineChoice>,
    /// The kernel, with its changes.
    pub kernel: Arc<KernelChoice>,
    /// The experiment's parameters and choices.
    pub parameters: BTreeMap<String, Setting>,
    /// Changed constants, by their full keys.
    pub changes: BTreeMap<String, Setting>,
    /// The keys of `parameters` that were set and not left at their defaults.
    pub set: BTreeSet<String>,
    /// Seed and schedule.
    pub choices: Choices,
}

impl RunSpec {
    /// A run of `experiment` on `machine` under `kernel`, with `settings`.
    ///
    /// # Errors
    /// A setting that is refused.
    pub fn new(
        registry: &Registry,
        experiment: &Arc<Experiment>,
        machine: MachineChoice,
        kernel: KernelChoice,
        settings: &Settings,
        choices: Choices,
    ) -> Result<RunSpec, LabError> {
        let scale = if choices.quick { Scale::Quick } else { Scale::Full };
        let workload = registry.workload(&experiment.file.workload)?;
        RunSpec::at_scale(experiment, workload, machine, kernel, settings, choices, scale)
    }

    fn at_scale(
        experiment: &Arc<Experiment>,
        workload: &'static dyn Runnable,
        machine: MachineChoice,
        kernel: KernelChoice,
        settings: &Settings,
        choices: Choices,
        scale: Scale,
    ) -> Result<RunSpec, LabError> {
        let settings = &settings.written_out(&experiment.file.short);
        let changes = settings.changes(&machine, &kernel);
        Ok(RunSpec {
            experiment: experiment.clone(),
            workload,
            parameters: experiment.parameters(scale, &settings.parameters)?,
            machine: Arc::new(settings.machine(machine)?),
            kernel: Arc::new(settings.kernel(kernel)?),
            changes,
            set: settings.parameters.iter().map(|(key, _)| key.clone()).collect(),
            choices,
        })
    }

    /// This run `repeat` times. Of several each is perturbed, and has a seed of its own: this one's, the next, and so
    /// on.
    ///
    /// # Errors
    /// There are not so many seeds behind this one's.
    pub fn repeats(&self, repeat: u32) -> Result<impl Iterator<Item = RunSpec>, LabError> {
        let seed = self.choices.seed;
        let Some(last) = seed.checked_add(u64::from(repeat.max(1) - 1)) else {
            let problem = format!("the last of {repeat} seeds is above {}", u64::MAX);
            return Err(LabError::Option { option: format!("--seed {seed}"), problem });
        };
        let one = move |seed: u64| {
            let mut run = self.clone();
            run.choices.seed = seed;
            run.choices.perturbed |= repeat > 1;
            run
        };
        Ok((seed..=last).map(one))
    }

    /// Looks whether the kernel can run on the machine at all: what is seen without a run.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn check(&self) -> Result<(), LabError> {
        let mut config = self.machine.config.clone();
        self.workload.adapt(&self.parameters, &mut config)?;
        self.kernel.file.fits(&config).map_err(|problem| LabError::Incompatible {
            machine: self.machine.name.clone(),
            kernel: self.kernel.name.clone(),
            problem,
        })
    }

    /// The run in a few words.
    pub fn title(&self) -> String {
        let mut title =
            format!("{} on {} under {}", self.experiment.name, self.machine.name, self.kernel.name);
        let set = self.parameters.iter().filter(|(key, _)| self.set.contains(*key));
        for (key, value) in self.changes.iter().chain(set) {
            let key = key.rsplit('.').next().unwrap_or(key);
            title.push_str(&format!(", {key} {value}"));
        }
        title
    }

    /// A hash of all that the run depends on, apart from the program: SHA-256 in hexadecimal.
    pub fn configuration(&self) -> String {
        self.configuration_from(&self.files())
    }

    /// The hashes of the runs of a plan: [`RunSpec::configuration`] of each. Runs one after the other often are of the
    /// same files, which are then written out once.
    pub(crate) fn configurations(plan: &[RunSpec]) -> Vec<String> {
        let same = |a: &RunSpec, b: &RunSpec| {
            Arc::ptr_eq(&a.experiment, &b.experiment) && a.machine == b.machine && a.kernel == b.kernel
        };
        let of = |runs: &[RunSpec]| {
            let files = runs[0].files();
            runs.iter().map(|spec| spec.configuration_from(&files)).collect::<Vec<_>>()
        };
        plan.chunk_by(same).flat_map(of).collect()
    }

    /// What the hash begins with: the files that the run is of.
    fn files(&self) -> Sha256 {
        let RunSpec { experiment, machine, kernel, .. } = self;
        let files = serde_json::to_vec(&(
            (&experiment.name, &experiment.file),
            (&machine.name, &machine.config, &kernel.name, &kernel.file),
        ));
        Sha256::new().chain_update(files.expect("plain data can be written as JSON"))
    }

    fn configuration_from(&self, files: &Sha256) -> String {
        let RunSpec { experiment: _, workload: _, machine: _, kernel: _, parameters, changes, set, choices } =
            self;
        let schedule: serde_json::Value = match choices.schedule {
            Schedule::Timed => false.into(),
            Schedule::Seeded => true.into(),
            Schedule::Pct(depth) => depth.into(),
        };
        let rest = serde_json::to_vec(&(
            (parameters, changes, set),
            (choices.quick, choices.seed, schedule, choices.perturbed),
        ));
        let hash = files.clone().chain_update(rest.expect("plain data can be written as JSON")).finalize();
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Roughly how much work the run is for the host, in arbitrary units: for progress bars.
    pub fn weight(&self) -> u64 {
        self.workload.weight(&self.parameters, &self.machine.config)
    }

    /// All settings, for the record.
    pub fn settings(&self) -> BTreeMap<String, Setting> {
        let mut settings: BTreeMap<String, Setting> =
            self.parameters.clone().into_iter().chain(self.changes.clone()).collect();
        let schedule = match self.choices.schedule {
            Schedule::Timed => None,
            Schedule::Seeded => Some("seeded".into()),
            Schedule::Pct(depth) => Some(format!("by priorities for depth {depth}")),
        };
        settings.extend(schedule.map(|schedule| ("schedule".into(), Setting::Text(schedule))));
        settings
    }
}

/// The runs of an experiment's matrix, in the order of its file, each as often as the file says; a quick one once.
///
/// # Errors
/// A name that is unknown, or a setting that is refused.
pub fn matrix(
    registry: &Registry,
    experiment: &Arc<Experiment>,
    choices: Choices,
) -> Result<Vec<RunSpec>, LabError> {
    let file = &experiment.file;
    matrix_by(registry, experiment, choices, |block| if choices.quick { 1 } else { file.repeats(block) })
}

/// As [`matrix`], each run `repeat` times.
///
/// # Errors
/// As [`matrix`]; more than [`MAX_RUNS`]; those of [`RunSpec::repeats`].
pub fn matrix_repeated(
    registry: &Registry,
    experiment: &Arc<Experiment>,
    choices: Choices,
    repeat: u32,
) -> Result<Vec<RunSpec>, LabError> {
    matrix_by(registry, experiment, choices, |_| repeat)
}

/// As [`matrix`], the runs of each block as often as `repeat` says.
fn matrix_by(
    registry: &Registry,
    experiment: &Arc<Experiment>,
    choices: Choices,
    repeat: impl Fn(&Matrix) -> u32,
) -> Result<Vec<RunSpec>, LabError> {
    let scale = if choices.quick { Scale::Quick } else { Scale::Reproduce };
    let workload = registry.workload(&experiment.file.workload)?;
    let mut runs = Vec::new();
    for block in &experiment.file.matrix {
        let variants = variants(Settings::parse(&block.set)?, &block.vary, choices.quick);
        // Their files are read once for all variants: that is what planning takes time for.
        let kernels = block.kernels.iter().map(|kernel| KernelChoice::find(kernel));
        let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
        for machine in &block.machines {
            let machine = MachineChoice::find(machine)?;
            for kernel in &kernels {
                for settings in &variants {
                    let (machine, kernel) = (machine.clone(), kernel.clone());
                    let run =
                        RunSpec::at_scale(experiment, workload, machine, kernel, settings, choices, scale)?;
                    check_count(runs.len().saturating_add(repeat(block) as usize))?;
                    runs.extend(run.repeats(repeat(block))?);
                }
            }
        }
    }
    Ok(runs)
}

/// `common` with each combination of the values that vary.
fn variants(common: Settings, vary: &[Vary], quick: bool) -> Vec<Settings> {
    vary.iter().fold(vec![common], |variants, vary| {
        let with = |settings: &Settings, value: &Setting| {
            let mut settings = settings.clone();
            settings.add(&vary.key, &value.to_string());
            settings
        };
        let values = if quick && !vary.quick.is_empty() { &vary.quick } else { &vary.values };
        variants.iter().flat_map(|s| values.iter().map(|v| with(s, v)).collect::<Vec<_>>()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_vary() {
        let vary = |key: &str, values: Vec<Setting>| Vary { key: key.into(), values, quick: Vec::new() };
        let sizes = vary("size_bytes", vec![Setting::Integer(1), Setting::Integer(2)]);
        let words = vary("send", vec![Setting::Text("copy".into()), Setting::Text("loan".into())]);
        let all: Vec<String> = variants(Settings::default(), &[sizes, words], false)
            .iter()
            .map(|s| s.parameters.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "size_bytes=1 send=copy",
            "size_bytes=1 send=loan",
            "size_bytes=2 send=copy",
            "size_bytes=2 send=loan",
        ];
        assert_eq!(all, expected);
    }
}
