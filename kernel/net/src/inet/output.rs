//! Frames on their way to the driver: the kernel's own, or one that is a server.
//!
//! # What can fail
//! Room in a queue, and a card that was removed: the frame is lost, as on a wire.

use super::link::Link;
use super::stack::Ip;
use super::wire::SumBy;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Machine, SpinLock};

impl<M: Machine> Ip<'_, M> {
    /// Hands a frame to the driver.
    pub(super) fn link_output(&self, frame: Chain, sum: SumBy) {
        let mut link = self.net.link.lock();
        let frame = match &mut *link {
            _ if !self.net.has_wire() => Some(frame),
            Some(Link::Driver(frames)) if frames.waiting.len() < frames.info.transmit_slots => {
                frames.waiting.push_back((frame, sum));
                None
            }
            Some(Link::Card(card)) => self.card_output(card, frame, sum),
            _ => Some(frame),
        };
        drop(link);
        if let Some(frame) = frame {
            self.net.tally.no_room.add(1);
            self.free(frame);
        }
    }

    /// No driver of the kernel's takes frames any more: what waits is freed, and what the card has comes back.
    pub(super) fn stop_link(&self) {
        let mut link = self.net.link.lock();
        match &mut *link {
            Some(Link::Card(card)) => {
                self.net.has_wire.store(false, Relaxed);
                let arrived = self.stop_card(card);
                drop(link);
                arrived.into_iter().for_each(|(frame, verdict)| self.frame_input(frame, verdict));
            }
            Some(Link::Driver(frames)) => {
                let waiting = core::mem::take(&mut frames.waiting);
                waiting.into_iter().for_each(|(frame, _)| self.free(frame));
            }
            None => {}
        }
    }
}
