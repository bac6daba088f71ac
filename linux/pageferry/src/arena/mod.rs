//! Memory whose readers are counted by the kernel.
//!
//! # The model
//! A [`Block`] is memory of its own that this process fills. [`Block::lend`] gives it up for a
//! [`Handle`](crate::Handle): a descriptor for reading, to be sent over a Unix socket. Whoever gets it maps it
//! privately ([`Counted`](crate::Counted)), closes the descriptor, and unmaps when done. The kernel counts these
//! descriptors and mappings wherever they are: in the queue of a socket that nobody reads any more, in a process that
//! was killed, in a child. Nobody else counts. There is no name, no word that two processes write, and nothing to be
//! cleaned up.
//!
//! # When a block is used again
//! [`Arena::block`] asks the kernel whether a block that was lent is this process's alone again, the one that was lent
//! first before the others, and gives it out with its pages as they are. Where the kernel cannot say so, each block is
//! used once, and its last reader frees it.
//!
//! # How much
//! [`Limits::bytes`] bounds what is lent and what is kept; more is refused ([`Error::Budget`]), and the caller sends
//! its bytes some other way. Nobody tells this process when a reader has gone, so it looks: at each request, and in
//! [`Arena::tidy`], which frees blocks that nobody has and nobody has asked for in a second, as far as they are more
//! than [`Limits::kept`].
//!
//! A receiver that keeps what it gets would use up all of that. But what it has received is its own affair, as a copy
//! would be. So who sends says which way a block went ([`Handle::went`](crate::Handle::went)) and when all that went
//! that way was received ([`Arena::received`]); where room is needed, such blocks are *left* to their readers, the last
//! of whom frees them, and count no more. What waits to be received always counts.
//!
//! # fork
//! A child has no block of its parent, and makes its own. It refuses to lend what its parent was filling.
//!
//! # Locks
//! One for each process, around the list of blocks; the kernel is asked for counts while it is held, and memory is made
//! and freed without it.

mod limits;
mod store;

pub use limits::Limits;
use store::State;
pub(crate) use store::Store;

use crate::error::Error;
use crate::host::Host;
use crate::view::{Block, Filling};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an arena has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStats {
    /// Bytes of all its blocks: filled, lent, or kept.
    pub bytes: u64,
    /// Blocks.
    pub blocks: usize,
    /// Of these, blocks that somebody has: this process fills them, or others may read them.
    pub out: usize,
    /// Blocks that were made, so far.
    pub made: u64,
    /// Blocks that were used again, so far.
    pub again: u64,
    /// Blocks that were left to their readers, so far.
    pub left: u64,
}

/// Makes blocks, and uses them again. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Arena {
    store: Arc<Store>,
}

/// Blocks of the right size that are looked at for one request, before another is made.
const LOOKS: usize = 8;
/// Nobody has asked for a block in so long.
const IDLE: Duration = Duration::from_secs(1);

impl Arena {
    /// An arena within the usual limits.
    pub fn new() -> Arena {
        Arena::with(Limits::default())
    }

    /// An arena within these limits.
    pub fn with(limits: Limits) -> Arena {
        Arena { store: Arc::new(Store::new(limits)) }
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.store.limits
    }

    /// Memory for `len` bytes, of unknown contents: one that was lent and is home, or a new one.
    pub fn block(&self, len: usize) -> Result<Block, Error> {
        let host = Host::get();
        let limits = self.store.limits;
        let refused = |wanted: usize, state: &State| Error::Budget {
            what: "a block",
            wanted: wanted as u64,
            budget: limits.bytes,
            holders: format!(
                "{} of {} blocks were lent, and are not home; {} bytes",
                state.lent.len(),
                limits.blocks,
                state.bytes
            ),
        };
        let mut freed = Vec::new();
        let mut state = self.store.state();
        let Some(whole) = Filling::whole(len, host).filter(|&whole| whole as u64 <= limits.bytes) else {
            return Err(refused(len, &state));
        };
        if let Some(memory) = state.take_home(LOOKS, |block| block.memory.len() == whole) {
            state.again += 1;
            drop(state);
            self.tidy_at_times();
            return self.give(memory, len);
        }
        let fits = |state: &State| state.bytes + whole as u64 <= limits.bytes && state.blocks < limits.blocks;
        while !fits(&state) {
            let (memory, home) = match state.take_home(usize::MAX, |_| true) {
                Some(memory) => (memory, true),
                None => match state.take_received() {
                    Some(memory) => (memory, false),
                    None => return Err(refused(whole, &state)),
                },
            };
            if home && memory.len() == whole {
                state.again += 1;
                drop(state);
                return self.give(memory, len);
            }
            state.bytes -= memory.len() as u64;
            state.blocks -= 1;
            freed.push(memory);
        }
        state.bytes += whole as u64;
        state.blocks += 1;
        state.made += 1;
        drop(state);
        drop(freed);
        match Filling::new(whole, host) {
            Ok(memory) => self.give(memory, len),
            Err(error) => {
                self.store.forget(whole);
                Err(error)
            }
        }
    }

    fn give(&self, memory: Filling, len: usize) -> Result<Block, Error> {
        Block::new(Arc::clone(&self.store), memory, len).map_err(|(error, memory)| {
            self.store.keep(memory, 0, true);
            error
        })
    }

    /// All that went this way so far was received: where room is needed, these blocks are left to their readers.
    pub fn received(&self, way: u64) {
        self.store.state().received(way);
    }

    /// Whether more is kept than is to be, if all of it is home.
    pub fn has_excess(&self) -> bool {
        let state = self.store.state();
        state.bytes > self.store.limits.kept && !state.lent.is_empty()
    }

    fn tidy_at_times(&self) {
        let mut state = self.store.state();
        if state.bytes <= self.store.limits.kept || state.tidied.is_some_and(|last| last.elapsed() < IDLE) {
            return;
        }
        state.tidied = Some(Instant::now());
        drop(state);
        self.tidy();
    }

    /// Frees blocks that are home, and that nobody has asked for in a second, as far as more is kept than is to be.
    pub fn tidy(&self) {
        self.free(self.store.limits.kept, IDLE);
    }

    /// Frees all blocks that are home.
    pub fn trim(&self) {
        self.free(0, Duration::ZERO);
    }

    fn free(&self, kept: u64, idle: Duration) {
        loop {
            let mut state = self.store.state();
            if state.bytes <= kept {
                return;
            }
            let Some(memory) = state.take_home(usize::MAX, |block| block.since.elapsed() >= idle) else {
                return;
            };
            state.bytes -= memory.len() as u64;
            state.blocks -= 1;
            drop(state);
            drop(memory);
        }
    }

    /// What there is now.
    pub fn held(&self) -> ArenaStats {
        let state = self.store.state();
        let home = state.lent.iter().filter(|block| block.memory.is_alone()).count();
        ArenaStats {
            bytes: state.bytes,
            blocks: state.blocks,
            out: state.blocks - home,
            made: state.made,
            again: state.again,
            left: state.left,
        }
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}
