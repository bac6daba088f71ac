//! The address resolution protocol: from an IP address of a neighbour to that of its station (4.4BSD, `if_ether.c`).
//!
//! An entry is asked for when a packet needs it. Until the answer comes the entry keeps the last few packets, and the
//! question is asked again every second, five times; then the packets are dropped. An answer is believed for twenty
//! minutes. Only answers to questions, and questions to this host, are learnt from.

use super::alarm::Part;
use super::neighbours::{Entry, Station, Table};
use super::stack::Ip;
use super::wire::{SumBy, TYPE_ARP, TYPE_IP, ethernet};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use etherparse::{ArpEthIpv4Packet, ArpOperation, ArpPacketSlice};
use pageferry_core::defect::NetDefect;
use pageferry_core::mbuf::{Chain, from_bytes};
use pageferry_hal::{Cycles, MacAddress, Machine, SpinLock};

/// Packets that wait for one address.
const MAX_WAITING: usize = 8;
/// How often it is asked, and how long between, in milliseconds.
const TRIES: u32 = 5;
const RETRY_MS: u64 = 1000;
/// How long an answer is believed.
const BELIEVED_MS: u64 = 20 * 60 * 1000;
/// Bytes of an ARP packet for Ethernet and IPv4.
const ARP_BYTES: usize = 28;

/// What is to be done with a packet for a neighbour.
enum Resolved {
    Send(MacAddress, (Chain, SumBy)),
    Ask,
    Drop(Chain),
    Waits,
}

impl<M: Machine> Ip<'_, M> {
    /// Works on the table. Nothing is sent meanwhile.
    pub(super) fn with_arp<R>(&self, work: impl FnOnce(&mut Table) -> R) -> R {
        let mut held = self.net.arp.lock();
        let result = work(&mut held);
        let first = held.first_deadline();
        self.net.set_alarm(&mut held.alarm, Part::Arp, first);
        result
    }

    /// Sends a packet to a neighbour's station, as soon as that is known.
    pub(super) fn resolve_and_send(&self, neighbour: Ipv4Addr, packet: Chain, sum: SumBy) {
        let (now, next) = (self.now(), self.now() + self.cycles(RETRY_MS));
        let resolved = self.with_arp(|table| match table.entries.get_mut(&neighbour) {
            Some(Entry::Known(station)) if station.is_believed(now) => {
                Resolved::Send(station.address, (packet, sum))
            }
            _ if self.is_ending() => Resolved::Drop(packet),
            Some(Entry::Asked { waiting, .. }) => {
                waiting.push_back((packet, sum));
                let surplus = (waiting.len() > MAX_WAITING).then(|| waiting.pop_front()).flatten();
                surplus.map_or(Resolved::Waits, |(oldest, _)| Resolved::Drop(oldest))
            }
            _ => {
                table.entries.remove(&neighbour);
                if !table.make_room() {
                    return Resolved::Drop(packet);
                }
                let waiting = VecDeque::from([(packet, sum)]);
                table.entries.insert(neighbour, Entry::Asked { tries: 1, next, waiting });
                Resolved::Ask
            }
        });
        match resolved {
            Resolved::Send(station, (packet, sum)) => self.send_frame(station, TYPE_IP, packet, sum),
            Resolved::Ask => self.ask(neighbour),
            Resolved::Drop(packet) => {
                self.net.tally.no_room.add(1);
                self.free(packet);
            }
            Resolved::Waits => {}
        }
    }

    /// Asks all stations for the address of one.
    fn ask(&self, neighbour: Ipv4Addr) {
        self.send_arp(MacAddress::BROADCAST, ArpOperation::REQUEST, MacAddress::default(), neighbour);
    }

    fn send_arp(&self, to: MacAddress, operation: ArpOperation, target: MacAddress, address: Ipv4Addr) {
        let Some(own) = self.net.card.map(|card| card.mac) else { return };
        let arp = ArpEthIpv4Packet {
            operation,
            sender_mac: own.0,
            sender_ipv4: self.config().address.octets(),
            target_mac: target.0,
            target_ipv4: address.octets(),
        };
        match from_bytes(self.pool(), &arp.to_bytes()) {
            Ok(chain) => self.send_frame(to, TYPE_ARP, chain, SumBy::Nothing),
            Err(_) => self.net.tally.no_room.add(1),
        }
    }

    /// Puts an Ethernet header in front, and hands the frame to the driver.
    fn send_frame(&self, to: MacAddress, kind: u16, mut packet: Chain, sum: SumBy) {
        let Some(own) = self.net.card.map(|card| card.mac) else { return self.free(packet) };
        self.m().execute(self.config().paths.ether_output);
        match packet.prepend(self.pool(), &ethernet(to, own, kind)) {
            Ok(()) => self.link_output(packet, sum),
            Err(_) => {
                self.net.tally.no_room.add(1);
                self.free(packet);
            }
        }
    }

    /// Takes in an ARP packet, without its Ethernet header.
    pub(super) fn arp_input(&self, packet: Chain) {
        let mut bytes = [0; ARP_BYTES];
        let len = packet.load(self.pool(), 0, &mut bytes);
        self.free(packet);
        let parsed = ArpPacketSlice::from_slice(&bytes[..len]).ok().map(|slice| slice.to_packet());
        let Some(arp) = parsed.and_then(|packet| packet.try_eth_ipv4().ok()) else {
            self.net.tally.malformed.add(1);
            return;
        };
        let (sender, station) = (Ipv4Addr::from(arp.sender_ipv4), MacAddress(arp.sender_mac));
        let own = self.config().address;
        let for_us = Ipv4Addr::from(arp.target_ipv4) == own && sender != own && !sender.is_unspecified();
        let (now, until) = (self.now(), self.now() + self.cycles(BELIEVED_MS));
        let waited = self.with_arp(|table| {
            let believed = match (arp.operation, table.entries.get(&sender)) {
                (ArpOperation::REQUEST, before) => before.is_some() || table.make_room(),
                (ArpOperation::REPLY, Some(Entry::Asked { .. })) => true,
                (ArpOperation::REPLY, Some(Entry::Known(before))) => {
                    !before.is_believed(now) || self.has(NetDefect::AnswerUnasked)
                }
                _ => false,
            };
            // A group is no station.
            if !for_us || !believed || station.0[0] & 1 != 0 {
                return VecDeque::new();
            }
            match table.entries.insert(sender, Entry::Known(Station { address: station, until })) {
                Some(Entry::Asked { waiting, .. }) => waiting,
                _ => VecDeque::new(),
            }
        });
        waited.into_iter().for_each(|(packet, sum)| self.send_frame(station, TYPE_IP, packet, sum));
        if for_us && arp.operation == ArpOperation::REQUEST {
            self.send_arp(station, ArpOperation::REPLY, station, sender);
        }
    }

    /// Nothing is heard of what is sent to a neighbour: it may have another station by now (4.4BSD, `in_losing`).
    pub(super) fn doubt(&self, neighbour: Ipv4Addr) {
        self.with_arp(|table| {
            if let Some(Entry::Known(_)) = table.entries.get(&neighbour) {
                table.entries.remove(&neighbour);
            }
        });
    }

    /// Asks again what was not answered, and gives up in the end; callout `number` has come.
    pub(super) fn arp_timers(&self, number: u64, now: Cycles) {
        let again = now + self.cycles(RETRY_MS);
        let (mut asked, mut dropped) = (Vec::new(), Vec::new());
        self.with_arp(|table| {
            table.alarm.came(number);
            let due = |e: &Entry| matches!(e, Entry::Asked { next, .. } if *next <= now);
            let due: Vec<Ipv4Addr> =
                table.entries.iter().filter(|(_, e)| due(e)).map(|(address, _)| *address).collect();
            for neighbour in due {
                match table.entries.get_mut(&neighbour) {
                    Some(Entry::Asked { tries, next, .. }) if *tries < TRIES => {
                        (*tries, *next) = (*tries + 1, again);
                        asked.push(neighbour);
                    }
                    _ => {
                        if let Some(Entry::Asked { waiting, .. }) = table.entries.remove(&neighbour) {
                            dropped.extend(waiting);
                        }
                    }
                }
            }
        });
        asked.into_iter().for_each(|neighbour| self.ask(neighbour));
        self.net.tally.no_room.add(dropped.len() as u64);
        dropped.into_iter().for_each(|(packet, _)| self.free(packet));
    }
}
