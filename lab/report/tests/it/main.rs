//! All tests of this crate that stand outside of it, as one program: what they share is compiled and linked once.

mod drawing;
mod folder;
mod own_experiment;
mod report;
mod titles;
mod trace;
