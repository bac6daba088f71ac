//! All tests of this crate that stand outside of it, as one program: what they share is compiled and linked once.

mod embedding;
mod journal;
mod knees;
mod published;
mod ranges;
mod repeats;
mod runs;
mod sockets;
mod strace;
mod strace_circles;
mod strace_moments;
mod stream;
mod web;
