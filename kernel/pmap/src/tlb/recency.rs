//! In which order pages left the TLB of one CPU, for each address space: written by that CPU alone.
//!
//! # What it holds
//! A *recency stack* for each tag: pages that the TLB had and has not any more, the last one on top. No page of it is
//! in the TLB. Two pages that left it one after the other were used at about the same time, and one that is missed
//! announces the other (Saulsbury, Dahlgren and Stenström, ISCA 2000). The paper has the two links of a page in its
//! page-table entry. Here they are in a table beside, at a place that the page's number names: a page that comes to a
//! place in use takes it, and the other's order is forgotten. That loses an announcement and does no harm.
//!
//! # What can fail
//! Nothing. Every node that is looked at or written is an access through the machine.

use crate::defect::PmapDefect;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use pageferry_defects::Planted;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Access, Machine, StructArena, StructVa};

/// Places: four times the entries of the largest TLB that is described here.
const NODES: usize = 256;
/// A page with its tag in a word, and two links of half a word.
const NODE_BYTES: usize = 8;
const HEAD_BYTES: usize = 2;
/// After so many bytes the sets of every first-level cache here repeat: what lies behind the stacks has the place in
/// the cache that it has without them.
const SPAN_BYTES: usize = 16 << 10;
/// No node.
const NONE: u32 = u32::MAX;

struct Node {
    /// As [`super::loaded::pack`] makes it; 0 for none.
    page: AtomicU64,
    above: AtomicU32,
    below: AtomicU32,
}

/// The stacks of one CPU. See the [module](self).
pub(crate) struct Recency {
    nodes: Box<[Node]>,
    /// The top of each stack: one for each tag.
    heads: Box<[AtomicU32]>,
    at: StructVa,
    defect: Planted<PmapDefect>,
}

/// The tag of a packed page.
fn tag_of(page: u64) -> usize {
    (page >> 44) as usize
}

/// Where a packed page is noted, if it is.
fn place_of(page: u64) -> usize {
    // Pages of one number in several spaces are apart.
    ((page >> 12) as usize ^ (tag_of(page) * 37)) % NODES
}

impl Recency {
    /// Empty stacks, on a machine with so many tags.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub(crate) fn new(
        tags: u32,
        defect: Planted<PmapDefect>,
        arena: &mut StructArena,
    ) -> Result<Recency, ArenaFull> {
        let heads = tags.max(1) as usize;
        let bytes = NODES * NODE_BYTES + heads * HEAD_BYTES;
        let at = arena.array("recency stacks", bytes.next_multiple_of(SPAN_BYTES), 1)?;
        let node =
            || Node { page: AtomicU64::new(0), above: AtomicU32::new(NONE), below: AtomicU32::new(NONE) };
        Ok(Recency {
            nodes: (0..NODES).map(|_| node()).collect(),
            heads: (0..heads).map(|_| AtomicU32::new(NONE)).collect(),
            at,
            defect,
        })
    }

    /// Which stack a packed page lies on.
    fn stack_of(&self, page: u64) -> usize {
        if self.defect.is(PmapDefect::PreloadOfOthers) { 0 } else { tag_of(page) }
    }

    /// Takes a page out of its stack, because the TLB is about to have it. Answers the pages that lay above it and
    /// below it, 0 for none; `None` when it was in no stack.
    pub(crate) fn take<M: Machine>(&self, m: &M, page: u64) -> Option<[u64; 2]> {
        let place = place_of(page);
        self.touch_node(m, place as u32, Access::Read);
        let node = &self.nodes[place];
        if node.page.load(SeqCst) != page {
            return None;
        }
        Some(self.unlink(m, place))
    }

    /// Lays a page on top of its stack: it has left the TLB.
    pub(crate) fn push<M: Machine>(&self, m: &M, page: u64) {
        let (place, stack) = (place_of(page), self.stack_of(page));
        let node = &self.nodes[place];
        self.touch_node(m, place as u32, Access::Write);
        if node.page.load(SeqCst) != 0 {
            self.unlink(m, place);
        }
        let top = self.heads[stack].swap(place as u32, SeqCst);
        self.touch_head(m, stack);
        node.page.store(page, SeqCst);
        node.above.store(NONE, SeqCst);
        node.below.store(top, SeqCst);
        if let Some(below) = self.nodes.get(top as usize) {
            below.above.store(place as u32, SeqCst);
            self.touch_node(m, top, Access::Write);
        }
    }

    /// All tags have begun anew.
    pub(crate) fn forget(&self) {
        self.nodes.iter().for_each(|node| node.page.store(0, SeqCst));
        self.heads.iter().for_each(|head| head.store(NONE, SeqCst));
    }

    fn unlink<M: Machine>(&self, m: &M, place: usize) -> [u64; 2] {
        let node = &self.nodes[place];
        let (above, below) = (node.above.load(SeqCst), node.below.load(SeqCst));
        let page = node.page.swap(0, SeqCst);
        match self.nodes.get(above as usize) {
            Some(other) => {
                other.below.store(below, SeqCst);
                self.touch_node(m, above, Access::Write);
            }
            None => {
                let stack = self.stack_of(page);
                self.heads[stack].store(below, SeqCst);
                self.touch_head(m, stack);
            }
        }
        if let Some(other) = self.nodes.get(below as usize) {
            other.above.store(above, SeqCst);
            self.touch_node(m, below, Access::Write);
        }
        [above, below].map(|other| self.nodes.get(other as usize).map_or(0, |node| node.page.load(SeqCst)))
    }

    fn touch_node<M: Machine>(&self, m: &M, place: u32, access: Access) {
        m.touch(self.at.element(place as usize, NODE_BYTES), NODE_BYTES, access);
    }

    fn touch_head<M: Machine>(&self, m: &M, stack: usize) {
        let heads = self.at.element(NODES, NODE_BYTES);
        m.touch(heads.element(stack, HEAD_BYTES), HEAD_BYTES, Access::Write);
    }
}
