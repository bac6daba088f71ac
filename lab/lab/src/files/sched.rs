//! The scheduler: `[sched]` of a kernel's file.

use super::words::ForwardName;
use pageferry_kernel::KernelStack;
use pageferry_sourced::Sourced;
use serde::{Deserialize, Serialize};

/// The scheduler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedFile {
    /// Which idle CPUs a wakeup interrupts.
    pub forward_wakeup: Sourced<ForwardName>,
    /// How long a thread runs before others get their turn.
    pub quantum_ms: Sourced<u64>,
    /// Clock interrupts a second, on a CPU that runs a thread.
    pub hz: Sourced<u64>,
    /// Accesses to the ports of the interval timer with which a switch reads the time; none if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_accesses: Option<Sourced<u32>>,
    /// From the stack that a thread has in the kernel to the next; their use is not accounted for if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_bytes: Option<Sourced<u32>>,
    /// What an entry into the kernel writes at the top of that stack, and its end reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_frame_bytes: Option<Sourced<u32>>,
}

impl SchedFile {
    /// A frame is no longer than its stack.
    pub(super) fn stack(&self) -> Option<KernelStack> {
        let spacing_bytes = self.stack_bytes.as_ref()?.value as usize;
        let frame_bytes = self.stack_frame_bytes.as_ref()?.value as usize;
        (spacing_bytes > 0)
            .then_some(KernelStack { spacing_bytes, frame_bytes: frame_bytes.min(spacing_bytes) })
    }
}
