//! What a disk writes as a whole or not at all.

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;
