//! The number of a protocol control block, by which all that is not a block itself knows it.

/// The number of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PcbId(pub(super) u32);

impl PcbId {
    /// As a handle of a socket, by which a server is asked.
    pub fn handle(self) -> u64 {
        u64::from(self.0)
    }
}
