//! The blocks of an arena that were lent, in each process its own.
//!
//! Blocks that are filled or lent have the store, and come back to it ([`Store::keep`]). Its lock is that of the arena.

use super::limits::Limits;
use crate::choose::StoreChoice;
use crate::host::Host;
use crate::sys::fork::PerProcess;
use crate::view::Filling;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What an arena and its blocks share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(super) limits: Limits,
    process: PerProcess<Process>,
}

/// What each process has for itself.
#[derive(Debug, Default)]
struct Process {
    state: Mutex<State>,
    /// Learns which stores fill blocks faster.
    stores: StoreChoice,
}

/// The blocks of one process.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Lent at some time, the one that was lent first in front. Whether they are home is not known.
    pub(super) lent: VecDeque<LentBlock>,
    /// Of these and of those that are being made or filled.
    pub(super) bytes: u64,
    pub(super) blocks: usize,
    /// When it was last looked for blocks that nobody needs.
    pub(super) tidied: Option<Instant>,
    pub(super) made: u64,
    pub(super) again: u64,
    pub(super) left: u64,
}

/// A block that was lent, and may be home.
#[derive(Debug)]
pub(super) struct LentBlock {
    pub(super) memory: Filling,
    pub(super) since: Instant,
    number: u64,
    /// The way that it went, until all that went there was received.
    way: Option<Way>,
}

/// How far a block is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Some may wait to be received.
    Sent(u64),
    Received,
}

impl State {
    /// Takes the first block that `fits`, if one of the first `looks` of these is home. Those that are not go behind
    /// the others.
    pub(super) fn take_home(&mut self, looks: usize, fits: impl Fn(&LentBlock) -> bool) -> Option<Filling> {
        let mut looked = 0;
        for _ in 0..self.lent.len() {
            let block = self.lent.pop_front()?;
            if looked == looks || !fits(&block) {
                self.lent.push_back(block);
                continue;
            }
            looked += 1;
            if block.memory.is_alone() {
                return Some(block.memory);
            }
            self.lent.push_back(block);
        }
        None
    }

    /// Takes the first block that its readers have received.
    pub(super) fn take_received(&mut self) -> Option<Filling> {
        let at = self.lent.iter().position(|block| block.way == Some(Way::Received))?;
        self.left += 1;
        Some(self.lent.remove(at)?.memory)
    }

    /// All that went this way so far was received.
    pub(super) fn received(&mut self, way: u64) {
        for block in self.lent.iter_mut().filter(|block| block.way == Some(Way::Sent(way))) {
            block.way = Some(Way::Received);
        }
    }

    fn by_number(&mut self, number: u64) -> Option<&mut LentBlock> {
        self.lent.iter_mut().find(|block| block.number == number)
    }
}

impl Store {
    pub(super) fn new(limits: Limits) -> Store {
        Store { limits, process: PerProcess::new() }
    }

    fn process(&self) -> &Process {
        self.process.get(Process::default)
    }

    /// Which stores fill blocks faster.
    pub(crate) fn stores(&self) -> &StoreChoice {
        &self.process().stores
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.process().state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block is no more.
    pub(super) fn forget(&self, bytes: usize) {
        let mut state = self.state();
        state.bytes -= bytes as u64;
        state.blocks -= 1;
    }

    /// A block may be used again once it is home.
    pub(crate) fn keep(&self, memory: Filling, number: u64, first: bool) {
        if !Host::get().can_count() {
            let bytes = memory.len();
            drop(memory);
            return self.forget(bytes);
        }
        let block = LentBlock { memory, since: Instant::now(), number, way: None };
        let mut state = self.state();
        match first {
            true => state.lent.push_front(block),
            false => state.lent.push_back(block),
        }
    }

    /// The block of this number went this way.
    pub(crate) fn went(&self, number: u64, way: u64) {
        if let Some(block) = self.state().by_number(number) {
            block.way = Some(Way::Sent(way));
        }
    }
}
