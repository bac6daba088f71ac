//! The library's own tests, in one program.
mod fanout;
mod first;
mod pass;
mod tasks;
