//! What processes have lent to the kernel, and notice to them when it comes back (UVM paper, 4.1: a loan ends when the
//! borrower is done; here its lender learns that).
//!
//! A process that sends by loan may write to its buffer at once: that breaks the loan and costs a copy. One that would
//! rather wait asks how many of its pages are out, or sleeps until none is. (A receiver by transfer may have the pages
//! all the same, as its own memory: then the kernel's loan is over, and the first of the two to write copies.) Counting
//! them takes a lock, and cache lines that lender and borrower write in turn; so it is done only for a process that
//! asks for it, from then on. An account is there as long as its process watches, or has pages out that were lent while
//! it did: pages may be out longer than their process lives.
//!
//! # Locks
//! The accounts are under a lock of class `Mbuf`, held for one step: a loan is given back where its last mbuf is freed,
//! by any thread or none.
//!
//! # What can fail
//! Waiting, by a signal, or when the process does not watch its loans. A loan that is returned twice is a broken
//! invariant.

use crate::sched::{MAX_THREADS, Sched};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use litemap::LiteMap;
use pageferry_abi::{Errno, Pid};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Access, Channel, LockClass, Machine, SpinLock, StructArena, StructVa, Threads};

/// An account.
const ACCOUNT_BYTES: usize = 32;
/// Channels of lenders, apart from all addresses of structures.
const CHANNELS: u64 = 1 << 60;

/// How many pages of each process are on loan, for processes that ask for it.
pub struct Lenders<M: Machine> {
    machine: M,
    sched: Arc<Sched<M>>,
    at: StructVa,
    /// Accounts there are: without any, a look-up need not take the lock.
    count: AtomicUsize,
    accounts: M::Lock<LiteMap<Pid, Account>>,
}

#[derive(Default)]
struct Account {
    watched: bool,
    pages_out: usize,
    wanted: bool,
}

/// The process that has lent, as an obligation: it must be notified by [`Lenders::returned`].
#[must_use = "a lender must be notified"]
#[derive(Debug, PartialEq, Eq)]
pub struct Lender(Pid);

impl<M: Machine> Lenders<M> {
    /// Without accounts.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(sched: &Arc<Sched<M>>, arena: &mut StructArena) -> Result<Lenders<M>, ArenaFull> {
        let machine = sched.machine().clone();
        let at = arena.array("lenders", MAX_THREADS, ACCOUNT_BYTES)?;
        let accounts = machine.new_lock(LockClass::MBUF, LiteMap::new());
        Ok(Lenders { machine, sched: sched.clone(), at, count: AtomicUsize::new(0), accounts })
    }

    fn touch(&self, pid: Pid) {
        let at = self.at.element(pid.0 as usize % MAX_THREADS, ACCOUNT_BYTES);
        self.machine.touch(at, ACCOUNT_BYTES, Access::Write);
    }

    fn channel(pid: Pid) -> Channel {
        Channel(CHANNELS | u64::from(pid.0))
    }

    /// Does `work` with the account of `pid`, if there is one; it goes when it is neither watched nor counts pages.
    fn with<R>(&self, pid: Pid, work: impl FnOnce(&mut Account) -> R) -> Option<R> {
        let mut accounts = self.accounts.lock();
        let account = accounts.get_mut(&pid)?;
        self.touch(pid);
        let result = work(account);
        if !account.watched && account.pages_out == 0 {
            accounts.remove(&pid);
        }
        self.count.store(accounts.len(), Ordering::Relaxed);
        Some(result)
    }

    /// Begins, or ends, to watch what a process lends.
    pub fn watch(&self, pid: Pid, on: bool) {
        if on {
            self.accounts.lock().entry(pid).or_default();
        }
        self.with(pid, |account| account.watched = on);
    }

    /// A process lends `len_pages`. Answers the lender that is to be notified when they are back, if it watches.
    pub fn lent(&self, pid: Pid, len_pages: usize) -> Option<Lender> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let watched = self.with(pid, |account| {
            account.pages_out += if account.watched { len_pages } else { 0 };
            account.watched
        });
        (watched == Some(true)).then_some(Lender(pid))
    }

    /// A loan of `len_pages` is over.
    pub fn returned(&self, lender: Lender, len_pages: usize) {
        let Lender(pid) = lender;
        let wake = self.with(pid, |account| {
            let left = account.pages_out.checked_sub(len_pages);
            account.pages_out = left.expect("no more comes back than was lent");
            account.pages_out == 0 && core::mem::take(&mut account.wanted)
        });
        if wake.expect("an account with pages out is there") {
            self.sched.wakeup(Self::channel(pid), usize::MAX);
        }
    }

    /// Pages of a process that are on loan.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when it does not watch.
    pub fn pages_out(&self, pid: Pid) -> Result<usize, Errno> {
        let out = self.with(pid, |account| account.watched.then_some(account.pages_out));
        out.flatten().ok_or(Errno::Invalid)
    }

    /// Sleeps until none is.
    ///
    /// # Errors
    /// [`Errno::Invalid`] when the process does not watch; [`Errno::Interrupted`].
    pub fn wait(&self, t: &dyn Threads, pid: Pid) -> Result<(), Errno> {
        while self.pages_out(pid)? > 0 {
            let mut accounts = self.accounts.lock();
            // The last may have come back since.
            let Some(account) = accounts.get_mut(&pid).filter(|account| account.pages_out > 0) else {
                continue;
            };
            account.wanted = true;
            let mut held = Some(accounts);
            t.sleep(Self::channel(pid), "pages on loan", true, &mut || drop(held.take()))?;
        }
        Ok(())
    }

    /// Accounts that are left.
    pub fn count(&self) -> usize {
        self.accounts.lock().len()
    }
}
