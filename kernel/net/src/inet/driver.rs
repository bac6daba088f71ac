//! The driver of the network card (after `if_em.c`): what is done with [`Card`].
//!
//! # Locks
//! That of the way to the wire, over the rings and all that the card has. Frames that have arrived are taken in when it
//! is not held any more (`if_input` without `EM_LOCK`).
//!
//! # What can fail
//! A card that was removed sends and receives nothing more; all of its buffers come back. Connections by it are over.

use super::card::{Buffers, Card, DOORBELL_EVERY, Flow, frame_descriptors};
use super::id::PcbId;
use super::iface::Route;
use super::link::Link;
use super::pcb::{Entry, Kind, Protocol};
use super::stack::{Ip, Net, Stack};
use super::wire::{SumBy, TYPE_ARP, TYPE_IP};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_abi::Errno;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::{AreaId, Chain, from_bytes};
use pageferry_hal::{
    Cause, ETHERNET_HEADER_BYTES, FlowStep, Fragment, Machine, NicArrival, NicFlow, NicRing, NicTransmit,
    NicVerdict, Place, SpinLock, Threads,
};

/// Frames that have arrived, each with what the card says of its sums.
type Arrived = Vec<(Chain, NicVerdict)>;

impl<M: Machine> Ip<'_, M> {
    /// Gives the card as many buffers as it has descriptors for, and there is memory for.
    pub(super) fn fill_card(&self) {
        if let Some(Link::Card(card)) = &mut *self.net.link.lock() {
            self.fill(card, NicRing::Main);
        }
    }

    /// Posts as many buffers to a ring as it has room and there is memory for; true if there was any.
    fn fill(&self, card: &mut Card<M>, ring: NicRing) -> bool {
        if !self.net.has_wire() {
            return false;
        }
        let (m, pool) = (self.m(), self.pool());
        let needed = frame_descriptors(&card.info);
        let mut posted = 0;
        while card.ring(ring).free() >= needed {
            let Some(buffers) = card.buffers(ring, pool, &mut Vec::new()) else { break };
            card.post(m, pool, buffers);
            posted += 1;
            if posted % DOORBELL_EVERY == 0 {
                card.nic.start_receive(ring);
            }
        }
        if posted % DOORBELL_EVERY != 0 {
            card.nic.start_receive(ring);
        }
        posted > 0
    }

    /// Hands a frame to the card; gives it back if there is no room.
    pub(super) fn card_output(&self, card: &mut Card<M>, mut frame: Chain, sum: SumBy) -> Option<Chain> {
        self.m().execute(self.config().paths.driver_output);
        let fragments_of = |frame: &Chain| -> Vec<Fragment> {
            frame.iter().flat_map(|mbuf| self.pool().fragments_of(mbuf)).collect()
        };
        let mut fragments = fragments_of(&frame);
        if fragments.len() > card.info.transmit_fragments {
            // In too many pieces, and it will be as often as it is sent again: it is copied into one (`m_defrag`).
            match self.in_one_piece(&frame) {
                Ok(copy) => core::mem::replace(&mut frame, copy).free(self.pool()),
                Err(_) => return Some(frame),
            }
            fragments = fragments_of(&frame);
        }
        if card.transmit_ring.free() < fragments.len() {
            self.reap_sent(card);
        }
        if card.transmit_ring.free() < fragments.len() || fragments.len() > card.info.transmit_fragments {
            return Some(frame);
        }
        let (m, pool) = (self.m(), self.pool());
        let checksum = sum.by_card();
        let tag = card.tag();
        let slots = fragments.len();
        card.transmit_ring.fill(m, slots);
        frame.iter().for_each(|mbuf| pool.trace(mbuf, mbuf.len(), Place::Device, FlowStep::Received));
        card.nic.write_back(&fragments);
        card.nic.post_transmit(NicTransmit { tag, fragments, checksum });
        let early = self.has(NetDefect::FreedWhileSent);
        let (kept, freed) = if early { (Chain::new(), frame) } else { (frame, Chain::new()) };
        card.sending.insert(tag, (slots, kept));
        card.nic.start_transmit();
        freed.free(pool);
        None
    }

    /// A copy of a frame, in clusters.
    fn in_one_piece(&self, frame: &Chain) -> Result<Chain, Errno> {
        let mut bytes = alloc::vec![0; frame.len()];
        if frame.load(self.pool(), 0, &mut bytes) < bytes.len() {
            return Err(Errno::NoMemory);
        }
        from_bytes(self.pool(), &bytes)
    }

    /// Behind an interrupt: frees what was sent, takes in what has arrived; true if there was anything.
    pub(super) fn reap_card(&self) -> bool {
        let mut link = self.net.link.lock();
        let Some(Link::Card(card)) = &mut *link else { return false };
        let events = card.nic.acknowledge();
        let lost = events.removed && self.net.has_wire.swap(false, Relaxed);
        self.m().execute(self.config().paths.driver_interrupt);
        let sent = self.reap_sent(card);
        let (arrived, received) = self.reap_received(card);
        drop(link);
        arrived.into_iter().for_each(|(frame, verdict)| self.frame_input(frame, verdict));
        if self.net.is_short.swap(false, Relaxed) && self.net.may_drain() {
            self.net.with(self.threads, |stack| stack.drain());
        }
        if lost {
            self.net.with(self.threads, |stack| stack.lose_connections());
        }
        sent || received
    }

    /// Frees what the card has sent.
    fn reap_sent(&self, card: &mut Card<M>) -> bool {
        let mut any = false;
        while let Some(answer) = card.nic.take_transmitted() {
            let (slots, frame) =
                card.sending.remove(&answer.tag).expect("the card answers for what it was given");
            card.transmit_ring.look(self.m(), slots);
            self.free(frame);
            any = true;
        }
        any
    }

    /// Takes the frames that have arrived from the card, and gives it other buffers; true if there was anything.
    fn reap_received(&self, card: &mut Card<M>) -> (Arrived, bool) {
        let mut arrived = Arrived::new();
        let mut any = false;
        for ring in card.rings() {
            if self.reap_ring(card, ring, &mut arrived) {
                any = true;
                if self.net.has_wire() {
                    card.nic.start_receive(ring);
                    self.fill(card, ring);
                }
            }
        }
        (arrived, any)
    }

    /// The same for one ring, without other buffers.
    fn reap_ring(&self, card: &mut Card<M>, ring: NicRing, arrived: &mut Arrived) -> bool {
        let (m, pool) = (self.m(), self.pool());
        let mut any = false;
        while let Some(answer) = card.nic.take_received(ring) {
            any = true;
            m.execute(self.config().paths.driver_input);
            let buffers = card.receiving.remove(&answer.tag).expect("the card answers for what it was given");
            let slots = buffers.iter().count();
            card.ring(ring).look(m, slots);
            match answer.result {
                Ok(arrival) => {
                    if let Some(frame) = self.arrived(card, buffers, arrival) {
                        arrived.push((frame, arrival.verdict));
                    }
                }
                Err(_) => buffers.free(pool),
            }
        }
        any
    }

    /// A frame that has arrived in its own buffers, or as a copy; the card has others in their place, or these again.
    fn arrived(&self, card: &mut Card<M>, mut buffers: Buffers, arrival: NicArrival) -> Option<Chain> {
        let (m, pool) = (self.m(), self.pool());
        if buffers.ring == NicRing::Flow && arrival.header_bytes == 0 {
            // Headers are in memory that a process can write: nothing is believed that stands there.
            self.net.tally.malformed.add(1);
            card.post(m, pool, buffers);
            return None;
        }
        // What is short and belongs into a receive area stays there.
        let may_copy = buffers.ring == NicRing::Main || arrival.data_bytes == 0;
        let small = if may_copy { Card::<M>::copied(pool, &buffers, arrival) } else { None };
        if let Some(small) = small {
            card.post(m, pool, buffers);
            return Some(small);
        }
        let repack = self.config().repack.filter(|_| buffers.header.is_none());
        if let Some(copy) = repack.and_then(|repack| self.repacked(repack, &buffers.data, arrival.data_bytes))
        {
            card.post(m, pool, buffers);
            return Some(copy);
        }
        // Others take their place first: without those the frame is lost, and the card keeps what it has.
        let mut unused = card.unused(&mut buffers, arrival.data_bytes);
        let ring = buffers.ring;
        let Some(fresh) = card.buffers(ring, pool, &mut unused) else {
            buffers.data.append(&mut unused);
            card.post(m, pool, buffers);
            card.nic.start_receive(ring);
            self.net.found_no_memory();
            return None;
        };
        card.post(m, pool, fresh);
        Some(self.frame_of(buffers, arrival))
    }

    /// A frame in the buffers that it has arrived in; what it leaves unused is freed.
    fn frame_of(&self, Buffers { header, data, .. }: Buffers, arrival: NicArrival) -> Chain {
        let pool = self.pool();
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
        frame
    }

    /// Takes in an Ethernet frame.
    pub(super) fn frame_input(&self, mut frame: Chain, verdict: pageferry_hal::NicVerdict) {
        self.m().execute(self.config().paths.ether_input);
        frame.iter().for_each(|mbuf| self.pool().trace(mbuf, mbuf.len(), Place::Device, FlowStep::Sent));
        let mut header = [0; ETHERNET_HEADER_BYTES];
        if frame.load(self.pool(), 0, &mut header) < ETHERNET_HEADER_BYTES {
            self.net.tally.malformed.add(1);
            return self.free(frame);
        }
        frame.drop_front(self.pool(), ETHERNET_HEADER_BYTES);
        match u16::from_be_bytes([header[12], header[13]]) {
            TYPE_IP => self.ip_input(frame, Some(verdict)),
            TYPE_ARP => self.arp_input(frame),
            _ => {
                self.net.tally.no_socket.add(1);
                self.free(frame);
            }
        }
    }

    /// Stops the card, and takes back all that it has; what had arrived is the caller's.
    pub(super) fn stop_card(&self, card: &mut Card<M>) -> Arrived {
        card.nic.stop();
        self.reap_sent(card);
        match self.has(NetDefect::BuffersLeftWithCard) {
            true => Arrived::new(),
            false => self.reap_received(card).0,
        }
    }
}

impl<M: Machine> Net<M> {
    /// Has the card put what arrives for a connection into a receive area. False when it cannot: it has no flow ring,
    /// or that is another's, or the connection goes elsewhere, or is over.
    pub(super) fn begin_flow(&self, threads: &dyn Threads, id: PcbId, area: AreaId) -> bool {
        let _c = self.core.machine.scope(Cause::Protocol);
        let Ok((local, Some(remote))) = self.names(id) else { return false };
        let ip = self.ip(threads);
        let by_card = matches!(ip.route(*remote.ip()), Ok(Route::Card(_)));
        let mut link = self.link.lock();
        let Some(Link::Card(card)) = &mut *link else { return false };
        if !by_card || card.flow_ring.is_none() || !card.info.header_split || card.flow.is_some() {
            return false;
        }
        card.flow = Some(Flow { id, area, pages: Vec::new() });
        card.nic.steer(Some(NicFlow { remote, local }));
        let begun = ip.fill(card, NicRing::Flow);
        if !begun {
            card.nic.steer(None);
            card.end_flow(ip.pool());
        }
        self.has_flow.store(begun, Relaxed);
        begun
    }

    /// The card puts nothing more into the receive area of a connection, if it has done so.
    pub(super) fn end_flow(&self, threads: &dyn Threads, id: PcbId) {
        if !self.has_flow.load(Relaxed) {
            return;
        }
        let _c = self.core.machine.scope(Cause::Protocol);
        let ip = self.ip(threads);
        let mut arrived = Arrived::new();
        {
            let mut link = self.link.lock();
            let Some(Link::Card(card)) = &mut *link else { return };
            if card.flow.as_ref().is_none_or(|flow| flow.id != id) || ip.has(NetDefect::FlowNotEnded) {
                return;
            }
            card.nic.steer(None);
            while let Some(answer) = card.nic.take_received(NicRing::Flow) {
                let buffers =
                    card.receiving.remove(&answer.tag).expect("the card answers for what it was given");
                card.ring(NicRing::Flow).look(ip.m(), buffers.iter().count());
                match answer.result {
                    Ok(arrival) if arrival.header_bytes > 0 => {
                        arrived.push((ip.frame_of(buffers, arrival), arrival.verdict));
                    }
                    _ => buffers.free(ip.pool()),
                }
            }
            card.end_flow(ip.pool());
            self.has_flow.store(false, Relaxed);
        }
        arrived.into_iter().for_each(|(frame, verdict)| ip.frame_input(frame, verdict));
    }
}

impl<M: Machine> Stack<'_, M> {
    /// A frame found no memory (`tcp_drain`). What connections have that came out of order is given up: it is sent
    /// again, and what is missing before it may be just what has found none. And readers that wait for more to come are
    /// not to wait for ever.
    fn drain(&mut self) {
        for id in self.table().pcbs.ids() {
            self.on(id, |conn| {
                let Kind::Tcp(tcb) = &conn.pcb.kind else { return };
                let buffers = tcb.buffers();
                conn.drop_early();
                buffers.into_iter().for_each(|buffers| buffers.receive.press(conn.threads));
            });
        }
    }

    /// The card was removed. Connections that went by it are over: one that only waits to receive would never find out.
    /// Nor would a thread that waits for datagrams that nothing can bring any more, or perhaps only loopback.
    pub(super) fn lose_connections(&mut self) {
        let address = self.config().address;
        let by_card = |ip: &Ipv4Addr| !ip.is_loopback() && *ip != address;
        for id in self.table().pcbs.ids() {
            let Some(&Entry { protocol, local, remote, .. }) = self.table().pcbs.get(id) else { continue };
            match (protocol, remote) {
                (Protocol::Tcp, Some(remote)) if by_card(remote.ip()) => {
                    self.on(id, |conn| conn.drop_connection(Some(Errno::Removed)));
                }
                (Protocol::Udp, remote)
                    if !local.ip().is_loopback() && remote.is_none_or(|r| by_card(r.ip())) =>
                {
                    self.on(id, |conn| {
                        conn.pcb.error = Some(Errno::Removed);
                        conn.wake(id, conn.pcb.channel());
                    });
                }
                _ => {}
            }
        }
    }
}
