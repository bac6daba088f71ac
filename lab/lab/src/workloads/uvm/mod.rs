//! What the UVM paper describes and does not measure: the modes of map entry passing, quick references, where
//! transferred pages go and how they are given up, push-down, and loans behind a real card.
//!
//! * `pass_modes`: a range of addresses shared, copied, donated, donated with zero-fill, or lent (4.3.1).
//! * `quick_reference`: a look into another process, and what is left of that process's map (4.3.1).
//! * `transfer_area`: the transfer area or an address given; `anflush` or `munmap` (4.2.1, 4.2.2).
//! * `push_down`: pages that become a file's (4.2.2).
//! * `fork_chains`: what copy-on-write leaves behind, and what a fault costs then (2.1).
//! * `loan_locks`: what keeps objects and borrowing anons in step (4.1.1).
//! * `page_out`: anonymous memory that goes to the swap area (abstract).
//! * `card_send`: a stream through a network card that is slower than the CPU (5.1).
//! * `relatives`: what the paper compares UVM with, on UVM's floor (2.2, 2.3, 5.5).

pub(super) mod card_send;
pub(super) mod fork_chains;
pub(super) mod loan_locks;
pub(super) mod page_out;
pub(super) mod pass_modes;
pub(super) mod push_down;
pub(super) mod quick_reference;
pub(super) mod relatives;
pub(super) mod transfer_area;

use crate::kit::CallError;
use pageferry_hal::{Machine as _, Va};
use pageferry_kernel::{Errno, User};
use pageferry_model::Model;
use std::cell::Cell;

/// Cycles of one part of a round, added up.
#[derive(Default)]
struct Sum(Cell<u64>);

impl Sum {
    /// Makes a call, and adds its time.
    fn add<R>(
        &self,
        user: &User<Model>,
        what: &'static str,
        call: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, CallError> {
        let began = user.machine().now();
        let result = call();
        self.0.set(self.0.get() + user.machine().now().saturating_sub(began).0);
        result.map_err(|errno| (what, errno))
    }

    /// Begins anew.
    fn clear(&self) {
        self.0.set(0);
    }

    /// Of one of `rounds`.
    fn of_one(&self, rounds: u64) -> f64 {
        self.0.get() as f64 / rounds as f64
    }
}

/// Entries of the process's map.
fn entries(user: &User<Model>) -> f64 {
    user.space().entry_count(user.thread()) as f64
}

/// Stores to every byte.
fn store_all(user: &User<Model>, at: Va, bytes: &[u8]) -> Result<(), Errno> {
    user.store(at, bytes);
    Ok(())
}
