//! What a change of one constant does to what is watched.
//!
//! Nothing here can fail: what is there on one side only, because a run was refused, is left out.

use super::watched::{Value, Watch};

/// A watched value that moved.
#[derive(Clone, PartialEq, Debug)]
pub struct Effect {
    /// The constant, by its place in the list.
    pub knob: usize,
    /// Whether the constant went up.
    pub up: bool,
    /// What the constant became.
    pub constant_after: i64,
    /// What kind of value moved.
    pub watch: Watch,
    /// The published id, or the crossover.
    pub name: String,
    /// The experiment.
    pub experiment: String,
    /// The machine.
    pub machine: String,
    /// As tables have it: of a crossover from where on.
    pub told: (String, String),
    /// The value before and after: of a crossover the gain at its largest size.
    pub value: (f64, f64),
    /// By which share of itself it moved; none where it was 0.
    pub change: Option<f64>,
    /// The verdict before, where it is another afterwards; of a crossover whether it moved is in `told`.
    pub was: Option<bool>,
    /// Whether a gain became more than 1.5 times as large or as small.
    pub cliff: bool,
}

/// A published statement that changes its verdict.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Flip {
    /// The published id.
    pub published: String,
    /// Whether the constant went up.
    pub up: bool,
    /// Whether it agrees now.
    pub agrees: bool,
}

/// A gain that one constant changes by more than this factor stands on a cliff.
const CLIFF: f64 = 1.5;
/// Gains below this are nothing to stand on, in percent.
const MIN_GAIN_PERCENT: f64 = 5.0;

/// Values that differ by less than this share differ by how they were rounded.
const ROUNDING: f64 = 1e-9;

/// The values that differ; `turned` is the constant, its direction and its value.
pub(super) fn effects(before: &[Value], after: &[Value], turned: (usize, bool, i64)) -> Vec<Effect> {
    let (knob, up, constant_after) = turned;
    let pair = |old: &Value| Some((old.clone(), after.iter().find(|new| new.id == old.id)?.clone()));
    let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING * a.abs().max(b.abs());
    let moved = |(old, new): &(Value, Value)| {
        !near(old.value, new.value) || old.told != new.told || old.agrees != new.agrees
    };
    let one = |(old, new): (Value, Value)| Effect {
        knob,
        up,
        constant_after,
        watch: old.watch,
        change: (old.value != 0.0).then(|| new.value / old.value - 1.0),
        was: old.agrees.filter(|_| old.agrees != new.agrees),
        cliff: old.gain_percent.zip(new.gain_percent).is_some_and(|(a, b)| is_cliff(a, b)),
        value: (old.value, new.value),
        told: (old.told, new.told),
        name: old.name,
        experiment: old.experiment,
        machine: old.machine,
    };
    before.iter().filter_map(pair).filter(moved).map(one).collect()
}

/// Whether a gain that goes from `a` to `b` percent falls or rises by more than the factor.
fn is_cliff(a: f64, b: f64) -> bool {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    high.abs().max(low.abs()) >= MIN_GAIN_PERCENT
        && if high > 0.0 { low <= 0.0 || high / low > CLIFF } else { low / high > CLIFF }
}

/// The statements whose verdict differs: one agrees where all of its values do.
pub(super) fn flips(before: &[&Value], after: &[&Value], up: bool) -> Vec<Flip> {
    let verdict = |all: &[&Value], name: &str| {
        let mut of = all.iter().filter(|v| v.watch == Watch::Published && v.name == name).peekable();
        of.peek()?;
        Some(of.all(|v| v.agrees == Some(true)))
    };
    let mut names: Vec<&str> =
        before.iter().filter(|v| v.agrees.is_some()).map(|v| v.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let flip = |name: &str| {
        let (was, agrees) = (verdict(before, name)?, verdict(after, name)?);
        (was != agrees).then(|| Flip { published: name.to_owned(), up, agrees })
    };
    names.into_iter().filter_map(flip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cliff_is_a_gain_that_moves_by_half_of_itself() {
        assert!(
            is_cliff(226.0, 54.0) && is_cliff(10.0, 15.1) && is_cliff(20.0, -1.0) && is_cliff(-10.0, -20.0)
        );
        assert!(!is_cliff(226.0, 200.0) && !is_cliff(10.0, 14.9) && !is_cliff(1.0, 3.0));
    }

    #[test]
    fn a_statement_flips_when_one_of_its_values_does() {
        let value = |name: &str, agrees: bool| Value {
            watch: Watch::Published,
            id: String::new(),
            name: name.into(),
            experiment: String::new(),
            machine: String::new(),
            told: String::new(),
            value: 1.0,
            gain_percent: None,
            agrees: Some(agrees),
        };
        let (yes, no, other) = (value("a", true), value("a", false), value("b", false));
        assert_eq!(
            flips(&[&yes, &yes, &other], &[&yes, &no, &other], true),
            [Flip { published: "a".into(), up: true, agrees: false }]
        );
        assert!(flips(&[&yes, &no], &[&no, &no], true).is_empty());
    }
}
