//! What a figure shows, in a few words behind its title: found in what is drawn, so that a title is never out of date.
//!
//! Of curves that an experiment holds against each other it is from where on each is above the other. Of all else it is
//! which is highest and by how much, what the largest part is, or where a row begins and ends. Nothing is said of a
//! figure that draws nothing.

use super::curve::{Axes, Curve};
use pageferry_lab::files::Better;
use pageferry_lab::judge::{Crossover, Pays};
use pageferry_lab::plot::{Bar, Chart, DotRow, Group, Panel, Point, Stack};
use pageferry_lab::text::number;

/// `title` with what is found behind it.
pub(super) fn titled(title: &str, finding: Option<String>) -> String {
    match finding {
        Some(finding) => format!("{title}: {finding}"),
        None => title.to_owned(),
    }
}

/// Values as near as this are alike.
const ALIKE: f64 = 1.01;

/// How many times, with as many digits as such a number deserves.
fn times(ratio: f64) -> String {
    match ratio {
        r if r < 1.1 => format!("{r:.2}"),
        r if r < 10.0 => format!("{r:.1}"),
        r => number(r.round()),
    }
}

/// A value of a title: three digits are enough.
fn rough(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    number(format!("{value:.digits$}").parse().unwrap_or(value))
}

/// From where on each of the curves that replace others is above what it replaces, or below where less is better: `loan
/// above copy from 32K on, transfer nowhere`. `place` writes a value of what is across.
pub(super) fn of_crossovers(all: &[&Crossover], place: impl Fn(f64) -> String) -> Option<String> {
    let from = |c: &Crossover| match c.pays {
        Pays::Always => "everywhere".to_owned(),
        Pays::From(x) => format!("from {} on", place(x)),
        Pays::Never => "nowhere".to_owned(),
    };
    let mut parts: Vec<String> = Vec::new();
    let mut over = None;
    for c in all {
        let side = if c.better == Better::Less { "below" } else { "above" };
        let above = if over == Some(&c.over) { String::new() } else { format!(" {side} {}", c.over) };
        parts.push(format!("{}{above} {}", c.mechanism, from(c)));
        over = Some(&c.over);
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Which curve is best at the far end, or where the only one begins and ends. Of single points it is not said where.
pub(super) fn of_curves(curves: &[Curve], axes: &Axes) -> Option<String> {
    let unit = axes.up.unit();
    if curves.iter().all(|c| c.points.len() == 1) {
        let values = curves.iter().map(|c| (c.name.clone(), c.points[0].1));
        return extremes(&values.collect::<Vec<_>>(), unit);
    }
    if let [curve] = curves {
        let (first, last) = (curve.points.first()?, curve.points.last()?);
        let at = |p: &(f64, f64)| format!("{} at {}", with_unit(p.1, unit), axes.place(p.0));
        return Some(if first == last { at(first) } else { format!("{}, {}", at(first), at(last)) });
    }
    let end = curves.iter().filter_map(|c| c.points.last()).map(|p| p.0).fold(f64::MIN, f64::max);
    let at_end = |c: &Curve| c.points.iter().find(|p| p.0 == end).map(|p| (c.name.clone(), p.1));
    let values: Vec<(String, f64)> = curves.iter().filter_map(at_end).collect();
    Some(format!("at {}, {}", axes.place(end), extremes(&values, unit)?))
}

fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", rough(value)).trim_end().to_owned()
}

/// Whether less is better of what has this unit: of what something takes.
fn is_cost(unit: &str) -> bool {
    Better::of_unit(unit) == Some(Better::Less)
}

/// Which of several is best, and by how much.
fn extremes(values: &[(String, f64)], unit: &str) -> Option<String> {
    let min = values.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let max = values.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if max.1 <= ALIKE * min.1 {
        return Some(format!("all are alike ({})", with_unit(max.1, unit)));
    }
    let (best, word, worst) = if is_cost(unit) { (min, "lowest", max) } else { (max, "highest", min) };
    let by = match min.1 > 0.0 {
        true if is_cost(unit) => format!(", {} times as high with {}", times(max.1 / min.1), worst.0),
        true => format!(", {} times {}", times(max.1 / min.1), worst.0),
        false => format!(", {} with {}", with_unit(worst.1, unit), worst.0),
    };
    Some(format!("{word} with {}{by}", best.0))
}

/// What a chart shows.
pub(super) fn of_chart(chart: &Chart) -> Option<String> {
    match chart {
        Chart::Bars(groups, axis) => of_bars(groups, axis.unit()),
        Chart::Stacks(groups, ..) => of_stacks(groups),
        Chart::Dots(rows, axis) => of_dots(rows, axis.unit()),
        Chart::History(panels) => of_history(panels),
    }
}

/// Which bar is best in how many of the groups, and where by most.
fn of_bars(groups: &[Group], unit: &str) -> Option<String> {
    let value = |name: &str, bar: &Bar| (name.to_owned(), bar.value);
    if groups.iter().all(|group| group.bars.len() == 1) || groups.len() == 1 {
        let one = groups.len() == 1;
        let all = groups
            .iter()
            .flat_map(|g| g.bars.iter().map(move |b| value(if one { &b.name } else { &g.label }, b)));
        return extremes(&all.collect::<Vec<_>>(), unit);
    }
    let best = |group: &Group| {
        let mut bars: Vec<&Bar> = group.bars.iter().collect();
        bars.sort_by(|a, b| a.value.total_cmp(&b.value));
        if !is_cost(unit) {
            bars.reverse();
        }
        let apart = bars.first()?.value != bars.last()?.value;
        apart.then(|| (bars[0].name.clone(), bars[bars.len() - 1].name.clone()))
    };
    let mut counts: Vec<(String, usize)> = Vec::new();
    for (name, _) in groups.iter().filter_map(best) {
        match counts.iter_mut().find(|(other, _)| *other == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    // The first of those that are best equally often.
    let (name, count) = counts.into_iter().rev().max_by_key(|(_, count)| *count)?;
    let word = if is_cost(unit) { "lowest" } else { "highest" };
    let ratio = |group: &Group| {
        let values = group.bars.iter().map(|bar| bar.value);
        let (min, max) = values.fold((f64::MAX, 0.0f64), |(min, max), v| (min.min(v), max.max(v)));
        let (_, worst) = best(group).filter(|(best, _)| *best == name && min > 0.0)?;
        Some((max / min, worst, group.label.clone()))
    };
    let far = groups.iter().filter_map(ratio).max_by(|a, b| a.0.total_cmp(&b.0));
    let by = far.map_or_else(String::new, |(ratio, worst, group)| match is_cost(unit) {
        true => format!(", up to {} times as high with {worst} ({group})", times(ratio)),
        false => format!(", up to {} times {worst} ({group})", times(ratio)),
    });
    Some(format!("{word} with {name} in {count} of {}{by}", groups.len()))
}

/// Which part is the largest of how many rows.
fn of_stacks(groups: &[Stack]) -> Option<String> {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for row in rows() {
        let Some(part) = row.parts.iter().max_by(|a, b| a.value.total_cmp(&b.value)) else { continue };
        match counts.iter_mut().find(|(other, _)| *other == part.name) {
            Some((_, count)) => *count += 1,
            None => counts.push((&part.name, 1)),
        }
    }
    let (name, count) = counts.into_iter().rev().max_by_key(|(_, count)| *count)?;
    Some(format!("the largest part in {count} of {} is {name}", rows().count()))
}

/// Between which values the first dots of the rows are.
fn of_dots(rows: &[DotRow], unit: &str) -> Option<String> {
    let first = || rows.iter().filter_map(|row| Some((&row.label, row.dots.first()?.value)));
    let min = first().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let max = first().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let shown = |(label, value): (&String, f64)| format!("{value:+.0} {unit} ({label})");
    Some(if min.1 == max.1 { shown(max) } else { format!("{} to {}", shown(min), shown(max)) })
}

/// Where the first line of the first panel begins and ends: the others show the same otherwise.
fn of_history(panels: &[Panel]) -> Option<String> {
    let panel = panels.first()?;
    let points = &panel.lines.first()?.points;
    let (first, last) = (points.first()?, points.last()?);
    let name = |p: &Point| panel.names.get(p.0).map_or("", String::as_str);
    let to = format!("{} ({})", with_unit(last.1, panel.up.unit()), name(last));
    Some(if first.0 == last.0 { to } else { format!("{} ({}) to {to}", rough(first.1), name(first)) })
}

#[cfg(test)]
mod tests {
    use super::super::looks::Looks;
    use super::*;
    use pageferry_lab::judge::NOW;
    use pageferry_lab::plot::{Axis, Dot, Line, Part, StackRow};
    use pageferry_lab::text::size;

    fn crossover(mechanism: &str, over: &str, pays: Pays<f64>) -> Crossover {
        Crossover {
            experiment: "pipe".into(),
            mechanism: mechanism.into(),
            over: over.into(),
            holds_if: None,
            machine: NOW.into(),
            x: "size_bytes".into(),
            unit: "bytes".into(),
            pays,
            gain_at_largest: 1.0,
            better: Better::More,
        }
    }

    #[test]
    fn crossovers_say_from_where_on() {
        let told = |a, b| {
            let all = [
                crossover("loan", "copy", a),
                crossover("transfer", "copy", b),
                crossover("pass", "socket", a),
            ];
            of_crossovers(&all.iter().collect::<Vec<_>>(), size).expect("there are some")
        };
        assert_eq!(
            told(Pays::From(32768.0), Pays::Never),
            "loan above copy from 32K on; transfer nowhere; pass above socket from 32K on"
        );
        assert_eq!(
            told(Pays::Always, Pays::From(4096.0)),
            "loan above copy everywhere; transfer from 4K on; pass above socket everywhere"
        );
        assert_eq!(of_crossovers(&[], size), None);
        let less = Crossover { better: Better::Less, ..crossover("loan", "copy", Pays::Never) };
        assert_eq!(of_crossovers(&[&less], size).as_deref(), Some("loan below copy nowhere"));
    }

    fn curve(name: &str, points: &[(f64, f64)]) -> Curve {
        Curve {
            look: Looks::of(std::iter::empty()).look(name),
            name: name.into(),
            points: points.to_vec(),
            intervals: Vec::new(),
            beside: Vec::new(),
            beside_is: "published",
        }
    }

    #[test]
    fn curves_say_which_is_best_at_the_end() {
        let told = |unit: &str, copy: f64| {
            let curves =
                [curve("copy", &[(1.0, 5.0), (8.0, copy)]), curve("loan", &[(1.0, 9.0), (8.0, 40.0)])];
            let axes = Axes { across: Axis::log("n", ""), bytes: false, up: Axis::log("it", unit) };
            of_curves(&curves, &axes).expect("something")
        };
        assert_eq!(told("MB/s", 10.0), "at 8, highest with loan, 4.0 times copy");
        assert_eq!(told("MB/s", 80.0), "at 8, highest with copy, 2.0 times loan");
        assert_eq!(told("MB/s", 42.0), "at 8, highest with copy, 1.05 times loan");
        assert_eq!(told("µs", 10.0), "at 8, lowest with copy, 4.0 times as high with loan");
        assert_eq!(told("µs", 40.1), "at 8, all are alike (40.1 µs)");
    }

    fn bar(name: &str, value: f64) -> Bar {
        Bar { series: name.into(), name: name.into(), value, shown: String::new(), published: None }
    }

    #[test]
    fn bars_say_which_is_best_how_often_and_by_how_much() {
        let told = |unit: &str, b: f64| {
            let group = |label: &str, values: [f64; 2]| Group {
                label: label.into(),
                bars: vec![bar("original", values[0]), bar("sf_buf", values[1])],
            };
            let groups = vec![group("old", [100.0, 150.0]), group("new", [100.0, b])];
            of_chart(&Chart::Bars(groups, Axis::linear("it", unit))).expect("something")
        };
        assert_eq!(told("MB/s", 300.0), "highest with sf_buf in 2 of 2, up to 3.0 times original (new)");
        assert_eq!(told("MB/s", 50.0), "highest with sf_buf in 1 of 2, up to 1.5 times original (old)");
        assert_eq!(
            told("cycles", 300.0),
            "lowest with original in 2 of 2, up to 3.0 times as high with sf_buf (new)"
        );
    }

    #[test]
    fn stacks_dots_and_histories_say_what_is_large_and_where_they_end() {
        let told = |copy: f64| {
            let part = |name: &str, value| Part { colour: "copy", sign: "", name: name.into(), value };
            let row = |a, b| StackRow {
                name: String::new(),
                parts: vec![part("copying", a), part("idle", b)],
                shown: String::new(),
            };
            let group = Stack { label: String::new(), rows: vec![row(copy, 2.0), row(3.0, 2.0)] };
            of_chart(&Chart::Stacks(vec![group], Axis::linear("it", "µs"), 0.0)).expect("something")
        };
        assert_eq!(told(5.0), "the largest part in 2 of 2 is copying");
        assert_eq!(told(1.0), "the largest part in 1 of 2 is idle");
        let dots = |value: f64| {
            let dot = |value| Dot { series: String::new(), name: String::new(), value };
            let row = |label: &str, value| DotRow {
                label: label.into(),
                dots: vec![dot(value)],
                published: None,
                band: None,
            };
            of_chart(&Chart::Dots(vec![row("old", 20.0), row("new", value)], Axis::linear("gain", "%")))
        };
        assert_eq!(dots(50.0).as_deref(), Some("+20 % (old) to +50 % (new)"));
        assert_eq!(dots(-5.0).as_deref(), Some("-5 % (new) to +20 % (old)"));
        let history = |last: f64| {
            let line = Line {
                series: String::new(),
                name: String::new(),
                points: vec![(0, 12.0, None), (1, last, None)],
            };
            let names = ["486", "Xeon"].map(String::from).to_vec();
            let (up, along) = (Axis::linear("it", "cycles"), Axis::linear("processor", ""));
            of_chart(&Chart::History(vec![Panel { up, along, names, lines: vec![line] }]))
        };
        assert_eq!(history(488.0).as_deref(), Some("12 (486) to 488 cycles (Xeon)"));
        assert_eq!(history(3.5).as_deref(), Some("12 (486) to 3.5 cycles (Xeon)"));
    }
}
