//! The heap: a part of the image, so that whatever a program keeps there is its own, and is no mapping beside those
//! that it asks for. What is not used of it takes no memory.

use talc::TalcLock;
use talc::source::Claim;

/// Bytes of it.
const LEN_BYTES: usize = 16 << 20;

// Mutable because the allocator writes it, and nobody else names it.
static mut MEMORY: [u8; LEN_BYTES] = [0; LEN_BYTES];

#[global_allocator]
static HEAP: TalcLock<spin::Mutex<()>, Claim> =
    // SAFETY: the memory is the allocator's alone, for ever.
    TalcLock::new(unsafe { Claim::array(&raw mut MEMORY) });
