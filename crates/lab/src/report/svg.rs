//! Drawing: the few shapes that the figures are made of.
//!
//! Colours and type are classes, given meaning by the style sheet of the page (or, for files of their own, by
//! [`standalone`]), so that one drawing serves light and dark pages. Coordinates are pixels of the drawing's own size;
//! every figure is drawn twice, for wide and for narrow pages, so that its text is never scaled down.

use std::fmt::Write as _;

/// The width that a figure is drawn for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    /// Desks: labels stand left of the bars.
    Wide,
    /// Telephones: labels stand above the bars.
    Narrow,
}

impl Width {
    pub(super) fn pixels(self) -> f64 {
        match self {
            Width::Wide => 720.0,
            Width::Narrow => 340.0,
        }
    }
}

/// Where a text is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// A drawing in the making.
pub(super) struct Svg {
    width: f64,
    body: String,
}

/// Text for XML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Svg {
    pub(super) fn new(width: f64) -> Svg {
        Svg { width, body: String::new() }
    }

    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, anchor: Anchor, text: &str) {
        let (anchor, text) = (anchor.name(), escape(text));
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// A box; `hint` appears when it is pointed at.
    pub(super) fn rect(&mut self, at: (f64, f64), size: (f64, f64), class: &str, hint: &str) {
        let ((x, y), (w, h)) = (at, (size.0.max(0.0), size.1));
        let _ = write!(
            self.body,
            r#"<rect x="{x:.2}" y="{y:.1}" width="{w:.2}" height="{h:.1}" class="{class}">"#
        );
        let _ = writeln!(self.body, "<title>{}</title></rect>", escape(hint));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((a, b), (c, d)) = (from, to);
        let _ =
            writeln!(self.body, r#"<line x1="{a:.1}" y1="{b:.1}" x2="{c:.1}" y2="{d:.1}" class="{class}"/>"#);
    }

    pub(super) fn circle(&mut self, at: (f64, f64), radius: f64, class: &str, hint: &str) {
        let (x, y) = at;
        let _ = write!(self.body, r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" class="{class}">"#);
        let _ = writeln!(self.body, "<title>{}</title></circle>", escape(hint));
    }

    /// The mark of a published value: a diamond.
    pub(super) fn diamond(&mut self, at: (f64, f64), radius: f64, hint: &str) {
        let (x, y) = at;
        let (left, right, up, down) = (x - radius, x + radius, y - radius, y + radius);
        let path = format!("M{left:.1} {y:.1}L{x:.1} {up:.1}L{right:.1} {y:.1}L{x:.1} {down:.1}Z");
        let _ = write!(self.body, r#"<path d="{path}" class="published">"#);
        let _ = writeln!(self.body, "<title>{}</title></path>", escape(hint));
    }

    pub(super) fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, r#"<polyline points="{}" class="{class}"/>"#, points.join(" "));
    }

    /// The finished drawing, `height` high; `label` is for screen readers.
    pub(super) fn finish(self, height: f64, label: &str) -> String {
        let (w, h, label) = (self.width, height.ceil(), escape(label));
        format!(
            "<svg viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" aria-label=\"{label}\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n{}</svg>",
            self.body
        )
    }
}

/// What stands around a drawing that is a file of its own.
pub(super) struct Frame<'a> {
    pub(super) style: &'a str,
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
    /// Class and label of each kind of mark.
    pub(super) legend: Vec<(&'a str, &'a str)>,
}

/// A drawing as a file of its own: with style, title, legend and a plain background.
pub(super) fn standalone(svg: &str, frame: &Frame<'_>) -> String {
    let (open, body) = svg.split_once('\n').unwrap_or((svg, ""));
    let size = |name: &str| -> f64 {
        let after = open.split_once(&format!(" {name}=\"")).map_or("0", |(_, rest)| rest);
        after.split('"').next().and_then(|digits| digits.parse().ok()).unwrap_or(0.0)
    };
    let (width, height) = (size("width"), size("height"));
    let mut head = Svg::new(width);
    head.rect((0.0, 0.0), (34.0, 6.0), "flag", "");
    head.text(0.0, 34.0, "title", Anchor::Start, frame.title);
    head.text(0.0, 54.0, "subtitle", Anchor::Start, frame.subtitle);
    let (mut x, mut y) = (0.0, 78.0);
    for (class, label) in &frame.legend {
        // The width of a text is not known here; this is about it.
        let room = 38.0 + 7.0 * label.chars().count() as f64;
        if x > 0.0 && x + room > width {
            (x, y) = (0.0, y + 20.0);
        }
        match *class {
            "published" => head.diamond((x + 6.0, y - 4.5), 5.5, ""),
            "dot" | "dot2" => head.circle((x + 6.0, y - 4.5), 5.0, class, ""),
            _ => head.rect((x, y - 11.0), (13.0, 13.0), class, ""),
        }
        head.text(x + 19.0, y, "key", Anchor::Start, label);
        x += room;
    }
    let top = y + 18.0;
    let (full_width, full_height) = (width + 40.0, height + top + 20.0);
    format!(
        "<svg viewBox=\"0 0 {full_width} {full_height}\" width=\"{full_width}\" height=\"{full_height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n<style>{}</style>\n<rect width=\"100%\" height=\"100%\" class=\"page\"/>\n\
         <g transform=\"translate(20 0)\">\n{}<g transform=\"translate(0 {top})\">\n{}\n</g>\n</g>\n</svg>\n",
        frame.style,
        head.body,
        body.trim_end().trim_end_matches("</svg>")
    )
}

/// A scale from values to pixels, starting at 0, with round ticks.
pub(super) struct Scale {
    from: f64,
    pixels: f64,
    most: f64,
    step: f64,
}

impl Scale {
    /// A scale that reaches at least `most` over `pixels`, starting at pixel `from`, with about `ticks` ticks.
    pub(super) fn new(most: f64, from: f64, pixels: f64, ticks: f64) -> Scale {
        let most = if most > 0.0 { most } else { 1.0 };
        let rough = most / ticks;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough * 0.999);
        let step = step.unwrap_or(rough);
        Scale { from, pixels, most: (most / step).ceil() * step, step }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        self.from + value / self.most * self.pixels
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let (step, count) = (self.step, (self.most / self.step).round() as usize);
        (0..=count).map(move |i| i as f64 * step)
    }
}

/// A logarithmic scale from values to pixels.
pub(super) struct LogScale {
    from: f64,
    pixels: f64,
    least: f64,
    most: f64,
}

impl LogScale {
    /// A scale of the values from `range.0` to `range.1`, both positive, over `pixels` (which may be negative: upwards),
    /// starting at pixel `from`.
    pub(super) fn new(range: (f64, f64), from: f64, pixels: f64) -> LogScale {
        let (least, most) = range;
        assert!(least > 0.0 && most >= least, "a logarithmic scale from {least} to {most}");
        // A little room at both ends; and some range, where there is one value only.
        let room = (most / least).powf(0.04).max(1.02);
        LogScale { from, pixels, least: least / room, most: most * room }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        self.from + (value / self.least).ln() / (self.most / self.least).ln() * self.pixels
    }

    /// The powers of ten within, and, where these are few, twice and five times them; true for a power of ten.
    pub(super) fn decimal_ticks(&self) -> impl Iterator<Item = (f64, bool)> + use<> {
        let (least, most) = (self.least, self.most);
        let wide = most / least > 3000.0;
        let power = move |p: i32| {
            let one = 10f64.powi(p);
            [(one, true), (2.0 * one, false), (5.0 * one, false)].into_iter().filter(move |t| t.1 || !wide)
        };
        (least.log10().floor() as i32..=most.log10().ceil() as i32)
            .flat_map(power)
            .filter(move |(tick, _)| (least..=most).contains(tick))
    }

    /// The powers of two within.
    pub(super) fn binary_ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let (least, most) = (self.least, self.most);
        let powers = least.log2().ceil() as i32..=most.log2().floor() as i32;
        powers.map(|p| 2f64.powi(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_ticks_and_hold_the_most() {
        for most in [0.3, 7.0, 99.0, 100.0, 1234.0, 51_200.0] {
            let scale = Scale::new(most, 0.0, 100.0, 4.0);
            let last = scale.ticks().last().expect("ticks");
            assert!(last >= most && last < most * 1.6, "{most}: {last}");
            assert!((3..=6).contains(&scale.ticks().count()), "{most}");
            assert!((scale.at(last) - 100.0).abs() < 1e-9);
        }
    }

    #[test]
    fn logarithmic_scales_hold_their_values() {
        let scale = LogScale::new((4096.0, 4194304.0), 50.0, 500.0);
        assert!(scale.at(4096.0) > 50.0 && scale.at(4194304.0) < 550.0);
        let steps: Vec<f64> = scale.binary_ticks().map(|t| scale.at(t)).collect();
        assert_eq!(steps.len(), 11);
        assert!(steps.windows(3).all(|w| (w[2] - w[1] - (w[1] - w[0])).abs() < 1e-9), "equal ratios");
        let ticks: Vec<f64> = LogScale::new((11.0, 450.0), 0.0, 100.0).decimal_ticks().map(|t| t.0).collect();
        assert_eq!(ticks, [10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        let wide = LogScale::new((11.0, 45_000.0), 0.0, 100.0);
        assert!(wide.decimal_ticks().all(|(_, power_of_ten)| power_of_ten));
    }

    #[test]
    fn texts_are_escaped() {
        let mut svg = Svg::new(10.0);
        svg.text(0.0, 0.0, "x", Anchor::Start, "a<b & \"c\"");
        assert!(svg.finish(1.0, "").contains("a&lt;b &amp; &quot;c&quot;"));
    }
}
