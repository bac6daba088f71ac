//! All tests of this crate that stand outside of it, as one program: what they share is compiled and linked once.

mod bad_input;
mod book;
mod commands;
mod common;
mod diff;
mod disk;
mod fuzz;
#[cfg(target_os = "linux")]
mod host;
mod http;
mod manual;
mod outputs;
mod own;
mod replay;
mod sensitivity;
mod serve;
mod serve_clients;
mod serve_soak;
mod sweep;
mod sweep_parts;
