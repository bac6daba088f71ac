//! Whether what the matrix of an experiment names is there, and could be set.
//!
//! Names, keys and values are looked at one by one, when the experiment's file is read; files of one's own, and whether
//! the values fit each other, when the runs are planned.

use super::catalogue::{self, Kind};
use super::experiment_file::{ExperimentFile, Matrix};
use super::kernels::KernelChoice;
use super::machines::MachineChoice;
use super::matched::unknown;
use super::setting::key_value;
use super::settings::{check_of_kernel, check_of_machine};
use pageferry_sourced::Fault;

/// Looks whether a parameter or a choice could be a value.
type Could<'a> = dyn Fn(&str, &str) -> Result<(), String> + 'a;

/// Refuses what the matrix of `file` names and nothing has; `could` says of its own parameters and choices what they
/// cannot be.
pub(super) fn check(file: &ExperimentFile, could: &Could<'_>) -> Result<(), Fault> {
    for (i, block) in file.matrix.iter().enumerate() {
        let key = format!("matrix[{i}]");
        let lists = [("machines", Kind::Machine, &block.machines), ("kernels", Kind::Kernel, &block.kernels)];
        for (list, kind, names) in lists {
            for (j, name) in names.iter().enumerate() {
                check_name(kind, &format!("{key}.{list}[{j}]"), name)?;
            }
        }
        let blocks = BlockOf { file, block, could };
        for (j, text) in block.set.iter().enumerate() {
            let (name, value) = key_value(text);
            let key = format!("{key}.set[{j}]");
            if name.is_empty() || value.is_empty() {
                return fault(key, format!("`{text}`, expected key=value"));
            }
            blocks.check(name, value).or_else(|problem| fault(key, format!("`{name}`: {problem}")))?;
        }
        for (j, vary) in block.vary.iter().enumerate() {
            for (list, values) in [("values", &vary.values), ("quick", &vary.quick)] {
                for value in values {
                    let key = format!("{key}.vary[{j}].{list}");
                    let refused = |problem| fault(key, format!("`{}`: {problem}", vary.key));
                    blocks.check(&vary.key, &value.to_string()).or_else(refused)?;
                }
            }
        }
    }
    Ok(())
}

fn fault(key: String, problem: String) -> Result<(), Fault> {
    Err(Fault { key, problem, suggestion: None })
}

fn check_name(kind: Kind, key: &str, name: &str) -> Result<(), Fault> {
    let names = catalogue::names(kind);
    if name.ends_with(".toml") || names.contains(&name) {
        return Ok(());
    }
    let problem = format!(
        "there is no {} `{name}`, expected one of: {}, or a file that ends in `.toml`",
        kind.word(),
        names.join(", ")
    );
    Err(unknown(key, problem, name, names))
}

/// A block of an experiment's matrix.
struct BlockOf<'a> {
    file: &'a ExperimentFile,
    block: &'a Matrix,
    could: &'a Could<'a>,
}

impl BlockOf<'_> {
    /// Looks whether a setting could be `value`, by itself.
    fn check(&self, key: &str, value: &str) -> Result<(), String> {
        let full = self.file.full_key(key);
        let built_in = |kind, names: &[String]| {
            names.iter().find(|name| catalogue::embedded(kind, name).is_some()).cloned()
        };
        if let Some(key) = full.strip_prefix("machine.") {
            let Some(name) = built_in(Kind::Machine, &self.block.machines) else { return Ok(()) };
            let machine = MachineChoice::find(&name).map_err(|error| error.to_string())?;
            return check_of_machine(&machine, key, value);
        }
        if let Some(key) = full.strip_prefix("kernel.") {
            let Some(name) = built_in(Kind::Kernel, &self.block.kernels) else { return Ok(()) };
            let kernel = KernelChoice::find(&name).map_err(|error| error.to_string())?;
            return check_of_kernel(&kernel, key, value);
        }
        (self.could)(full, value)
    }
}
