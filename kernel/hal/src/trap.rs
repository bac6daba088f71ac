//! Accesses, protections, and what the MMU says when it refuses.

use crate::addr::Va;

bitflags::bitflags! {
    /// What a mapping permits. Write implies read on every machine here.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Prot: u8 {
        /// Loads.
        const READ = 1;
        /// Stores.
        const WRITE = 2;
        /// Instruction fetch. The x86 machines of the papers cannot forbid it.
        const EXECUTE = 4;
    }
}

impl Prot {
    /// Loads and stores.
    pub const RW: Prot = Prot::READ.union(Prot::WRITE);

    /// True when `access` is permitted.
    pub const fn permits(self, access: Access) -> bool {
        match access {
            Access::Read => self.contains(Prot::READ),
            Access::Write => self.contains(Prot::WRITE),
            Access::Fetch => self.contains(Prot::EXECUTE),
        }
    }
}

/// A load, a store, or the fetch of instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Fetch,
}

/// A reference of a program whose references are known beforehand: what it refers to, and what it executes until then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reference {
    /// Instructions since the reference before this one; 0 when they were executed and the reference is made again.
    pub instructions: u32,
    /// Load, store or fetch.
    pub access: Access,
    /// A word of user memory, its lowest byte first. Of a fetch, what lies in its cache line is fetched.
    pub at: Va,
    /// What a store stores there; what a load has found.
    pub word: u32,
}

/// The privilege under which an access is made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// User code: supervisor mappings are out of reach.
    User,
    /// Kernel code: all mappings, but read-only ones refuse its stores too (x86: CR0.WP set).
    Kernel,
}

/// Why an access was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TrapKind {
    /// No valid translation.
    NotPresent,
    /// A translation that does not permit the access.
    Protection,
}

/// An access that the MMU refused. Nothing of it happened; after the fault is resolved it is made again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{access:?} of {va:?} in {mode:?} mode refused: {kind:?}")]
pub struct Trap {
    /// The address of the access (x86: CR2).
    pub va: Va,
    /// Load, store or fetch.
    pub access: Access,
    /// Privilege.
    pub mode: Mode,
    /// Why.
    pub kind: TrapKind,
}

/// A copy or fill that stopped at a [`Trap`] after `done_bytes` bytes; it may be taken up again behind them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("stopped after {done_bytes} bytes: {trap}")]
pub struct CopyFault {
    /// Bytes that were transferred before the refusal.
    pub done_bytes: usize,
    /// The refusal.
    pub trap: Trap,
}
