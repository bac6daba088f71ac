//! What holds of the source itself, as code: `cargo run -p xtask -- tidy`, and the same as an ordinary test.
//!
//! A check takes a [`Tree`] and returns the [`Fault`]s that it finds; [`check`] makes all of them. A tree is read from
//! the disk, or made up by a test that plants a fault. No check changes a file, and nothing depends on this crate.
//!
//! [`metal`] is no check: it builds the image for bare metal and runs it.

pub mod circles;
pub mod crates;
pub mod docs;
mod fault;
pub mod figures;
pub mod layers;
pub mod lines;
pub mod links;
pub mod metal;
pub mod modules;
pub mod prose;
pub mod quiet;
mod tidy;
pub mod tree;
pub mod words;

pub use fault::Fault;
pub use tidy::check;
pub use tree::Tree;
