//! A mixed load over a pipe: messages of four sizes, the smaller ones the more often, from a writer to a reader.
//!
//! Both know the order, and each has a buffer for each size. The writer's buffers are filled once. The reader reads
//! each message as a whole, and flushes out what came as pages.
//!
//! The measured part begins when the reader has the last byte of the warm-up, and ends when it has the last byte of
//! all.

use crate::choice::measure_first;
use crate::link::{over_a_pipe, send_all};
use crate::os::{CallError, Os, named};
use alloc::rc::Rc;
use alloc::vec::Vec;
use pageferry_abi::{Fd, Pid, ReceiveMode, SendMode};
use pageferry_hal::{PAGE_SIZE, Va};

/// The sizes of messages. Each comes four times as often as the next.
pub const SIZES_BYTES: [usize; 4] = [128, 4096, 65536, 1 << 20];

/// How much is sent, and how.
#[derive(Clone, Copy, Debug)]
pub struct Mixed {
    /// Rounds before the measured part.
    pub warmup_rounds: u64,
    /// Rounds of the measured part.
    pub rounds: u64,
    /// By copy, by loan, or as is cheaper.
    pub send: SendMode,
    /// By copy, by transfer, or as is cheaper.
    pub receive: ReceiveMode,
}

/// What is told of the messages, at both ends. A size is told by its index in [`SIZES_BYTES`].
pub trait Judge {
    /// What messages of a size hold: as many bytes.
    fn contents(&self, size: usize) -> &[u8];
    /// What is measured begins; again when the warm-up is over.
    fn begins(&self);
    /// The buffer of the reader, which is `reader`, has a message of this size.
    fn arrived(&self, reader: Pid, buffer: Va, size: usize);
    /// The stream was over in round `index`.
    fn ended_early(&self, index: u64);
    /// The measured part is over.
    fn ends(&self);
}

/// The messages of a round, in order, as indices of sizes.
fn round() -> impl Iterator<Item = usize> {
    (1..=64_u32).flat_map(|step| (0..SIZES_BYTES.len()).filter(move |&size| step % (1 << (2 * size)) == 0))
}

/// Bytes of a round.
pub fn round_bytes() -> u64 {
    round().map(|size| SIZES_BYTES[size] as u64).sum()
}

impl Mixed {
    /// The program of the reader, which is the parent.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(self, os: &dyn Os, judge: &Rc<impl Judge + 'static>) -> Result<(), CallError> {
        measure_first(os, self.send, self.receive)?;
        let theirs = judge.clone();
        let write = move |os: &dyn Os, to| self.write(os, to, &*theirs);
        over_a_pipe(os, write, |os, from| self.read(os, from, &**judge))
    }

    fn write(&self, os: &dyn Os, to: Fd, judge: &dyn Judge) -> Result<(), CallError> {
        let buffers = buffers(os)?;
        for (size, &buffer) in buffers.iter().enumerate() {
            os.store(buffer, judge.contents(size));
        }
        for size in (0..self.warmup_rounds + self.rounds).flat_map(|_| round()) {
            send_all(os, to, buffers[size], SIZES_BYTES[size], self.send).map_err(named("write"))?;
        }
        Ok(())
    }

    fn read(&self, os: &dyn Os, from: Fd, judge: &dyn Judge) -> Result<(), CallError> {
        let buffers = buffers(os)?;
        judge.begins();
        for index in 0..self.warmup_rounds + self.rounds {
            if index == self.warmup_rounds {
                judge.begins();
            }
            for size in round() {
                let (at, len) = (buffers[size], SIZES_BYTES[size]);
                let Some(pages) = self.message(os, from, at, len)? else {
                    judge.ended_early(index);
                    return Ok(());
                };
                judge.arrived(os.pid(), at, size);
                if pages {
                    os.flush(at, len.next_multiple_of(PAGE_SIZE)).map_err(named("anflush"))?;
                }
            }
        }
        judge.ends();
        Ok(())
    }

    /// Reads a message of `len` bytes, and returns whether some of it came as pages; none at the end of the stream.
    fn message(&self, os: &dyn Os, from: Fd, at: Va, len: usize) -> Result<Option<bool>, CallError> {
        let (mut done, mut pages) = (0, false);
        while done < len {
            let received = os.receive(from, at + done, len - done, self.receive);
            let (got, came) = received.map_err(named("read"))?;
            if got == 0 {
                return Ok(None);
            }
            (done, pages) = (done + got, pages || came);
        }
        Ok(Some(pages))
    }
}

/// A buffer for each size.
fn buffers(os: &dyn Os) -> Result<Vec<Va>, CallError> {
    SIZES_BYTES.iter().map(|&len| os.map(len).map_err(named("map a buffer"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_comes_four_times_as_often_as_the_next() {
        let count = |wanted: usize| round().filter(|&size| size == wanted).count();
        assert_eq!([count(0), count(1), count(2), count(3)], [64, 16, 4, 1]);
        assert_eq!(round_bytes(), 64 * 128 + 16 * 4096 + 4 * 65536 + (1 << 20));
    }
}
