//! Curves over a parameter that varies: what an experiment's file says of them, drawn on logarithmic axes, or across
//! from 0.
//!
//! One figure for each machine, one line for each data set; where the parameter has one value only, a bar for each.
//! Published values are marked where a comparison names the same data set and one value of the parameter; a line
//! without a mark has nothing published to be held against, or what was published is held out.

use super::charts::bars;
use super::curve::{Axes, Curve};
use super::data::{self, Table};
use super::figure::{Figure, Key, both};
use super::headline::{of_crossovers, of_curves, titled};
use super::looks::Looks;
use super::scale::{LogScale, Scale};
use super::svg::{Anchor, Svg, Width, text_pixels};
use super::then_now::place;
use pageferry_lab::files::{Compare, CurveLine, Curves, Experiment, How, MachineChoice};
use pageferry_lab::judge::{Crossover, Reproduction, spreads};
use pageferry_lab::plot::{Axis, Bar, Group};
use pageferry_lab::{Spread, text};
use std::cell::Cell;

/// What is said of bars through points, of which the one with the fewest repeats has so many.
fn whiskers(fewest: usize) -> &'static str {
    if fewest < Spread::MIN_FOR_INTERVAL {
        "A bar through a point goes from the lowest to the highest of its repeats, which are too few to say how sure \
         the median is; where there is none, all repeats gave the same."
    } else {
        "A bar through a point goes from end to end of an interval that holds the true median in at least 93 of 100 \
         such sets of repeats; where there is none, all repeats gave the same."
    }
}

/// The figures of `experiment`, if it has curves and their runs were made.
pub(super) fn figures(of: &Reproduction, experiment: &Experiment, looks: &Looks) -> Vec<Figure> {
    let mut found = Vec::new();
    for (n, curves) in experiment.file.curves.iter().enumerate() {
        for machine in of.machines_of(&experiment.name) {
            found.extend(figure(of, experiment, curves, machine, looks).map(|figure| match n {
                0 => figure,
                // What is drawn over something else has its own name.
                _ => Figure { id: format!("{}-{}", figure.id, curves.x.replace(['.', '_'], "-")), ..figure },
            }));
        }
    }
    found
}

fn figure(
    of: &Reproduction,
    experiment: &Experiment,
    curves: &Curves,
    machine: &MachineChoice,
    looks: &Looks,
) -> Option<Figure> {
    let (unit, across_by) = text::report_unit(experiment.file.unit(&curves.x));
    let (_, up_by) = text::report_unit(metric_unit(of, curves));
    let in_units = |points: Vec<(f64, f64)>| {
        points.into_iter().map(|(x, value)| (x * across_by, value * up_by)).collect::<Vec<_>>()
    };
    let fewest = Cell::new(usize::MAX);
    let line = |line: &CurveLine| {
        let all = spreads(of.records(), &experiment.name, curves, &machine.name, line);
        let repeats = all.iter().filter(|(_, spread)| !spread.is_exact()).map(|(_, spread)| spread.repeats);
        fewest.set(repeats.fold(fewest.get(), usize::min));
        let differ = all.iter().filter_map(|(x, spread)| {
            let scaled = Spread { low: spread.low * up_by, high: spread.high * up_by, ..*spread };
            scaled.told().map(|_| (x * across_by, (scaled.low, scaled.high)))
        });
        Curve {
            look: looks.look(&line.name),
            name: line.name.clone(),
            intervals: differ.collect(),
            points: in_units(all.into_iter().map(|(x, spread)| (x, spread.median)).collect()),
            beside: in_units(published(of, experiment, curves, machine, line)),
            beside_is: "published",
        }
    };
    let drawn: Vec<Curve> = curves.lines.iter().map(line).filter(|c| !c.points.is_empty()).collect();
    let mut xs: Vec<f64> = drawn.iter().flat_map(|c| &c.points).map(|p| p.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let label = format!("{} on {}", curves.title, machine.config.title);
    // Nothing is at no distance on a logarithmic axis.
    let across = if xs.first() == Some(&0.0) { Axis::linear } else { Axis::log };
    let axes = Axes {
        across: across(&Axis::name_of(&curves.x), unit),
        bytes: unit == "bytes",
        up: up(of, curves, Axis::log),
    };
    let (wide, narrow) = match xs.as_slice() {
        [] => return None,
        [_] => both(|width| at_one_place(width, looks, &drawn, &up(of, curves, Axis::linear), &label)),
        _ => both(|width| chart(width, &drawn, &axes, &label)),
    };
    let one = xs.len() == 1;
    let key = |c: &Curve| if one { Key::bar(&c.look, &c.name) } else { Key::line(&c.look, &c.name) };
    let is_here = |c: &&Crossover| {
        let drawn = drawn.iter().any(|curve| curve.name == c.mechanism);
        drawn && (&c.experiment, &c.machine, &c.x) == (&experiment.name, &machine.name, &curves.x)
    };
    let crossovers: Vec<&Crossover> = of.crossovers.iter().filter(is_here).collect();
    let finding = of_crossovers(&crossovers, |x| place(x, experiment.file.unit(&curves.x)));
    let finding = finding.or_else(|| of_curves(&drawn, &axes));
    let marked = drawn.iter().filter(|c| !c.beside.is_empty());
    let mut legend: Vec<Key> =
        drawn.iter().map(key).chain(marked.map(|c| Key::published(&c.look, &c.name))).collect();
    let mut note = curves.note.clone();
    if drawn.iter().any(|c| !c.intervals.is_empty()) {
        legend.push(Key::interval(fewest.get()));
        note = format!("{note} {}", whiskers(fewest.get())).trim_start().to_owned();
    }
    Some(Figure {
        id: format!("{}-{}", experiment.name, machine.name),
        experiment: experiment.name.clone(),
        title: titled(&format!("{}, {}", curves.title, machine.name), finding),
        subtitle: format!("{}; {}", curves.subtitle, machine.config.title),
        wide,
        narrow,
        legend,
        note,
        table: table(&drawn, &xs, &axes),
        data: data::of_curves(&drawn, &axes),
    })
}

/// The unit of what is measured, in the words of the dictionary.
fn metric_unit<'a>(of: &'a Reproduction, curves: &Curves) -> &'a str {
    let entry = of.dictionary.iter().find(|entry| entry.metric == curves.metric);
    entry.map_or("", |entry| &*entry.unit)
}

/// What is measured, in the unit that reports have it in.
fn up(of: &Reproduction, curves: &Curves, axis: fn(&str, &str) -> Axis) -> Axis {
    axis(&Axis::name_of(&curves.metric), text::report_unit(metric_unit(of, curves)).0)
}

/// Published values of the data set of `line`, where they are stated for one x.
fn published(
    of: &Reproduction,
    experiment: &Experiment,
    curves: &Curves,
    machine: &MachineChoice,
    line: &CurveLine,
) -> Vec<(f64, f64)> {
    let prefix = format!("{}=", curves.x);
    let one = |rule: &Compare| {
        let kernel = line.kernel.as_ref().is_none_or(|kernel| *kernel == rule.kernel);
        let same = rule.how == How::Value && rule.metric == curves.metric && kernel;
        let here = rule.machines.contains(&machine.name);
        if !same || !here || !line.set.iter().all(|text| rule.set.contains(text)) {
            return None;
        }
        let x = rule.set.iter().find_map(|text| text.strip_prefix(&prefix))?.parse().ok()?;
        Some((x, of.published(&rule.published)?.value?))
    };
    experiment.file.compare.iter().filter_map(one).collect()
}

pub(super) fn table(curves: &[Curve], xs: &[f64], axes: &Axes) -> Table {
    let at = |points: &[(f64, f64)], x: f64| points.iter().find(|p| p.0 == x).map(|p| text::number(p.1));
    let mut table = Table { head: vec![axes.across.name().to_owned()], rows: Vec::new() };
    for curve in curves {
        table.head.push(curve.name.clone());
        if !curve.beside.is_empty() {
            table.head.push(format!("{}, {}", curve.beside_is, curve.name));
        }
    }
    for &x in xs {
        let mut row = vec![axes.place(x)];
        for curve in curves {
            let value = at(&curve.points, x).unwrap_or_default();
            row.push(match curve.interval(x) {
                Some((low, high)) => format!("{value} ({} to {})", text::number(low), text::number(high)),
                None => value,
            });
            if !curve.beside.is_empty() {
                row.push(at(&curve.beside, x).unwrap_or_default());
            }
        }
        table.rows.push(row);
    }
    table
}

/// A bar for each data set: for what was run at one place only.
fn at_one_place(width: Width, looks: &Looks, curves: &[Curve], axis: &Axis, label: &str) -> String {
    let bar = |c: &Curve| {
        let (x, value) = c.points[0];
        Bar {
            series: c.name.clone(),
            name: c.name.clone(),
            value,
            shown: text::number(value),
            published: c.beside.iter().find(|p| p.0 == x).map(|p| p.1),
        }
    };
    let group = Group { label: String::new(), bars: curves.iter().map(bar).collect() };
    bars(width, looks, &[group], axis, label)
}

const PLOT_PIXELS: f64 = 300.0;
const TOP_PIXELS: f64 = 34.0;
const FOOT_PIXELS: f64 = 33.0;
const LINE_PIXELS: f64 = 16.0;
const LEFT_PIXELS: f64 = 56.0;

/// What stands at the end of a line: its name and its last value.
fn name_at_end(curve: &Curve) -> String {
    // Small ones are told to a tenth.
    let shown = |value: f64| if value < 10.0 { (10.0 * value).round() / 10.0 } else { value.round() };
    let value = curve.points.last().map_or(String::new(), |p| text::number(shown(p.1)));
    format!("{} ({value})", curve.name)
}

pub(super) fn chart(width: Width, curves: &[Curve], axes: &Axes, label: &str) -> String {
    // Wide drawings name each line at its end.
    let longest = curves.iter().map(|c| name_at_end(c).chars().count()).max().unwrap_or(0);
    let right = if width == Width::Wide { 26.0 + text_pixels(longest) } else { 10.0 };
    let (left, end) = (LEFT_PIXELS, width.pixels() - right);
    let range = |pick: fn(&(f64, f64)) -> f64| {
        let of_intervals = |c: &Curve| {
            let ends = c.intervals.iter().flat_map(|&(x, (low, high))| [(x, low), (x, high)]);
            ends.collect::<Vec<_>>()
        };
        let all = curves.iter().flat_map(|c| {
            c.points.iter().chain(&c.beside).copied().chain(of_intervals(c)).collect::<Vec<_>>()
        });
        all.map(|p| pick(&p)).fold((f64::MAX, f64::MIN), |(min, max), v| (min.min(v), max.max(v)))
    };
    let x_scale = Across::new(range(|p| p.0), left + 10.0, end - left - 20.0);
    let y_scale = LogScale::new(range(|p| p.1), TOP_PIXELS + PLOT_PIXELS, -PLOT_PIXELS);
    let mut svg = Svg::new(width.pixels());
    draw_axes(&mut svg, width, axes, (&x_scale, &y_scale), (left, end));
    for curve in curves {
        let points: Vec<_> = curve.points.iter().map(|p| (x_scale.at(p.0), y_scale.at(p.1))).collect();
        svg.trend(&points, &curve.look);
    }
    for curve in curves {
        for &(x, value) in &curve.beside {
            let hint =
                format!("{}, {}, {}: {}", curve.beside_is, curve.name, axes.place(x), text::number(value));
            svg.published((x_scale.at(x), y_scale.at(value)), &curve.look, &hint);
        }
        for &(x, (low, high)) in &curve.intervals {
            let x = x_scale.at(x);
            svg.whisker((x, y_scale.at(low)), (x, y_scale.at(high)), &curve.look);
        }
        for &(x, value) in &curve.points {
            let mut hint = format!("{}, {}: {}", curve.name, axes.place(x), text::number(value));
            if let Some((low, high)) = curve.interval(x) {
                hint += &format!(" ({} to {})", text::number(low), text::number(high));
            }
            svg.mark((x_scale.at(x), y_scale.at(value)), 3.8, &curve.look, &hint);
        }
    }
    if width == Width::Wide {
        names(&mut svg, curves, end, &y_scale);
    }
    let below = LINE_PIXELS * axes.words_below(width).len() as f64;
    svg.finish(TOP_PIXELS + PLOT_PIXELS + FOOT_PIXELS + below, label)
}

/// The scale across.
enum Across {
    Log(LogScale),
    /// Where it begins with 0.
    Linear(Scale),
}

impl Across {
    fn new((min, max): (f64, f64), from: f64, pixels: f64) -> Across {
        match min > 0.0 {
            true => Across::Log(LogScale::new((min, max), from, pixels)),
            false => Across::Linear(Scale::new(max, from, pixels, 6.0)),
        }
    }

    fn at(&self, value: f64) -> f64 {
        match self {
            Across::Log(scale) => scale.at(value),
            Across::Linear(scale) => scale.at(value),
        }
    }
}

/// Both axes with their ticks, between `left` and `end`.
fn draw_axes(
    svg: &mut Svg,
    width: Width,
    axes: &Axes,
    (x_scale, y_scale): (&Across, &LogScale),
    (left, end): (f64, f64),
) {
    svg.text(0.0, 13.0, "axis", Anchor::Start, &axes.up.words());
    for (tick, strong) in y_scale.decimal_ticks() {
        let y = y_scale.at(tick);
        svg.line((left, y), (end, y), if strong { "base faint" } else { "grid" });
        svg.text(left - 7.0, y + 4.0, "tick", Anchor::End, &text::number(tick));
    }
    let bottom = TOP_PIXELS + PLOT_PIXELS;
    svg.line((left, bottom), (end, bottom), "base");
    let ticks: Vec<f64> = match (x_scale, axes.bytes) {
        (Across::Log(scale), true) => scale.binary_ticks().collect(),
        (Across::Log(scale), false) => scale.decimal_ticks().into_iter().map(|tick| tick.0).collect(),
        (Across::Linear(scale), _) => scale.ticks().collect(),
    };
    let room = ((end - left) / if width == Width::Wide { 44.0 } else { 52.0 }).max(1.0);
    let every = (ticks.len() as f64 / room).ceil().max(1.0) as usize;
    for &tick in ticks.iter().step_by(every) {
        let x = x_scale.at(tick);
        svg.line((x, bottom), (x, bottom + 4.0), "base");
        svg.text(x, bottom + 19.0, "tick", Anchor::Middle, &axes.place(tick));
    }
    for (i, line) in axes.words_below(width).iter().enumerate() {
        svg.text(0.0, bottom + 42.0 + LINE_PIXELS * i as f64, "axis", Anchor::Start, line);
    }
}

/// The name of each line behind its last point, moved apart where they meet.
fn names(svg: &mut Svg, curves: &[Curve], left: f64, y_scale: &LogScale) {
    const STEP: f64 = 17.0;
    let last = |c: &Curve| c.points.last().map_or(0.0, |p| y_scale.at(p.1));
    let mut placed: Vec<(f64, &Curve)> = curves.iter().map(|c| (last(c), c)).collect();
    placed.sort_by(|a, b| a.0.total_cmp(&b.0));
    for i in 1..placed.len() {
        placed[i].0 = placed[i].0.max(placed[i - 1].0 + STEP);
    }
    let mut floor = TOP_PIXELS + PLOT_PIXELS;
    for (y, _) in placed.iter_mut().rev() {
        *y = y.min(floor);
        floor = *y - STEP;
    }
    for (y, curve) in placed {
        svg.mark((left + 10.0, y), 4.2, &curve.look, &curve.name);
        svg.text(left + 19.0, y + 4.0, "name", Anchor::Start, &name_at_end(curve));
    }
}
