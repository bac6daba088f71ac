//! All tests of this crate that stand outside of it, as one program: what they share is compiled and linked once.

mod cache;
mod common;
mod index;
mod policy;
mod schemes;
mod traffic;
