//! Sending what is in one socket also to another, without taking it out and without copying it (the `m_copym` of
//! 4.4BSD, by which a protocol keeps what it may have to send again; Linux has it as a system call, `tee`).
//!
//! Each may be a local socket or a connection: what has come by the card then goes out by it again where it lies.
//! Both sockets then refer to the same clusters and loans. A cluster with two references is not donated (UVM paper,
//! 4.2.3), and a loan ends when the last of the two has been received.
//!
//! # Locks
//! The sleep lock of the one for receiving, then that of the other for sending; never two spin locks. A thread that
//! holds a sleep lock for sending never waits for one for receiving, so no circle of waits is possible.
//!
//! # What can fail
//! Waits, by a signal; memory for mbufs; there may be no space, or no reader. Nothing was sent then.

use super::sockbuf::{SockBuf, SockBufGuard};
use alloc::vec::Vec;
use pageferry_abi::Errno;
use pageferry_core::mbuf::Mbuf;
use pageferry_core::proc::{Syscall, WaitFlag};
use pageferry_hal::{Cause, Machine};

impl<M: Machine> SockBuf<M> {
    /// Sends up to `len` of the bytes that are here to `other`, too: as many as are here and as there is space for
    /// there. Sleeps for the first one. Zero at the end of the stream.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`] when there is no space, or no byte and the call does not wait; [`Errno::BrokenPipe`],
    /// [`Errno::Interrupted`], [`Errno::NoMemory`]. Nothing was sent then.
    pub fn tee(
        &self,
        call: &Syscall<'_, M>,
        other: &SockBuf<M>,
        len: usize,
        wait: WaitFlag,
    ) -> Result<usize, Errno> {
        if core::ptr::eq(self, other) {
            return Err(Errno::Invalid);
        }
        let m = call.machine();
        let _c = m.scope(Cause::Protocol);
        m.execute(call.core.config.paths.soreceive);
        self.touch(m);
        other.touch(m);
        let (mut held, locked) = self.lock_receiving(call, self.lock());
        locked?;
        while len > 0 && held.is_empty() && !held.writer_gone {
            if wait.is_no_wait() {
                self.unlock_receiving(call, &mut held);
                return Err(Errno::WouldBlock);
            }
            let (again, woken) = self.wait_for_data(call, held);
            held = again;
            woken?;
        }
        let (empty, there) = (len == 0 || held.is_empty(), held.chain().map(Mbuf::len).sum::<usize>());
        drop(held);
        let result = if empty { Ok(0) } else { self.tee_some(call, other, len.min(there)) };
        self.unlock_receiving(call, &mut self.lock());
        result
    }

    /// The caller holds the sleep lock for receiving, so what is in the chain stays.
    fn tee_some(&self, call: &Syscall<'_, M>, other: &SockBuf<M>, len: usize) -> Result<usize, Errno> {
        let (mut there, locked) = other.lock_sending(call, other.lock());
        locked?;
        let space = other.space(&there, len);
        let result = match (there.refuses(), space) {
            (true, _) => Err(Errno::BrokenPipe),
            (_, 0) => Err(Errno::WouldBlock),
            _ => Ok(()),
        };
        if result.is_ok() {
            drop(there);
            let shared = self.share_front(call, space);
            there = other.lock();
            let mut sent = 0;
            let (shared, result) = shared;
            let (mut unneeded, mut merged) = (Vec::new(), Vec::new());
            for mbuf in shared {
                // Sharing may take more mbufs than there were to be: as many as there is memory for.
                let len = mbuf.len();
                // Behind one that does not fit, none may go: bytes stay in order.
                if there.refuses() || !unneeded.is_empty() || other.space(&there, len) < len {
                    unneeded.push(mbuf);
                    continue;
                }
                call.machine().execute(call.core.config.paths.protocol);
                sent += len;
                merged.extend(other.sbappend(call, &mut there, mbuf));
            }
            other.wake_reader(call, &mut there);
            other.unlock_sending(call, &mut there);
            drop(there);
            if sent > 0
                && let Some(upcall) = other.upcall()
            {
                upcall.sent(call.thread);
            }
            unneeded.into_iter().chain(merged).for_each(|mbuf| call.core.mbufs.free(mbuf));
            return if sent > 0 { Ok(sent) } else { result.and(Err(Errno::WouldBlock)) };
        }
        other.unlock_sending(call, &mut there);
        result.map(|()| 0)
    }

    /// Mbufs over the first `len` bytes, or over fewer, with the reason.
    fn share_front(&self, call: &Syscall<'_, M>, len: usize) -> (Vec<Mbuf>, Result<(), Errno>) {
        let held: SockBufGuard<'_, M> = self.lock();
        let mut shared = Vec::new();
        let mut left = len;
        for mbuf in held.chain() {
            if left == 0 {
                break;
            }
            let part = mbuf.len().min(left);
            match call.core.mbufs.share(mbuf, part) {
                Ok(mbuf) => shared.push(mbuf),
                Err(e) => return (shared, Err(e)),
            }
            left -= part;
        }
        (shared, Ok(()))
    }
}
