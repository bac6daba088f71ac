//! The native half of the Python package `pageferry`.
//!
//! # What it holds
//! [`ends`]: the two ends of a channel, whose calls wait without the interpreter's lock and look for signals meanwhile.
//! [`slot`]: memory that is filled and sent. [`loan`]: memory that was received. Both give their bytes by the buffer
//! protocol ([`export`]) and to other libraries by DLPack ([`dlpack`]); [`ledger`] lists what is out; [`memory`] is
//! what the drop-in for `multiprocessing` sends. Arrays, nested objects and the drop-in itself are Python, on top of
//! this.
//!
//! # Locks
//! An end's lock is held for a tenth of a second at most, and never while the interpreter's is waited for. Loans and
//! slots are dropped without either.
//!
//! # Interpreters
//! It runs with and without the global lock. A second interpreter of a process is refused, or has ends of its own.

mod arrival;
mod dlpack;
mod ends;
mod errors;
mod export;
mod ledger;
mod loan;
mod memory;
mod slot;

/// What `pageferry._native` holds.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::ends::{Config, Receiver, Sender, pair, sockets};
    #[pymodule_export]
    use crate::ledger::{forget, outstanding};
    #[pymodule_export]
    use crate::loan::{HeldMessage, Loan};
    #[pymodule_export]
    use crate::memory::{
        ArrivedPickle, Part, Pickle, PickleWriter, Unmarked, held_blocks, limit_blocks, recv_message,
        send_message, tidy_blocks, trim_blocks,
    };
    #[pymodule_export]
    use crate::slot::Slot;
}
