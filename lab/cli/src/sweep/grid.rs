//! What a sweep runs: the product of machines, kernels, the values of settings, and seeds, in this order; the last one
//! changes first.
//!
//! All of it is checked here, before the first run: names, files, keys, values, and whether each kernel can run on each
//! machine.

use super::values::{Values, refused};
use crate::args::Sweep;
use pageferry_lab::files::{
    CurveLine, Curves, Experiment, KernelChoice, MachineChoice, Matrix, Setting, Settings, Vary,
};
use pageferry_lab::record::Record;
use pageferry_lab::run::{Choices, RunSpec, check_count};
use pageferry_lab::{LabError, Registry, nearest, text};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// More lines than these nobody tells apart in one figure.
const MAX_LINES: usize = 12;

/// A sweep, checked.
pub(super) struct Grid {
    pub(super) experiment: Arc<Experiment>,
    pub(super) machines: Vec<MachineChoice>,
    pub(super) kernels: Vec<KernelChoice>,
    pub(super) vary: Vec<Values>,
    /// What all runs have set, as `KEY=VALUE`.
    pub(super) set: Vec<String>,
    pub(super) seed: u64,
    pub(super) repeat: usize,
    pub(super) quick: bool,
}

impl Grid {
    /// What `options` ask for.
    pub(super) fn new(registry: &Registry, options: &Sweep) -> Result<(Grid, Vec<RunSpec>), LabError> {
        // The command line has none only where it has a command in its place.
        let experiment = options.experiment.as_deref().unwrap_or_default();
        let experiment = Arc::new(registry.experiment(experiment)?);
        let (machine, kernel) = experiment.file.first();
        let machines = names("--machine", options.machine.as_deref().unwrap_or(machine))?;
        let kernels = names("--kernel", options.kernel.as_deref().unwrap_or(kernel))?;
        let machines = machines.into_iter().map(MachineChoice::find).collect::<Result<Vec<_>, _>>()?;
        let kernels = kernels.into_iter().map(KernelChoice::find).collect::<Result<Vec<_>, _>>()?;
        let is_word = |key: &str| {
            let full = experiment.file.short.get(key).map_or(key, String::as_str);
            let of_machine = full.strip_prefix("machine.").map(|key| machines[0].is_word(key));
            let of_kernel = full.strip_prefix("kernel.").map(|key| kernels[0].is_word(key));
            of_machine.or(of_kernel).unwrap_or_else(|| experiment.file.choices.contains_key(key))
        };
        let vary = options.vary.iter().map(|text| Values::parse(text, &is_word));
        let vary = vary.collect::<Result<_, _>>()?;
        let set = options.settings.iter().map(|text| with_plain_number(text, &is_word)).collect();
        let grid = Grid {
            machines,
            kernels,
            vary,
            set,
            seed: options.seed,
            repeat: options.repeat as usize,
            quick: options.quick,
            experiment,
        };
        let plan = grid.plan(registry)?;
        Ok((grid, plan))
    }

    /// The runs, in order.
    pub(super) fn plan(&self, registry: &Registry) -> Result<Vec<RunSpec>, LabError> {
        check_distinct("--machine", self.machines.iter().map(|m| m.name.as_str()))?;
        check_distinct("--kernel", self.kernels.iter().map(|k| k.name.as_str()))?;
        self.check_keys()?;
        self.product(registry)
    }

    /// A setting is made by one option only, by whichever of its names.
    fn check_keys(&self) -> Result<(), LabError> {
        let set = Settings::parse(&self.set)?.written_out(&self.experiment.file.short);
        let set_keys = |prefix: &'static str, list: &[(String, String)]| -> Vec<String> {
            list.iter().map(|(key, _)| format!("{prefix}{key}")).collect()
        };
        let mut taken = set_keys("", &set.parameters);
        taken.extend(set_keys("machine.", &set.machine));
        taken.extend(set_keys("kernel.", &set.kernel));
        for values in &self.vary {
            let key = self.full_key(&values.key).to_owned();
            if taken.contains(&key) {
                return Err(refused(
                    &values.key,
                    "the setting is there twice, expected one --vary or one --set",
                ));
            }
            taken.push(key);
        }
        let counts = [self.machines.len(), self.kernels.len(), self.repeat].into_iter();
        let all = counts.chain(self.vary.iter().map(|values| values.values.len()));
        let runs = all.fold(1usize, |runs, count| runs.saturating_mul(count));
        check_count(runs)
    }

    /// The key of a setting in records, where `key` may be a short name.
    pub(super) fn full_key<'a>(&'a self, key: &'a str) -> &'a str {
        self.experiment.file.short.get(key).map_or(key, String::as_str)
    }

    /// What is varied: the name that it was given by, and its key in records.
    pub(super) fn columns(&self) -> Vec<(String, String)> {
        self.vary.iter().map(|v| (v.key.clone(), self.full_key(&v.key).to_owned())).collect()
    }

    /// Each combination of values: as many texts as there are settings that vary.
    pub(super) fn combinations(&self) -> Vec<Vec<String>> {
        self.vary.iter().fold(vec![Vec::new()], |all, of| {
            let with = |before: &Vec<String>| -> Vec<Vec<String>> {
                let value = |value: &Setting| before.iter().cloned().chain([value.to_string()]).collect();
                of.values.iter().map(value).collect()
            };
            all.iter().flat_map(with).collect()
        })
    }

    /// What the runs have in common.
    pub(super) fn choices(&self) -> Choices {
        Choices { quick: self.quick, seed: self.seed, ..Choices::default() }
    }

    fn product(&self, registry: &Registry) -> Result<Vec<RunSpec>, LabError> {
        let combinations = self.combinations();
        let mut plan = Vec::new();
        for machine in &self.machines {
            for kernel in &self.kernels {
                // Runs that change neither have these in common: a plan of many is small then.
                let (whole_machine, whole_kernel) = (Arc::new(machine.clone()), Arc::new(kernel.clone()));
                for combination in &combinations {
                    let mut settings = Settings::parse(&self.set)?;
                    for (values, value) in self.vary.iter().zip(combination) {
                        settings.add(&values.key, value);
                    }
                    let (machine, kernel) = (machine.clone(), kernel.clone());
                    let spec =
                        RunSpec::new(registry, &self.experiment, machine, kernel, &settings, self.choices());
                    let mut spec = spec.map_err(|error| self.of_vary(error))?;
                    spec.check()?;
                    if *spec.machine == *whole_machine {
                        spec.machine = whole_machine.clone();
                    }
                    if *spec.kernel == *whole_kernel {
                        spec.kernel = whole_kernel.clone();
                    }
                    plan.extend(spec.repeats(self.repeat as u32)?);
                }
            }
        }
        Ok(plan)
    }

    /// A setting that is refused is told by the option that made it.
    fn of_vary(&self, error: LabError) -> LabError {
        match error {
            LabError::Setting { key, problem }
                if self.vary.iter().any(|of| self.full_key(&of.key) == key) =>
            {
                refused(&key, problem)
            }
            other => other,
        }
    }

    /// The metric that is shown: `named`, or what the experiment is judged by first, or else what its curves are of,
    /// or its first result.
    pub(super) fn metric(
        &self,
        registry: &Registry,
        named: Option<&str>,
    ) -> Result<Option<String>, LabError> {
        let file = &self.experiment.file;
        let Some(named) = named else {
            let judged = file.compare.iter().map(|rule| &rule.metric).find(|metric| !metric.is_empty());
            return Ok(judged.or_else(|| file.curves.first().map(|curves| &curves.metric)).cloned());
        };
        let metrics = registry.metrics(&file.workload);
        let known = || metrics.keys().map(String::as_str);
        if known().any(|metric| metric == named) {
            return Ok(Some(named.to_owned()));
        }
        let problem = match nearest(named, known()) {
            Some(near) => format!("there is no such metric; did you mean `{near}`?"),
            None => "there is no such metric; `pageferry run` prints those of an experiment".to_owned(),
        };
        Err(LabError::Option { option: format!("--metric {named}"), problem })
    }

    /// The experiment as its records are kept: one's own, which is run and drawn as this sweep is, and judged by
    /// nothing that was published for other settings.
    pub(super) fn as_experiment(&self, metric: &str) -> Result<Experiment, LabError> {
        let mut file = self.experiment.file.clone();
        file.paper.clear();
        file.section.clear();
        file.compare.clear();
        let vary = self.vary.iter().map(|of| Vary {
            key: of.key.clone(),
            values: of.values.clone(),
            quick: Vec::new(),
        });
        let keys: Vec<&str> = self.vary.iter().map(|of| of.key.as_str()).collect();
        if !keys.is_empty() {
            file.summary = format!(
                "A sweep over {}, of the experiment that its file describes so: {}",
                keys.join(", "),
                file.summary
            );
        }
        file.matrix = vec![Matrix {
            machines: self.machines.iter().map(|machine| machine.name.clone()).collect(),
            kernels: self.kernels.iter().map(|kernel| kernel.name.clone()).collect(),
            set: self.set.clone(),
            vary: vary.collect(),
            repeat: None,
        }];
        file.curves = self.curves(metric).into_iter().collect();
        Experiment::of_records(&self.experiment.name, file, &BTreeMap::new())
    }

    /// The metric along the first setting with numbers, with a line for each kernel and each combination of the others.
    fn curves(&self, metric: &str) -> Option<Curves> {
        let numeric = |of: &&Values| of.values.iter().all(|value| value.number().is_some());
        let along = self.vary.iter().find(numeric)?;
        let mut sets: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for of in self.vary.iter().filter(|of| of.key != along.key) {
            let with = |set: &Vec<(String, String)>| -> Vec<Vec<(String, String)>> {
                let next = |value: &Setting| {
                    set.iter().cloned().chain([(of.key.clone(), value.to_string())]).collect()
                };
                of.values.iter().map(next).collect()
            };
            sets = sets.iter().flat_map(with).collect();
        }
        let line = |kernel: &str, set: &Vec<(String, String)>| {
            let words = set.iter().map(|(key, value)| format!(", {} {value}", last_word(key)));
            CurveLine {
                name: format!("{kernel}{}", words.collect::<String>()),
                kernel: Some(kernel.to_owned()),
                set: set.iter().map(|(key, value)| format!("{}={value}", self.full_key(key))).collect(),
                over: None,
                holds_if: None,
                best_of: Vec::new(),
                min_percent_of_best: None,
                worse: Vec::new(),
            }
        };
        let lines = |kernel| sets.iter().map(|set| line(kernel, set)).collect::<Vec<_>>();
        let all: Vec<CurveLine> =
            self.kernels.iter().map(|kernel| kernel.name.as_str()).flat_map(lines).collect();
        let mut notes = Vec::new();
        if all.len() > MAX_LINES {
            notes.push(format!("The first {MAX_LINES} of {} lines; sweep.csv has all.", all.len()));
        }
        if self.repeat > 1 {
            notes.push(format!("Each point is the median of {} repeats.", self.repeat));
        }
        Some(Curves {
            title: format!("{}, a sweep", self.experiment.file.title),
            subtitle: format!("{metric} by {}", along.key),
            x: self.full_key(&along.key).to_owned(),
            metric: metric.to_owned(),
            better: None,
            note: notes.join(" "),
            lines: all.into_iter().take(MAX_LINES).collect(),
        })
    }

    /// A value as it stands in the table: sizes are short.
    pub(super) fn shown(&self, key: &str, value: &str) -> String {
        let is_size = self.experiment.file.unit(self.full_key(key)) == "bytes";
        match value.parse::<f64>() {
            Ok(bytes) if is_size => text::size(bytes),
            _ => value.to_owned(),
        }
    }

    /// The numbers of one cell of the table, one for each seed.
    pub(super) fn cell(&self, records: &[&Record], place: (usize, usize, usize), metric: &str) -> Vec<f64> {
        let (machine, kernel, combination) = place;
        let combinations: usize = self.vary.iter().map(|of| of.values.len()).product();
        let first = ((machine * self.kernels.len() + kernel) * combinations + combination) * self.repeat;
        records[first..first + self.repeat].iter().filter_map(|record| record.metric(metric)).collect()
    }
}

/// What stands behind the last point of a key.
fn last_word(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// `KEY=4K` as `KEY=4096`, where KEY has no words.
fn with_plain_number(text: &str, is_word: &dyn Fn(&str) -> bool) -> String {
    match text.split_once('=').filter(|(key, _)| !is_word(key.trim())) {
        Some((key, value)) => format!("{key}={}", Setting::with_unit(value.trim())),
        None => text.to_owned(),
    }
}

/// The names of a list with commas.
fn names<'a>(option: &str, list: &'a str) -> Result<Vec<&'a str>, LabError> {
    let names: Vec<&str> = list.split(',').map(str::trim).collect();
    if names.contains(&"") {
        let problem = "expected names or files with commas between, such as xeon-mp,today".to_owned();
        return Err(LabError::Option { option: format!("{option} {list}"), problem });
    }
    Ok(names)
}

/// Refuses a name that is there twice: tables have no other way to tell two apart.
fn check_distinct<'a>(option: &str, names: impl Iterator<Item = &'a str>) -> Result<(), LabError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            let problem = format!("`{name}` is there twice, expected names that differ");
            return Err(LabError::Option { option: option.to_owned(), problem });
        }
    }
    Ok(())
}
