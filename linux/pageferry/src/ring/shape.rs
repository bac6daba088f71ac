//! The shape of a ring: which word of which area is what, and how many bytes that takes.

/// Words of a descriptor.
pub const DESCRIPTOR_WORDS: usize = 8;
/// Words of an acknowledgement.
pub const ACK_WORDS: usize = 2;

/// Words that hold counters. Each counter has a line of its own.
pub(super) const COUNTERS: usize = 4096 / 8;
/// Forward: descriptors published. Reverse: acknowledgements made.
pub(super) const PUBLISHED: usize = 0;
/// Whether the owner of the area sleeps.
pub(super) const ASLEEP: usize = 8;

/// The shape of both areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingGeometry {
    /// Messages that can be on their way or out: a power of two.
    pub capacity: u32,
    /// Bytes of a message that travels in the ring itself, at most: a multiple of 64.
    pub inline_bytes: u32,
}

impl RingGeometry {
    /// Capacities that are allowed.
    pub const CAPACITIES: core::ops::RangeInclusive<u32> = 2..=4096;
    /// The largest `inline_bytes`.
    pub const MAX_INLINE_BYTES: u32 = 1 << 20;

    /// Whether the shape is one that both sides can have.
    pub fn is_valid(&self) -> bool {
        self.capacity.is_power_of_two()
            && Self::CAPACITIES.contains(&self.capacity)
            && self.inline_bytes.is_multiple_of(64)
            && self.inline_bytes <= Self::MAX_INLINE_BYTES
    }

    /// Words of the forward area before the bytes of inline messages.
    pub(crate) fn forward_words(&self) -> usize {
        COUNTERS + self.capacity as usize * DESCRIPTOR_WORDS
    }

    /// Words of the reverse area.
    pub(crate) fn reverse_words(&self) -> usize {
        COUNTERS + self.capacity as usize * ACK_WORDS
    }

    /// Where the inline bytes of a cell start in the forward area.
    pub(crate) fn inline_offset(&self, sequence: u64) -> usize {
        self.forward_words() * 8 + self.cell(sequence) * self.inline_bytes as usize
    }

    /// Bytes of the forward area.
    pub(crate) fn forward_bytes(&self) -> usize {
        self.forward_words() * 8 + self.capacity as usize * self.inline_bytes as usize
    }

    /// Bytes of the reverse area.
    pub(crate) fn reverse_bytes(&self) -> usize {
        self.reverse_words() * 8
    }

    /// Bytes of both areas.
    pub(crate) fn bytes(&self) -> u64 {
        self.forward_bytes() as u64 + self.reverse_bytes() as u64
    }

    /// The cell of a message, or of an acknowledgement.
    pub(super) fn cell(&self, sequence: u64) -> usize {
        (sequence % u64::from(self.capacity)) as usize
    }
}
