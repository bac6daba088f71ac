//! Frames on their way to the driver: the kernel's own, or one that is a server.
//!
//! # What can fail
//! Room in a queue, and a card that was removed: the frame is lost, as on a wire.

use super::link::Link;
use super::stack::Stack;
use super::wire::SumBy;
use pageferry_core::mbuf::Chain;
use pageferry_hal::Machine;

impl<M: Machine> Stack<'_, M> {
    /// Hands a frame to the driver.
    pub(super) fn link_output(&mut self, frame: Chain, sum: SumBy) {
        match &mut self.s.link {
            Some(Link::Driver(frames))
                if frames.works && frames.waiting.len() < frames.info.transmit_slots =>
            {
                frames.waiting.push_back((frame, sum));
            }
            Some(Link::Card(_)) => self.card_output(frame, sum),
            _ => {
                self.s.counts.no_room += 1;
                self.free(frame);
            }
        }
    }

    /// No driver of the kernel's takes frames any more: what waits is freed.
    pub(super) fn stop_link(&mut self) {
        match &mut self.s.link {
            Some(Link::Card(_)) => self.stop_card(),
            Some(Link::Driver(frames)) => {
                let waiting = core::mem::take(&mut frames.waiting);
                waiting.into_iter().for_each(|(frame, _)| self.free(frame));
            }
            None => {}
        }
    }
}
