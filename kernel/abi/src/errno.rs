//! What a system call answers instead of a result: a fault of the program, or a shortage. Names are those of
//! `errno.h`, spelled out.

use pageferry_hal::Interrupted;

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
    /// Two names are of different file systems.
    #[error("cross-device link (EXDEV)")]
    CrossDevice,
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

impl From<Interrupted> for Errno {
    fn from(_: Interrupted) -> Errno {
        Errno::Interrupted
    }
}

impl Errno {
    /// Nobody is left at the other end: what a call has sent before it came to know that is of no use to it.
    pub fn ends_stream(self) -> bool {
        use Errno::{
            BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotConnected, TimedOut,
        };
        matches!(
            self,
            BrokenPipe | ConnectionAborted | ConnectionRefused | ConnectionReset | NotConnected | TimedOut
        )
    }
}
