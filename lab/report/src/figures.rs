//! The figures: from where on each mechanism pays, what comes out of each paper, what the experiments' workloads draw,
//! curves, and a real host.

use super::answer;
use super::curves;
use super::figure::Figure;
use super::looks::Looks;
use super::papers::by_weight;
use super::{pays, real_host};
use pageferry_lab::judge::Reproduction;
use pageferry_lab::plot::HERE;

/// All figures for which there are numbers: from where on each mechanism pays, what comes out of each paper, then those
/// of the experiments, in order.
pub(super) fn all(of: &Reproduction) -> Vec<Figure> {
    let looks = looks(of);
    let papers = by_weight(of);
    let mut found: Vec<Figure> = pays::figure(of, &papers).into_iter().collect();
    found.extend(answer::figures(&papers));
    for experiment in &of.experiments {
        let plots = of.plots.get(&experiment.name).into_iter().flatten();
        found.extend(plots.map(|plot| Figure::drawn(plot, &experiment.name, &looks)));
        found.extend(curves::figures(of, experiment, &looks));
    }
    // A page of experiments of one's own is about these.
    if of.own().is_empty() {
        found.extend(real_host::figures(&looks));
    }
    distinct(found)
}

/// The looks of everything that figures draw: lines, kernels, and what else has a series.
fn looks(of: &Reproduction) -> Looks {
    let curves = of.experiments.iter().flat_map(|e| &e.file.curves);
    let lines = curves.flat_map(|curves| &curves.lines).map(|line| line.name.as_str());
    let kernels = of.kernels.iter().map(|kernel| kernel.name.as_str());
    let plots = of.experiments.iter().filter_map(|e| of.plots.get(&e.name)).flatten();
    let others = plots.flat_map(|plot| plot.series());
    Looks::of(lines.chain(kernels).chain([HERE]).chain(others))
}

/// `figures` with titles and ids that are there once: experiments of one's own may be called and drawn like others.
fn distinct(mut figures: Vec<Figure>) -> Vec<Figure> {
    for i in 1..figures.len() {
        let (before, rest) = figures.split_at_mut(i);
        let figure = &mut rest[0];
        // It names a file.
        let is_taken = |id: &str| before.iter().any(|other| other.id == id);
        if is_taken(&figure.id) {
            let longer = format!("{}-{}", figure.experiment, figure.id);
            let numbered = (2..).map(|n| format!("{longer}-{n}"));
            figure.id =
                [longer.clone()].into_iter().chain(numbered).find(|id| !is_taken(id)).expect("numbers go on");
        }
        if before.iter().any(|other| other.title == figure.title) {
            figure.title = format!("{} ({})", figure.title, figure.experiment);
        }
    }
    figures
}
