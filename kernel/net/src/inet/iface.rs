//! Where packets go: loopback, or the card.
//!
//! A host has two interfaces: loopback, with an MTU of its own, for its own addresses; and a card, with one address, a
//! prefix of neighbours, and perhaps a gateway for all others. A packet on loopback keeps its mbufs: the receiver gets
//! them as they were sent. The soft interrupt takes it in, as it does those of the card (4.4BSD, `looutput`, `netisr`).

use super::stack::{Ip, Net};
use super::wire::SumBy;
use core::net::Ipv4Addr;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_abi::Errno;
use pageferry_core::counter::KernelCounter;
use pageferry_core::mbuf::Chain;
use pageferry_core::sched::SoftInt;
use pageferry_hal::{Machine, SpinLock};

/// The way to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// To this host itself.
    Loopback,
    /// By the card, to this neighbour.
    Card(Ipv4Addr),
}

impl<M: Machine> Ip<'_, M> {
    /// The way to `destination`.
    ///
    /// # Errors
    /// [`Errno::NetUnreachable`].
    pub(super) fn route(&self, destination: Ipv4Addr) -> Result<Route, Errno> {
        let config = self.config();
        if destination.is_loopback() || destination == config.address {
            return Ok(Route::Loopback);
        }
        if !self.net.has_wire() {
            return Err(Errno::NetUnreachable);
        }
        let mask = u32::MAX.checked_shl(32 - u32::from(config.prefix_bits)).unwrap_or(0);
        if (u32::from(destination) ^ u32::from(config.address)) & mask == 0 {
            return Ok(Route::Card(destination));
        }
        config.gateway.map(Route::Card).ok_or(Errno::NetUnreachable)
    }

    /// The address that packets to `destination` come from.
    ///
    /// # Errors
    /// [`Errno::NetUnreachable`].
    pub(super) fn source_for(&self, destination: Ipv4Addr) -> Result<Ipv4Addr, Errno> {
        Ok(match self.route(destination)? {
            Route::Loopback if destination.is_loopback() => destination,
            _ => self.config().address,
        })
    }

    /// True for addresses of this host.
    pub(super) fn is_own(&self, address: Ipv4Addr) -> bool {
        address.is_loopback() || address == self.config().address
    }

    /// The most bytes of an IP packet on this way.
    pub(super) fn mtu(&self, route: Route) -> usize {
        match route {
            Route::Loopback => self.config().loopback_mtu_bytes,
            Route::Card(_) => self.net.card.map_or(576, |card| card.mtu_bytes),
        }
    }

    /// True when the card computes the sums of what goes this way.
    pub(super) fn sums_by_card(&self, route: Route) -> bool {
        matches!(route, Route::Card(_))
            && self.config().checksum_offload
            && self.net.card.is_some_and(|card| card.transmit_checksum)
    }

    /// Hands an IP packet to its interface.
    pub(super) fn transmit(&self, route: Route, packet: Chain, sum: SumBy) {
        self.m().count(KernelCounter::PacketsSent, 1);
        self.net.tally.sent.add(1);
        match route {
            Route::Loopback => self.loop_back(packet),
            Route::Card(neighbour) => self.resolve_and_send(neighbour, packet, sum),
        }
    }

    fn loop_back(&self, packet: Chain) {
        let mut queue = self.net.loopback.lock();
        if queue.len() >= self.config().loopback_packets || self.is_ending() {
            drop(queue);
            self.net.tally.no_room.add(1);
            return self.free(packet);
        }
        self.m().execute(self.config().paths.loopback);
        queue.push_back(packet);
        drop(queue);
        // A protocol server looks there before it answers.
        if self.net.host().is_none() {
            self.net.core.softints.schedule(SoftInt::Net);
        }
    }

    /// Takes in what is on loopback now; true if there was anything.
    pub(super) fn take_from_loopback(&self) -> bool {
        let packets = core::mem::take(&mut *self.net.loopback.lock());
        let any = !packets.is_empty();
        packets.into_iter().for_each(|packet| self.ip_input(packet, None));
        any
    }
}

impl<M: Machine> Net<M> {
    /// There is a card, and it was not removed.
    pub(super) fn has_wire(&self) -> bool {
        self.has_wire.load(Relaxed)
    }
}
