//! Translation look-aside buffers.
//!
//! One [`Tlb`] serves one core: its logical CPUs share the entries, and each entry is tagged with the CPU that it
//! belongs to (as hyper-threaded NetBurst processors do). The first level holds 4 KB pages and superpages, in one array
//! or two; an optional second level holds 4 KB pages only and is looked up when the first misses. Both levels are true
//! LRU within a set. An entry remembers from which page-table entries it was made, so that the oracle
//! ([`crate::oracle`]) can tell whether those still stand.

use pageferry_hal::{CpuId, Pa, Va};

/// Shape of one array of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlbGeometry {
    /// Entries.
    pub(crate) entries: usize,
    /// Ways of a set; 0 for a fully associative array.
    pub(crate) ways: usize,
}

/// What a TLB remembers of a translation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Virtual page number in units of the page's own size, or `u64::MAX` in a free slot.
    pub(crate) page: u64,
    pub(crate) cpu: CpuId,
    pub(crate) superpage: bool,
    /// First byte of the page or superpage in physical memory.
    pub(crate) base: Pa,
    pub(crate) writable: bool,
    pub(crate) user: bool,
    pub(crate) dirty: bool,
    pub(crate) global: bool,
    /// The page-table entries it was made from; the leaf is `path[0]`, unused levels hold [`NO_PTE`].
    pub(crate) path: [Pa; 4],
    /// Number of the change that made it stale, counted from 1; 0 while the mapping stands.
    pub(crate) stale: u32,
}

const FREE: u64 = u64::MAX;

/// Stands for a level that a translation was not made from.
pub(crate) const NO_PTE: Pa = Pa(u64::MAX);

impl Entry {
    pub(crate) fn new(va: Va, superpage_shift: u32, superpage: bool, cpu: CpuId) -> Entry {
        Entry {
            page: page_number(va, superpage, superpage_shift),
            cpu,
            superpage,
            base: Pa(0),
            writable: false,
            user: false,
            dirty: false,
            global: false,
            path: [NO_PTE; 4],
            stale: 0,
        }
    }
}

fn page_number(va: Va, superpage: bool, superpage_shift: u32) -> u64 {
    va.0 >> if superpage { superpage_shift } else { pageferry_hal::PAGE_SHIFT }
}

#[derive(Debug)]
struct Array {
    ways: usize,
    sets: usize,
    /// Entries in use.
    live: usize,
    /// Tags apart from entries: a look-up scans only these. `page << 8 | cpu << 1 | superpage`.
    tags: Vec<u64>,
    /// When each entry was last used: the search for a victim scans only these.
    used_at: Vec<u64>,
    entries: Vec<Entry>,
}

/// Where `tag` is first. Eight at a time, without leaving in their middle: that suits vector instructions.
fn position_of(tags: &[u64], tag: u64) -> Option<usize> {
    let (groups, rest) = tags.as_chunks::<8>();
    let found = groups.iter().position(|group| group.iter().fold(false, |found, &t| found | (t == tag)));
    let (start, tags) = match found {
        Some(i) => (8 * i, &groups[i][..]),
        None => (tags.len() - rest.len(), rest),
    };
    tags.iter().position(|&t| t == tag).map(|i| start + i)
}

/// The CPU's number in a tag, moved to the low end.
const CPU_MASK: u64 = 0x7f;

fn tag_of(page: u64, cpu: CpuId, superpage: bool) -> u64 {
    page << 8 | u64::from(cpu.0) << 1 | u64::from(superpage)
}

impl Array {
    fn new(g: TlbGeometry) -> Array {
        let ways = if g.ways == 0 { g.entries } else { g.ways };
        assert!(
            ways > 0 && g.entries.is_multiple_of(ways),
            "a TLB of {} entries cannot have {} ways",
            g.entries,
            g.ways
        );
        let free = Entry { page: FREE, ..Entry::new(Va(0), 21, false, CpuId(0)) };
        Array {
            ways,
            sets: g.entries / ways,
            live: 0,
            tags: vec![FREE; g.entries],
            used_at: vec![0; g.entries],
            entries: vec![free; g.entries],
        }
    }

    fn set(&self, page: u64) -> usize {
        (page % self.sets as u64) as usize * self.ways
    }

    fn find(&self, page: u64, cpu: CpuId, superpage: bool) -> Option<usize> {
        if self.live == 0 {
            return None;
        }
        let (start, tag) = (self.set(page), tag_of(page, cpu, superpage));
        position_of(&self.tags[start..start + self.ways], tag).map(|way| start + way)
    }

    /// Puts `entry` into its set, in a free slot or in place of the one used longest ago, which is returned with its last
    /// use.
    fn insert(&mut self, entry: Entry, used_at: u64) -> (usize, Option<(Entry, u64)>) {
        let start = self.set(entry.page);
        let set = start..start + self.ways;
        let slot = match position_of(&self.tags[set.clone()], FREE) {
            Some(way) => start + way,
            None => set.min_by_key(|&i| self.used_at[i]).expect("a set has ways"),
        };
        let old = (self.tags[slot] != FREE).then(|| (self.entries[slot], self.used_at[slot]));
        self.live += usize::from(old.is_none());
        self.tags[slot] = tag_of(entry.page, entry.cpu, entry.superpage);
        self.used_at[slot] = used_at;
        self.entries[slot] = entry;
        (slot, old)
    }

    fn clear(&mut self, slot: usize) -> Entry {
        assert!(self.tags[slot] != FREE, "an entry goes once");
        self.live -= 1;
        self.tags[slot] = FREE;
        self.entries[slot]
    }
}

/// Where an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    First,
    Second,
}

/// The data TLB of one core. Invariant: an entry is in at most one array, and no two match the same CPU and page.
#[derive(Debug)]
pub(crate) struct Tlb {
    small: Array,
    /// Apart only where the hardware keeps superpages apart.
    large: Option<Array>,
    second: Option<Array>,
    superpage_shift: u32,
    clock: u64,
    /// The slot that each CPU used last in `small`: consecutive accesses to one page skip the scan.
    last: Vec<usize>,
}

impl Tlb {
    pub(crate) fn new(
        first: TlbGeometry,
        superpage_entries: usize,
        second: Option<TlbGeometry>,
        superpage_shift: u32,
        cpus: usize,
    ) -> Tlb {
        Tlb {
            small: Array::new(first),
            large: (superpage_entries > 0)
                .then(|| Array::new(TlbGeometry { entries: superpage_entries, ways: 0 })),
            second: second.map(Array::new),
            superpage_shift,
            clock: 0,
            last: vec![0; cpus],
        }
    }

    /// The entry for `va`, now the most recently used. An entry of the second level moves up to the first.
    ///
    /// A dropped entry (one that found no room in any level) is handed to `dropped`.
    pub(crate) fn lookup(
        &mut self,
        cpu: CpuId,
        va: Va,
        dropped: &mut dyn FnMut(&Entry),
    ) -> Option<(Level, &mut Entry)> {
        self.clock += 1;
        let page = page_number(va, false, self.superpage_shift);
        let hint = self.last[cpu.index()];
        let found = if self.small.tags[hint] == tag_of(page, cpu, false) {
            Some(hint)
        } else {
            self.small.find(page, cpu, false)
        };
        if let Some(slot) = found {
            self.last[cpu.index()] = slot;
            self.small.used_at[slot] = self.clock;
            return Some((Level::First, &mut self.small.entries[slot]));
        }
        let large_page = page_number(va, true, self.superpage_shift);
        let clock = self.clock;
        let large = self.large.as_mut().unwrap_or(&mut self.small);
        if let Some(slot) = large.find(large_page, cpu, true) {
            large.used_at[slot] = clock;
            // Borrowed again: the compiler cannot see that the two returns exclude one another.
            let large = self.large.as_mut().unwrap_or(&mut self.small);
            return Some((Level::First, &mut large.entries[slot]));
        }
        let second = self.second.as_mut()?;
        let slot = second.find(page, cpu, false)?;
        let entry = second.clear(slot);
        let slot = self.insert(entry, dropped);
        self.last[cpu.index()] = slot;
        Some((Level::Second, &mut self.small.entries[slot]))
    }

    /// Adds an entry that was just made; what it displaces moves to the second level or is dropped.
    pub(crate) fn fill(&mut self, entry: Entry, dropped: &mut dyn FnMut(&Entry)) {
        self.clock += 1;
        if let Some(large) = self.large.as_mut().filter(|_| entry.superpage) {
            if let (_, Some((old, _))) = large.insert(entry, self.clock) {
                dropped(&old);
            }
            return;
        }
        let slot = self.insert(entry, dropped);
        self.last[entry.cpu.index()] = slot;
    }

    fn insert(&mut self, entry: Entry, dropped: &mut dyn FnMut(&Entry)) -> usize {
        let (slot, old) = self.small.insert(entry, self.clock);
        if let Some((old, used_at)) = old {
            match self.second.as_mut() {
                Some(second) if !old.superpage => {
                    if let (_, Some((old, _))) = second.insert(old, used_at) {
                        dropped(&old);
                    }
                }
                _ => dropped(&old),
            }
        }
        slot
    }

    fn arrays(&mut self) -> impl Iterator<Item = &mut Array> {
        std::iter::once(&mut self.small).chain(self.large.as_mut()).chain(self.second.as_mut())
    }

    /// Drops the CPU's entry for the page at `va`, of either size.
    pub(crate) fn invalidate_page(&mut self, cpu: CpuId, va: Va, dropped: &mut dyn FnMut(&Entry)) {
        let shift = self.superpage_shift;
        for array in self.arrays() {
            for superpage in [false, true] {
                if let Some(slot) = array.find(page_number(va, superpage, shift), cpu, superpage) {
                    dropped(&array.clear(slot));
                }
            }
        }
    }

    /// Drops the CPU's entries; global ones only when asked to.
    pub(crate) fn invalidate_all(&mut self, cpu: CpuId, global_too: bool, dropped: &mut dyn FnMut(&Entry)) {
        for array in self.arrays().filter(|a| a.live > 0) {
            for slot in 0..array.tags.len() {
                let tag = array.tags[slot];
                if tag != FREE
                    && tag >> 1 & CPU_MASK == u64::from(cpu.0)
                    && (global_too || !array.entries[slot].global)
                {
                    dropped(&array.clear(slot));
                }
            }
        }
    }

    /// Calls `visit` on every entry that was made from the page-table entry at `pte`.
    pub(crate) fn for_each_made_from(&mut self, pte: Pa, visit: &mut dyn FnMut(&mut Entry)) {
        self.for_each(&mut |entry| {
            if entry.path.contains(&pte) {
                visit(entry);
            }
        });
    }

    /// Calls `visit` on every entry.
    pub(crate) fn for_each(&mut self, visit: &mut dyn FnMut(&mut Entry)) {
        for array in self.arrays().filter(|a| a.live > 0) {
            for slot in 0..array.tags.len() {
                if array.tags[slot] != FREE {
                    visit(&mut array.entries[slot]);
                }
            }
        }
    }

    /// Entries in use.
    pub(crate) fn live(&self) -> usize {
        self.small.live
            + self.large.as_ref().map_or(0, |a| a.live)
            + self.second.as_ref().map_or(0, |a| a.live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: CpuId = CpuId(0);

    fn entry(vpn: u64, cpu: CpuId) -> Entry {
        Entry::new(Va(vpn << 12), 21, false, cpu)
    }

    fn hit(tlb: &mut Tlb, vpn: u64, cpu: CpuId) -> Option<Level> {
        tlb.lookup(cpu, Va(vpn << 12), &mut |_| ()).map(|(l, _)| l)
    }

    #[test]
    fn least_recently_used_goes_first() {
        let mut tlb = Tlb::new(TlbGeometry { entries: 2, ways: 0 }, 0, None, 21, 1);
        let mut gone = Vec::new();
        for vpn in [1, 2] {
            tlb.fill(entry(vpn, CPU), &mut |e| gone.push(e.page));
        }
        assert_eq!(hit(&mut tlb, 1, CPU), Some(Level::First));
        tlb.fill(entry(3, CPU), &mut |e| gone.push(e.page));
        assert_eq!(gone, [2]);
        assert_eq!(hit(&mut tlb, 2, CPU), None);
        assert_eq!(tlb.live(), 2);
    }

    #[test]
    fn siblings_share_room_but_not_entries() {
        let mut tlb = Tlb::new(TlbGeometry { entries: 2, ways: 0 }, 0, None, 21, 2);
        tlb.fill(entry(7, CPU), &mut |_| ());
        assert_eq!(hit(&mut tlb, 7, CpuId(1)), None);
        tlb.fill(entry(7, CpuId(1)), &mut |_| ());
        tlb.invalidate_page(CpuId(1), Va(7 << 12), &mut |_| ());
        assert_eq!(hit(&mut tlb, 7, CPU), Some(Level::First));
        assert_eq!(hit(&mut tlb, 7, CpuId(1)), None);
    }

    #[test]
    fn the_second_level_catches_what_the_first_drops() {
        let second = Some(TlbGeometry { entries: 4, ways: 4 });
        let mut tlb = Tlb::new(TlbGeometry { entries: 1, ways: 0 }, 1, second, 21, 1);
        tlb.fill(entry(1, CPU), &mut |_| ());
        tlb.fill(entry(2, CPU), &mut |_| panic!("nothing is dropped yet"));
        assert_eq!(hit(&mut tlb, 1, CPU), Some(Level::Second));
        assert_eq!(hit(&mut tlb, 1, CPU), Some(Level::First));
        assert_eq!(hit(&mut tlb, 2, CPU), Some(Level::Second));
        tlb.invalidate_all(CPU, true, &mut |_| ());
        assert_eq!(tlb.live(), 0);
    }

    #[test]
    fn superpages_and_global_entries() {
        let mut tlb = Tlb::new(TlbGeometry { entries: 4, ways: 0 }, 0, None, 21, 1);
        let mut e = Entry::new(Va(0x40_0000), 21, true, CPU);
        e.global = true;
        tlb.fill(e, &mut |_| ());
        tlb.fill(entry(1, CPU), &mut |_| ());
        tlb.invalidate_all(CPU, false, &mut |_| ());
        assert!(tlb.lookup(CPU, Va(0x5f_f000), &mut |_| ()).is_some());
        assert_eq!(tlb.live(), 1);
        tlb.invalidate_page(CPU, Va(0x41_0000), &mut |_| ());
        assert_eq!(tlb.live(), 0);
    }
}
