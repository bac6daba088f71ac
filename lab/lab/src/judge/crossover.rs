//! From which size on, or which value of whatever curves are over, a mechanism pays, and how near a choice made by the
//! kernel comes to the best fixed one.
//!
//! Both are derived from the runs behind an experiment's curves: a line says over which other line it should win, or of
//! which lines it should be as good as the best. Sizes are those that both lines have; nothing is interpolated.

use crate::files::{Better, CurveLine, Curves, Experiment};
use crate::record::{Entry, Record};
use crate::spread::Spread;
use pageferry_costs::{Pays, pays};
use serde::Serialize;

/// The machine that stands for the present, in tables of then and now.
pub const NOW: &str = "today";

/// How near to the best of the fixed choices a choice by the kernel should come.
pub const SHARE_OF_BEST: f64 = 0.95;

/// One mechanism on one machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Crossover {
    /// The experiment.
    pub experiment: String,
    /// The mechanism: a line of its curves.
    pub mechanism: String,
    /// What it is held against: another line.
    pub over: String,
    /// What has to be so for it, where it is not so in general.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_if: Option<String>,
    /// The machine.
    pub machine: String,
    /// What the curves are over.
    pub x: String,
    /// Its unit.
    pub unit: String,
    /// From where on it is faster.
    #[serde(flatten)]
    pub pays: Pays<f64>,
    /// How many times as good it is at the largest size: its metric divided by that of the other, or the other way
    /// round where less is better.
    pub gain_at_largest: f64,
    /// Which value of the metric is better.
    #[serde(skip)]
    pub better: Better,
}

/// A choice by the kernel beside the best fixed choice, at one size.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AutoChoice {
    /// The experiment.
    pub experiment: String,
    /// The line of its curves.
    pub line: String,
    /// The machine.
    pub machine: String,
    /// The size, or whatever the curves are over.
    pub x: f64,
    /// Its unit.
    pub unit: String,
    /// The best of the fixed choices there.
    pub best: String,
    /// How many times as good it is as the best: the metric divided by that of the best, or the other way round where
    /// less is better.
    pub ratio: f64,
    /// What it should be at least.
    pub min_ratio: f64,
    /// Why it is not, where the experiment's file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl AutoChoice {
    /// Whether it comes as near to the best as it should.
    pub fn is_near(&self) -> bool {
        self.ratio >= self.min_ratio
    }
}

/// The points of a line on a machine: by x, in order, with positive values only, from 0 on; of repeats the median.
pub fn points<'a>(
    records: impl Iterator<Item = &'a Record>,
    experiment: &str,
    curves: &Curves,
    machine: &str,
    line: &CurveLine,
) -> Vec<(f64, f64)> {
    let all = spreads(records, experiment, curves, machine, line);
    all.into_iter().map(|(x, spread)| (x, spread.median)).collect()
}

/// As [`points`], with all that the repeats say of each.
pub fn spreads<'a>(
    records: impl Iterator<Item = &'a Record>,
    experiment: &str,
    curves: &Curves,
    machine: &str,
    line: &CurveLine,
) -> Vec<(f64, Spread)> {
    let meant = |r: &&Record| {
        // Settings last: each is written out to be compared.
        (r.experiment == experiment && r.machine == machine)
            && line.kernel.as_ref().is_none_or(|kernel| *kernel == r.kernel)
            && line.set.iter().all(|text| r.has_setting(text))
    };
    let x = |r: &Record| r.settings.get(&curves.x)?.to_string().parse().ok();
    let mut points: Vec<(f64, f64)> = (records.filter(meant))
        .filter_map(|r| Some((x(r)?, r.metric(&curves.metric)?)))
        .filter(|(x, value)| *x >= 0.0 && *value > 0.0)
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let spread = |same: &[(f64, f64)]| {
        let mut values: Vec<f64> = same.iter().map(|point| point.1).collect();
        Some((same[0].0, Spread::of(&mut values)?))
    };
    points.chunk_by(|a, b| a.0 == b.0).filter_map(spread).collect()
}

/// How many times as good one line is as another, where both have a point.
fn ratios(better: Better, ours: &[(f64, f64)], theirs: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let at = |x: f64| theirs.iter().find(|p| p.0 == x).map(|p| p.1);
    ours.iter().filter_map(|&(x, value)| Some((x, better.gain(value, at(x)?)))).collect()
}

/// From which x on all ratios are above 1; none without ratios.
fn above_one(ratios: &[(f64, f64)]) -> Option<Pays<f64>> {
    pays(ratios.iter().map(|&(x, ratio)| (x, ratio > 1.0)))
}

/// A line of a figure, and its points.
type LinePoints<'a> = (&'a CurveLine, Vec<(f64, f64)>);

/// A machine, what curves are over on it, which of their values are better, and their lines.
type MachineLines<'a> = (&'a str, &'a str, Better, Vec<LinePoints<'a>>);

/// The lines of `experiment` on each of `machines`, with their points, and what they are over.
fn lines<'a>(
    experiment: &'a Experiment,
    machines: &'a [String],
    records: &'a [&'a Record],
    dictionary: &'a [Entry],
) -> impl Iterator<Item = MachineLines<'a>> {
    experiment.file.curves.iter().flat_map(move |curves| {
        let unit = dictionary.iter().find(|entry| entry.metric == curves.metric).map(|entry| &*entry.unit);
        let better = curves.better.or(Better::of_unit(unit.unwrap_or(""))).unwrap_or_default();
        machines.iter().map(move |machine| {
            let of = |line| {
                // Between nothing and something nothing is interpolated.
                let all = points(records.iter().copied(), &experiment.name, curves, machine, line);
                all.into_iter().filter(|p| p.0 > 0.0).collect::<Vec<_>>()
            };
            let drawn = curves.lines.iter().map(|line| (line, of(line))).collect();
            (machine.as_str(), curves.x.as_str(), better, drawn)
        })
    })
}

/// Where the mechanisms of `experiment` begin to pay on each of `machines`.
/// `dictionary` has the units of metrics.
pub fn crossovers(
    experiment: &Experiment,
    machines: &[String],
    records: &[&Record],
    dictionary: &[Entry],
) -> Vec<Crossover> {
    let mut found = Vec::new();
    for (machine, x, better, lines) in lines(experiment, machines, records, dictionary) {
        for (line, ours) in &lines {
            let other = line.over.as_ref().and_then(|over| lines.iter().find(|(l, _)| l.name == *over));
            let Some((other, theirs)) = other else { continue };
            let ratios = ratios(better, ours, theirs);
            // One size is no curve.
            let Some(pays) = above_one(&ratios).filter(|_| ratios.len() > 1) else { continue };
            found.push(Crossover {
                experiment: experiment.name.clone(),
                mechanism: line.name.clone(),
                over: other.name.clone(),
                holds_if: line.holds_if.clone(),
                machine: machine.to_owned(),
                x: x.to_owned(),
                unit: experiment.file.unit(x).to_owned(),
                pays,
                gain_at_largest: ratios[ratios.len() - 1].1,
                better,
            });
        }
    }
    found
}

/// The choices by the kernel in `experiment`, beside the best fixed choice at each size.
/// `dictionary` has the units of metrics.
pub fn chosen(
    experiment: &Experiment,
    machines: &[String],
    records: &[&Record],
    dictionary: &[Entry],
) -> Vec<AutoChoice> {
    let mut found = Vec::new();
    for (machine, over, better, lines) in lines(experiment, machines, records, dictionary) {
        for (line, ours) in lines.iter().filter(|(line, _)| !line.best_of.is_empty()) {
            for &(x, value) in ours {
                let fixed = lines.iter().filter(|(l, _)| line.best_of.contains(&l.name));
                let there = fixed.filter_map(|(l, points)| Some((l, points.iter().find(|p| p.0 == x)?.1)));
                // The best is the one that this is the least good beside.
                let gains = there.map(|(l, other)| (l, better.gain(value, other)));
                let Some((best, ratio)) = gains.max_by(|a, b| b.1.total_cmp(&a.1)) else { continue };
                let min_percent = line.min_percent_of_best.map(f64::from);
                let told = line.worse.iter().find(|w| w.machine == machine && w.x as f64 == x);
                found.push(AutoChoice {
                    experiment: experiment.name.clone(),
                    line: line.name.clone(),
                    machine: machine.to_owned(),
                    x,
                    unit: experiment.file.unit(over).to_owned(),
                    best: best.name.clone(),
                    ratio,
                    min_ratio: min_percent.map_or(SHARE_OF_BEST, |percent| percent / 100.0),
                    because: told.map(|w| w.because.clone()),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mechanism_pays_from_where_it_wins_for_good() {
        let at = |values: &[f64]| -> Vec<(f64, f64)> {
            values.iter().enumerate().map(|(n, v)| ((4096 << n) as f64, *v)).collect()
        };
        assert_eq!(above_one(&at(&[])), None);
        assert_eq!(above_one(&at(&[1.1, 1.2])), Some(Pays::Always));
        assert_eq!(above_one(&at(&[1.1, 1.2, 1.0])), Some(Pays::Never));
        // What it wins and loses again does not count.
        assert_eq!(above_one(&at(&[1.1, 0.9, 1.2, 1.3])), Some(Pays::From(16384.0)));
    }
}
