//! All tests of this crate that stand outside of it, as one program: what they share is compiled and linked once.

mod common;
mod examples;
mod kernel;
mod obligations;
mod planted;
mod powerpc;
mod preload;
mod rows;
mod several;
mod tags;
mod user;
