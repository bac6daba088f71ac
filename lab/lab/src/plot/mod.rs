//! Figures as data: what is drawn, what its marks stand for, and its numbers. A report draws them.
//!
//! What a mark, a line or a bar looks like follows from the name of its series: a mechanism, a kernel, a machine. A
//! series that has no look of its own takes the next that is free.

mod axis;
mod causes;

pub use axis::Axis;
pub use causes::{CAUSES, causes_in, parts};

/// What was run here, where there is one series only.
pub const HERE: &str = "here";

/// A figure.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The name of its file.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What its axes are.
    pub subtitle: String,
    /// What is drawn.
    pub chart: Chart,
    /// What that is in words, for those who do not see it.
    pub label: String,
    /// What the marks stand for.
    pub legend: Vec<Key>,
    /// What has to be said about it.
    pub note: String,
    /// The numbers.
    pub table: Table,
}

/// The numbers of a figure.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The names of the columns.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Groups of horizontal bars from a common zero, each ending in the mark of its series.
    Bars(Vec<Group>, Axis),
    /// Groups of horizontal stacked bars, with so many pixels for the text behind each.
    Stacks(Vec<Stack>, Axis, f64),
    /// Rows of dots in percent, each with its published value and the band around it.
    Dots(Vec<DotRow>, Axis),
    /// Panels of points in order, joined by lines.
    History(Vec<Panel>),
}

/// Bars that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they are of; empty for a single group.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar with its value written at its end.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its series.
    pub series: String,
    /// Its name.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// The value as it is written.
    pub shown: String,
    /// The published value.
    pub published: Option<f64>,
}

/// Stacked bars that belong together.
#[derive(Clone, Debug)]
pub struct Stack {
    /// What they are of.
    pub label: String,
    /// The bars.
    pub rows: Vec<StackRow>,
}

/// One row of parts.
#[derive(Clone, Debug)]
pub struct StackRow {
    /// Its name.
    pub name: String,
    /// The parts, from the left.
    pub parts: Vec<Part>,
    /// What is written behind the parts.
    pub shown: String,
}

/// A part of a row.
#[derive(Clone, Debug)]
pub struct Part {
    /// The name of its colour: one of those of [`CAUSES`].
    pub colour: &'static str,
    /// What is written in it, where there is room.
    pub sign: &'static str,
    /// Its name.
    pub name: String,
    /// Its length.
    pub value: f64,
}

/// One row of dots on a common scale.
#[derive(Clone, Debug)]
pub struct DotRow {
    /// Its name.
    pub label: String,
    /// The dots.
    pub dots: Vec<Dot>,
    /// The published value of the first of them.
    pub published: Option<f64>,
    /// The values that count as agreement.
    pub band: Option<(f64, f64)>,
}

/// One value of a row.
#[derive(Clone, Debug)]
pub struct Dot {
    /// Its series.
    pub series: String,
    /// Its name.
    pub name: String,
    /// The value.
    pub value: f64,
}

/// One panel of a history: several lines over the same points.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What goes up.
    pub up: Axis,
    /// What goes along.
    pub along: Axis,
    /// The names of the points.
    pub names: Vec<String>,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One line of a panel.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its series.
    pub series: String,
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<Point>,
}

/// The index of the point, the value, and the published value or range.
pub type Point = (usize, f64, Option<(f64, f64)>);

/// A kind of marks and what it stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The mark.
    pub sample: Sample,
    /// What it stands for.
    pub label: String,
}

/// A mark of a legend, with the name of the series whose look it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sample {
    /// A line with its mark.
    Line(String),
    /// A mark alone.
    Mark(String),
    /// A bar that ends in its mark.
    Bar(String),
    /// A part of a stack: its colour, and the sign that is written in it.
    Part(&'static str, &'static str),
    /// The mark of published values of a series, and what the series is called.
    Published(String, String),
    /// Values that count as agreement.
    Band,
}

impl Key {
    /// A line with its mark.
    pub fn line(series: &str, label: &str) -> Key {
        Key { sample: Sample::Line(series.to_owned()), label: label.to_owned() }
    }

    /// A mark alone.
    pub fn mark(series: &str, label: &str) -> Key {
        Key { sample: Sample::Mark(series.to_owned()), label: label.to_owned() }
    }

    /// A bar that ends in its mark.
    pub fn bar(series: &str, label: &str) -> Key {
        Key { sample: Sample::Bar(series.to_owned()), label: label.to_owned() }
    }

    /// A part of a stack.
    pub fn part(colour: &'static str, sign: &'static str, label: &str) -> Key {
        Key { sample: Sample::Part(colour, sign), label: label.to_owned() }
    }

    /// Published values of a series, which is called `name`.
    pub fn published(series: &str, name: &str) -> Key {
        Key {
            sample: Sample::Published(series.to_owned(), name.to_owned()),
            label: format!("published, {name}"),
        }
    }

    /// Values that count as agreement.
    pub fn band(label: &str) -> Key {
        Key { sample: Sample::Band, label: label.to_owned() }
    }
}

impl Plot {
    /// The names of all series that are drawn, in order; some several times.
    pub fn series(&self) -> Vec<&str> {
        match &self.chart {
            Chart::Bars(groups, _) => {
                groups.iter().flat_map(|group| &group.bars).map(|bar| bar.series.as_str()).collect()
            }
            Chart::Stacks(..) => Vec::new(),
            Chart::Dots(rows, _) => {
                rows.iter().flat_map(|row| &row.dots).map(|dot| dot.series.as_str()).collect()
            }
            Chart::History(panels) => {
                panels.iter().flat_map(|panel| &panel.lines).map(|line| line.series.as_str()).collect()
            }
        }
    }
}
