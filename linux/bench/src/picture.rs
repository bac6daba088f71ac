//! Ratios to the floor, or times, drawn: a panel for each of what is done to messages, a line for each method.

use crate::cell::{Carrier, Method, Pattern, Wait};
use crate::series::{Report, Series, size};
use crate::stats::Estimate;
use core::fmt::Write as _;

/// What is drawn, the colour, and the line's width.
type LineStyle = (Method, &'static str, f64);

/// Beside the floor, which is 1.
const RATIOS: &[LineStyle] = &[
    (Method::Pipe, "#9a9a9a", 1.2),
    (Method::Unix, "#b08d57", 1.2),
    (Method::Readv, "#7d6b91", 1.2),
    (Method::Vmsplice, "#6b8f8f", 1.2),
    (Method::Shm, "#606060", 1.2),
    (Method::Typed, "#8fbf8f", 1.8),
    (Method::Loan, "#0b6e4f", 2.4),
    (Method::Donate, "#1f77b4", 2.0),
    (Method::CopyBuffer, "#c0392b", 2.0),
    (Method::Auto, "#e08e0b", 2.0),
    (Method::Resent, "#8e44ad", 2.0),
];

/// From Python, and what there is without it.
const TIMES: &[LineStyle] = &[
    (Method::Floor, "#000000", 1.0),
    (Method::Pipe, "#9a9a9a", 1.0),
    (Method::Unix, "#b08d57", 1.0),
    (Method::Readv, "#7d6b91", 1.0),
    (Method::Vmsplice, "#6b8f8f", 1.0),
    (Method::Shm, "#606060", 1.0),
    (Method::Loan, "#5fae8f", 1.2),
    (Method::IceoryxRust, "#e3b04b", 1.2),
    (Method::MpQueue, "#c0392b", 2.0),
    (Method::Pickle5, "#e0610b", 2.0),
    (Method::SharedMemory, "#8a5a2b", 2.0),
    (Method::Arrow, "#b5338a", 2.0),
    (Method::TorchKept, "#5b4bb5", 2.0),
    (Method::TorchNew, "#9a86e0", 2.0),
    (Method::IceoryxPython, "#c99700", 2.0),
    (Method::FerryQueue, "#1f77b4", 2.4),
    (Method::FerryArray, "#2fa36b", 2.4),
    (Method::Ferry, "#0b6e4f", 3.0),
];

const PATTERNS: [Pattern; 3] = [Pattern::Untouched, Pattern::Read, Pattern::Refilled];

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
const LABELS: f64 = 165.0;
const TOP: f64 = 84.0;
const LINE: f64 = 13.0;

/// What all panels show.
struct PanelStyle<'a> {
    report: &'a Report,
    drawn: &'static [LineStyle],
    wait: Wait,
    /// Microseconds rather than ratios to the base.
    times: bool,
}

impl PanelStyle<'_> {
    fn value(&self, series: &Series) -> Option<Estimate> {
        if !self.times {
            return self.report.ratios(series);
        }
        let Estimate { median, low, high } = Estimate::of(&series.nanos)?;
        Some(Estimate { median: median / 1e3, low: low / 1e3, high: high / 1e3 })
    }

    fn points(&self, method: Method, pattern: Pattern, sizes: &[usize]) -> Vec<(usize, Estimate)> {
        let point = |&bytes: &usize| {
            let series = self.report.series(method, bytes, pattern, self.wait)?;
            Some((bytes, self.value(series)?))
        };
        sizes.iter().filter_map(point).collect()
    }

    fn label(&self, value: f64) -> String {
        match self.times {
            true => crate::report::micros(value * 1e3),
            false if value >= 100.0 => format!("{value:.0}"),
            false => format!("{value:.2}"),
        }
    }

    /// Lines of what is not from Python, where most are.
    fn dash(&self, method: Method) -> &'static str {
        if self.times && method.carrier() != Carrier::Python { " stroke-dasharray=\"5 3\"" } else { "" }
    }

    fn title(&self) -> String {
        let sides = format!("both sides {}", self.wait.name());
        match self.times {
            true => format!("Microseconds of a message ({sides}; solid: from Python, dashed: from Rust)"),
            false => format!("Time of a message, as a multiple of plain shared memory's ({sides})"),
        }
    }
}

/// A panel's scales, both of them by ratio.
struct Panel {
    left: f64,
    bytes: (f64, f64),
    values: (f64, f64),
}

impl Panel {
    fn x(&self, bytes: usize) -> f64 {
        let (low, high) = self.bytes;
        let part = if high > low { ((bytes as f64).ln() - low) / (high - low) } else { 0.5 };
        self.left + part * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        TOP + HEIGHT * (1.0 - (value.ln() - low) / (high - low))
    }
}

/// The picture, or one that says that there is nothing to draw.
pub(crate) fn svg(report: &Report) -> String {
    let times = report.series.iter().any(|of| of.method.carrier() != Carrier::Own);
    let drawn = if times { TIMES } else { RATIOS };
    let shown = PanelStyle { report, drawn, wait: report.wait(), times };
    let width = PATTERNS.len() as f64 * (LEFT + WIDTH + LABELS);
    let height = TOP + HEIGHT + 60.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, (LEFT, 24.0), "font-size=\"15\" font-weight=\"bold\"", &shown.title());
    text(&mut svg, (LEFT, 42.0), "fill=\"#555\"", &report.surroundings.to_string());
    for (index, pattern) in PATTERNS.into_iter().enumerate() {
        let left = index as f64 * (LEFT + WIDTH + LABELS) + LEFT;
        panel(&mut svg, &shown, left, pattern);
    }
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, (x, y): (f64, f64), style: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
    let _ = writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
}

fn panel(svg: &mut String, shown: &PanelStyle<'_>, left: f64, pattern: Pattern) {
    text(svg, (left, TOP - 16.0), "font-size=\"13\" font-weight=\"bold\"", pattern.name());
    let here = shown.report.series.iter().filter(|of| (of.pattern, of.wait) == (pattern, shown.wait));
    let mut sizes: Vec<_> = here.map(|of| of.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let drawn = shown.drawn.iter();
    let lines: Vec<_> = drawn.map(|drawn| (drawn, shown.points(drawn.0, pattern, &sizes))).collect();
    let all = || lines.iter().flat_map(|(_, points)| points).map(|(_, value)| value.median);
    let (Some(&first), Some(&last), Some(_)) = (sizes.first(), sizes.last(), all().next()) else {
        text(svg, (left, TOP + 20.0), "fill=\"#555\"", "not measured");
        return;
    };
    let (low, high) = if shown.times {
        (0.8 * all().fold(f64::INFINITY, f64::min), 1.2 * all().fold(0.0, f64::max))
    } else {
        (all().fold(0.9, f64::min), 1.1 * all().fold(2.0, f64::max))
    };
    let panel =
        Panel { left, bytes: ((first as f64).ln(), (last as f64).ln()), values: (low.ln(), high.ln()) };
    axes(svg, &panel, &sizes, !shown.times);
    let mut labels = Vec::new();
    for ((method, colour, width), points) in &lines {
        let at = |&(bytes, value): &(usize, Estimate)| (panel.x(bytes), panel.y(value.median));
        let path: Vec<_> = points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let path = path.join(" ");
        let dash = shown.dash(*method);
        let _ = writeln!(
            svg,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dash}/>"
        );
        for point in points {
            let (x, _) = at(point);
            let (low, high) = (panel.y(point.1.low.max(low)), panel.y(point.1.high.min(high)));
            line(
                svg,
                (x, low),
                (x, high),
                &format!("stroke=\"{colour}\" stroke-width=\"{width}\" opacity=\"0.4\""),
            );
        }
        if let Some(end) = points.last() {
            labels.push((at(end).1, end.1.median, *method, *colour, at(end)));
        }
    }
    // Labels keep the order of their lines, and do not lie on each other.
    labels.sort_by(|one, other| one.0.total_cmp(&other.0));
    for index in 1..labels.len() {
        labels[index].0 = labels[index].0.max(labels[index - 1].0 + LINE);
    }
    let mut below = TOP + HEIGHT;
    for label in labels.iter_mut().rev() {
        label.0 = label.0.min(below);
        below = label.0 - LINE;
    }
    for (y, value, method, colour, end) in labels {
        let x = panel.left + WIDTH + 14.0;
        line(svg, end, (x - 2.0, y), &format!("stroke=\"{colour}\" stroke-width=\"0.5\""));
        let label = format!("{} {}", method.name(), shown.label(value));
        text(svg, (x, y + 4.0), &format!("fill=\"{colour}\""), &label);
    }
}

/// With `unit`, the line of what is as fast as the base.
fn axes(svg: &mut String, panel: &Panel, sizes: &[usize], unit: bool) {
    let (left, right) = (panel.left, panel.left + WIDTH);
    let mut tick = 0.1;
    while tick <= panel.values.1.exp() {
        for step in [1.0, 2.0, 5.0] {
            let value: f64 = tick * step;
            if value.ln() < panel.values.0 || value.ln() > panel.values.1 {
                continue;
            }
            let y = panel.y(value);
            let style = if step == 1.0 { "stroke=\"#ccc\"" } else { "stroke=\"#eee\"" };
            line(svg, (left, y), (right, y), style);
            let label = if value < 1e4 { format!("{value}") } else { format!("{}k", value / 1e3) };
            text(svg, (left - 6.0, y + 4.0), "text-anchor=\"end\" fill=\"#555\"", &label);
        }
        tick *= 10.0;
    }
    if unit {
        let y = panel.y(1.0);
        line(svg, (left, y), (right, y), "stroke=\"#000\" stroke-width=\"1.2\" stroke-dasharray=\"4 3\"");
    }
    for &bytes in sizes {
        let x = panel.x(bytes);
        line(svg, (x, TOP + HEIGHT), (x, TOP + HEIGHT + 4.0), "stroke=\"#555\"");
        text(svg, (x, TOP + HEIGHT + 18.0), "text-anchor=\"middle\" fill=\"#555\"", &size(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surroundings::Surroundings;

    #[test]
    fn every_method_has_a_line_and_a_label_in_each_panel() {
        let mut series = Vec::new();
        for (index, &(method, ..)) in TIMES.iter().enumerate() {
            for pattern in PATTERNS.into_iter().filter(|&pattern| method.fits(pattern)) {
                for bytes in [64 << 10, 1 << 20] {
                    let nanos = vec![1e3 * (index + 1) as f64 * bytes as f64; 7];
                    series.push(Series { method, bytes, pattern, wait: Wait::Sleep, nanos });
                }
            }
        }
        let report = Report {
            surroundings: Surroundings::get(),
            notes: Vec::new(),
            series,
            fill_nanos: 1.0,
            base: Method::Ferry,
            import_nanos: Vec::new(),
        };
        let picture = svg(&report);
        for (method, colour, _) in TIMES {
            let panels = PATTERNS.into_iter().filter(|&pattern| method.fits(pattern)).count();
            let lines = picture.matches(&format!("stroke=\"{colour}\" stroke-width=\"0.5\"")).count();
            let labels = picture.matches(&format!(">{} ", method.name())).count();
            assert_eq!((lines, labels), (panels, panels), "{method:?}");
        }
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }
}
