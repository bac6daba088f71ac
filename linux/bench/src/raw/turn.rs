//! The floor's ring: two counters and one cell.
//!
//! A word says how many messages were sent, another how many the receiver is done with, each in a line of its
//! own. There is one message at a time, so there is one cell. A side that waits looks at the word of the
//! other, or sleeps on it.

use super::Memory;
use crate::cell::Wait;
use crate::error::{BenchError, Result};
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::thread::futex;
use std::time::Instant;

/// What a cell says of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// In which of the slots.
    pub slot: u32,
}

/// The counters, as one side has them.
#[derive(Debug)]
pub struct Turn {
    memory: Memory,
    wait: Wait,
    turns: u32,
}

const SENT: usize = 0;
const CELL: usize = 16;
const DONE: usize = 32;
/// Words of a cell: a line.
const CELL_WORDS: usize = 16;
/// A peer that has not answered for so long has died, or is stuck.
const PATIENCE_S: u64 = 60;

impl Turn {
    /// New ones, for both processes.
    pub fn make(wait: Wait) -> Result<Turn> {
        Ok(Turn { memory: Memory::shared(4096)?, wait, turns: 0 })
    }

    /// Those that the other process has made.
    pub fn of(fd: OwnedFd, wait: Wait) -> Result<Turn> {
        Ok(Turn { memory: Memory::of(fd)?, wait, turns: 0 })
    }

    /// What the other process needs.
    pub fn fd(&self) -> &OwnedFd {
        self.memory.fd().expect("it was made to be shared")
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        &self.memory.words()[index]
    }

    /// A message begins that is not told of by [`Turn::publish`].
    pub(crate) fn begin(&mut self) {
        self.turns = self.turns.wrapping_add(1);
    }

    /// The sender gives a message to the receiver.
    pub fn publish(&mut self, cell: Cell) {
        self.begin();
        for index in 0..CELL_WORDS {
            let word = if index == 0 { cell.slot } else { self.turns };
            self.word(CELL + index).store(word, Ordering::Relaxed);
        }
        self.tell(SENT);
    }

    /// The receiver takes the next message.
    pub fn take(&mut self) -> Result<Cell> {
        self.begin();
        self.await_word(SENT)?;
        let mut words = [0; CELL_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.word(CELL + index).load(Ordering::Relaxed);
        }
        if words[1..].iter().any(|&word| word != self.turns) {
            return Err(BenchError::Peer("its ring holds another message".to_owned()));
        }
        Ok(Cell { slot: words[0] })
    }

    /// The receiver is done with the message.
    pub fn done(&self) {
        self.tell(DONE);
    }

    /// The sender waits until the receiver is done.
    pub fn wait_done(&self) -> Result<()> {
        self.await_word(DONE)
    }

    fn tell(&self, index: usize) {
        self.word(index).store(self.turns, Ordering::Release);
        if self.wait == Wait::Sleep {
            let _ = futex::wake(self.word(index), futex::Flags::empty(), 1);
        }
    }

    fn await_word(&self, index: usize) -> Result<()> {
        let word = self.word(index);
        let mut since = None;
        loop {
            for _ in 0..100_000 {
                let found = word.load(Ordering::Acquire);
                if found == self.turns {
                    return Ok(());
                }
                match self.wait {
                    Wait::Spin => core::hint::spin_loop(),
                    Wait::Sleep => {
                        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                        let slept = futex::wait(word, futex::Flags::empty(), found, Some(&second));
                        if slept == Err(Errno::TIMEDOUT) {
                            break;
                        }
                    }
                }
            }
            let now = Instant::now();
            if now.duration_since(*since.get_or_insert(now)).as_secs() >= PATIENCE_S {
                return Err(BenchError::Silent(PATIENCE_S));
            }
        }
    }
}
