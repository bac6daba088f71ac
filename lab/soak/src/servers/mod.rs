//! Random use of servers that are processes: requests whose memory is attached to one process at a time, by every
//! method that the machine has.
//!
//! * `steps`: what is done, as plain data.
//! * `world`: the machine, its kernel, and the processes, which begin again when they have died.
//! * `application`: what an application does, beside the bytes that each of its pieces must have.
//!
//! The reference is a plain copying one: an application's piece is a row of bytes; a request changes the bytes that it
//! names, once for every server that it comes to; what comes back must be that. Where a server dies in the middle, it
//! may have done its part or not. What is not an application's gives an exception, and never a byte.

mod application;
mod steps;
mod world;

pub use steps::{APPLICATIONS, AreaOp, By, Deed, Order, SERVICES, Servers};
