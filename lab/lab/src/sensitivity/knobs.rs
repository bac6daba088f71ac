//! Constants that can be turned: whole numbers of the machines and kernels of a plan, each once for all files that
//! share it.
//!
//! A kernel file extends another: a value that several kernels have from one source is one constant, and changes in all
//! of them at once. What can fail: a filter that no constant fits.

use crate::error::LabError;
use crate::files::{Setting, Settings, kernel_range, machine_range};
use crate::run::RunSpec;
use pageferry_sourced::{Constant, SourceKind, nearest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What has the constant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Machines.
    Machine,
    /// Kernels.
    Kernel,
}

impl Part {
    /// The prefix of its keys, and the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Machine => "machine",
            Part::Kernel => "kernel",
        }
    }
}

/// A constant, and the files that share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knob {
    /// What has it.
    pub part: Part,
    /// Its key in the file.
    pub key: String,
    /// Its value.
    pub value: i64,
    /// How it came by its value.
    pub kind: SourceKind,
    /// The machines or kernels.
    pub files: Vec<String>,
    /// The least and the most that are allowed.
    pub range: (i64, i64),
}

/// Which constants are turned, and in which runs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Filter {
    /// Runs on these machines; on all if there are none.
    pub machines: Vec<String>,
    /// Constants that these kernels have, and runs under them; of all if there are none.
    pub kernels: Vec<String>,
    /// Patterns of keys, with or without `machine.` and `kernel.`; all if there are none.
    pub keys: Vec<String>,
}

impl Filter {
    /// Whether a run is made again.
    pub(super) fn takes(&self, run: &RunSpec) -> bool {
        let named = |names: &[String], name: &String| names.is_empty() || names.contains(name);
        named(&self.machines, &run.machine.name) && named(&self.kernels, &run.kernel.name)
    }

    fn takes_key(&self, part: Part, key: &str) -> bool {
        let full = format!("{}.{key}", part.name());
        self.keys.is_empty() || self.keys.iter().any(|pattern| glob(pattern, key) || glob(pattern, &full))
    }
}

/// Whether `text` is as `pattern` says, in which a `*` stands for any characters.
pub fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            places.into_iter().any(|at| glob(rest, &text[at..]))
        }),
    }
}

impl Knob {
    /// Its key as for `--set`.
    pub fn full_key(&self) -> String {
        format!("{}.{}", self.part.name(), self.key)
    }

    /// Its value changed by `share` of it, rounded away from it and by at least 1, within its range; and whether the
    /// range held it back. None where nothing is left of the change.
    pub fn turned(&self, up: bool, share: f64) -> Option<(i64, bool)> {
        let by = ((self.value.unsigned_abs() as f64 * share).ceil() as i64).max(1);
        let wanted = if up { self.value.saturating_add(by) } else { self.value.saturating_sub(by) };
        let value = wanted.clamp(self.range.0, self.range.1);
        (value != self.value).then_some((value, value != wanted))
    }

    /// Whether `run` has it, and not a value of its own in its place.
    pub(super) fn is_of(&self, run: &RunSpec) -> bool {
        let name = match self.part {
            Part::Machine => &run.machine.name,
            Part::Kernel => &run.kernel.name,
        };
        self.files.contains(name) && !run.changes.contains_key(&self.full_key())
    }
}

/// `run` with other values of constants.
///
/// # Errors
/// An impossible machine or kernel.
pub(super) fn changed(run: &RunSpec, values: &[(&Knob, i64)]) -> Result<RunSpec, LabError> {
    let mut settings = Settings::default();
    let mut changes = run.changes.clone();
    for (knob, value) in values {
        let key = knob.full_key();
        settings.add(&key, &value.to_string());
        changes.insert(key, Setting::Integer(*value));
    }
    let machine = Arc::new(settings.machine((*run.machine).clone())?);
    let kernel = Arc::new(settings.kernel((*run.kernel).clone())?);
    Ok(RunSpec { machine, kernel, changes, ..run.clone() })
}

/// The constants of `runs` that `filter` takes, and how many are left out because they are words or flags.
///
/// # Errors
/// A pattern of the filter that fits none; says which key is most like it.
pub(super) fn knobs(runs: &[&RunSpec], filter: &Filter) -> Result<(Vec<Knob>, usize), LabError> {
    type Id = (Part, String, i64, SourceKind, String);
    let mut found: BTreeMap<Id, (BTreeSet<String>, (i64, i64))> = BTreeMap::new();
    let mut words: BTreeSet<(Part, String)> = BTreeSet::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeSet<(Part, &str)> = BTreeSet::new();
    for run in runs {
        for part in [Part::Machine, Part::Kernel] {
            let (name, constants) = match part {
                Part::Machine => (&run.machine.name, run.machine.constants()),
                Part::Kernel => (&run.kernel.name, run.kernel.constants()),
            };
            // What a run sets for itself is not of the file; the next run of the file may not set it.
            if run.changes.is_empty() && !seen.insert((part, name)) {
                continue;
            }
            for Constant { key, value, source, kind, .. } in constants {
                let full = format!("{}.{key}", part.name());
                if run.changes.contains_key(&full) {
                    continue;
                }
                known.insert(full);
                if !filter.takes_key(part, &key) {
                    continue;
                }
                let range = || match part {
                    Part::Machine => machine_range(&run.machine, &key),
                    Part::Kernel => kernel_range(&run.kernel, &key),
                };
                let Some((value, range)) = value.parse().ok().and_then(|value| Some((value, range()?)))
                else {
                    words.insert((part, key));
                    continue;
                };
                let entry = found.entry((part, key, value, kind, source)).or_insert((BTreeSet::new(), range));
                entry.0.insert(name.clone());
            }
        }
    }
    for pattern in &filter.keys {
        if !known.iter().any(|key| glob(pattern, key) || fits_below(pattern, key)) {
            let like = nearest(pattern, known.iter().map(String::as_str));
            let like = like.or_else(|| {
                let short = known.iter().filter_map(|key| key.split_once('.').map(|(_, key)| key));
                nearest(pattern, short)
            });
            let hint = like.map_or(String::new(), |key| format!("; did you mean `{key}`?"));
            return Err(LabError::Option {
                option: format!("--key {pattern}"),
                problem: format!("no constant of these machines and kernels has such a key{hint}"),
            });
        }
    }
    let one = |((part, key, value, kind, _), (files, range)): (Id, (BTreeSet<String>, _))| Knob {
        part,
        key,
        value,
        kind,
        files: files.into_iter().collect(),
        range,
    };
    Ok((found.into_iter().map(one).collect(), words.len()))
}

fn fits_below(pattern: &str, full: &str) -> bool {
    full.split_once('.').is_some_and(|(_, key)| glob(pattern, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knob(value: i64, range: (i64, i64)) -> Knob {
        let (part, kind) = (Part::Machine, SourceKind::Assumed);
        Knob { part, key: "cpu.x".into(), value, kind, files: vec!["m".into()], range }
    }

    #[test]
    fn values_move_by_one_or_more_and_stay_in_their_range() {
        let wide = (0, i64::MAX);
        assert_eq!(knob(100, wide).turned(true, 0.2), Some((120, false)));
        assert_eq!(knob(101, wide).turned(false, 0.2), Some((80, false)));
        assert_eq!(knob(2, wide).turned(true, 0.1), Some((3, false)));
        assert_eq!(knob(0, wide).turned(false, 0.2), None);
        assert_eq!(knob(0, wide).turned(true, 0.2), Some((1, false)));
        assert_eq!(knob(100, (90, 110)).turned(true, 0.2), Some((110, true)));
        assert_eq!(knob(1 << 62, wide).turned(true, 0.9).map(|turned| turned.1), Some(false));
    }

    #[test]
    fn patterns_have_stars() {
        assert!(glob("cpu.*", "cpu.clock_mhz") && glob("*", "") && glob("*clock*", "cpu.clock_mhz"));
        assert!(!glob("cpu", "cpu.clock_mhz") && !glob("*x", "cpu.clock_mhz") && glob("a*b*c", "axbbxc"));
    }
}
