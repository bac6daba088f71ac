//! Random programs of processes that send each other memory, and a copying model beside them.
//!
//! # What it holds
//! A [`Program`] is plain data: channels between processes, and steps. A [`Model`] turns each step into an
//! [`Action`] of one process, and says what the action must answer and which bytes every holder must see. The
//! model copies everything, so it knows nothing of pages, of slots that are used again, or of who is quicker.
//! [`shrink`] cuts a program that fails down to a few steps.
//!
//! The crate depends on no library that moves memory. Whoever can do [`Action`]s can run its programs.
//!
//! # How a step finds what it names
//! Steps name channels and things by numbers that are taken modulo what there is. A step that finds nothing
//! to work on is left out. So every subsequence of a program is a program.

mod action;
mod contents;
mod ending;
mod model;
mod program;
mod shrink;

pub use action::{Action, Answer, Content, Id, Turn};
pub use contents::{Contents, Layer, pattern};
pub use model::Model;
pub use program::{Ends, LEVELS, Level, Op, Program, Shape, Step, Topology};
pub use shrink::{Failure, shrink};
