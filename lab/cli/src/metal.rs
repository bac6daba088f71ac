//! `pageferry run ... --machine qemu-amd64`: the experiment's program in ring 3 of the kernel on metal, under QEMU.
//!
//! The image is built from the sources, so this has to be called in a checkout of them; `xtask` builds it, has QEMU run
//! it, and says what was counted. There are counts and no cycles: an emulator's time is nobody's.
//!
//! # What can fail
//! An experiment, a kernel or an option that metal has not, and a host without the sources or QEMU: a line, and nothing
//! was run.

use crate::args::Run;
use crate::show::print_json;
use crate::terminal::{print, table};
use pageferry_lab::files::{KernelChoice, MachineChoice, Setting, Settings};
use pageferry_lab::run::{Choices, RunSpec, Schedule};
use pageferry_lab::{LabError, text};
use pageferry_sourced::nearest;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// The name of the machine.
pub(crate) const MACHINE: &str = "qemu-amd64";
/// The modelled machine that is like it.
const LIKE: &str = "opteron-mp";

/// Experiments whose programs run in ring 3, and their parameters there.
const EXPERIMENTS: [(&str, &[&str]); 8] = [
    ("bw-pipe", &["total_bytes", "chunk_bytes", "warmup_chunks", "pin"]),
    ("uvm-pipe", &["size_bytes", "total_bytes", "warmup_writes", "send", "receive"]),
    ("ping-pong", &["size_bytes", "rounds", "warmup_rounds", "by"]),
    ("pipeline", &["size_bytes", "rounds", "warmup_rounds", "by", "send"]),
    ("mixed", &["rounds", "warmup_rounds", "send", "receive"]),
    ("null-read", &["size_bytes", "total_bytes", "warmup_reads", "receive"]),
    ("null-write", &["size_bytes", "total_bytes", "warmup_writes", "send"]),
    ("invalidate", &["times"]),
];

/// Kernels, and their schemes of ephemeral mappings on amd64.
const KERNELS: [(&str, &str); 2] = [("original", "original"), ("sf_buf", "direct")];

/// What a run gave: the fields of a run on the model, as far as metal has them.
#[derive(Serialize)]
struct Counted {
    experiment: String,
    machine: &'static str,
    kernel: String,
    settings: BTreeMap<String, Setting>,
    counters: BTreeMap<String, u64>,
    payload_ok: bool,
}

/// True for a machine's name that is meant to be this one's.
pub(crate) fn is_meant(name: &str) -> bool {
    name.starts_with("qemu")
}

/// Runs an experiment there.
pub(crate) fn run(options: &Run) -> Result<ExitCode, LabError> {
    let refused = |option: &str, problem: String| LabError::Option { option: option.into(), problem };
    let machine = options.machine.as_deref().unwrap_or_default();
    if machine != MACHINE {
        return Err(refused(
            &format!("--machine {machine}"),
            format!("expected {MACHINE}, which is the kernel on metal"),
        ));
    }
    let others = [
        ("--trace", options.trace.is_some()),
        ("--repeat", options.repeat > 1),
        ("--seeded-schedule", options.seeded_schedule),
        ("--perturbed", options.perturbed),
    ];
    if let Some((option, _)) = others.iter().find(|(_, given)| *given) {
        return Err(refused(option, format!("expected a modelled machine, and not {MACHINE}")));
    }
    let experiment = Arc::new(crate::registry::registry().experiment(&options.experiment)?);
    let name = experiment.name.clone();
    let program = EXPERIMENTS.iter().find(|(other, _)| *other == name);
    let (_, known) = program.ok_or_else(|| LabError::Unknown {
        kind: "program in ring 3 for the experiment",
        nearest: nearest(&name, EXPERIMENTS.iter().map(|(name, _)| *name)).map(str::to_owned),
        known: EXPERIMENTS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        name: name.clone(),
    })?;
    let kernel = options.kernel.as_deref().unwrap_or("original");
    let (_, scheme) =
        KERNELS.iter().find(|(other, _)| *other == kernel).ok_or_else(|| LabError::Unknown {
            kind: "kernel on metal",
            nearest: nearest(kernel, KERNELS.iter().map(|(name, _)| *name)).map(str::to_owned),
            known: KERNELS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            name: kernel.to_owned(),
        })?;
    let settings = Settings::parse(&options.settings)?;
    let choices =
        Choices { quick: options.quick, seed: options.seed, schedule: Schedule::Timed, perturbed: false };
    let (like, ours) = (MachineChoice::find(LIKE)?, KernelChoice::find(kernel)?);
    let spec = RunSpec::new(crate::registry::registry(), &experiment, like, ours, &settings, choices)?;
    if let Some(key) = spec.set.iter().find(|key| !known.contains(&key.as_str())) {
        let problem = format!("expected {}, for a run on {MACHINE}", known.join(", "));
        return Err(LabError::Setting { key: key.clone(), problem });
    }
    if let Some(key) = spec.changes.keys().next() {
        let problem = format!("expected no constant of a model, for a run on {MACHINE}");
        return Err(LabError::Setting { key: key.clone(), problem });
    }
    let settings: BTreeMap<String, Setting> = spec
        .parameters
        .iter()
        .filter(|(key, _)| known.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let words = settings.iter().map(|(key, value)| format!(",{key}={value}"));
    let line = format!("{name}{}", words.collect::<String>());
    let counters =
        counted(&line, scheme).map_err(|problem| refused(&format!("--machine {MACHINE}"), problem))?;
    let kernel = kernel.to_owned();
    let result = Counted { experiment: name, machine: MACHINE, kernel, settings, counters, payload_ok: true };
    if options.json {
        return print_json(&result);
    }
    let Counted { experiment, machine, kernel, counters, .. } = result;
    let rows: Vec<Vec<String>> =
        counters.iter().map(|(name, count)| vec![name.clone(), text::grouped(*count as i64)]).collect();
    print(&format!("{experiment}  {machine} under {kernel}\n\n{}", table(&["counter", ">events"], &rows)))?;
    Ok(ExitCode::SUCCESS)
}

/// The root of the sources that the current folder is in.
fn sources() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let is_root = |folder: &&Path| folder.join("machines/metal/Cargo.toml").is_file();
    here.ancestors().find(is_root).map(Path::to_path_buf)
}

/// Has the program run, and reads what was counted of it.
fn counted(line: &str, scheme: &str) -> Result<BTreeMap<String, u64>, String> {
    let root =
        sources().ok_or("the image is built from pageferry's sources, and this folder is not in them")?;
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "-p", "xtask", "--", "metal", "count", line, "--kernel", scheme]);
    let output = cargo.current_dir(root).output();
    let output = output.map_err(|e| format!("cargo does not run, which builds the image: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.trim_end().lines().last().unwrap_or("xtask failed and did not say why").to_owned());
    }
    let count = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_lab::files::Scale;

    #[test]
    fn programs_in_ring_3_have_parameters_of_their_experiments() {
        for (name, known) in EXPERIMENTS {
            let experiment = crate::registry::registry().experiment(name).expect("it is built in");
            let parameters = experiment.parameters(Scale::Quick, &[]).expect("its own");
            for key in known {
                assert!(parameters.contains_key(*key), "{name}: {key}");
            }
        }
    }
}
