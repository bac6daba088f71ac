//! Writing to a null socket, by copy or by loan (UVM paper, 5.1): how fast data gets through the socket layer.
//!
//! A process writes one buffer again and again; the null protocol frees what it gets.

use crate::choice::measure_first;
use crate::os::{CallError, Os, named};
use pageferry_abi::{ReceiveMode, SendMode};
use pageferry_hal::Va;

/// What is written, and how.
#[derive(Clone, Copy, Debug)]
pub struct NullWrite {
    /// Bytes of a write.
    pub size_bytes: usize,
    /// Writes before the measured part.
    pub warmup: u64,
    /// Writes of the measured part.
    pub writes: u64,
    /// By copy, by loan, or as is cheaper.
    pub mode: SendMode,
}

/// What is told of the writes.
pub trait Judge {
    /// What the buffer holds at first: as long as a write.
    fn contents(&self) -> &[u8];
    /// What is measured begins; again when the warm-up is over.
    fn begins(&mut self);
    /// Write `index` comes next.
    fn writes(&mut self, buffer: Va, index: u64);
    /// Write `index` took `len` bytes.
    fn wrote(&mut self, buffer: Va, index: u64, len: usize);
}

impl NullWrite {
    /// The program of the only process.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(&self, os: &dyn Os, judge: &mut dyn Judge) -> Result<(), CallError> {
        let socket = os.null_socket().map_err(named("null socket"))?;
        let buffer = os.map(self.size_bytes).map_err(named("map the buffer"))?;
        os.store(buffer, judge.contents());
        self.begin(os, judge);
        for index in 0..self.warmup + self.writes {
            if index == self.warmup {
                self.begin(os, judge);
            }
            judge.writes(buffer, index);
            let len = os.send(socket, buffer, self.size_bytes, self.mode).map_err(named("write"))?;
            judge.wrote(buffer, index, len);
        }
        Ok(())
    }

    /// With the buffer in memory, as a program would have it that sends. Where measuring fails the kernel copies.
    fn begin(&self, os: &dyn Os, judge: &mut dyn Judge) {
        _ = measure_first(os, self.mode, ReceiveMode::Copy);
        judge.begins();
    }
}
