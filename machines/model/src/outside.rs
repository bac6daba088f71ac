//! What happens outside of the CPUs: the network card, the wire, and what is at its far end, in the order of time.
//!
//! Nothing here waits for a CPU: an event is due at some time, and takes place before any CPU that is not behind it
//! goes on, whether CPUs run, are halted or have interrupts off. The driver sees to that ([`crate::machine`]). Time is
//! in picoseconds since the machine was switched on, so that a bit on a fast wire has a length.
//!
//! `Outside` belongs to the hardware and is borrowed with it. The card is a state of its own, which moves bytes by a
//! [`Dma`] and asks for events; wire and far end are those of [`crate::net`]. Events of the same time take place in the
//! order in which they were asked for.

pub(crate) mod agenda;
pub(crate) mod clock;
pub(crate) mod dma;
pub(crate) mod frames;

use crate::dev::nic::Card;
use crate::net::far_end::FarEnd;
use crate::net::wire::{Lane, Wire};
use crate::params::NicParams;
use crate::turns::NEVER;
use agenda::{Agenda, Due, Event};
use clock::OutsideClock;
use dma::Dma;
use frames::{pad, wire_ps};
use std::cmp::Reverse;

/// The card, the wire and the far end.
pub(crate) struct Outside {
    clock: OutsideClock,
    params: NicParams,
    pub(crate) card: Card,
    agenda: Agenda,
    far_end: Option<Box<dyn FarEnd>>,
    to_far_end: Lane,
    to_card: Lane,
    /// When the far end is asked for its next frame.
    ask_at: u64,
    /// When its last frame is on the wire.
    far_wire_free_at: u64,
    /// The time of the last event.
    now: u64,
}

impl Outside {
    pub(crate) fn new(params: NicParams) -> Outside {
        Outside {
            clock: params.clock,
            params,
            card: Card::new(params),
            agenda: Agenda::default(),
            far_end: None,
            to_far_end: Lane::new(Wire::default(), 0),
            to_card: Lane::new(Wire::default(), 1),
            ask_at: NEVER,
            far_wire_free_at: 0,
            now: 0,
        }
    }

    /// The first cycle at which an event is due, if there is one.
    pub(crate) fn next_at(&self) -> u64 {
        self.clock.cycle(self.agenda.first_at().min(self.ask_at))
    }

    /// True when there is something at the far end, which can wait for what no machine knows.
    pub(crate) fn has_far_end(&self) -> bool {
        self.far_end.is_some()
    }

    /// The next event takes place. True when the card interrupts.
    pub(crate) fn happen(&mut self, dma: &mut Dma<'_>) -> bool {
        if self.ask_at < self.agenda.first_at() {
            self.now = self.now.max(self.ask_at);
            self.ask_far_end();
            return false;
        }
        let Some(Reverse(Due { ps, event, .. })) = self.agenda.due.pop() else { return false };
        self.now = self.now.max(ps);
        let now = self.now;
        match event {
            Event::Card(step) => {
                let sent = self.card.step(now, step, &mut self.agenda, dma);
                if let (Some(frame), true) = (sent, self.far_end.is_some()) {
                    for (at, frame) in self.to_far_end.carry(now, frame) {
                        self.agenda.add(at, Event::AtFarEnd(frame));
                    }
                }
            }
            Event::AtCard(frame) => self.card.arrives(now, frame, &mut self.agenda),
            Event::AtFarEnd(frame) => {
                if let Some(far_end) = &mut self.far_end {
                    far_end.arrives(now / 1000, &frame);
                    self.plan_asking(self.now);
                }
            }
            Event::Removal => self.card.remove(&mut self.agenda),
        }
        self.card.take_interrupt()
    }

    /// The time when a CPU is at `cycle`. CPUs are not behind events, but where a seed decides which goes on.
    fn time(&self, cycle: u64) -> u64 {
        self.now.max(self.clock.ps(cycle))
    }

    /// A CPU does something to the card when it is at `cycle`.
    pub(crate) fn at<R>(&mut self, cycle: u64, act: impl FnOnce(&mut Card, u64, &mut Agenda) -> R) -> R {
        let now = self.time(cycle);
        act(&mut self.card, now, &mut self.agenda)
    }

    /// Has the card taken out when CPUs are at `cycle`.
    pub(crate) fn remove_at(&mut self, cycle: u64) {
        self.agenda.add(self.time(cycle), Event::Removal);
    }

    // ------------------------------------------------------------------------------------------------- the far end

    /// From `cycle` on, `far_end` is at the other end of `wire`.
    pub(crate) fn attach(&mut self, cycle: u64, wire: Wire, far_end: Box<dyn FarEnd>) {
        (self.to_far_end, self.to_card) = (Lane::new(wire, 0), Lane::new(wire, 1));
        self.far_end = Some(far_end);
        self.plan_asking(self.time(cycle));
    }

    /// Lets the far end wait for the world: CPUs have been at `cycle`, and the machine does nothing until `until`. True
    /// when something has changed.
    pub(crate) fn wait(&mut self, cycle: u64, until: u64) -> bool {
        let now = self.time(cycle);
        let Some(far_end) = &mut self.far_end else { return false };
        let changed = far_end.wait(now / 1000, (until != NEVER).then(|| self.clock.ps(until) / 1000));
        if changed {
            self.plan_asking(now);
        }
        changed
    }

    /// Plans, at `now`, when the far end is asked for a frame: when it has one, and the wire is free.
    fn plan_asking(&mut self, now: u64) {
        let Some(far_end) = &mut self.far_end else { return };
        let at = far_end.next_at(now / 1000);
        self.ask_at = at.map_or(NEVER, |ns| ns.saturating_mul(1000).max(now).max(self.far_wire_free_at));
    }

    fn ask_far_end(&mut self) {
        let Some(far_end) = &mut self.far_end else { return };
        let frame = far_end.poll(self.now / 1000);
        if let Some(mut frame) = frame {
            pad(&mut frame);
            self.far_wire_free_at = self.now + wire_ps(&self.params, frame.len());
            for (at, frame) in self.to_card.carry(self.far_wire_free_at, frame) {
                self.agenda.add(at, Event::AtCard(frame));
            }
            self.plan_asking(self.now);
        } else {
            self.plan_asking(self.now);
            // It had nothing: however it changes its mind, time goes on.
            self.ask_at = self.ask_at.max(self.now + 1000);
        }
    }
}
