//! What can go wrong, in the words of Unix.

use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{DiskError, Va};
use pageferry_pmap::PmapError;

/// Errors a Unix programmer expects; nothing has changed when one is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VmError {
    /// The caller's argument makes no sense: a length of zero, an address that is not page-aligned, a range that lies
    /// outside the address space.
    #[error("invalid argument (EINVAL)")]
    Invalid,
    /// No frame, no structure or no addresses are left; or a range that is to be changed holds unmapped pages.
    #[error("out of memory (ENOMEM)")]
    NoMemory,
    /// Nothing is mapped at the address, or what is mapped there cannot be had.
    #[error("bad address {0:?} (EFAULT)")]
    Fault(Va),
    /// The mapping does not permit the access.
    #[error("permission denied (EACCES)")]
    Access,
    /// The range holds a mapping already.
    #[error("range is in use (EEXIST)")]
    Exists,
    /// The resource is in use.
    #[error("busy (EBUSY)")]
    Busy,
    /// A signal ended the wait.
    #[error("interrupted (EINTR)")]
    Interrupted,
    /// The address is mapped, but the file ends before it.
    #[error("access behind the end of a file at {0:?} (SIGBUS)")]
    Bus(Va),
    /// The disk could not read or write.
    #[error("input/output error (EIO)")]
    Io,
    /// A limit of what may be locked is reached.
    #[error("resource temporarily unavailable (EAGAIN)")]
    Again,
    /// This VM system has no such thing: what lends or transfers pages needs anons, and memory here is made of shadow
    /// objects.
    #[error("not supported where memory is made of shadow objects (EOPNOTSUPP)")]
    Unsupported,
}

impl From<DiskError> for VmError {
    fn from(_: DiskError) -> VmError {
        VmError::Io
    }
}

impl From<PmapError> for VmError {
    /// All that the pmap can lack is memory.
    fn from(_: PmapError) -> VmError {
        VmError::NoMemory
    }
}

impl From<ArenaFull> for VmError {
    fn from(_: ArenaFull) -> VmError {
        VmError::NoMemory
    }
}
