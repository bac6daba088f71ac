//! A real host: what messages of the library for Linux take there, beside the sum of their parts.
//!
//! # What it holds
//! A file of `pageferry host predict --csv` for each host that was measured, as part of the program. Nothing of it is
//! measured while a report is made: a report is the same everywhere.

use super::curve::{Axes, Curve};
use super::curves::{chart, table};
use super::data;
use super::figure::{Figure, Key, both};
use super::headline::{of_curves, titled};
use super::looks::Looks;
use pageferry_lab::plot::Axis;
use pageferry_lab::text::{number, report_unit, size};
use serde::{Deserialize, Serialize};

const FILES: [&str; 1] = [include_str!("../hosts/epyc.csv")];

/// A line of such a file.
#[derive(Clone, Debug, Deserialize)]
struct Point {
    host: String,
    curve: String,
    method: String,
    pattern: String,
    bytes: u64,
    unit: String,
    predicted: Option<f64>,
    measured: Option<f64>,
    measured_p10: Option<f64>,
    measured_p90: Option<f64>,
    off: Option<f64>,
    promised: bool,
    agrees: bool,
}

/// The experiment of the figures.
const EXPERIMENT: &str = "real";

/// A host, and its points by curve.
#[derive(Serialize)]
pub(super) struct RealHost<'a> {
    name: String,
    /// Points that are promised: how many agree, and how many there are.
    promised: (usize, usize),
    curves: Vec<CurveRow>,
    figures: Vec<&'a Figure>,
}

/// A curve: how many of its points agree.
#[derive(Serialize)]
struct CurveRow {
    name: String,
    promised: bool,
    agree: usize,
    rows: Vec<PointRow>,
}

#[derive(Serialize)]
struct PointRow {
    what: String,
    predicted: String,
    measured: String,
    spread: String,
    off: String,
    agrees: bool,
}

/// All hosts, with their figures, which are among `figures`.
pub(super) fn hosts(figures: &[Figure]) -> Vec<RealHost<'_>> {
    FILES.iter().map(|text| host(&points(text), figures)).collect()
}

/// The figures of all hosts.
pub(super) fn figures(looks: &Looks) -> Vec<Figure> {
    FILES.iter().flat_map(|text| drawn(&points(text), looks)).collect()
}

fn points(text: &str) -> Vec<Point> {
    let points: Result<_, _> = csv::Reader::from_reader(text.as_bytes()).deserialize().collect();
    points.expect("the files are part of the program, and a test reads them")
}

fn host<'a>(points: &[Point], figures: &'a [Figure]) -> RealHost<'a> {
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.curve.as_str()) {
            names.push(&point.curve);
        }
    }
    let curve = |name: &&str| {
        let here: Vec<_> = points.iter().filter(|point| point.curve == **name).collect();
        CurveRow {
            name: (*name).to_owned(),
            promised: here.iter().all(|point| point.promised),
            agree: here.iter().filter(|point| point.agrees).count(),
            rows: here.into_iter().map(row).collect(),
        }
    };
    let promised = points.iter().filter(|point| point.promised);
    RealHost {
        name: points.first().map_or(String::new(), |point| point.host.clone()),
        promised: (promised.clone().filter(|point| point.agrees).count(), promised.count()),
        curves: names.iter().map(curve).collect(),
        figures: figures.iter().filter(|figure| figure.experiment == EXPERIMENT).collect(),
    }
}

fn row(point: &Point) -> PointRow {
    let value = |value: Option<f64>| match value {
        None => "none".to_owned(),
        Some(value) => {
            let (unit, by) = report_unit(&point.unit);
            format!("{} {unit}", number(value * by))
        }
    };
    let spread = match (point.measured_p10, point.measured_p90) {
        (Some(p10), Some(p90)) => format!("{} to {}", number(p10), number(p90)),
        _ => String::new(),
    };
    let at = if point.bytes > 0 { format!(", {}", size(point.bytes as f64)) } else { String::new() };
    PointRow {
        what: format!("{}, {}{at}", point.method, point.pattern),
        predicted: value(point.predicted),
        measured: value(point.measured),
        spread,
        off: point.off.map_or(String::new(), |off| format!("{:+.0} %", 100.0 * off).replace('-', "−")),
        agrees: point.agrees,
    }
}

/// What is drawn: the curve of the file, what is done to messages, and the figure's title.
const DRAWN: [(&str, &str, &str, &str); 3] = [
    ("untouched, by level", "untouched", "real-untouched", "Messages that nobody touches"),
    (
        "ratios to the floor",
        "read whole, re-sent",
        "real-read",
        "Messages that are read whole and sent again",
    ),
    (
        "ratios to the floor",
        "refilled + read",
        "real-refilled",
        "Messages that are filled anew and read whole",
    ),
];

/// Methods of the file: their names here, and the series whose looks they have.
const METHODS: [(&str, &str, &str); 4] = [
    ("copy from a slot", "copy", "copy"),
    ("loan (mmu)", "loan", "loan"),
    ("donate", "donation", "pass"),
    ("loan (typed)", "loan, not protected", "map"),
];

fn drawn(points: &[Point], looks: &Looks) -> Vec<Figure> {
    let figure = |&(curve, pattern, id, title): &(&str, &str, &str, &str)| {
        let line = |&(method, name, series): &(&str, &str, &str)| {
            // Copies of what nobody touches have curves of their own.
            let is_it = |point: &&Point| {
                let same = (point.method.as_str(), point.pattern.as_str()) == (method, pattern);
                same && point.bytes > 0 && (point.curve == curve || point.curve.starts_with("copies"))
            };
            let here: Vec<_> = points.iter().filter(is_it).collect();
            let of = |value: fn(&Point) -> Option<f64>| {
                let mut of: Vec<_> =
                    here.iter().filter_map(|point| Some((point.bytes as f64, value(point)?))).collect();
                of.sort_by(|a, b| a.0.total_cmp(&b.0));
                of
            };
            Curve {
                look: looks.look(series),
                name: name.to_owned(),
                points: of(|point| point.predicted),
                intervals: Vec::new(),
                beside: of(|point| point.measured),
                beside_is: "measured",
            }
        };
        let curves: Vec<_> = METHODS.iter().map(line).filter(|curve| !curve.points.is_empty()).collect();
        let unit = points.iter().find(|point| point.curve == curve)?.unit.clone();
        let up = match unit.as_str() {
            "us" => Axis::log("time of a message", "µs"),
            _ => Axis::log("time of a message", "times that of plain shared memory"),
        };
        let axes = Axes { across: Axis::log("size", "bytes"), bytes: true, up };
        let mut xs: Vec<f64> = curves.iter().flat_map(|c| &c.points).map(|p| p.0).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let (wide, narrow) = both(|width| chart(width, &curves, &axes, title));
        let lines = curves.iter().map(|c| Key::line(&c.look, &format!("{}, predicted", c.name)));
        let marks = curves.iter().map(|c| Key::beside("measured", &c.look, &c.name));
        Some(Figure {
            id: id.into(),
            experiment: EXPERIMENT.into(),
            title: titled(title, of_curves(&curves, &axes)),
            subtitle: "Between two processes that spin, each on a CPU of its own; by size".into(),
            wide,
            narrow,
            legend: lines.chain(marks).collect(),
            note: "Predicted: the lines of the ring, the calls of both sides in one thread, and the bytes as two \
                   threads move them by turns, added up. Nothing is fitted."
                .into(),
            table: table(&curves, &xs, &axes),
            data: data::of_curves(&curves, &axes),
        })
    };
    DRAWN.iter().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_every_point_is_judged_by_its_numbers() {
        for text in FILES {
            let points = points(text);
            assert!(points.iter().filter(|point| point.promised).count() >= 60);
            for point in &points {
                let within = point.off.is_some_and(|off| off.abs() <= 0.15);
                let spread = (point.measured_p10, point.measured_p90, point.predicted);
                let inside = matches!(spread, (Some(p10), Some(p90), Some(of)) if (p10..=p90).contains(&of));
                let neither = point.predicted.is_none() && point.measured.is_none();
                assert_eq!(point.agrees, within || inside || neither, "{point:?}");
            }
        }
    }
}
