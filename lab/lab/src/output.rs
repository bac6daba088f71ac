//! Files and folders that appear whole or not at all.
//!
//! A [`PendingFile`] is written under a temporary name beside its target, a [`PendingDir`] in a folder beside its
//! target; one rename makes either appear. Both belong to the process that began them, by a lock that ends with it, so
//! what a process that was killed has left is found and removed by the next.
//!
//! # Locks
//! All that is half-written is in one list. The list is locked while anything is begun, moved to its place or taken
//! back, and for good when the process [ends](end): an interruption finds the old result or the new one, and nothing is
//! begun behind it.

mod file;
mod folder;
mod host;
mod pending;
mod place;

pub use file::PendingFile;
pub use folder::{About, PendingDir};
pub use pending::{end, remove_pending};
