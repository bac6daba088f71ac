//! A host at the far end that costs nothing: whatever the wire can carry, it sends and takes.
//!
//! For experiments that measure the machine and not its peer. It speaks TCP as a peer of infinite speed would: it sends
//! as much as the window allows as fast as the wire takes it, without slow start; acknowledges every second segment,
//! and what is pushed; and sends again what is not acknowledged, because a card may run out of buffers. What its
//! connections are for, a [`Talker`] says. Where loss is the subject, or the peer is to be another implementation,
//! there is `smol`.
//!
//! * `conn`: one connection. `frame`: frames, made and read.
//!
//! # What can fail
//! A connection: [`End`] says how it ended. Frames that are no sound TCP or ARP for this host are passed over; a wrong
//! checksum ends nothing, but is counted.

mod config;
mod conn;
mod frame;
#[cfg(test)]
mod tests;

pub use config::LineConfig;
pub use conn::{End, Speech, Words};

use super::FarEnd;
use conn::{Conn, Heard};
use frame::{Frame, Packet};
use pageferry_hal::MacAddress;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;
use std::rc::Rc;

/// The first port that calls are made from; and how many there are before they begin anew.
const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 50_000;

/// A connection that the host makes.
pub struct Call {
    /// Where it leads.
    pub to: SocketAddrV4,
    /// What the host says on it.
    pub speech: Speech,
}

/// What the connections of a host are for. It numbers them in the order in which they begin.
pub trait Talker {
    /// The machine connects to `port`: what the host says to it, or nothing if it does not listen there.
    fn accepts(&mut self, id: u64, port: u16) -> Option<Speech>;
    /// The next connection that the host makes, if one is due.
    fn calls(&mut self, id: u64, now_ns: u64) -> Option<Call>;
    /// When the next is due, unless something ends before.
    fn next_call_at(&mut self, now_ns: u64) -> Option<u64>;
    /// The machine has said `bytes`, which begin at byte `at` of what it says.
    fn hears(&mut self, id: u64, now_ns: u64, at: u64, bytes: &[u8]);
    /// A connection is over.
    fn ended(&mut self, id: u64, now_ns: u64, how: End);
}

/// Clones are the same: one for the host, one to look at.
impl<T: Talker> Talker for Rc<RefCell<T>> {
    fn accepts(&mut self, id: u64, port: u16) -> Option<Speech> {
        self.borrow_mut().accepts(id, port)
    }
    fn calls(&mut self, id: u64, now_ns: u64) -> Option<Call> {
        self.borrow_mut().calls(id, now_ns)
    }
    fn next_call_at(&mut self, now_ns: u64) -> Option<u64> {
        self.borrow_mut().next_call_at(now_ns)
    }
    fn hears(&mut self, id: u64, now_ns: u64, at: u64, bytes: &[u8]) {
        self.borrow_mut().hears(id, now_ns, at, bytes);
    }
    fn ended(&mut self, id: u64, now_ns: u64, how: End) {
        self.borrow_mut().ended(id, now_ns, how);
    }
}

/// The two ends of a connection: the host's port, and the machine's.
type Ports = (u16, SocketAddrV4);

/// A host at the far end of the wire, which says what its talker has it say.
pub struct LineHost<T> {
    config: LineConfig,
    talker: T,
    conns: BTreeMap<Ports, Conn>,
    /// Connections that may have something to send, in turn.
    turns: VecDeque<Ports>,
    /// Frames that go before all data.
    urgent: VecDeque<Vec<u8>>,
    /// The machine's station, once it has said anything.
    station: Option<MacAddress>,
    begun: u64,
    next_port: u16,
}

impl<T: Talker> LineHost<T> {
    /// A host whose connections are for `talker`.
    pub fn new(config: LineConfig, talker: T) -> LineHost<T> {
        LineHost {
            config,
            talker,
            conns: BTreeMap::new(),
            turns: VecDeque::new(),
            urgent: VecDeque::new(),
            station: None,
            begun: 0,
            next_port: 0,
        }
    }

    fn segment_arrives(&mut self, now_ns: u64, packet: &Packet<'_>) {
        let ports = (packet.segment.to_port, packet.from);
        if !self.conns.contains_key(&ports) {
            if !packet.segment.syn || packet.segment.ack.is_some() {
                if !packet.segment.rst {
                    self.urgent.push_back(frame::reset(&self.config, packet));
                }
                return;
            }
            let Some(speech) = self.talker.accepts(self.begun, ports.0) else {
                return self.urgent.push_back(frame::reset(&self.config, packet));
            };
            let conn = Conn::accept(&self.config, self.begun, speech, packet);
            self.begun += 1;
            self.conns.insert(ports, conn);
            return self.turns.push_back(ports);
        }
        let conn = self.conns.get_mut(&ports).expect("just seen");
        let Heard { at, bytes, answer } = conn.arrives(&self.config, now_ns, &packet.segment);
        if !bytes.is_empty() {
            self.talker.hears(conn.id, now_ns, at, bytes);
        }
        self.urgent.extend(
            answer
                .map(|segment| frame::segment(&self.config, packet.station, packet.from, ports.0, &segment)),
        );
        self.settle(now_ns, ports);
    }

    /// A connection that is over goes; one that has something to send gets its turn.
    fn settle(&mut self, now_ns: u64, ports: Ports) {
        let Some(conn) = self.conns.get(&ports) else { return };
        if let Some(how) = conn.over() {
            let id = conn.id;
            self.conns.remove(&ports);
            self.turns.retain(|turn| *turn != ports);
            self.talker.ended(id, now_ns, how);
        } else if conn.has_more() && !self.turns.contains(&ports) {
            self.turns.push_back(ports);
        }
    }

    /// Makes the connections that are due, and finds what was not acknowledged for too long.
    fn time_passes(&mut self, now_ns: u64) {
        while let Some(call) = self.talker.calls(self.begun, now_ns) {
            let port = FIRST_PORT + self.next_port;
            self.next_port = (self.next_port + 1) % PORTS;
            let ports = (port, call.to);
            if self.conns.contains_key(&ports) {
                continue;
            }
            self.conns.insert(ports, Conn::new(&self.config, self.begun, call.speech));
            self.begun += 1;
            self.turns.push_back(ports);
        }
        let late: Vec<Ports> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.due().is_some_and(|at| at <= now_ns))
            .map(|(p, _)| *p)
            .collect();
        for ports in late {
            let conn = self.conns.get_mut(&ports).expect("just seen");
            let answer = conn.time_passes(&self.config, now_ns);
            if let (Some(segment), Some(station)) = (answer, self.station) {
                self.urgent.push_back(frame::segment(&self.config, station, ports.1, ports.0, &segment));
            }
            self.settle(now_ns, ports);
        }
    }
}

impl<T: Talker> FarEnd for LineHost<T> {
    fn arrives(&mut self, now_ns: u64, bytes: &[u8]) {
        match frame::read(&self.config, bytes) {
            Some(Frame::Question { station, address }) => {
                self.station = Some(station);
                self.urgent.push_back(frame::answer(&self.config, station, address));
            }
            Some(Frame::Answer { station }) => self.station = Some(station),
            Some(Frame::Packet(packet)) => {
                self.station = Some(packet.station);
                self.segment_arrives(now_ns, &packet);
            }
            None => {}
        }
    }

    fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        self.time_passes(now_ns);
        if let Some(frame) = self.urgent.pop_front() {
            return Some(frame);
        }
        let station = match (self.station, self.turns.front()) {
            (_, None) => return None,
            (Some(station), _) => station,
            // All cards of these machines have the same station; it is asked for like any other.
            (None, Some((_, to))) => {
                let question = frame::question(&self.config, *to.ip());
                self.station = Some(MacAddress::BROADCAST);
                return Some(question);
            }
        };
        if station == MacAddress::BROADCAST {
            return None;
        }
        while let Some(ports) = self.turns.pop_front() {
            let Some(conn) = self.conns.get_mut(&ports) else { continue };
            let next = conn.next(&self.config, now_ns);
            let frame = next.map(|segment| frame::segment(&self.config, station, ports.1, ports.0, &segment));
            self.settle(now_ns, ports);
            if frame.is_some() {
                return frame;
            }
        }
        None
    }

    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        let waits_for_station = self.station == Some(MacAddress::BROADCAST);
        if !self.urgent.is_empty() || (!self.turns.is_empty() && !waits_for_station) {
            return Some(now_ns);
        }
        let due = self.conns.values().filter_map(Conn::due).min();
        due.into_iter().chain(self.talker.next_call_at(now_ns)).min().map(|at| at.max(now_ns))
    }
}
