//! What a study of constants says in the terminal.

use crate::terminal::{self, table};
use pageferry_lab::sensitivity::{CrossoverRange, Effect, MAX_RANKED, Ranked, Sensitivity};
use pageferry_lab::text;
use pageferry_report::sensitivity::{range_words, title};

/// Lines of what was refused.
const MAX_REFUSED: usize = 5;

pub(super) fn shown(of: &Sensitivity) -> String {
    let style = terminal::stdout();
    let by = text::number(100.0 * of.share);
    let mut out = String::new();
    if of.ranked.is_empty() {
        out += &format!("Nothing moves when one of {} constants changes by {by} %.\n", of.knobs.len());
    } else {
        let count = of.ranked.len();
        let first = MAX_RANKED.min(count);
        let heading =
            format!("What changes by {by} % do: {first} of the {count} constants that move something");
        let rows: Vec<_> = of.ranked.iter().take(MAX_RANKED).map(|ranked| row(of, ranked)).collect();
        let head = ["constant", "kind", ">value", ">verdicts", ">largest change", "of"];
        out += &format!("{}\n{}\n", style.strong(&heading), table(&head, &rows));
    }
    out += &flips(of);
    out += &crossovers(of);
    out += &cliffs(of);
    out += &told(of);
    out
}

fn percent(change: Option<f64>) -> String {
    change.map_or_else(|| "from 0".to_owned(), |change| format!("{:+.1} %", 100.0 * change))
}

fn place(e: &Effect) -> String {
    format!("{}: {} on {} ({} to {})", e.experiment, e.name, e.machine, e.told.0, e.told.1)
}

fn row(of: &Sensitivity, ranked: &Ranked) -> Vec<String> {
    let knob = &of.knobs[ranked.knob];
    let (change, what) = match &ranked.largest {
        Some(e) => (format!("{} {}", if e.up { "up" } else { "down" }, percent(e.change)), place(e)),
        None => (String::new(), String::new()),
    };
    vec![
        title(knob),
        knob.kind.to_string(),
        text::grouped(knob.value),
        ranked.flips.len().to_string(),
        change,
        what,
    ]
}

/// Which verdicts change.
fn flips(of: &Sensitivity) -> String {
    let rows: Vec<_> = (of.ranked.iter())
        .flat_map(|ranked| ranked.flips.iter().map(move |flip| (ranked, flip)))
        .map(|(ranked, flip)| {
            let direction = if flip.up { "up" } else { "down" };
            let verdict = if flip.agrees { "agrees now" } else { "differs now" };
            vec![title(&of.knobs[ranked.knob]), direction.into(), flip.published.clone(), verdict.into()]
        })
        .collect();
    if rows.is_empty() {
        return "No statement changes its verdict.\n\n".to_owned();
    }
    let heading = terminal::stdout().strong("Statements that change their verdict");
    format!("{heading}\n{}\n", table(&["constant", "", "statement", ""], &rows))
}

/// The range of each crossover.
fn crossovers(of: &Sensitivity) -> String {
    if of.crossovers.is_empty() {
        return String::new();
    }
    let row = |c: &CrossoverRange| {
        let (base, low, high) = c.gain_percent;
        let gain = format!("{base:+.0} % ({low:+.0} to {high:+.0})");
        range_words(of, c).into_iter().chain([gain]).collect()
    };
    let rows: Vec<Vec<String>> = of.crossovers.iter().map(row).collect();
    let heading =
        terminal::stdout().strong("From where on each mechanism pays, and the range in which that moves");
    let head = [
        "experiment",
        "mechanism",
        "machine",
        ">pays",
        ">earliest",
        "by",
        ">latest",
        "by",
        "gain at the end",
    ];
    format!("{heading}\n{}\n", table(&head, &rows))
}

/// Assumed constants that a gain hangs on.
fn cliffs(of: &Sensitivity) -> String {
    let style = terminal::stdout();
    let mut out = String::new();
    for (knob, effects) in of.cliffs() {
        out += &format!("{}\n", style.strong_red(&format!("stands on a cliff: {}", knob.full_key())));
        for e in effects {
            let gain = |value: f64| match e.watch {
                pageferry_lab::sensitivity::Watch::Crossover => (value - 1.0) * 100.0,
                _ => value,
            };
            let (before, after) = (gain(e.value.0), gain(e.value.1));
            out += &format!(
                "  {} on {}: {}, {before:+.0} % to {after:+.0} % with {} in place of {} (assumed)\n",
                e.experiment,
                e.machine,
                e.name,
                text::grouped(e.constant_after),
                text::grouped(knob.value)
            );
        }
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// What was left out, and what was refused.
fn told(of: &Sensitivity) -> String {
    let mut out = String::new();
    for (at, up) in &of.clamped {
        let (end, to) = if *up { ("most", of.knobs[*at].range.1) } else { ("least", of.knobs[*at].range.0) };
        out += &format!("{} goes no farther than {to}, the {end} that is allowed.\n", title(&of.knobs[*at]));
    }
    for refused in of.refused.iter().take(MAX_REFUSED) {
        out += &format!("Refused, and left out: {refused}\n");
    }
    if let Some(more @ 1..) = of.refused.len().checked_sub(MAX_REFUSED) {
        out += &format!("... and {more} more.\n");
    }
    let (constants, words) = (of.knobs.len(), of.words);
    out + &format!("{constants} constants were changed; {words} words and flags were left out.\n")
}
