//! Kinds of charts: grouped bars, stacked bars, dots, and a history of points.

use super::svg::{Anchor, Scale, Svg, Width};
use crate::text;

/// Bars that belong together.
pub(super) struct Group {
    pub(super) label: String,
    pub(super) bars: Vec<Bar>,
}

/// A bar with its value written at its end.
pub(super) struct Bar {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) shown: String,
    /// The published value.
    pub(super) published: Option<f64>,
}

/// A stack of parts.
pub(super) struct Stack {
    pub(super) label: String,
    pub(super) rows: Vec<StackRow>,
}

/// One row of parts.
pub(super) struct StackRow {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
    /// What is written behind the parts.
    pub(super) shown: String,
}

/// A part of a row.
pub(super) struct Part {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) value: f64,
}

const LABEL_PIXELS: f64 = 116.0;
const BAR_PIXELS: f64 = 15.0;
const GAP_PIXELS: f64 = 3.0;
const AXIS_PIXELS: f64 = 24.0;

/// Room for labels at the left, and above each group.
fn margins(width: Width) -> (f64, f64) {
    match width {
        Width::Wide => (LABEL_PIXELS, 0.0),
        Width::Narrow => (0.0, 20.0),
    }
}

fn axis(svg: &mut Svg, scale: &Scale, bottom: f64) {
    for tick in scale.ticks() {
        let x = scale.at(tick);
        svg.line((x, AXIS_PIXELS - 6.0), (x, bottom), if tick == 0.0 { "base" } else { "grid" });
        svg.text(x, AXIS_PIXELS - 10.0, "tick", Anchor::Middle, &text::number(tick));
    }
}

fn group_label(svg: &mut Svg, width: Width, label: &str, top: f64, rows_pixels: f64) {
    match width {
        Width::Wide => svg.text(0.0, top + rows_pixels / 2.0 + 4.5, "label", Anchor::Start, label),
        Width::Narrow => svg.text(0.0, top - 6.0, "label", Anchor::Start, label),
    }
}

/// Groups of horizontal bars from a common zero; published values are diamonds.
pub(super) fn bars(width: Width, groups: &[Group], label: &str) -> String {
    let (left, above) = margins(width);
    let value_pixels = 76.0;
    let most = groups.iter().flat_map(|g| &g.bars).map(|b| b.value.max(b.published.unwrap_or(0.0)));
    let pixels = width.pixels() - left - value_pixels;
    let ticks = if width == Width::Wide { 5.0 } else { 3.0 };
    let scale = Scale::new(most.fold(0.0, f64::max), left + 8.0, pixels - 8.0, ticks);
    let rows = |g: &Group| g.bars.len() as f64 * (BAR_PIXELS + GAP_PIXELS);
    let height = AXIS_PIXELS + groups.iter().map(|g| rows(g) + above + 12.0).sum::<f64>();
    let mut svg = Svg::new(width.pixels());
    axis(&mut svg, &scale, height - 4.0);
    let mut y = AXIS_PIXELS + above + 2.0;
    for group in groups {
        group_label(&mut svg, width, &group.label, y, rows(group) - GAP_PIXELS);
        for bar in &group.bars {
            let hint = format!("{}, {}: {}", group.label, bar.name, bar.shown);
            let zero = scale.at(0.0);
            let end = scale.at(bar.value).max(zero + 0.8);
            svg.rect((zero, y), (end - zero, BAR_PIXELS), &bar.class, &hint);
            let middle = y + BAR_PIXELS / 2.0;
            let beyond = bar.published.map_or(end, |p| end.max(scale.at(p) + 7.0));
            svg.text(beyond + 5.0, middle + 4.0, "value", Anchor::Start, &bar.shown);
            if let Some(published) = bar.published {
                svg.diamond(
                    (scale.at(published), middle),
                    5.5,
                    &format!("published: {}", text::number(published)),
                );
            }
            y += BAR_PIXELS + GAP_PIXELS;
        }
        y += above + 12.0;
    }
    svg.finish(height, label)
}

/// Groups of horizontal stacked bars, with the name of each row before it and `value_pixels` for the text behind it.
pub(super) fn stacks(width: Width, groups: &[Stack], value_pixels: f64, label: &str) -> String {
    let (left, above) = margins(width);
    let name_pixels = 92.0;
    let sum = |row: &StackRow| row.parts.iter().map(|p| p.value).sum::<f64>();
    let most = groups.iter().flat_map(|g| &g.rows).map(sum).fold(0.0, f64::max);
    let from = left + name_pixels;
    let ticks = if width == Width::Wide { 5.0 } else { 3.0 };
    let scale = Scale::new(most, from, width.pixels() - from - value_pixels, ticks);
    let rows = |g: &Stack| g.rows.len() as f64 * (BAR_PIXELS + GAP_PIXELS);
    let height = AXIS_PIXELS + groups.iter().map(|g| rows(g) + above + 12.0).sum::<f64>();
    let mut svg = Svg::new(width.pixels());
    axis(&mut svg, &scale, height - 4.0);
    let mut y = AXIS_PIXELS + above + 2.0;
    for group in groups {
        group_label(&mut svg, width, &group.label, y, rows(group) - GAP_PIXELS);
        for row in &group.rows {
            svg.text(from - 7.0, y + BAR_PIXELS / 2.0 + 4.0, "name", Anchor::End, &row.name);
            let mut done = 0.0;
            for part in row.parts.iter().filter(|part| part.value > 0.0) {
                let (x, end) = (scale.at(done), scale.at(done + part.value));
                let hint =
                    format!("{}, {}: {} {}", group.label, row.name, part.name, text::number(part.value));
                svg.rect((x, y), (end - x, BAR_PIXELS), &part.class, &hint);
                done += part.value;
            }
            svg.text(scale.at(done) + 5.0, y + BAR_PIXELS / 2.0 + 4.0, "value", Anchor::Start, &row.shown);
            y += BAR_PIXELS + GAP_PIXELS;
        }
        y += above + 12.0;
    }
    svg.finish(height, label)
}

/// One row of dots on a common scale.
pub(super) struct DotRow {
    pub(super) label: String,
    /// Class, name, value.
    pub(super) dots: Vec<(String, String, f64)>,
    pub(super) published: Option<f64>,
    /// The values that count as agreement.
    pub(super) band: Option<(f64, f64)>,
}

/// Rows of dots in percent, each with its published value and the band around it.
pub(super) fn dots(width: Width, rows: &[DotRow], label: &str) -> String {
    let (left, above) = margins(width);
    let row_pixels = 34.0 + above;
    let value = |row: &DotRow| {
        let dots = row.dots.iter().map(|d| d.2);
        dots.chain(row.published).chain(row.band.map(|b| b.1)).fold(0.0, f64::max)
    };
    let most = rows.iter().map(value).fold(0.0, f64::max);
    let ticks = if width == Width::Wide { 6.0 } else { 4.0 };
    let scale = Scale::new(most, left + 8.0, width.pixels() - left - 70.0, ticks);
    let height = AXIS_PIXELS + rows.len() as f64 * row_pixels + 4.0;
    let mut svg = Svg::new(width.pixels());
    axis(&mut svg, &scale, height - 4.0);
    for (i, row) in rows.iter().enumerate() {
        let middle = AXIS_PIXELS + (i as f64 + 0.5) * row_pixels + above / 2.0;
        match width {
            Width::Wide => svg.text(0.0, middle + 4.5, "label", Anchor::Start, &row.label),
            Width::Narrow => svg.text(0.0, middle - 18.0, "label", Anchor::Start, &row.label),
        }
        svg.line((scale.at(0.0), middle), (width.pixels() - 62.0, middle), "rail");
        if let Some((low, high)) = row.band {
            let x = scale.at(low);
            svg.rect(
                (x, middle - 4.0),
                (scale.at(high) - x, 8.0),
                "band",
                "within 10 % of the published ratio",
            );
        }
        for (class, name, value) in row.dots.iter().rev() {
            let hint = format!("{}, {name}: {value:+.1} %", row.label);
            // The first is a dot; others are rings around it where they coincide.
            let (radius, class) =
                if row.dots[0].1 == *name { (6.0, class.clone()) } else { (8.5, format!("ring {class}")) };
            svg.circle((scale.at(value.max(0.0)), middle), radius, &class, &hint);
        }
        let published = row.published.map(|value| (scale.at(value), value));
        if let Some((x, value)) = published {
            svg.diamond((x, middle), 5.5, &format!("published: {value:+.0} %"));
        }
        if let Some((_, _, value)) = row.dots.first() {
            // Behind its dot, unless the diamond is in the way.
            let x = scale.at(value.max(0.0));
            let x = published.map_or(x, |(p, _)| if p > x - 12.0 && p < x + 64.0 { x.max(p) } else { x });
            svg.text(x + 14.0, middle + 4.5, "value strong", Anchor::Start, &format!("{value:+.0} %"));
        }
    }
    svg.finish(height, label)
}

/// One panel of a history: several lines over the same points.
pub(super) struct Panel {
    pub(super) title: String,
    /// The names of the points.
    pub(super) names: Vec<String>,
    pub(super) lines: Vec<Line>,
}

/// One line of a panel.
pub(super) struct Line {
    pub(super) class: String,
    pub(super) name: String,
    /// The index of the point, the value, and the published value or range.
    pub(super) points: Vec<(usize, f64, Option<(f64, f64)>)>,
}

/// Panels of points in order, joined by lines: beside each other, or below on narrow pages.
pub(super) fn history(width: Width, panels: &[Panel], label: &str) -> String {
    let (panel_height, gap) = (226.0, 36.0);
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
        draw_panel(&mut svg, panel, origin, (panel_width, panel_height));
    }
    let height = match width {
        Width::Wide => panel_height,
        Width::Narrow => count * (panel_height + 14.0) - 14.0,
    };
    svg.finish(height, label)
}

fn draw_panel(svg: &mut Svg, panel: &Panel, origin: (f64, f64), size: (f64, f64)) {
    let ((left, top), (width, height)) = (origin, size);
    let (head, foot, side) = (44.0, 26.0, 44.0);
    let plot = height - head - foot;
    svg.text(left, top + 12.0, "panel", Anchor::Start, &panel.title);
    let all = panel.lines.iter().flat_map(|line| &line.points);
    let most = all.map(|(_, v, p)| v.max(p.map_or(0.0, |p| p.1))).fold(0.0, f64::max);
    let scale = Scale::new(most, 0.0, plot, 4.0);
    let y = |value: f64| top + head + plot - scale.at(value);
    for tick in scale.ticks() {
        let class = if tick == 0.0 { "base" } else { "grid" };
        svg.line((left + side, y(tick)), (left + width, y(tick)), class);
        svg.text(left + side - 7.0, y(tick) + 4.0, "tick", Anchor::End, &text::number(tick));
    }
    let spacing = (width - side) / panel.names.len().max(1) as f64;
    let x = |i: usize| left + side + spacing * (i as f64 + 0.5);
    for (i, name) in panel.names.iter().enumerate() {
        svg.text(x(i), top + height - 8.0, "tick", Anchor::Middle, name);
    }
    for (n, line) in panel.lines.iter().enumerate() {
        let points: Vec<_> = line.points.iter().map(|p| (x(p.0), y(p.1))).collect();
        svg.polyline(&points, &format!("trend t-{}", line.class));
        for &(i, value, published) in &line.points {
            let at = (x(i), y(value));
            if let Some((low, high)) = published {
                svg.line((x(i), y(low)), (x(i), y(high)), "range");
                svg.diamond((x(i), y(high)), 8.0, &format!("published: {}", text::number(high)));
                if low < high {
                    svg.diamond((x(i), y(low)), 8.0, &format!("published: {}", text::number(low)));
                }
            }
            svg.circle(
                at,
                4.5,
                &line.class,
                &format!("{}, {}: {}", line.name, panel.names[i], text::number(value)),
            );
            let shown = text::number(value.round());
            // A range goes up from its point: the value goes beside it.
            match published.filter(|(low, high)| low < high) {
                Some(_) => svg.text(at.0 - 12.0, at.1 - 8.0, "value", Anchor::End, &shown),
                // Values of a second line go below it.
                None if n > 0 => svg.text(at.0, at.1 + 20.0, "value", Anchor::Middle, &shown),
                None => svg.text(at.0, at.1 - 12.0, "value", Anchor::Middle, &shown),
            }
        }
    }
}
