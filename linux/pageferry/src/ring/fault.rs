//! Counters of a peer that cannot be.

/// What a peer's counters said that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// More is published than there are cells for, what is not given back counted.
    #[error("the ring's counter of messages went from {before} to {now}, and there are {capacity} cells")]
    Published {
        /// What had been taken.
        before: u64,
        /// What the counter says.
        now: u64,
        /// Cells.
        capacity: u32,
    },
    /// More is acknowledged than is out.
    #[error("the ring's counter of acknowledgements went from {before} to {now}, and {out} messages are out")]
    Acknowledged {
        /// What had been read.
        before: u64,
        /// What the counter says.
        now: u64,
        /// Messages that are out.
        out: u64,
    },
}
