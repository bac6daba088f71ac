//! What the protocol server has of the network, where protocols are a process: frames, for a driver that is another's,
//! and what is to be done when the server is told that there is work.
//!
//! # Locks
//! Each call takes those of the network that it needs.
//!
//! # What can fail
//! Nothing: frames that find no room are lost, as on a wire.

use super::link::Link;
use super::stack::Net;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Cause, Machine, NicChecksum, NicVerdict, SpinLock, Threads};

impl<M: Machine> Net<M> {
    /// The frame that waits for longest, for the driver's server; and what the card is to put into it.
    pub fn next_frame(&self) -> Option<(Chain, Option<NicChecksum>)> {
        match &mut *self.link.lock() {
            Some(Link::Driver(frames)) => {
                frames.waiting.pop_front().map(|(frame, sum)| (frame, sum.by_card()))
            }
            _ => None,
        }
    }

    /// Frames wait for the driver's server.
    pub fn has_frames(&self) -> bool {
        matches!(&*self.link.lock(), Some(Link::Driver(frames)) if !frames.waiting.is_empty())
    }

    /// There is a card, and it was not removed.
    pub fn has_link(&self) -> bool {
        self.has_wire()
    }

    /// The most bytes behind the header of a frame.
    pub fn mtu_bytes(&self) -> usize {
        self.card.map_or(0, |card| card.mtu_bytes)
    }

    /// A frame could not be brought to the driver's server.
    pub fn frame_lost(&self) {
        self.tally.no_room.add(1);
    }

    /// Takes in a frame that the driver's server has brought.
    pub fn frame_in(&self, threads: &dyn Threads, frame: Chain, verdict: NicVerdict) {
        let _c = self.core.machine.scope(Cause::Protocol);
        self.ip(threads).frame_input(frame, verdict);
    }

    /// Does what is due, and takes in what is on loopback.
    pub fn work(&self, threads: &dyn Threads) {
        let _c = self.core.machine.scope(Cause::Protocol);
        loop {
            let ip = self.ip(threads);
            let rung = self.rung();
            rung.iter().for_each(|rung| ip.time_passes(rung.part, rung.number, rung.due));
            if !ip.take_from_loopback() && rung.is_empty() {
                return;
            }
        }
    }

    /// The driver's server says that the card was removed.
    pub fn lose_link(&self, threads: &dyn Threads) {
        if self.has_wire.swap(false, Relaxed) {
            self.ip(threads).stop_link();
            self.with(threads, |stack| stack.lose_connections());
        }
    }

    /// The protocol server is to end: all connections end, and the other ends are told.
    pub fn end_all(&self, threads: &dyn Threads) {
        self.with(threads, |stack| {
            for id in stack.table().pcbs.ids() {
                stack.on(id, |conn| conn.disown(true));
            }
        });
    }

    /// The protocol server has ended: what it knew is forgotten, and nobody is told but those who wait.
    pub fn forget_all(&self, threads: &dyn Threads) {
        self.with(threads, |stack| {
            for id in stack.table().pcbs.ids() {
                stack.on(id, |conn| conn.disown(false));
            }
            stack.table().rung.clear();
        });
        self.ip(threads).throw_away();
    }
}
