//! Protocol control blocks: one for each socket, by number, and how an arriving packet finds its own.
//!
//! A block outlives its socket while TCP still has something to deliver. Ports are given from 49152 on. A packet finds
//! the block that is connected to where it comes from, or else one that is bound to its port, for this address before
//! for any.
//!
//! # Locks
//! The table's ([`State`](super::stack::State)): over which blocks there are, their names, and who hands out which
//! connections. Each [`Block`] has one of its own over all else, which is taken while the table's is held, or by who
//! has the block at hand. Nobody holds two.

use super::alarm::Alarm;
use super::datagrams::Udp;
use super::id::PcbId;
use super::tcp::Tcb;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use pageferry_abi::Errno;
use pageferry_hal::{Channel, Cycles, LockClass, Machine, SpinLock, StructVa};

/// The class of the locks of blocks.
pub(super) const CONNECTION: LockClass = LockClass::new("Connection", 5);

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

/// Who takes what arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A process has it as a socket.
    Process,
    /// Nobody yet: a listener is to hand it out.
    Listener,
    /// Nobody any more: TCP still has something to deliver.
    Nobody,
}

/// A block (`inpcb`, `tcpcb`, and what is the socket's own of it).
pub(super) struct Pcb<M: Machine> {
    pub(super) at: StructVa,
    pub(super) owner: Owner,
    /// What is to be told at the next call (`so_error`).
    pub(super) error: Option<Errno>,
    /// When it has something to do.
    pub(super) alarm: Alarm,
    /// The table has it no more; whoever has found it before finds nothing.
    pub(super) is_gone: bool,
    pub(super) kind: Kind<M>,
}

/// A block under its lock (`INP_LOCK`).
pub(super) type Block<M> = <M as Machine>::Lock<Pcb<M>>;

/// A block, held.
pub(super) type BlockGuard<'a, M> = <Block<M> as SpinLock<Pcb<M>>>::Guard<'a>;

/// What is specific to the protocol.
pub(super) enum Kind<M: Machine> {
    Tcp(Box<Tcb<M>>),
    Udp(Udp),
}

impl<M: Machine> Pcb<M> {
    /// A block in the structure at `at`.
    pub(super) fn new(at: StructVa, owner: Owner, kind: Kind<M>) -> Pcb<M> {
        Pcb { at, owner, error: None, alarm: Alarm::default(), is_gone: false, kind }
    }

    pub(super) fn protocol(&self) -> Protocol {
        match self.kind {
            Kind::Tcp(_) => Protocol::Tcp,
            Kind::Udp(_) => Protocol::Udp,
        }
    }

    /// Where threads sleep that wait for something of this block.
    pub(super) fn channel(&self) -> Channel {
        channel(self.at)
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

    /// When it has something to do.
    pub(super) fn deadline(&self) -> Option<Cycles> {
        match &self.kind {
            Kind::Tcp(tcb) => tcb.deadline(),
            Kind::Udp(_) => None,
        }
    }
}

/// Where threads sleep that wait for something of the block at `at`.
fn channel(at: StructVa) -> Channel {
    Channel(at.0.0)
}

/// What the table knows of a block. It is changed and looked at with the table's lock alone.
pub(super) struct Entry<M: Machine> {
    pub(super) at: StructVa,
    pub(super) protocol: Protocol,
    /// Port 0: not bound.
    pub(super) local: SocketAddrV4,
    pub(super) remote: Option<SocketAddrV4>,
    /// `SO_REUSEADDR`.
    pub(super) reuse: bool,
    /// The connections that it is to hand out, if it listens.
    pub(super) listener: Option<Listener>,
    /// The listening block that is to hand it out.
    pub(super) parent: Option<PcbId>,
    /// Its connection is over, and is forgotten then (TIME_WAIT): who wants room looks for these (`twq_2msl`).
    pub(super) forgotten_at: Option<Cycles>,
    pub(super) block: Arc<Block<M>>,
}

/// The connections of a listening block (`so_comp`, `so_incomp`).
#[derive(Debug)]
pub(super) struct Listener {
    /// Those that are there, in their order.
    pub(super) accepting: VecDeque<PcbId>,
    /// How many may wait.
    pub(super) backlog: usize,
    /// How many are being made.
    pub(super) incomplete: usize,
}

impl<M: Machine> Entry<M> {
    /// Where threads sleep that wait for something of its block.
    pub(super) fn channel(&self) -> Channel {
        channel(self.at)
    }

    /// Without being connected: datagrams always, segments when it listens.
    fn receives(&self) -> bool {
        self.protocol == Protocol::Udp || self.listener.is_some()
    }
}

/// Two blocks of the same protocol that are connected to each other's ends.
type Pair = (Protocol, SocketAddrV4, SocketAddrV4);

/// All blocks. See the [module](self).
pub(super) struct Pcbs<M: Machine> {
    all: BTreeMap<PcbId, Entry<M>>,
    connected: BTreeMap<Pair, PcbId>,
    next_id: u32,
    next_port: u16,
}

impl<M: Machine> Default for Pcbs<M> {
    fn default() -> Pcbs<M> {
        Pcbs { all: BTreeMap::new(), connected: BTreeMap::new(), next_id: 1, next_port: FIRST_EPHEMERAL_PORT }
    }
}

impl<M: Machine> Pcbs<M> {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn ids(&self) -> Vec<PcbId> {
        self.all.keys().copied().collect()
    }

    pub(super) fn insert(&mut self, m: &M, pcb: Pcb<M>) -> PcbId {
        let id = PcbId(self.next_id);
        self.next_id += 1;
        let (at, protocol) = (pcb.at, pcb.protocol());
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let block = Arc::new(m.new_lock(CONNECTION, pcb));
        self.all.insert(
            id,
            Entry {
                at,
                protocol,
                local,
                remote: None,
                reuse: false,
                listener: None,
                parent: None,
                forgotten_at: None,
                block,
            },
        );
        id
    }

    pub(super) fn get(&self, id: PcbId) -> Option<&Entry<M>> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: PcbId) -> Option<&mut Entry<M>> {
        self.all.get_mut(&id)
    }

    /// The block itself.
    pub(super) fn block(&self, id: PcbId) -> Option<Arc<Block<M>>> {
        self.all.get(&id).map(|entry| entry.block.clone())
    }

    /// What a listening block is to hand out.
    pub(super) fn listener(&mut self, id: PcbId) -> Option<&mut Listener> {
        self.all.get_mut(&id)?.listener.as_mut()
    }

    pub(super) fn remove(&mut self, id: PcbId) {
        let Some(entry) = self.all.remove(&id) else { return };
        if let Some(remote) = entry.remote {
            self.connected.remove(&(entry.protocol, entry.local, remote));
        }
    }

    /// Connects a block: from now on packets from `remote` to `local` find it. False when another has this connection.
    pub(super) fn connect(&mut self, id: PcbId, local: SocketAddrV4, remote: SocketAddrV4) -> bool {
        let entry = self.all.get_mut(&id).expect("the caller has it");
        let pair = (entry.protocol, local, remote);
        if self.connected.contains_key(&pair) {
            return false;
        }
        (entry.local, entry.remote) = (local, Some(remote));
        self.connected.insert(pair, id);
        true
    }

    /// Takes a block's connection back.
    pub(super) fn disconnect(&mut self, id: PcbId) {
        let entry = self.all.get_mut(&id).expect("the caller has it");
        if let Some(remote) = entry.remote.take() {
            self.connected.remove(&(entry.protocol, entry.local, remote));
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
        let fits = |entry: &&Entry<M>, address: Ipv4Addr| {
            entry.remote.is_none()
                && entry.protocol == protocol
                && entry.local == SocketAddrV4::new(address, local.port())
                && entry.receives()
        };
        let find = |address| self.all.iter().find(|(_, entry)| fits(entry, address)).map(|(id, _)| *id);
        find(*local.ip()).or_else(|| find(Ipv4Addr::UNSPECIFIED))
    }

    /// True when `local` can be bound to: no other block of the protocol has the port for this address, or both may
    /// share it and neither listens.
    pub(super) fn is_free(&self, protocol: Protocol, local: SocketAddrV4, reuse: bool) -> bool {
        let meets = |entry: &Entry<M>| {
            let both_any = entry.local.ip().is_unspecified() || local.ip().is_unspecified();
            entry.protocol == protocol
                && entry.local.port() == local.port()
                && (both_any || entry.local.ip() == local.ip())
        };
        let mut others = self.all.values().filter(|entry| meets(entry));
        others.all(|entry| reuse && entry.reuse && entry.listener.is_none())
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
        let over = self.all.iter().filter_map(|(id, entry)| Some((entry.forgotten_at?, *id)));
        let mut over: Vec<(Cycles, PcbId)> = over.collect();
        over.sort_unstable();
        let is_nobodys = |id: &PcbId| self.all[id].block.lock().owner == Owner::Nobody;
        over.into_iter().map(|(_, id)| id).find(is_nobodys)
    }

    /// The connections that a block that listens is to hand out.
    pub(super) fn children(&self, listener: PcbId) -> impl Iterator<Item = PcbId> + '_ {
        self.all.iter().filter(move |(_, entry)| entry.parent == Some(listener)).map(|(id, _)| *id)
    }

    /// Of the connections to a block that listens that the other end has not confirmed, the one that was begun first.
    pub(super) fn first_half_open(&self, listener: PcbId) -> Option<PcbId> {
        let there = &self.all.get(&listener)?.listener.as_ref()?.accepting;
        self.children(listener).find(|id| !there.contains(id))
    }

    /// Tests that every connection is known by its ends, and by nothing else, and has an alarm for its deadline if
    /// there are any.
    ///
    /// # Errors
    /// What is broken, in words.
    pub(super) fn check(&self, has_alarms: bool) -> Result<(), String> {
        for (pair, id) in &self.connected {
            let entry = self.all.get(id).ok_or_else(|| format!("{pair:?} is connected to no block"))?;
            if entry.remote != Some(pair.2) || entry.local != pair.1 {
                return Err(format!("{pair:?} is not what {id:?} is connected to"));
            }
        }
        let connected = self.all.values().filter(|entry| entry.remote.is_some()).count();
        if connected != self.connected.len() {
            return Err(format!(
                "{connected} blocks are connected, {} are known to be",
                self.connected.len()
            ));
        }
        self.check_listeners()?;
        self.all.iter().try_for_each(|(id, entry)| entry.check(*id, has_alarms))
    }

    /// Tests that what a listener counts and keeps are the connections that were made for it and that nobody has taken.
    fn check_listeners(&self) -> Result<(), String> {
        for (id, entry) in &self.all {
            let Some(listener) = &entry.listener else { continue };
            let is_half_open =
                |child: &PcbId| self.all[child].block.lock().as_tcb().is_some_and(Tcb::is_half_open);
            let (half_open, there): (Vec<PcbId>, Vec<PcbId>) = self.children(*id).partition(is_half_open);
            if half_open.len() != listener.incomplete {
                return Err(format!(
                    "{id:?} counts {} calls half open, of {}",
                    listener.incomplete,
                    half_open.len()
                ));
            }
            let mut waiting: Vec<PcbId> = listener.accepting.iter().copied().collect();
            waiting.sort_unstable();
            if waiting != there {
                return Err(format!("{waiting:?} wait to be accepted by {id:?}, of {there:?}"));
            }
        }
        Ok(())
    }

    /// Segments that came before what is in front of them.
    pub(super) fn early(&self) -> usize {
        self.all.values().map(|entry| entry.block.lock().as_tcb().map_or(0, Tcb::early)).sum()
    }
}

impl<M: Machine> Entry<M> {
    /// Tests that the block is what the table takes it for.
    fn check(&self, id: PcbId, has_alarms: bool) -> Result<(), String> {
        let pcb = self.block.lock();
        if pcb.is_gone || pcb.at != self.at || pcb.protocol() != self.protocol {
            return Err(format!("{id:?} is in the table, and its block is another's"));
        }
        if (pcb.owner == Owner::Listener) != self.parent.is_some() {
            return Err(format!("{id:?} is {:?}'s, and {:?} is to hand it out", pcb.owner, self.parent));
        }
        let (due, set) = (pcb.deadline(), pcb.alarm.due());
        if has_alarms && due != set {
            return Err(format!("{id:?} has its deadline at {due:?}, and an alarm at {set:?}"));
        }
        match &pcb.kind {
            Kind::Tcp(tcb) => {
                let ends = self.remote.map(|remote| (self.local, remote));
                if tcb.ends.is_some() && tcb.ends != ends {
                    return Err(format!("{id:?} is connected as {ends:?} and sends as {:?}", tcb.ends));
                }
                if tcb.is_listening() != self.listener.is_some() {
                    return Err(format!("{id:?} listens, or does not, and the table has it otherwise"));
                }
                if tcb.forgotten_at() != self.forgotten_at {
                    let (its, known) = (tcb.forgotten_at(), self.forgotten_at);
                    return Err(format!("{id:?} is to be forgotten at {its:?}, and the table has {known:?}"));
                }
                tcb.check()
            }
            Kind::Udp(udp) => udp.check(),
        }
    }
}

impl<M: Machine> Pcb<M> {
    fn as_tcb(&self) -> Option<&Tcb<M>> {
        match &self.kind {
            Kind::Tcp(tcb) => Some(tcb),
            Kind::Udp(_) => None,
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
