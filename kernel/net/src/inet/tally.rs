//! What the network has done and dropped since boot: counts that need no lock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One count.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
}

/// What was done, and what was dropped, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts<C = u64> {
    /// Packets taken in by IP.
    pub received: C,
    /// Packets handed to an interface.
    pub sent: C,
    /// Dropped for what their headers say: too short, wrong sums, another station's; fragments that do not fit each
    /// other.
    pub malformed: C,
    /// Dropped for want of memory, or room in a queue.
    pub no_room: C,
    /// Packets that no socket is for.
    pub no_socket: C,
    /// Segments sent again.
    pub retransmitted: C,
    /// Segments that came out of order, or twice.
    pub out_of_order: C,
    /// Connections that ended by a reset, sent or received.
    pub reset: C,
}

/// The same, as they are counted.
pub(super) type Tally = Counts<Count>;

impl Tally {
    pub(super) fn counts(&self) -> Counts {
        let of = |count: &Count| count.0.load(Relaxed);
        Counts {
            received: of(&self.received),
            sent: of(&self.sent),
            malformed: of(&self.malformed),
            no_room: of(&self.no_room),
            no_socket: of(&self.no_socket),
            retransmitted: of(&self.retransmitted),
            out_of_order: of(&self.out_of_order),
            reset: of(&self.reset),
        }
    }
}
