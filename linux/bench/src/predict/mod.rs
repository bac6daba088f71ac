//! Whether messages take what their parts add up to.
//!
//! # What it holds
//! The parts of a calibration ([`parts`]), the sum that they make ([`formula`]), and the same messages as
//! [`bench()`] measures them, in several runs. A prediction agrees when it is within 15 % of the median of the runs, or
//! between their tenth and ninetieth percentiles.
//!
//! # What is promised
//! Some curves are promised to be predicted, others are not: what bytes take between the second-level cache and twice
//! the third depends on which lines the other core still has. Those are judged too, and told apart.

mod formula;
pub(crate) mod parts;

use crate::arguments::{clear, in_file, progress, say};
use crate::cell::{Method, Pattern, Wait};
use crate::error::{BenchError, Result};
use crate::raw;
use crate::report::{micros, plain};
use crate::run::{Options, bench};
use crate::series::{Report, Series, size};
use crate::surroundings::{Cache, Surroundings, caches};
use comfy_table::CellAlignment;
use formula::{Parts, break_even};
use pageferry::choose::{Nanos, Primitive};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::path::PathBuf;

/// What `host predict` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Prediction {
    /// Write a line for each point to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Runs in which messages are measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(3..=100))]
    runs: u16,
    /// Only these sizes, in kilobytes, ascending
    #[arg(long, value_name = "KB", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    sizes: Vec<u32>,
    /// Keep other programs off the CPUs during a turn, for which this user needs the right to be a realtime process
    #[arg(long)]
    quiet: bool,
}

/// One run: its parts, and the messages measured right after them.
struct Run {
    parts: Vec<Primitive>,
    /// One for each size.
    reports: Vec<Report>,
}

impl Run {
    fn series(&self, method: Method, pattern: Pattern, bytes: usize) -> Option<(&Report, &Series)> {
        self.reports.iter().find_map(|of| Some((of, of.series(method, bytes, pattern, Wait::Spin)?)))
    }

    fn median(&self, method: Method, pattern: Pattern, bytes: usize) -> Option<f64> {
        let (_, series) = self.series(method, pattern, bytes)?;
        Some(crate::stats::median(&mut series.nanos.clone()))
    }
}

/// How far a prediction may be off.
const MARGIN: f64 = 0.15;

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;
/// Small sizes are close together, for there a loan and a copy break even.
const SIZES: [usize; 8] = [64 * KB, 128 * KB, 256 * KB, 512 * KB, MB, 4 * MB, 16 * MB, 64 * MB];
const METHODS: [Method; 5] =
    [Method::Typed, Method::Loan, Method::Donate, Method::CopyBuffer, Method::Resent];
/// The largest message of which the receiver writes.
const MAX_WRITTEN: usize = 4 * MB;

/// What was predicted, and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// CPU, kernel and day.
    pub host: String,
    /// To which curve it belongs.
    pub curve: &'static str,
    /// How the message goes.
    pub method: &'static str,
    /// What is done to it.
    pub pattern: &'static str,
    /// Bytes of the message; 0 where the size is what is predicted.
    pub bytes: usize,
    /// Of what: `us`, `floors` or `KB`.
    pub unit: &'static str,
    /// The sum of the parts, the median of the runs; none where there is no such size.
    pub predicted: Option<f64>,
    /// What the intervals of the parts make of it.
    pub predicted_low: Option<f64>,
    /// The other end.
    pub predicted_high: Option<f64>,
    /// The median of the runs.
    pub measured: Option<f64>,
    /// Their tenth percentile.
    pub measured_p10: Option<f64>,
    /// Their ninetieth percentile.
    pub measured_p90: Option<f64>,
    /// How much more was predicted than measured, as a part of that: the median of the runs.
    pub off: Option<f64>,
    /// Whether the curve is one that the parts are to predict.
    pub promised: bool,
    /// Whether the two agree.
    pub agrees: bool,
}

/// A part of sorted values, between them in proportion.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// A point in one run.
#[derive(Clone, Copy)]
struct Pair {
    predicted: Option<Nanos>,
    measured: Option<f64>,
}

struct Curve {
    name: &'static str,
    unit: &'static str,
    promised: bool,
}

fn point(
    Curve { name, unit, promised }: Curve,
    (method, pattern, bytes): (Method, Pattern, usize),
    runs: &[Pair],
) -> Point {
    let middle = |values: &[Option<f64>]| -> Option<[f64; 3]> {
        let mut sorted: Vec<f64> = values.iter().flatten().copied().collect();
        sorted.sort_by(f64::total_cmp);
        // Where most runs have found nothing, there is nothing.
        (2 * sorted.len() > values.len()).then(|| [0.1, 0.5, 0.9].map(|part| quantile(&sorted, part)))
    };
    let all = |of: fn(&Pair) -> Option<f64>| middle(&runs.iter().map(of).collect::<Vec<_>>());
    let predicted = all(|run| run.predicted.map(|time| time.median));
    let measured = all(|run| run.measured);
    // The host may be another in the next run: what is compared was measured within a minute.
    let off = all(|run| Some(run.predicted?.median / run.measured? - 1.0));
    let agrees = match (predicted, measured, off) {
        (Some([_, predicted, _]), Some([p10, _, p90]), Some([_, off, _])) => {
            off.abs() <= MARGIN || (p10..=p90).contains(&predicted)
        }
        (None, None, _) => true,
        _ => false,
    };
    Point {
        host: String::new(),
        curve: name,
        method: method.name(),
        pattern: pattern.name(),
        bytes,
        unit,
        predicted: predicted.map(|[_, median, _]| median),
        predicted_low: all(|run| run.predicted.map(|time| time.low)).map(|[_, low, _]| low),
        predicted_high: all(|run| run.predicted.map(|time| time.high)).map(|[_, high, _]| high),
        measured: measured.map(|[_, median, _]| median),
        measured_p10: measured.map(|[p10, ..]| p10),
        measured_p90: measured.map(|[.., p90]| p90),
        off: off.map(|[_, off, _]| off),
        promised,
        agrees,
    }
}

fn scaled(time: Nanos, by: f64) -> Nanos {
    Nanos { median: time.median * by, low: time.low * by, high: time.high * by }
}

/// All points of which something was measured.
fn points(runs: &[Run], sizes: &[usize], caches: &[Cache]) -> Vec<Point> {
    let mut all = Vec::new();
    let mut add = |curve: Curve, of: (Method, Pattern, usize), pair: &dyn Fn(&Run) -> Pair| {
        let pairs: Vec<_> = runs.iter().map(pair).collect();
        if pairs.iter().any(|pair| pair.predicted.is_some() && pair.measured.is_some()) {
            all.push(point(curve, of, &pairs));
        }
    };
    let micros = |method, pattern, bytes| {
        move |run: &Run| Pair {
            predicted: Parts(&run.parts).predict(method, pattern, bytes).map(|time| scaled(time, 1e-3)),
            measured: run.median(method, pattern, bytes).map(|nanos| nanos / 1e3),
        }
    };
    for method in [Method::Typed, Method::Loan, Method::Donate, Method::Resent] {
        for &bytes in sizes {
            let curve = Curve { name: "untouched, by level", unit: "us", promised: true };
            let of = (method, Pattern::Untouched, bytes);
            add(curve, of, &micros(method, Pattern::Untouched, bytes));
        }
    }
    for &bytes in sizes {
        // The slots that rotate, and the copy.
        let touched = 3 * bytes;
        let promised = caches.iter().any(|cache| match cache.level {
            2 => touched <= cache.bytes,
            3 => touched >= 4 * cache.bytes,
            _ => false,
        });
        let name = if promised { "copies, within L2 and beyond 4 x L3" } else { "copies, between" };
        let of = (Method::CopyBuffer, Pattern::Untouched, bytes);
        add(Curve { name, unit: "us", promised }, of, &micros(Method::CopyBuffer, Pattern::Untouched, bytes));
    }
    for pattern in [Pattern::Read, Pattern::Refilled] {
        for method in METHODS {
            for &bytes in sizes {
                let curve = Curve { name: "ratios to the floor", unit: "floors", promised: true };
                add(curve, (method, pattern, bytes), &|run| {
                    let parts = Parts(&run.parts);
                    let floor = parts.predict(Method::Floor, pattern, bytes);
                    let time = parts.predict(method, pattern, bytes);
                    let found = run.series(method, pattern, bytes);
                    Pair {
                        predicted: time.zip(floor).map(ratio),
                        measured: found.and_then(|(report, series)| Some(report.ratios(series)?.median)),
                    }
                });
            }
        }
    }
    for pattern in [Pattern::OneWord, Pattern::AllPages] {
        for &bytes in sizes.iter().filter(|&&bytes| bytes <= MAX_WRITTEN) {
            let curve = Curve { name: "the receiver writes", unit: "us", promised: true };
            add(curve, (Method::Loan, pattern, bytes), &micros(Method::Loan, pattern, bytes));
        }
    }
    for pattern in [Pattern::Read, Pattern::Refilled] {
        for &bytes in sizes {
            let curve = Curve { name: "bytes alone, across cores", unit: "us", promised: false };
            add(curve, (Method::Floor, pattern, bytes), &micros(Method::Floor, pattern, bytes));
        }
    }
    for pattern in [Pattern::Untouched, Pattern::Read, Pattern::Refilled] {
        let times = |method, of: &dyn Fn(Method, usize) -> Option<f64>| -> Option<Vec<f64>> {
            sizes.iter().map(|&bytes| of(method, bytes)).collect()
        };
        let breaks = |of: &dyn Fn(Method, usize) -> Option<f64>| {
            let at = break_even(sizes, &times(Method::Loan, of)?, &times(Method::CopyBuffer, of)?)?;
            Some(at / KB as f64)
        };
        let pairs: Vec<_> = runs
            .iter()
            .map(|run| {
                let parts = Parts(&run.parts);
                let predicted = breaks(&|method, bytes| Some(parts.predict(method, pattern, bytes)?.median));
                Pair {
                    predicted: predicted.map(|at| Nanos { median: at, low: at, high: at }),
                    measured: breaks(&|method, bytes| run.median(method, pattern, bytes)),
                }
            })
            .collect();
        let curve = Curve { name: "a loan and a copy break even", unit: "KB", promised: true };
        all.push(point(curve, (Method::Loan, pattern, 0), &pairs));
    }
    all
}

/// Most of both is the same bytes, so their errors go together.
fn ratio((time, floor): (Nanos, Nanos)) -> Nanos {
    let of = [time.low / floor.low, time.median / floor.median, time.high / floor.high];
    Nanos {
        median: of[1],
        low: of.into_iter().fold(f64::INFINITY, f64::min),
        high: of.into_iter().fold(0.0, f64::max),
    }
}

fn text(surroundings: &Surroundings, points: &[Point]) -> String {
    use core::fmt::Write as _;
    let mut text = format!("{surroundings}\n");
    let mut curves: Vec<(&str, bool)> = Vec::new();
    for point in points {
        if !curves.contains(&(point.curve, point.promised)) {
            curves.push((point.curve, point.promised));
        }
    }
    for (curve, promised) in curves {
        let here: Vec<_> = points.iter().filter(|point| point.curve == curve).collect();
        let agree = here.iter().filter(|point| point.agrees).count();
        let promise = if promised { "" } else { "; not promised" };
        let _ = writeln!(text, "\n{curve}: {agree} of {}{promise}", here.len());
        let mut table = plain();
        table.set_header(["", "", "", "predicted", "measured [p10, p90]", "", ""]);
        for point in here {
            let number = |value: Option<f64>| match value {
                None => "none".to_owned(),
                Some(value) if point.unit == "us" => micros(value * 1e3),
                Some(value) if value < 100.0 => format!("{value:.2}"),
                Some(value) => format!("{value:.0}"),
            };
            let measured = match (point.measured_p10, point.measured_p90) {
                (Some(p10), Some(p90)) => {
                    format!("{} [{}, {}]", number(point.measured), number(Some(p10)), number(Some(p90)))
                }
                _ => number(None),
            };
            let off = match (point.predicted, point.measured) {
                (Some(predicted), Some(measured)) => {
                    format!("{:+.0} %", 100.0 * (predicted / measured - 1.0))
                }
                _ => String::new(),
            };
            let at = if point.bytes == 0 { String::new() } else { size(point.bytes) };
            table.add_row([
                point.method.to_owned(),
                point.pattern.to_owned(),
                at,
                format!("{} {}", number(point.predicted), point.unit),
                measured,
                off,
                if point.agrees { "agrees" } else { "differs" }.to_owned(),
            ]);
        }
        for column in 2..6 {
            table.column_mut(column).expect("there are seven").set_cell_alignment(CellAlignment::Right);
        }
        let _ = writeln!(text, "{table}");
    }
    let promised: Vec<_> = points.iter().filter(|point| point.promised).collect();
    let agree = promised.iter().filter(|point| point.agrees).count();
    let _ = writeln!(
        text,
        "\n{agree} of {} points that are promised are within 15 %, or within the spread of the runs.",
        promised.len()
    );
    text
}

impl Prediction {
    /// Measures parts and messages, and prints both. `peer`: the arguments with which this program calls
    /// [`crate::PeerArguments::run`].
    pub fn run(&self, peer: Vec<OsString>) -> Result<()> {
        if raw::cpus()?.len() < 2 {
            return Err(BenchError::Usage(
                "messages are predicted between two CPUs, and this process may use one".to_owned(),
            ));
        }
        let sizes: Vec<usize> = match self.sizes.is_empty() {
            true => SIZES.to_vec(),
            false => self.sizes.iter().map(|&kilobytes| kilobytes as usize * KB).collect(),
        };
        if let Some(pair) = sizes.windows(2).find(|pair| pair[0] >= pair[1]) {
            let (one, next) = (pair[0] / KB, pair[1] / KB);
            return Err(BenchError::Usage(format!(
                "--sizes: expected ascending sizes, and {next} comes after {one}"
            )));
        }
        let options = Options {
            sizes: sizes.clone(),
            methods: METHODS.to_vec(),
            waits: vec![Wait::Spin],
            max_written: MAX_WRITTEN,
            realtime: self.quiet,
            ..Options::new(peer).quick()
        };
        let mut told = |bytes: usize| {
            let (begin, end) = if stderr().is_terminal() { ("\r\u{1b}[K", "") } else { ("", "\n") };
            let _ = write!(stderr().lock(), "{begin}parts of messages of {}{end}", size(bytes));
        };
        let surroundings = Surroundings::get();
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            // What is compared is measured within seconds: the host may be another in the next minute.
            let mut run = Run { parts: Vec::new(), reports: Vec::new() };
            for &bytes in &sizes {
                run.parts.extend(parts::measure(&[bytes], self.quiet, &mut told)?);
                run.reports.push(bench(&Options { sizes: vec![bytes], ..options.clone() }, &mut progress)?);
            }
            runs.push(run);
        }
        clear();
        let mut points = points(&runs, &sizes, &caches());
        let Surroundings { cpu, kernel, .. } = &surroundings;
        let host = format!("{cpu}, Linux {kernel}, {}", crate::calibrate::today());
        points.iter_mut().for_each(|point| point.host.clone_from(&host));
        if let Some(path) = &self.csv {
            let write = || -> std::io::Result<()> {
                let mut csv = csv::Writer::from_path(path)?;
                points.iter().try_for_each(|point| csv.serialize(point)).map_err(std::io::Error::other)?;
                csv.flush()
            };
            write().map_err(|error| in_file(path, &error))?;
        }
        say(&text(&surroundings, &points))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(predicted: Option<f64>, runs: &[Option<f64>]) -> bool {
        let curve = Curve { name: "", unit: "us", promised: true };
        let predicted = predicted.map(|median| Nanos { median, low: median, high: median });
        let pair = |&measured: &Option<f64>| Pair { predicted, measured };
        let runs: Vec<_> = runs.iter().map(pair).collect();
        point(curve, (Method::Loan, Pattern::Read, 1), &runs).agrees
    }

    #[test]
    fn a_prediction_agrees_within_the_margin_or_the_spread() {
        let steady = [Some(100.0); 5];
        assert!(of(Some(114.0), &steady) && of(Some(86.0), &steady));
        assert!(!of(Some(116.0), &steady) && !of(Some(84.0), &steady));
        let wide = [Some(50.0), Some(60.0), Some(100.0), Some(150.0), Some(160.0)];
        assert!(of(Some(140.0), &wide) && !of(Some(158.0), &wide));
        assert!(of(None, &[None; 5]) && !of(Some(1.0), &[None; 5]) && !of(None, &steady));
    }
}
