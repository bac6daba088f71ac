//! The constants in the order in which they matter, and the range of every crossover.
//!
//! First by how many statements change their verdict, then by the largest relative change of a published value.
//! Nothing here can fail.

use super::effect::{Effect, Flip};
use super::knobs::Knob;
use super::watched::{Value, Watch};
use pageferry_sourced::SourceKind;
use std::collections::{BTreeMap, BTreeSet};

/// How many constants tables and figures have.
pub const MAX_RANKED: usize = 10;

/// What one constant does in one direction.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Turn {
    pub(super) effects: Vec<Effect>,
    pub(super) flips: Vec<Flip>,
    pub(super) refused: Vec<String>,
}

/// A constant that moves something.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranked {
    /// Its place in the list of constants.
    pub knob: usize,
    /// Statements that change their verdict.
    pub flips: Vec<Flip>,
    /// What moves most: up, and down where that moves the same value. The first is the larger change.
    pub largest: Option<Effect>,
    /// The same value when the constant goes the other way.
    pub other: Option<Effect>,
    /// Gains that stand on a cliff, where the constant is assumed.
    pub cliffs: Vec<Effect>,
}

/// From where on a mechanism pays with every constant turned.
#[derive(Clone, PartialEq, Debug)]
pub struct CrossoverRange {
    /// The experiment.
    pub experiment: String,
    /// The mechanism and what it is held against.
    pub name: String,
    /// The machine.
    pub machine: String,
    /// As it is: `always`, `never`, or a value.
    pub base: String,
    /// The earliest, and the constant that makes it so.
    pub low: (String, Option<usize>),
    /// The latest.
    pub high: (String, Option<usize>),
    /// The gain at the largest value in percent: as it is, the least and the most.
    pub gain_percent: (f64, f64, f64),
}

/// How far results hang on constants.
#[derive(Clone, PartialEq, Debug)]
pub struct Sensitivity {
    /// The constants that were turned.
    pub knobs: Vec<Knob>,
    /// By which share of their values.
    pub share: f64,
    /// All values that moved, by constant, the way up first.
    pub effects: Vec<Effect>,
    /// The constants that move something, in the order in which they matter.
    pub ranked: Vec<Ranked>,
    /// All crossovers.
    pub crossovers: Vec<CrossoverRange>,
    /// Changed constants with which runs were refused, and why.
    pub refused: Vec<String>,
    /// Constants that their range held back, and whether upwards.
    pub clamped: Vec<(usize, bool)>,
    /// Words and flags, which were left out.
    pub words: usize,
}

impl Sensitivity {
    pub(super) fn new(
        knobs: Vec<Knob>,
        share: f64,
        turns: BTreeMap<(usize, bool), Turn>,
        values: Vec<Value>,
        words: usize,
        clamped: BTreeSet<(usize, bool)>,
    ) -> Sensitivity {
        let effects: Vec<Effect> = (0..knobs.len())
            .flat_map(|at| [true, false].map(|up| turns.get(&(at, up))))
            .flatten()
            .flat_map(|turn| turn.effects.clone())
            .collect();
        let mut ranked: Vec<Ranked> = (0..knobs.len())
            .filter_map(|at| {
                let own: Vec<&Effect> = effects.iter().filter(|e| e.knob == at).collect();
                let flips = [true, false].into_iter().filter_map(|up| turns.get(&(at, up)));
                let flips = flips.flat_map(|turn| turn.flips.clone()).collect();
                (!own.is_empty()).then(|| one(at, &own, flips, knobs[at].kind))
            })
            .collect();
        ranked.sort_by(|a, b| {
            let size = |r: &Ranked| r.largest.as_ref().map_or(0.0, size);
            b.flips.len().cmp(&a.flips.len()).then(size(b).total_cmp(&size(a)))
        });
        let crossovers = values.iter().filter(|v| v.watch == Watch::Crossover);
        let crossovers = crossovers.map(|value| range(value, &effects)).collect();
        let refused = turns.into_values().flat_map(|turn| turn.refused).collect();
        let clamped = clamped.into_iter().collect();
        Sensitivity { knobs, share, effects, ranked, crossovers, refused, clamped, words }
    }

    /// The assumed constants on which a gain stands as on a cliff, each with those gains.
    pub fn cliffs(&self) -> impl Iterator<Item = (&Knob, &[Effect])> {
        let all = self.ranked.iter().filter(|ranked| !ranked.cliffs.is_empty());
        all.map(|ranked| (&self.knobs[ranked.knob], ranked.cliffs.as_slice()))
    }
}

fn size(effect: &Effect) -> f64 {
    effect.change.map_or(0.0, f64::abs)
}

fn one(knob: usize, own: &[&Effect], flips: Vec<Flip>, kind: SourceKind) -> Ranked {
    // Gains that no paper has count where nothing else moves.
    let rank = |e: &Effect| (e.watch != Watch::Gain, size(e));
    let by_rank = |a: &&&Effect, b: &&&Effect| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    };
    let largest = own.iter().max_by(by_rank).map(|e| (*e).clone());
    let same = |e: &&&Effect, l: &Effect| {
        (&e.name, &e.experiment, &e.machine, e.watch) == (&l.name, &l.experiment, &l.machine, l.watch)
            && e.value.0 == l.value.0
            && e.up != l.up
    };
    let other = largest.as_ref().and_then(|l| own.iter().find(|e| same(e, l)).map(|e| (*e).clone()));
    let cliffs = own.iter().filter(|e| e.cliff && kind == SourceKind::Assumed);
    let cliffs = cliffs.map(|e| (*e).clone()).collect();
    Ranked { knob, flips, largest, other, cliffs }
}

/// `always` before every value, `never` behind them.
fn place(told: &str) -> f64 {
    match told {
        "always" => f64::NEG_INFINITY,
        "never" => f64::INFINITY,
        value => value.parse().unwrap_or(f64::NAN),
    }
}

fn range(value: &Value, effects: &[Effect]) -> CrossoverRange {
    let own = effects.iter().filter(|e| {
        e.watch == Watch::Crossover
            && (&e.name, &e.experiment, &e.machine) == (&value.name, &value.experiment, &value.machine)
            && e.value.0 == value.value
    });
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let base = percent(value.value);
    let mut found = CrossoverRange {
        experiment: value.experiment.clone(),
        name: value.name.clone(),
        machine: value.machine.clone(),
        base: value.told.clone(),
        low: (value.told.clone(), None),
        high: (value.told.clone(), None),
        gain_percent: (base, base, base),
    };
    for effect in own {
        let (told, gain) = (&effect.told.1, percent(effect.value.1));
        if place(told) < place(&found.low.0) {
            found.low = (told.clone(), Some(effect.knob));
        }
        if place(told) > place(&found.high.0) {
            found.high = (told.clone(), Some(effect.knob));
        }
        found.gain_percent.1 = found.gain_percent.1.min(gain);
        found.gain_percent.2 = found.gain_percent.2.max(gain);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::knobs::Part;
    use super::*;

    fn effect(knob: usize, up: bool, watch: Watch, change: f64, told: &str) -> Effect {
        Effect {
            knob,
            up,
            constant_after: 2,
            watch,
            name: "a".into(),
            experiment: "e".into(),
            machine: "m".into(),
            told: ("8192".into(), told.into()),
            value: (2.0, 2.0 * (1.0 + change)),
            change: Some(change),
            was: None,
            cliff: change.abs() > 0.4,
        }
    }

    fn knob(kind: SourceKind) -> Knob {
        let (key, files, range) = ("cpu.x".to_owned(), vec!["m".to_owned()], (0, 9));
        Knob { part: Part::Machine, key, value: 1, kind, files, range }
    }

    fn ranked(of: Vec<(usize, bool, Turn)>) -> Sensitivity {
        let knobs = vec![knob(SourceKind::Paper), knob(SourceKind::Assumed), knob(SourceKind::Datasheet)];
        let value = Value {
            watch: Watch::Crossover,
            id: String::new(),
            name: "a".into(),
            experiment: "e".into(),
            machine: "m".into(),
            told: "8192".into(),
            value: 2.0,
            gain_percent: None,
            agrees: None,
        };
        let turns = of.into_iter().map(|(knob, up, turn)| ((knob, up), turn)).collect();
        Sensitivity::new(knobs, 0.2, turns, vec![value], 0, BTreeSet::new())
    }

    #[test]
    fn verdicts_count_before_changes_and_cliffs_are_of_assumed_constants() {
        let of = |effects: Vec<Effect>, flips| Turn { effects, flips, refused: Vec::new() };
        let flip = Flip { published: "a".into(), up: false, agrees: false };
        let all = ranked(vec![
            (0, true, of(vec![effect(0, true, Watch::Published, 0.5, "")], vec![])),
            (1, true, of(vec![effect(1, true, Watch::Published, -0.9, "")], vec![])),
            (1, false, of(vec![effect(1, false, Watch::Published, 0.1, "")], vec![])),
            (2, false, of(vec![effect(2, false, Watch::Published, 0.01, "")], vec![flip])),
        ]);
        assert_eq!(all.ranked.iter().map(|r| r.knob).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(all.ranked[1].other.as_ref().and_then(|e| e.change), Some(0.1));
        assert_eq!(
            all.cliffs().map(|(knob, of)| (knob.kind, of.len())).collect::<Vec<_>>(),
            [(SourceKind::Assumed, 1)]
        );
    }

    #[test]
    fn a_crossover_ranges_from_the_earliest_to_the_latest() {
        let of = |knob, told| {
            let effects = vec![effect(knob, true, Watch::Crossover, 0.1, told)];
            (knob, true, Turn { effects, ..Turn::default() })
        };
        let all = ranked(vec![of(0, "4096"), of(1, "never"), of(2, "16384")]);
        let range = &all.crossovers[0];
        assert_eq!(
            (range.low.clone(), range.high.clone()),
            (("4096".into(), Some(0)), ("never".into(), Some(1)))
        );
    }
}
