//! What comes of an alarm: what is due is done, or the protocol server is told of it.

use super::alarm::{Alarm, Part, Rung};
use super::stack::Net;
use alloc::boxed::Box;
use alloc::vec::Vec;
use pageferry_hal::{Cycles, Machine, SpinLock, Threads};

impl<M: Machine> Net<M> {
    /// Has a part's alarm ring at `first`, or not at all.
    pub(super) fn set_alarm(&self, alarm: &mut Alarm, part: Part, first: Option<Cycles>) {
        alarm.set(&self.core.callouts, first, |number, due| {
            let weak = self.me.clone();
            Box::new(move |threads| {
                if let Some(net) = weak.upgrade() {
                    net.rings(threads, part, number, due);
                }
            })
        });
    }

    fn rings(&self, threads: &dyn Threads, part: Part, number: u64, due: Cycles) {
        match self.host() {
            None => self.ip(threads).time_passes(part, number, due),
            Some(host) => {
                self.state.lock().rung.push(Rung { part, number, due });
                host.has_work(threads);
            }
        }
    }

    /// Takes what has come for the server.
    pub(super) fn rung(&self) -> Vec<Rung> {
        core::mem::take(&mut self.state.lock().rung)
    }
}
