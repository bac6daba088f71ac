//! Kinds of charts: grouped bars, stacked bars, dots, and a history of points.
//!
//! Every row has its name before it, every axis its own, and every published value the mark of the series that it
//! belongs to.

use super::looks::Looks;
use super::scale::Scale;
use super::svg::{Anchor, Svg, Width, text_pixels};
use pageferry_lab::plot::{Axis, Bar, Chart, DotRow, Group, Panel, Stack, StackRow};
use pageferry_lab::text;

/// A chart as SVG; `label` says what it is.
pub(super) fn draw(width: Width, looks: &Looks, chart: &Chart, label: &str) -> String {
    match chart {
        Chart::Bars(groups, axis) => bars(width, looks, groups, axis, label),
        Chart::Stacks(groups, axis, pixels) => stacks(width, groups, axis, *pixels, label),
        Chart::Dots(rows, axis) => dots(width, looks, rows, axis, label),
        Chart::History(panels) => history(width, looks, panels, label),
    }
}

const LABEL_PIXELS: f64 = 116.0;
const BAR_PIXELS: f64 = 15.0;
const GAP_PIXELS: f64 = 3.0;
/// The name of the axis, and the values of its ticks.
const AXIS_PIXELS: f64 = 42.0;

/// Room for the labels of groups: at the left of their rows, or above them.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Margins {
    left: f64,
    above: f64,
}

impl Margins {
    const NONE: Margins = Margins { left: 0.0, above: 0.0 };

    /// At the left where there is room for each, so that none runs into the names of rows.
    fn of<'a>(width: Width, mut labels: impl Iterator<Item = &'a String>) -> Margins {
        match width {
            Width::Wide if labels.all(|label| text_pixels(label.chars().count()) <= LABEL_PIXELS) => {
                Margins { left: LABEL_PIXELS, above: 0.0 }
            }
            _ => Margins { left: 0.0, above: 20.0 },
        }
    }

    /// Writes a label, whose rows begin at `top`.
    fn label(self, svg: &mut Svg, label: &str, top: f64, rows_pixels: f64) {
        let y = if self.above > 0.0 { top - 6.0 } else { top + rows_pixels / 2.0 + 4.5 };
        svg.text(0.0, y, "label", Anchor::Start, label);
    }
}

/// Room for the names of rows.
fn names_pixels<'a>(names: impl Iterator<Item = &'a String>) -> f64 {
    22.0 + text_pixels(names.map(|name| name.chars().count()).max().unwrap_or(0))
}

/// A scale across, with its name above it, that leaves `right` pixels at the end.
fn across(svg: &mut Svg, width: Width, axis: &Axis, max: f64, room: (f64, f64), bottom: f64) -> Scale {
    let (from, right) = room;
    let pixels = width.pixels() - from - right;
    let ticks = (pixels / 80.0).clamp(2.0, 6.0);
    let scale = Scale::new(max, from, pixels, ticks);
    svg.text(width.pixels() - 3.0, 12.0, "axis", Anchor::End, &axis.words());
    let mut free = f64::MIN;
    for tick in scale.ticks() {
        let (x, shown) = (scale.at(tick), text::number(tick));
        svg.line((x, AXIS_PIXELS - 6.0), (x, bottom), if tick == 0.0 { "base" } else { "grid" });
        // A value that would touch the one before it is left out.
        let half = text_pixels(shown.len()) / 2.0;
        if x - half > free {
            svg.text(x, AXIS_PIXELS - 11.0, "tick", Anchor::Middle, &shown);
            free = x + half + 4.0;
        }
    }
    scale
}

/// Groups of horizontal bars from a common zero, each ending in the mark of its series.
pub(super) fn bars(width: Width, looks: &Looks, groups: &[Group], axis: &Axis, label: &str) -> String {
    // A single group needs no name.
    let unnamed = groups.iter().all(|group| group.label.is_empty());
    let labels = groups.iter().map(|group| &group.label);
    let margins = if unnamed { Margins::NONE } else { Margins::of(width, labels) };
    let Margins { left, above } = margins;
    let all = || groups.iter().flat_map(|g| &g.bars);
    let max = all().map(|b| b.value.max(b.published.unwrap_or(0.0))).fold(0.0, f64::max);
    let from = left + names_pixels(all().map(|b| &b.name));
    let rows = |g: &Group| g.bars.len() as f64 * (BAR_PIXELS + GAP_PIXELS);
    let height = AXIS_PIXELS + groups.iter().map(|g| rows(g) + above + 12.0).sum::<f64>();
    let mut svg = Svg::new(width.pixels());
    let scale = across(&mut svg, width, axis, max, (from, 72.0), height - 4.0);
    let mut y = AXIS_PIXELS + above + 2.0;
    for group in groups {
        margins.label(&mut svg, &group.label, y, rows(group) - GAP_PIXELS);
        for bar in &group.bars {
            let middle = y + BAR_PIXELS / 2.0;
            svg.text(from - 14.0, middle + 4.0, "name", Anchor::End, &bar.name);
            draw_bar(&mut svg, looks, &scale, bar, middle, &group.label);
            y += BAR_PIXELS + GAP_PIXELS;
        }
        y += above + 12.0;
    }
    svg.finish(height, label)
}

fn draw_bar(svg: &mut Svg, looks: &Looks, scale: &Scale, bar: &Bar, middle: f64, group: &str) {
    let name = if group.is_empty() { bar.name.clone() } else { format!("{group}, {}", bar.name) };
    let hint = format!("{name}: {}", bar.shown);
    let look = looks.look(&bar.series);
    let (zero, end) = (scale.at(0.0), scale.at(bar.value));
    let thick = BAR_PIXELS - 6.0;
    svg.rect((zero, middle - thick / 2.0), (end - zero, thick), &format!("f-{}", look.colour), &hint);
    if let Some(published) = bar.published {
        let hint = format!("published, {name}: {}", text::number(published));
        svg.published((scale.at(published), middle), &look, &hint);
    }
    svg.mark((end, middle), 5.0, &look, &hint);
    let beyond = bar.published.map_or(end, |p| end.max(scale.at(p) + 4.0));
    svg.text(beyond + 9.0, middle + 4.0, "value", Anchor::Start, &bar.shown);
}

/// Groups of horizontal stacked bars, with the name of each row before it and `value_pixels` for the text behind it.
fn stacks(width: Width, groups: &[Stack], axis: &Axis, value_pixels: f64, label: &str) -> String {
    let margins = Margins::of(width, groups.iter().map(|group| &group.label));
    let Margins { left, above } = margins;
    let all = || groups.iter().flat_map(|g| &g.rows);
    let sum = |row: &StackRow| row.parts.iter().map(|p| p.value).sum::<f64>();
    let max = all().map(sum).fold(0.0, f64::max);
    let from = left + names_pixels(all().map(|row| &row.name));
    let rows = |g: &Stack| g.rows.len() as f64 * (BAR_PIXELS + GAP_PIXELS);
    let height = AXIS_PIXELS + groups.iter().map(|g| rows(g) + above + 12.0).sum::<f64>();
    let mut svg = Svg::new(width.pixels());
    let scale = across(&mut svg, width, axis, max, (from, value_pixels), height - 4.0);
    let mut y = AXIS_PIXELS + above + 2.0;
    for group in groups {
        margins.label(&mut svg, &group.label, y, rows(group) - GAP_PIXELS);
        for row in &group.rows {
            svg.text(from - 14.0, y + BAR_PIXELS / 2.0 + 4.0, "name", Anchor::End, &row.name);
            draw_parts(&mut svg, &scale, row, y, &group.label);
            y += BAR_PIXELS + GAP_PIXELS;
        }
        y += above + 12.0;
    }
    svg.finish(height, label)
}

fn draw_parts(svg: &mut Svg, scale: &Scale, row: &StackRow, y: f64, group: &str) {
    let mut done = 0.0;
    for part in row.parts.iter().filter(|part| part.value > 0.0) {
        let (x, end) = (scale.at(done), scale.at(done + part.value));
        let hint = format!("{group}, {}: {} {}", row.name, part.name, text::number(part.value));
        svg.rect((x, y), (end - x, BAR_PIXELS), &format!("part f-{}", part.colour), &hint);
        if end - x > 12.0 {
            let class = format!("sign on-{}", part.colour);
            svg.text((x + end) / 2.0, y + BAR_PIXELS / 2.0 + 4.0, &class, Anchor::Middle, part.sign);
        }
        done += part.value;
    }
    svg.text(scale.at(done) + 5.0, y + BAR_PIXELS / 2.0 + 4.0, "value", Anchor::Start, &row.shown);
}

/// Rows of dots in percent, each with its published value and the band around it.
fn dots(width: Width, looks: &Looks, rows: &[DotRow], axis: &Axis, label: &str) -> String {
    let Margins { left, above } = Margins::of(width, rows.iter().map(|row| &row.label));
    let row_pixels = 34.0 + above;
    let value = |row: &DotRow| {
        let dots = row.dots.iter().map(|d| d.value);
        dots.chain(row.published).chain(row.band.map(|b| b.1)).fold(0.0, f64::max)
    };
    let max = rows.iter().map(value).fold(0.0, f64::max);
    let longest = rows.iter().map(|row| shown(row).chars().count()).max().unwrap_or(0);
    // On narrow pages values stand above the dots.
    let right = if width == Width::Wide { 14.0 + text_pixels(longest) } else { 14.0 };
    let height = AXIS_PIXELS + rows.len() as f64 * row_pixels + 4.0;
    let mut svg = Svg::new(width.pixels());
    let scale = across(&mut svg, width, axis, max, (left + 8.0, right), height - 4.0);
    for (i, row) in rows.iter().enumerate() {
        let middle = AXIS_PIXELS + (i as f64 + 0.5) * row_pixels + above / 2.0;
        let label_y = if above > 0.0 { middle - 18.0 } else { middle + 4.5 };
        svg.text(0.0, label_y, "label", Anchor::Start, &row.label);
        svg.line((scale.at(0.0), middle), (width.pixels() - right, middle), "rail");
        let end = draw_dots(&mut svg, looks, &scale, row, middle);
        match width {
            Width::Wide => svg.text(end + 14.0, middle + 4.5, "value", Anchor::Start, &shown(row)),
            Width::Narrow => svg.text(width.pixels(), middle - 18.0, "value", Anchor::End, &shown(row)),
        }
    }
    svg.finish(height, label)
}

/// Draws the dots of a row; where the last one is is returned.
fn draw_dots(svg: &mut Svg, looks: &Looks, scale: &Scale, row: &DotRow, middle: f64) -> f64 {
    if let Some((low, high)) = row.band {
        let x = scale.at(low.max(0.0));
        let hint = "within 10 % of the published ratio";
        svg.rect((x, middle - 9.0), (scale.at(high) - x, 18.0), "band", hint);
    }
    let Some(first) = row.dots.first() else { return scale.at(0.0) };
    let published = row.published.map(|value| (scale.at(value), value));
    if let Some((x, value)) = published {
        let hint = format!("published, {}, {}: {value:+.0} %", row.label, first.name);
        svg.published((x, middle), &looks.look(&first.series), &hint);
    }
    for (i, dot) in row.dots.iter().enumerate().rev() {
        let hint = format!("{}, {}: {:+.1} %", row.label, dot.name, dot.value);
        // The first is small, so that it hides none that are where it is.
        let radius = if i == 0 { 4.5 } else { 8.5 };
        svg.mark((scale.at(dot.value.max(0.0)), middle), radius, &looks.look(&dot.series), &hint);
    }
    let ours = row.dots.iter().map(|dot| scale.at(dot.value.max(0.0)));
    ours.chain(published.map(|(x, _)| x)).fold(0.0, f64::max)
}

/// The values of a row in words: that of the first dot, and the published one.
fn shown(row: &DotRow) -> String {
    let theirs = row.published.map_or(String::new(), |value| format!(" (published {value:+.0} %)"));
    row.dots.first().map_or(String::new(), |first| format!("{:+.0} %{theirs}", first.value))
}

/// Panels of points in order, joined by lines: beside each other, or below on narrow pages.
fn history(width: Width, looks: &Looks, panels: &[Panel], label: &str) -> String {
    let (panel_height, gap) = (250.0, 36.0);
    let count = panels.len() as f64;
    let panel_width = match width {
        Width::Wide => (width.pixels() - gap * (count - 1.0)) / count,
        Width::Narrow => width.pixels(),
    };
    let mut svg = Svg::new(width.pixels());
    for (i, panel) in panels.iter().enumerate() {
        let step = i as f64;
        let origin = match width {
            Width::Wide => (step * (panel_width + gap), 0.0),
            Width::Narrow => (0.0, step * (panel_height + 14.0)),
        };
        draw_panel(&mut svg, looks, panel, origin, (panel_width, panel_height));
    }
    let height = match width {
        Width::Wide => panel_height,
        Width::Narrow => count * (panel_height + 14.0) - 14.0,
    };
    svg.finish(height, label)
}

fn draw_panel(svg: &mut Svg, looks: &Looks, panel: &Panel, origin: (f64, f64), size: (f64, f64)) {
    let ((left, top), (width, height)) = (origin, size);
    let (head, foot, side) = (44.0, 46.0, 44.0);
    let plot = height - head - foot;
    svg.text(left, top + 12.0, "axis", Anchor::Start, &panel.up.words());
    let all = panel.lines.iter().flat_map(|line| &line.points);
    let max = all.map(|(_, v, p)| v.max(p.map_or(0.0, |p| p.1))).fold(0.0, f64::max);
    let scale = Scale::new(max, 0.0, plot, 4.0);
    let y = |value: f64| top + head + plot - scale.at(value);
    for tick in scale.ticks() {
        let class = if tick == 0.0 { "base" } else { "grid" };
        svg.line((left + side, y(tick)), (left + width, y(tick)), class);
        svg.text(left + side - 7.0, y(tick) + 4.0, "tick", Anchor::End, &text::number(tick));
    }
    let spacing = (width - side) / panel.names.len().max(1) as f64;
    let x = |i: usize| left + side + spacing * (i as f64 + 0.5);
    for (i, name) in panel.names.iter().enumerate() {
        svg.text(x(i), top + height - 28.0, "tick", Anchor::Middle, name);
    }
    svg.text(left + width - 3.0, top + height - 8.0, "axis", Anchor::End, &panel.along.words());
    for line in &panel.lines {
        let look = looks.look(&line.series);
        let points: Vec<_> = line.points.iter().map(|p| (x(p.0), y(p.1))).collect();
        svg.trend(&points, &look);
        // What is published goes beneath.
        for &(i, _, published) in &line.points {
            let Some((low, high)) = published else { continue };
            svg.line((x(i), y(low)), (x(i), y(high)), "range");
            let hint = |value| format!("published, {}: {}", panel.names[i], text::number(value));
            svg.published((x(i), y(high)), &look, &hint(high));
            if low < high {
                svg.published((x(i), y(low)), &look, &hint(low));
            }
        }
        for (at, &(i, value, published)) in points.iter().zip(&line.points) {
            let hint = format!("{}, {}: {}", line.name, panel.names[i], text::number(value));
            svg.mark(*at, 4.5, &look, &hint);
            // Where lines are near each other their values would be, too: the table has them.
            if panel.lines.len() > 1 {
                continue;
            }
            let shown = text::number(value.round());
            // A range goes up from its point: the value goes beside it.
            match published.filter(|(low, high)| low < high) {
                Some(_) => svg.text(at.0 - 12.0, at.1 - 8.0, "value", Anchor::End, &shown),
                None => svg.text(at.0, at.1 - 12.0, "value", Anchor::Middle, &shown),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_would_run_into_names_stands_above_its_rows() {
        let of = |label: &str| Margins::of(Width::Wide, [label.to_owned()].iter());
        assert_eq!(of("xeon-mp-htt").above, 0.0);
        assert_eq!(of("pentium-pro, 64.0 KiB, touched").left, 0.0);
        assert_eq!(Margins::of(Width::Narrow, ["486".to_owned()].iter()).left, 0.0);
    }
}
