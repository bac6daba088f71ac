//! How a side that waits looks before it sleeps.
//!
//! Reading the clock takes longer than looking at the ring, so it is read once in [`CLOCK_EVERY`] turns: a
//! deadline is late by so many turns at most, some microseconds.

use crate::sync::{Instant, spin_loop};
use std::time::Duration;

/// Turns between two looks at the clock.
const CLOCK_EVERY: u32 = 32;
/// Turns between two looks at the socket: a side that never sleeps still has to see that the peer is gone.
const SOCKET_EVERY: u32 = 4096;

/// A wait: see the top of the file.
#[derive(Debug)]
pub(super) struct Spin {
    max: Duration,
    began: Option<Instant>,
    turns: u32,
}

/// What a side that waits does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It looks at the ring again.
    Ring,
    /// It looks at the socket, and then at the ring.
    Socket,
    /// It has looked long enough.
    Sleep,
    /// The time is up.
    Late,
}

impl Spin {
    /// Looks for `max` before it sleeps.
    pub(super) fn new(max: Duration) -> Spin {
        Spin { max, began: None, turns: 0 }
    }

    /// Nothing was there.
    pub(super) fn next(&mut self, until: Option<Instant>) -> Next {
        self.turns = self.turns.wrapping_add(1);
        if self.began.is_none() || self.turns.is_multiple_of(CLOCK_EVERY) {
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Next::Late;
            }
            if now - *self.began.get_or_insert(now) >= self.max {
                return Next::Sleep;
            }
        }
        spin_loop();
        if self.turns.is_multiple_of(SOCKET_EVERY) { Next::Socket } else { Next::Ring }
    }

    /// It has slept, and looks anew.
    pub(super) fn slept(&mut self) {
        self.began = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_spin_sleeps_at_once_and_who_is_late_is_late_first() {
        assert_eq!(Spin::new(Duration::ZERO).next(None), Next::Sleep);
        assert_eq!(Spin::new(Duration::MAX).next(Some(Instant::now())), Next::Late);
    }

    #[test]
    fn who_never_sleeps_looks_at_the_socket_now_and_then() {
        let mut spin = Spin::new(Duration::MAX);
        let looks: Vec<_> = (0..3 * SOCKET_EVERY).map(|_| spin.next(None)).collect();
        assert_eq!(looks.iter().filter(|&&next| next == Next::Socket).count(), 3);
        assert!(looks.iter().all(|next| matches!(next, Next::Ring | Next::Socket)));
    }

    #[test]
    fn a_deadline_is_seen_while_spinning() {
        let mut spin = Spin::new(Duration::MAX);
        let until = Some(Instant::now() + Duration::from_millis(1));
        while spin.next(until) != Next::Late {}
        assert!(until < Some(Instant::now()));
    }
}
