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
        let of = &figure.experiment;
        let ids = [figure.id.clone(), format!("{of}-{}", figure.id)];
        let titles = [figure.title.clone(), format!("{} ({of})", figure.title)];
        // An id names a file.
        figure.id = free_of(ids, |id| before.iter().any(|other| other.id == id));
        figure.title = free_of(titles, |title| before.iter().any(|other| other.title == title));
    }
    figures
}

/// The first of these that is not taken, or else the last with a number behind it.
fn free_of(names: [String; 2], is_taken: impl Fn(&str) -> bool) -> String {
    let last = names[1].clone();
    let numbered = (2..).map(|n| format!("{last}-{n}"));
    names.into_iter().chain(numbered).find(|name| !is_taken(name)).expect("numbers go on")
}

#[cfg(test)]
mod tests {
    use super::free_of;

    #[test]
    fn names_are_free_however_many_want_the_same() {
        let mut taken: Vec<String> = Vec::new();
        for _ in 0..5 {
            let name =
                free_of(["a".to_owned(), "of-a".to_owned()], |name| taken.iter().any(|other| other == name));
            taken.push(name);
        }
        assert_eq!(taken, ["a", "of-a", "of-a-2", "of-a-3", "of-a-4"]);
    }
}
