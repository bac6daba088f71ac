//! The name of a slot of the swap area: what anons and objects keep, and the swap area knows the rest of.
//!
//! A plain value. It names the slot in one of its lives, so that one that outlived its slot is found out (see `swap`).

/// A slot, in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SwapSlot {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl SwapSlot {
    /// The block of the disk.
    pub(crate) fn block(self) -> u64 {
        u64::from(self.index)
    }
}
