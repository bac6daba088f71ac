//! One array of TLB entries: sets of some ways, each with the tag by which it is found and the time of its last use.
//!
//! The oldest entry of a set goes first, or the one that a counter names; what goes is returned to the TLB
//! ([`super::tlb`]), which counts time and knows other arrays.

use super::access::Site;
use super::size::{PageShifts, PageSize};
use pageferry_hal::{Asid, CpuId, Pa, SpaceId, Va};

/// Shape of one array of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlbGeometry {
    /// Entries.
    pub(crate) entries: usize,
    /// Ways of a set; 0 for a fully associative array.
    pub(crate) ways: usize,
}

/// Which entry of a set a new one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    /// A free one, or the one used longest ago.
    Lru,
    /// The one that a counter of look-ups names, free or not.
    Counter,
}

/// What a TLB remembers of a translation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Virtual page number in units of the page's own size, or `u64::MAX` in a free slot.
    pub(crate) page: u64,
    pub(crate) cpu: CpuId,
    /// The tag; 0 in entries that match whatever the address space, and where there are no tags.
    pub(crate) asid: Asid,
    pub(crate) size: PageSize,
    /// First byte of the page in physical memory.
    pub(crate) base: Pa,
    pub(crate) writable: bool,
    pub(crate) user: bool,
    pub(crate) dirty: bool,
    pub(crate) global: bool,
    /// Whose mapping it was made from.
    pub(crate) space: SpaceId,
    /// Number of the change that made it stale, counted from 1; 0 while the mapping stands.
    pub(crate) stale: u32,
    /// The caller that loaded it, where software does.
    pub(crate) loaded_by: Option<Site>,
}

impl Entry {
    pub(crate) fn new(va: Va, shifts: PageShifts, size: PageSize, cpu: CpuId) -> Entry {
        Entry {
            page: shifts.number(va, size),
            cpu,
            asid: Asid::KERNEL,
            size,
            base: Pa(0),
            writable: false,
            user: false,
            dirty: false,
            global: false,
            space: SpaceId::KERNEL,
            stale: 0,
            loaded_by: None,
        }
    }
}

/// The tag of a free slot.
pub(super) const FREE: u64 = u64::MAX;

/// Where the ASID is in a tag: above all bits of a page number of 36 bits, which is one of a 48-bit address.
const ASID_SHIFT: u32 = 44;

/// Unlike for unlike arguments: where pages have more bits than are left beside the ASID, these repeat the highest one
/// below, so that what the ASID changes in them can be found.
#[inline]
pub(super) fn tag_of(page: u64, cpu: CpuId, size: PageSize, asid: Asid) -> u64 {
    (page << 8 | u64::from(cpu.0) << 2 | size as u64) ^ u64::from(asid.0) << ASID_SHIFT
}

/// Where `tag` is first. Eight at a time, without leaving in their middle: that suits vector instructions.
#[inline]
fn position_of(tags: &[u64], tag: u64) -> Option<usize> {
    let (groups, rest) = tags.as_chunks::<8>();
    let found = groups.iter().position(|group| group.iter().fold(false, |found, &t| found | (t == tag)));
    let (start, tags) = match found {
        Some(i) => (8 * i, &groups[i][..]),
        None => (tags.len() - rest.len(), rest),
    };
    tags.iter().position(|&t| t == tag).map(|i| start + i)
}

/// Sets of entries.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) ways: usize,
    pub(super) sets: usize,
    /// Entries in use, by the size of their pages: what has none of a size is not searched for it.
    live: [usize; PageSize::ALL.len()],
    /// Tags apart from entries: a look-up scans only these. See [`tag_of`].
    pub(super) tags: Vec<u64>,
    /// When each entry was last used: the search for a victim scans only these.
    pub(super) used_at: Vec<u64>,
    pub(super) entries: Vec<Entry>,
    pub(super) replace: Replace,
    /// Entries at the beginning that only a load of just this entry takes.
    pub(super) reserved: usize,
}

impl Array {
    pub(super) fn new(g: TlbGeometry, replace: Replace) -> Array {
        let ways = if g.ways == 0 { g.entries } else { g.ways };
        assert!(
            ways > 0 && g.entries.is_multiple_of(ways),
            "a TLB of {} entries cannot have {} ways",
            g.entries,
            g.ways
        );
        let free = Entry { page: FREE, ..Entry::new(Va(0), PageShifts::NONE, PageSize::Base, CpuId(0)) };
        Array {
            ways,
            sets: g.entries / ways,
            live: [0; PageSize::ALL.len()],
            tags: vec![FREE; g.entries],
            used_at: vec![0; g.entries],
            entries: vec![free; g.entries],
            replace,
            reserved: 0,
        }
    }

    /// Entries in use.
    pub(super) fn live(&self) -> usize {
        self.live.iter().sum()
    }

    /// True when an entry maps a page of this size.
    #[inline]
    pub(super) fn has(&self, size: PageSize) -> bool {
        self.live[size as usize] > 0
    }

    #[inline]
    pub(super) fn set(&self, page: u64) -> usize {
        let sets = self.sets as u64;
        // A division on every look-up would be felt.
        let set = if sets.is_power_of_two() { page & (sets - 1) } else { page % sets };
        set as usize * self.ways
    }

    #[inline]
    pub(super) fn find(&self, page: u64, cpu: CpuId, size: PageSize, asid: Asid) -> Option<usize> {
        if !self.has(size) {
            return None;
        }
        let (start, tag) = (self.set(page), tag_of(page, cpu, size, asid));
        position_of(&self.tags[start..start + self.ways], tag).map(|way| start + way)
    }

    /// Puts `entry` into its set; what was in its place is returned with its last use.
    #[inline]
    pub(super) fn insert(&mut self, entry: Entry, used_at: u64) -> (usize, Option<(Entry, u64)>) {
        let start = self.set(entry.page);
        let set = (start + self.reserved)..start + self.ways;
        let slot = match self.replace {
            Replace::Counter => set.start + used_at as usize % set.len(),
            Replace::Lru => match position_of(&self.tags[set.clone()], FREE) {
                Some(way) => set.start + way,
                None => set.min_by_key(|&i| self.used_at[i]).expect("a set has ways"),
            },
        };
        (slot, self.put(slot, entry, used_at))
    }

    /// Puts `entry` into this slot; what was there is returned with its last use.
    #[inline]
    pub(super) fn put(&mut self, slot: usize, entry: Entry, used_at: u64) -> Option<(Entry, u64)> {
        let old = (self.tags[slot] != FREE).then(|| (self.entries[slot], self.used_at[slot]));
        if let Some((old, _)) = &old {
            self.live[old.size as usize] -= 1;
        }
        self.live[entry.size as usize] += 1;
        self.tags[slot] = tag_of(entry.page, entry.cpu, entry.size, entry.asid);
        self.used_at[slot] = used_at;
        self.entries[slot] = entry;
        old
    }

    #[inline]
    pub(super) fn clear(&mut self, slot: usize) -> Entry {
        assert!(self.tags[slot] != FREE, "an entry goes once");
        self.tags[slot] = FREE;
        self.live[self.entries[slot].size as usize] -= 1;
        self.entries[slot]
    }

    /// Clears the entries of `cpu` from slot `first` on that `goes` names.
    pub(super) fn clear_some(&mut self, first: usize, cpu: CpuId, goes: impl Fn(&Entry) -> bool) {
        for slot in first..self.tags.len() {
            if self.tags[slot] != FREE && self.entries[slot].cpu == cpu && goes(&self.entries[slot]) {
                self.clear(slot);
            }
        }
    }
}
