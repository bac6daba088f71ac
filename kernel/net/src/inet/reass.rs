//! Packets that arrive in fragments (4.4BSD, `ip_reass`; RFC 791, RFC 815).
//!
//! Fragments of one packet wait for each other, in order, for half a minute at most. One that laps over another, but
//! for being the same again, throws the whole packet away: no sound sender makes it, and what the two say of the same
//! bytes may differ. Where more wait than there is room for, the packet that has waited for longest gives way.
//!
//! # Locks
//! That of the network, over all of it.
//!
//! # What can fail
//! Nothing: what does not fit is dropped and counted, as on any wire.

use super::fragments::{Fragment, Packet, PacketKey};
use super::stack::Stack;
use alloc::vec::Vec;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Cycles, Machine};

/// Packets, and fragments of all of them, that wait.
const MAX_PACKETS: usize = 16;
const MAX_FRAGMENTS: usize = 128;
/// How long a packet waits for the rest of it (`IPFRAGTTL`).
const WAIT_MS: u64 = 30_000;
/// The longest packet, without its header.
const MAX_BYTES: usize = 65_535 - 20;
/// What begins anywhere but here is in the middle of a packet.
const UNIT_BYTES: usize = 8;

impl<M: Machine> Stack<'_, M> {
    /// Takes in a fragment, without its header; the packet that is whole by it.
    pub(super) fn reassemble(&mut self, key: PacketKey, fragment: Fragment, bytes: Chain) -> Option<Chain> {
        let len = bytes.len();
        let odd = fragment.more && !len.is_multiple_of(UNIT_BYTES);
        if len == 0 || odd || fragment.offset + len > MAX_BYTES {
            self.s.counts.malformed += 1;
            self.free(bytes);
            return None;
        }
        let until = self.now() + self.cycles(WAIT_MS);
        let nth = match self.s.fragments.0.iter().position(|packet| packet.key == key) {
            Some(nth) => nth,
            None => {
                while self.s.fragments.0.len() >= MAX_PACKETS || self.s.fragments.queued() >= MAX_FRAGMENTS {
                    self.s.counts.no_room += 1;
                    self.give_up(0);
                }
                self.s.fragments.0.push(Packet { key, until, fragments: Vec::new(), len: None });
                self.s.fragments.0.len() - 1
            }
        };
        let full = self.s.fragments.queued() >= MAX_FRAGMENTS;
        let packet = &mut self.s.fragments.0[nth];
        match packet.place(fragment, len) {
            Ok(Some(at)) if !full => {
                packet.fragments.insert(at, (fragment.offset, bytes));
                if !fragment.more {
                    packet.len = Some(fragment.offset + len);
                }
            }
            Ok(None) => self.free(bytes),
            _ => {
                self.s.counts.malformed += 1;
                self.free(bytes);
                self.give_up(nth);
                return None;
            }
        }
        if !self.s.fragments.0[nth].is_whole() {
            return None;
        }
        let mut whole = Chain::new();
        for (_, bytes) in self.s.fragments.0.remove(nth).fragments {
            bytes.into_mbufs().into_iter().for_each(|mbuf| whole.push_back(mbuf));
        }
        Some(whole)
    }

    /// Throws away what there is of a packet.
    fn give_up(&mut self, nth: usize) {
        let packet = self.s.fragments.0.remove(nth);
        packet.fragments.into_iter().for_each(|(_, bytes)| self.free(bytes));
    }

    /// Gives up what has waited for too long.
    pub(super) fn fragment_timers(&mut self, now: Cycles) {
        while let Some(nth) = self.s.fragments.0.iter().position(|packet| packet.until <= now) {
            self.s.counts.no_room += 1;
            self.give_up(nth);
        }
    }
}
