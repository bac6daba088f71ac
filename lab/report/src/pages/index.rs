//! The index: the answer, how much of each paper comes out, and what belongs to no paper.

use super::super::figure::Figure;
use super::super::papers::Judgement;
use super::super::pays;
use super::experiment::{ExperimentView, experiments};
use pageferry_lab::judge::{Coverage, Finding, Reproduction, Standing};
use serde::Serialize;

/// What the template is given.
#[derive(Serialize)]
pub(super) struct IndexView<'a> {
    quick: bool,
    /// Experiments of one's own: with any, this is no reproduction.
    own: Vec<String>,
    runs: usize,
    broken: Vec<(String, Vec<String>)>,
    /// Of all papers together: how much of what they released is judged.
    covered: Coverage,
    judged: usize,
    /// Predicted numbers: how many agree, and how many there are.
    numbers: (usize, usize),
    /// Predicted tendencies, likewise.
    words: (usize, usize),
    differing: usize,
    /// About how many constants a run depends on, and how many of all were calibrated.
    constants: usize,
    calibrated: usize,
    answer: Option<&'a Figure>,
    papers: Vec<PaperRow<'a>>,
    findings: &'a [Finding],
    not_compared: usize,
    experiments: Vec<ExperimentView<'a>>,
}

/// A paper in a few lines.
#[derive(Serialize)]
struct PaperRow<'a> {
    name: &'a str,
    short: &'a str,
    title: &'a str,
    authors: &'a str,
    venue: &'a str,
    covered: Coverage,
    judged: usize,
    differing: usize,
    experiments: Vec<ExperimentLink<'a>>,
}

#[derive(Serialize)]
struct ExperimentLink<'a> {
    name: &'a str,
    title: &'a str,
}

pub(super) fn view<'a>(
    of: &'a Reproduction,
    papers: &[Judgement<'a>],
    figures: &'a [Figure],
) -> IndexView<'a> {
    let differing = |j: &Judgement<'_>| j.statements.iter().filter(|s| !s.agrees).count();
    let covered = of.covered();
    let row = |j: &Judgement<'a>| PaperRow {
        name: j.name,
        short: &j.paper.short,
        title: &j.paper.title,
        authors: &j.paper.authors,
        venue: &j.paper.venue,
        covered: of.coverage(j.paper),
        judged: of.coverage(j.paper).judged(),
        differing: differing(j),
        experiments: (of.experiments.iter())
            .filter(|e| e.file.paper_name() == j.name)
            .map(|e| ExperimentLink { name: &e.name, title: &e.file.title })
            .collect(),
    };
    IndexView {
        own: of.own(),
        quick: of.quick,
        runs: of.runs.len(),
        broken: of.broken(),
        covered,
        judged: covered.judged(),
        numbers: of.tally(Standing::Predicted, true),
        words: of.tally(Standing::Predicted, false),
        differing: papers.iter().map(differing).sum(),
        constants: of.machines.iter().map(|m| m.constants().len()).max().unwrap_or(0)
            + of.kernels.first().map_or(0, |k| k.constants().len()),
        calibrated: of.calibrated().len(),
        answer: figures.iter().find(|f| f.id == pays::ID),
        papers: papers.iter().map(row).collect(),
        findings: &of.findings,
        not_compared: of.not_compared(),
        experiments: experiments(of, "", figures),
    }
}
