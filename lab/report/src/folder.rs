//! Records of a folder: what a reproduction left there, and runs that were written one by one.
//!
//! | file | what is read of it |
//! |---|---|
//! | `results.json` | the records of a reproduction |
//! | `inputs.json` | the experiments, machines and kernels that they were made with |
//! | `host.json`, `runs.csv`, `dictionary.csv` | what they took, what they depend on, what the metrics are |
//! | `*.json` besides | a run, as `pageferry run --json` prints it |
//!
//! In the place of a folder, one file of a run is a folder that has this run only.
//!
//! What no `inputs.json` has is looked up by its name: `NAME.toml` in the folder, or what is built in.
//!
//! What can fail: there is no record in the folder; a file that is one of these cannot be read; an experiment, a
//! machine or a kernel is not there.

use pageferry_lab::files::catalogue::{Kind, names};
use pageferry_lab::files::{Experiment, ExperimentFile, KernelChoice, KernelFile, MachineChoice, Paper};
use pageferry_lab::judge::{Finding, Records, Reproduction};
use pageferry_lab::record::{Entry, Host, Record, RunResult};
use pageferry_lab::{LabError, Registry, input};
use pageferry_model::MachineConfig;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the file that [`inputs`] makes.
pub(super) const INPUTS: &str = "inputs.json";

/// What records were made with.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Inputs {
    experiments: Vec<NamedFile<ExperimentFile>>,
    machines: Vec<NamedFile<MachineConfig>>,
    kernels: Vec<NamedFile<KernelFile>>,
    /// Papers of one's own: the others are in every version of the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    papers: Vec<NamedFile<Paper>>,
    findings: Vec<Finding>,
}

#[derive(Clone, Serialize, Deserialize)]
struct NamedFile<F> {
    name: String,
    file: F,
}

/// The inputs of `of`, as JSON.
pub(super) fn inputs(of: &Reproduction) -> String {
    let inputs = Inputs {
        experiments: of.experiments.iter().map(|e| named(&e.name, &e.file)).collect(),
        machines: of.machines.iter().map(|m| named(&m.name, &m.config)).collect(),
        kernels: of.kernels.iter().map(|k| named(&k.name, &k.file)).collect(),
        papers: (of.papers.iter())
            .filter(|(name, _)| !names(Kind::Paper).contains(&name.as_str()))
            .map(|(name, paper)| named(name, &**paper))
            .collect(),
        findings: of.findings.clone(),
    };
    let mut text = serde_json::to_string(&inputs).expect("plain data can be written as JSON");
    text.push('\n');
    text
}

fn named<F: Clone>(name: &str, file: &F) -> NamedFile<F> {
    NamedFile { name: name.to_owned(), file: file.clone() }
}

/// The part of `results.json` that is read.
#[derive(Deserialize)]
struct Results {
    quick: bool,
    seed: u64,
    runs: Vec<Record>,
}

/// A row of `runs.csv`, as far as it is read.
#[derive(Deserialize)]
struct RunRow {
    configuration: String,
}

/// What a folder holds, or the file of one run, judged. The plots are those of `registry`.
///
/// # Errors
/// A folder without a record, a file that cannot be read, or a name that nothing has.
pub fn read(registry: &Registry, folder: &Path) -> Result<Reproduction, LabError> {
    if folder.is_file() {
        return read_run(registry, folder);
    }
    let inputs: Inputs = json(&folder.join(INPUTS))?.unwrap_or_default();
    let mut all = Records::default();
    if let Some(Results { quick, seed, runs }) = json(&folder.join("results.json"))? {
        let mut hosts: Vec<Host> = json(&folder.join("host.json"))?.unwrap_or_default();
        hosts.resize(runs.len(), Host::default());
        let runs = runs.into_iter().zip(hosts).map(|(record, host)| RunResult { record, host });
        all = Records { quick, seed, runs: runs.collect(), ..Records::default() };
        let rows: Vec<RunRow> = table(&folder.join("runs.csv"))?;
        all.configurations = rows.into_iter().map(|row| row.configuration).collect();
        all.dictionary = table(&folder.join("dictionary.csv"))?;
    }
    for path in others(folder)? {
        all.runs.extend(run(&path)?);
    }
    let Some(first) = all.runs.first() else {
        let problem =
            "it has no records: expected results.json, or runs that `pageferry run --json` printed".into();
        return Err(LabError::Input { file: folder.display().to_string(), problem });
    };
    if all.configurations.is_empty() {
        all.seed = first.record.seed;
    }
    judged(registry, folder, inputs, all)
}

/// The run in the file at `path`, judged.
fn read_run(registry: &Registry, path: &Path) -> Result<Reproduction, LabError> {
    let Some(result) = run(path)? else {
        let problem =
            "it is no run: expected what `pageferry run --json` printed, or a folder of results".into();
        return Err(LabError::Input { file: path.display().to_string(), problem });
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let inputs = json(&folder.join(INPUTS))?.unwrap_or_default();
    let seed = result.record.seed;
    judged(registry, folder, inputs, Records { seed, runs: vec![result], ..Records::default() })
}

/// `all` with what it was made with, judged.
fn judged(
    registry: &Registry,
    folder: &Path,
    inputs: Inputs,
    mut all: Records,
) -> Result<Reproduction, LabError> {
    all.configurations.resize(all.runs.len(), String::new());
    let known: BTreeMap<&str, ()> = all.dictionary.iter().map(|entry| (&*entry.metric, ())).collect();
    let more: Vec<Entry> =
        registry.dictionary().into_iter().filter(|entry| !known.contains_key(&*entry.metric)).collect();
    all.dictionary.extend(more);
    find(registry, folder, &inputs, &mut all)?;
    let mut reproduction = registry.reproduction(all)?;
    reproduction.findings = inputs.findings;
    Ok(reproduction)
}

/// Finds the experiments, machines and kernels of all runs.
fn find(registry: &Registry, folder: &Path, inputs: &Inputs, all: &mut Records) -> Result<(), LabError> {
    let name = |name: &str| {
        let own = folder.join(format!("{name}.toml"));
        if own.is_file() { own.display().to_string() } else { name.to_owned() }
    };
    let papers: BTreeMap<String, Arc<Paper>> =
        inputs.papers.iter().map(|kept| (kept.name.clone(), Arc::new(kept.file.clone()))).collect();
    let titles: Vec<[String; 3]> =
        all.records().map(|r| [r.experiment.clone(), r.machine.clone(), r.kernel.clone()]).collect();
    for [experiment, machine, kernel] in &titles {
        if all.experiments.iter().all(|e| e.name != *experiment) {
            let kept = inputs.experiments.iter().find(|kept| kept.name == *experiment);
            let found = match kept {
                Some(kept) => Experiment::of_records(&kept.name, kept.file.clone(), &papers)?,
                None => registry.experiment(&name(experiment)).map_err(|e| missing(folder, e))?,
            };
            all.experiments.push(Arc::new(found));
        }
        if all.machines.iter().all(|m| m.name != *machine) {
            let kept = inputs.machines.iter().find(|kept| kept.name == *machine);
            let found = match kept {
                Some(kept) => MachineChoice { name: kept.name.clone(), config: kept.file.clone() },
                None => MachineChoice::find(&name(machine)).map_err(|e| missing(folder, e))?,
            };
            all.machines.push(Arc::new(found));
        }
        if all.kernels.iter().all(|k| k.name != *kernel) {
            let kept = inputs.kernels.iter().find(|kept| kept.name == *kernel);
            let found = match kept {
                Some(kept) => KernelChoice { name: kept.name.clone(), file: kept.file.clone() },
                None => KernelChoice::find(&name(kernel)).map_err(|e| missing(folder, e))?,
            };
            all.kernels.push(Arc::new(found));
        }
    }
    Ok(())
}

/// `error` with where a file of one's own is looked for.
fn missing(folder: &Path, error: LabError) -> LabError {
    match error {
        LabError::Unknown { kind, name, .. } => {
            let file = folder.display().to_string();
            let problem = format!(
                "a run is of the {kind} `{name}`, which is not built in: put its file, `{name}.toml`, into the folder"
            );
            LabError::Input { file, problem }
        }
        other => other,
    }
}

/// The JSON files of `folder` that a reproduction does not write, by name.
fn others(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let refuse = |e| LabError::io("read", folder, e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(refuse)? {
        found.push(entry.map_err(refuse)?.path());
    }
    let ours = ["results.json", "host.json", INPUTS, ".pageferry.json"];
    found.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with(".json") && !ours.contains(&name)
    });
    found.sort();
    Ok(found)
}

/// The run in the file at `path`; none if it is about something else. A file that is cut short is refused: a report
/// without it would not say that a run is missing.
fn run(path: &Path) -> Result<Option<RunResult>, LabError> {
    let bytes = input::bytes(path, input::MAX_RECORDED_BYTES)?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| refused(path, &error))?;
    if value.get("experiment").is_none() {
        return Ok(None);
    }
    serde_json::from_value(value).map(Some).map_err(|error| not_ours(path, &error))
}

/// What the JSON file at `path` has; nothing if there is none.
fn json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LabError> {
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = input::bytes(path, input::MAX_RECORDED_BYTES)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| not_ours(path, &error))
}

/// The rows of the table at `path`; none if there is no such file.
fn table<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, LabError> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let bytes = input::bytes(path, input::MAX_RECORDED_BYTES)?;
    let rows = csv::Reader::from_reader(bytes.as_slice()).into_deserialize().collect::<Result<_, _>>();
    rows.map_err(|error| refused(path, &error))
}

/// Why JSON cannot be used. Each file is whole or not there: one that is well formed and has not what is looked for was
/// written by another version.
fn not_ours(path: &Path, error: &serde_json::Error) -> LabError {
    match error.classify() {
        Category::Data => {
            refused(path, &format!("{error}; another version of the program wrote it, or a hand"))
        }
        Category::Io | Category::Syntax | Category::Eof => refused(path, error),
    }
}

fn refused(path: &Path, problem: &dyn std::fmt::Display) -> LabError {
    LabError::Input { file: path.display().to_string(), problem: problem.to_string() }
}
