//! The driver of the network card (after `if_em.c`): what is done with [`Card`].
//!
//! # Locks
//! The network's lock is held.
//!
//! # What can fail
//! A card that was removed sends and receives nothing more; all of its buffers come back. Connections by it are over.

use super::card::{Buffers, Card, DOORBELL_EVERY, frame_descriptors};
use super::link::Link;
use super::pcb::Protocol;
use super::stack::{Stack, State};
use super::wire::{SumBy, TYPE_ARP, TYPE_IP};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use pageferry_abi::Errno;
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::{Chain, from_bytes};
use pageferry_hal::{ETHERNET_HEADER_BYTES, FlowStep, Fragment, Machine, NicTransmit, Place};

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
        let (m, pool) = (&self.net.core.machine, &self.net.core.mbufs);
        let Some(card) = self.s.card_mut().filter(|card| card.works) else { return };
        let needed = frame_descriptors(&card.info);
        let mut posted = 0;
        while card.receive_ring.free() >= needed {
            let Some(buffers) = card.buffers(pool, &mut Vec::new()) else { break };
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
        let early = self.has(NetDefect::FreedWhileSent);
        let (m, pool) = (&self.net.core.machine, &self.net.core.mbufs);
        let card = self.s.card_mut().filter(|card| card.works && !short(card));
        let Some(card) = card.filter(|card| fragments.len() <= card.info.transmit_fragments) else {
            self.s.counts.no_room += 1;
            return frame.free(pool);
        };
        let checksum = sum.by_card();
        let tag = card.tag();
        let slots = fragments.len();
        card.transmit_ring.fill(m, slots);
        frame.iter().for_each(|mbuf| pool.trace(mbuf, mbuf.len(), Place::Device, FlowStep::Received));
        card.nic.post_transmit(NicTransmit { tag, fragments, checksum });
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
        from_bytes(self.pool(), &bytes)
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
            let m = &self.net.core.machine;
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
            let (m, pool) = (&self.net.core.machine, &self.net.core.mbufs);
            let Some(card) = self.s.card_mut() else { return any };
            let Some(answer) = card.nic.take_received() else { break };
            any = true;
            m.execute(path);
            let mut buffers =
                card.receiving.remove(&answer.tag).expect("the card answers for what it was given");
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
            let repack = self.config().repack;
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
            let mut unused = card.unused(&mut buffers, arrival.data_bytes);
            let Some(fresh) = card.buffers(pool, &mut unused) else {
                buffers.data.append(&mut unused);
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
        frame.iter().for_each(|mbuf| self.pool().trace(mbuf, mbuf.len(), Place::Device, FlowStep::Sent));
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
