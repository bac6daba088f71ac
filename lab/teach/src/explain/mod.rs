//! What a mechanism does, explained step by step beside the counters of a small run.
//!
//! A [`Mechanism`] is a few words and a program. The program makes a handful of system calls on a modelled machine and
//! says after each what has happened; the `Stage` notes what the machine counted meanwhile. So the words are written
//! here, and every number beside them is measured. A run is held to the same laws as an experiment, and what a program
//! itself promises (bytes that must be there, pages that must be free) it checks from outside of the machine.
//!
//! A mechanism may have a counterexample: a kernel with a rule that looks right and is not. Then its program runs under
//! that one first, where it must use a stale translation, and after that under its own. Or it has several runs, on
//! machines and kernels that are compared: then it ends with a table of what they found.

mod accessed_bit;
mod blocks;
mod explanation;
mod far_end;
mod files;
mod ispc;
mod mapping;
mod memory;
mod network;
mod pass;
mod pipe;
mod refill;
mod sockets;
mod stage;

pub use explanation::{Explanation, all, explain, find};
pub use stage::{Counterexample, Field, Mechanism, More, Step, Table, Variant};
