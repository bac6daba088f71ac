//! Calls that wait for a socket of a server's: on the client's side, because the server waits for nobody.
//!
//! # What it holds
//! For each socket that somebody waits for, how often it has changed and how many wait. A call notes the number before
//! it asks the server, and sleeps only if it is the same when it has the answer: what changes meanwhile is not missed.
//!
//! # Locks
//! One, which comes behind all others but the scheduler's: changes are told with the network's and a socket buffer's
//! held.
//!
//! # What can fail
//! A sleep, by a signal.

use litemap::LiteMap;
use pageferry_abi::Errno;
use pageferry_core::proc::Syscall;
use pageferry_hal::{Channel, LockClass, Machine, SpinLock, Threads};

const WAITERS: LockClass = LockClass::new("Waiters", 145);

struct Waited {
    changes: u64,
    waiting: usize,
}

/// See the [module](self).
pub(super) struct Waiters<M: Machine> {
    by_handle: M::Lock<LiteMap<u64, Waited>>,
}

/// Where those sleep who wait for a socket: apart from all addresses of structures.
fn channel(handle: u64) -> Channel {
    Channel((1 << 56) + handle)
}

impl<M: Machine> Waiters<M> {
    pub(super) fn new(m: &M) -> Waiters<M> {
        Waiters { by_handle: m.new_lock(WAITERS, LiteMap::new()) }
    }

    /// Something has changed for a socket.
    pub(super) fn changed(&self, threads: &dyn Threads, handle: u64) {
        if let Some(waited) = self.by_handle.lock().get_mut(&handle) {
            waited.changes += 1;
            threads.wakeup(channel(handle));
        }
    }

    /// Everything has changed: the server is gone.
    pub(super) fn all_changed(&self, threads: &dyn Threads) {
        for (handle, waited) in self.by_handle.lock().iter_mut() {
            waited.changes += 1;
            threads.wakeup(channel(*handle));
        }
    }

    /// Nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.by_handle.lock().is_empty()
    }

    /// Asks until the answer is another than that the call is to wait.
    ///
    /// # Errors
    /// Those of `ask`; [`Errno::Interrupted`].
    pub(super) fn until<R>(
        &self,
        call: &Syscall<'_, M>,
        handle: u64,
        reason: &'static str,
        ask: impl FnMut() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        {
            let mut all = self.by_handle.lock();
            all.entry(handle).or_insert(Waited { changes: 0, waiting: 0 }).waiting += 1;
        }
        let result = self.ask_again(call, handle, reason, ask);
        let mut all = self.by_handle.lock();
        let waited = all.get_mut(&handle).expect("somebody waits");
        waited.waiting -= 1;
        if waited.waiting == 0 {
            all.remove(&handle);
        }
        result
    }

    fn ask_again<R>(
        &self,
        call: &Syscall<'_, M>,
        handle: u64,
        reason: &'static str,
        mut ask: impl FnMut() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        loop {
            let before = self.by_handle.lock()[&handle].changes;
            match ask() {
                Err(Errno::WouldBlock | Errno::InProgress) => {}
                done => return done,
            }
            let all = self.by_handle.lock();
            if all[&handle].changes != before {
                continue;
            }
            let mut held = Some(all);
            call.thread.sleep(channel(handle), reason, true, &mut || drop(held.take()))?;
        }
    }
}
