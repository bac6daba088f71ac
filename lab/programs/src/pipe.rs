//! Pipe bandwidth (sf_buf paper, 6.3; lmbench's `bw_pipe`): the child writes, the parent reads.
//!
//! As in lmbench, the writer sends the same buffer again and again. A judge may give it other contents before each
//! chunk. The measured part begins when the reader has the last byte of the warm-up, and ends when it has the last byte
//! of all.

use crate::link::over_a_pipe;
use crate::os::{CallError, Os, named};
use alloc::rc::Rc;
use pageferry_abi::Fd;
use pageferry_hal::{CpuId, Va};

/// How much goes through the pipe.
#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    /// Bytes of a write, and of a read.
    pub chunk_bytes: usize,
    /// Bytes before the measured part.
    pub warmup_bytes: u64,
    /// Bytes of the measured part.
    pub total_bytes: u64,
    /// The CPUs of reader and writer; none where the kernel places them.
    pub cpus: Option<[CpuId; 2]>,
}

/// What is told of the bytes, at both ends.
pub trait Judge {
    /// What the writer's buffer holds at first: as long as a chunk.
    fn contents(&self) -> &[u8];
    /// The writer is about to send `len` bytes of its buffer, which are those at `at` of the stream.
    fn sends(&self, buffer: Va, at: u64, len: usize);
    /// The measured part begins.
    fn begins(&self);
    /// The reader's buffer has `len` bytes, which are those at `at` of the stream.
    fn arrived(&self, buffer: Va, at: u64, len: usize);
    /// The stream was over after `got` bytes of `all`.
    fn ended_early(&self, got: u64, all: u64);
    /// The measured part is over.
    fn ends(&self);
}

impl Pipe {
    /// The program of the parent.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(self, os: &dyn Os, judge: &Rc<impl Judge + 'static>) -> Result<(), CallError> {
        let theirs = judge.clone();
        let write = move |os: &dyn Os, to| {
            self.bind(os, 1)?;
            self.write(os, to, &*theirs)
        };
        self.bind(os, 0)?;
        over_a_pipe(os, write, |os, from| self.read(os, from, &**judge))
    }

    fn bind(&self, os: &dyn Os, nth: usize) -> Result<(), CallError> {
        self.cpus.map_or(Ok(()), |cpus| os.bind_cpu(cpus[nth]).map_err(named("bind to a CPU")))
    }

    fn write(&self, os: &dyn Os, to: Fd, judge: &dyn Judge) -> Result<(), CallError> {
        let buffer = os.map(self.chunk_bytes).map_err(named("map the writer's buffer"))?;
        os.store(buffer, judge.contents());
        let all = self.warmup_bytes + self.total_bytes;
        let mut sent = 0;
        while sent < all {
            let chunk = (all - sent).min(self.chunk_bytes as u64) as usize;
            judge.sends(buffer, sent, chunk);
            let mut done = 0;
            while done < chunk {
                done += os.write(to, buffer + done, chunk - done).map_err(named("write"))?;
            }
            sent += chunk as u64;
        }
        Ok(())
    }

    fn read(&self, os: &dyn Os, from: Fd, judge: &dyn Judge) -> Result<(), CallError> {
        let buffer = os.map(self.chunk_bytes).map_err(named("map the reader's buffer"))?;
        let all = self.warmup_bytes + self.total_bytes;
        let (mut begun, mut got) = (false, 0);
        while got < all {
            if got >= self.warmup_bytes && !begun {
                judge.begins();
                begun = true;
            }
            // A read never crosses the end of the warm-up.
            let end = if got < self.warmup_bytes { self.warmup_bytes } else { all };
            let want = (end - got).min(self.chunk_bytes as u64) as usize;
            let len = os.read(from, buffer, want).map_err(named("read"))?;
            if len == 0 {
                judge.ended_early(got, all);
                return Ok(());
            }
            judge.arrived(buffer, got, len);
            got += len as u64;
        }
        judge.ends();
        Ok(())
    }
}
