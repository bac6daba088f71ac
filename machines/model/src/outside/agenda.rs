//! What will take place outside of the CPUs, in the order of time.

use crate::turns::NEVER;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a card does next, of each kind one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A frame to be sent has come over the bus.
    Fetched,
    /// It has gone over the wire.
    Sent,
    /// That it was sent is written to its descriptor.
    TransmitWritten,
    /// A frame that has arrived is in its buffers.
    ReceiveWritten,
    /// The card may interrupt again.
    Interrupt,
}

/// Something that will take place.
#[derive(Debug)]
pub(crate) enum Event {
    /// The card's next step of this kind.
    Card(Step),
    /// A frame is at the far end.
    AtFarEnd(Vec<u8>),
    /// A frame is at the card.
    AtCard(Vec<u8>),
    /// The card is taken out.
    Removal,
}

#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) ps: u64,
    /// The order in which they were asked for.
    pub(crate) nth: u64,
    pub(crate) event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.ps, self.nth) == (other.ps, other.nth)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.ps, self.nth).cmp(&(other.ps, other.nth))
    }
}

/// Events by time.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    pub(crate) due: BinaryHeap<Reverse<Due>>,
    pub(crate) nth: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, ps: u64, event: Event) {
        self.nth += 1;
        self.due.push(Reverse(Due { ps, nth: self.nth, event }));
    }

    /// The card takes a step at `ps`.
    pub(crate) fn step_at(&mut self, ps: u64, step: Step) {
        self.add(ps, Event::Card(step));
    }

    /// The card takes none of the steps that it has asked for.
    pub(crate) fn forget_steps(&mut self) {
        self.due.retain(|Reverse(due)| !matches!(due.event, Event::Card(_)));
    }

    pub(crate) fn first_at(&self) -> u64 {
        self.due.peek().map_or(NEVER, |Reverse(due)| due.ps)
    }
}
