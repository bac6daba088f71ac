//! The library's own tests, in one program.
mod auto;
mod doctor;
mod edges;
mod fanout;
mod first;
mod pass;
mod pitfalls;
mod polling;
mod refusals;
mod tasks;
