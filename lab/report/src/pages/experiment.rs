//! An experiment on a page: what it does, its figures, and its parameters with their sources.

use super::super::figure::Figure;
use pageferry_lab::files::{Choice, Experiment, Parameter};
use pageferry_lab::judge::Reproduction;
use serde::Serialize;

/// An experiment with its figures and parameters.
#[derive(Serialize)]
pub(super) struct ExperimentView<'a> {
    name: &'a str,
    title: &'a str,
    summary: &'a str,
    source: String,
    parameters: Vec<ParameterView<'a>>,
    figures: Vec<&'a Figure>,
}

#[derive(Serialize)]
struct ParameterView<'a> {
    name: &'a str,
    value: String,
    unit: &'a str,
    source: &'a str,
}

/// The experiments of a paper, or of none, in order.
pub(super) fn experiments<'a>(
    of: &'a Reproduction,
    paper: &str,
    figures: &'a [Figure],
) -> Vec<ExperimentView<'a>> {
    let here = of.experiments.iter().filter(|e| e.file.paper_name() == paper);
    here.map(|e| experiment(of, e, figures)).collect()
}

fn experiment<'a>(
    of: &'a Reproduction,
    experiment: &'a Experiment,
    figures: &'a [Figure],
) -> ExperimentView<'a> {
    let file = &experiment.file;
    let short = of.papers.get(file.paper_name()).map_or("", |paper| paper.short.as_str());
    let value = |name: &String| {
        let runs = of.records().filter(|r| r.experiment == experiment.name);
        let mut values: Vec<_> = runs.filter_map(|r| r.settings.get(name)).collect();
        values.sort();
        values.dedup();
        values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let parameter = |(name, p): (&'a String, &'a Parameter)| ParameterView {
        name,
        value: value(name),
        unit: &p.unit,
        source: &p.source,
    };
    let choice = |(name, c): (&'a String, &'a Choice)| ParameterView {
        name,
        value: value(name),
        unit: "",
        source: &c.source,
    };
    let source = [short, &file.section].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
    ExperimentView {
        name: &experiment.name,
        title: &file.title,
        summary: &file.summary,
        source: source.join(", "),
        parameters: file.parameters.iter().map(parameter).chain(file.choices.iter().map(choice)).collect(),
        figures: figures.iter().filter(|f| f.experiment == experiment.name).collect(),
    }
}
