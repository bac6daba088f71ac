//! Protocol control blocks: one for each socket, by number, and how an arriving packet finds its own.
//!
//! A block outlives its socket while TCP still has something to deliver. Ports are given from 49152 on. A packet finds
//! the block that is connected to where it comes from, or else one that is bound to its port, for this address before
//! for any.

use super::datagrams::Udp;
use super::deadlines::Deadlines;
use super::id::PcbId;
use super::tcp::{Tcb, TcpState};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use pageferry_abi::Errno;
use pageferry_hal::{Channel, Cycles, Machine, StructVa};

/// The first port that is given to sockets without one.
const FIRST_EPHEMERAL_PORT: u16 = 49152;

/// The port to be given behind `port`.
fn port_behind(port: u16) -> u16 {
    if port == u16::MAX { FIRST_EPHEMERAL_PORT } else { port + 1 }
}

/// All ports that are given to sockets without one, each once, from `first` on.
fn ports_from(first: u16) -> impl Iterator<Item = u16> {
    let all = usize::from(u16::MAX - FIRST_EPHEMERAL_PORT) + 1;
    core::iter::successors(Some(first), |port| Some(port_behind(*port))).take(all)
}

/// A protocol, as far as ports are concerned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// A block.
pub(super) struct Pcb<M: Machine> {
    pub(super) at: StructVa,
    /// Port 0: not bound.
    pub(super) local: SocketAddrV4,
    pub(super) remote: Option<SocketAddrV4>,
    /// `SO_REUSEADDR`.
    pub(super) reuse: bool,
    /// A process has it as a socket.
    pub(super) has_socket: bool,
    /// What is to be told at the next call (`so_error`).
    pub(super) error: Option<Errno>,
    pub(super) kind: Kind<M>,
}

/// What is specific to the protocol.
pub(super) enum Kind<M: Machine> {
    Tcp(Box<Tcb<M>>),
    Udp(Udp),
}

impl<M: Machine> Pcb<M> {
    pub(super) fn protocol(&self) -> Protocol {
        match self.kind {
            Kind::Tcp(_) => Protocol::Tcp,
            Kind::Udp(_) => Protocol::Udp,
        }
    }

    /// Where threads sleep that wait for something of this block.
    pub(super) fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// Its TCP part.
    ///
    /// # Panics
    /// When it is of another protocol.
    pub(super) fn tcb(&mut self) -> &mut Tcb<M> {
        match &mut self.kind {
            Kind::Tcp(tcb) => tcb,
            Kind::Udp(_) => panic!("a block of UDP is taken for one of TCP"),
        }
    }
}

/// Two blocks of the same protocol that are connected to each other's ends.
type Pair = (Protocol, SocketAddrV4, SocketAddrV4);

/// All blocks. See the [module](self).
pub(super) struct Pcbs<M: Machine> {
    all: BTreeMap<PcbId, Pcb<M>>,
    connected: BTreeMap<Pair, PcbId>,
    deadlines: Deadlines,
    next_id: u32,
    next_port: u16,
}

impl<M: Machine> Default for Pcbs<M> {
    fn default() -> Pcbs<M> {
        Pcbs {
            all: BTreeMap::new(),
            connected: BTreeMap::new(),
            deadlines: Deadlines::default(),
            next_id: 1,
            next_port: FIRST_EPHEMERAL_PORT,
        }
    }
}

impl<M: Machine> Pcbs<M> {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn ids(&self) -> Vec<PcbId> {
        self.all.keys().copied().collect()
    }

    pub(super) fn insert(&mut self, pcb: Pcb<M>) -> PcbId {
        let id = PcbId(self.next_id);
        self.next_id += 1;
        if let Some(remote) = pcb.remote {
            self.connected.insert((pcb.protocol(), pcb.local, remote), id);
        }
        self.all.insert(id, pcb);
        self.deadlines.touch(id);
        id
    }

    pub(super) fn get(&self, id: PcbId) -> Option<&Pcb<M>> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: PcbId) -> Option<&mut Pcb<M>> {
        let pcb = self.all.get_mut(&id)?;
        self.deadlines.touch(id);
        Some(pcb)
    }

    pub(super) fn remove(&mut self, id: PcbId) -> Option<Pcb<M>> {
        let pcb = self.all.remove(&id)?;
        self.deadlines.touch(id);
        if let Some(remote) = pcb.remote {
            self.connected.remove(&(pcb.protocol(), pcb.local, remote));
        }
        Some(pcb)
    }

    /// Connects a block: from now on packets from `remote` to `local` find it. False when another has this connection.
    pub(super) fn connect(&mut self, id: PcbId, local: SocketAddrV4, remote: SocketAddrV4) -> bool {
        let pcb = self.all.get_mut(&id).expect("the caller has it");
        let pair = (pcb.protocol(), local, remote);
        if self.connected.contains_key(&pair) {
            return false;
        }
        (pcb.local, pcb.remote) = (local, Some(remote));
        self.connected.insert(pair, id);
        true
    }

    /// Takes a block's connection back.
    pub(super) fn disconnect(&mut self, id: PcbId) {
        let pcb = self.all.get_mut(&id).expect("the caller has it");
        if let Some(remote) = pcb.remote.take() {
            self.connected.remove(&(pcb.protocol(), pcb.local, remote));
        }
    }

    /// The block that a packet is for.
    pub(super) fn lookup(
        &self,
        protocol: Protocol,
        local: SocketAddrV4,
        remote: SocketAddrV4,
    ) -> Option<PcbId> {
        if let Some(id) = self.connected.get(&(protocol, local, remote)) {
            return Some(*id);
        }
        let fits = |pcb: &&Pcb<M>, address: Ipv4Addr| {
            pcb.remote.is_none()
                && pcb.protocol() == protocol
                && pcb.local == SocketAddrV4::new(address, local.port())
                && pcb.receives()
        };
        let find = |address| self.all.iter().find(|(_, pcb)| fits(pcb, address)).map(|(id, _)| *id);
        find(*local.ip()).or_else(|| find(Ipv4Addr::UNSPECIFIED))
    }

    /// True when `local` can be bound to: no other block of the protocol has the port for this address, or both may
    /// share it and neither listens.
    pub(super) fn is_free(&self, protocol: Protocol, local: SocketAddrV4, reuse: bool) -> bool {
        let meets = |pcb: &Pcb<M>| {
            let both_any = pcb.local.ip().is_unspecified() || local.ip().is_unspecified();
            pcb.protocol() == protocol
                && pcb.local.port() == local.port()
                && (both_any || pcb.local.ip() == local.ip())
        };
        self.all.values().filter(|pcb| meets(pcb)).all(|pcb| reuse && pcb.reuse && !pcb.is_listening())
    }

    /// A port that no block of the protocol has.
    pub(super) fn free_port(&mut self, protocol: Protocol) -> Option<u16> {
        let is_free =
            |port: &u16| self.is_free(protocol, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port), false);
        let port = ports_from(self.next_port).find(is_free)?;
        self.next_port = port_behind(port);
        Some(port)
    }

    /// The connection that has been over for longest, of those that no process has.
    pub(super) fn first_in_time_wait(&self) -> Option<PcbId> {
        let over = self.all.iter().filter(|(_, pcb)| !pcb.has_socket);
        over.filter_map(|(id, pcb)| match &pcb.kind {
            Kind::Tcp(tcb) if tcb.state() == TcpState::TimeWait => Some((tcb.deadline()?, *id)),
            _ => None,
        })
        .min()
        .map(|(_, id)| id)
    }

    /// Of the connections to a block that listens that the other end has not confirmed, the one that was begun first.
    pub(super) fn first_half_open(&self, listener: PcbId) -> Option<PcbId> {
        let is_one = |pcb: &Pcb<M>| matches!(&pcb.kind, Kind::Tcp(tcb) if tcb.is_half_open(listener));
        self.all.iter().find(|(_, pcb)| is_one(pcb)).map(|(id, _)| *id)
    }

    /// When the first block has something to do.
    pub(super) fn first_deadline(&mut self) -> Option<Cycles> {
        self.settled().first()
    }

    /// The blocks that have something to do at `now`.
    pub(super) fn due(&mut self, now: Cycles) -> Vec<PcbId> {
        self.settled().due(now)
    }

    fn settled(&mut self) -> &Deadlines {
        let all = &self.all;
        self.deadlines.settle(|id| all.get(&id).and_then(Pcb::deadline));
        &self.deadlines
    }

    /// Tests that every connection is known by its ends, and by nothing else, and so is every deadline.
    ///
    /// # Errors
    /// What is broken, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        for (pair, id) in &self.connected {
            let pcb = self.all.get(id).ok_or_else(|| format!("{pair:?} is connected to no block"))?;
            if pcb.remote != Some(pair.2) || pcb.local != pair.1 {
                return Err(format!("{pair:?} is not what {id:?} is connected to"));
            }
        }
        let connected = self.all.values().filter(|pcb| pcb.remote.is_some()).count();
        if connected != self.connected.len() {
            return Err(format!(
                "{connected} blocks are connected, {} are known to be",
                self.connected.len()
            ));
        }
        let mut with_deadline = 0;
        for (id, pcb) in &self.all {
            let (is, known) = (pcb.deadline(), self.deadlines.known(*id));
            with_deadline += usize::from(known.is_some_and(|at| at.is_some()));
            if known.is_some_and(|at| at != is) {
                return Err(format!("{id:?} has its deadline at {is:?}, {known:?} is known"));
            }
        }
        if with_deadline > self.deadlines.len() {
            return Err(format!("{} deadlines are in order, of {with_deadline}", self.deadlines.len()));
        }
        self.check_listeners()?;
        self.all.values().try_for_each(|pcb| match &pcb.kind {
            Kind::Tcp(tcb) => tcb.check(),
            Kind::Udp(udp) => udp.check(),
        })
    }
}

impl<M: Machine> Pcbs<M> {
    /// Tests that what a listener counts and keeps are the connections that were made for it and that nobody has taken.
    fn check_listeners(&self) -> Result<(), String> {
        let tcbs = || self.all.iter().filter_map(|(id, pcb)| Some((id, pcb.as_tcb()?)));
        for (listener, of) in tcbs().filter(|(_, of)| of.is_listening()) {
            let half_open = tcbs().filter(|(_, child)| child.is_half_open(*listener)).count();
            if half_open != of.half_open() {
                return Err(format!(
                    "{listener:?} counts {} calls half open, of {half_open}",
                    of.half_open()
                ));
            }
            let mut waiting: Vec<PcbId> = of.accepting.iter().copied().collect();
            waiting.sort_unstable();
            let there: Vec<PcbId> =
                tcbs().filter(|(_, child)| child.awaits_accept(*listener)).map(|(id, _)| *id).collect();
            if waiting != there {
                return Err(format!("{waiting:?} wait to be accepted by {listener:?}, of {there:?}"));
            }
        }
        Ok(())
    }

    /// Segments that came before what is in front of them.
    pub(super) fn early(&self) -> usize {
        self.all.values().filter_map(Pcb::as_tcb).map(Tcb::early).sum()
    }
}

impl<M: Machine> Pcb<M> {
    fn as_tcb(&self) -> Option<&Tcb<M>> {
        match &self.kind {
            Kind::Tcp(tcb) => Some(tcb),
            Kind::Udp(_) => None,
        }
    }

    fn deadline(&self) -> Option<Cycles> {
        match &self.kind {
            Kind::Tcp(tcb) => tcb.deadline(),
            Kind::Udp(_) => None,
        }
    }

    fn is_listening(&self) -> bool {
        matches!(&self.kind, Kind::Tcp(tcb) if tcb.is_listening())
    }

    /// Without being connected: datagrams always, segments when it listens.
    fn receives(&self) -> bool {
        match &self.kind {
            Kind::Tcp(tcb) => tcb.is_listening(),
            Kind::Udp(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_EPHEMERAL_PORT, ports_from};
    use alloc::vec::Vec;

    #[test]
    fn each_port_is_looked_at_once_from_any_on() {
        for first in [FIRST_EPHEMERAL_PORT, FIRST_EPHEMERAL_PORT + 1, 60_000, u16::MAX] {
            let mut ports: Vec<u16> = ports_from(first).collect();
            assert_eq!(ports[0], first);
            ports.sort_unstable();
            assert_eq!(ports, (FIRST_EPHEMERAL_PORT..=u16::MAX).collect::<Vec<u16>>(), "from {first}");
        }
    }
}
