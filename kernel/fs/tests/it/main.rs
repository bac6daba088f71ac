//! Tests of the file system from outside, in one program.

mod bad;
mod common;
mod edges;
mod failing;
mod fragments;
mod host;
mod planted;
mod power;
mod space;
