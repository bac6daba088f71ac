//! Where an open file is read or written next, and what it was opened for: what all files with an offset have in
//! common.
//!
//! # Locks
//! The offset is under a lock of class `Pipe`, taken for a moment. A call that reads it, [moves bytes](Cursor::moving)
//! and moves it on holds a sleep lock of the file meanwhile.
//!
//! # What can fail
//! Nothing here.

use crate::proc::Uio;
use pageferry_abi::{Errno, OpenFlags};
use pageferry_hal::{LockClass, Machine, SpinLock};

/// What a file was opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// It may be read.
    pub readable: bool,
    /// It may be written.
    pub writable: bool,
    /// Each write begins at the file's end.
    pub appends: bool,
}

impl Rights {
    /// To be read.
    pub const READ: Rights = Rights { readable: true, writable: false, appends: false };
    /// To be written.
    pub const WRITE: Rights = Rights { readable: false, writable: true, appends: false };
    /// To be read and written.
    pub const READ_WRITE: Rights = Rights { readable: true, writable: true, appends: false };

    /// Those that the flags of `open` ask for.
    pub fn of(flags: OpenFlags) -> Rights {
        Rights {
            readable: flags.contains(OpenFlags::READ),
            writable: flags.contains(OpenFlags::WRITE),
            appends: flags.contains(OpenFlags::APPEND),
        }
    }
}

/// What is made of a name when a file is opened by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// Nothing: it is there.
    No,
    /// A file, if it is not there.
    IfMissing,
    /// A file; it must not be there.
    New,
}

impl Create {
    /// What the flags of `open` ask for.
    pub fn of(flags: OpenFlags) -> Create {
        match (flags.contains(OpenFlags::CREATE), flags.contains(OpenFlags::EXCLUSIVE)) {
            (false, _) => Create::No,
            (true, false) => Create::IfMissing,
            (true, true) => Create::New,
        }
    }
}

/// Where an open file is read or written next, and what it was opened for.
pub struct Cursor<M: Machine> {
    pub(crate) rights: Rights,
    offset: M::Lock<u64>,
}

impl<M: Machine> Cursor<M> {
    /// At the beginning of a file.
    pub fn new(machine: &M, rights: Rights) -> Cursor<M> {
        Cursor { rights, offset: machine.new_lock(LockClass::PIPE, 0) }
    }

    /// Where it is.
    pub fn at(&self) -> u64 {
        *self.offset.lock()
    }

    /// Sets it.
    pub fn seek(&self, to: u64) {
        *self.offset.lock() = to;
    }

    /// Has `work` move bytes of a buffer: from the byte of the file that the call says, or else from where `begin`
    /// says; then this is behind what was moved.
    ///
    /// # Errors
    /// Those of both. What was moved before stays moved.
    pub fn moving(
        &self,
        uio: &mut Uio,
        begin: impl FnOnce() -> Result<u64, Errno>,
        work: impl FnOnce(&mut Uio) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if uio.is_positional() {
            return work(uio);
        }
        uio.begin(begin()?);
        let result = work(uio);
        self.seek(uio.offset());
        result
    }
}
