//! The page of a paper: what comes out of it and what does not, its tables, and its experiments.

use super::super::answer;
use super::super::differences::{Difference, differences};
use super::super::figure::Figure;
use super::super::papers::Judgement;
use super::super::schemes::{SchemeRow, scheme_rows};
use super::super::then_now::{ChosenRow, MappingRow, chosen_rows, mapping_rows};
use super::experiment::{ExperimentView, experiments};
use pageferry_lab::files::{Paper, Published};
use pageferry_lab::judge::{Reproduction, Standing, Statement};
use serde::Serialize;

/// What the template is given.
#[derive(Serialize)]
pub(super) struct PaperView<'a> {
    short: &'a str,
    title: &'a str,
    authors: &'a str,
    venue: &'a str,
    answer: Option<&'a Figure>,
    differences: Vec<Difference>,
    groups: Vec<StatementGroup>,
    unjudged: Vec<Unjudged<'a>>,
    mappings: Vec<MappingRow>,
    schemes: Vec<SchemeRow>,
    chosen: Vec<ChosenRow>,
    experiments: Vec<ExperimentView<'a>>,
}

/// A released result that nothing is held against by itself, and why.
#[derive(Serialize)]
struct Unjudged<'a> {
    what: &'a str,
    section: &'a str,
    theirs: String,
    why: String,
}

/// Published statements of one standing.
#[derive(Serialize)]
struct StatementGroup {
    id: &'static str,
    title: &'static str,
    agree: usize,
    statements: Vec<Statement>,
}

pub(super) fn view<'a>(of: &'a Reproduction, j: &Judgement<'a>, figures: &'a [Figure]) -> PaperView<'a> {
    let here = || of.experiments.iter().filter(|e| e.file.paper_name() == j.name);
    let title_is_here = |title: &str| here().any(|e| e.file.title == title);
    let mut differences = differences(of);
    differences.retain(|d| j.statements.iter().any(|s| s.published == d.published));
    let mut mappings = mapping_rows(of);
    mappings.retain(|row| title_is_here(&row.experiment));
    let mut chosen = chosen_rows(of);
    chosen.retain(|row| title_is_here(&row.experiment));
    let mut schemes = scheme_rows(of);
    schemes.retain(|row| here().any(|e| e.name == row.experiment));
    PaperView {
        short: &j.paper.short,
        title: &j.paper.title,
        authors: &j.paper.authors,
        venue: &j.paper.venue,
        answer: figures.iter().find(|f| f.id == answer::id(j.name)),
        differences,
        groups: groups(&j.statements),
        unjudged: unjudged(j.paper),
        mappings,
        schemes,
        chosen,
        experiments: experiments(of, j.name, figures),
    }
}

fn unjudged(paper: &Paper) -> Vec<Unjudged<'_>> {
    let why = |number: &Published| match (&number.not_judged, &number.restates) {
        (Some(why), _) => Some(why.clone()),
        (None, Some(other)) => {
            let other = paper.number(other)?;
            Some(format!("as is judged for: {} ({})", other.metric, other.section))
        }
        (None, None) => None,
    };
    let row = |number| Some((number, why(number)?));
    let found = paper.numbers.iter().filter_map(row);
    found
        .map(|(number, why)| Unjudged {
            what: &number.metric,
            section: &number.section,
            theirs: number.shown(),
            why,
        })
        .collect()
}

fn groups(all: &[Statement]) -> Vec<StatementGroup> {
    let group = |id, title, standing, in_numbers| {
        let meant = |s: &&Statement| s.standing == standing && s.in_numbers == in_numbers;
        let statements: Vec<_> = all.iter().filter(meant).cloned().collect();
        StatementGroup { id, title, agree: statements.iter().filter(|s| s.agrees).count(), statements }
    };
    let groups = vec![
        group("predicted-numbers", "Predicted numbers", Standing::Predicted, true),
        group("predicted-tendencies", "Predicted tendencies", Standing::Predicted, false),
        group(
            "calibrated-numbers",
            "Calibrated: a constant was fitted to the number",
            Standing::Calibrated,
            true,
        ),
        group("given-numbers", "Given: the number is a constant of the model", Standing::Given, true),
        group("check-numbers", "Checks of the model: numbers it can only give", Standing::Construction, true),
        group("check-words", "Checks of the model: it can give nothing else", Standing::Construction, false),
    ];
    groups.into_iter().filter(|g| !g.statements.is_empty()).collect()
}
