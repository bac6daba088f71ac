//! Packets that arrive in fragments (4.4BSD, `ip_reass`; RFC 791, RFC 815).
//!
//! Fragments of one packet wait for each other, in order, for half a minute at most. One that laps over another, but
//! for being the same again, throws the whole packet away: no sound sender makes it, and what the two say of the same
//! bytes may differ. Where more wait than there is room for, the packet that has waited for longest gives way.
//!
//! # Locks
//! That of the fragments, over all of it.
//!
//! # What can fail
//! Nothing: what does not fit is dropped and counted, as on any wire.

use super::alarm::Part;
use super::fragments::{Fragment, Fragments, Packet, PacketKey};
use super::stack::Ip;
use alloc::vec::Vec;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Cycles, Machine, SpinLock};

/// Packets, and fragments of all of them, that wait.
const MAX_PACKETS: usize = 16;
const MAX_FRAGMENTS: usize = 128;
/// How long a packet waits for the rest of it (`IPFRAGTTL`).
const WAIT_MS: u64 = 30_000;
/// The longest packet, without its header.
const MAX_BYTES: usize = 65_535 - 20;
/// What begins anywhere but here is in the middle of a packet.
const UNIT_BYTES: usize = 8;

impl<M: Machine> Ip<'_, M> {
    /// Works on what waits.
    pub(super) fn with_fragments<R>(&self, work: impl FnOnce(&mut Fragments) -> R) -> R {
        let mut held = self.net.fragments.lock();
        let result = work(&mut held);
        let first = held.first_deadline();
        self.net.set_alarm(&mut held.alarm, Part::Fragments, first);
        result
    }

    /// Takes in a fragment, without its header; the packet that is whole by it.
    pub(super) fn reassemble(&self, key: PacketKey, fragment: Fragment, bytes: Chain) -> Option<Chain> {
        let len = bytes.len();
        let odd = fragment.more && !len.is_multiple_of(UNIT_BYTES);
        if len == 0 || odd || fragment.offset + len > MAX_BYTES {
            self.net.tally.malformed.add(1);
            self.free(bytes);
            return None;
        }
        let until = self.now() + self.cycles(WAIT_MS);
        self.with_fragments(|all| match self.is_ending() {
            true => {
                self.free(bytes);
                None
            }
            false => self.put(all, (key, until), fragment, bytes),
        })
    }

    /// Puts a fragment with the others of its packet, which begins to wait now if there are none.
    fn put(
        &self,
        all: &mut Fragments,
        (key, until): (PacketKey, Cycles),
        fragment: Fragment,
        bytes: Chain,
    ) -> Option<Chain> {
        let len = bytes.len();
        let nth = match all.packets.iter().position(|packet| packet.key == key) {
            Some(nth) => nth,
            None => {
                while all.packets.len() >= MAX_PACKETS || all.queued() >= MAX_FRAGMENTS {
                    self.net.tally.no_room.add(1);
                    self.give_up(all, 0);
                }
                all.packets.push(Packet { key, until, fragments: Vec::new(), len: None });
                all.packets.len() - 1
            }
        };
        let full = all.queued() >= MAX_FRAGMENTS;
        let packet = &mut all.packets[nth];
        match packet.place(fragment, len) {
            Ok(Some(at)) if !full => {
                packet.fragments.insert(at, (fragment.offset, bytes));
                if !fragment.more {
                    packet.len = Some(fragment.offset + len);
                }
            }
            Ok(None) => self.free(bytes),
            _ => {
                self.net.tally.malformed.add(1);
                self.free(bytes);
                self.give_up(all, nth);
                return None;
            }
        }
        if !all.packets[nth].is_whole() {
            return None;
        }
        let mut whole = Chain::new();
        for (_, bytes) in all.packets.remove(nth).fragments {
            bytes.into_mbufs().into_iter().for_each(|mbuf| whole.push_back(mbuf));
        }
        Some(whole)
    }

    /// Throws away what there is of a packet.
    fn give_up(&self, all: &mut Fragments, nth: usize) {
        let packet = all.packets.remove(nth);
        packet.fragments.into_iter().for_each(|(_, bytes)| self.free(bytes));
    }

    /// Gives up what has waited for too long; callout `number` has come.
    pub(super) fn fragment_timers(&self, number: u64, now: Cycles) {
        self.with_fragments(|all| {
            all.alarm.came(number);
            while let Some(nth) = all.packets.iter().position(|packet| packet.until <= now) {
                self.net.tally.no_room.add(1);
                self.give_up(all, nth);
            }
        });
    }
}
