//! What a program is told of this floor's errors.

use crate::AllocError;
use pageferry_abi::Errno;

impl From<AllocError> for Errno {
    fn from(e: AllocError) -> Errno {
        match e {
            AllocError::WouldBlock => Errno::WouldBlock,
            AllocError::Interrupted => Errno::Interrupted,
            AllocError::NoAddresses => Errno::NoMemory,
        }
    }
}
