//! Machines, kernels, experiments and papers by name.
//!
//! Data files are embedded in the program: machines in `pageferry-model`, all others in this crate. Where a machine or
//! kernel is asked for, a path that ends in `.toml` may stand in place of a name; its `extends` may name an embedded
//! file or another path beside it.

use super::units::{hint_of, unit_of};
use crate::error::LabError;
use crate::input;
use pageferry_sourced::{ConfigError, nearest};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// What a data file describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Hardware.
    Machine,
    /// A kernel's policies and path lengths.
    Kernel,
    /// A workload and the machines and kernels that it runs on.
    Experiment,
    /// Published numbers.
    Paper,
}

impl Kind {
    /// The word for one of them.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Machine => "machine",
            Kind::Kernel => "kernel",
            Kind::Experiment => "experiment",
            Kind::Paper => "paper",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Kind::Machine => "machines",
            Kind::Kernel => "kernels",
            Kind::Experiment => "experiments",
            Kind::Paper => "papers",
        }
    }

    fn table(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Kind::Machine => pageferry_model::machines::files(),
            Kind::Kernel => embedded::KERNELS,
            Kind::Experiment => embedded::EXPERIMENTS,
            Kind::Paper => embedded::PAPERS,
        }
    }
}

/// A data file's contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The short name: for results, figures and columns.
    pub name: String,
    /// The file, as errors call it.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// The names of all embedded files of a kind, sorted.
pub fn names(kind: Kind) -> Vec<&'static str> {
    kind.table().iter().map(|(name, _)| *name).collect()
}

/// What was read of the embedded files of a kind: each is read once, since they do not change.
#[derive(Debug)]
pub(super) struct AsRead<T>(Mutex<BTreeMap<String, T>>);

impl<T: Clone> AsRead<T> {
    pub(super) const fn nothing() -> AsRead<T> {
        AsRead(Mutex::new(BTreeMap::new()))
    }

    /// What `read` makes of the file called `name`, which is of `kind`, or lies at a path.
    ///
    /// # Errors
    /// As [`find`], and those of `read`.
    pub(super) fn find(
        &self,
        kind: Kind,
        name: &str,
        read: impl FnOnce(Source) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(name) {
            return Ok(found.clone());
        }
        let is_embedded = kind.table().iter().any(|(embedded, _)| *embedded == name);
        let found = read(find(kind, name)?)?;
        if is_embedded {
            known().insert(name.to_owned(), found.clone());
        }
        Ok(found)
    }
}

/// The file called `name`, or at the path `name` where that ends in `.toml`.
///
/// # Errors
/// [`LabError::Unknown`] with the nearest name, [`LabError::Io`], or [`LabError::Input`] for a file that is none.
pub fn find(kind: Kind, name: &str) -> Result<Source, LabError> {
    find_in(kind.table(), kind.word(), kind.folder(), name)
}

/// As [`find`], in a table of names and texts that another crate has; `word` is what a file of it describes, and
/// `folder` where errors say that it lies.
///
/// # Errors
/// As [`find`].
pub fn find_in(
    table: &[(&'static str, &str)],
    word: &'static str,
    folder: &str,
    name: &str,
) -> Result<Source, LabError> {
    if name.ends_with(".toml") {
        let text = input::text(Path::new(name))?;
        let stem = Path::new(name).file_stem().map_or_else(|| name.into(), |s| s.to_string_lossy());
        return Ok(Source { name: stem.into_owned(), file: name.to_owned(), text });
    }
    if let Some((name, text)) = table.iter().find(|(known, _)| *known == name) {
        let file = format!("{folder}/{name}.toml");
        return Ok(Source { name: (*name).to_owned(), file, text: (*text).to_owned() });
    }
    if Path::new(name).is_file() {
        let problem = format!("a file that describes a {word} has a name that ends in `.toml`");
        return Err(LabError::Input { file: name.to_owned(), problem });
    }
    let known: Vec<&str> = table.iter().map(|(known, _)| *known).collect();
    Err(LabError::Unknown {
        kind: word,
        name: name.to_owned(),
        nearest: nearest(name, known.iter().copied()).map(str::to_owned),
        known: known.into_iter().map(str::to_owned).collect(),
    })
}

/// The embedded file called `name`.
pub fn embedded(kind: Kind, name: &str) -> Option<Source> {
    let (name, text) = kind.table().iter().find(|(n, _)| *n == name)?;
    Some(Source {
        name: (*name).to_owned(),
        file: format!("{}/{name}.toml", kind.folder()),
        text: (*text).to_owned(),
    })
}

/// Whether `source` is in the program like this.
pub(super) fn is_embedded(kind: Kind, source: &Source) -> bool {
    embedded(kind, &source.name).is_some_and(|embedded| embedded.text == source.text)
}

/// Reads a file with `read`, which is given the files that are extended, in files that `from` extends. If one is not
/// there, the error names the nearest that is.
///
/// # Errors
/// Those of `read`.
pub fn extending<T>(
    kind: Kind,
    from: &str,
    read: impl FnOnce(&dyn Fn(&str) -> Option<String>) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let missing = RefCell::new(None);
    let lookup = |name: &str| {
        let found = base(kind, from, name).map(|source| source.text);
        if found.is_none() {
            missing.replace(Some(name.to_owned()));
        }
        found
    };
    let result = read(&lookup);
    result.map_err(|error| {
        let missing = missing.borrow();
        let nearest = missing.as_deref().and_then(|name| nearest(name, names(kind)));
        let suggestion = error.suggestion.clone().or(nearest.map(str::to_owned));
        ConfigError { suggestion, problem: explained(kind, &error), ..error }
    })
}

/// The title of what is in `source`, where it is `title` with all that it extends: one that it inherits has its name in
/// front.
pub(super) fn title_of(kind: Kind, source: &Source, title: String) -> String {
    if is_embedded(kind, source) {
        return title;
    }
    let table: toml::Table = source.text.parse().unwrap_or_default();
    let inherits = table.contains_key("extends") && !table.contains_key("title");
    if inherits { format!("{}, made from {title}", source.name) } else { title }
}

/// The problem of `error`, with the unit of a number that is out of its range, and where the number of CPUs is said.
fn explained(kind: Kind, error: &ConfigError) -> String {
    let (problem, unit) = (&error.problem, unit_of(&error.key));
    let out_of_range =
        problem.contains(", expected ") && problem.ends_with(|last: char| last.is_ascii_digit());
    if out_of_range && !unit.is_empty() {
        return format!("{problem} {unit}");
    }
    format!("{problem}{}", hint_of(kind.word(), &error.key))
}

/// The file that `extends = name` means in the file `from`: an embedded one, or a path beside `from`.
pub(super) fn base(kind: Kind, from: &str, name: &str) -> Option<Source> {
    if !name.ends_with(".toml") {
        return embedded(kind, name);
    }
    let path = Path::new(from).parent().unwrap_or(Path::new("")).join(name);
    find(kind, path.to_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in() {
        for name in [
            "xeon-up",
            "xeon-htt",
            "xeon-mp",
            "xeon-mp-htt",
            "opteron-mp",
            "486",
            "pentium",
            "pentium-pro",
            "pentium-iii",
        ] {
            assert!(names(Kind::Machine).contains(&name), "{name}");
        }
        assert_eq!(
            names(Kind::Kernel),
            [
                "ant",
                "ant-anywhere",
                "art-linux",
                "bsd-vm",
                "linux-2.6",
                "linux-6",
                "linux-ppc",
                "original",
                "per-process",
                "sf_buf",
                "sf_buf-as-printed",
                "sf_buf-paging",
                "sf_buf-shared",
                "uvm",
                "uvm-paging",
                "vmem"
            ]
        );
        for name in [
            "bw-pipe",
            "ephemeral-hit",
            "invalidate",
            "ispc-clients",
            "null-read",
            "null-write",
            "uvm-pipe",
            "ping-pong",
        ] {
            assert!(names(Kind::Experiment).contains(&name), "{name}");
        }
    }

    #[test]
    fn a_wrong_name_gets_the_nearest() {
        let e = find(Kind::Kernel, "sfbuf").expect_err("no such kernel");
        assert_eq!(e.to_string(), "there is no kernel `sfbuf`; did you mean `sf_buf`?");
        let e = find(Kind::Experiment, "zzzzzzzz").expect_err("no such experiment");
        assert!(e.to_string().contains("there are: bw-pipe"), "{e}");
    }
}
