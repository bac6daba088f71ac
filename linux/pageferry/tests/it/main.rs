//! The library's own tests, in one program.
mod first;
mod pass;
