//! Waiting for one of several descriptors (`poll`).
//!
//! What is known of those who wait is in [`Select`](pageferry_core::sched::Select).

use super::user::User;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, Polled};
use pageferry_core::sched::SELECT_CHANNEL;
use pageferry_hal::{Cycles, Machine, Threads};

impl<M: Machine> User<M> {
    /// Waits until one of the descriptors is ready for what is of interest, or `timeout` has passed; answers how many
    /// are. Pipes that are no sockets count as ready.
    ///
    /// # Errors
    /// [`Errno::BadFd`]; [`Errno::Interrupted`].
    pub fn poll(&self, polled: &mut [Polled], timeout: Option<Cycles>) -> Result<usize, Errno> {
        self.system_call(|call| {
            let select = &call.core.select;
            let files: Result<Vec<_>, Errno> = polled.iter().map(|p| self.get(p.fd)).collect();
            let files = files?;
            let over = Arc::new(AtomicBool::new(timeout == Some(Cycles(0))));
            let callouts = &call.core.callouts;
            let callout = timeout.filter(|time| time.0 > 0).map(|time| {
                let its = over.clone();
                let due = Cycles(call.machine().now().0.saturating_add(time.0));
                let call = move |threads: &dyn Threads| {
                    its.store(true, Ordering::Release);
                    threads.wakeup(SELECT_CHANNEL);
                };
                callouts.add(due, Box::new(call))
            });
            let result = loop {
                let before = select.changes.load(Ordering::Acquire);
                for (p, file) in polled.iter_mut().zip(&files) {
                    p.ready = file.readiness(call);
                }
                let ready = polled.iter().filter(|p| p.is_ready()).count();
                if ready > 0 || over.load(Ordering::Acquire) {
                    break Ok(ready);
                }
                select.waiting.fetch_add(1, Ordering::AcqRel);
                let slept = call.thread.sleep(SELECT_CHANNEL, "select", true, &mut || {
                    let changed = select.changes.load(Ordering::Acquire) != before;
                    if changed || over.load(Ordering::Acquire) {
                        call.thread.wakeup(SELECT_CHANNEL);
                    }
                });
                select.waiting.fetch_sub(1, Ordering::AcqRel);
                if slept.is_err() {
                    break Err(Errno::Interrupted);
                }
            };
            callout.into_iter().for_each(|id| {
                callouts.cancel(id);
            });
            result
        })
    }
}
