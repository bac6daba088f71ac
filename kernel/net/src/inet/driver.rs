//! The driver of the network card (after `if_em.c`): what is done with [`Card`].
//!
//! # Locks
//! That of the way to the wire, over the rings and all that the card has. Frames that have arrived are taken in when it
//! is not held any more (`if_input` without `EM_LOCK`).
//!
//! # What can fail
//! A card that was removed sends and receives nothing more; all of its buffers come back. Connections by it are over.

use super::card::{Buffers, Card, DOORBELL_EVERY, frame_descriptors};
use super::link::Link;
use super::pcb::{Kind, Protocol};
use super::stack::{Ip, Stack};
use super::wire::{SumBy, TYPE_ARP, TYPE_IP};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_abi::Errno;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::{Chain, from_bytes};
use pageferry_hal::{
    ETHERNET_HEADER_BYTES, FlowStep, Fragment, Machine, NicArrival, NicRing, NicTransmit, NicVerdict, Place,
    SpinLock,
};

/// Frames that have arrived, each with what the card says of its sums.
type Arrived = Vec<(Chain, NicVerdict)>;

impl<M: Machine> Ip<'_, M> {
    /// Gives the card as many buffers as it has descriptors for, and there is memory for.
    pub(super) fn fill_card(&self) {
        if let Some(Link::Card(card)) = &mut *self.net.link.lock() {
            self.fill(card);
        }
    }

    fn fill(&self, card: &mut Card<M>) {
        if !self.net.has_wire() {
            return;
        }
        let (m, pool) = (self.m(), self.pool());
        let needed = frame_descriptors(&card.info);
        let mut posted = 0;
        while card.receive_ring.free() >= needed {
            let Some(buffers) = card.buffers(pool, &mut Vec::new()) else { break };
            card.post(m, pool, buffers);
            posted += 1;
            if posted % DOORBELL_EVERY == 0 {
                card.nic.start_receive(NicRing::Main);
            }
        }
        if posted % DOORBELL_EVERY != 0 {
            card.nic.start_receive(NicRing::Main);
        }
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
        let lost_before = self.net.tally.counts().no_room;
        let (arrived, received) = self.reap_received(card);
        drop(link);
        arrived.into_iter().for_each(|(frame, verdict)| self.frame_input(frame, verdict));
        if self.net.tally.counts().no_room > lost_before && self.net.may_drain() {
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
        let (m, pool) = (self.m(), self.pool());
        let (mut arrived, mut any) = (Arrived::new(), false);
        while let Some(answer) = card.nic.take_received(NicRing::Main) {
            any = true;
            m.execute(self.config().paths.driver_input);
            let buffers = card.receiving.remove(&answer.tag).expect("the card answers for what it was given");
            let slots = buffers.iter().count();
            card.receive_ring.look(m, slots);
            match answer.result {
                Ok(arrival) => {
                    if let Some(frame) = self.arrived(card, buffers, arrival) {
                        arrived.push((frame, arrival.verdict));
                    }
                }
                Err(_) => buffers.free(pool),
            }
        }
        if any && self.net.has_wire() {
            card.nic.start_receive(NicRing::Main);
            self.fill(card);
        }
        (arrived, any)
    }

    /// A frame that has arrived in its own buffers, or as a copy; the card has others in their place, or these again.
    fn arrived(&self, card: &mut Card<M>, mut buffers: Buffers, arrival: NicArrival) -> Option<Chain> {
        let (m, pool) = (self.m(), self.pool());
        if let Some(small) = Card::<M>::copied(pool, &buffers, arrival) {
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
        let Some(fresh) = card.buffers(pool, &mut unused) else {
            buffers.data.append(&mut unused);
            card.post(m, pool, buffers);
            card.nic.start_receive(NicRing::Main);
            self.net.tally.no_room.add(1);
            return None;
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
        Some(frame)
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

impl<M: Machine> Stack<'_, M> {
    /// A frame found no memory (`tcp_drain`). What connections have that came out of order is given up: it is sent
    /// again, and what is missing before it may be just what has found none. And readers that wait for more to come are
    /// not to wait for ever.
    fn drain(&mut self) {
        for id in self.s.pcbs.ids() {
            let Some(Kind::Tcp(tcb)) = self.s.pcbs.get(id).map(|pcb| &pcb.kind) else { continue };
            let buffers = tcb.buffers();
            self.drop_early(id);
            buffers.into_iter().for_each(|buffers| buffers.receive.press(self.ip.threads));
        }
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
}
