//! A figure: a drawing, what its marks stand for, and its numbers.

use super::svg::Width;
use serde::Serialize;

/// A figure, drawn for wide and for narrow pages, with its numbers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) id: String,
    pub(super) experiment: String,
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) wide: String,
    pub(super) narrow: String,
    pub(super) legend: Vec<Key>,
    pub(super) note: String,
    pub(super) table: Table,
}

/// A class of marks and what it stands for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Key {
    pub(super) class: String,
    pub(super) label: String,
}

/// The numbers of a figure.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

pub(super) fn published_key() -> Key {
    Key { class: "published".into(), label: "published".into() }
}

pub(super) fn both(draw: impl Fn(Width) -> String) -> (String, String) {
    (draw(Width::Wide), draw(Width::Narrow))
}
