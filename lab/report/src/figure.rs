//! A figure: a drawing, what its marks stand for, and its numbers.

use super::charts::draw;
use super::data::{self, Table};
use super::headline::{of_chart, titled};
use super::looks::{Look, Looks, Mark};
use super::svg::{Anchor, KEY_PIXELS, Svg, Width};
use pageferry_lab::Spread;
use pageferry_lab::plot::{self, Plot, Sample};
use serde::Serialize;

/// A figure, drawn for wide and for narrow pages, with its numbers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) id: String,
    /// The experiment, or the paper, that it belongs to; empty for what is of all.
    pub(super) experiment: String,
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) wide: String,
    pub(super) narrow: String,
    pub(super) legend: Vec<Key>,
    pub(super) note: String,
    /// The numbers as they are read.
    pub(super) table: Table,
    /// The numbers as programs read them: a row for each, with all its digits.
    #[serde(skip)]
    pub(super) data: Table,
}

/// A kind of marks and what it stands for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Key {
    /// The mark itself, drawn in a box of [`KEY_PIXELS`].
    pub(super) sample: String,
    pub(super) label: String,
}

const MIDDLE: (f64, f64) = (KEY_PIXELS.0 / 2.0, KEY_PIXELS.1 / 2.0);

impl Key {
    fn drawn(label: &str, draw: impl FnOnce(&mut Svg)) -> Key {
        let mut svg = Svg::new(KEY_PIXELS.0);
        draw(&mut svg);
        Key { sample: svg.into_body(), label: label.to_owned() }
    }

    /// `key`, drawn.
    fn of(key: &plot::Key, looks: &Looks) -> Key {
        let label = &*key.label;
        match &key.sample {
            Sample::Line(series) => Key::line(&looks.look(series), label),
            Sample::Mark(series) => Key::mark(&looks.look(series), label),
            Sample::Bar(series) => Key::bar(&looks.look(series), label),
            Sample::Part(colour, sign) => Key::part(colour, sign, label),
            Sample::Published(series, name) => Key::published(&looks.look(series), name),
            Sample::Band => Key::band(label),
        }
    }

    /// A line with its mark.
    pub(super) fn line(look: &Look, label: &str) -> Key {
        Key::drawn(label, |svg| {
            svg.trend(&[(0.0, MIDDLE.1), (KEY_PIXELS.0, MIDDLE.1)], look);
            svg.mark(MIDDLE, 4.2, look, label);
        })
    }

    /// A mark alone.
    pub(super) fn mark(look: &Look, label: &str) -> Key {
        Key::drawn(label, |svg| svg.mark(MIDDLE, 5.0, look, label))
    }

    /// A bar that ends in its mark.
    pub(super) fn bar(look: &Look, label: &str) -> Key {
        Key::drawn(label, |svg| {
            let class = format!("f-{}", look.colour);
            svg.rect((2.0, MIDDLE.1 - 4.0), (24.0, 8.0), &class, label);
            svg.mark((27.0, MIDDLE.1), 5.0, look, label);
        })
    }

    /// A part of a stack, with the sign that is written in it.
    pub(super) fn part(colour: &str, sign: &str, label: &str) -> Key {
        Key::drawn(label, |svg| {
            svg.rect((8.0, 0.5), (20.0, 15.0), &format!("f-{colour}"), label);
            svg.text(18.0, 12.0, &format!("sign on-{colour}"), Anchor::Middle, sign);
        })
    }

    /// The interval around a point, of whatever series; of few repeats it is their range.
    pub(super) fn interval(fewest_repeats: usize) -> Key {
        const ANY: Look = Look { colour: "published", mark: Mark::Circle, hollow: false, dash: "" };
        let words = match fewest_repeats < Spread::MIN_FOR_INTERVAL {
            true => "range of the repeats",
            false => "interval of the median",
        };
        Key::drawn(words, |svg| {
            svg.whisker((MIDDLE.0, 1.5), (MIDDLE.0, KEY_PIXELS.1 - 1.5), &ANY);
        })
    }

    /// Published values of a series.
    pub(super) fn published(look: &Look, series: &str) -> Key {
        Key::beside("published", look, series)
    }

    /// The mark of a value from elsewhere: published, or measured.
    pub(super) fn beside(what: &str, look: &Look, series: &str) -> Key {
        Key::drawn(&format!("{what}, {series}"), |svg| svg.published(MIDDLE, look, series))
    }

    /// Values that count as agreement.
    pub(super) fn band(label: &str) -> Key {
        Key::drawn(label, |svg| svg.rect((4.0, 3.0), (28.0, 10.0), "band", label))
    }
}

impl Figure {
    /// `plot` of an experiment, drawn.
    pub(super) fn drawn(plot: &Plot, experiment: &str, looks: &Looks) -> Figure {
        let (wide, narrow) = both(|width| draw(width, looks, &plot.chart, &plot.label));
        Figure {
            id: plot.id.clone(),
            experiment: experiment.to_owned(),
            title: titled(&plot.title, of_chart(&plot.chart)),
            subtitle: plot.subtitle.clone(),
            wide,
            narrow,
            legend: plot.legend.iter().map(|key| Key::of(key, looks)).collect(),
            note: plot.note.clone(),
            table: Table { head: plot.table.head.clone(), rows: plot.table.rows.clone() },
            data: data::of_chart(&plot.chart),
        }
    }
}

pub(super) fn both(draw: impl Fn(Width) -> String) -> (String, String) {
    (draw(Width::Wide), draw(Width::Narrow))
}
