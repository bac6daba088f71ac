//! The address resolution protocol: from an IP address of a neighbour to that of its station (4.4BSD, `if_ether.c`).
//!
//! An entry is asked for when a packet needs it. Until the answer comes the entry keeps the last few packets, and the
//! question is asked again every second, five times; then the packets are dropped. An answer is believed for twenty
//! minutes. Only answers to questions, and questions to this host, are learnt from.

use super::neighbours::Entry;
use super::stack::Stack;
use super::wire::{SumBy, TYPE_ARP, TYPE_IP, ethernet};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use etherparse::{ArpEthIpv4Packet, ArpOperation, ArpPacketSlice};
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::{Chain, from_bytes};
use pageferry_hal::{Cycles, MacAddress, Machine};

/// Packets that wait for one address.
const MAX_WAITING: usize = 8;
/// How often it is asked, and how long between, in milliseconds.
const TRIES: u32 = 5;
const RETRY_MS: u64 = 1000;
/// How long an answer is believed.
const BELIEVED_MS: u64 = 20 * 60 * 1000;
/// Bytes of an ARP packet for Ethernet and IPv4.
const ARP_BYTES: usize = 28;

impl<M: Machine> Stack<'_, M> {
    /// Sends a packet to a neighbour's station, as soon as that is known.
    pub(super) fn resolve_and_send(&mut self, neighbour: Ipv4Addr, packet: Chain, sum: SumBy) {
        let now = self.now();
        match self.s.arp.entries.get_mut(&neighbour) {
            Some(Entry::Known { station, until }) if *until > now => {
                let station = *station;
                self.send_frame(station, TYPE_IP, packet, sum);
            }
            Some(Entry::Asked { waiting, .. }) => {
                waiting.push_back((packet, sum));
                let surplus = (waiting.len() > MAX_WAITING).then(|| waiting.pop_front()).flatten();
                if let Some((oldest, _)) = surplus {
                    self.s.counts.no_room += 1;
                    self.free(oldest);
                }
            }
            _ => {
                self.s.arp.entries.remove(&neighbour);
                if !self.s.arp.make_room() {
                    self.s.counts.no_room += 1;
                    return self.free(packet);
                }
                let next = now + self.cycles(RETRY_MS);
                let waiting = VecDeque::from([(packet, sum)]);
                self.s.arp.entries.insert(neighbour, Entry::Asked { tries: 1, next, waiting });
                self.ask(neighbour);
            }
        }
    }

    /// Asks all stations for the address of one.
    fn ask(&mut self, neighbour: Ipv4Addr) {
        self.send_arp(MacAddress::BROADCAST, ArpOperation::REQUEST, MacAddress::default(), neighbour);
    }

    fn send_arp(&mut self, to: MacAddress, operation: ArpOperation, target: MacAddress, address: Ipv4Addr) {
        let Some(own) = self.s.link.as_ref().map(|link| link.info().mac) else { return };
        let arp = ArpEthIpv4Packet {
            operation,
            sender_mac: own.0,
            sender_ipv4: self.config().address.octets(),
            target_mac: target.0,
            target_ipv4: address.octets(),
        };
        match from_bytes(self.pool(), &arp.to_bytes()) {
            Ok(chain) => self.send_frame(to, TYPE_ARP, chain, SumBy::Nothing),
            Err(_) => self.s.counts.no_room += 1,
        }
    }

    /// Puts an Ethernet header in front, and hands the frame to the driver.
    fn send_frame(&mut self, to: MacAddress, kind: u16, mut packet: Chain, sum: SumBy) {
        let Some(own) = self.s.link.as_ref().map(|link| link.info().mac) else { return self.free(packet) };
        self.m().execute(self.config().paths.ether_output);
        match packet.prepend(self.pool(), &ethernet(to, own, kind)) {
            Ok(()) => self.link_output(packet, sum),
            Err(_) => {
                self.s.counts.no_room += 1;
                self.free(packet);
            }
        }
    }

    /// Takes in an ARP packet, without its Ethernet header.
    pub(super) fn arp_input(&mut self, packet: Chain) {
        let mut bytes = [0; ARP_BYTES];
        let len = packet.load(self.pool(), 0, &mut bytes);
        self.free(packet);
        let parsed = ArpPacketSlice::from_slice(&bytes[..len]).ok().map(|slice| slice.to_packet());
        let Some(arp) = parsed.and_then(|packet| packet.try_eth_ipv4().ok()) else {
            self.s.counts.malformed += 1;
            return;
        };
        let (sender, station) = (Ipv4Addr::from(arp.sender_ipv4), MacAddress(arp.sender_mac));
        let own = self.config().address;
        let for_us = Ipv4Addr::from(arp.target_ipv4) == own && sender != own && !sender.is_unspecified();
        let (before, now) = (self.s.arp.entries.get(&sender), self.now());
        let believed = match (arp.operation, before) {
            (ArpOperation::REQUEST, before) => before.is_some() || self.s.arp.make_room(),
            (ArpOperation::REPLY, Some(Entry::Asked { .. })) => true,
            (ArpOperation::REPLY, Some(Entry::Known { until, .. })) => {
                *until <= now || self.has(NetDefect::AnswerUnasked)
            }
            _ => false,
        };
        // A group is no station.
        if for_us && believed && station.0[0] & 1 == 0 {
            self.learn(sender, station);
        }
        if for_us && arp.operation == ArpOperation::REQUEST {
            self.send_arp(station, ArpOperation::REPLY, station, sender);
        }
    }

    /// Notes where a neighbour is, and sends what waited for that.
    fn learn(&mut self, neighbour: Ipv4Addr, station: MacAddress) {
        let until = self.now() + self.cycles(BELIEVED_MS);
        let before = self.s.arp.entries.insert(neighbour, Entry::Known { station, until });
        if let Some(Entry::Asked { waiting, .. }) = before {
            waiting.into_iter().for_each(|(packet, sum)| self.send_frame(station, TYPE_IP, packet, sum));
        }
    }

    /// Nothing is heard of what is sent to a neighbour: it may have another station by now (4.4BSD, `in_losing`).
    pub(super) fn doubt(&mut self, neighbour: Ipv4Addr) {
        if let Some(Entry::Known { .. }) = self.s.arp.entries.get(&neighbour) {
            self.s.arp.entries.remove(&neighbour);
        }
    }

    /// Asks again what was not answered, and gives up in the end.
    pub(super) fn arp_timers(&mut self, now: Cycles) {
        let due = |e: &Entry| matches!(e, Entry::Asked { next, .. } if *next <= now);
        let due: Vec<Ipv4Addr> =
            self.s.arp.entries.iter().filter(|(_, e)| due(e)).map(|(address, _)| *address).collect();
        for neighbour in due {
            let again = now + self.cycles(RETRY_MS);
            let Some(Entry::Asked { tries, next, .. }) = self.s.arp.entries.get_mut(&neighbour) else {
                continue;
            };
            if *tries < TRIES {
                (*tries, *next) = (*tries + 1, again);
                self.ask(neighbour);
            } else if let Some(Entry::Asked { waiting, .. }) = self.s.arp.entries.remove(&neighbour) {
                self.s.counts.no_room += waiting.len() as u64;
                waiting.into_iter().for_each(|(packet, _)| self.free(packet));
            }
        }
    }
}
