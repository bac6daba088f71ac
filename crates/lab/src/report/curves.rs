//! Curves over a parameter that varies: what an experiment's file says of them, drawn on logarithmic axes.
//!
//! One figure for each machine, one line for each data set. Published values are marked where a comparison names the same
//! data set and one value of the parameter; a line without a mark has nothing published to be held against, or what was
//! published is held out.

use super::figure::{Figure, Key, Table, both, published_key};
use super::reproduction::Reproduction;
use super::svg::{Anchor, LogScale, Svg, Width};
use crate::files::{Compare, CurveLine, Curves, Experiment, How, MachineChoice};
use crate::judge::points;
use crate::text::{self, size};

/// A line of a chart.
struct Curve {
    class: String,
    name: String,
    /// By x: the value here.
    points: Vec<(f64, f64)>,
    /// By x: published values.
    published: Vec<(f64, f64)>,
}

/// The figures of `experiment`, if it has curves and their runs were made.
pub(super) fn figures(of: &Reproduction, experiment: &Experiment) -> Vec<Figure> {
    let Some(curves) = &experiment.file.curves else { return Vec::new() };
    of.machines_of(&experiment.name).filter_map(|machine| figure(of, experiment, curves, machine)).collect()
}

fn figure(
    of: &Reproduction,
    experiment: &Experiment,
    curves: &Curves,
    machine: &MachineChoice,
) -> Option<Figure> {
    let line = |(n, line): (usize, &CurveLine)| Curve {
        class: format!("s{}", n % 6),
        name: line.name.clone(),
        points: points(of.records(), &experiment.name, curves, &machine.name, line),
        published: published(of, experiment, curves, machine, line),
    };
    let drawn: Vec<Curve> =
        curves.lines.iter().enumerate().map(line).filter(|c| !c.points.is_empty()).collect();
    if drawn.iter().all(|c| c.points.len() < 2) {
        return None;
    }
    let label = format!("{} on {}", curves.title, machine.config.title);
    let (wide, narrow) = both(|width| chart(width, &drawn, &label));
    let mut legend: Vec<Key> =
        drawn.iter().map(|c| Key { class: c.class.clone(), label: c.name.clone() }).collect();
    if drawn.iter().any(|c| !c.published.is_empty()) {
        legend.push(published_key());
    }
    Some(Figure {
        id: format!("{}-{}", experiment.name, machine.name),
        experiment: experiment.name.clone(),
        title: curves.title.clone(),
        subtitle: format!("{}; {}", curves.subtitle, machine.config.title),
        wide,
        narrow,
        legend,
        note: curves.note.clone(),
        table: table(&drawn),
    })
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

fn table(curves: &[Curve]) -> Table {
    let mut xs: Vec<f64> = curves.iter().flat_map(|c| &c.points).map(|p| p.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let at = |points: &[(f64, f64)], x: f64| points.iter().find(|p| p.0 == x).map(|p| text::number(p.1));
    let mut table = Table { head: vec!["size".into()], rows: Vec::new() };
    for curve in curves {
        table.head.push(curve.name.clone());
        if !curve.published.is_empty() {
            table.head.push("published".into());
        }
    }
    for x in xs {
        let mut row = vec![size(x)];
        for curve in curves {
            row.push(at(&curve.points, x).unwrap_or_default());
            if !curve.published.is_empty() {
                row.push(at(&curve.published, x).unwrap_or_default());
            }
        }
        table.rows.push(row);
    }
    table
}

const PLOT_PIXELS: f64 = 300.0;
const TOP_PIXELS: f64 = 12.0;
const FOOT_PIXELS: f64 = 26.0;
const LEFT_PIXELS: f64 = 56.0;

/// A character of a name, on average and a little more.
const CHAR_PIXELS: f64 = 6.0;

/// What stands at the end of a line: its name and its last value.
fn name_at_end(curve: &Curve) -> String {
    let value = curve.points.last().map_or(String::new(), |p| text::number(p.1.round()));
    format!("{} ({value})", curve.name)
}

fn chart(width: Width, curves: &[Curve], label: &str) -> String {
    // Wide drawings name each line at its end.
    let longest = curves.iter().map(|c| name_at_end(c).chars().count()).max().unwrap_or(0);
    let right = if width == Width::Wide { 26.0 + CHAR_PIXELS * longest as f64 } else { 10.0 };
    let all = || curves.iter().flat_map(|c| c.points.iter().chain(&c.published));
    let range = |pick: fn(&(f64, f64)) -> f64| {
        let (least, most) =
            all().map(pick).fold((f64::MAX, f64::MIN), |(least, most), v| (least.min(v), most.max(v)));
        (least, most)
    };
    let x_scale =
        LogScale::new(range(|p| p.0), LEFT_PIXELS + 10.0, width.pixels() - LEFT_PIXELS - 20.0 - right);
    let y_scale = LogScale::new(range(|p| p.1), TOP_PIXELS + PLOT_PIXELS, -PLOT_PIXELS);
    let mut svg = Svg::new(width.pixels());
    let (left, end) = (LEFT_PIXELS, width.pixels() - right);
    for (tick, strong) in y_scale.decimal_ticks() {
        let y = y_scale.at(tick);
        svg.line((left, y), (end, y), if strong { "base faint" } else { "grid" });
        svg.text(left - 7.0, y + 4.0, "tick", Anchor::End, &text::number(tick));
    }
    let bottom = TOP_PIXELS + PLOT_PIXELS;
    svg.line((left, bottom), (end, bottom), "base");
    let every = if width == Width::Wide { 1 } else { 2 };
    for tick in x_scale.binary_ticks().step_by(every) {
        let x = x_scale.at(tick);
        svg.line((x, bottom), (x, bottom + 4.0), "base");
        svg.text(x, bottom + 19.0, "tick", Anchor::Middle, &size(tick));
    }
    for curve in curves {
        let points: Vec<_> = curve.points.iter().map(|p| (x_scale.at(p.0), y_scale.at(p.1))).collect();
        svg.polyline(&points, &format!("trend t-{}", curve.class));
    }
    for curve in curves {
        for &(x, value) in &curve.published {
            let hint = format!("published, {}, {}: {}", curve.name, size(x), text::number(value));
            svg.diamond((x_scale.at(x), y_scale.at(value)), 7.0, &hint);
        }
        for &(x, value) in &curve.points {
            let hint = format!("{}, {}: {}", curve.name, size(x), text::number(value));
            svg.circle((x_scale.at(x), y_scale.at(value)), 3.2, &curve.class, &hint);
        }
    }
    if width == Width::Wide {
        names(&mut svg, curves, end, &y_scale);
    }
    svg.finish(TOP_PIXELS + PLOT_PIXELS + FOOT_PIXELS, label)
}

/// The name of each line behind its last point, moved apart where they meet.
fn names(svg: &mut Svg, curves: &[Curve], left: f64, y_scale: &LogScale) {
    const STEP: f64 = 16.0;
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
        svg.circle((left + 10.0, y), 4.0, &curve.class, &curve.name);
        svg.text(left + 19.0, y + 4.0, "name", Anchor::Start, &name_at_end(curve));
    }
}
