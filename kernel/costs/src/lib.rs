//! When a copy is cheaper than moving pages: the arithmetic of the choice.
//!
//! Who measures, and when, is not known here, nor is any machine: costs come in as numbers, and a choice comes out.
//! All of it is integer arithmetic that saturates, so the same costs give the same choice everywhere.
//!
//! # What is where
//! * `linear`: a cost by the call and by the page. `points`: one that was measured at a few sizes. `pays`: from where
//!   on a way is the cheaper one. `decide`: the cheapest of several ways.
//! * `moves`: what moving pages costs in a kernel, a table of cycles; `choice`: the kernel's choices by it. `loans`:
//!   what they learn from a process's earlier calls.
//! * `messages`: what a message costs between two processes of a host, by the size; `stores`: which stores fill its
//!   buffer faster, learnt while filling.
//!
//! # Two tables
//! A kernel and a library know different things. The kernel has the parts of a call: it measures each by itself, and
//! adds up those that a call will have, with the working set that a copy will meet. The library cannot see caches, page
//! tables or where the two processes run; it knows how long whole messages took. So the tables differ. The arithmetic
//! beneath is the same: straight lines between what was measured, the first of the cheapest ways, a price for what
//! receivers write, and now and then a probe of what looks dearer.
//!
//! # Locks, failures
//! None. A wrong cost makes a choice slow and nothing else: all ways carry the same bytes.
#![no_std]
#![forbid(unsafe_code)]

mod choice;
mod decide;
mod linear;
mod loans;
mod messages;
mod moves;
mod pays;
mod points;
mod stores;

pub use choice::{Arrived, Carrier, Peer, Plan, Sending, whole_pages};
pub use decide::decide;
pub use linear::Linear;
pub use loans::{LoanStats, Outcome};
pub use messages::{MessageChoice, MessageCosts, PROBE_EVERY, Placement, Way, WrittenPages};
pub use moves::{CLASSES, MoveCosts, RequestCosts};
pub use pays::{Pays, pays};
pub use points::{between, beyond};
pub use stores::{MIN_TIMED_BYTES, StoreTimes, Stores};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
