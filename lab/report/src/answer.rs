//! The answer to a reproduction: for each paper, what comes out, what does not, and how far off.
//!
//! Numbers are dots on a logarithmic axis of ours divided by the paper's: 1 is in the middle of the band that counts as
//! agreement, half and double are equally far from it. Statements in words have no ratio; they are marks in a row. What
//! differs is named, and leads to its reason.

use super::data::{self, Table};
use super::differences::anchor;
use super::figure::{Figure, Key, both};
use super::looks::{Look, Mark};
use super::papers::Judgement;
use super::scale::LogScale;
use super::svg::{Anchor, Svg, Width, wrapped};
use pageferry_lab::judge::{Comparison, Standing, Statement, TOLERANCE};
use pageferry_lab::plot::Axis;

const AGREES: Look = Look { colour: "agrees", mark: Mark::Circle, hollow: false, dash: "" };
const DIFFERS: Look = Look { colour: "differs", mark: Mark::Cross, hollow: false, dash: "" };

const STANDINGS: [(Standing, &str); 4] = [
    (Standing::Predicted, "Predicted"),
    (Standing::Calibrated, "Calibrated (a constant was fitted)"),
    (Standing::Given, "Given (a constant of the model)"),
    (Standing::Construction, "Checks of the model (it can give nothing else)"),
];

/// One figure for each paper that something is compared with, by weight.
pub(super) fn figures(papers: &[Judgement<'_>]) -> Vec<Figure> {
    papers.iter().filter(|of| !of.statements.is_empty()).map(figure).collect()
}

/// The name of the figure of a paper.
pub(super) fn id(paper: &str) -> String {
    format!("answer-{paper}")
}

fn figure(of: &Judgement<'_>) -> Figure {
    let all = &of.statements;
    let title = match of.in_words() {
        none if none.is_empty() => format!("{}: nothing of it is predicted", of.paper.short),
        predicted => format!("{}: {predicted} come out", of.paper.short),
    };
    let (wide, narrow) = both(|width| chart(width, all, &title));
    let mut legend = vec![
        Key::mark(&AGREES, "agrees"),
        Key::mark(&DIFFERS, "differs: its name leads to the reason"),
        Key::band("within 10 % of the published number"),
    ];
    let numbers = all.iter().filter(|s| s.in_numbers).flat_map(|s| &s.rows);
    let repeated = numbers.filter(|c| interval(c).is_some()).filter_map(|c| c.repeats.as_ref());
    if let Some(fewest) = repeated.map(|repeats| repeats.spread.repeats).min() {
        legend.push(Key::interval(fewest));
    }
    Figure {
        id: id(of.name),
        experiment: of.name.to_owned(),
        title,
        subtitle: "Numbers: here divided by the published one; words: a mark for each statement".into(),
        wide,
        narrow,
        legend,
        note: "Only predictions say that the model is right: calibrated numbers were fitted, given ones were told to \
               it. A range that holds our number is a ratio of 1."
            .into(),
        table: table(all),
        data: data::of_statements(all),
    }
}

fn table(all: &[Statement]) -> Table {
    let head = ["what", "test", "machine", "here", "published", "ratio"].map(String::from).to_vec();
    let row = |c: &Comparison| {
        let ratio = c.ratio_told().unwrap_or_default();
        vec![
            c.what.clone(),
            c.test().unwrap_or_default(),
            c.machine.clone(),
            c.ours_told(),
            c.theirs.clone(),
            ratio,
        ]
    };
    Table { head, rows: all.iter().flat_map(|s| &s.rows).map(row).collect() }
}

const AXIS_PIXELS: f64 = 44.0;
const LINE_PIXELS: f64 = 16.0;
/// Between marks of statements in words.
const STEP_PIXELS: f64 = 18.0;

/// Where things are, for a width.
struct Layout {
    width: Width,
    /// The room for names, at the left.
    names: f64,
    /// The plot, from and to.
    plot: (f64, f64),
    /// Where the values are written.
    values: f64,
}

impl Layout {
    fn of(width: Width) -> Layout {
        match width {
            Width::Wide => Layout { width, names: 315.0, plot: (325.0, 515.0), values: 530.0 },
            Width::Narrow => Layout { width, names: 326.0, plot: (12.0, 126.0), values: 138.0 },
        }
    }

    /// The name of a number, in lines.
    fn name(&self, c: &Comparison) -> Vec<String> {
        wrapped(&c.what, self.names - 12.0)
    }

    /// Where a number was found and where it was published, in lines.
    fn place(&self, c: &Comparison) -> Vec<String> {
        wrapped(&place(c), self.names - 12.0)
    }

    /// The height of the row of a number: its name and where it was run, and on narrow pages the plot below.
    fn row(&self, c: &Comparison) -> f64 {
        let text = LINE_PIXELS * (self.name(c).len() + self.place(c).len()) as f64;
        match self.width {
            Width::Wide => text + 6.0,
            Width::Narrow => text + 42.0,
        }
    }
}

fn place(c: &Comparison) -> String {
    let under = c.under.as_ref().map_or_else(String::new, |under| format!(", {under}"));
    format!("{}, {}{under}; {}", c.experiment, c.machine, c.source)
}

fn chart(width: Width, all: &[Statement], label: &str) -> String {
    let layout = Layout::of(width);
    let mut svg = Svg::new(width.pixels());
    let numbers: Vec<&Statement> = all.iter().filter(|s| s.in_numbers).collect();
    let words: Vec<&Statement> =
        all.iter().filter(|s| !s.in_numbers && s.standing == Standing::Predicted).collect();
    let mut y = 0.0;
    if !numbers.is_empty() {
        y = draw_numbers(&mut svg, &layout, &numbers);
    }
    if !words.is_empty() {
        y = draw_words(&mut svg, &layout, &words, y);
    }
    svg.finish(y + 6.0, label)
}

/// A scale around 1 for all `ratios`; what is beyond eight times is drawn at the edge.
fn scale(ratios: impl Iterator<Item = f64>, plot: (f64, f64)) -> LogScale {
    let range = ratios.map(within).fold((0.75, 1.0 / 0.75), |(min, max), r| (r.min(min), r.max(max)));
    // As far down as up: equal factors are equally far from the middle.
    let far = range.1.max(1.0 / range.0);
    LogScale::new((1.0 / far, far), plot.0, plot.1 - plot.0)
}

/// The ratio, or the edge that it is beyond.
fn within(ratio: f64) -> f64 {
    const FAR: f64 = 8.0;
    ratio.clamp(1.0 / FAR, FAR)
}

/// All numbers by standing. Where they end is returned.
fn draw_numbers(svg: &mut Svg, layout: &Layout, numbers: &[&Statement]) -> f64 {
    let all = || numbers.iter().flat_map(|s| &s.rows);
    let ends = all().filter_map(interval).flat_map(|(low, high)| [low, high]);
    let scale = scale(all().filter_map(|c| c.ratio).chain(ends), layout.plot);
    let groups = STANDINGS.map(|(standing, title)| {
        let rows: Vec<_> = numbers.iter().copied().filter(|s| s.standing == standing).collect();
        (title, rows)
    });
    let rows = |s: &&Statement| s.rows.iter().map(|c| layout.row(c)).sum::<f64>();
    let heights = groups.iter().filter(|g| !g.1.is_empty()).map(|g| 30.0 + g.1.iter().map(rows).sum::<f64>());
    let bottom = AXIS_PIXELS + heights.sum::<f64>();
    draw_axis(svg, layout, &scale);
    if layout.width == Width::Wide {
        draw_grid(svg, layout, &scale, (AXIS_PIXELS - 4.0, bottom));
    }
    let mut y = AXIS_PIXELS;
    for (title, statements) in groups.iter().filter(|g| !g.1.is_empty()) {
        svg.text(0.0, y + 22.0, "label", Anchor::Start, title);
        y += 30.0;
        for (s, c) in statements.iter().flat_map(|s| s.rows.iter().map(move |c| (s, c))) {
            draw_number(svg, layout, &scale, s, c, y);
            y += layout.row(c);
        }
    }
    bottom
}

/// The ticks of a scale that have room.
fn ticks(layout: &Layout, scale: &LogScale) -> Vec<(f64, f64)> {
    let wide = scale.at(2.0) - scale.at(1.0) > 75.0;
    let all = [0.125, 0.25, 0.5, 0.75, 1.0, 1.33, 2.0, 4.0, 8.0].into_iter();
    let within = |x: f64| (layout.plot.0..=layout.plot.1).contains(&x);
    let between = |tick: f64| tick == 0.75 || tick == 1.33;
    all.filter(|tick| wide || !between(*tick))
        .map(|tick| (tick, scale.at(tick)))
        .filter(|t| within(t.1))
        .collect()
}

fn draw_axis(svg: &mut Svg, layout: &Layout, scale: &LogScale) {
    let words = Axis::log("here / published", "ratio").words();
    match layout.width {
        Width::Wide => {
            svg.text((layout.plot.0 + layout.plot.1) / 2.0, 12.0, "axis", Anchor::Middle, &words);
        }
        Width::Narrow => svg.text(0.0, 12.0, "axis", Anchor::Start, &words),
    }
    for (tick, x) in labelled(&ticks(layout, scale)) {
        svg.text(x, AXIS_PIXELS - 14.0, "tick", Anchor::Middle, &format!("{tick}"));
    }
}

/// Room that the number of a tick takes.
const LABEL_PIXELS: f64 = 34.0;

/// The ticks whose numbers do not touch each other, from 1 on to both sides.
fn labelled(ticks: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let one = ticks.iter().position(|(tick, _)| *tick == 1.0).unwrap_or(0);
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for &(tick, x) in ticks[one..].iter().chain(ticks[..one].iter().rev()) {
        if kept.iter().all(|(_, other)| (x - other).abs() >= LABEL_PIXELS) {
            kept.push((tick, x));
        }
    }
    kept
}

/// The band of agreement and the lines of the ticks, from and to a height.
fn draw_grid(svg: &mut Svg, layout: &Layout, scale: &LogScale, (top, bottom): (f64, f64)) {
    let (from, to) = (scale.at(1.0 - TOLERANCE), scale.at(1.0 + TOLERANCE));
    svg.rect((from, top), (to - from, bottom - top), "band", "within 10 % of the published number");
    for (tick, x) in ticks(layout, scale) {
        svg.line((x, top), (x, bottom), if tick == 1.0 { "base" } else { "grid" });
    }
}

fn draw_number(svg: &mut Svg, layout: &Layout, scale: &LogScale, s: &Statement, c: &Comparison, top: f64) {
    let look = if c.agrees { AGREES } else { DIFFERS };
    let ratio = c.ratio.unwrap_or(1.0);
    let hint = format!("{} ({}): {} here, {} published", c.what, place(c), c.ours, c.theirs);
    let (lines, places) = (layout.name(c), layout.place(c));
    named(svg, s, c.agrees, &lines, (0.0, top + 14.0));
    let mut below = top + 14.0 + LINE_PIXELS * (lines.len() - 1) as f64;
    for place in places {
        below += LINE_PIXELS;
        svg.text(0.0, below, "tick", Anchor::Start, &place);
    }
    let middle = match layout.width {
        Width::Wide => top + layout.row(c) / 2.0,
        Width::Narrow => below + 22.0,
    };
    if layout.width == Width::Narrow {
        draw_grid(svg, layout, scale, (middle - 14.0, middle + 14.0));
    }
    svg.line((layout.plot.0, middle), (layout.plot.1, middle), "rail");
    svg.trend(&[(scale.at(1.0), middle), (scale.at(within(ratio)), middle)], &look);
    if let Some((low, high)) = interval(c) {
        svg.whisker((scale.at(within(low)), middle), (scale.at(within(high)), middle), &look);
    }
    svg.mark((scale.at(within(ratio)), middle), 5.5, &look, &hint);
    let ours = c.ratio_told().map_or_else(|| c.ours.clone(), |ratio| format!("{ratio}: {}", c.ours));
    svg.text(layout.values, middle - 3.0, "value", Anchor::Start, &ours);
    let theirs = format!("published {}", c.theirs);
    svg.text(layout.values, middle + 12.0, "tick", Anchor::Start, &theirs);
}

/// The ratio at both ends of the interval, where tables tell one. Of a range that is missed the nearer end is 1; where
/// ours is within, both ends count as there.
fn interval(c: &Comparison) -> Option<(f64, f64)> {
    let (ratio, repeats) = (c.ratio.filter(|ratio| ratio.is_finite())?, c.repeats.as_ref()?);
    let spread = repeats.spread;
    if !repeats.told.contains(" to ") || (c.theirs_value.is_none() && ratio == 1.0) {
        return None;
    }
    let theirs = c.theirs_value.unwrap_or(spread.median / ratio);
    let at = |end: f64| match c.theirs_value {
        Some(_) => end / theirs,
        None if ratio > 1.0 => (end / theirs).max(1.0),
        None => (end / theirs).min(1.0),
    };
    Some((at(spread.low), at(spread.high)))
}

/// The name of a statement; that of one that does not come out leads to the reason.
fn named(svg: &mut Svg, s: &Statement, agrees: bool, lines: &[String], at: (f64, f64)) {
    if !agrees {
        svg.begin_link(&anchor(&s.published));
    }
    for (i, line) in lines.iter().enumerate() {
        let class = if agrees { "what" } else { "what otherwise" };
        let line = if !agrees && i == 0 { format!("✗ {line}") } else { line.clone() };
        svg.text(at.0, at.1 + LINE_PIXELS * i as f64, class, Anchor::Start, &line);
    }
    if !agrees {
        svg.end_link();
    }
}

/// A mark for each statement in words, and the names of those that differ. Where they end is returned.
fn draw_words(svg: &mut Svg, layout: &Layout, words: &[&Statement], top: f64) -> f64 {
    let agree = words.iter().filter(|s| s.agrees).count();
    let title = format!("In words: {agree} of {} agree", words.len());
    svg.text(0.0, top + 26.0, "label", Anchor::Start, &title);
    let a_row = (layout.width.pixels() / STEP_PIXELS) as usize;
    let mut y = top + 46.0;
    for row in words.chunks(a_row) {
        for (i, s) in row.iter().enumerate() {
            let look = if s.agrees { AGREES } else { DIFFERS };
            let hint = format!("{} ({}): {}", s.what, s.source, s.theirs);
            if !s.agrees {
                svg.begin_link(&anchor(&s.published));
            }
            svg.mark((8.0 + STEP_PIXELS * i as f64, y), 5.5, &look, &hint);
            if !s.agrees {
                svg.end_link();
            }
        }
        y += STEP_PIXELS;
    }
    y += 6.0;
    for s in words.iter().filter(|s| !s.agrees) {
        // Its letters are bold, and so wider.
        let room = 0.85 * layout.width.pixels();
        let lines = wrapped(&format!("{}, published: {}", s.what, s.theirs), room);
        named(svg, s, false, &lines, (0.0, y + 8.0));
        y += LINE_PIXELS * lines.len() as f64 + 4.0;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_range_from_zero_is_drawn_below_and_not_above() {
        assert_eq!(within(f64::NEG_INFINITY), within(0.0));
        assert_eq!(within(f64::INFINITY), within(100.0));
        assert!(within(f64::NEG_INFINITY) < 1.0 && within(2.0) == 2.0);
    }
}
