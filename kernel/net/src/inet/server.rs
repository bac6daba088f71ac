//! What the protocol server has of the network, where protocols are a process: frames, for a driver that is another's,
//! and what is to be done when the server is told that there is work.
//!
//! # Locks
//! Each call takes the network's lock.
//!
//! # What can fail
//! Nothing: frames that find no room are lost, as on a wire.

use super::link::Link;
use super::stack::Net;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Machine, NicChecksum, NicVerdict, SpinLock, Threads};

impl<M: Machine> Net<M> {
    /// The frame that waits for longest, for the driver's server; and what the card is to put into it.
    pub fn next_frame(&self) -> Option<(Chain, Option<NicChecksum>)> {
        match &mut self.state.lock().link {
            Some(Link::Driver(frames)) => {
                frames.waiting.pop_front().map(|(frame, sum)| (frame, sum.by_card()))
            }
            _ => None,
        }
    }

    /// Frames wait for the driver's server.
    pub fn has_frames(&self) -> bool {
        matches!(&self.state.lock().link, Some(Link::Driver(frames)) if !frames.waiting.is_empty())
    }

    /// There is a card, and it was not removed.
    pub fn has_link(&self) -> bool {
        self.state.lock().link.as_ref().is_some_and(Link::works)
    }

    /// The most bytes behind the header of a frame.
    pub fn mtu_bytes(&self) -> usize {
        self.state.lock().link.as_ref().map_or(0, |link| link.info().mtu_bytes)
    }

    /// A frame could not be brought to the driver's server.
    pub fn frame_lost(&self, threads: &dyn Threads) {
        self.with(threads, |stack| stack.s.counts.no_room += 1);
    }

    /// Takes in a frame that the driver's server has brought.
    pub fn frame_in(&self, threads: &dyn Threads, frame: Chain, verdict: NicVerdict) {
        self.with(threads, |stack| stack.frame_input(frame, verdict));
    }

    /// Does what is due, and takes in what is on loopback.
    pub fn work(&self, threads: &dyn Threads) {
        loop {
            let more = self.with(threads, |stack| {
                let rung = stack.s.rung.take();
                if let Some((number, due)) = rung {
                    stack.time_passes(number, due);
                }
                stack.take_from_loopback() || rung.is_some()
            });
            if !more {
                return;
            }
        }
    }

    /// The driver's server says that the card was removed.
    pub fn lose_link(&self, threads: &dyn Threads) {
        self.with(threads, |stack| {
            if let Some(Link::Driver(frames)) = &mut stack.s.link
                && core::mem::replace(&mut frames.works, false)
            {
                stack.stop_link();
                stack.lose_connections();
            }
        });
    }

    /// The protocol server is to end: all connections end, and the other ends are told.
    pub fn end_all(&self, threads: &dyn Threads) {
        self.with(threads, |stack| {
            for id in stack.s.pcbs.ids() {
                stack.disown(id, true);
            }
        });
    }

    /// The protocol server has ended: what it knew is forgotten, and nobody is told but those who wait.
    pub fn forget_all(&self, threads: &dyn Threads) {
        self.with(threads, |stack| {
            for id in stack.s.pcbs.ids() {
                stack.disown(id, false);
            }
            stack.s.rung = None;
            stack.throw_away();
        });
    }
}
