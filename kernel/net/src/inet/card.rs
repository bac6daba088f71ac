//! The network card and what it has: the driver's state (after `if_em.c`); `driver` works with it.
//!
//! # What it holds
//! The card's two rings, as kernel structures that are touched when a descriptor is written or read, and what is posted
//! to them: for each frame that may arrive as many pages as the longest takes, clusters or disposable pages, and with
//! header split a small mbuf for the headers; and the chains that are being sent. Behind headers that were split off
//! the data begins with a page: pages that are full can become a receiver's memory.
//!
//! A card may have a *flow ring*. While a connection has a receive area, its frames go to pages of that, as far as
//! there are some, and else to others.
//!
//! A short frame is copied, and its buffers are posted again. A longer one is handed up in its own buffers and others
//! take their place; when there is none the frame is dropped and its buffers are posted again, so that the card never
//! runs dry for good. A chain that is sent is freed when the card is done with it, which is looked for at every
//! interrupt and when descriptors are short.
//!
//! # What can fail
//! A card that was removed sends and receives nothing more; all of its buffers come back.

use super::id::PcbId;
use crate::config::ReceiveMapping;
use alloc::boxed::Box;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_abi::Errno;
use pageferry_core::counter::KernelCounter;
use pageferry_core::mbuf::{AreaId, AreaPage, AreaUse, Chain, Mbuf, Pool, SMALL_BYTES};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Access, CodePath, DeviceId, ETHERNET_HEADER_BYTES, Fragment, Machine, NIC_DESCRIPTOR_BYTES, Nic,
    NicArrival, NicInfo, NicReceive, NicRing, PAGE_SIZE, StructArena, StructVa,
};

/// Buffers that are handed over by one write to the card's register.
pub(super) const DOORBELL_EVERY: usize = 16;
/// Pages that a driver takes from a receive area at a time (Linux: `PP_ALLOC_CACHE_REFILL`).
const PAGES_IN_HAND: usize = 64;
/// A frame is read into a cluster this far from its start, so that the IP header is aligned (`ETHER_ALIGN`).
const ETHER_ALIGN: usize = 2;

/// The card and what it has. See the [module](self).
pub(super) struct Card<M: Machine> {
    pub(super) nic: Box<dyn Nic>,
    pub(super) info: NicInfo,
    pub(super) transmit_ring: Ring,
    pub(super) receive_ring: Ring,
    /// What is steered to the flow ring, if the card has one.
    pub(super) flow: Option<Flow>,
    /// Descriptors of the flow ring, if there is one.
    pub(super) flow_ring: Option<Ring>,
    /// With the descriptors that each fills.
    pub(super) sending: LiteMap<u64, (usize, Chain)>,
    pub(super) receiving: LiteMap<u64, Buffers>,
    pub(super) next_tag: u64,
    /// What giving it a buffer takes.
    pub(super) buffer_path: CodePath,
    /// What it receives into.
    pub(super) receive_mapping: ReceiveMapping,
    pub(super) machine: core::marker::PhantomData<M>,
}

/// A connection whose frames are steered to the flow ring, and the area that they go to.
pub(super) struct Flow {
    pub(super) id: PcbId,
    pub(super) area: AreaId,
    /// Pages of the area that the driver has in hand.
    pub(super) pages: Vec<AreaPage>,
}

/// Descriptors in memory.
pub(super) struct Ring {
    pub(super) at: StructVa,
    pub(super) slots: usize,
    /// The next to be filled, and the next to be looked at.
    pub(super) head: usize,
    pub(super) tail: usize,
    pub(super) used: usize,
}

impl Ring {
    /// Writes `count` descriptors.
    pub(super) fn fill<M: Machine>(&mut self, m: &M, count: usize) {
        for _ in 0..count {
            m.touch(self.at.element(self.head, NIC_DESCRIPTOR_BYTES), NIC_DESCRIPTOR_BYTES, Access::Write);
            self.head = (self.head + 1) % self.slots;
        }
        self.used += count;
    }

    /// Looks at `count` descriptors that the card has written back.
    pub(super) fn look<M: Machine>(&mut self, m: &M, count: usize) {
        for _ in 0..count {
            m.touch(self.at.element(self.tail, NIC_DESCRIPTOR_BYTES), NIC_DESCRIPTOR_BYTES, Access::Read);
            self.tail = (self.tail + 1) % self.slots;
        }
        self.used -= count;
    }

    pub(super) fn free(&self) -> usize {
        self.slots - self.used
    }
}

/// What a frame is received into.
pub(super) struct Buffers {
    /// The ring that they are for.
    pub(super) ring: NicRing,
    pub(super) header: Option<Mbuf>,
    pub(super) data: Vec<Mbuf>,
}

impl Buffers {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Mbuf> {
        self.header.iter().chain(&self.data)
    }

    pub(super) fn free<M: Machine>(self, pool: &Pool<M>) {
        self.header.into_iter().chain(self.data).for_each(|mbuf| pool.free(mbuf));
    }
}

/// A page for a frame that arrives.
///
/// # Errors
/// [`Errno::NoMemory`], at once.
pub(super) fn page_to_receive<M: Machine>(mapping: ReceiveMapping, pool: &Pool<M>) -> Result<Mbuf, Errno> {
    match mapping {
        ReceiveMapping::Permanent => pool.cluster_for(None, PAGE_SIZE),
        ReceiveMapping::Ephemeral => pool.page_to_receive(),
    }
}

/// Clusters that hold the longest frame, whose headers may be in front of it all the same, or as much as the card
/// joins.
fn frame_clusters(info: &NicInfo) -> usize {
    alone_clusters(info).max(info.coalesce_bytes.div_ceil(PAGE_SIZE))
}

/// Clusters that hold the longest frame that the card joins to no other.
fn alone_clusters(info: &NicInfo) -> usize {
    let offset = if info.header_split { 0 } else { ETHER_ALIGN };
    (offset + ETHERNET_HEADER_BYTES + info.mtu_bytes).div_ceil(PAGE_SIZE)
}

/// Descriptors that the buffers for one frame take.
pub(super) fn frame_descriptors(info: &NicInfo) -> usize {
    usize::from(info.header_split) + frame_clusters(info)
}

/// The fewest clusters with which such a card serves the kernel: those that it has itself, and others for the frames
/// that a connection's receive buffer holds. With fewer the kernel runs, and loses frames until what connections hold
/// is taken from them.
#[must_use]
pub fn clusters_for_card(info: &NicInfo, receive_buffer_bytes: usize) -> usize {
    let (posted, held) = frames_for_card(info, receive_buffer_bytes);
    posted * frame_clusters(info) + held * alone_clusters(info)
}

/// The fewest mbufs with which it does so, likewise. A kernel has [`MAX_MBUFS`](pageferry_core::mbuf::MAX_MBUFS); where
/// the card has all of them, no connection can be made.
#[must_use]
pub fn mbufs_for_card(info: &NicInfo, receive_buffer_bytes: usize) -> usize {
    let (posted, held) = frames_for_card(info, receive_buffer_bytes);
    posted * frame_descriptors(info) + held * (usize::from(info.header_split) + alone_clusters(info))
}

/// Frames that buffers are posted for, and frames in a connection's receive buffer.
fn frames_for_card(info: &NicInfo, receive_buffer_bytes: usize) -> (usize, usize) {
    let slots = info.receive_slots + info.flow_slots;
    (slots / frame_descriptors(info), receive_buffer_bytes.div_ceil(info.mtu_bytes))
}

impl<M: Machine> Card<M> {
    pub(super) fn new(
        m: &M,
        nic: Box<dyn Nic>,
        (buffer_path, receive_mapping): (CodePath, ReceiveMapping),
        arena: &mut StructArena,
    ) -> Result<Card<M>, ArenaFull> {
        let info = nic.info();
        let base = m.board().layout.kernel_base;
        let mut ring = |what, slots: usize| -> Result<Ring, ArenaFull> {
            let at = arena.array(what, slots, NIC_DESCRIPTOR_BYTES)?;
            Ok(Ring { at, slots, head: 0, tail: 0, used: 0 })
        };
        let transmit_ring = ring("descriptors for sending", info.transmit_slots)?;
        let receive_ring = ring("descriptors for receiving", info.receive_slots)?;
        let pa = |ring: &Ring| pageferry_hal::Pa((ring.at.0 - base) as u64);
        nic.set_rings(pa(&transmit_ring), pa(&receive_ring));
        let flow_ring = match info.flow_slots {
            0 => None,
            slots => Some(ring("descriptors for a flow", slots)?),
        };
        flow_ring.iter().for_each(|ring| nic.set_flow_ring(pa(ring)));
        Ok(Card {
            nic,
            info,
            transmit_ring,
            receive_ring,
            flow: None,
            flow_ring,
            sending: LiteMap::new(),
            receiving: LiteMap::new(),
            next_tag: 0,
            buffer_path,
            receive_mapping,
            machine: core::marker::PhantomData,
        })
    }

    pub(super) fn id(&self) -> DeviceId {
        self.nic.id()
    }

    pub(super) fn info(&self) -> &NicInfo {
        &self.info
    }

    /// Chains and buffers that the card has.
    pub(super) fn under_way(&self) -> usize {
        self.sending.len() + self.receiving.len()
    }

    pub(super) fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// A receive ring.
    ///
    /// # Panics
    /// When it is the flow ring, and the card has none.
    pub(super) fn ring(&mut self, ring: NicRing) -> &mut Ring {
        match ring {
            NicRing::Main => &mut self.receive_ring,
            NicRing::Flow => self.flow_ring.as_mut().expect("a card with a flow ring"),
        }
    }

    /// The receive rings that are in use.
    pub(super) fn rings(&self) -> impl Iterator<Item = NicRing> + use<M> {
        [NicRing::Main].into_iter().chain(self.flow.as_ref().map(|_| NicRing::Flow))
    }

    /// Nothing is steered any more, and what the driver has in hand goes back.
    pub(super) fn end_flow(&mut self, pool: &Pool<M>) {
        self.flow.take().into_iter().for_each(|flow| pool.return_area_pages(flow.pages));
    }

    /// A page for a frame that arrives in a ring: of the receive area where the ring is for one, as long as it has
    /// some.
    fn page(&mut self, ring: NicRing, pool: &Pool<M>) -> Result<Mbuf, Errno> {
        let page = self.flow.as_mut().filter(|_| ring == NicRing::Flow).and_then(|flow| {
            if flow.pages.is_empty() {
                flow.pages = pool.area_pages(flow.area, AreaUse::Card, PAGES_IN_HAND);
            }
            flow.pages.pop()
        });
        let mbuf = page.and_then(|page| pool.over_area_page(page).ok());
        mbuf.map_or_else(|| page_to_receive(self.receive_mapping, pool), Ok)
    }

    /// Takes the pages that a frame with so many bytes of data has left unused out of its buffers, to be used for
    /// another: a disposable page would be unmapped and mapped again for nothing. Clusters lose nothing: they stay
    /// there.
    pub(super) fn unused(&self, buffers: &mut Buffers, data_bytes: usize) -> Vec<Mbuf> {
        let used = match self.receive_mapping {
            ReceiveMapping::Permanent => buffers.data.len(),
            // The first may begin behind the start of its page.
            ReceiveMapping::Ephemeral => (PAGE_SIZE - buffers.data[0].len() + data_bytes).div_ceil(PAGE_SIZE),
        };
        buffers.data.split_off(used.clamp(1, buffers.data.len()))
    }

    /// Buffers for one frame of a ring; `spare` pages are the last of them, as far as they are needed.
    pub(super) fn buffers(
        &mut self,
        ring: NicRing,
        pool: &Pool<M>,
        spare: &mut Vec<Mbuf>,
    ) -> Option<Buffers> {
        let count = frame_clusters(&self.info);
        let mut buffers = Buffers { ring, header: None, data: Vec::with_capacity(count) };
        for _ in spare.len()..count {
            match self.page(ring, pool) {
                Ok(page) => buffers.data.push(page),
                Err(_) => {
                    buffers.free(pool);
                    return None;
                }
            }
        }
        if self.info.header_split {
            match pool.alloc(SMALL_BYTES) {
                Ok(header) => buffers.header = Some(header),
                Err(_) => {
                    buffers.free(pool);
                    return None;
                }
            }
        } else {
            buffers.data[0].advance(ETHER_ALIGN);
        }
        buffers.data.append(spare);
        Some(buffers)
    }

    /// A short frame as a copy in a small mbuf. It takes little memory while it waits in a socket, and needs no other
    /// cluster: where those are short, acknowledgements still come through, and set some free.
    pub(super) fn copied(pool: &Pool<M>, buffers: &Buffers, arrival: NicArrival) -> Option<Chain> {
        let header_bytes = arrival.header_bytes.min(buffers.header.as_ref().map_or(0, Mbuf::len));
        let len = header_bytes + arrival.data_bytes;
        if len == 0 || len > SMALL_BYTES {
            return None;
        }
        let small = pool.alloc(len).ok()?;
        let mut at = 0;
        let parts = buffers
            .header
            .iter()
            .map(|mbuf| (mbuf, header_bytes))
            .chain([(&buffers.data[0], arrival.data_bytes)]);
        for (mbuf, len) in parts.filter(|(_, len)| *len > 0) {
            let (from, to) = (pool.address(mbuf, 0..len), pool.address(&small, at..at + len));
            pool.machine().copy_kernel(to, from, len).expect("the kernel's own addresses are mapped");
            pool.machine().count(KernelCounter::BytesCopied, len as u64);
            at += len;
        }
        let mut chain = Chain::new();
        chain.push_back(small);
        Some(chain)
    }

    pub(super) fn post(&mut self, m: &M, pool: &Pool<M>, buffers: Buffers) {
        m.execute(self.buffer_path);
        let tag = self.tag();
        let one = |mbuf: &Mbuf| pool.fragments_of(mbuf).pop().expect("it has bytes");
        let header = buffers.header.as_ref().map(one);
        let data: Vec<Fragment> = buffers.data.iter().map(one).collect();
        let slots = data.len() + usize::from(header.is_some());
        let ring = buffers.ring;
        self.ring(ring).fill(m, slots);
        self.nic.post_receive(ring, NicReceive { tag, header, data });
        self.receiving.insert(tag, buffers);
    }
}
