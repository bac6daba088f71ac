//! What a program leaves to the kernel: whether bytes are copied or moved.

use crate::os::{CallError, Os, named};
use pageferry_abi::{ReceiveMode, SendMode};
use pageferry_costs::{Arrived, Carrier};
use pageferry_hal::CpuId;

/// On which CPUs the two ends of a connection run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Wherever the kernel places them.
    Free,
    /// Both on one.
    Same,
    /// Each on one of its own, as far apart as there are.
    Other,
}

impl Pin {
    /// The CPUs of both ends on a machine with `count` of them; none where the kernel places them.
    pub fn cpus(self, count: usize) -> Option<[CpuId; 2]> {
        match self {
            Pin::Free => None,
            Pin::Same => Some([CpuId(0); 2]),
            Pin::Other => Some([CpuId(0), CpuId(count.saturating_sub(1) as u8)]),
        }
    }
}

/// What carries a buffer from process to process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A socket, which copies it.
    Socket,
    /// It is passed.
    Pass,
    /// What is cheaper.
    Auto,
}

impl By {
    /// Whether buffers are passed. For [`By::Auto`] the kernel says what is cheaper for buffers of this size that are
    /// used like this, once: both ends have to do the same.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn passes(self, os: &dyn Os, size_bytes: usize, arrived: Arrived) -> Result<bool, CallError> {
        if self != By::Auto {
            return Ok(self == By::Pass);
        }
        os.measure_moves().map_err(named("measure"))?;
        let carrier = os.choose_carrier(size_bytes, arrived).map_err(named("choose a carrier"))?;
        Ok(carrier == Carrier::Pass)
    }
}

/// Where the kernel is to choose, lets it measure what its choices rest on before anything is sent, so that both ends
/// begin as they do without a choice.
///
/// # Errors
/// The measurement failed.
pub fn measure_first(os: &dyn Os, send: SendMode, receive: ReceiveMode) -> Result<(), CallError> {
    if send == SendMode::Auto || receive == ReceiveMode::Auto {
        os.measure_moves().map_err(named("measure"))?;
    }
    Ok(())
}
