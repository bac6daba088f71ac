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
use super::settings::Form;
use crate::error::LabError;
use pageferry_sourced::Fault;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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
        let mut block_of = BlockOf { file, block, could, forms: BTreeMap::new() };
        for (j, text) in block.set.iter().enumerate() {
            let (name, value) = key_value(text);
            let key = format!("{key}.set[{j}]");
            if name.is_empty() || value.is_empty() {
                return fault(key, format!("`{text}`, expected key=value"));
            }
            block_of.check(name, value).or_else(|problem| fault(key, format!("`{name}`: {problem}")))?;
        }
        for (j, vary) in block.vary.iter().enumerate() {
            for (list, values) in [("values", &vary.values), ("quick", &vary.quick)] {
                for value in values {
                    let key = format!("{key}.vary[{j}].{list}");
                    let refused = |problem| fault(key, format!("`{}`: {problem}", vary.key));
                    block_of.check(&vary.key, &value.to_string()).or_else(refused)?;
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
    /// Its first built-in machine and kernel, by the word for them; none if all are files of one's own.
    forms: BTreeMap<&'static str, Option<Form>>,
}

impl BlockOf<'_> {
    /// Looks whether a setting could be `value`, by itself.
    fn check(&mut self, key: &str, value: &str) -> Result<(), String> {
        let full = self.file.full_key(key);
        if let Some(key) = full.strip_prefix("machine.") {
            let form = |name: &str| MachineChoice::find(name).map(|machine| machine.form());
            return self.check_in(Kind::Machine, &self.block.machines, form, key, value);
        }
        if let Some(key) = full.strip_prefix("kernel.") {
            let form = |name: &str| KernelChoice::find(name).map(|kernel| kernel.form());
            return self.check_in(Kind::Kernel, &self.block.kernels, form, key, value);
        }
        (self.could)(full, value)
    }

    fn check_in(
        &mut self,
        kind: Kind,
        names: &[String],
        form: impl FnOnce(&str) -> Result<Form, LabError>,
        key: &str,
        value: &str,
    ) -> Result<(), String> {
        let form = match self.forms.entry(kind.word()) {
            Entry::Occupied(form) => form.into_mut(),
            Entry::Vacant(place) => {
                let built_in = names.iter().find(|name| catalogue::embedded(kind, name).is_some());
                place.insert(built_in.map(|name| form(name)).transpose().map_err(|error| error.to_string())?)
            }
        };
        form.as_mut().map_or(Ok(()), |form| form.set(key, value))
    }
}
