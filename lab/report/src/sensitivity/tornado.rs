//! A tornado: the constants that matter, in order, each with a bar to both sides for what it moves most.
//!
//! Colour and mark tell the kind of source. Bars that are longer than the drawing end at its edge, and say how far they
//! go. Nothing here can fail.

use super::title;
use crate::csv::table;
use crate::figure::Key;
use crate::looks::{Look, Looks};
use crate::pages::figure_style;
use crate::scale::Scale;
use crate::svg::{Anchor, Frame, Svg, Width, standalone, text_pixels};
use pageferry_lab::SourceKind;
use pageferry_lab::sensitivity::{Effect, MAX_RANKED, Ranked, Sensitivity, Watch};
use pageferry_lab::text::number;

/// From the first line of a constant to that of the next.
const ROW_PIXELS: f64 = 74.0;
const TOP_PIXELS: f64 = 42.0;
const BAR_PIXELS: f64 = 9.0;
/// Bars are drawn up to this change, in percent.
const MAX_PERCENT: f64 = 100.0;

/// The figure, as a file of its own.
pub fn tornado(of: &Sensitivity) -> String {
    let rows: Vec<&Ranked> = of.ranked.iter().take(MAX_RANKED).collect();
    let kinds: Vec<SourceKind> = ALL.into_iter().filter(|kind| is_in(of, &rows, *kind)).collect();
    let keys: Vec<Key> = kinds.iter().map(|kind| Key::mark(&look(*kind), &told(*kind))).collect();
    let percent = number(100.0 * of.share);
    let frame = Frame {
        style: &figure_style(),
        title: &format!("Constants changed by {percent} %: the {} that matter most", rows.len()),
        subtitle: "The published value or gain that each moves most, when the constant goes up or down. In order of \
                   the statements that change their verdict, then of the change",
        legend: keys.iter().map(|key| (key.sample.as_str(), key.label.as_str())).collect(),
        page: "",
    };
    standalone(&drawn(of, &rows), &frame)
}

/// What it draws.
pub fn tornado_csv(of: &Sensitivity) -> String {
    let rows = of.ranked.iter().take(MAX_RANKED).flat_map(|ranked| {
        let both = ranked.largest.iter().chain(&ranked.other);
        both.map(|e| {
            let knob = &of.knobs[ranked.knob];
            vec![
                title(knob),
                knob.kind.to_string(),
                ranked.flips.len().to_string(),
                if e.up { "up" } else { "down" }.to_owned(),
                e.experiment.clone(),
                e.machine.clone(),
                e.name.clone(),
                format!("{:?}", percent(e)),
            ]
        })
    });
    let head = ["constant", "kind", "flips", "direction", "experiment", "machine", "id", "change_percent"];
    table(&head, rows.collect::<Vec<_>>().into_iter())
}

const ALL: [SourceKind; 8] = [
    SourceKind::Paper,
    SourceKind::Datasheet,
    SourceKind::Code,
    SourceKind::Measured,
    SourceKind::Calibrated,
    SourceKind::Yours,
    SourceKind::Chosen,
    SourceKind::Assumed,
];

fn is_in(of: &Sensitivity, rows: &[&Ranked], kind: SourceKind) -> bool {
    rows.iter().any(|ranked| of.knobs[ranked.knob].kind == kind)
}

fn told(kind: SourceKind) -> String {
    match kind {
        SourceKind::Assumed => "assumed !".to_owned(),
        other => other.to_string(),
    }
}

/// The first looks that have no meaning of their own; what is assumed looks like what differs from a paper.
fn look(kind: SourceKind) -> Look {
    let at = ALL.iter().position(|other| *other == kind).unwrap_or_default();
    let names: Vec<String> = (0..ALL.len()).map(|n| format!("kind {n}")).collect();
    let look = Looks::of(names.iter().map(String::as_str)).look(&names[at]);
    match kind {
        SourceKind::Assumed => Look { colour: "differs", hollow: false, ..look },
        _ => look,
    }
}

fn percent(e: &Effect) -> f64 {
    100.0 * e.change.unwrap_or(0.0)
}

fn drawn(of: &Sensitivity, rows: &[&Ranked]) -> String {
    let width = Width::Wide.pixels();
    let both = |ranked: &Ranked| ranked.largest.iter().chain(&ranked.other).cloned().collect::<Vec<_>>();
    let all = rows.iter().flat_map(|ranked| both(ranked));
    let max = all.map(|e| percent(&e).abs()).fold(0.0, f64::max).min(MAX_PERCENT);
    // Room for the values beyond the ends of bars.
    let (middle, side) = (width / 2.0, width / 2.0 - text_pixels(13));
    let scale = Scale::new(max, 0.0, side, 4.0);
    let edge = scale.ticks().last().unwrap_or(max);
    let height = TOP_PIXELS + rows.len() as f64 * ROW_PIXELS;
    let mut svg = Svg::new(width);
    svg.text(width - 3.0, 12.0, "axis", Anchor::End, "change of the value (%)");
    for tick in scale.ticks() {
        for sign in if tick == 0.0 { &[1.0][..] } else { &[-1.0, 1.0] } {
            let x = middle + sign * scale.at(tick);
            svg.line((x, TOP_PIXELS - 6.0), (x, height), if tick == 0.0 { "base" } else { "grid" });
            let shown = if tick == 0.0 { "0".to_owned() } else { format!("{:+}", sign * tick) };
            svg.text(x, TOP_PIXELS - 11.0, "tick", Anchor::Middle, &shown);
        }
    }
    for (row, ranked) in rows.iter().enumerate() {
        let (knob, y) = (&of.knobs[ranked.knob], TOP_PIXELS + row as f64 * ROW_PIXELS);
        let mark = if knob.kind == SourceKind::Assumed { " !" } else { "" };
        svg.text(0.0, y + 14.0, "label", Anchor::Start, &format!("{}{mark}", title(knob)));
        if let Some(e) = &ranked.largest {
            svg.text(0.0, y + 30.0, "name", Anchor::Start, &what(ranked, e));
        }
        let mut bars = both(ranked);
        bars.sort_by_key(|e| !e.up);
        for (at, e) in bars.iter().enumerate() {
            let look = look(knob.kind);
            let (value, y) = (percent(e), y + 42.0 + at as f64 * (BAR_PIXELS + 4.0));
            let end = middle + value.signum() * scale.at(value.abs().min(edge));
            let hint = format!("{} {}: {value:+.1} %", knob.full_key(), e.constant_after);
            let from = middle.min(end);
            svg.rect(
                (from, y - BAR_PIXELS / 2.0),
                ((end - middle).abs(), BAR_PIXELS),
                &format!("f-{}", look.colour),
                &hint,
            );
            svg.mark((end, y), 4.2, &look, &hint);
            let arrow = if e.up { "up" } else { "down" };
            let shown = format!("{arrow} {}{} %", if value > 0.0 { "+" } else { "" }, rounded(value));
            let (x, anchor) = if value < 0.0 { (end - 9.0, Anchor::End) } else { (end + 9.0, Anchor::Start) };
            svg.text(x, y + 4.0, "value", anchor, &shown);
        }
    }
    svg.finish(height + 4.0, "the constants that matter most, with bars for what each moves")
}

fn rounded(value: f64) -> String {
    let digits = if value.abs() < 10.0 { 1 } else { 0 };
    number(format!("{value:.digits$}").parse().unwrap_or(value))
}

/// What moves most, in a few words.
fn what(ranked: &Ranked, e: &Effect) -> String {
    let flips = match ranked.flips.len() {
        0 => String::new(),
        1 => "; 1 verdict".to_owned(),
        some => format!("; {some} verdicts"),
    };
    match e.watch {
        Watch::Published => format!("{}{flips}", e.name),
        Watch::Gain | Watch::Crossover => format!("{} {}, {}{flips}", e.experiment, e.name, e.machine),
    }
}
