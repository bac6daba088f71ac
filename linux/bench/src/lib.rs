//! Times messages between two processes: by the library, by what the kernel has, and by plain shared memory, which
//! is the floor of them all.
//!
//! # What it holds
//! [`bench()`] starts this program once more as the *peer*, which calls [`peer`]. One process sends, the other
//! receives, and each message is over when the receiver is done with it and the sender knows. Within a
//! repetition all methods take their turn, in an order that rotates; so what changes on the host changes for
//! all of them. [`Report`] has the times; ratios to the floor are formed within a repetition.
//!
//! # What is timed
//! From the sender's first store or call to its knowing that the receiver is done. What is prepared (memory,
//! channels) and what is verified (every byte, in rounds of its own, and a sum in each round that is read)
//! lies outside.
#![deny(unsafe_code)]

mod arguments;
mod bars;
mod calibrate;
mod cell;
mod error;
mod link;
mod machine;
mod picture;
mod predict;
mod raw;
mod receiving;
mod report;
mod run;
mod sending;
mod stats;
mod surroundings;
mod work;

pub use arguments::Arguments;
pub use bars::{Bar, Outcome, bars};
pub use calibrate::Calibration;
pub use cell::{Method, Pattern, Wait};
pub use error::BenchError;
pub use predict::{Point, Prediction};
pub use report::{Report, Series};
pub use run::{Options, Step, bench};
pub use stats::Estimate;
pub use surroundings::Surroundings;

/// What the started process does: it receives until the other is done.
pub fn peer() -> Result<(), BenchError> {
    receiving::serve()
}
