//! Sleeping for some time.
//!
//! The thread sleeps on a channel of its own; a callout wakes it. Nothing is left behind when a signal comes first.

use crate::Kernel;
use crate::sched::Thread;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::Errno;
use pageferry_hal::{Channel, Cycles, Machine, Threads};

impl<M: Machine> Kernel<M> {
    /// Lets the calling thread sleep for `time`, or up to a tick longer.
    ///
    /// # Errors
    /// [`Errno::Interrupted`].
    pub(crate) fn sleep_for(&self, thread: &Thread<M>, time: Cycles) -> Result<(), Errno> {
        let over = Arc::new(AtomicBool::new(false));
        let channel = Channel((1 << 59) + u64::from(thread.id().0));
        let due = Cycles(self.machine.now().0.saturating_add(time.0));
        let its = over.clone();
        let callout = self.callouts.add(
            due,
            Box::new(move |t| {
                its.store(true, Ordering::Release);
                t.wakeup(channel);
            }),
        );
        while !over.load(Ordering::Acquire) {
            // A wakeup before the thread is on the sleep queue woke nothing.
            let slept = thread.sleep(channel, "nanosleep", true, &mut || {
                if over.load(Ordering::Acquire) {
                    thread.wakeup(channel);
                }
            });
            if slept.is_err() {
                self.callouts.cancel(callout);
                return Err(Errno::Interrupted);
            }
        }
        Ok(())
    }
}
