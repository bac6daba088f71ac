//! The driver of the network card (after `if_em.c`).
//!
//! # What it holds
//! The card's two rings, as kernel structures that are touched when a descriptor is written or read, and what is posted
//! to them: for each frame that may arrive as many clusters as the longest takes, and with header split a small mbuf
//! for the headers; and the chains that are being sent. Behind headers that were split off the data begins with a page:
//! pages that are full can become a receiver's memory.
//!
//! A short frame is copied, and its buffers are posted again. A longer one is handed up in its own buffers and others
//! take their place; when there is none the frame is dropped and its buffers are posted again, so that the card never
//! runs dry for good. A chain that is sent is freed when the card is done with it, which is looked for at every
//! interrupt and when descriptors are short.
//!
//! # What can fail
//! A card that was removed sends and receives nothing more; all of its buffers come back.

use super::ip::SumBy;
use super::link::Link;
use super::pcb::Protocol;
use super::wire::{TYPE_ARP, TYPE_IP};
use super::{Stack, State};
use crate::counter::KernelCounter;
use crate::defect::NetDefect;
use crate::net::chain::Chain;
use crate::net::{Mbuf, Pool, SMALL_BYTES};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use litemap::LiteMap;
use pageferry_abi::Errno;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Access, DeviceId, ETHERNET_HEADER_BYTES, Fragment, Machine, NIC_DESCRIPTOR_BYTES, Nic, NicArrival,
    NicInfo, NicReceive, NicTransmit, PAGE_SIZE, Path, StructArena, StructVa,
};

/// Buffers that are handed over by one write to the card's register.
const DOORBELL_EVERY: usize = 16;
/// A frame is read into a cluster this far from its start, so that the IP header is aligned (`ETHER_ALIGN`).
const ETHER_ALIGN: usize = 2;

/// The card and what it has. See the [module](self).
pub(super) struct Card<M: Machine> {
    nic: Box<dyn Nic>,
    info: NicInfo,
    transmit_ring: Ring,
    receive_ring: Ring,
    /// With the descriptors that each fills.
    sending: LiteMap<u64, (usize, Chain)>,
    receiving: LiteMap<u64, Buffers>,
    next_tag: u64,
    works: bool,
    /// What giving it a buffer takes.
    buffer_path: Path,
    machine: core::marker::PhantomData<M>,
}

/// Descriptors in memory.
struct Ring {
    at: StructVa,
    slots: usize,
    /// The next to be filled, and the next to be looked at.
    head: usize,
    tail: usize,
    used: usize,
}

impl Ring {
    /// Writes `count` descriptors.
    fn fill<M: Machine>(&mut self, m: &M, count: usize) {
        for _ in 0..count {
            m.touch(self.at.element(self.head, NIC_DESCRIPTOR_BYTES), NIC_DESCRIPTOR_BYTES, Access::Write);
            self.head = (self.head + 1) % self.slots;
        }
        self.used += count;
    }

    /// Looks at `count` descriptors that the card has written back.
    fn look<M: Machine>(&mut self, m: &M, count: usize) {
        for _ in 0..count {
            m.touch(self.at.element(self.tail, NIC_DESCRIPTOR_BYTES), NIC_DESCRIPTOR_BYTES, Access::Read);
            self.tail = (self.tail + 1) % self.slots;
        }
        self.used -= count;
    }

    fn free(&self) -> usize {
        self.slots - self.used
    }
}

/// What a frame is received into.
struct Buffers {
    header: Option<Mbuf>,
    data: Vec<Mbuf>,
}

impl Buffers {
    fn iter(&self) -> impl Iterator<Item = &Mbuf> {
        self.header.iter().chain(&self.data)
    }

    fn free<M: Machine>(self, pool: &Pool<M>) {
        self.header.into_iter().chain(self.data).for_each(|mbuf| pool.free(mbuf));
    }
}

/// Clusters that hold the longest frame, whose headers may be in front of it all the same.
fn frame_clusters(info: &NicInfo) -> usize {
    let offset = if info.header_split { 0 } else { ETHER_ALIGN };
    (offset + ETHERNET_HEADER_BYTES + info.mtu_bytes).div_ceil(PAGE_SIZE)
}

/// Descriptors that the buffers for one frame take.
fn frame_descriptors(info: &NicInfo) -> usize {
    usize::from(info.header_split) + frame_clusters(info)
}

/// The fewest clusters with which such a card serves the kernel: those that it has itself, and others for the frames
/// that a connection's receive buffer holds. With fewer the kernel runs, and loses frames until what connections hold
/// is taken from them.
#[must_use]
pub fn clusters_for_card(info: &NicInfo, receive_buffer_bytes: usize) -> usize {
    let frames = info.receive_slots / frame_descriptors(info) + receive_buffer_bytes.div_ceil(info.mtu_bytes);
    frames * frame_clusters(info)
}

impl<M: Machine> Card<M> {
    pub(super) fn new(
        m: &M,
        nic: Box<dyn Nic>,
        buffer_path: Path,
        arena: &mut StructArena,
    ) -> Result<Card<M>, ArenaFull> {
        let info = nic.info();
        let base = m.board().layout.kernel_base;
        let mut ring = |what, slots: usize| -> Result<Ring, ArenaFull> {
            let at = arena.array(what, slots, NIC_DESCRIPTOR_BYTES)?;
            Ok(Ring { at, slots, head: 0, tail: 0, used: 0 })
        };
        let transmit_ring = ring("descriptors for sending", info.transmit_slots)?;
        let receive_ring = ring("descriptors for receiving", info.receive_slots)?;
        let pa = |ring: &Ring| pageferry_hal::Pa((ring.at.0 - base) as u64);
        nic.set_rings(pa(&transmit_ring), pa(&receive_ring));
        Ok(Card {
            nic,
            info,
            transmit_ring,
            receive_ring,
            sending: LiteMap::new(),
            receiving: LiteMap::new(),
            next_tag: 0,
            works: true,
            buffer_path,
            machine: core::marker::PhantomData,
        })
    }

    pub(super) fn id(&self) -> DeviceId {
        self.nic.id()
    }

    pub(super) fn info(&self) -> &NicInfo {
        &self.info
    }

    /// It was not removed.
    pub(super) fn works(&self) -> bool {
        self.works
    }

    /// Chains and buffers that the card has.
    pub(super) fn under_way(&self) -> usize {
        self.sending.len() + self.receiving.len()
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Buffers for one frame.
    fn buffers(&self, pool: &Pool<M>) -> Option<Buffers> {
        let mut buffers = Buffers { header: None, data: Vec::with_capacity(frame_clusters(&self.info)) };
        for _ in 0..frame_clusters(&self.info) {
            match pool.cluster_for(None, PAGE_SIZE) {
                Ok(cluster) => buffers.data.push(cluster),
                Err(_) => {
                    buffers.free(pool);
                    return None;
                }
            }
        }
        if !self.info.header_split {
            buffers.data[0].advance(ETHER_ALIGN);
            return Some(buffers);
        }
        match pool.alloc(SMALL_BYTES) {
            Ok(header) => Some(Buffers { header: Some(header), ..buffers }),
            Err(_) => {
                buffers.free(pool);
                None
            }
        }
    }

    /// A short frame as a copy in a small mbuf. It takes little memory while it waits in a socket, and needs no other
    /// cluster: where those are short, acknowledgements still come through, and set some free.
    fn copied(pool: &Pool<M>, buffers: &Buffers, arrival: NicArrival) -> Option<Chain> {
        let header_bytes = arrival.header_bytes.min(buffers.header.as_ref().map_or(0, Mbuf::len));
        let len = header_bytes + arrival.data_bytes;
        if len == 0 || len > SMALL_BYTES {
            return None;
        }
        let small = pool.alloc(len).ok()?;
        let mut at = 0;
        let parts = buffers
            .header
            .iter()
            .map(|mbuf| (mbuf, header_bytes))
            .chain([(&buffers.data[0], arrival.data_bytes)]);
        for (mbuf, len) in parts.filter(|(_, len)| *len > 0) {
            let (from, to) = (pool.address(mbuf, 0..len), pool.address(&small, at..at + len));
            pool.machine().copy_kernel(to, from, len).expect("the kernel's own addresses are mapped");
            pool.machine().count(KernelCounter::BytesCopied, len as u64);
            at += len;
        }
        let mut chain = Chain::new();
        chain.push_back(small);
        Some(chain)
    }

    fn post(&mut self, m: &M, pool: &Pool<M>, buffers: Buffers) {
        m.execute(self.buffer_path);
        let tag = self.tag();
        let one = |mbuf: &Mbuf| pool.fragments_of(mbuf).pop().expect("it has bytes");
        let header = buffers.header.as_ref().map(one);
        let data: Vec<Fragment> = buffers.data.iter().map(one).collect();
        let slots = data.len() + usize::from(header.is_some());
        self.receive_ring.fill(m, slots);
        self.nic.post_receive(NicReceive { tag, header, data });
        self.receiving.insert(tag, buffers);
    }
}

impl<M: Machine> State<M> {
    /// The card, where the kernel drives it itself.
    fn card_mut(&mut self) -> Option<&mut Card<M>> {
        match &mut self.link {
            Some(Link::Card(card)) => Some(card),
            _ => None,
        }
    }

    fn card_ref(&self) -> Option<&Card<M>> {
        match &self.link {
            Some(Link::Card(card)) => Some(card),
            _ => None,
        }
    }
}

impl<M: Machine> Stack<'_, M> {
    /// Gives the card as many buffers as it has descriptors for, and there is memory for.
    pub(super) fn fill_card(&mut self) {
        let (m, pool) = (&self.kernel.machine, &self.kernel.mbufs);
        let Some(card) = self.s.card_mut().filter(|card| card.works) else { return };
        let needed = frame_descriptors(&card.info);
        let mut posted = 0;
        while card.receive_ring.free() >= needed {
            let Some(buffers) = card.buffers(pool) else { break };
            card.post(m, pool, buffers);
            posted += 1;
            if posted % DOORBELL_EVERY == 0 {
                card.nic.start_receive();
            }
        }
        if posted % DOORBELL_EVERY != 0 {
            card.nic.start_receive();
        }
    }

    /// Hands a frame to the card.
    pub(super) fn card_output(&mut self, mut frame: Chain, sum: SumBy) {
        self.m().execute(self.config().paths.driver_output);
        let fragments_of = |frame: &Chain| -> Vec<Fragment> {
            frame.iter().flat_map(|mbuf| self.pool().fragments_of(mbuf)).collect()
        };
        let mut fragments = fragments_of(&frame);
        if self.s.card_ref().is_some_and(|card| fragments.len() > card.info.transmit_fragments) {
            // In too many pieces, and it will be as often as it is sent again: it is copied into one (`m_defrag`).
            match self.in_one_piece(&frame) {
                Ok(copy) => core::mem::replace(&mut frame, copy).free(self.pool()),
                Err(_) => {
                    self.s.counts.no_room += 1;
                    return self.free(frame);
                }
            }
            fragments = fragments_of(&frame);
        }
        let short = |card: &Card<M>| card.transmit_ring.free() < fragments.len();
        if self.s.card_ref().is_some_and(short) {
            self.reap_sent();
        }
        let (m, pool) = (&self.kernel.machine, &self.kernel.mbufs);
        let card = self.s.card_mut().filter(|card| card.works && !short(card));
        let Some(card) = card.filter(|card| fragments.len() <= card.info.transmit_fragments) else {
            self.s.counts.no_room += 1;
            return frame.free(pool);
        };
        let checksum = sum.by_card();
        let tag = card.tag();
        let slots = fragments.len();
        card.transmit_ring.fill(m, slots);
        card.nic.post_transmit(NicTransmit { tag, fragments, checksum });
        let early =
            self.kernel.net.as_ref().is_some_and(|net| net.config.defect.is(NetDefect::FreedWhileSent));
        let (kept, freed) = if early { (Chain::new(), frame) } else { (frame, Chain::new()) };
        card.sending.insert(tag, (slots, kept));
        card.nic.start_transmit();
        freed.free(pool);
    }

    /// A copy of a frame, in clusters.
    fn in_one_piece(&self, frame: &Chain) -> Result<Chain, Errno> {
        let mut bytes = alloc::vec![0; frame.len()];
        if frame.load(self.pool(), 0, &mut bytes) < bytes.len() {
            return Err(Errno::NoMemory);
        }
        crate::net::chain::from_bytes(self.pool(), &bytes)
    }

    /// Behind an interrupt: frees what was sent, takes in what has arrived; true if there was anything.
    pub(super) fn reap_card(&mut self) -> bool {
        let Some(card) = self.s.card_mut() else { return false };
        let events = card.nic.acknowledge();
        let lost = events.removed && core::mem::replace(&mut card.works, false);
        self.m().execute(self.config().paths.driver_interrupt);
        let sent = self.reap_sent();
        let received = self.reap_received();
        if lost {
            self.lose_connections();
        }
        sent || received
    }

    /// The card was removed. Connections that went by it are over: one that only waits to receive would never find out.
    /// Nor would a thread that waits for datagrams that nothing can bring any more, or perhaps only loopback.
    pub(super) fn lose_connections(&mut self) {
        let address = self.config().address;
        for id in self.s.pcbs.ids() {
            let Some(pcb) = self.s.pcbs.get_mut(id) else { continue };
            let by_card = |ip: &Ipv4Addr| !ip.is_loopback() && *ip != address;
            match (pcb.protocol(), pcb.remote) {
                (Protocol::Tcp, Some(remote)) if by_card(remote.ip()) => {
                    self.drop_connection(id, Some(Errno::Removed));
                }
                (Protocol::Udp, remote)
                    if !pcb.local.ip().is_loopback() && remote.is_none_or(|r| by_card(r.ip())) =>
                {
                    pcb.error = Some(Errno::Removed);
                    let channel = pcb.channel();
                    self.wake(id, channel);
                }
                _ => {}
            }
        }
    }

    /// Frees what the card has sent.
    fn reap_sent(&mut self) -> bool {
        let mut any = false;
        loop {
            let m = &self.kernel.machine;
            let Some(card) = self.s.card_mut() else { return any };
            let Some(answer) = card.nic.take_transmitted() else { return any };
            let (slots, frame) =
                card.sending.remove(&answer.tag).expect("the card answers for what it was given");
            card.transmit_ring.look(m, slots);
            self.free(frame);
            any = true;
        }
    }

    /// Takes in the frames that have arrived.
    fn reap_received(&mut self) -> bool {
        let path = self.config().paths.driver_input;
        let mut any = false;
        loop {
            let (m, pool) = (&self.kernel.machine, &self.kernel.mbufs);
            let Some(card) = self.s.card_mut() else { return any };
            let Some(answer) = card.nic.take_received() else { break };
            any = true;
            m.execute(path);
            let buffers = card.receiving.remove(&answer.tag).expect("the card answers for what it was given");
            let slots = buffers.iter().count();
            card.receive_ring.look(m, slots);
            let Ok(arrival) = answer.result else {
                buffers.free(pool);
                continue;
            };
            if let Some(small) = Card::<M>::copied(pool, &buffers, arrival) {
                card.post(m, pool, buffers);
                self.frame_input(small, arrival.verdict);
                continue;
            }
            let repack = self.kernel.net.as_ref().and_then(|net| net.config.repack);
            if let Some(repack) = repack.filter(|_| buffers.header.is_none())
                && let Some(copy) = self.repacked(repack, &buffers.data, arrival.data_bytes)
            {
                let card = self.s.card_mut().expect("just seen");
                card.post(m, pool, buffers);
                self.frame_input(copy, arrival.verdict);
                continue;
            }
            let Some(card) = self.s.card_mut() else { return any };
            // Others take their place first: without those the frame is lost, and the card keeps what it has.
            let Some(fresh) = card.buffers(pool) else {
                card.post(m, pool, buffers);
                card.nic.start_receive();
                self.s.counts.no_room += 1;
                continue;
            };
            card.post(m, pool, fresh);
            let Buffers { header, data } = buffers;
            let mut frame = Chain::new();
            match header {
                Some(mut mbuf) if arrival.header_bytes > 0 => {
                    // The card's word is not taken for more than there is room for.
                    mbuf.truncate(arrival.header_bytes.min(mbuf.len()));
                    frame.push_back(mbuf);
                }
                other => other.into_iter().for_each(|mbuf| pool.free(mbuf)),
            }
            let mut left = arrival.data_bytes;
            for mut mbuf in data {
                let len = left.min(mbuf.len());
                left -= len;
                match len {
                    0 => pool.free(mbuf),
                    _ => {
                        mbuf.truncate(len);
                        frame.push_back(mbuf);
                    }
                }
            }
            self.frame_input(frame, arrival.verdict);
        }
        if any {
            if let Some(card) = self.s.card_mut().filter(|card| card.works) {
                card.nic.start_receive();
            }
            self.fill_card();
        }
        any
    }

    /// Takes in an Ethernet frame.
    pub(super) fn frame_input(&mut self, mut frame: Chain, verdict: pageferry_hal::NicVerdict) {
        self.m().execute(self.config().paths.ether_input);
        let mut header = [0; ETHERNET_HEADER_BYTES];
        if frame.load(self.pool(), 0, &mut header) < ETHERNET_HEADER_BYTES {
            self.s.counts.malformed += 1;
            return self.free(frame);
        }
        frame.drop_front(self.pool(), ETHERNET_HEADER_BYTES);
        match u16::from_be_bytes([header[12], header[13]]) {
            TYPE_IP => self.ip_input(frame, Some(verdict)),
            TYPE_ARP => self.arp_input(frame),
            _ => {
                self.s.counts.no_socket += 1;
                self.free(frame);
            }
        }
    }

    /// Stops the card, and takes back all that it has.
    pub(super) fn stop_card(&mut self) {
        let Some(card) = self.s.card_mut() else { return };
        card.works = false;
        card.nic.stop();
        self.reap_sent();
        if !self.has(NetDefect::BuffersLeftWithCard) {
            self.reap_received();
        }
    }
}
