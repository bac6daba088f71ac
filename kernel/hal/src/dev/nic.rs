//! What a network card is: frames of Ethernet, sent from and received into memory that the kernel hands over.
//!
//! Each direction has a ring of descriptors in the kernel's memory. The kernel posts buffers, which fills descriptors,
//! and then rings that direction's doorbell, which hands over all that was posted before. The card takes them in order,
//! moves the bytes by itself, writes the descriptor back, and interrupts, not more often than it is set to. An
//! interrupt that was not yet acknowledged stands for all that has happened since.
//!
//! Each fragment takes a descriptor, a buffer for headers too. They are free again when the answer is taken; all of a
//! ring may be in use.
//!
//! A frame is an Ethernet frame without preamble and checksum (FCS). A short one is padded with zeros as it is sent, to
//! [`ETHERNET_MIN_BYTES`]. A card takes what is sent to its own address or to a group; of that, a frame that finds no
//! buffer, or no room in its buffers, is lost, and counted.
//!
//! A card may have a second receive ring, the *flow ring*. Frames of the one flow of TCP that it is told to
//! [steer](Nic::steer) go there and nowhere else; all others go to the main ring. The sequence of answers is that of
//! arrival within a ring only.
//!
//! A card can be taken out while it works. From then on it interrupts no more but once, answers everything that it
//! still has with [`NicError::Removed`], and so it answers whatever is posted to it. A kernel that has no more use for
//! a card [stops](Nic::stop) it, to get back what it has posted. Frames that had arrived before, or were sent, are
//! answered as ever, and first.

use crate::addr::{Pa, Pfn};
use crate::dev::device::DeviceId;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddrV4;

/// Bytes of a descriptor of either ring.
pub const NIC_DESCRIPTOR_BYTES: usize = 16;
/// Bytes of the header of an Ethernet frame: two addresses and a type.
pub const ETHERNET_HEADER_BYTES: usize = 14;

/// The shortest frame that goes over a wire; without its checksum.
pub const ETHERNET_MIN_BYTES: usize = 60;

/// A network card.
pub trait Nic {
    /// The number by which it interrupts.
    fn id(&self) -> DeviceId;
    /// What it is and can do. Always the same.
    fn info(&self) -> NicInfo;
    /// Says where the rings are: so many descriptors of [`NIC_DESCRIPTOR_BYTES`] as [`NicInfo`] says. Called once,
    /// before anything is posted.
    ///
    /// # Panics
    /// When it was called before, or a ring leaves memory or is not aligned to a descriptor.
    fn set_rings(&self, transmit: Pa, receive: Pa);
    /// Writes back what the executing CPU's cache has of a frame that is to be sent and memory has not, line by line:
    /// before it is posted. Nothing where the card looks into caches itself.
    fn write_back(&self, fragments: &[Fragment]) {
        let _ = fragments;
    }
    /// Fills the next descriptors with a frame to be sent. Nothing happens before [`Nic::start_transmit`].
    ///
    /// # Panics When its fragments need more descriptors than are free, are empty or leave their frames, or are more
    /// than [`NicInfo::transmit_fragments`]; when it is longer than a frame may be, or shorter than a header; when it
    /// wants a checksum that lies outside of it, or that the card cannot compute; when the card does not look into
    /// caches, and one has something of it that was not [written back](Nic::write_back).
    fn post_transmit(&self, packet: NicTransmit);
    /// Rings the doorbell of the transmit ring.
    fn start_transmit(&self);
    /// Fills the next descriptors with buffers for one frame. Nothing happens before [`Nic::start_receive`].
    ///
    /// # Panics
    /// When they need more descriptors than are free, or are empty or leave their frames; when there is a buffer for
    /// headers and the card does not split them off; when the flow ring is meant and [no flow is
    /// steered](Nic::steer).
    fn post_receive(&self, ring: NicRing, buffer: NicReceive);
    /// Rings the doorbell of a receive ring.
    fn start_receive(&self, ring: NicRing);
    /// Says where the flow ring is: [`NicInfo::flow_slots`] descriptors. Called once at most.
    ///
    /// # Panics
    /// As [`Nic::set_rings`]; when the card has none.
    fn set_flow_ring(&self, at: Pa) {
        panic!("a card that has no flow ring is told that it is at {at:?}");
    }
    /// Steers the frames of a flow to the flow ring from now on, or of none. With none the card is done with that ring
    /// when this returns: what was posted to it and holds no frame that had arrived before is answered with
    /// [`NicError::Stopped`], and frames on their way there are lost.
    ///
    /// # Panics
    /// When the place of the flow ring was not told, or another flow is steered.
    fn steer(&self, flow: Option<NicFlow>) {
        assert!(flow.is_none(), "a card that has no flow ring is told to steer {flow:?}");
    }
    /// Reads and clears the register of reasons to interrupt: the interrupt is acknowledged, and what happens from here
    /// on interrupts anew. A card that was taken out reads as [`NicEvents::removed`] for ever.
    fn acknowledge(&self) -> NicEvents;
    /// The answer to the oldest frame that was sent and not answered yet. Reads no register.
    fn take_transmitted(&self) -> Option<NicTransmitted>;
    /// The oldest frame that has arrived, in buffers of that receive ring, and was not taken yet. Reads no register.
    fn take_received(&self, ring: NicRing) -> Option<NicReceived>;
    /// Stops the card for good: it sends, receives and interrupts no more, and answers everything that it still has,
    /// and whatever is posted to it, with [`NicError::Stopped`]. The answers are there when this returns.
    fn stop(&self);
    /// What was lost, and what was moved, since the machine was switched on.
    fn statistics(&self) -> NicStatistics;
}

/// An address of an Ethernet station.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All stations.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What a card is and can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicInfo {
    /// Its address.
    pub mac: MacAddress,
    /// The most bytes behind an Ethernet header.
    pub mtu_bytes: usize,
    /// Descriptors of the transmit ring.
    pub transmit_slots: usize,
    /// Descriptors of the receive ring.
    pub receive_slots: usize,
    /// Descriptors of the flow ring; 0 where the card has none.
    pub flow_slots: usize,
    /// The most fragments that a frame is gathered from.
    pub transmit_fragments: usize,
    /// It can put the checksums of TCP and UDP into frames that it sends.
    pub transmit_checksum: bool,
    /// It says whether the checksums of frames that arrive are right.
    pub receive_checksum: bool,
    /// It can put headers (Ethernet, IP, TCP or UDP) and what is behind them into buffers of their own.
    pub header_split: bool,
    /// Data of one flow that it joins at most: a *frame* that arrives may have so much, in pages that are full but for
    /// the last, behind one header whose sum of TCP is that of a part. 0 where it joins none.
    pub coalesce_bytes: usize,
    /// Bits a microsecond, each way.
    pub link_mbit_s: u64,
}

/// One of a card's receive rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NicRing {
    /// For all frames that are not steered.
    Main,
    /// For those of the flow that is.
    Flow,
}

/// A connection of TCP, as a card knows it from the frames that arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicFlow {
    /// Where they come from.
    pub remote: SocketAddrV4,
    /// Where they go.
    pub local: SocketAddrV4,
}

/// Bytes within one frame of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The frame.
    pub frame: Pfn,
    /// Where in it they begin.
    pub offset: usize,
    /// How many there are; at least one, and all within the frame.
    pub len_bytes: usize,
}

/// Where a card is to put a checksum that it computes: the ones' complement sum of TCP and UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicChecksum {
    /// The first byte of the frame that is summed; all behind it are, too.
    pub from: usize,
    /// Where in the frame its two bytes go. They hold the sum of the pseudo header before.
    pub at: usize,
}

/// A frame to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicTransmit {
    /// Comes back with the answer; no two frames under way have the same.
    pub tag: u64,
    /// Where it is, in order.
    pub fragments: Vec<Fragment>,
    /// The checksum that the card is to put in, if it is to and can.
    pub checksum: Option<NicChecksum>,
}

/// Buffers for one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicReceive {
    /// Comes back with the answer; no two frames under way have the same.
    pub tag: u64,
    /// For the headers, if they are to be split off. Headers that do not fit, or are not understood, go in front of the
    /// rest.
    pub header: Option<Fragment>,
    /// For the frame, or what is behind its headers.
    pub data: Vec<Fragment>,
}

/// Why a card does not do what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NicError {
    /// The card was taken out.
    #[error("the network card was removed")]
    Removed,
    /// It was [stopped](Nic::stop).
    #[error("the network card was stopped")]
    Stopped,
}

/// The answer to a frame that was to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicTransmitted {
    /// The frame's.
    pub tag: u64,
    /// How it went.
    pub result: Result<(), NicError>,
}

/// What a card says of the checksums of a frame that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NicVerdict {
    /// Nothing: it cannot, or does not know the protocol.
    Unchecked,
    /// The sums of IP, and of TCP or UDP, are right.
    Good,
    /// One of them is wrong.
    Bad,
}

/// A frame that has arrived, or buffers that come back without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicReceived {
    /// That of the buffers.
    pub tag: u64,
    /// How it went.
    pub result: Result<NicArrival, NicError>,
}

/// A frame that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicArrival {
    /// Bytes in the buffer for headers; 0 when they were not split off.
    pub header_bytes: usize,
    /// Bytes in the buffers for data.
    pub data_bytes: usize,
    /// What is to be thought of its checksums.
    pub verdict: NicVerdict,
}

/// Reasons to interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NicEvents {
    /// Frames have arrived.
    pub received: bool,
    /// Frames were sent.
    pub transmitted: bool,
    /// The card was taken out.
    pub removed: bool,
}

/// What a card has moved, and what it has lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NicStatistics {
    /// Frames sent.
    pub transmitted: u64,
    /// Frames received into buffers.
    pub received: u64,
    /// Frames that found no buffers.
    pub missed: u64,
    /// Frames that were longer than their buffers, or than a frame may be.
    pub too_long: u64,
    /// Frames for other stations.
    pub filtered: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}
