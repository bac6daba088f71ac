//! What goes over a connection before a message: its length, and the envelope of what is more than bytes.

/// The length that says that a block comes.
pub(super) const BLOCK: i32 = -2;
/// The length that says that what would be in a block comes.
pub(super) const LAID_OUT: i32 = -3;
/// The length that says that a longer one follows.
pub(super) const LONG: i32 = -1;
/// Parts of a block begin at multiples of this: a line of the cache.
pub(super) const ALIGN: usize = 64;
/// Parts, at most: what a peer says is not believed beyond it.
pub(super) const MAX_PARTS: u32 = 1 << 24;
/// Longer bytes that a peer announces are made room for as they come.
pub(super) const TRUSTED: u64 = 16 << 20;

/// What comes with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) kind: Kind,
    /// Bytes of the block that are used.
    pub(super) used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As they are.
    Bytes,
    /// A pickle with so many parts, of which the first is its stream.
    Pickle(u32),
}

impl Envelope {
    /// Bytes on the wire, with the length before it.
    pub(super) const LEN: usize = 16;

    pub(super) fn to_wire(self, word: i32) -> [u8; Envelope::LEN] {
        let parts = if let Kind::Pickle(parts) = self.kind { parts } else { 0 };
        let mut wire = [0; Envelope::LEN];
        wire[..4].copy_from_slice(&word.to_be_bytes());
        wire[4..8].copy_from_slice(&parts.to_be_bytes());
        wire[8..].copy_from_slice(&self.used.to_be_bytes());
        wire
    }

    /// What follows the length.
    pub(super) fn from_wire(wire: &[u8; Envelope::LEN]) -> Option<Envelope> {
        let [_, _, _, _, a, b, c, d, used @ ..] = *wire;
        let kind = match u32::from_be_bytes([a, b, c, d]) {
            0 => Kind::Bytes,
            parts if parts <= MAX_PARTS => Kind::Pickle(parts),
            _ => return None,
        };
        Some(Envelope { kind, used: u64::from_be_bytes(used) })
    }
}
