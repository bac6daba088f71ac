//! Random programs of system calls, one after the other: the same number is the same program on both machines.
//!
//! What a program must find is told by the plain model beside it (`pageferry_calls`); one that finds something else
//! panics, which ends the run on either machine. That both do the same, line by line, is seen as for all programs.

use crate::verdict::Verdict;
use alloc::rc::Rc;
use alloc::sync::Arc;
use core::cell::Cell;
use pageferry_calls::{Calls, Judge};
use pageferry_hal::Machine;
use pageferry_kernel::User;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Steps of a program.
const STEPS: usize = 120;

/// Programs by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Programs {
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Programs {
    /// At most so many in a run: their turns are in memory, on both sides.
    pub const MAX: u32 = 1000;

    /// Runs them.
    pub(crate) fn run<M: Machine>(self, user: &User<M>, verdict: &Arc<Verdict>) {
        for number in (self.first..).take(self.count as usize) {
            verdict.begins(number);
            let calls = Calls::random(&mut Pcg64Mcg::seed_from_u64(number.into()), STEPS);
            calls.program(Rc::new(Cell::new(0)), Compared(verdict.clone()))(user);
        }
    }
}

/// Counts what was compared.
struct Compared(Arc<Verdict>);

impl<M: Machine> Judge<M> for Compared {
    fn compared(&self, bytes: &[u8]) {
        self.0.compares(bytes, bytes);
    }

    fn between_steps(&self, _: &User<M>) {}
}
