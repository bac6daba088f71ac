//! The laws that a walk over everything and a watch have in common, each for one thing: a map, the entries that cover
//! an amap, the owner of a frame, a mapping, a locked entry.
//!
//! Each takes the locks of what it looks at, reads, and changes nothing; `Err` says in words what is wrong. For moments
//! when no thread is at work in the VM system.

use crate::anon::{AmapState, Anon};
use crate::map::{Entry, Map, with_resident};
use crate::object::Object;
use crate::page::{Frame, Owner};
use crate::vm::{Space, Vm};
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use pageferry_hal::{Access, Machine, Pfn, Prot, Va};

/// Stops with a message when a law does not hold.
macro_rules! law {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use law;

/// An entry's part of an amap: the slots, and whether the entry needs a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) needs_copy: bool,
}

/// Entries are sorted, disjoint, aligned, within the map, and joined where they were never cut.
pub(crate) fn check_map<M: Machine>(map: &Map<M>) -> Result<(), String> {
    map.check_tree()?;
    let mut end = map.bounds().start();
    for entry in map.entries() {
        let range = entry.range;
        law!(
            map.entry_at(range.start()).is_some_and(|e| e.range == range),
            "entry {range:?} is not found in its map"
        );
        law!(!range.is_empty() && map.bounds().covers(&range), "entry {range:?} is empty or outside the map");
        law!(range.start() >= end, "entry {range:?} overlaps the one before or is out of order");
        let a = entry.attributes;
        law!(a.max_prot.contains(a.prot), "entry {range:?} permits {:?}, more than {:?}", a.prot, a.max_prot);
        law!(a.copy_on_write || entry.amap.is_none(), "entry {range:?} writes to its object but has an amap");
        law!(a.copy_on_write || entry.object.is_some(), "entry {range:?} has no layer to write to");
        law!(a.copy_on_write || !a.needs_copy, "entry {range:?} needs a copy of nothing");
        let own = entry.amap.is_some() || entry.object.as_ref().is_some_and(|o| o.object.is_internal());
        law!(own || a.needs_copy || !a.copy_on_write, "entry {range:?} lost its amap, or its object");
        if let Some(o) = &entry.object {
            let pages = o.page + entry.len_pages();
            let fits = pages <= o.object.len_pages() || o.object.is_file();
            law!(fits, "entry {range:?} maps more pages than its object has");
        }
        end = range.end();
    }
    Ok(())
}

/// References of an amap, as a whole and slot by slot; and all entries of a slot agree on needs-copy.
pub(crate) fn check_cover<M: Machine>(amap: &AmapState<M>, covers: &[Cover]) -> Result<(), String> {
    let (refs, entries) = (amap.refs() as usize, covers.len());
    law!(refs == entries, "an amap counts {refs} entries, {entries} refer to it");
    let len = amap.slot_refs().len();
    let mut borders: Vec<u64> = covers.iter().flat_map(|c| [c.start, c.end]).collect();
    borders.extend([0, len]);
    borders.sort_unstable();
    borders.dedup();
    law!(borders.last() == Some(&len), "an entry reaches behind its amap's {len} slots");
    for slots in borders.windows(2) {
        let over = covers.iter().filter(|c| c.start <= slots[0] && slots[1] <= c.end);
        let needs_copy = over.clone().filter(|c| c.needs_copy).count();
        let over = over.count();
        law!(needs_copy == 0 || needs_copy == over, "entries of slot {} disagree on needs-copy", slots[0]);
        for slot in [slots[0], slots[1] - 1] {
            let counted = amap.slot_refs().of(slot);
            law!(counted as usize == over, "slot {slot} counts {counted} entries, {over} cover it");
        }
        let stray = if over > 0 { 0 } else { amap.anons(slots[0]..slots[1]).count() };
        law!(stray == 0, "{stray} anons in slots {slots:?} that no entry covers");
    }
    Ok(())
}

/// An owner or borrower of a frame, as the table names it.
pub(crate) struct OwnerRef<M: Machine> {
    frame: Pfn,
    by: Referent<M>,
}

enum Referent<M: Machine> {
    Anon(Weak<Anon<M>>),
    /// The object, and the page of it.
    Page(Weak<Object<M>>, u64),
}

impl<M: Machine> OwnerRef<M> {
    /// The claims to a frame: its owner's, and its borrower's.
    pub(crate) fn of(frame: Pfn, f: &Frame<M>) -> impl Iterator<Item = OwnerRef<M>> + use<M> {
        let owner = match &f.owner {
            Owner::Anon(anon) => Some(Referent::Anon(anon.clone())),
            Owner::Object(object, page) => Some(Referent::Page(object.clone(), *page)),
            Owner::Free | Owner::Kernel(_) | Owner::Orphan => None,
        };
        let borrower = f.borrower.clone().map(Referent::Anon);
        owner.into_iter().chain(borrower).map(move |by| OwnerRef { frame, by })
    }

    /// Tests that it has the frame. Takes its lock.
    pub(crate) fn check(&self) -> Result<(), String> {
        let frame = self.frame;
        let (what, has) = match &self.by {
            Referent::Anon(anon) => {
                ("an anon", anon.upgrade().is_some_and(|anon| anon.lock().frame == Some(frame)))
            }
            Referent::Page(object, page) => {
                let has = |object: Arc<Object<M>>| object.lock().pages().get(page) == Some(&frame);
                ("an object", object.upgrade().is_some_and(has))
            }
        };
        law!(has, "{frame:?} belongs to {what} that does not have it");
        Ok(())
    }
}

/// If `va` is mapped, then as `layers` say: the frame, and whether it may be written. True when it is.
pub(crate) fn check_mapping<M: Machine>(
    vm: &Vm<M>,
    space: &Space<M>,
    entry: &Entry<M>,
    va: Va,
    layers: Option<(Pfn, bool)>,
) -> Result<bool, String> {
    let Some((mapped, prot)) = vm.pmaps().extract(space.pmap(), va) else { return Ok(false) };
    let Some((frame, exclusive)) = layers else {
        return Err(format!("{va:?} maps {mapped:?}, its layers have nothing"));
    };
    let a = entry.attributes;
    law!(mapped == frame, "{va:?} maps {mapped:?}, its layers have {frame:?}");
    law!(a.prot.contains(prot & Prot::RW), "{va:?} is mapped {prot:?}, its entry permits {:?}", a.prot);
    let writable = prot.contains(Prot::WRITE);
    law!(!writable || !a.needs_copy, "{va:?} is writable, its entry needs a copy");
    law!(!writable || exclusive, "{va:?} is writable, its page is shared copy-on-write");
    law!(!writable || vm.frame_info(frame).loan_count == 0, "{va:?} is writable, {frame:?} is lent");
    Ok(true)
}

/// A locked entry has a wire on each of its pages, which is where its layers have it (unless a file was cut).
pub(crate) fn check_locked<M: Machine>(vm: &Vm<M>, entry: &Entry<M>) -> Result<(), String> {
    if entry.locked.is_empty() {
        return Ok(());
    }
    law!(
        entry.locked.len() as u64 == entry.len_pages(),
        "{:?} is locked in {} frames",
        entry.range,
        entry.locked.len()
    );
    for (page, &frame) in entry.range.pages().zip(&entry.locked) {
        let info = vm.frame_info(frame);
        law!(info.wire_count > 0, "{page:?} is locked in {frame:?}, which is not wired");
        let now = with_resident(vm, entry, page, Access::Read, |frame| frame);
        let cut = entry
            .object
            .as_ref()
            .is_some_and(|o| o.object.is_file() && entry.object_page(o, page) >= o.object.len_pages());
        law!(cut || now == Some(frame), "{page:?} is locked in {frame:?}, its layers have {now:?}");
    }
    Ok(())
}
