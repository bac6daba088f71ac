//! The page of constants, laws and runs: what all results depend on, whatever paper they are of.

use pageferry_lab::judge::{Calibration, Reproduction};
use pageferry_lab::record::RunResult;
use pageferry_sourced::Constant;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the template is given.
#[derive(Serialize)]
pub(super) struct Constants<'a> {
    laws: Vec<&'a str>,
    calibrated_constants: Vec<CalibratedView>,
    machines: Vec<ConstantsView>,
    kernels: Vec<ConstantsView>,
    hosts: Vec<HostView>,
}

/// The constants of one file: all of them, or how they differ from those of another.
#[derive(Serialize)]
struct ConstantsView {
    name: String,
    title: String,
    summary: String,
    like: Option<String>,
    rows: Vec<Constant>,
    sources: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct CalibratedView {
    #[serde(flatten)]
    constant: Calibration,
    statement: String,
}

#[derive(Serialize)]
struct HostView {
    run: String,
    wall: String,
    /// Of lines streamed, dependent accesses, and instructions charged.
    rates: [String; 3],
}

pub(super) fn view(of: &Reproduction) -> Constants<'_> {
    Constants {
        laws: of.runs.first().map_or(Vec::new(), |r| r.record.laws.iter().map(|l| l.name.as_str()).collect()),
        calibrated_constants: calibrated_view(of, of.calibrated()),
        machines: machines(of),
        kernels: kernels(of),
        hosts: hosts(of),
    }
}

fn calibrated_view(of: &Reproduction, constants: Vec<Calibration>) -> Vec<CalibratedView> {
    let statement = |id: &str| match of.published(id) {
        Some(p) => format!("{}: {}", p.metric, p.shown()),
        None => id.to_owned(),
    };
    constants.into_iter().map(|c| CalibratedView { statement: statement(&c.against), constant: c }).collect()
}

/// Lists `all` as differences from the earlier file that shares most, where it shares nearly all.
fn shortened(
    name: &str,
    all: Vec<Constant>,
    earlier: &[(String, Vec<Constant>)],
) -> (Option<String>, Vec<Constant>) {
    let shared = |other: &[Constant]| all.iter().filter(|c| other.contains(c)).count();
    let best = earlier.iter().max_by_key(|(_, constants)| shared(constants));
    match best {
        Some((other, constants)) if other != name && shared(constants) * 10 >= all.len() * 7 => {
            let rows = all.into_iter().filter(|c| !constants.contains(c)).collect();
            (Some(other.clone()), rows)
        }
        _ => (None, all),
    }
}

/// Name, title, summary, constants and bibliography of a file.
type FileConstants<'a> = (&'a str, &'a str, &'a str, Vec<Constant>, &'a BTreeMap<String, String>);

/// The constants of each of `files`, where they are not those of an earlier one.
fn listed<'a>(files: impl Iterator<Item = FileConstants<'a>>) -> Vec<ConstantsView> {
    let mut earlier: Vec<(String, Vec<Constant>)> = Vec::new();
    let view = |(name, title, summary, all, sources): FileConstants<'_>| {
        let (like, rows) = shortened(name, all.clone(), &earlier);
        if like.is_none() {
            earlier.push((name.to_owned(), all));
        }
        let (name, title, summary) = (name.to_owned(), title.to_owned(), summary.to_owned());
        ConstantsView { name, title, summary, sources: cited(&rows, sources), like, rows }
    };
    files.map(view).collect()
}

fn machines(of: &Reproduction) -> Vec<ConstantsView> {
    listed(of.machines.iter().map(|m| {
        let config = &m.config;
        (&*m.name, &*config.title, &*config.description, m.constants(), &config.sources)
    }))
}

fn kernels(of: &Reproduction) -> Vec<ConstantsView> {
    listed(of.kernels.iter().map(|k| {
        let file = &k.file;
        (&*k.name, &*file.title, &*file.summary, k.constants(), &file.sources)
    }))
}

/// The entries of the bibliography that `rows` cite.
fn cited(rows: &[Constant], sources: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_cited =
        |key: &str| rows.iter().any(|c| c.source.split(&[',', ':', ';'][..]).any(|s| s.trim() == key));
    sources.iter().filter(|(key, _)| is_cited(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn hosts(of: &Reproduction) -> Vec<HostView> {
    let rate = |per_s: f64| if per_s > 0.0 { format!("{:.1}", per_s / 1e6) } else { String::new() };
    let host = |run: &RunResult| HostView {
        run: run.record.title(),
        wall: format!("{:.2}", run.host.wall_ms / 1e3),
        rates: [
            run.host.lines_streamed_per_s,
            run.host.dependent_accesses_per_s,
            run.host.instructions_charged_per_s,
        ]
        .map(rate),
    };
    of.runs.iter().map(host).collect()
}
