//! What happens outside of the CPUs: the network card, the wire, and what is at its far end, in the order of time.
//!
//! Nothing here waits for a CPU: an event is due at some time, and takes place before any CPU that is not behind it
//! goes on, whether CPUs run, are halted or have interrupts off. The driver sees to that ([`crate::machine`]). Time is
//! in picoseconds since the machine was switched on, so that a bit on a fast wire has a length.
//!
//! `Outside` belongs to the hardware and is borrowed with it. The card is a state of its own, which moves bytes by a
//! [`Dma`] and asks for events; wire and far end are those of [`crate::net`]. Events of the same time take place in the
//! order in which they were asked for.

use crate::cache::aliases::Aliases;
use crate::cache::power_on::PoweredOn;
use crate::dev::nic::{Card, Step};
use crate::machine::turns::NEVER;
use crate::memory::Memory;
use crate::net::far_end::FarEnd;
use crate::net::wire::{Lane, Wire};
use crate::params::NicParams;
use pageferry_hal::{ETHERNET_LEAST_BYTES, PAGE_SIZE, Pa};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When all time ends, in picoseconds: 53 days. What begins before takes no time that could not be written down.
const END_PS: u64 = 1 << 62;

/// From cycles of the CPUs to time outside of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutsideClock {
    pub(crate) mhz: u64,
}

impl OutsideClock {
    /// When a CPU is at `cycle`.
    pub(crate) fn ps(self, cycle: u64) -> u64 {
        saturating(u128::from(cycle) * 1_000_000 / u128::from(self.mhz))
    }

    /// The first cycle that does not begin before `ps`; of [`OutsideClock::ps`] of a cycle, that cycle.
    pub(crate) fn cycle(self, ps: u64) -> u64 {
        if ps == NEVER {
            return NEVER;
        }
        saturating((u128::from(ps) * u128::from(self.mhz)).div_ceil(1_000_000))
    }

    /// The last cycle of a run, whatever its limit.
    pub(crate) fn end(self) -> u64 {
        self.cycle(END_PS)
    }
}

fn saturating(time: u128) -> u64 {
    u64::try_from(time).unwrap_or(NEVER)
}

/// How a device reaches memory: what it reads is supplied by whatever cache has it, what it writes is in no cache
/// afterwards.
pub(crate) struct Dma<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) caches: Option<&'a mut PoweredOn>,
    pub(crate) aliases: Option<&'a mut Aliases>,
    pub(crate) line_bytes: usize,
}

impl Dma<'_> {
    /// Reads bytes of one frame of memory.
    pub(crate) fn read(&self, at: Pa, buf: &mut [u8]) {
        self.memory.read(at, buf);
    }

    /// Writes bytes of one frame of memory.
    pub(crate) fn write(&mut self, at: Pa, bytes: &[u8]) {
        debug_assert!(at.0 as usize % PAGE_SIZE + bytes.len() <= PAGE_SIZE, "bytes of one frame");
        self.memory.bytes_mut(at, bytes.len()).copy_from_slice(bytes);
        self.drop_lines(at, bytes.len());
    }

    /// These bytes are in no cache from here on.
    pub(crate) fn drop_lines(&mut self, at: Pa, len_bytes: usize) {
        if let Some(aliases) = &mut self.aliases {
            aliases.forget(at, len_bytes);
        }
        let Some(caches) = &mut self.caches else { return };
        let first = at.0 & !(self.line_bytes as u64 - 1);
        for line in (first..at.0 + len_bytes as u64).step_by(self.line_bytes) {
            caches.live().flush_line(line);
        }
    }
}

/// Something that will take place.
#[derive(Debug)]
enum Event {
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
struct Due {
    ps: u64,
    /// The order in which they were asked for.
    nth: u64,
    event: Event,
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
    due: BinaryHeap<Reverse<Due>>,
    nth: u64,
}

impl Agenda {
    fn add(&mut self, ps: u64, event: Event) {
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

    fn first_at(&self) -> u64 {
        self.due.peek().map_or(NEVER, |Reverse(due)| due.ps)
    }
}

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
        let Some(far_end) = &mut self.far_end else { return false };
        let changed = far_end.wait((until != NEVER).then(|| self.clock.ps(until) / 1000));
        if changed {
            self.plan_asking(self.time(cycle));
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

/// Makes a frame as long as a frame has to be.
pub(crate) fn pad(frame: &mut Vec<u8>) {
    if frame.len() < ETHERNET_LEAST_BYTES {
        frame.resize(ETHERNET_LEAST_BYTES, 0);
    }
}

/// Checksum, preamble and the gap between frames.
const AROUND_FRAME_BYTES: u64 = 4 + 8 + 12;

/// How long a frame takes on the wire.
pub(crate) fn wire_ps(params: &NicParams, len_bytes: usize) -> u64 {
    let bits = (len_bytes.max(ETHERNET_LEAST_BYTES) as u64 + AROUND_FRAME_BYTES) * 8;
    (bits * 1_000_000).div_ceil(params.link_mbit_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_again() {
        for mhz in [1, 66, 133, 2400, 3700, 100_000] {
            let clock = OutsideClock { mhz };
            for cycle in [0, 1, 2, 7, 1000, 123_456_789, 1 << 40] {
                assert_eq!(clock.cycle(clock.ps(cycle)), cycle, "{mhz} MHz");
            }
            assert!(clock.cycle(clock.ps(5) + 1) >= 5);
            assert_eq!(clock.cycle(NEVER), NEVER);
        }
    }

    #[test]
    fn frames_take_what_the_standard_says() {
        let config = crate::MachineConfig::named("xeon-up").expect("it is built in");
        let mut params = crate::params::Params::from_config(&config).nic.expect("a card");
        assert_eq!(wire_ps(&params, 1514), 12_304_000);
        assert_eq!(wire_ps(&params, 60), 672_000);
        assert_eq!(wire_ps(&params, 14), 672_000);
        params.link_mbit_s = 25_000;
        assert_eq!(wire_ps(&params, 1514), 492_160);
    }
}
