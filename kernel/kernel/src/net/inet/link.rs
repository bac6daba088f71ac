//! The way to the wire: the kernel's own driver, or a driver that is a server.
//!
//! # The model
//! The protocols know what the card is, and hand it frames. Where the kernel drives it, a frame goes to
//! [`card`](super::card) at once. Where that is a server's ([`crate::served`]), frames wait in a queue, from which the
//! protocol server takes them when it holds no lock; and it brings what has arrived. The queue holds as many frames as
//! the card's ring: what comes when it is full is lost, as on a wire. There, the protocols run in the protocol server
//! alone: what is due at some time, and what is on loopback, waits until the server is told and does it.
//!
//! # What can fail
//! A card that was removed: nothing leads to it any more.

use super::card::Card;
use super::ip::SumBy;
use super::{Net, Stack};
use crate::Kernel;
use crate::net::chain::Chain;
use alloc::collections::VecDeque;
use pageferry_hal::{ETHERNET_HEADER_BYTES, Machine, NicChecksum, NicInfo, NicVerdict, SpinLock, Threads};

/// See the [module](self).
pub(super) enum Link<M: Machine> {
    /// The kernel's own driver.
    Card(Card<M>),
    /// A server's.
    Driver(Frames),
}

/// What waits for a driver that is a server.
pub(super) struct Frames {
    info: NicInfo,
    works: bool,
    waiting: VecDeque<(Chain, SumBy)>,
}

impl Frames {
    pub(super) fn new(info: NicInfo) -> Frames {
        Frames { info, works: true, waiting: VecDeque::new() }
    }
}

impl<M: Machine> Link<M> {
    /// What the card is.
    pub(super) fn info(&self) -> &NicInfo {
        match self {
            Link::Card(card) => card.info(),
            Link::Driver(frames) => &frames.info,
        }
    }

    /// It was not removed.
    pub(super) fn works(&self) -> bool {
        match self {
            Link::Card(card) => card.works(),
            Link::Driver(frames) => frames.works,
        }
    }

    /// Chains and buffers that are on their way.
    pub(super) fn under_way(&self) -> usize {
        match self {
            Link::Card(card) => card.under_way(),
            Link::Driver(frames) => frames.waiting.len(),
        }
    }
}

impl SumBy {
    /// What the card is to put into the frame.
    pub(super) fn by_card(self) -> Option<NicChecksum> {
        match self {
            SumBy::Nothing => None,
            SumBy::Card { from, at } => {
                Some(NicChecksum { from: from + ETHERNET_HEADER_BYTES, at: at + ETHERNET_HEADER_BYTES })
            }
        }
    }
}

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

/// For the protocol server.
impl<M: Machine> Net<M> {
    /// The frame that waits for longest, for the driver's server; and what the card is to put into it.
    pub(crate) fn next_frame(&self) -> Option<(Chain, Option<NicChecksum>)> {
        match &mut self.state.lock().link {
            Some(Link::Driver(frames)) => {
                frames.waiting.pop_front().map(|(frame, sum)| (frame, sum.by_card()))
            }
            _ => None,
        }
    }

    /// Frames wait for the driver's server.
    pub(crate) fn has_frames(&self) -> bool {
        matches!(&self.state.lock().link, Some(Link::Driver(frames)) if !frames.waiting.is_empty())
    }

    /// There is a card, and it was not removed.
    pub(crate) fn has_link(&self) -> bool {
        self.state.lock().link.as_ref().is_some_and(Link::works)
    }

    /// The most bytes behind the header of a frame.
    pub(crate) fn mtu_bytes(&self) -> usize {
        self.state.lock().link.as_ref().map_or(0, |link| link.info().mtu_bytes)
    }

    /// A frame could not be brought to the driver's server.
    pub(crate) fn frame_lost(&self, kernel: &Kernel<M>, threads: &dyn Threads) {
        self.with(kernel, threads, |stack| stack.s.counts.no_room += 1);
    }

    /// Takes in a frame that the driver's server has brought.
    pub(crate) fn frame_in(
        &self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        frame: Chain,
        verdict: NicVerdict,
    ) {
        self.with(kernel, threads, |stack| stack.frame_input(frame, verdict));
    }

    /// Does what is due, and takes in what is on loopback.
    pub(crate) fn work(&self, kernel: &Kernel<M>, threads: &dyn Threads) {
        loop {
            let more = self.with(kernel, threads, |stack| {
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
    pub(crate) fn lose_link(&self, kernel: &Kernel<M>, threads: &dyn Threads) {
        self.with(kernel, threads, |stack| {
            if let Some(Link::Driver(frames)) = &mut stack.s.link
                && core::mem::replace(&mut frames.works, false)
            {
                stack.stop_link();
                stack.lose_connections();
            }
        });
    }

    /// The protocol server is to end: all connections end, and the other ends are told.
    pub(crate) fn end_all(&self, kernel: &Kernel<M>, threads: &dyn Threads) {
        self.with(kernel, threads, |stack| {
            for id in stack.s.pcbs.ids() {
                stack.disown(id, true);
            }
        });
    }

    /// The protocol server has ended: what it knew is forgotten, and nobody is told but those who wait.
    pub(crate) fn forget_all(&self, kernel: &Kernel<M>, threads: &dyn Threads) {
        self.with(kernel, threads, |stack| {
            for id in stack.s.pcbs.ids() {
                stack.disown(id, false);
            }
            stack.s.rung = None;
            stack.throw_away();
        });
    }
}
