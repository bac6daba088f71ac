//! Sleeping for some time.
//!
//! The thread sleeps on a channel of its own; a callout wakes it. Nothing is left behind when a signal comes first.

use super::user::User;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::Errno;
use pageferry_core::proc::Syscall;
use pageferry_hal::{Channel, Cycles, Machine, Threads};

impl<M: Machine> User<M> {
    /// Lets the calling thread sleep for `time`, or up to a tick longer.
    ///
    /// # Errors
    /// [`Errno::Interrupted`].
    pub(super) fn sleep(&self, call: &Syscall<'_, M>, time: Cycles) -> Result<(), Errno> {
        let thread = call.thread;
        let over = Arc::new(AtomicBool::new(false));
        let channel = Channel((1 << 59) + u64::from(thread.id().0));
        let due = Cycles(call.machine().now().0.saturating_add(time.0));
        let its = over.clone();
        let callout = call.core.callouts.add(
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
                call.core.callouts.cancel(callout);
                return Err(Errno::Interrupted);
            }
        }
        Ok(())
    }
}
