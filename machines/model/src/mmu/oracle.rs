//! The oracle of stale translations. (That of stale lines, `cache::aliases`, reports here, too.)
//!
//! # What it holds
//! The mapping last declared of every page of every address space, by [`Oracle::mapping_changed`], and the caller that
//! declared it. Nothing else counts: page tables, hash tables and TLBs hold copies.
//!
//! # The rule
//! A translation stands as long as it says no more than the mapping last declared for its page, and belongs to the
//! address space that uses it. It is judged twice. When a mapping changes so that translations made from it say too
//! much, every TLB entry made from it is *marked*. And an entry is judged when it is *made*, whatever makes it: what a
//! walker finds in a table that was not written, or in a slot of a hash table that was forgotten, is marked from its
//! birth.
//!
//! A marked entry may still be *used* while the change's window is open: that is the time between the store and the end
//! of the invalidations, when hardware, too, promises nothing. A use after the window has closed is reported, with the
//! callers that mapped and changed, and which CPUs held the translation. So is the use of an entry whose tag was given
//! to another address space.
//!
//! An upgrade (more permissions for the same frame) makes nothing stale. A page that is declared unmodified again does,
//! for the CPU would not note the next store.
//!
//! [`Oracle::mapping_changed`]: pageferry_hal::Oracle::mapping_changed

use crate::mmu::access::Site;
use crate::mmu::size::{PageShifts, PageSize};
use crate::mmu::tlb::Entry;
use core::fmt;
use core::ops::Range;
use pageferry_hal::{Access, Attr, CpuId, CpuSet, Cycles, PAGE_SHIFT, Pfn, SpaceId, Tte, Va};
use rustc_hash::FxHashMap;

/// A use of a translation that no mapping stands behind, outside the window of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleUse {
    /// The CPU that used it.
    pub cpu: CpuId,
    /// When, on that CPU's clock.
    pub at: Cycles,
    /// The address used.
    pub va: Va,
    /// Load, store or fetch.
    pub access: Access,
    /// The caller that had made the mapping, if that is known.
    pub mapped_by: Option<Site>,
    /// What is wrong with it.
    pub why: Staleness,
}

/// Why a translation does not stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// The mapping was changed, and the CPU kept the translation.
    Changed {
        /// The caller that changed it.
        by: Site,
        /// The CPU on which the change was made.
        on: CpuId,
        /// When, on that CPU's clock.
        at: Cycles,
        /// The CPUs whose TLBs held the translation at the change: all of them should have invalidated it.
        held_by: CpuSet,
    },
    /// It was made from an entry of a table, or by software, that says more than the mapping last declared: the caller
    /// that declared that, if there is one.
    Undeclared(Option<Site>),
    /// It is another address space's: its tag was given away.
    OtherSpace(SpaceId),
    /// The translation stands, but the line that it leads to was written by an address of another colour, and has not
    /// been written back since, or not been dropped under this one.
    OtherColour {
        /// The address of the store to the page that came last.
        written_by: Va,
        /// When that was.
        at: Cycles,
    },
}

impl fmt::Display for StaleUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if matches!(self.why, Staleness::OtherColour { .. }) { "line" } else { "translation" };
        write!(
            f,
            "{:?} of {:?} on {:?} at cycle {} used a stale {what}: ",
            self.access, self.va, self.cpu, self.at.0
        )?;
        if let Staleness::OtherColour { written_by, at } = self.why {
            return write!(
                f,
                "the page was last written by {written_by:?}, of another colour, at cycle {}, and the caches were not \
                 purged",
                at.0
            );
        }
        if let Some(site) = self.mapped_by {
            write!(f, "mapped at {}:{}, ", site.file(), site.line())?;
        }
        match &self.why {
            Staleness::Changed { by, on, at, held_by } => write!(
                f,
                "changed at {}:{} on {on:?} at cycle {}; cached then by {held_by:?}, and not invalidated on {:?}",
                by.file(),
                by.line(),
                at.0,
                self.cpu
            ),
            Staleness::Undeclared(declared) => {
                match declared {
                    Some(by) => write!(
                        f,
                        "the mapping last declared, at {}:{}, says something else",
                        by.file(),
                        by.line()
                    )?,
                    None => write!(f, "no mapping is declared there")?,
                }
                write!(
                    f,
                    ": what {:?} loaded it from is out of date, or was written and not declared (`mapping_changed`)",
                    self.cpu
                )
            }
            Staleness::OtherColour { .. } => Ok(()),
            Staleness::OtherSpace(space) => {
                write!(
                    f,
                    "it is {space:?}'s, whose tag has been given to another address space on {:?}",
                    self.cpu
                )
            }
        }
    }
}

/// What a mapping permits: the caller that changes it has to know.
const JUDGED: Attr = Attr::WRITE.union(Attr::USER);

/// What a change of a mapping means for translations made from the old one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// They are still right.
    None,
    /// They are wrong.
    Stale,
}

/// Compares a mapping with its replacement.
fn effect(old: Tte, new: Option<Tte>) -> Effect {
    let Some(new) = new else { return Effect::Stale };
    let lost = old.attr.difference(new.attr);
    let moved = old.frame != new.frame || old.shift != new.shift;
    if moved || lost.intersects(Attr::WRITE | Attr::USER | Attr::MODIFIED) {
        Effect::Stale
    } else {
        Effect::None
    }
}

/// A mark: why entries are stale.
enum Mark {
    /// For one reason.
    Once(Reason),
    /// They bore the mark `before` already when they got the mark `of`: each change has to be flushed in its own
    /// window.
    Again { of: u32, before: u32 },
}

struct Reason {
    /// While it is open, they may be used.
    window: Option<u32>,
    mapped_by: Option<Site>,
    why: Staleness,
}

/// What was declared of a page.
#[derive(Clone, Copy)]
struct Mapping {
    tte: Tte,
    by: Site,
}

/// Consecutive pages of one address space.
struct Chunk {
    mapped: u32,
    pages: [Option<Mapping>; CHUNK_PAGES],
}

/// As many pages as a leaf table of several formats has in two cache lines: spaces are sparse.
const CHUNK_PAGES: usize = 64;

/// A chunk's name: the space, the size of its pages, and its number.
type ChunkKey = (SpaceId, u8, u64);

/// Book-keeping of one machine.
pub(crate) struct Oracle {
    chunks: FxHashMap<ChunkKey, Box<Chunk>>,
    marks: Vec<Mark>,
    /// For each window ever opened: is it open?
    windows: Vec<bool>,
    /// Tables may lag behind what is declared: hash tables, and software that is about to load the TLB.
    lagging: bool,
    /// Stale uses are counted, and are no errors.
    tolerant: bool,
    /// Where tables may lag, the changes whose windows are open: page, window and mark.
    in_flight: Vec<(SpaceId, Va, u32, u32)>,
    found: Vec<StaleUse>,
    /// All uses found; `found` keeps only the first.
    pub(crate) stale_uses: u64,
    /// Uses of stale translations inside open windows.
    pub(crate) uses_in_window: u64,
}

/// Reports kept in full; the rest is only counted.
const MAX_REPORTS: usize = 64;

/// The pages that an entry of a larger size maps; none where it is of the smallest, or maps less.
fn row_of(entry: &Entry, shifts: PageShifts) -> Range<u64> {
    let more = match entry.size {
        PageSize::Super | PageSize::Huge => shifts.of(entry.size) - PAGE_SHIFT,
        PageSize::Base | PageSize::Part => return 0..0,
    };
    entry.page << more..(entry.page + 1) << more
}

/// The chunk of a page of `1 << shift` bytes, and its place there.
fn place(space: SpaceId, va: Va, shift: u8) -> (ChunkKey, usize) {
    let page = va.0 >> shift;
    ((space, shift, page / CHUNK_PAGES as u64), page as usize % CHUNK_PAGES)
}

impl Oracle {
    /// `lagging` where something other than the page tables of its format fills the TLB; `tolerant` where the use of a
    /// stale translation is no error.
    pub(crate) fn new(lagging: bool, tolerant: bool) -> Oracle {
        Oracle {
            lagging,
            tolerant,
            in_flight: Vec::new(),
            chunks: FxHashMap::default(),
            marks: Vec::new(),
            windows: Vec::new(),
            found: Vec::new(),
            stale_uses: 0,
            uses_in_window: 0,
        }
    }

    pub(crate) fn found(&self) -> &[StaleUse] {
        &self.found
    }

    /// The first stale use, unless such uses are tolerated.
    #[inline]
    pub(crate) fn error(&self) -> Option<&StaleUse> {
        if self.tolerant { None } else { self.found.first() }
    }

    pub(crate) fn open(&mut self) -> u32 {
        self.windows.push(true);
        (self.windows.len() - 1) as u32
    }

    pub(crate) fn close(&mut self, window: u32) {
        assert!(std::mem::replace(&mut self.windows[window as usize], false), "a window was closed twice");
        self.in_flight.retain(|&(_, _, open, _)| open != window);
    }

    pub(crate) fn open_windows(&self) -> usize {
        self.windows.iter().filter(|&&open| open).count()
    }

    // ------------------------------------------------------------------------------------------- what is declared

    /// # Panics
    /// When a mapping is declared there already.
    pub(crate) fn made(&mut self, space: SpaceId, va: Va, tte: Tte, by: Site) {
        let (key, at) = place(space, va, tte.shift);
        let chunk = self
            .chunks
            .entry(key)
            .or_insert_with(|| Box::new(Chunk { mapped: 0, pages: [None; CHUNK_PAGES] }));
        if let Some(old) = chunk.pages[at] {
            panic!(
                "{by}: {va:?} of {space:?} is mapped already (by {}, {:?}): a change, not a new mapping",
                old.by, old.tte
            );
        }
        chunk.pages[at] = Some(Mapping { tte, by });
        chunk.mapped += 1;
    }

    /// Notes what a mapping is now. Answers, when what was made from it is to be marked, the caller that had mapped.
    ///
    /// # Panics
    /// When no mapping was declared there.
    pub(crate) fn changed(
        &mut self,
        space: SpaceId,
        va: Va,
        old: Tte,
        new: Option<Tte>,
        by: Site,
    ) -> Option<Option<Site>> {
        let (key, at) = place(space, va, old.shift);
        let chunk = self.chunks.get_mut(&key).filter(|c| c.pages[at].is_some());
        let Some(chunk) = chunk else { panic!("{by}: {va:?} of {space:?} changes, but is not mapped") };
        let Some(declared) = chunk.pages[at] else { unreachable!("it was asked for") };
        let (is, said) = (declared.tte, (old.frame, old.attr & JUDGED));
        assert!(
            said == (is.frame, is.attr & JUDGED),
            "{by}: {va:?} of {space:?} is said to have been {old:?}, but {} declared {is:?}",
            declared.by
        );
        match new {
            Some(new) if new.shift == old.shift => chunk.pages[at] = Some(Mapping { tte: new, by }),
            _ => {
                chunk.pages[at] = None;
                chunk.mapped -= 1;
                if chunk.mapped == 0 {
                    self.chunks.remove(&key);
                }
                new.into_iter().for_each(|new| self.made(space, va, new, by));
            }
        }
        (effect(old, new) == Effect::Stale).then_some(Some(declared.by))
    }

    fn declared(&self, space: SpaceId, va: Va, shift: u8) -> Option<&Mapping> {
        let (key, at) = place(space, va, shift);
        self.chunks.get(&key)?.pages[at].as_ref()
    }

    /// The mapping last declared of a page of this size.
    pub(crate) fn declared_as(&self, space: SpaceId, va: Va, shift: u8) -> Option<Tte> {
        self.declared(space, va, shift).map(|m| m.tte)
    }

    /// Hardware has noted that a page is modified.
    pub(crate) fn note_modified(&mut self, space: SpaceId, va: Va, shift: u8) {
        let (key, at) = place(space, va, shift);
        if let Some(mapping) = self.chunks.get_mut(&key).and_then(|c| c.pages[at].as_mut()) {
            mapping.tte.attr |= Attr::MODIFIED;
        }
    }

    // ------------------------------------------------------------------------------------------- judgement

    /// The mark for entries of a page that a change made stale.
    pub(crate) fn mark(
        &mut self,
        (space, va): (SpaceId, Va),
        window: u32,
        mapped_by: Option<Site>,
        by: Site,
        on: CpuId,
        at: Cycles,
    ) -> u32 {
        assert!(self.windows[window as usize], "a mapping was changed in a window that is closed");
        let why = Staleness::Changed { by, on, at, held_by: CpuSet::EMPTY };
        let mark = self.push(Mark::Once(Reason { window: Some(window), mapped_by, why }));
        if self.lagging {
            self.in_flight.push((space, va.page(), window, mark));
        }
        mark
    }

    fn push(&mut self, mark: Mark) -> u32 {
        self.marks.push(mark);
        self.marks.len() as u32
    }

    /// The mark of an entry that bears `mark` already and is made stale again: as `again`, and as before.
    pub(crate) fn marked_again(&mut self, mark: u32, again: u32) -> u32 {
        if self.is_overdue(mark) {
            // What ought to be gone already stays so, whatever window is opened over it.
            mark
        } else if self.windows_of(mark) == self.windows_of(again) {
            again
        } else {
            self.push(Mark::Again { of: again, before: mark })
        }
    }

    /// The window of the only reason; none where there are several.
    fn windows_of(&self, mark: u32) -> Option<u32> {
        match &self.marks[mark as usize - 1] {
            Mark::Once(reason) => reason.window,
            Mark::Again { .. } => None,
        }
    }

    /// True when every change that makes something stale needs a mark, held by a TLB or not.
    pub(crate) fn marks_all(&self) -> bool {
        self.lagging
    }

    /// True when a translation so marked should not exist any more: a window of its changes is closed.
    fn is_overdue(&self, mark: u32) -> bool {
        self.overdue(mark).is_some()
    }

    /// The oldest of its reasons whose window is closed.
    fn overdue(&self, mark: u32) -> Option<&Reason> {
        match self.marks.get((mark as usize).checked_sub(1)?)? {
            Mark::Once(reason) => {
                let is_open = reason.window.is_some_and(|w| self.windows[w as usize]);
                (!is_open).then_some(reason)
            }
            &Mark::Again { of, before } => self.overdue(before).or_else(|| self.overdue(of)),
        }
    }

    /// A CPU holds a translation so marked.
    pub(crate) fn held(&mut self, mark: u32, cpu: CpuId) {
        if let Mark::Once(Reason { why: Staleness::Changed { held_by, .. }, .. }) =
            &mut self.marks[mark as usize - 1]
        {
            held_by.insert(cpu);
        }
    }

    /// Judges an entry that is being made for `va`: the mark that it gets, 0 for none.
    pub(crate) fn judge(&mut self, entry: &Entry, va: Va, shifts: PageShifts) -> u32 {
        let stands = |declared: Option<&Mapping>, frame: Pfn| {
            declared.is_some_and(|&Mapping { tte, .. }| {
                tte.frame == frame
                    && (!entry.writable || tte.attr.contains(Attr::WRITE))
                    && (!entry.user || tte.attr.contains(Attr::USER))
                    && (!entry.dirty || tte.attr.contains(Attr::MODIFIED))
            })
        };
        let declared = self.declared(entry.space, va, shifts.of(entry.size) as u8);
        if stands(declared, entry.base.pfn()) {
            return 0;
        }
        let row = if declared.is_none() { row_of(entry, shifts) } else { 0..0 };
        // One entry that software has made of pages in a row, each of which is declared by itself.
        let differing = row.clone().find_map(|page| {
            let at = Va(page << PAGE_SHIFT);
            let frame = Pfn(entry.base.pfn().0 + (page - row.start) as u32);
            let declared = self.declared(entry.space, at, PAGE_SHIFT as u8);
            (!stands(declared, frame)).then_some((at, declared))
        });
        let (va, declared) = match differing {
            Some(differing) => differing,
            None if row.is_empty() => (va, declared),
            None => return 0,
        };
        let by = declared.map(|m| m.by);
        // The table is about to be changed as well, or what was read from it is about to be flushed: for each of the
        // changes.
        let mut marked = 0;
        for at in 0..self.in_flight.len() {
            let (space, page, _, mark) = self.in_flight[at];
            if (space, page) == (entry.space, va.page()) {
                marked = if marked == 0 { mark } else { self.marked_again(marked, mark) };
            }
        }
        if marked != 0 {
            return marked;
        }
        self.push(Mark::Once(Reason { window: None, mapped_by: None, why: Staleness::Undeclared(by) }))
    }

    /// A translation so marked is being used.
    pub(crate) fn used(&mut self, mark: u32, cpu: CpuId, at: Cycles, va: Va, access: Access) {
        let Some(&Reason { mapped_by, ref why, .. }) = self.overdue(mark) else {
            self.uses_in_window += 1;
            return;
        };
        let why = why.clone();
        self.report(StaleUse { cpu, at, va, access, mapped_by, why });
    }

    /// Notes the use of a stale translation.
    pub(crate) fn report(&mut self, stale: StaleUse) {
        self.stale_uses += 1;
        if self.found.len() < MAX_REPORTS {
            self.found.push(stale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_translation_stale() {
        let tte = |frame, attr| Tte::page(Pfn(frame), attr);
        let base = tte(5, Attr::WRITE);
        assert_eq!(effect(base, Some(tte(5, Attr::WRITE | Attr::USER))), Effect::None);
        assert_eq!(effect(base, Some(tte(5, Attr::empty()))), Effect::Stale);
        assert_eq!(effect(base, Some(tte(6, Attr::WRITE))), Effect::Stale);
        assert_eq!(effect(base, None), Effect::Stale);
        assert_eq!(effect(tte(5, Attr::WRITE | Attr::MODIFIED), Some(base)), Effect::Stale);
        assert_eq!(effect(tte(5, Attr::REFERENCED), Some(tte(5, Attr::empty()))), Effect::None);
    }

    #[test]
    #[track_caller]
    fn entries_are_judged_when_they_are_made() {
        let by = std::panic::Location::caller();
        let (space, va) = (SpaceId(3), Va(0x7000));
        let shifts = PageShifts { superpage: 22, huge: None, part: None };
        let mut entry = Entry {
            space,
            base: Pfn(5).pa(),
            user: true,
            ..Entry::new(va, shifts, PageSize::Base, CpuId(0))
        };
        let mut oracle = Oracle::new(false, false);
        assert_ne!(oracle.judge(&entry, va, shifts), 0, "nothing is declared");
        let tte = Tte::page(Pfn(5), Attr::USER | Attr::WRITE);
        oracle.made(space, va, tte, by);
        assert_eq!(oracle.judge(&entry, va, shifts), 0);
        (entry.writable, entry.dirty) = (true, true);
        assert_ne!(oracle.judge(&entry, va, shifts), 0, "not modified");
        oracle.note_modified(space, va, 12);
        assert_eq!(oracle.judge(&entry, va, shifts), 0);
        assert_eq!(oracle.changed(space, va, tte, Some(Tte::page(Pfn(5), Attr::USER)), by), Some(Some(by)));
        assert_ne!(oracle.judge(&entry, va, shifts), 0, "not writable any more");
        assert_ne!(oracle.judge(&Entry { space: SpaceId(4), ..entry }, va, shifts), 0, "another space's");
        oracle.changed(space, va, Tte::page(Pfn(5), Attr::USER), None, by);
        assert!(oracle.chunks.is_empty());
    }
}
