//! The map entry: a range of addresses, what may be done there, and the two layers behind it (UVM paper, 3.1).
//!
//! Upper layer: an offset in an amap, or none yet. Lower layer: an offset in one object, or none. An entry holds a
//! reference to each. Entries belong to a map and change under its lock; making one can fail for want of a structure.
//!
//! `copy_on_write` entries write to the amap layer; an entry without it writes to its object and has no amap. An entry
//! without object is always copy-on-write: what a private and a shared anonymous mapping differ in is what fork does.

use crate::anon::Amap;
use crate::object::Object;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{Machine, PAGE_SHIFT, Pfn, Prot, StructVa, Va, VaRange};

/// What happens to a range at fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    /// The child has nothing there.
    None,
    /// Parent and child see each other's writes.
    Share,
    /// The child has a copy; made when one of them writes.
    Copy,
}

/// How the pages of a range will be used (`madvise`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Advice {
    /// Nothing is known: a page that comes in brings some neighbours.
    #[default]
    Normal,
    /// In order: it brings more.
    Sequential,
    /// In no order: it comes alone.
    Random,
}

/// The upper layer: an amap from a slot on.
pub(crate) struct AmapRef<M: Machine> {
    pub(crate) amap: Arc<Amap<M>>,
    pub(crate) slot: u64,
}

/// The lower layer: an object from a page on.
pub(crate) struct ObjectRef<M: Machine> {
    pub(crate) object: Arc<Object<M>>,
    pub(crate) page: u64,
}

/// What the pages of an entry have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attributes {
    /// What user code may do there now.
    pub(crate) prot: Prot,
    /// What it may ever be allowed to do there.
    pub(crate) max_prot: Prot,
    pub(crate) inherit: Inherit,
    pub(crate) copy_on_write: bool,
    /// The amap (or its absence) is shared with other entries until the first change, which copies it.
    pub(crate) needs_copy: bool,
    /// The range belongs to the space's area for page transfer.
    pub(crate) transfer_area: bool,
    pub(crate) advice: Advice,
}

pub(crate) struct Entry<M: Machine> {
    pub(crate) at: StructVa,
    pub(crate) range: VaRange,
    pub(crate) attributes: Attributes,
    pub(crate) amap: Option<AmapRef<M>>,
    pub(crate) object: Option<ObjectRef<M>>,
    /// The frames of an entry that is locked in memory, one for each page, each with a wire; else none.
    pub(crate) locked: Vec<Pfn>,
}

impl<M: Machine> Entry<M> {
    /// The number of the page at `va`, from the start of the entry.
    pub(super) fn page_number(&self, va: Va) -> u64 {
        assert!(self.range.contains(va), "{va:?} is not in {:?}", self.range);
        ((va - self.range.start()) >> PAGE_SHIFT) as u64
    }

    /// The slot of the page at `va` in the entry's amap.
    pub(crate) fn slot(&self, amap: &AmapRef<M>, va: Va) -> u64 {
        amap.slot + self.page_number(va)
    }

    /// The page of the entry's object at `va`.
    pub(crate) fn object_page(&self, object: &ObjectRef<M>, va: Va) -> u64 {
        object.page + self.page_number(va)
    }

    /// The slots of the amap that the entry covers.
    pub(crate) fn slots(&self, amap: &AmapRef<M>) -> Range<u64> {
        amap.slot..amap.slot + self.len_pages()
    }

    pub(crate) fn len_pages(&self) -> u64 {
        self.range.len_pages() as u64
    }

    /// True when `next` continues this entry in every respect, so that the two can be one. Two amaps are never joined:
    /// an entry must not grow over slots that its amap does not have.
    pub(crate) fn continues_in(&self, next: &Entry<M>) -> bool {
        let pages = self.len_pages();
        let amap = match (&self.amap, &next.amap) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(&a.amap, &b.amap) && a.slot + pages == b.slot,
            _ => false,
        };
        let object = match (&self.object, &next.object) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(&a.object, &b.object) && a.page + pages == b.page,
            _ => false,
        };
        let alike = self.attributes == next.attributes && self.locked.is_empty() == next.locked.is_empty();
        self.range.end() == next.range.start() && alike && amap && object
    }

    /// True when neither this entry nor its `copy` may write to the object that both map.
    pub(crate) fn waits_with(&self, copy: &Entry<M>) -> bool {
        let (own, theirs) = (self.object.as_ref(), copy.object.as_ref());
        let same = own.zip(theirs).is_some_and(|(own, theirs)| Arc::ptr_eq(&own.object, &theirs.object));
        self.attributes.copy_on_write && same
    }
}
