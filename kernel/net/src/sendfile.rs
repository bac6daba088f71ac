//! Sending a file over a socket without its bytes going through a process (`sendfile`).
//!
//! By *copy*, each turn takes as much of one page as the socket has space for out of the page cache into an mbuf. By
//! *loan*, the page itself goes on loan to the kernel and an mbuf shows it, until the other end has it and the last
//! mbuf over it is freed (sf_buf paper, 2.3); a page that cannot be lent, because it is wired or memory is short, is
//! copied. Either way what is sent is what was in the file at that turn: a write to a page that is lent goes to another
//! frame.
//!
//! A turn holds the file's sleep lock; the wait for space, and for an address, is without it, so that a slow receiver
//! does not keep others from the file. A file that is cut meanwhile ends there: the call answers how much was sent.
//!
//! # What can fail
//! What can in reading the file and in sending. A call that has sent anything fails only if the receiver is gone.

use super::sosend::Supply;
use pageferry_abi::{Errno, SendMode};
use pageferry_core::choose::Plan;
use pageferry_core::counter::KernelCounter;
use pageferry_core::fs::{FilePart, VnodeOps};
use pageferry_core::mbuf::{Lent, Mbuf};
use pageferry_core::proc::{Syscall, WaitFlag};
use pageferry_hal::{Machine, PAGE_SIZE};

/// A file on its way into a socket.
pub(super) struct FileSupply<'a, M: Machine> {
    call: &'a Syscall<'a, M>,
    file: &'a dyn VnodeOps<M>,
    from: u64,
    len: usize,
    done: usize,
    /// Which of the bytes go by loan.
    plan: Plan,
    wait: WaitFlag,
}

impl<'a, M: Machine> FileSupply<'a, M> {
    /// A part of `file`, to be sent.
    pub(super) fn new(
        call: &'a Syscall<'a, M>,
        file: &'a dyn VnodeOps<M>,
        FilePart { from, len_bytes: len, mode }: FilePart,
        wait: WaitFlag,
    ) -> FileSupply<'a, M> {
        let plan = match mode {
            SendMode::Copy => Plan::fixed(len..len),
            SendMode::Loan | SendMode::Pin => Plan::fixed(0..len),
            SendMode::Auto => call.plan_file(len),
        };
        FileSupply { call, file, from, len, done: 0, plan, wait }
    }

    /// Copies up to `wanted` bytes, all in one page. Nothing at the end of the file.
    fn copy(&self, at: u64, wanted: usize) -> (Option<Mbuf>, Result<(), Errno>) {
        let (call, pool) = (self.call, &self.call.core.mbufs);
        let mut mbuf = match pool.alloc_for(call.sleeper(self.wait), wanted) {
            Ok(mbuf) => mbuf,
            Err(e) => return (None, Err(e)),
        };
        let to = pool.address(&mbuf, 0..mbuf.len());
        let (len, result) = match self.file.read_kernel(call, at, to, mbuf.len()) {
            Ok(len) => (len, Ok(())),
            Err(e) => (0, Err(e)),
        };
        mbuf.truncate(len);
        if len > 0 {
            return (Some(mbuf), result);
        }
        pool.free(mbuf);
        (None, result)
    }

    /// Lends up to `wanted` bytes, all in one page. Nothing at the end of the file.
    ///
    /// # Errors
    /// Why it cannot be lent; nothing is.
    fn lend(&self, at: u64, wanted: usize) -> Result<Option<Mbuf>, Errno> {
        let call = self.call;
        let Some(loan) = self.file.loan_to_kernel(call, at, wanted)? else { return Ok(None) };
        let mbuf = call.core.mbufs.external(call.sleeper(self.wait), Lent::Loan(loan), None)?;
        call.machine().count(KernelCounter::PagesLent, 1);
        Ok(Some(mbuf))
    }
}

impl<M: Machine> Supply for FileSupply<'_, M> {
    fn left(&self) -> usize {
        self.len - self.done
    }

    fn done(&self) -> usize {
        self.done
    }

    fn next(&mut self, space: usize) -> (Option<Mbuf>, Result<(), Errno>) {
        let at = self.from + self.done as u64;
        let in_page = PAGE_SIZE - at as usize % PAGE_SIZE;
        let wanted = space.min(self.left()).min(in_page);
        let lent = self.plan.lent.contains(&self.done).then(|| self.lend(at, wanted));
        let (mbuf, result) = match lent {
            Some(Ok(mbuf)) => (mbuf, Ok(())),
            Some(Err(Errno::Interrupted)) => (None, Err(Errno::Interrupted)),
            Some(Err(_)) => {
                self.call.machine().count(KernelCounter::LoansRefused, 1);
                self.copy(at, wanted)
            }
            None => self.copy(at, wanted),
        };
        match &mbuf {
            Some(mbuf) => self.done += mbuf.len(),
            // The end of the file: nothing is left.
            None => self.len = self.done,
        }
        (mbuf, result)
    }

    fn take_back(&mut self, done: usize) {
        self.done = done;
    }
}
