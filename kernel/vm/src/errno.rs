//! What a program is told of this floor's errors.

use crate::VmError;
use pageferry_abi::Errno;

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
            VmError::Unsupported => Errno::NotSupported,
        }
    }
}
