//! Drawing: the few shapes that the figures are made of.
//!
//! Colours and type are classes, given meaning by the style sheet of the page (or, for files of their own, by
//! [`standalone`]), so that one drawing serves light and dark pages. Coordinates are pixels of the drawing's own size;
//! every figure is drawn twice, for wide and for narrow pages, so that its text is never scaled and of one size
//! everywhere.

use super::looks::{Look, Mark};
use std::f64::consts::{PI, TAU};
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
            Width::Narrow => 326.0,
        }
    }
}

/// About how wide a text of `chars` characters is.
pub(super) fn text_pixels(chars: usize) -> f64 {
    7.0 * chars as f64
}

/// `text` in lines of at most `pixels`, broken between words.
pub(super) fn wrapped(text: &str, pixels: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        let chars = line.chars().count() + 1 + word.chars().count();
        if line.is_empty() {
            line.push_str(word);
        } else if text_pixels(chars) <= pixels {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
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

    /// The mark of a series.
    pub(super) fn mark(&mut self, at: (f64, f64), radius: f64, look: &Look, hint: &str) {
        let Look { colour, mark, hollow, .. } = *look;
        let class = if hollow { format!("mark hollow s-{colour}") } else { format!("mark f-{colour}") };
        match outline(mark) {
            None => self.circle(at, radius, &class, hint),
            Some(points) => self.polygon(at, radius, &points, &class, hint),
        }
    }

    /// The mark of a published value: a diamond, with the mark of its series in it.
    pub(super) fn published(&mut self, at: (f64, f64), look: &Look, hint: &str) {
        let diamond = [(-1.0, 0.0), (0.0, -1.0), (1.0, 0.0), (0.0, 1.0)];
        self.polygon(at, 8.0, &diamond, "published", hint);
        self.mark(at, 2.8, look, hint);
    }

    fn polygon(&mut self, at: (f64, f64), radius: f64, points: &[(f64, f64)], class: &str, hint: &str) {
        let place = |(x, y): &(f64, f64)| format!("{:.1},{:.1}", at.0 + x * radius, at.1 + y * radius);
        let points: Vec<String> = points.iter().map(place).collect();
        let _ = write!(self.body, r#"<polygon points="{}" class="{class}">"#, points.join(" "));
        let _ = writeln!(self.body, "<title>{}</title></polygon>", escape(hint));
    }

    /// A line through `points`, in the colour and the dashes of its series.
    pub(super) fn trend(&mut self, points: &[(f64, f64)], look: &Look) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if look.dash.is_empty() {
            String::new()
        } else {
            format!(r#" stroke-dasharray="{}""#, look.dash)
        };
        let (points, colour) = (points.join(" "), look.colour);
        let _ = writeln!(self.body, r#"<polyline points="{points}" class="trend s-{colour}"{dash}/>"#);
    }

    /// A bar straight up or across, with a stroke at each end: an interval.
    pub(super) fn whisker(&mut self, from: (f64, f64), to: (f64, f64), look: &Look) {
        const HALF: f64 = 4.0;
        let class = format!("whisker s-{}", look.colour);
        let (dx, dy) = if from.0 == to.0 { (HALF, 0.0) } else { (0.0, HALF) };
        self.line(from, to, &class);
        for (x, y) in [from, to] {
            self.line((x - dx, y - dy), (x + dx, y + dy), &class);
        }
    }

    /// What is drawn from here to [`Svg::end_link`] leads to `target`, an id of the page.
    pub(super) fn begin_link(&mut self, target: &str) {
        let _ = writeln!(self.body, r##"<a href="#{}">"##, escape(target));
    }

    pub(super) fn end_link(&mut self) {
        self.body.push_str("</a>\n");
    }

    /// What was drawn, without a frame.
    pub(super) fn into_body(self) -> String {
        self.body
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

/// The corners of a mark of radius 1; none for a circle. All look about equally large.
fn outline(mark: Mark) -> Option<Vec<(f64, f64)>> {
    let regular = |corners: usize, first: f64, radius: f64| {
        let corner = move |i: usize| {
            let angle = first + TAU * i as f64 / corners as f64;
            (radius * angle.cos(), radius * angle.sin())
        };
        Some((0..corners).map(corner).collect())
    };
    let spokes = |corners: usize, first: f64, inner: f64| {
        let corner = move |i: usize| {
            let angle = first + PI * i as f64 / corners as f64;
            let radius = if i.is_multiple_of(2) { 1.35 } else { inner };
            (radius * angle.cos(), radius * angle.sin())
        };
        Some((0..2 * corners).map(corner).collect())
    };
    match mark {
        Mark::Circle => None,
        Mark::Square => regular(4, PI / 4.0, 1.25),
        Mark::Up => regular(3, -PI / 2.0, 1.35),
        Mark::Down => regular(3, PI / 2.0, 1.35),
        Mark::Left => regular(3, PI, 1.35),
        Mark::Right => regular(3, 0.0, 1.35),
        Mark::Pentagon => regular(5, -PI / 2.0, 1.2),
        Mark::Star => spokes(5, -PI / 2.0, 0.55),
        Mark::Cross => Some(plus(PI / 4.0)),
        Mark::Plus => Some(plus(0.0)),
    }
}

/// A plus with thick arms, turned by `angle`.
fn plus(angle: f64) -> Vec<(f64, f64)> {
    let (a, b) = (0.42, 1.3);
    let corners = [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a)];
    let (sin, cos) = angle.sin_cos();
    let half = corners.iter().copied();
    // The other half is the first, turned around.
    let all = half.clone().chain(half.map(|(x, y)| (-x, -y)));
    all.map(|(x, y)| (x * cos - y * sin, x * sin + y * cos)).collect()
}

/// What stands around a drawing that is a file of its own.
pub(super) struct Frame<'a> {
    pub(super) style: &'a str,
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
    /// Sample and label of each kind of mark.
    pub(super) legend: Vec<(&'a str, &'a str)>,
    /// The page that its links are of.
    pub(super) page: &'a str,
}

/// A drawing as a file of its own: with style, title, legend and a plain background. Its links lead into the report.
pub(super) fn standalone(svg: &str, frame: &Frame<'_>) -> String {
    let (open, body) = svg.split_once('\n').unwrap_or((svg, ""));
    let size = |name: &str| -> f64 {
        let after = open.split_once(&format!(" {name}=\"")).map_or("0", |(_, rest)| rest);
        after.split('"').next().and_then(|digits| digits.parse().ok()).unwrap_or(0.0)
    };
    let (width, height) = (size("width"), size("height"));
    let mut head = Svg::new(width);
    head.rect((0.0, 0.0), (34.0, 6.0), "flag", "");
    let mut y = 12.0;
    // Its letters are larger.
    for line in wrapped(frame.title, 0.7 * width) {
        y += 22.0;
        head.text(0.0, y, "title", Anchor::Start, &line);
    }
    y += 20.0;
    for line in wrapped(frame.subtitle, width) {
        head.text(0.0, y, "subtitle", Anchor::Start, &line);
        y += 17.0;
    }
    let mut x = 0.0;
    y += 8.0;
    for (sample, label) in &frame.legend {
        let room = KEY_PIXELS.0 + 22.0 + text_pixels(label.chars().count());
        if x > 0.0 && x + room > width {
            (x, y) = (0.0, y + 20.0);
        }
        let _ = writeln!(head.body, r#"<g transform="translate({x} {})">{sample}</g>"#, y - 12.0);
        head.text(x + KEY_PIXELS.0 + 6.0, y, "key", Anchor::Start, label);
        x += room;
    }
    let top = y + 18.0;
    let (full_width, full_height) = (width + 40.0, height + top + 20.0);
    format!(
        "<svg viewBox=\"0 0 {full_width} {full_height}\" width=\"{full_width}\" height=\"{full_height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n\
         <style>{}</style>\n\
         <rect width=\"100%\" height=\"100%\" class=\"page\"/>\n\
         <g transform=\"translate(20 0)\">\n\
         {}<g transform=\"translate(0 {top})\">\n\
         {}\n\
         </g>\n\
         </g>\n\
         </svg>\n",
        frame.style,
        head.body,
        body.trim_end()
            .trim_end_matches("</svg>")
            .replace("<a href=\"#", &format!("<a href=\"{}#", frame.page))
    )
}

/// The size of a sample in a legend.
pub(super) const KEY_PIXELS: (f64, f64) = (36.0, 16.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut svg = Svg::new(10.0);
        svg.text(0.0, 0.0, "x", Anchor::Start, "a<b & \"c\"");
        assert!(svg.finish(1.0, "").contains("a&lt;b &amp; &quot;c&quot;"));
    }

    #[test]
    fn lines_break_between_words() {
        let lines = wrapped("a few words and more of them", text_pixels(11));
        assert_eq!(lines, ["a few words", "and more of", "them"]);
        assert_eq!(wrapped("unbreakable", 1.0), ["unbreakable"]);
    }
}
