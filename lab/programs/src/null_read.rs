//! Reading from a null socket, by copy or by page transfer (UVM paper, 5.2).
//!
//! A process reads again and again; the null protocol answers at once, with pages as they are. By transfer, the
//! pages go to the same buffer that copies go to, where they take the place of those before, and are freed by a flush
//! behind each read.

use crate::choice::measure_first;
use crate::os::{CallError, Os, named};
use pageferry_abi::{Fd, ReceiveMode, SendMode};
use pageferry_hal::{PAGE_SIZE, Va};

/// What is read, and how.
#[derive(Clone, Copy, Debug)]
pub struct NullRead {
    /// Bytes that a read asks for.
    pub size_bytes: usize,
    /// Reads before the measured part.
    pub warmup: u64,
    /// Reads of the measured part.
    pub reads: u64,
    /// By copy, by transfer, or as is cheaper.
    pub mode: ReceiveMode,
}

/// What is told of the reads.
pub trait Judge {
    /// What is measured begins; again when the warm-up is over. A read brings `at_once` bytes.
    fn begins(&mut self, at_once: usize);
    /// Read `index` comes next.
    fn reads(&mut self, index: u64);
    /// Read `index` brought `len` bytes.
    fn read(&mut self, buffer: Va, index: u64, len: usize);
    /// What read `index` brought is flushed.
    fn flushed(&mut self, len: usize);
}

impl NullRead {
    /// The program of the only process.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(&self, os: &dyn Os, judge: &mut dyn Judge) -> Result<(), CallError> {
        measure_first(os, SendMode::Copy, self.mode)?;
        let socket = os.null_socket().map_err(named("null socket"))?;
        let buffer = os.map(self.size_bytes).map_err(named("map the buffer"))?;
        // The first read finds the pages that the next is answered with.
        let first = self.read(os, socket, buffer)?;
        self.flush(os, buffer, first)?;
        judge.begins(first.0);
        for index in 0..self.warmup + self.reads {
            if index == self.warmup {
                judge.begins(first.0);
            }
            judge.reads(index);
            let (len, pages) = self.read(os, socket, buffer)?;
            judge.read(buffer, index, len);
            self.flush(os, buffer, (len, pages))?;
            judge.flushed(len);
        }
        Ok(())
    }

    fn read(&self, os: &dyn Os, socket: Fd, buffer: Va) -> Result<(usize, bool), CallError> {
        os.receive(socket, buffer, self.size_bytes, self.mode).map_err(named("read"))
    }

    /// Frees what was received, if it came as pages.
    fn flush(&self, os: &dyn Os, buffer: Va, (len, pages): (usize, bool)) -> Result<(), CallError> {
        if !pages {
            return Ok(());
        }
        os.flush(buffer, len.next_multiple_of(PAGE_SIZE)).map_err(named("anflush"))
    }
}
