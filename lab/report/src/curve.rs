//! A curve and the axes that it is drawn between: what an experiment's file and a measured host have in common.

use super::looks::Look;
use super::svg::{Width, wrapped};
use pageferry_lab::plot::Axis;
use pageferry_lab::text::{self, size};

/// A line of a chart.
pub(super) struct Curve {
    pub(super) look: Look,
    pub(super) name: String,
    /// By x: the value here, of repeats the median.
    pub(super) points: Vec<(f64, f64)>,
    /// By x: both ends of the median's interval, where repeats differ.
    pub(super) intervals: Vec<(f64, (f64, f64))>,
    /// By x: values from elsewhere.
    pub(super) beside: Vec<(f64, f64)>,
    /// What these are: `published`, or `measured`.
    pub(super) beside_is: &'static str,
}

impl Curve {
    /// The interval at `x`, where there is one.
    pub(super) fn interval(&self, x: f64) -> Option<(f64, f64)> {
        self.intervals.iter().find(|interval| interval.0 == x).map(|interval| interval.1)
    }
}

/// The axes of a chart.
pub(super) struct Axes {
    pub(super) across: Axis,
    /// What is across is in bytes.
    pub(super) bytes: bool,
    pub(super) up: Axis,
}

impl Axes {
    /// A value of what is across: sizes are in powers of two, `4K`.
    pub(super) fn place(&self, x: f64) -> String {
        if self.bytes { size(x) } else { text::number(x) }
    }

    /// What stands below the ticks.
    pub(super) fn words_below(&self, width: Width) -> Vec<String> {
        wrapped(&self.across.words(), width.pixels())
    }
}
