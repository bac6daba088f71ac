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
use super::wire::SumBy;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Machine, NicInfo};

/// See the [module](self).
pub(super) enum Link<M: Machine> {
    /// The kernel's own driver.
    Card(Box<Card<M>>),
    /// A server's.
    Driver(Frames),
}

/// What waits for a driver that is a server.
pub(super) struct Frames {
    pub(super) info: NicInfo,
    pub(super) waiting: VecDeque<(Chain, SumBy)>,
}

impl Frames {
    pub(super) fn new(info: NicInfo) -> Frames {
        Frames { info, waiting: VecDeque::new() }
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

    /// Chains and buffers that are on their way.
    pub(super) fn under_way(&self) -> usize {
        match self {
            Link::Card(card) => card.under_way(),
            Link::Driver(frames) => frames.waiting.len(),
        }
    }
}
