//! What can go wrong: [`BootError`] is a fault of the configuration, [`Errno`] one of the program, or a shortage.

use pageferry_ephemeral::AllocError;
use pageferry_fs::{FsError, IoError};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Cycles, Interrupted};
use pageferry_vm::VmError;

/// Why a kernel cannot be brought up on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootError {
    /// The machine-dependent layer.
    #[error("{0}")]
    Pmap(#[from] pageferry_pmap::PmapError),
    /// The VM system.
    #[error("{0}")]
    Vm(#[from] VmError),
    /// Ephemeral mappings.
    #[error("{0}")]
    Ephemeral(#[from] pageferry_ephemeral::ConfigError),
    /// Communication by a common area.
    #[error("{0}")]
    Ispc(#[from] crate::ispc::IspcError),
    /// The arena of kernel structures is too small.
    #[error("{0}")]
    Arena(#[from] ArenaFull),
    /// The clock stands still, or ticks less than once in a quantum.
    #[error(
        "a tick of {tick_cycles:?} and a quantum of {quantum_cycles:?}: a quantum is at least a tick, and that is not \
         zero"
    )]
    Clock {
        /// How long a thread runs before others of its kind.
        quantum_cycles: Cycles,
        /// From one clock interrupt to the next.
        tick_cycles: Cycles,
    },
    /// A pipe's buffers are not whole pages, or the large one is the smaller.
    #[error(
        "pipe buffers of {buffer_bytes} and {big_buffer_bytes} bytes: expected whole pages, the large one not smaller"
    )]
    PipeBuffer {
        /// `PipeConfig::buffer_bytes`.
        buffer_bytes: usize,
        /// `PipeConfig::big_buffer_bytes`.
        big_buffer_bytes: usize,
    },
    /// A socket buffer is smaller than a page, or what is lent at once is not whole pages, at least one.
    #[error(
        "socket buffers of {high_water_bytes} bytes and loans of {loan_bytes}: expected at least a page, loans in \
         whole pages"
    )]
    SocketBuffer {
        /// The smaller of `SocketConfig::high_water_bytes` and `PipeConfig::socket_buffer_bytes`.
        high_water_bytes: usize,
        /// `SocketConfig::loan_bytes`.
        loan_bytes: usize,
    },
}

/// What a system call returns instead of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Errno {
    /// Not an open descriptor, or not open for this.
    #[error("bad file descriptor (EBADF)")]
    BadFd,
    /// An argument makes no sense.
    #[error("invalid argument (EINVAL)")]
    Invalid,
    /// An address that the process may not use in this way.
    #[error("bad address (EFAULT)")]
    Fault,
    /// All readers are gone.
    #[error("broken pipe (EPIPE)")]
    BrokenPipe,
    /// The caller has no right to it.
    #[error("permission denied (EACCES)")]
    Access,
    /// It is in use by another call or process, or a page that is wired cannot be moved.
    #[error("busy (EBUSY)")]
    Busy,
    /// What the number stood for is gone.
    #[error("identifier removed (EIDRM)")]
    Removed,
    /// A signal ended a sleep.
    #[error("interrupted (EINTR)")]
    Interrupted,
    /// A non-blocking call would have slept.
    #[error("would block (EAGAIN)")]
    WouldBlock,
    /// No frames, addresses or structures.
    #[error("out of memory (ENOMEM)")]
    NoMemory,
    /// The disk could not read or write.
    #[error("input/output error (EIO)")]
    Io,
    /// There is no file of this name.
    #[error("no such file (ENOENT)")]
    NoFile,
    /// There is a file of this name.
    #[error("file exists (EEXIST)")]
    Exists,
    /// What should be a directory is none.
    #[error("not a directory (ENOTDIR)")]
    NotDirectory,
    /// What should be a file is a directory.
    #[error("is a directory (EISDIR)")]
    IsDirectory,
    /// The directory has names in it.
    #[error("directory not empty (ENOTEMPTY)")]
    NotEmpty,
    /// A path has more symbolic links than are followed, or one where none is to be.
    #[error("too many levels of symbolic links (ELOOP)")]
    Loop,
    /// A name is longer than a directory takes.
    #[error("file name too long (ENAMETOOLONG)")]
    NameTooLong,
    /// A file cannot be so long.
    #[error("file too large (EFBIG)")]
    TooLarge,
    /// A file is no program that this kernel can run.
    #[error("exec format error (ENOEXEC)")]
    NotExecutable,
    /// There is no such device.
    #[error("no such device (ENXIO)")]
    NoDevice,
    /// No blocks of the disk are left.
    #[error("no space left on device (ENOSPC)")]
    NoSpace,
    /// No process has this number.
    #[error("no such process (ESRCH)")]
    NoProcess,
    /// A file of this kind, or this kernel, does not do that.
    #[error("operation not supported (EOPNOTSUPP)")]
    NotSupported,
    /// There is nothing to wait for.
    #[error("no child to wait for (ECHILD)")]
    NoChild,
    /// The table of descriptors is full.
    #[error("too many open files (EMFILE)")]
    TooManyFiles,
    /// The other end refuses the connection.
    #[error("connection refused (ECONNREFUSED)")]
    ConnectionRefused,
    /// The other end has ended the connection at once.
    #[error("connection reset by peer (ECONNRESET)")]
    ConnectionReset,
    /// This end has ended the connection at once.
    #[error("connection aborted (ECONNABORTED)")]
    ConnectionAborted,
    /// The other end does not answer.
    #[error("connection timed out (ETIMEDOUT)")]
    TimedOut,
    /// The socket is connected to nothing.
    #[error("socket is not connected (ENOTCONN)")]
    NotConnected,
    /// The socket is connected already.
    #[error("socket is already connected (EISCONN)")]
    IsConnected,
    /// The connection is being made.
    #[error("operation now in progress (EINPROGRESS)")]
    InProgress,
    /// The connection is being made already.
    #[error("operation already in progress (EALREADY)")]
    AlreadyInProgress,
    /// Another socket has this port.
    #[error("address already in use (EADDRINUSE)")]
    AddressInUse,
    /// The address is none of this host's, or none at all.
    #[error("cannot assign requested address (EADDRNOTAVAIL)")]
    AddressNotAvailable,
    /// No interface leads there.
    #[error("network is unreachable (ENETUNREACH)")]
    NetUnreachable,
    /// A datagram is longer than one packet.
    #[error("message too long (EMSGSIZE)")]
    MessageSize,
    /// A datagram goes nowhere.
    #[error("destination address required (EDESTADDRREQ)")]
    DestinationRequired,
    /// The process was killed by a fatal signal; no call of it does anything any more. Programs return when they see
    /// this.
    #[error("killed by a fatal signal")]
    Killed,
}

impl From<VmError> for Errno {
    fn from(e: VmError) -> Errno {
        match e {
            VmError::NoMemory => Errno::NoMemory,
            VmError::Fault(_) | VmError::Access | VmError::Bus(_) => Errno::Fault,
            VmError::Io => Errno::Io,
            VmError::Again => Errno::WouldBlock,
            VmError::Interrupted => Errno::Interrupted,
            VmError::Busy => Errno::Busy,
            VmError::Invalid | VmError::Exists => Errno::Invalid,
        }
    }
}

impl From<AllocError> for Errno {
    fn from(e: AllocError) -> Errno {
        match e {
            AllocError::WouldBlock => Errno::WouldBlock,
            AllocError::Interrupted => Errno::Interrupted,
            AllocError::NoAddresses => Errno::NoMemory,
        }
    }
}

impl From<IoError> for Errno {
    fn from(_: IoError) -> Errno {
        Errno::Io
    }
}

impl From<FsError> for Errno {
    fn from(e: FsError) -> Errno {
        match e {
            FsError::NotFound => Errno::NoFile,
            FsError::Exists => Errno::Exists,
            FsError::NotDirectory => Errno::NotDirectory,
            FsError::IsDirectory => Errno::IsDirectory,
            FsError::NotEmpty => Errno::NotEmpty,
            FsError::NameTooLong => Errno::NameTooLong,
            FsError::Invalid | FsError::TooManyLinks | FsError::Refused(_) => Errno::Invalid,
            FsError::Busy => Errno::Busy,
            FsError::NoSpace => Errno::NoSpace,
            FsError::TooLarge => Errno::TooLarge,
            FsError::Io(_) | FsError::Damaged(_) => Errno::Io,
        }
    }
}

impl From<Interrupted> for Errno {
    fn from(_: Interrupted) -> Errno {
        Errno::Interrupted
    }
}
