//! The files of a sweep on several hosts: parts, and the records of parts.
//!
//! A part, `part-3.toml`, is all that its runs need: the experiment, the machines and the kernels in full, settings and
//! seeds. All parts of a sweep say the same, but for their number: of `n` parts, the third makes every `n`-th run from
//! the third on. Its records, `part-3.jsonl`, are a line of JSON that says what they are of, and a line for each run.
//! The first line of each file has the SHA-256 of what follows.
//!
//! What can fail: a file cannot be read, was cut short or changed, was written by another version, or asks for what
//! cannot be run; records are of another sweep or another part. Each is said with the file, and the key where there is
//! one.

use super::grid::Grid;
use super::values::Values;
use pageferry_lab::files::catalogue::{Kind, names};
use pageferry_lab::files::{Experiment, ExperimentFile, KernelChoice, KernelFile, MAX_REPEAT, MachineChoice};
use pageferry_lab::output::PendingFile;
use pageferry_lab::record::{Record, RunResult};
use pageferry_lab::run::RunSpec;
use pageferry_lab::{LabError, Registry, input, load_toml, to_toml};
use pageferry_model::MachineConfig;
use pageferry_sourced::{ConfigError, Fault};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the first line of a part begins with.
const FIRST_LINE: &str = "# A part of a sweep, for `pageferry sweep run`. Not to be changed. SHA-256: ";
/// Made anew when a reader of the old files could not make sense of the new ones.
const FORMAT: u32 = 1;

/// The version of this program, with its commit.
const VERSION: &str = env!("PAGEFERRY_VERSION");

/// A part, as its file says it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartFile {
    format: u32,
    version: String,
    /// The SHA-256 of the sweep: the same in all of its parts.
    plan: String,
    part: usize,
    parts: usize,
    sweep: SweepFile,
}

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepFile {
    quick: bool,
    seed: i64,
    repeat: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metric: Option<String>,
    set: Vec<String>,
    vary: Vec<Values>,
    experiment: Named<ExperimentFile>,
    machines: Vec<Named<MachineConfig>>,
    kernels: Vec<Named<KernelFile>>,
    /// Files that settings name: recordings. They are not in the part.
    files: Vec<NeededFile>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named<F> {
    name: String,
    file: F,
}

/// A file that runs read, and the SHA-256 of what it has to have.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeededFile {
    path: String,
    sha256: String,
}

/// A part, checked.
pub(super) struct Part {
    pub(super) number: usize,
    pub(super) parts: usize,
    plan: String,
    pub(super) grid: Grid,
    pub(super) metric: Option<String>,
    /// The runs of the whole sweep.
    pub(super) runs: Vec<RunSpec>,
    /// The files that the runs read.
    files: Vec<NeededFile>,
}

/// What the records of a part say of themselves.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordsHead {
    format: u32,
    version: String,
    plan: String,
    part: usize,
    parts: usize,
    sha256: String,
}

/// The texts of the files of `parts` parts, the first first, and the paths of the files that its runs read.
///
/// # Errors
/// A seed that the files cannot say, or a file that runs read and that cannot be read here.
pub(super) fn texts(
    grid: &Grid,
    runs: &[RunSpec],
    metric: Option<String>,
    parts: usize,
) -> Result<(Vec<String>, Vec<String>), LabError> {
    let Ok(seed) = i64::try_from(grid.seed) else {
        let problem = format!("expected at most {} in a plan", i64::MAX);
        return Err(LabError::Option { option: format!("--seed {}", grid.seed), problem });
    };
    let mut experiment = grid.experiment.file.clone();
    if !names(Kind::Paper).contains(&experiment.paper.as_str()) {
        // A paper of one's own is another file; a sweep is beside no paper.
        experiment.paper.clear();
        experiment.compare.clear();
    }
    let paths = needed(grid, runs);
    let file = |path: &String| -> Result<NeededFile, LabError> {
        Ok(NeededFile { path: path.clone(), sha256: hash_of_file(Path::new(path))? })
    };
    let sweep = SweepFile {
        quick: grid.quick,
        seed,
        repeat: grid.repeat,
        metric,
        set: grid.set.clone(),
        vary: grid.vary.clone(),
        experiment: Named { name: grid.experiment.name.clone(), file: experiment },
        machines: grid
            .machines
            .iter()
            .map(|m| Named { name: m.name.clone(), file: m.config.clone() })
            .collect(),
        kernels: grid.kernels.iter().map(|k| Named { name: k.name.clone(), file: k.file.clone() }).collect(),
        files: paths.iter().map(file).collect::<Result<_, _>>()?,
    };
    let plan = hash(to_toml(&sweep).as_bytes());
    let mut part = PartFile { format: FORMAT, version: VERSION.into(), plan, part: 1, parts, sweep };
    let texts = (1..=parts).map(|number| {
        part.part = number;
        let text = to_toml(&part);
        format!("{FIRST_LINE}{}\n{text}", hash(text.as_bytes()))
    });
    Ok((texts.collect(), paths))
}

/// The files that settings name: values of choices that are none of their words.
fn needed(grid: &Grid, runs: &[RunSpec]) -> Vec<String> {
    let choices = grid.experiment.file.choices.iter().filter(|(_, choice)| choice.or_file);
    let mut all: Vec<String> = choices
        .flat_map(|(key, choice)| {
            let values = runs.iter().filter_map(|run| run.parameters.get(key)).map(ToString::to_string);
            values.filter(|value| !choice.allowed.contains(value)).collect::<Vec<_>>()
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

impl Part {
    /// The part in the file at `path`, checked as what a command line asks for is.
    ///
    /// # Errors
    /// What this file has says above.
    pub(super) fn read(registry: &Registry, path: &Path) -> Result<Part, LabError> {
        let text = input::text(path)?;
        let name = path.display().to_string();
        let of_file = |problem: &str| LabError::Input { file: name.clone(), problem: problem.to_owned() };
        let Some((sum, rest)) = text.strip_prefix(FIRST_LINE).and_then(|text| text.split_once('\n')) else {
            return Err(of_file("it is no part of a sweep: expected a file that `sweep --plan` wrote"));
        };
        if hash(rest.as_bytes()) != sum.trim_end() {
            return Err(of_file(
                "it was cut short or changed since `sweep --plan` wrote it: its SHA-256 is another",
            ));
        }
        let head: Head = load_toml(&name, rest)?;
        let value = |key: &str, problem: String| ConfigError::of_value(&name, &text, key, problem);
        if head.version != VERSION || head.format != FORMAT {
            let problem = format!("pageferry {} planned it, and this is pageferry {VERSION}", head.version);
            return Err(value("version", problem).into());
        }
        // With the first line, so that errors count lines as the file does.
        let file: PartFile = load_toml(&name, &text)?;
        if file.parts == 0 || !(1..=file.parts).contains(&file.part) {
            let problem = format!("{}, expected 1 to {}, as `parts` says", file.part, file.parts);
            return Err(value("part", problem).into());
        }
        file.sweep.check().map_err(|Fault { key, problem, .. }| value(&format!("sweep.{key}"), problem))?;
        let experiment =
            file.sweep.experiment(registry).map_err(|e| value("sweep.experiment", e.to_string()))?;
        let SweepFile { quick, seed, repeat, metric, set, vary, machines, kernels, files, .. } = file.sweep;
        let grid = Grid {
            experiment: Arc::new(experiment),
            machines: machines.into_iter().map(|m| MachineChoice { name: m.name, config: m.file }).collect(),
            kernels: kernels.into_iter().map(|k| KernelChoice { name: k.name, file: k.file }).collect(),
            vary,
            set,
            seed: seed as u64,
            repeat,
            quick,
        };
        let of_sweep = |e: LabError| LabError::from(value("sweep", e.to_string()));
        let runs = grid.plan(registry).map_err(of_sweep)?;
        grid.metric(registry, metric.as_deref()).map_err(of_sweep)?;
        if file.parts > runs.len() {
            let problem = format!("{}, expected at most {}, one for each run", file.parts, runs.len());
            return Err(value("parts", problem).into());
        }
        Ok(Part { number: file.part, parts: file.parts, plan: file.plan, grid, metric, runs, files })
    }

    /// The runs of this part, in order.
    pub(super) fn own(&self) -> Vec<RunSpec> {
        self.of(self.number).cloned().collect()
    }

    /// The runs of part `number`.
    fn of(&self, number: usize) -> impl Iterator<Item = &RunSpec> {
        self.runs.iter().skip(number - 1).step_by(self.parts)
    }

    /// Refuses files that the runs read and that are not what they were when the sweep was planned.
    pub(super) fn check_files(&self) -> Result<(), LabError> {
        self.files.iter().try_for_each(|NeededFile { path, sha256 }| {
            if hash_of_file(Path::new(path))? == *sha256 {
                return Ok(());
            }
            let problem =
                "it is not what it was when the sweep was planned: its SHA-256 is another".to_owned();
            Err(LabError::Input { file: path.clone(), problem })
        })
    }

    /// Begins the records of the part in the file at `path`: they will lie beside it.
    pub(super) fn begin_records(path: &Path) -> Result<(PathBuf, PendingFile), LabError> {
        let path = path.with_extension("jsonl");
        let file = PendingFile::create(&path)?;
        Ok((path, file))
    }

    /// Writes the records to `file`, which then appears at `path`.
    pub(super) fn write_records(
        &self,
        runs: &[RunResult],
        path: &Path,
        mut file: PendingFile,
    ) -> Result<(), LabError> {
        let mut lines = Vec::new();
        for run in runs {
            serde_json::to_writer(&mut lines, run).expect("plain data can be written as JSON");
            lines.push(b'\n');
        }
        let head = RecordsHead {
            format: FORMAT,
            version: VERSION.into(),
            plan: self.plan.clone(),
            part: self.number,
            parts: self.parts,
            sha256: hash(&lines),
        };
        let mut head = serde_json::to_vec(&head).expect("plain data can be written as JSON");
        head.push(b'\n');
        let written = file.write_all(&head).and_then(|()| file.write_all(&lines));
        written.map_err(|e| LabError::io("write", path, e))?;
        file.commit()
    }

    /// The records of part `number` in `folder`, or why they cannot be used.
    pub(super) fn records(&self, folder: &Path, number: usize) -> Result<Vec<RunResult>, String> {
        let path = folder.join(format!("part-{number}.jsonl"));
        if !path.exists() {
            return Err("it was not run: there are no records of it".to_owned());
        }
        let bytes = input::bytes(&path, input::MAX_RECORDED_BYTES).map_err(|e| e.to_string())?;
        let damaged = |what: &str| format!("its records are damaged: {what}");
        let cut =
            bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("there is no whole line"))?;
        let (head, lines) = (&bytes[..cut], &bytes[cut + 1..]);
        let version: Head = serde_json::from_slice(head).map_err(|e| damaged(&format!("line 1: {e}")))?;
        if version.version != VERSION || version.format != FORMAT {
            return Err(format!(
                "pageferry {} made its records, and this is pageferry {VERSION}",
                version.version
            ));
        }
        let head: RecordsHead = serde_json::from_slice(head).map_err(|e| damaged(&format!("line 1: {e}")))?;
        if head.sha256 != hash(lines) {
            return Err(damaged("they were cut short or changed: their SHA-256 is another"));
        }
        if head.plan != self.plan || head.parts != self.parts {
            return Err("its records are of another sweep".to_owned());
        }
        if head.part != number {
            return Err(format!("its records are those of part {}", head.part));
        }
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let runs = lines.enumerate().map(|(at, line)| {
            serde_json::from_slice(line).map_err(|e| damaged(&format!("line {}: {e}", at + 2)))
        });
        let runs: Vec<RunResult> = runs.collect::<Result<_, _>>()?;
        let expected = self.of(number).count();
        if runs.len() != expected {
            return Err(damaged(&format!("{} runs, expected {expected}", runs.len())));
        }
        match runs.iter().zip(self.of(number)).find(|(run, spec)| !is_of(&run.record, spec)) {
            Some((run, spec)) => Err(damaged(&format!("{}, expected {}", run.record.title(), spec.title()))),
            None => Ok(runs),
        }
    }
}

/// Whether `record` can be what `spec` gave.
fn is_of(record: &Record, spec: &RunSpec) -> bool {
    let causes = record.cycles.by_cause.values();
    let sum = causes.fold(0u64, |sum, cycles| sum.saturating_add(*cycles));
    let names = (&record.experiment, &record.machine, &record.kernel);
    names == (&spec.experiment.name, &spec.machine.name, &spec.kernel.name)
        && record.seed == spec.choices.seed
        && record.perturbed == spec.choices.perturbed
        && record.settings == spec.settings()
        && record.cycles.total == sum
}

/// What tells versions apart, in all files.
#[derive(Deserialize)]
struct Head {
    format: u32,
    version: String,
}

impl SweepFile {
    /// Refuses what no command line asks for, as far as [`Grid::plan`] does not.
    fn check(&self) -> Result<(), Fault> {
        let fault = |key: String, problem: &str| Fault { key, problem: problem.to_owned(), suggestion: None };
        if !(1..=MAX_REPEAT as usize).contains(&self.repeat) {
            return Err(fault("repeat".into(), &format!("expected 1 to {MAX_REPEAT}")));
        }
        if self.seed < 0 {
            return Err(fault("seed".into(), "expected at least 0"));
        }
        if self.machines.is_empty() {
            return Err(fault("machines".into(), "expected at least one"));
        }
        if self.kernels.is_empty() {
            return Err(fault("kernels".into(), "expected at least one"));
        }
        for (at, values) in self.vary.iter().enumerate() {
            values.check().map_err(|e| fault(format!("vary[{at}]"), &e.to_string()))?;
        }
        let below = |key: String, e: Fault| Fault { key: format!("{key}.file.{}", e.key), ..e };
        for (at, machine) in self.machines.iter().enumerate() {
            machine.file.validate().map_err(|e| below(format!("machines[{at}]"), e))?;
        }
        for (at, kernel) in self.kernels.iter().enumerate() {
            kernel.file.validate().map_err(|e| below(format!("kernels[{at}]"), e))?;
        }
        // Files of the results are called by these.
        let machines = self.machines.iter().map(|m| &m.name).enumerate();
        let kernels = self.kernels.iter().map(|k| &k.name).enumerate();
        let all = machines.map(|(at, name)| (format!("machines[{at}].name"), name));
        let all = all.chain(kernels.map(|(at, name)| (format!("kernels[{at}].name"), name)));
        for (key, name) in all.chain([("experiment.name".to_owned(), &self.experiment.name)]) {
            if name.is_empty() || name.contains(|c: char| c == '/' || c == '\\' || c.is_control()) {
                return Err(fault(key, "expected the name of a file, without its folder"));
            }
        }
        Ok(())
    }

    /// The experiment, checked as a file of one's own is.
    fn experiment(&self, registry: &Registry) -> Result<Experiment, LabError> {
        let Named { name, file } = &self.experiment;
        if !file.paper.is_empty() && !names(Kind::Paper).contains(&file.paper.as_str()) {
            let problem = format!("there is no paper `{}` in this program", file.paper);
            return Err(LabError::Input { file: "file.paper".to_owned(), problem });
        }
        registry.clone().with_experiment(name, &to_toml(file)).experiment(name)
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash_of_file(path: &Path) -> Result<String, LabError> {
    Ok(hash(&input::bytes(path, input::MAX_RECORDED_BYTES)?))
}
