//! How far results hang on constants, as tables and as a figure.
//!
//! Nothing here can fail.

mod tornado;

pub use tornado::{tornado, tornado_csv};

use super::csv::table;
use pageferry_lab::sensitivity::{Effect, Knob, Sensitivity};

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
    let by = |knob: Option<usize>| knob.map(|at| of.knobs[at].full_key()).unwrap_or_default();
    let rows = of.crossovers.iter().map(|c| {
        vec![
            c.experiment.clone(),
            c.name.clone(),
            c.machine.clone(),
            c.base.clone(),
            c.low.0.clone(),
            by(c.low.1),
            c.high.0.clone(),
            by(c.high.1),
            format!("{:?}", c.gain_percent.0),
            format!("{:?}", c.gain_percent.1),
            format!("{:?}", c.gain_percent.2),
        ]
    });
    table(&head, rows)
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
