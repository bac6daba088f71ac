//! Fragments of packets that wait for the rest: which there are, and where one more goes.
//!
//! # Locks
//! Its own, of class `Reassembly`, over all of it.

use super::alarm::Alarm;
use super::wire::Addresses;
use alloc::vec::Vec;
use etherparse::IpNumber;
use pageferry_core::mbuf::Chain;
use pageferry_hal::Cycles;

/// Where in its packet a fragment belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    pub(super) offset: usize,
    /// It is not the last.
    pub(super) more: bool,
}

/// What tells one packet from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PacketKey {
    pub(super) addresses: Addresses,
    pub(super) protocol: IpNumber,
    pub(super) id: u16,
}

/// A packet of which something is missing.
pub(super) struct Packet {
    pub(super) key: PacketKey,
    pub(super) until: Cycles,
    /// By their offsets; none laps over another.
    pub(super) fragments: Vec<(usize, Chain)>,
    /// Its length, once its end is there.
    pub(super) len: Option<usize>,
}

/// Packets of which something is missing, that which came first in front.
#[derive(Default)]
pub(super) struct Fragments {
    pub(super) packets: Vec<Packet>,
    pub(super) alarm: Alarm,
}

impl Packet {
    pub(super) fn is_whole(&self) -> bool {
        let mut end = 0;
        let gapless = self.fragments.iter().all(|(offset, bytes)| {
            let follows = *offset == end;
            end = offset + bytes.len();
            follows
        });
        gapless && self.len == Some(end)
    }

    /// Where a fragment goes; `Err` if it contradicts what is there, `Ok(None)` if it is there.
    pub(super) fn place(&self, fragment: Fragment, len: usize) -> Result<Option<usize>, ()> {
        let (offset, end) = (fragment.offset, fragment.offset + len);
        let last = self.fragments.last().map_or(0, |(offset, bytes)| offset + bytes.len());
        let fits = match (self.len, fragment.more) {
            (None, true) => true,
            (None, false) => last <= end,
            (Some(len), more) => {
                if more {
                    end <= len
                } else {
                    end == len
                }
            }
        };
        let at = self.fragments.partition_point(|(other, _)| *other < offset);
        if let Some((other, bytes)) = self.fragments.get(at)
            && (*other, bytes.len()) == (offset, len)
        {
            return if fits { Ok(None) } else { Err(()) };
        }
        let before = at.checked_sub(1).map_or(0, |at| self.fragments[at].0 + self.fragments[at].1.len());
        let behind = self.fragments.get(at).map_or(usize::MAX, |(other, _)| *other);
        if fits && before <= offset && end <= behind { Ok(Some(at)) } else { Err(()) }
    }
}

impl Fragments {
    /// Fragments that wait.
    pub(super) fn queued(&self) -> usize {
        self.packets.iter().map(|packet| packet.fragments.len()).sum()
    }

    /// When the first packet is given up.
    pub(super) fn first_deadline(&self) -> Option<Cycles> {
        self.packets.iter().map(|packet| packet.until).min()
    }

    /// Takes all chains.
    pub(super) fn take_all(&mut self) -> Vec<Chain> {
        let packets = core::mem::take(&mut self.packets);
        packets.into_iter().flat_map(|packet| packet.fragments).map(|(_, bytes)| bytes).collect()
    }
}
