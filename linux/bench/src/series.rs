//! What was measured: times by method and cell, and what they say together.

use crate::cell::{Method, Pattern, Wait};
use crate::stats::{Estimate, spread};
use crate::surroundings::Surroundings;
use serde::Serialize;

/// The times of one method in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// By what.
    pub method: Method,
    /// Bytes of a message.
    pub bytes: usize,
    /// What was done to it.
    pub pattern: Pattern,
    /// What a side that waits did.
    pub wait: Wait,
    /// Nanoseconds of a message, in each repetition.
    pub nanos: Vec<f64>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// On what.
    pub surroundings: Surroundings,
    /// What was not measured, and why.
    pub notes: Vec<String>,
    /// The times.
    pub series: Vec<Series>,
    /// Nanoseconds in which a process fills 4 MB that nobody else has looked at.
    pub fill_nanos: f64,
    /// What ratios are to: the floor, or the library from Python.
    pub base: Method,
    /// Nanoseconds in which fresh interpreters imported the Python package, if any did.
    pub import_nanos: Vec<f64>,
}

/// Bytes by which it is told whether the CPUs are far from each other: more than the caches of one core hold, and less
/// than those that cores share.
pub(crate) const FILLED: usize = 4 << 20;

/// Stores to what a core far away has read take more than so many times what others do. At 4 MB, on EPYCs of the third
/// generation, near ones took 74 to 90 us, far ones 700 to 950, and those of one's own 71.
const FAR: f64 = 4.0;

/// Where the floor varies more than this within a run, ratios to it say nothing.
pub(crate) const MAX_SPREAD: f64 = 0.25;

/// Bytes, for people.
pub(crate) fn size(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{} MB", bytes >> 20) } else { format!("{} KB", bytes >> 10) }
}

impl Report {
    /// The times of one method in one cell.
    pub fn series(&self, method: Method, bytes: usize, pattern: Pattern, wait: Wait) -> Option<&Series> {
        self.series.iter().find(|series| {
            (series.method, series.bytes, series.pattern, series.wait) == (method, bytes, pattern, wait)
        })
    }

    /// How many times what the base took in the same repetition.
    pub fn ratios(&self, series: &Series) -> Option<Estimate> {
        let base = self.series(self.base, series.bytes, series.pattern, series.wait)?;
        let ratios: Vec<_> = series.nanos.iter().zip(&base.nanos).map(|(time, base)| time / base).collect();
        Estimate::of(&ratios)
    }

    /// How sides waited: those that spin say more of the host.
    pub(crate) fn wait(&self) -> Wait {
        if self.series.iter().any(|of| of.wait == Wait::Spin) { Wait::Spin } else { Wait::Sleep }
    }

    /// How far the floor of a cell varies, as a part of its median.
    pub fn floor_spread(&self, bytes: usize, pattern: Pattern, wait: Wait) -> Option<f64> {
        self.series(Method::Floor, bytes, pattern, wait).map(|floor| spread(&floor.nanos))
    }

    /// Whether the two CPUs do not share a cache, as far as the floor tells: lines that the sender has stored are
    /// then far dearer to read than lines that the receiver has read before.
    pub fn is_far(&self) -> Option<bool> {
        let median = |pattern| {
            let floor = self.series(Method::Floor, FILLED, pattern, self.wait())?;
            Estimate::of(&floor.nanos).map(|estimate| estimate.median)
        };
        // What storing takes where the peer's core has read the lines.
        let stored = median(Pattern::Refilled)? - median(Pattern::Read)?;
        Some(stored > FAR * self.fill_nanos)
    }
}
