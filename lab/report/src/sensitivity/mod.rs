//! How far results hang on constants, as tables and as a figure.
//!
//! Nothing here can fail.

mod tornado;

pub use tornado::{tornado, tornado_csv};

use super::csv::table;
use pageferry_lab::sensitivity::{CrossoverRange, Effect, Knob, Sensitivity};

/// Every value that moved, a row for each.
pub fn effects_csv(of: &Sensitivity) -> String {
    let head = [
        "constant",
        "kind",
        "files",
        "direction",
        "constant_before",
        "constant_after",
        "experiment",
        "machine",
        "watched",
        "id",
        "before",
        "after",
        "value_before",
        "value_after",
        "relative_change",
        "flips",
        "cliff",
    ];
    let row = |e: &Effect| {
        let knob = &of.knobs[e.knob];
        let flips = match e.was {
            Some(true) => "agrees to differs",
            Some(false) => "differs to agrees",
            None => "",
        };
        vec![
            knob.full_key(),
            knob.kind.to_string(),
            knob.files.join(" "),
            if e.up { "up" } else { "down" }.to_owned(),
            knob.value.to_string(),
            e.constant_after.to_string(),
            e.experiment.clone(),
            e.machine.clone(),
            e.watch.name().to_owned(),
            e.name.clone(),
            e.told.0.clone(),
            e.told.1.clone(),
            format!("{:?}", e.value.0),
            format!("{:?}", e.value.1),
            e.change.map(|change| format!("{change:?}")).unwrap_or_default(),
            flips.to_owned(),
            e.cliff.to_string(),
        ]
    };
    table(&head, of.effects.iter().map(row))
}

/// Every crossover and the range in which it moves.
pub fn crossovers_csv(of: &Sensitivity) -> String {
    let head = [
        "experiment",
        "crossover",
        "machine",
        "pays",
        "earliest",
        "earliest_by",
        "latest",
        "latest_by",
        "gain_percent",
        "gain_percent_low",
        "gain_percent_high",
    ];
    let rows = of.crossovers.iter().map(|c| {
        let (base, low, high) = c.gain_percent;
        let gains = [base, low, high].map(|gain| format!("{gain:?}"));
        range_words(of, c).into_iter().chain(gains).collect()
    });
    table(&head, rows)
}

/// A crossover in words: whose it is, from where on it pays, and the earliest and the latest of it, each with the
/// constant that makes it so.
pub fn range_words(of: &Sensitivity, c: &CrossoverRange) -> [String; 8] {
    let by = |knob: Option<usize>| knob.map(|at| of.knobs[at].full_key()).unwrap_or_default();
    let ends = [c.low.0.clone(), by(c.low.1), c.high.0.clone(), by(c.high.1)];
    let [earliest, earliest_by, latest, latest_by] = ends;
    let [experiment, name, machine, base] = [&c.experiment, &c.name, &c.machine, &c.base].map(String::clone);
    [experiment, name, machine, base, earliest, earliest_by, latest, latest_by]
}

/// The key of a constant, and whose it is where few have it.
pub fn title(knob: &Knob) -> String {
    match knob.files.as_slice() {
        [] => knob.full_key(),
        [one] => format!("{} of {one}", knob.full_key()),
        [one, other] => format!("{} of {one}, {other}", knob.full_key()),
        [one, rest @ ..] => format!("{} of {one} and {} more", knob.full_key(), rest.len()),
    }
}
