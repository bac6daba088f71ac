//! Times messages between two processes: by the library, by what the kernel has, and by plain shared memory, which
//! is the floor of them all.
//!
//! # What it holds
//! [`bench()`] starts this program once more as the *peer*, which calls [`PeerArguments::run`]. One process
//! sends, the other receives, and each message is over when the receiver is done with it and the sender knows.
//! Within a repetition all methods take their turn, in an order that rotates; so what changes on the host
//! changes for all of them. [`Report`] has the times; ratios to the floor are formed within a repetition.
//!
//! [`compare()`] does the same with methods that are [`program`]s of their own: the library from Python, and what
//! Python has.
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
mod compare;
mod error;
mod link;
mod machine;
mod picture;
mod predict;
pub mod program;
mod raw;
mod receiving;
mod report;
mod run;
mod sending;
mod series;
mod stats;
mod surroundings;
mod work;

pub use arguments::Arguments;
pub use bars::{Bar, Outcome, bars};
pub use calibrate::Calibration;
pub use cell::{Method, Pattern, Wait};
pub use compare::{Peers, compare};
pub use error::BenchError;
pub use predict::{Point, Prediction};
pub use run::{Options, Step, bench};
pub use series::{Report, Series};
pub use stats::Estimate;
pub use surroundings::Surroundings;

use std::ffi::OsString;

/// What a started process is.
#[derive(Clone, Debug, clap::Args)]
pub struct PeerArguments {
    /// The method of which it is the sender, and what else programs of methods are told; without, it is the receiver
    words: Vec<String>,
}

impl PeerArguments {
    /// Does what a started process is for. `peer`: the arguments with which this program is the receiver.
    pub fn run(&self, peer: &[OsString]) -> Result<(), BenchError> {
        match self.words.first() {
            None => receiving::serve(),
            Some(word) => {
                let method = serde_json::from_value(word.as_str().into());
                let method = method.map_err(|error| BenchError::Usage(error.to_string()))?;
                program::own(method, peer)
            }
        }
    }
}
