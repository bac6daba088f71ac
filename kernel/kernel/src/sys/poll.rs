//! Waiting for one of several descriptors (`poll`).
//!
//! # What it holds
//! How often anything has become ready, and how many threads sleep for that. All of them sleep on one channel and look
//! again at what they wait for, as in 4.4BSD where two processes select the same descriptor. What becomes ready counts
//! one up after it has; a thread that has looked sleeps only if the count is what it was before it looked.

use super::user::User;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pageferry_abi::{Errno, Polled};
use pageferry_hal::{Channel, Cycles, Machine, Threads};

/// Where all sleep that wait for descriptors: apart from all addresses of structures.
const CHANNEL: Channel = Channel(1 << 57);

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Select {
    changes: AtomicU64,
    waiting: AtomicUsize,
}

impl Select {
    /// Something has become ready, perhaps.
    ///
    /// # Locks
    /// Takes `Scheduler` if a thread waits.
    pub(crate) fn changed(&self, threads: &dyn Threads) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if self.waiting.load(Ordering::Acquire) > 0 {
            threads.wakeup(CHANNEL);
        }
    }
}

impl<M: Machine> User<M> {
    /// Waits until one of the descriptors is ready for what is of interest, or `timeout` has passed; answers how many
    /// are. Pipes that are no sockets count as ready.
    ///
    /// # Errors
    /// [`Errno::BadFd`]; [`Errno::Interrupted`].
    pub fn poll(&self, polled: &mut [Polled], timeout: Option<Cycles>) -> Result<usize, Errno> {
        self.system_call(|call| {
            let (kernel, select) = (call.kernel, &call.kernel.select);
            let files: Result<Vec<_>, Errno> = polled.iter().map(|p| self.get(p.fd)).collect();
            let files = files?;
            let over = Arc::new(AtomicBool::new(timeout == Some(Cycles(0))));
            let callout = timeout.filter(|time| time.0 > 0).map(|time| {
                let its = over.clone();
                let due = Cycles(call.machine().now().0.saturating_add(time.0));
                let call = move |threads: &dyn Threads| {
                    its.store(true, Ordering::Release);
                    threads.wakeup(CHANNEL);
                };
                kernel.callouts.add(due, Box::new(call))
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
                let slept = call.thread.sleep(CHANNEL, "select", true, &mut || {
                    let changed = select.changes.load(Ordering::Acquire) != before;
                    if changed || over.load(Ordering::Acquire) {
                        call.thread.wakeup(CHANNEL);
                    }
                });
                select.waiting.fetch_sub(1, Ordering::AcqRel);
                if slept.is_err() {
                    break Err(Errno::Interrupted);
                }
            };
            callout.into_iter().for_each(|id| {
                kernel.callouts.cancel(id);
            });
            result
        })
    }
}
