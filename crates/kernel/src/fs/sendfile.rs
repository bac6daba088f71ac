//! Sending a file over a socket without its bytes going through a process (`sendfile`): by copy, from the page cache into mbufs.
//!
//! Each turn copies as much of one page as the socket has space for, under the inode's sleep lock; the wait for space is without it,
//! so that a slow receiver does not keep others from the file. A file that is cut meanwhile ends there: the call answers how much was
//! sent.
//!
//! # What can fail
//! What can in reading the file and in sending. A call that has sent anything fails only if the receiver is gone.

use super::vnode::Regular;
use crate::error::Errno;
use crate::net::{Mbuf, Supply};
use crate::proc::Syscall;
use pageferry_hal::{Machine, PAGE_SIZE};

/// A file on its way into a socket.
pub(crate) struct FileSupply<'a, M: Machine> {
    call: &'a Syscall<'a, M>,
    file: &'a Regular<M>,
    from: u64,
    len: usize,
    done: usize,
    nonblocking: bool,
}

impl<M: Machine> Regular<M> {
    /// Its bytes from `from` on, up to `len`, to be sent.
    pub(crate) fn supply<'a>(
        &'a self,
        call: &'a Syscall<'a, M>,
        from: u64,
        len: usize,
        nonblocking: bool,
    ) -> FileSupply<'a, M> {
        FileSupply { call, file: self, from, len, done: 0, nonblocking }
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
        let (call, at) = (self.call, self.from + self.done as u64);
        let in_page = PAGE_SIZE - at as usize % PAGE_SIZE;
        let pool = &call.kernel.mbufs;
        let wanted = space.min(self.left()).min(in_page);
        let mut mbuf = match pool.alloc_for(call.sleeper(self.nonblocking), wanted) {
            Ok(mbuf) => mbuf,
            Err(e) => return (None, Err(e)),
        };
        let copied = self.file.inode.locked(call, || {
            let there = self.file.inode.size_bytes().saturating_sub(at);
            let len = usize::try_from(there).unwrap_or(usize::MAX).min(mbuf.len());
            let (to, _) = pool.piece(&mbuf, 0..mbuf.len());
            Ok(self.file.each_page(call, at, len, false, |kva, done, piece| {
                call.copy_kernel(to + done, kva, piece);
                Ok(())
            }))
        });
        let (len, result) = copied.unwrap_or_else(|e| (0, Err(e)));
        mbuf.truncate(len);
        self.done += len;
        if len > 0 {
            return (Some(mbuf), result);
        }
        pool.free(mbuf);
        // The end of the file: nothing is left.
        self.len = self.done;
        (None, result)
    }

    fn take_back(&mut self, done: usize) {
        self.done = done;
    }
}
