//! Why a kernel does not come up: a fault of its configuration. What goes wrong later is an
//! [`Errno`](pageferry_abi::Errno).

use pageferry_hal::Cycles;
use pageferry_hal::arena::ArenaFull;
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
    Ispc(#[from] pageferry_ispc::IspcError),
    /// A part of the kernel is to be a process, and whoever boots the kernel brings none.
    #[error("the service `{service}` is to be a server's, and no server was brought")]
    NoServer {
        /// The key in the configuration of communication.
        service: &'static str,
    },
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
