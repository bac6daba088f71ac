//! Translation look-aside buffers.
//!
//! One [`Tlb`] serves one core: its logical CPUs share the entries, and each entry is tagged with the CPU that it
//! belongs to (as hyper-threaded NetBurst processors do) and with its address space's ASID. The first level holds pages
//! of every size ([`super::size`]), in one array or several; an optional second level holds pages, and superpages where
//! the machine says so, and is looked up when the first misses. Hardware takes the entry of a set that was used longest
//! ago; a TLB that software loads may have a counter instead, which counts look-ups and names the entry that the next
//! load takes. Its first entries can be reserved.

use super::access::Site;
use super::array::{Array, FREE, tag_of};
pub(crate) use super::array::{Entry, Replace, TlbGeometry};
use super::size::{PageShifts, PageSize};
use pageferry_hal::{Asid, CpuId, SpaceId, Va};

/// Where a load by software is to put its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadAt {
    /// Where hardware says.
    Any,
    /// In this entry, which is reserved.
    Reserved(usize),
    /// In this entry, which is not.
    Chosen(usize),
}

/// Pages that are remembered beside a TLB: see [`Aside`].
const ASIDES: usize = 64;

/// Where a page was found last, so that the host need not look for it again: by its own entry, or in the array of a
/// larger size while there is no entry of a smaller one for the page. The entry is looked at before it is believed, and
/// what a load or a fill puts into the TLB for the page takes this place ([`Tlb::remember`]): so the answer is always
/// the one that a search would give.
#[derive(Clone, Copy, Debug)]
struct Aside {
    /// Of the page, not the superpage.
    tag: u64,
    slot: usize,
    size: PageSize,
}

const NO_ASIDE: Aside = Aside { tag: FREE, slot: 0, size: PageSize::Base };

/// The only place where the page with this tag is remembered.
fn aside_of(tag: u64) -> usize {
    // Neighbours have places of their own, and so have the CPUs of a core.
    ((tag >> 8 ^ tag << 4) as usize) % ASIDES
}

/// Where an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    First,
    Second,
}

/// The TLB of one core. Invariant: an entry is in at most one array, and no two match the same CPU, address space and
/// page.
#[derive(Debug)]
pub(crate) struct Tlb {
    small: Array,
    /// Apart only where the hardware keeps superpages apart,
    large: Option<Array>,
    /// and huge pages.
    huge: Option<Array>,
    second: Option<Array>,
    /// The second level takes superpages too.
    second_superpages: bool,
    shifts: PageShifts,
    /// Counts look-ups and fills.
    clock: u64,
    asides: [Aside; ASIDES],
    /// Software has loaded an entry of a larger page, once.
    larger_loaded: bool,
}

/// What a TLB looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlbShape {
    pub(crate) first: TlbGeometry,
    /// Entries for superpages alone; 0 where they share the first level's.
    pub(crate) superpages: usize,
    /// Entries for huge pages alone; 0 where they share the first level's, or there are no such pages.
    pub(crate) huge_pages: usize,
    pub(crate) second: Option<TlbGeometry>,
    /// The second level takes superpages too.
    pub(crate) second_superpages: bool,
    pub(crate) shifts: PageShifts,
    pub(crate) replace: Replace,
    /// Entries of the first level that are set aside from the start.
    pub(crate) reserved: usize,
}

impl Tlb {
    pub(crate) fn new(shape: TlbShape) -> Tlb {
        let apart = |entries| {
            let geometry = TlbGeometry { entries, ways: 0 };
            (entries > 0).then(|| Array::new(geometry, Replace::Lru))
        };
        let mut tlb = Tlb {
            small: Array::new(shape.first, shape.replace),
            large: apart(shape.superpages),
            huge: apart(shape.huge_pages),
            second: shape.second.map(|g| Array::new(g, Replace::Lru)),
            second_superpages: shape.second_superpages,
            shifts: shape.shifts,
            clock: 0,
            asides: [NO_ASIDE; ASIDES],
            larger_loaded: false,
        };
        if shape.reserved > 0 {
            tlb.reserve(shape.reserved);
        }
        tlb
    }

    /// The array of the first level that has the entries for pages of this size.
    #[inline]
    fn array_of(&mut self, size: PageSize) -> &mut Array {
        match (size, &mut self.large, &mut self.huge) {
            (PageSize::Super, Some(large), _) => large,
            (PageSize::Huge, _, Some(huge)) => huge,
            _ => &mut self.small,
        }
    }

    /// The entry for `va`, now the most recently used. An entry of the second level moves up to the first.
    #[inline(always)]
    pub(crate) fn lookup(&mut self, cpu: CpuId, asid: Asid, va: Va) -> Option<(Level, &mut Entry)> {
        self.clock += 1;
        let clock = self.clock;
        let shifts = self.shifts;
        let page = shifts.number(va, PageSize::Base);
        let tag = tag_of(page, cpu, PageSize::Base, asid);
        let aside = self.asides[aside_of(tag)];
        if aside.tag == tag {
            let tag = match aside.size {
                PageSize::Base => tag,
                size => tag_of(shifts.number(va, size), cpu, size, asid),
            };
            if self.array_of(aside.size).tags[aside.slot] == tag {
                // Borrowed again: the compiler cannot see that this return excludes what follows.
                let array = self.array_of(aside.size);
                array.used_at[aside.slot] = clock;
                return Some((Level::First, &mut array.entries[aside.slot]));
            }
        }
        self.search_all(cpu, asid, va, tag)
    }

    /// What [`Tlb::lookup`] does with what it has not found by its `tag` at once.
    #[inline(never)]
    fn search_all(&mut self, cpu: CpuId, asid: Asid, va: Va, tag: u64) -> Option<(Level, &mut Entry)> {
        let (clock, shifts) = (self.clock, self.shifts);
        for size in shifts.sizes() {
            let array = self.array_of(size);
            if let Some(slot) = array.find(shifts.number(va, size), cpu, size, asid) {
                array.used_at[slot] = clock;
                self.asides[aside_of(tag)] = Aside { tag, slot, size };
                return Some((Level::First, &mut self.array_of(size).entries[slot]));
            }
        }
        let sizes = if self.second_superpages { 2 } else { 1 };
        let second = self.second.as_mut()?;
        let (size, slot) = PageSize::ALL[..sizes]
            .iter()
            .find_map(|&size| Some((size, second.find(shifts.number(va, size), cpu, size, asid)?)))?;
        let entry = second.clear(slot);
        let slot = self.insert(entry);
        Some((Level::Second, &mut self.array_of(size).entries[slot]))
    }

    /// Adds an entry that was just made; what it displaces moves to the second level or is dropped.
    pub(crate) fn fill(&mut self, entry: Entry) {
        self.clock += 1;
        self.insert(entry);
    }

    fn insert(&mut self, entry: Entry) -> usize {
        let clock = self.clock;
        let (slot, old) = self.array_of(entry.size).insert(entry, clock);
        self.remember(&entry, slot);
        if let (Some((old, used_at)), Some(second)) = (old, self.second.as_mut())
            && (old.size == PageSize::Base || old.size == PageSize::Super && self.second_superpages)
        {
            second.insert(old, used_at);
        }
        slot
    }

    /// An entry came into this slot of the first level.
    fn remember(&mut self, entry: &Entry, slot: usize) {
        match entry.size {
            PageSize::Base => {
                let tag = tag_of(entry.page, entry.cpu, PageSize::Base, entry.asid);
                self.asides[aside_of(tag)] = Aside { tag, slot, size: PageSize::Base };
            }
            // It may map what was found before in a page of a size that is looked for behind its own.
            size => {
                if self.shifts.sizes().any(|other| other > size) {
                    let behind = self.asides.iter_mut().filter(|aside| aside.size > size);
                    behind.for_each(|aside| *aside = NO_ASIDE);
                }
            }
        }
    }

    // ------------------------------------------------------------------------------------------- loads by software

    /// Adds an entry that software made: in place of one that maps the same page, where hardware names the way to use;
    /// else as [`Tlb::fill`], or in this slot. A counter counts look-ups, and stays where it is when it is used.
    ///
    /// # Panics
    /// When two entries would map one page (a multiple hit), or the slot is not of the kind that was said.
    pub(crate) fn load(&mut self, entry: Entry, at: LoadAt) {
        let same = self.array_of(entry.size).find(entry.page, entry.cpu, entry.size, entry.asid);
        let reserved = self.small.reserved;
        let slot = match at {
            LoadAt::Reserved(slot) => {
                assert!(slot < reserved, "entry {slot} of the TLB is not reserved");
                Some(slot)
            }
            LoadAt::Chosen(slot) => {
                assert!(
                    (reserved..self.small.tags.len()).contains(&slot),
                    "entry {slot} of the TLB is not free to be chosen"
                );
                let start = self.small.set(entry.page);
                assert!(
                    (start..start + self.small.ways).contains(&slot),
                    "entry {slot} of the TLB is of another set than the page: a look-up there would not find it"
                );
                Some(slot)
            }
            LoadAt::Any if self.small.replace == Replace::Lru => same,
            LoadAt::Any => None,
        };
        let hit = same.filter(|same| Some(*same) != slot).or_else(|| self.overlapping(&entry, slot));
        if let Some(hit) = hit {
            let by = |by: Option<Site>| by.map_or("hardware".into(), ToString::to_string);
            let (old, size) = (self.small.entries[hit], self.shifts.of(self.small.entries[hit].size));
            panic!(
                "a multiple hit: entry {hit} of the TLB maps {:#x} ({} bytes) of {:?} since {} loaded it, and {} loads \
                 another for {:#x}",
                old.page << size,
                1u64 << size,
                old.space,
                by(old.loaded_by),
                by(entry.loaded_by),
                entry.page << self.shifts.of(entry.size),
            );
        }
        if self.small.replace == Replace::Lru {
            self.clock += 1;
        }
        let clock = self.clock;
        let array = self.array_of(entry.size);
        let slot = match slot {
            Some(slot) => {
                array.put(slot, entry, clock);
                slot
            }
            None => array.insert(entry, clock).0,
        };
        self.larger_loaded |= entry.size != PageSize::Base;
        self.remember(&entry, slot);
    }

    /// An entry of another size, beside the one in `slot`, that maps some of what `entry` maps: for the same space, or
    /// for all.
    fn overlapping(&self, entry: &Entry, slot: Option<usize>) -> Option<usize> {
        if !self.larger_loaded && entry.size == PageSize::Base {
            return None;
        }
        let range = |e: &Entry| (e.page << self.shifts.of(e.size), (e.page + 1) << self.shifts.of(e.size));
        let (start, end) = range(entry);
        let meets = |e: &Entry| {
            let (other_start, other_end) = range(e);
            e.cpu == entry.cpu
                && e.asid == entry.asid
                && e.size != entry.size
                && start < other_end
                && other_start < end
        };
        let array = &self.small;
        (0..array.tags.len()).find(|&i| Some(i) != slot && array.tags[i] != FREE && meets(&array.entries[i]))
    }

    /// The entry that a load takes now if hardware is to say which.
    ///
    /// # Panics
    /// When no counter says so.
    pub(crate) fn random(&self) -> usize {
        assert!(self.small.replace == Replace::Counter, "no counter names entries of this TLB");
        let (reserved, all) = (self.small.reserved, self.small.tags.len());
        reserved + self.clock as usize % (all - reserved)
    }

    /// The entry of the first level for the page at `va`, whatever its size, as software finds it that reads them all.
    pub(crate) fn search(&self, cpu: CpuId, asid: Asid, va: Va) -> Option<usize> {
        let maps = |e: &Entry| e.cpu == cpu && e.asid == asid && e.page == self.shifts.number(va, e.size);
        let array = &self.small;
        (0..array.tags.len()).find(|&i| array.tags[i] != FREE && maps(&array.entries[i]))
    }

    /// Entries of the first level.
    pub(crate) fn entries(&self) -> usize {
        self.small.tags.len()
    }

    /// Keeps the first `entries` entries for [`Tlb::load`] alone. What was in them is dropped.
    ///
    /// # Panics
    /// When the TLB has sets, or nothing would be left.
    pub(crate) fn reserve(&mut self, entries: usize) {
        assert!(self.small.sets == 1, "a TLB with sets cannot reserve entries");
        assert!(
            entries < self.small.ways,
            "{entries} entries of {} are reserved: none would be left",
            self.small.ways
        );
        self.small.reserved = entries;
        (0..entries).for_each(|slot| {
            if self.small.tags[slot] != FREE {
                self.small.clear(slot);
            }
        });
    }

    // ------------------------------------------------------------------------------------------- invalidation

    fn arrays(&mut self) -> impl Iterator<Item = &mut Array> {
        std::iter::once(&mut self.small).chain(&mut self.large).chain(&mut self.huge).chain(&mut self.second)
    }

    /// Drops the CPU's entry for the page at `va`, of any size, reserved or not; true when there was one.
    pub(crate) fn invalidate_page(&mut self, cpu: CpuId, asid: Asid, va: Va) -> bool {
        let shifts = self.shifts;
        let mut live = false;
        for array in self.arrays() {
            for size in shifts.sizes() {
                if let Some(slot) = array.find(shifts.number(va, size), cpu, size, asid) {
                    array.clear(slot);
                    live = true;
                }
            }
        }
        live
    }

    /// Drops the CPU's entries of the set that the page at `va` belongs to, whatever they map.
    pub(crate) fn invalidate_class(&mut self, cpu: CpuId, va: Va) {
        let page = self.shifts.number(va, PageSize::Base);
        for array in self.arrays() {
            let start = array.set(page);
            for slot in start..start + array.ways {
                if array.tags[slot] != FREE && array.entries[slot].cpu == cpu {
                    array.clear(slot);
                }
            }
        }
    }

    /// Drops the CPU's entries, but not reserved ones.
    pub(crate) fn invalidate_all(&mut self, cpu: CpuId) {
        self.arrays().filter(|a| a.live() > 0).for_each(|a| a.clear_some(a.reserved, cpu, |_| true));
    }

    /// Drops the CPU's entries, reserved ones too.
    pub(crate) fn invalidate_everything(&mut self, cpu: CpuId) {
        self.arrays().filter(|a| a.live() > 0).for_each(|a| a.clear_some(0, cpu, |_| true));
    }

    /// Drops the CPU's entries of the address space tagged `asid` that are neither global nor reserved.
    pub(crate) fn invalidate_context(&mut self, cpu: CpuId, asid: Asid) {
        self.arrays()
            .filter(|a| a.live() > 0)
            .for_each(|a| a.clear_some(a.reserved, cpu, |e| !e.global && e.asid == asid));
    }

    /// The CPU's entries for the page at `va`, of this size, tagged `asid`.
    pub(crate) fn for_page(
        &mut self,
        cpu: CpuId,
        asid: Asid,
        va: Va,
        size: PageSize,
        visit: &mut dyn FnMut(&mut Entry),
    ) {
        let page = self.shifts.number(va, size);
        for array in self.arrays() {
            if let Some(slot) = array.find(page, cpu, size, asid) {
                visit(&mut array.entries[slot]);
            }
        }
    }

    /// All entries for the page at `va`, of this size, whatever their tag.
    pub(crate) fn for_page_of_any(&mut self, va: Va, size: PageSize, visit: &mut dyn FnMut(&mut Entry)) {
        let page = self.shifts.number(va, size);
        for array in self.arrays().filter(|a| a.has(size)) {
            let start = array.set(page);
            for slot in start..start + array.ways {
                let entry = &mut array.entries[slot];
                if array.tags[slot] != FREE && entry.page == page && entry.size == size {
                    visit(entry);
                }
            }
        }
    }

    /// Entries in use.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Entry> {
        let arrays = [Some(&self.small), self.large.as_ref(), self.huge.as_ref(), self.second.as_ref()];
        let used = arrays.into_iter().flatten().flat_map(|a| a.tags.iter().zip(&a.entries));
        used.filter(|(tag, _)| **tag != FREE).map(|(_, entry)| entry)
    }

    /// Entries in use, and those of them that are the kernel's.
    pub(crate) fn live_and_kernels(&self) -> (usize, usize) {
        self.in_use().fold((0, 0), |(live, kernels), entry| {
            (live + 1, kernels + usize::from(entry.space == SpaceId::KERNEL))
        })
    }

    /// Entries in use.
    pub(crate) fn live(&self) -> usize {
        let arrays = [Some(&self.small), self.large.as_ref(), self.huge.as_ref(), self.second.as_ref()];
        arrays.into_iter().flatten().map(Array::live).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CPU: CpuId = CpuId(0);
    const NONE: Asid = Asid::KERNEL;
    const SHIFTS: PageShifts = PageShifts { superpage: 21, huge: Some(30), part: Some(10) };

    fn entry(vpn: u64, cpu: CpuId) -> Entry {
        Entry::new(Va(vpn << 12), SHIFTS, PageSize::Base, cpu)
    }

    fn tlb(entries: usize) -> Tlb {
        Tlb::new(shape(entries, Replace::Lru))
    }

    fn shape(entries: usize, replace: Replace) -> TlbShape {
        let first = TlbGeometry { entries, ways: 0 };
        TlbShape {
            first,
            superpages: 0,
            huge_pages: 0,
            second: None,
            second_superpages: false,
            shifts: SHIFTS,
            replace,
            reserved: 0,
        }
    }

    fn hit(tlb: &mut Tlb, vpn: u64, cpu: CpuId) -> Option<Level> {
        tlb.lookup(cpu, NONE, Va(vpn << 12)).map(|(l, _)| l)
    }

    #[test]
    fn least_recently_used_goes_first() {
        let mut tlb = tlb(2);
        tlb.fill(entry(1, CPU));
        tlb.fill(entry(2, CPU));
        assert_eq!(hit(&mut tlb, 1, CPU), Some(Level::First));
        tlb.fill(entry(3, CPU));
        assert_eq!(hit(&mut tlb, 2, CPU), None);
        assert_eq!(hit(&mut tlb, 1, CPU), Some(Level::First));
        assert_eq!(tlb.live(), 2);
    }

    #[test]
    fn siblings_share_room_but_not_entries() {
        let mut tlb = tlb(2);
        tlb.fill(entry(7, CPU));
        assert_eq!(hit(&mut tlb, 7, CpuId(1)), None);
        tlb.fill(entry(7, CpuId(1)));
        assert!(tlb.invalidate_page(CpuId(1), NONE, Va(7 << 12)));
        assert_eq!(hit(&mut tlb, 7, CPU), Some(Level::First));
        assert_eq!(hit(&mut tlb, 7, CpuId(1)), None);
    }

    #[test]
    fn the_second_level_catches_what_the_first_drops() {
        let second = Some(TlbGeometry { entries: 4, ways: 4 });
        let mut tlb = Tlb::new(TlbShape { second, superpages: 1, ..shape(1, Replace::Lru) });
        tlb.fill(entry(1, CPU));
        tlb.fill(entry(2, CPU));
        assert_eq!(tlb.live(), 2, "nothing is dropped yet");
        assert_eq!(hit(&mut tlb, 1, CPU), Some(Level::Second));
        assert_eq!(hit(&mut tlb, 1, CPU), Some(Level::First));
        assert_eq!(hit(&mut tlb, 2, CPU), Some(Level::Second));
        tlb.invalidate_all(CPU);
        assert_eq!(tlb.live(), 0);
    }

    #[test]
    #[should_panic(expected = "of another set than the page")]
    fn an_entry_of_another_set_cannot_be_chosen() {
        let first = TlbGeometry { entries: 4, ways: 2 };
        let mut tlb = Tlb::new(TlbShape { first, ..shape(4, Replace::Lru) });
        tlb.load(entry(1, CPU), LoadAt::Chosen(3));
        assert_eq!(hit(&mut tlb, 1, CPU), Some(Level::First), "its own set");
        tlb.load(entry(2, CPU), LoadAt::Chosen(3));
    }

    #[test]
    fn superpages_and_global_entries() {
        let mut tlb = tlb(4);
        let mut e = Entry::new(Va(0x40_0000), SHIFTS, PageSize::Super, CPU);
        e.global = true;
        tlb.fill(e);
        tlb.fill(entry(1, CPU));
        tlb.invalidate_context(CPU, NONE);
        assert!(tlb.lookup(CPU, NONE, Va(0x5f_f000)).is_some());
        assert_eq!(tlb.live(), 1);
        assert!(tlb.invalidate_page(CPU, NONE, Va(0x41_0000)));
        assert_eq!(tlb.live(), 0);
    }

    #[test]
    fn address_spaces_share_room_but_not_entries() {
        let mut tlb = tlb(4);
        let va = Va(0xffff_8000_0000_7000);
        for asid in [1, 2] {
            tlb.fill(Entry { asid: Asid(asid), ..Entry::new(va, SHIFTS, PageSize::Base, CPU) });
        }
        assert!(tlb.lookup(CPU, Asid(2), va).is_some() && tlb.lookup(CPU, Asid(3), va).is_none());
        let mut seen = Vec::new();
        tlb.for_page_of_any(va, PageSize::Base, &mut |e| seen.push(e.asid.0));
        assert_eq!(seen, [1, 2]);
        tlb.invalidate_context(CPU, Asid(1));
        assert!(tlb.lookup(CPU, Asid(1), va).is_none() && tlb.lookup(CPU, Asid(2), va).is_some());
    }

    #[test]
    fn the_counter_never_names_what_is_reserved() {
        let mut tlb = Tlb::new(shape(8, Replace::Counter));
        tlb.reserve(3);
        tlb.load(entry(1000, CPU), LoadAt::Reserved(2));
        for vpn in 0..100 {
            for other in 0..vpn % 5 {
                hit(&mut tlb, 2000 + other, CPU);
            }
            tlb.load(entry(vpn, CPU), LoadAt::Any);
            assert!(hit(&mut tlb, 1000, CPU).is_some(), "reserved");
        }
        assert!(tlb.live() <= 6);
        tlb.invalidate_all(CPU);
        assert_eq!(tlb.live(), 1, "what is reserved stays");
        assert!(tlb.invalidate_page(CPU, NONE, Va(1000 << 12)));
    }

    #[test]
    #[should_panic(expected = "a multiple hit")]
    fn two_entries_for_one_page_are_refused() {
        let mut tlb = Tlb::new(shape(8, Replace::Counter));
        tlb.load(entry(1, CPU), LoadAt::Any);
        tlb.load(entry(1, CPU), LoadAt::Any);
    }

    #[test]
    fn where_hardware_names_the_way_a_load_replaces_the_same_page() {
        let mut tlb = tlb(8);
        tlb.load(entry(1, CPU), LoadAt::Any);
        tlb.load(Entry { dirty: true, ..entry(1, CPU) }, LoadAt::Any);
        assert_eq!(tlb.live(), 1);
        assert!(tlb.lookup(CPU, NONE, Va(1 << 12)).is_some_and(|(_, e)| e.dirty));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Look { cpu: u8, asid: u32, va: Va },
        Invalidate { cpu: u8, asid: u32, va: Va },
        InvalidateAll { cpu: u8 },
        InvalidateContext { cpu: u8, asid: u32 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Pages of few huge pages and superpages, and pages that are remembered in the same place.
        let vpn =
            (0..2u64, 0..4u64, 0..3u64).prop_map(|(huge, large, small)| huge << 18 | large << 9 | small << 6);
        let va = (vpn, 0..4u64).prop_map(|(vpn, part)| Va(vpn << 12 | part << 10));
        let step = (0..12u8, 0..2u8, 0..2u32, va).prop_map(|(what, cpu, asid, va)| match what {
            0 => Step::Invalidate { cpu, asid, va },
            1 if va.0 >> 12 == 0 => Step::InvalidateAll { cpu },
            1 => Step::InvalidateContext { cpu, asid },
            _ => Step::Look { cpu, asid, va },
        });
        proptest::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_a_search_finds(
            steps in steps(),
            superpages in 0..3usize,
            huge_pages in 0..2usize,
            (second, second_superpages) in any::<(bool, bool)>(),
            huge in any::<[bool; 2]>(),
            large in any::<[bool; 4]>(),
            in_parts in any::<[bool; 2]>(),
        ) {
            let second = second.then_some(TlbGeometry { entries: 8, ways: 4 });
            let shape = TlbShape { superpages, huge_pages, second, second_superpages, ..shape(4, Replace::Lru) };
            let (mut tlb, mut plain) = (Tlb::new(shape), Tlb::new(shape));
            for step in steps {
                match step {
                    Step::Look { cpu, asid, va } => {
                        let (cpu, asid, vpn) = (CpuId(cpu), Asid(asid), va.0 >> 12);
                        plain.asides = [NO_ASIDE; ASIDES];
                        let found = tlb.lookup(cpu, asid, va).map(|(level, e)| (level, e.page, e.size));
                        let expected = plain.lookup(cpu, asid, va).map(|(level, e)| (level, e.page, e.size));
                        prop_assert_eq!(found, expected);
                        if found.is_none() {
                            // Not always the same size for a page: what maps it may have changed.
                            let size = match (vpn & 64, huge[(vpn >> 18) as usize], large[(vpn >> 9) as usize & 3]) {
                                (0, true, _) => PageSize::Huge,
                                (0 | 128, _, true) => PageSize::Super,
                                _ if in_parts[(vpn >> 18) as usize] => PageSize::Part,
                                _ => PageSize::Base,
                            };
                            let entry = Entry { asid, ..Entry::new(va, SHIFTS, size, cpu) };
                            tlb.fill(entry);
                            plain.fill(entry);
                        }
                    }
                    Step::Invalidate { cpu, asid, va } => {
                        let gone = [&mut tlb, &mut plain].map(|t| t.invalidate_page(CpuId(cpu), Asid(asid), va));
                        prop_assert_eq!(gone[0], gone[1]);
                    }
                    Step::InvalidateAll { cpu } => {
                        [&mut tlb, &mut plain].into_iter().for_each(|t| t.invalidate_all(CpuId(cpu)));
                    }
                    Step::InvalidateContext { cpu, asid } => {
                        [&mut tlb, &mut plain].into_iter().for_each(|t| t.invalidate_context(CpuId(cpu), Asid(asid)));
                    }
                }
                let state = |t: &mut Tlb| t.arrays().map(|a| (a.tags.clone(), a.used_at.clone())).collect::<Vec<_>>();
                prop_assert_eq!(state(&mut tlb), state(&mut plain));
            }
        }
    }
}
