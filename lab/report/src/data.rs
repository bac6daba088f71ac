//! The numbers behind a figure as a table, and as one for programs: there each drawn value is a row, with all its
//! digits.
//!
//! What is published, or measured elsewhere, stands in the row of the value that it belongs to, in a column of its own.

use super::curve::{Axes, Curve};
use pageferry_lab::judge::{Comparison, Statement};
use pageferry_lab::plot::{Axis, Chart};
use serde::Serialize;

/// The numbers of a figure.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

fn head<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(String::from).to_vec()
}

fn maybe(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The name of a column of what `axis` measures.
fn column(axis: &Axis) -> String {
    match axis.unit() {
        "" => axis.name().to_owned(),
        unit => format!("{} ({unit})", axis.name()),
    }
}

/// All that a chart draws.
pub(super) fn of_chart(chart: &Chart) -> Table {
    match chart {
        Chart::Bars(groups, axis) => Table {
            head: head(["group", "name", &column(axis), "published"]),
            rows: (groups.iter())
                .flat_map(|group| group.bars.iter().map(move |bar| (group, bar)))
                .map(|(group, bar)| {
                    vec![group.label.clone(), bar.name.clone(), bar.value.to_string(), maybe(bar.published)]
                })
                .collect(),
        },
        Chart::Stacks(groups, axis, _) => Table {
            head: head(["group", "name", "part", &column(axis)]),
            rows: (groups.iter())
                .flat_map(|group| group.rows.iter().map(move |row| (group, row)))
                .flat_map(|(group, row)| row.parts.iter().map(move |part| (group, row, part)))
                .filter(|(.., part)| part.value > 0.0)
                .map(|(group, row, part)| {
                    vec![group.label.clone(), row.name.clone(), part.name.clone(), part.value.to_string()]
                })
                .collect(),
        },
        Chart::Dots(rows, axis) => Table {
            head: head(["row", "name", &column(axis), "published"]),
            rows: (rows.iter())
                .flat_map(|row| row.dots.iter().enumerate().map(move |(i, dot)| (row, i, dot)))
                .map(|(row, i, dot)| {
                    // What is published is of the first.
                    let published = row.published.filter(|_| i == 0);
                    vec![row.label.clone(), dot.name.clone(), dot.value.to_string(), maybe(published)]
                })
                .collect(),
        },
        Chart::History(panels) => {
            let mut table = Table {
                head: head(["panel", "line", "point", "value", "published_low", "published_high"]),
                rows: Vec::new(),
            };
            for panel in panels {
                for line in &panel.lines {
                    let row = |&(i, value, published): &pageferry_lab::plot::Point| {
                        let (low, high) = published.unzip();
                        let point = panel.names[i].clone();
                        let panel = column(&panel.up);
                        vec![panel, line.name.clone(), point, value.to_string(), maybe(low), maybe(high)]
                    };
                    table.rows.extend(line.points.iter().map(row));
                }
            }
            table
        }
    }
}

/// All points of curves.
pub(super) fn of_curves(curves: &[Curve], axes: &Axes) -> Table {
    let beside = curves.iter().find(|c| !c.beside.is_empty()).map_or("published", |c| c.beside_is);
    let mut table =
        Table { head: head(["line", &column(&axes.across), &column(&axes.up), beside]), rows: Vec::new() };
    // Columns of their own, where repeats differ anywhere.
    let repeated = curves.iter().any(|c| !c.intervals.is_empty());
    if repeated {
        table.head.extend(head(["interval_low", "interval_high"]));
    }
    for curve in curves {
        let at = |points: &[(f64, f64)], x: f64| points.iter().find(|p| p.0 == x).map(|p| p.1);
        let mut xs: Vec<f64> = curve.points.iter().chain(&curve.beside).map(|p| p.0).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        for x in xs {
            let (here, there) = (maybe(at(&curve.points, x)), maybe(at(&curve.beside, x)));
            let mut row = vec![curve.name.clone(), x.to_string(), here, there];
            if repeated {
                let (low, high) = curve.interval(x).unzip();
                row.extend([maybe(low), maybe(high)]);
            }
            table.rows.push(row);
        }
    }
    table
}

/// What is judged of a paper.
pub(super) fn of_statements(all: &[Statement]) -> Table {
    let names =
        ["published", "what", "experiment", "test", "machine", "kernel", "here", "published_value", "ratio"];
    let row = |c: &Comparison| {
        vec![
            c.published.clone(),
            c.what.clone(),
            c.experiment.clone(),
            c.test().unwrap_or_default(),
            c.machine.clone(),
            c.kernel.clone(),
            c.ours_value.to_string(),
            maybe(c.theirs_value),
            maybe(c.ratio),
            c.agrees.to_string(),
        ]
    };
    let mut head = head(names);
    head.push("agrees".into());
    Table { head, rows: all.iter().flat_map(|s| &s.rows).map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_lab::plot::{Bar, Group};

    #[test]
    fn values_have_all_their_digits() {
        let bar = Bar {
            series: "loan".into(),
            name: "loan".into(),
            value: 12345.678,
            shown: "12,346".into(),
            published: Some(12000.0),
        };
        let groups = vec![Group { label: "4K".into(), bars: vec![bar] }];
        let table = of_chart(&Chart::Bars(groups, Axis::linear("bandwidth", "MB/s")));
        assert_eq!(table.head, ["group", "name", "bandwidth (MB/s)", "published"]);
        assert_eq!(table.rows, [["4K", "loan", "12345.678", "12000"]]);
    }
}
