//! Data through a pipe that is a pair of sockets (UVM paper, 5.3): copied or lent into it, copied or transferred out of
//! it.
//!
//! A child writes the same buffer again and again; its parent reads, and after each read by transfer frees the pages by
//! a flush. Each read and write is of `size_bytes`; a read returns with what is there.
//!
//! With `refill` the child fills the buffer again before each write, by stores of its own: what a program does that has
//! new data to send each time and one buffer. Each page that was lent faults at the first store, and is copied if it
//! still is. Without, a buffer that is copied is its judge's to refill. A page that is lent must not be changed behind
//! the kernel's back: there the buffer gets other contents by stores of the child during the warm-up, each of which
//! breaks a loan, and keeps the last of them, as in the paper's program.
//!
//! The measured part begins when the reader has the last byte of the warm-up, and ends when it has the last byte of all
//! and has freed it.

use crate::choice::measure_first;
use crate::link::{over_a_pipe, send_all};
use crate::os::{CallError, Os, named};
use alloc::rc::Rc;
use pageferry_abi::{Fd, ReceiveMode, SendMode};
use pageferry_hal::{PAGE_SIZE, Va};

/// How much goes through the pipe, and how.
#[derive(Clone, Copy, Debug)]
pub struct UvmPipe {
    /// Bytes of a write, and of a read.
    pub size_bytes: usize,
    /// Writes before the measured part.
    pub warmup_writes: u64,
    /// Bytes of the measured part.
    pub total_bytes: u64,
    /// By copy, by loan, or as is cheaper.
    pub send: SendMode,
    /// By copy, by transfer, or as is cheaper.
    pub receive: ReceiveMode,
    /// The child fills the buffer again before each write.
    pub refill: bool,
}

/// What is told of the bytes, at both ends.
pub trait Judge {
    /// What write `index` sends: `size_bytes`, which [`UvmPipe::filled_for`] says to be those of another, maybe.
    fn contents(&self, index: u64) -> &[u8];
    /// Write `index` comes next, and nothing of the buffer is lent: it may get other contents, from outside.
    fn refills(&self, buffer: Va, index: u64);
    /// What is measured begins; again when the warm-up is over.
    fn begins(&self);
    /// The reader's buffer has `len` bytes, which are those at `at` of the stream.
    fn arrived(&self, buffer: Va, at: u64, len: usize);
    /// The stream was over after `got` bytes of `all`.
    fn ended_early(&self, got: u64, all: u64);
    /// The measured part is over.
    fn ends(&self);
}

impl UvmPipe {
    /// The program of the parent.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(self, os: &dyn Os, judge: &Rc<impl Judge + 'static>) -> Result<(), CallError> {
        measure_first(os, self.send, self.receive)?;
        let theirs = judge.clone();
        let write = move |os: &dyn Os, to| self.write(os, to, &*theirs);
        over_a_pipe(os, write, |os, from| self.read(os, from, &**judge))
    }

    /// The write for which the buffer was filled that write `index` sends.
    pub fn filled_for(&self, index: u64) -> u64 {
        match self.send {
            SendMode::Copy => index,
            SendMode::Loan | SendMode::Auto | SendMode::Pin => index.min(self.rewrites().saturating_sub(1)),
        }
    }

    fn all_bytes(&self) -> u64 {
        self.warmup_writes * self.size_bytes as u64 + self.total_bytes
    }

    /// Writes at the beginning for which the writer fills its buffer by stores. One that refills it does so for all of
    /// them. One that lends it stops behind the warm-up; and where the kernel chooses by what became of earlier loans,
    /// behind the first two, so that it sees in the rest of the warm-up that the writer has stopped.
    fn rewrites(&self) -> u64 {
        match self.send {
            _ if self.refill => u64::MAX,
            SendMode::Auto => self.warmup_writes.min(2),
            _ => self.warmup_writes,
        }
    }

    fn write(&self, os: &dyn Os, to: Fd, judge: &dyn Judge) -> Result<(), CallError> {
        let buffer = os.map(self.size_bytes).map_err(named("map"))?;
        os.store(buffer, judge.contents(0));
        let (mut sent, all) = (0, self.all_bytes());
        for index in 0.. {
            if sent == all {
                break;
            }
            match self.send {
                _ if self.refill => os.store(buffer, judge.contents(index)),
                SendMode::Copy => judge.refills(buffer, index),
                SendMode::Loan | SendMode::Auto | SendMode::Pin if index < self.rewrites() => {
                    os.store(buffer, judge.contents(index));
                }
                SendMode::Loan | SendMode::Auto | SendMode::Pin => {}
            }
            let len = (all - sent).min(self.size_bytes as u64) as usize;
            send_all(os, to, buffer, len, self.send).map_err(named("write"))?;
            sent += len as u64;
        }
        Ok(())
    }

    fn read(&self, os: &dyn Os, from: Fd, judge: &dyn Judge) -> Result<(), CallError> {
        let buffer = os.map(self.size_bytes).map_err(named("map"))?;
        let warmup_bytes = self.warmup_writes * self.size_bytes as u64;
        let (mut got, all) = (0, self.all_bytes());
        judge.begins();
        while got < all {
            if got == warmup_bytes {
                judge.begins();
            }
            // A read never crosses the end of the warm-up.
            let end = if got < warmup_bytes { warmup_bytes } else { all };
            let want = (end - got).min(self.size_bytes as u64) as usize;
            let (len, flush) = os.receive(from, buffer, want, self.receive).map_err(named("read"))?;
            if len == 0 {
                judge.ended_early(got, all);
                return Ok(());
            }
            judge.arrived(buffer, got, len);
            if flush {
                os.flush(buffer, len.next_multiple_of(PAGE_SIZE)).map_err(named("anflush"))?;
            }
            got += len as u64;
        }
        judge.ends();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lent_buffer_keeps_the_contents_of_its_last_filling() {
        let filled = |send, refill, warmup_writes| {
            let (size_bytes, total_bytes, receive) = (4096, 4096, ReceiveMode::Copy);
            let program = UvmPipe { size_bytes, warmup_writes, total_bytes, send, receive, refill };
            [0, 1, 5, 9].map(|index| program.filled_for(index))
        };
        assert_eq!(filled(SendMode::Copy, false, 0), [0, 1, 5, 9]);
        assert_eq!(filled(SendMode::Loan, true, 0), [0, 1, 5, 9]);
        assert_eq!(filled(SendMode::Loan, false, 6), [0, 1, 5, 5]);
        assert_eq!(filled(SendMode::Loan, false, 0), [0; 4], "it is filled when it is mapped");
        assert_eq!(filled(SendMode::Auto, false, 6), [0, 1, 1, 1]);
    }
}
