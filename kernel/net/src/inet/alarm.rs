//! When a part of the network has something to do: one callout for the first of its deadlines.
//!
//! Control blocks, the ARP table and fragments have one each. An alarm lies beside what it is for, under the same lock.
//! Where protocols are a process, a callout that comes only tells the server that there is work, and the alarm notes
//! that it has rung.

use alloc::boxed::Box;
use pageferry_core::sched::{CalloutId, Callouts};
use pageferry_hal::{Cycles, Machine, Threads};

/// Whose alarm it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Blocks,
    Arp,
    Fragments,
}

impl Part {
    pub(super) const ALL: [Part; 3] = [Part::Blocks, Part::Arp, Part::Fragments];
}

/// A callout, and what is known of it. See the [module](self).
#[derive(Default)]
pub(super) struct Alarm {
    /// The one that is to come: when, which, and its number. One that cannot be cancelled any more finds another here.
    set: Option<(Cycles, CalloutId, u64)>,
    /// One that has come, and when it was due: the protocol server is to do that.
    rung: Option<(u64, Cycles)>,
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
        if self.set.map(|(due, ..)| due) == first {
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

    /// What has come is the server's to do.
    pub(super) fn rings(&mut self, number: u64, due: Cycles) {
        self.rung = Some((number, due));
    }

    /// Takes what has come for the server.
    pub(super) fn take_rung(&mut self) -> Option<(u64, Cycles)> {
        self.rung.take()
    }
}
