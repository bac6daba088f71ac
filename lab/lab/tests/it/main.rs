//! All tests of this crate that stand outside of it, as one program: what they share is compiled and linked once.

mod embedding;
mod journal;
mod knees;
mod left;
mod movers;
mod plan;
mod published;
mod ranges;
mod registry;
mod repeats;
mod runs;
mod sockets;
mod strace;
mod strace_circles;
mod strace_generated;
mod strace_moments;
mod strace_under_way;
mod stream;
mod web;
