//! When a part of the network has something to do: one callout for the first of its deadlines.
//!
//! Each control block, the ARP table and fragments have one. An alarm lies beside what it is for, under the same lock.
//! Where protocols are a process, a callout that comes is only noted, and the server told that there is work.

use super::id::PcbId;
use alloc::boxed::Box;
use pageferry_core::sched::{CalloutId, Callouts};
use pageferry_hal::{Cycles, Machine, Threads};

/// Whose alarm it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Block(PcbId),
    Arp,
    Fragments,
}

/// A callout that has come, and that the protocol server is to see to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rung {
    pub(super) part: Part,
    /// Its number.
    pub(super) number: u64,
    /// When it was due.
    pub(super) due: Cycles,
}

/// A callout, and what is known of it. See the [module](self).
#[derive(Default)]
pub(super) struct Alarm {
    /// The one that is to come: when, which, and its number. One that cannot be cancelled any more finds another here.
    set: Option<(Cycles, CalloutId, u64)>,
    /// How many there were.
    number: u64,
}

impl Alarm {
    /// Has what `call` makes of a number come at `first`, or nothing at all.
    pub(super) fn set<M: Machine>(
        &mut self,
        callouts: &Callouts<M>,
        first: Option<Cycles>,
        call: impl FnOnce(u64, Cycles) -> Box<dyn FnOnce(&dyn Threads)>,
    ) {
        if self.due() == first {
            return;
        }
        if let Some((_, callout, _)) = self.set.take() {
            callouts.cancel(callout);
        }
        if let Some(due) = first {
            self.number += 1;
            let callout = callouts.add(due, call(self.number, due));
            self.set = Some((due, callout, self.number));
        }
    }

    /// Callout `number` has come.
    pub(super) fn came(&mut self, number: u64) {
        self.set.take_if(|(.., set)| *set == number);
    }

    /// When the one that is to come is due.
    pub(super) fn due(&self) -> Option<Cycles> {
        self.set.map(|(due, ..)| due)
    }
}
