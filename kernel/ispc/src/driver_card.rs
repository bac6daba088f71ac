//! The network card of a kernel whose protocols are servers: its rings, and what it has of whose.
//!
//! What is done with it is in [`card`](super::card) and [`received`](super::received).

use super::port::RequestId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use litemap::LiteMap;
use pageferry_abi::Pid;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Channel, DeviceId, ETHERNET_HEADER_BYTES, Machine, NIC_DESCRIPTOR_BYTES, Nic, NicInfo, NicVerdict,
    PAGE_SIZE, Pa, StructArena, StructVa,
};

/// The card, and its rings in memory.
pub struct DriverCard {
    pub(super) nic: Box<dyn Nic>,
    pub(super) ring: StructVa,
}

/// A frame that the card has.
#[derive(Clone, Copy)]
pub struct Sending {
    /// The driver's server.
    pub(super) pid: Pid,
    /// The first page of the piece that it is in.
    pub(super) page: usize,
    /// The request that is to be answered when it is sent; of a driver that waits for it, nothing.
    pub(super) request: Option<RequestId>,
}

impl DriverCard {
    /// The card, with its rings in memory.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new<M: Machine>(
        m: &M,
        nic: Box<dyn Nic>,
        arena: &mut StructArena,
    ) -> Result<DriverCard, ArenaFull> {
        let info = nic.info();
        let base = m.board().layout.kernel_base;
        let mut ring = |slots| arena.array("descriptors", slots, NIC_DESCRIPTOR_BYTES);
        let (transmit, receive) = (ring(info.transmit_slots)?, ring(info.receive_slots)?);
        let pa = |at: StructVa| Pa((at.0 - base) as u64);
        nic.set_rings(pa(transmit), pa(receive));
        Ok(DriverCard { nic, ring: transmit })
    }

    /// Its number among the devices.
    pub fn id(&self) -> DeviceId {
        self.nic.id()
    }

    /// What it is.
    pub fn info(&self) -> NicInfo {
        self.nic.info()
    }

    /// What a driver sleeps on.
    pub(super) fn channel(&self) -> Channel {
        Channel(self.ring.0.0)
    }

    /// Pages of a piece that holds any frame.
    pub(super) fn frame_pages(&self) -> usize {
        (ETHERNET_HEADER_BYTES + self.nic.info().mtu_bytes).div_ceil(PAGE_SIZE)
    }
}

/// A frame that has arrived.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// The first page of its piece.
    pub(super) page: usize,
    pub(super) len: usize,
    pub(super) verdict: NicVerdict,
}

/// What the card has.
#[derive(Default)]
pub struct Receiving {
    /// First pages of pieces, by tag.
    pub(super) posted: LiteMap<u64, usize>,
    pub(super) arrived: VecDeque<Arrival>,
    pub(super) removed: bool,
}

impl Receiving {
    /// True when it has this piece.
    pub(super) fn has(&self, page: usize) -> bool {
        self.posted.values().any(|own| *own == page) || self.arrived.iter().any(|own| own.page == page)
    }

    /// True when it has nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.arrived.is_empty()
    }
}
