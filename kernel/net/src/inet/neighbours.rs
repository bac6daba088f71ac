//! What is known of neighbours: the stations of those that have answered, and packets for those that have not.

use super::alarm::Alarm;
use super::wire::SumBy;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use litemap::LiteMap;
use pageferry_core::mbuf::Chain;
use pageferry_hal::{Cycles, MacAddress};

/// Neighbours that are known or asked for at a time.
const MAX_ENTRIES: usize = 256;

/// What is known of neighbours.
#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: LiteMap<Ipv4Addr, Entry>,
    pub(super) alarm: Alarm,
}

pub(super) enum Entry {
    Known(Station),
    Asked { tries: u32, next: Cycles, waiting: VecDeque<(Chain, SumBy)> },
}

/// A station, and when it is to be asked for again.
pub(super) struct Station {
    pub(super) address: MacAddress,
    pub(super) until: Cycles,
}

impl Station {
    /// It need not be asked for at `now`.
    pub(super) fn is_believed(&self, now: Cycles) -> bool {
        now < self.until
    }
}

impl Table {
    /// Packets that wait for an address.
    pub(super) fn queued(&self) -> usize {
        self.entries
            .values()
            .map(|e| if let Entry::Asked { waiting, .. } = e { waiting.len() } else { 0 })
            .sum()
    }

    /// When the first question is to be asked again.
    pub(super) fn first_deadline(&self) -> Option<Cycles> {
        let asked = |e: &Entry| if let Entry::Asked { next, .. } = e { Some(*next) } else { None };
        self.entries.values().filter_map(asked).min()
    }

    /// Forgets all; answers the packets that waited.
    pub(super) fn take_all(&mut self) -> Vec<Chain> {
        let entries = core::mem::take(&mut self.entries);
        let waiting = |e| if let Entry::Asked { waiting, .. } = e { waiting } else { VecDeque::new() };
        entries.into_iter().flat_map(|(_, entry)| waiting(entry)).map(|(chain, _)| chain).collect()
    }

    /// A place for one more neighbour: that of one that was known, if all are taken.
    pub(super) fn make_room(&mut self) -> bool {
        if self.entries.len() < MAX_ENTRIES {
            return true;
        }
        let known = self.entries.iter().find(|(_, e)| matches!(e, Entry::Known(_))).map(|(a, _)| *a);
        known.map(|address| self.entries.remove(&address)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cycles, MacAddress, Station};

    #[test]
    fn an_answer_is_believed_for_its_time_and_no_longer() {
        let station = Station { address: MacAddress([2, 0, 0, 0, 0, 1]), until: Cycles(100) };
        for (now, expected) in [(0, true), (99, true), (100, false), (101, false)] {
            assert_eq!(station.is_believed(Cycles(now)), expected, "at {now}");
        }
    }
}
