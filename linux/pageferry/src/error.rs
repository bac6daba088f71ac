//! What can go wrong, and who is to blame.

use crate::ring::RingFault;
use crate::sys::Failed;
use std::time::Duration;

/// An error of a channel. Each says who is to blame: the peer, the host, a budget, or the caller.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer is at fault. The channel is closed for good; what was received before stays valid.
    #[error("the peer: {0}")]
    Peer(#[from] PeerFault),
    /// This host's kernel lacks something, or refuses it.
    #[error("this host: {0}")]
    Host(#[from] HostFault),
    /// Memory that this side has set aside for the channel does not suffice.
    #[error("the budget of {budget} bytes does not allow {wanted} bytes more for {what}: {holders}")]
    Budget {
        /// For what.
        what: &'static str,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes allowed.
        budget: u64,
        /// Who holds them.
        holders: String,
    },
    /// The caller asked for what cannot be.
    #[error("{0}")]
    Usage(#[from] Usage),
    /// Nothing waits, or there is no room, and the call was not to wait.
    #[error("nothing can be done without waiting")]
    WouldBlock,
    /// The time is up.
    #[error("nothing came within {0:?}")]
    TimedOut(Duration),
}

/// What a peer did.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// It has closed its side, or its process has ended. All that it had sent was received.
    #[error("is gone")]
    Dead,
    /// It sends no more to this receiver, which gave its messages back too late.
    #[error("sends no more: this receiver was too slow")]
    Evicted,
    /// It broke the protocol.
    #[error("broke the protocol: {0}")]
    Broken(#[from] Broken),
    /// It does not want what this side offers, and says why: its words are about this side.
    #[error("refused the channel, saying `{0}`")]
    Refused(String),
    /// It is no peer for this side, which has told it so: another version of the wire, another machine, or it does
    /// not have the level that this side requires.
    #[error("does not fit this side: {0}")]
    Unfit(String),
}

/// How a peer broke the protocol.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// A counter of the ring cannot be.
    #[error(transparent)]
    Ring(#[from] RingFault),
    /// A descriptor cannot be.
    #[error("message {sequence}: {what}")]
    Descriptor {
        /// Which message, counted from 0.
        sequence: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An acknowledgement of what is not out.
    #[error("it acknowledged message {sequence}, which is not out")]
    Acknowledgement {
        /// Which message.
        sequence: u64,
    },
    /// The handshake, or a message of the socket.
    #[error("handshake: {0}")]
    Handshake(&'static str),
    /// A file that came is not sealed as it must be.
    #[error("the {what} that it sent is not memory with the seals that keep it as it is")]
    NotSealed {
        /// What the file was to be.
        what: &'static str,
    },
    /// A file that came has another size than was said.
    #[error("the {what} that it sent has {found} bytes, not {expected}")]
    Size {
        /// What the file was to be.
        what: &'static str,
        /// Its bytes.
        found: u64,
        /// What they should be.
        expected: u64,
    },
    /// It has opened for writing what it had lent. What was received before stays valid.
    #[error("it tried to write to memory that it had lent: the lease on it was broken")]
    LeaseBroken,
    /// It keeps a lease on what it gave back.
    #[error("it still has a lease on memory that it gave back")]
    LeaseKept,
    /// It does not let its memory be opened for writing.
    #[error("it has taken away the permission to write to memory that it gave for that")]
    SlotClosed,
    /// Descriptors that it sent did not all arrive.
    #[error("descriptors that it sent were lost: this process has reached RLIMIT_NOFILE (`ulimit -n`)")]
    DescriptorsLost,
}

impl Broken {
    /// Of a descriptor that came over the socket.
    pub(crate) const NOT_MEMORY: Broken =
        Broken::Handshake("a descriptor that it sent is not one of memory that can be read");
}

/// What the host lacks or refuses.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFault {
    /// A system call failed.
    #[error("{failed}{}", hint(failed))]
    Failed {
        /// Which, and how.
        failed: Failed,
    },
    /// The kernel cannot do what was asked for.
    #[error("{what} is not to be had here: {setting}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What would have to be changed.
        setting: &'static str,
    },
}

/// What to change, for errors of the kernel that have one usual cause.
fn hint(failed: &Failed) -> &'static str {
    match (failed.call, failed.errno.raw_os_error()) {
        (_, libc::EMFILE) => " (raise RLIMIT_NOFILE: `ulimit -n`)",
        ("ftruncate", libc::EFBIG) => " (raise RLIMIT_FSIZE: `ulimit -f`)",
        ("mmap" | "mremap" | "mprotect", libc::ENOMEM) => {
            " (too many mappings: raise vm.max_map_count; or too little memory: RLIMIT_AS (`ulimit -v`), RLIMIT_DATA \
             (`ulimit -d`), or vm.overcommit_memory=2)"
        }
        ("F_ADD_SEALS", libc::EINVAL) => {
            " (the kernel lacks a seal: F_SEAL_FUTURE_WRITE came with Linux 5.1)"
        }
        ("F_ADD_SEALS", libc::EBUSY) => " (something still maps it for writing, or has pinned a page)",
        _ => "",
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        Error::Host(HostFault::Failed { failed })
    }
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Error {
        Error::Peer(PeerFault::Broken(broken))
    }
}

impl From<RingFault> for Error {
    fn from(fault: RingFault) -> Error {
        Broken::from(fault).into()
    }
}

/// What a caller did that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Usage {
    /// A value of a configuration.
    #[error("`{key}` is {value}; expected {expected}")]
    Config {
        /// Its name.
        key: &'static str,
        /// The value that was given.
        value: u64,
        /// The values that are allowed.
        expected: String,
    },
    /// A buffer of another channel.
    #[error("the buffer belongs to another channel")]
    OtherChannel,
    /// More bytes than a message may have.
    #[error("a message of {len} bytes does not fit: the pool has {pool} bytes")]
    TooLong {
        /// Bytes of the message.
        len: u64,
        /// Bytes of the pool.
        pool: u64,
    },
    /// No bytes.
    #[error("a buffer has at least one byte")]
    Empty,
    /// All slots are buffers of this process that nobody has sent: waiting would never end.
    #[error("every slot is held by buffers and lent memory of this process: send or drop one")]
    AllHeldHere,
    /// A channel came into this process by `fork`.
    #[error(
        "the channel belongs to the process that this one was forked from: give a child a channel of its own"
    )]
    Forked,
    /// The descriptor is no socket for a channel.
    #[error("the descriptor is not a SOCK_SEQPACKET socket of the Unix domain")]
    NotASocket,
    /// A path that a confined program was to be allowed.
    #[error("the program cannot be allowed to read `{path}`: {errno}")]
    Path {
        /// Which.
        path: std::path::PathBuf,
        /// What the kernel says of it.
        errno: crate::sys::Errno,
    },
    /// The verb needs what this channel does not have.
    #[error("{0}")]
    Verb(&'static str),
    /// The bytes cannot be taken as the type that was asked for.
    #[error("{len} bytes cannot be seen as {what}: its size or alignment differs")]
    Cast {
        /// Bytes of the message.
        len: usize,
        /// The type.
        what: &'static str,
    },
}
