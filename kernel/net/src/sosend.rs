//! Sending: from a process's memory into mbufs, by copy or by loan (4.4BSD, `sosend`; UVM paper, 5.1).
//!
//! As in 4.4BSD a stream is sent one mbuf at a time: each is filled with no lock held and then handed to the protocol.
//! A copy fills a cluster with up to a page. A loan takes as many whole pages as there are and as the buffer has space
//! for, and is mapped for the kernel; what is before the first whole page or behind the last is copied, and so is
//! everything where lending is refused (a wired page, no memory). Either way what is received is what was there at the
//! time of the call, whatever the sender does later.
//!
//! # Locks
//! A sender holds the sleep lock of the socket for sending, and owns the mbuf that it fills, with no spin lock held.
//!
//! # What can fail
//! Waits, by a signal; memory; the sender's addresses; and the reader may be gone. A call that has sent anything fails
//! only if the reader is gone.

use super::sockbuf::{SockBuf, SockBufGuard};
use pageferry_abi::{Errno, SendMode};
use pageferry_core::choose::{Peer, Plan, Sending};
use pageferry_core::counter::KernelCounter;
use pageferry_core::mbuf::{Lent, Mbuf};
use pageferry_core::proc::{Syscall, Uio, UioMode, WaitFlag};
use pageferry_hal::{Cause, FlowStep, Machine, PAGE_SIZE, Place, Prot, Va};

/// Where the bytes come from that are sent: mbufs, one after the other.
pub trait Supply {
    /// Bytes that are yet to be sent.
    fn left(&self) -> usize;
    /// Bytes that are in mbufs.
    fn done(&self) -> usize;
    /// An mbuf with the next bytes, at most `space`; and why there were no more, if they end there. With it, the mbuf
    /// may be missing. Called with no lock held but the sleep lock for sending.
    fn next(&mut self, space: usize) -> (Option<Mbuf>, Result<(), Errno>);
    /// The bytes behind `done` did not get into the socket.
    fn take_back(&mut self, done: usize);
}

/// A sender on its way through its buffer.
pub struct Sender<'a, M: Machine> {
    call: &'a Syscall<'a, M>,
    uio: &'a mut Uio,
    plan: Plan,
    /// Whether it waits for memory that is short.
    wait: WaitFlag,
    /// Bytes go to a device, which takes them out of pages only.
    to_device: bool,
}

impl<'a, M: Machine> Sender<'a, M> {
    /// The one place where it is decided how each byte goes. They go to `peer`, which has `space` when it is empty.
    pub fn new(call: &'a Syscall<'a, M>, uio: &'a mut Uio, peer: Peer, space: usize) -> Sender<'a, M> {
        let len = uio.left();
        let plan = match uio.mode() {
            UioMode::Copy | UioMode::Shown | UioMode::Placed | UioMode::Discarded => Plan::fixed(len..len),
            UioMode::Pages | UioMode::Pinned => Plan::fixed(0..len),
            UioMode::Auto => call.plan(Sending { from: uio.at(), len, peer, space }),
        };
        let wait = uio.wait;
        Sender { call, uio, plan, wait, to_device: peer == Peer::Device }
    }

    /// Copies up to `max_bytes` into a new mbuf.
    fn copy(&mut self, max_bytes: usize) -> (Option<Mbuf>, Result<(), Errno>) {
        let pool = &self.call.core.mbufs;
        let sleeper = self.call.sleeper(self.wait);
        let made = match self.to_device {
            true => pool.cluster_for(sleeper, max_bytes.min(PAGE_SIZE)),
            false => pool.alloc_for(sleeper, max_bytes),
        };
        let mut mbuf = match made {
            Ok(mbuf) => mbuf,
            Err(e) => return (None, Err(e)),
        };
        let len = mbuf.len();
        let to = pool.address(&mbuf, 0..len);
        // After a vain wait for the page of a cluster, do not wait again for each of many small mbufs.
        if len < max_bytes.min(PAGE_SIZE) {
            self.wait = WaitFlag::NoWait;
        }
        let m = self.call.machine();
        let began = m.now();
        let (from, before) = (self.uio.at(), self.uio.done());
        let result = self.call.uiomove(to, len, self.uio);
        let len = self.uio.done() - before;
        if let (Some(expected), PAGE_SIZE) = (self.plan.copy_page_cycles, len) {
            // The copy may have slept, and this be another CPU now, whose clock may be behind.
            self.call.watched_copy(expected, m.now().saturating_sub(began).0);
        }
        pool.trace(&mbuf, len, Place::User(from), FlowStep::Sent);
        mbuf.truncate(len);
        if len == 0 {
            pool.free(mbuf);
            return (None, result);
        }
        (Some(mbuf), result)
    }

    /// Lends `len` bytes, whole pages, or pins them; or copies, if they are refused.
    fn lend(&mut self, len: usize) -> (Option<Mbuf>, Result<(), Errno>) {
        let (call, at) = (self.call, self.uio.at());
        let lent = match self.uio.mode() {
            UioMode::Pinned => call.space.wire(call.thread, at, len, Prot::READ).map(Lent::Pinned),
            _ => call.space.loan_to_kernel(call.thread, at, len).map(Lent::Loan),
        };
        let made = lent.map_err(Errno::from).and_then(|lent| {
            let lender = call.core.lenders.lent(call.pid, lent.frames().len());
            call.core.mbufs.external(None, lent, lender)
        });
        match made {
            Ok(mbuf) => {
                self.uio.advance(len);
                call.machine().count(KernelCounter::PagesLent, (len / PAGE_SIZE) as u64);
                if self.plan.is_chosen {
                    call.chosen_pages_lent(len / PAGE_SIZE);
                }
                (Some(mbuf), Ok(()))
            }
            // What cannot be lent may be copied up to where the memory ends.
            Err(_) => {
                call.machine().count(KernelCounter::LoansRefused, 1);
                self.plan.lent.start = self.uio.done() + len;
                self.copy(len)
            }
        }
    }
}

impl<M: Machine> Supply for Sender<'_, M> {
    fn left(&self) -> usize {
        self.uio.left()
    }

    fn done(&self) -> usize {
        self.uio.done()
    }

    fn next(&mut self, space: usize) -> (Option<Mbuf>, Result<(), Errno>) {
        let space = space.min(self.left());
        let (at, done) = (self.uio.at(), self.uio.done());
        let to_boundary = PAGE_SIZE - at.offset();
        if self.plan.lent.contains(&done) {
            let left = self.plan.lent.end - done;
            // Where there is a page behind the boundary, up to there: also when there is no space for that page yet. A
            // copy that goes farther would leave the rest as far from a boundary.
            if !at.is_page_aligned() && left >= to_boundary + PAGE_SIZE && space >= to_boundary {
                return self.copy(to_boundary);
            }
            let space = space.min(left);
            let pages = space.min(self.call.core.config.socket.loan_bytes) / PAGE_SIZE;
            if at.is_page_aligned() && pages > 0 {
                return self.lend(pages * PAGE_SIZE);
            }
        }
        // Copies end where loans begin.
        let behind =
            self.plan.lent.start.checked_sub(done).filter(|&behind| behind > 0 && !self.plan.lent.is_empty());
        self.copy(behind.map_or(space, |behind| space.min(behind)))
    }

    fn take_back(&mut self, done: usize) {
        self.uio.take_back(done);
    }
}

/// An mbuf over pages that are lent, or with a copy of the first if they are refused: for measuring.
pub fn lend_or_copy<M: Machine>(call: &Syscall<'_, M>, from: Va, len: usize) -> Result<Mbuf, Errno> {
    let mut uio = Uio::write(from, len, SendMode::Loan);
    let (mbuf, result) = Sender::new(call, &mut uio, Peer::Null, len).next(len);
    mbuf.ok_or_else(|| result.expect_err("without an mbuf there is an error"))
}

/// How far one step of sending got.
enum Step {
    Sent,
    Failed(Errno),
    /// A sleep failed, and another thread may have the sleep lock now.
    LockLost(Errno),
}

impl<M: Machine> SockBuf<M> {
    /// Sends all of a buffer, or what there is space for if the call does not wait.
    ///
    /// # Errors
    /// [`Errno::BrokenPipe`] when the last reader is gone before all is sent; [`Errno::WouldBlock`],
    /// [`Errno::Interrupted`], [`Errno::NoMemory`] or a bad address.
    pub fn send(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(call.core.config.paths.sosend);
        self.touch(m);
        let wait = uio.wait;
        let mut sender = Sender::new(call, uio, Peer::Socket, self.high_water_bytes());
        self.send_from(call, &mut sender, wait)
    }

    /// Sends all that there is, or what there is space for if the call does not wait.
    ///
    /// # Errors
    /// As [`SockBuf::send`].
    pub fn send_from(
        &self,
        call: &Syscall<'_, M>,
        sender: &mut dyn Supply,
        wait: WaitFlag,
    ) -> Result<(), Errno> {
        let (mut held, locked) = self.lock_sending(call, self.lock());
        locked?;
        let (result, has_lock) = loop {
            if sender.left() == 0 {
                break (Ok(()), true);
            }
            let (again, step) = self.send_some(call, held, sender, wait);
            held = again;
            match step {
                Step::Sent => {}
                Step::Failed(e) => break (Err(e), true),
                Step::LockLost(e) => break (Err(e), false),
            }
        };
        if has_lock {
            self.unlock_sending(call, &mut held);
        }
        drop(held);
        result
    }

    /// Sends an mbuf, or sleeps for space.
    fn send_some<'a>(
        &'a self,
        call: &Syscall<'_, M>,
        held: SockBufGuard<'a, M>,
        sender: &mut dyn Supply,
        wait: WaitFlag,
    ) -> (SockBufGuard<'a, M>, Step) {
        if held.refuses() {
            return (held, Step::Failed(Errno::BrokenPipe));
        }
        let space = self.space(&held, sender.left());
        if space == 0 {
            if wait.is_no_wait() {
                return (held, Step::Failed(Errno::WouldBlock));
            }
            return match self.wait_for_space(call, held) {
                (held, Ok(())) => (held, Step::Sent),
                (held, Err(e)) => (held, Step::LockLost(e)),
            };
        }
        drop(held);
        let before = sender.done();
        let (mbuf, result) = sender.next(space);
        let mut held = self.lock();
        if let Some(mbuf) = mbuf {
            let unneeded = if held.refuses() {
                // The reader is gone, or was told that this is all: these will not be read.
                sender.take_back(before);
                Some(mbuf)
            } else {
                call.machine().execute(call.core.config.paths.protocol);
                let unneeded = self.sbappend(call, &mut held, mbuf);
                self.wake_reader(call, &mut held);
                unneeded
            };
            if let Some(mbuf) = unneeded {
                drop(held);
                call.core.mbufs.free(mbuf);
                held = self.lock();
            }
            if let Some(upcall) = self.upcall() {
                drop(held);
                upcall.sent(call.thread);
                held = self.lock();
            }
        }
        (held, result.map_or_else(Step::Failed, |()| Step::Sent))
    }
}

/// Sends to the null protocol, which frees what it gets (UVM paper, 5.1).
///
/// # Errors
/// [`Errno::NoMemory`] or a bad address.
pub(super) fn send_to_null<M: Machine>(call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
    let m = call.machine();
    let _c = m.scope(Cause::Protocol);
    m.execute(call.core.config.paths.sosend);
    let space = call.core.config.socket.high_water_bytes;
    // There is nothing to wait for but memory.
    uio.wait = WaitFlag::WaitOk;
    let mut sender = Sender::new(call, uio, Peer::Null, space);
    while sender.left() > 0 {
        let (mbuf, result) = sender.next(space);
        if let Some(mbuf) = mbuf {
            m.execute(call.core.config.paths.protocol);
            call.core.mbufs.free(mbuf);
        }
        result?;
    }
    Ok(())
}
