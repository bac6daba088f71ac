//! Methods that are carried out by programs of their own, so that what one of them does to its process is done to no
//! other.
//!
//! # What there is
//! A program is told one method, and is the sending process of it; it starts the receiving one itself. The runner
//! writes an [`Order`] as a line to its standard input, and reads an [`Answer`] as a line from its standard output.
//! Nothing else goes over these, and nothing of it is timed: the program takes the times.
//! [`serve`] is the program's side for those in Rust; `peers/python/peer.py` has its own.
//!
//! # What ends a program
//! The end of its standard input, or a failed order, of which it tells. One that dies, says something else or says
//! nothing is killed with all that it has started, and the method is lost for the rest of the run; the run goes on.
//! A program dies with the runner, and its receiver with it.

mod own;
mod process;
mod serve;
mod words;

pub use crate::link::Link;
pub use crate::raw::{Cell, Turn, pin};
pub use crate::work::{fill, is_of, sum, sum_of};
pub(crate) use own::own;
pub(crate) use process::{Program, Stop};
pub use serve::{Messages, die_with_parent, serve};
pub use words::{Answer, Order};
