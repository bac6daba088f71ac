//! How far what is judged hangs on single constants of machines and kernels.
//!
//! One constant at a time is changed by a share of its value, up and down; the runs that it may move are made again,
//! and all comparisons and crossovers of their experiments are judged again. [`Knob`] is a constant that can be turned,
//! [`study`] makes the runs, [`Effect`] is a value that moved, [`Sensitivity`] ranks the constants.
//!
//! What can fail: the runs as they are; a filter that leaves nothing. A run that is refused with a changed constant is
//! kept as refused, and what needs it is not judged.

mod effect;
mod knobs;
mod rank;
mod study;
mod watched;

pub use effect::{Effect, Flip};
pub use knobs::{Filter, Knob, Part, glob};
pub use rank::{CrossoverRange, MAX_RANKED, Ranked, Sensitivity};
pub use study::{Maker, study};
pub use watched::{Watch, is_watched};
