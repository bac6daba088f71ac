//! The two structures of the mapping cache as plain data: which buffer maps which frame, and which buffer is the least
//! recently used of those without a user.
//!
//! A [`MappingIndex`] is an array of buffers (`struct sf_buf`, sf_buf paper, Fig. 1), each on one list or two
//! ([`IndexList`]):
//! * a hash of the *valid* buffers by frame, of fixed size, with doubly linked chains;
//! * the *inactive* list: the buffers without a reference, least recently used first.
//!
//! A buffer may be in both: unused, yet still mapping its frame. It knows no machine, takes no lock, maps nothing and
//! allocates nothing after [`MappingIndex::new`]; its owner keeps it under one lock. Every operation is O(1), the
//! look-up expected O(1). Nothing here can fail but by a caller's mistake, which panics.
//!
//! What an operation reads and writes is reported to a [`Trace`], so that a modelled machine can account for it; with
//! [`Untraced`] the calls vanish.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use pageferry_hal::{Access, CpuSet, IndexList, Links, Pfn};

/// No buffer, or no frame.
const NIL: u32 = u32::MAX;

/// A buffer of the index: its position, which also gives its virtual address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferId(u32);

impl BufferId {
    /// The position in the array.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One buffer. Its virtual address is its position: immutable by construction.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// The frame mapped (`m`), or `NIL`: the buffer is valid if and only if this is a frame.
    frame: u32,
    /// Users of the mapping (`ref_count`).
    references: u32,
    /// CPUs that cannot hold a translation older than the mapping (`cpumask`).
    cpus: CpuSet,
}

/// Receives which parts of the index an operation reads or writes.
pub trait Trace {
    /// The head of hash chain `chain`.
    fn head(&mut self, chain: usize, access: Access);
    /// Buffer `buffer`.
    fn buffer(&mut self, buffer: BufferId, access: Access);
}

/// A [`Trace`] that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untraced;

impl Trace for Untraced {
    fn head(&mut self, _: usize, _: Access) {}
    fn buffer(&mut self, _: BufferId, _: Access) {}
}

/// Buffers, the hash of the valid ones, and the list of the inactive ones. See the [module](self).
#[derive(Debug)]
pub struct MappingIndex {
    buffers: Vec<Buffer>,
    chains: Vec<IndexList>,
    chain_links: Vec<Links>,
    inactive: IndexList,
    inactive_links: Vec<Links>,
}

impl MappingIndex {
    /// The number of hash chains for `entries` buffers: the largest power of two that is not more.
    ///
    /// # Panics
    /// When `entries` is zero.
    pub const fn chains(entries: usize) -> usize {
        1 << entries.ilog2()
    }

    /// An index of `entries` buffers, none valid, all inactive in ascending order, each with the mask `cpus`.
    ///
    /// # Panics
    /// When `entries` is zero or does not fit 32 bits.
    pub fn new(entries: usize, cpus: CpuSet) -> MappingIndex {
        assert!(entries > 0 && entries < NIL as usize, "{entries} buffers cannot be indexed");
        let mut inactive = IndexList::new();
        let mut inactive_links = vec![Links::UNLINKED; entries];
        for id in 0..entries as u32 {
            inactive.push_back(&mut inactive_links, id);
        }
        MappingIndex {
            buffers: vec![Buffer { frame: NIL, references: 0, cpus }; entries],
            chains: vec![IndexList::new(); Self::chains(entries)],
            chain_links: vec![Links::UNLINKED; entries],
            inactive,
            inactive_links,
        }
    }

    /// Buffers, used or not.
    pub fn entries(&self) -> usize {
        self.buffers.len()
    }
    /// Buffers with at least one reference.
    pub fn active(&self) -> usize {
        self.buffers.len() - self.inactive.len()
    }
    /// The frame that `id` maps, if it is valid.
    pub fn frame(&self, id: BufferId) -> Option<Pfn> {
        let frame = self.buffers[id.index()].frame;
        (frame != NIL).then_some(Pfn(frame))
    }
    /// References to `id`.
    pub fn references(&self, id: BufferId) -> u32 {
        self.buffers[id.index()].references
    }
    /// The mask of `id`.
    pub fn cpus(&self, id: BufferId) -> CpuSet {
        self.buffers[id.index()].cpus
    }
    /// Sets the mask of `id`.
    pub fn set_cpus(&mut self, id: BufferId, cpus: CpuSet) {
        self.buffers[id.index()].cpus = cpus;
    }

    /// The buffer that maps `frame`.
    pub fn find(&self, frame: Pfn, trace: &mut impl Trace) -> Option<BufferId> {
        let chain = self.chain_of(frame.0);
        trace.head(chain, Access::Read);
        self.chains[chain].iter(&self.chain_links).map(BufferId).find(|&id| {
            trace.buffer(id, Access::Read);
            self.buffers[id.index()].frame == frame.0
        })
    }

    /// The least recently used inactive buffer.
    pub fn victim(&self) -> Option<BufferId> {
        self.inactive.first().map(BufferId)
    }

    /// Adds a reference to the valid buffer `id`; the first takes it off the inactive list.
    ///
    /// # Panics
    /// When `id` is not valid.
    pub fn acquire(&mut self, id: BufferId, trace: &mut impl Trace) {
        assert!(self.buffers[id.index()].frame != NIL, "{id:?} is acquired, but maps nothing");
        if self.buffers[id.index()].references == 0 {
            self.inactive_remove(id, trace);
        }
        trace.buffer(id, Access::Write);
        let references = &mut self.buffers[id.index()].references;
        *references = references.checked_add(1).expect("reference count of an ephemeral mapping wraps");
    }

    /// Takes a reference from `id`. True when it was the last: the buffer is now the most recently used inactive one,
    /// and still maps its frame.
    ///
    /// # Panics
    /// When `id` has no reference.
    pub fn release(&mut self, id: BufferId, trace: &mut impl Trace) -> bool {
        trace.buffer(id, Access::Write);
        let buffer = &mut self.buffers[id.index()];
        assert!(buffer.references > 0, "{id:?} is freed more often than it was allocated");
        buffer.references -= 1;
        if buffer.references > 0 {
            return false;
        }
        self.inactive_append(id, trace);
        true
    }

    /// Makes the inactive buffer `id` map `frame`, with one reference. Its mask stays.
    ///
    /// # Panics
    /// When `id` is in use; a second buffer for a frame is found by [`MappingIndex::check`].
    pub fn rebind(&mut self, id: BufferId, frame: Pfn, trace: &mut impl Trace) {
        assert_eq!(self.buffers[id.index()].references, 0, "{id:?} is in use and cannot map another frame");
        assert_ne!(frame.0, NIL, "no such frame");
        self.inactive_remove(id, trace);
        if self.buffers[id.index()].frame != NIL {
            self.chain_remove(id, trace);
        }
        self.buffers[id.index()].frame = frame.0;
        self.buffers[id.index()].references = 1;
        self.chain_push(id, trace);
    }

    /// Frames are dense, so their low bits spread them best (FreeBSD: `SF_BUF_HASH`).
    fn chain_of(&self, frame: u32) -> usize {
        frame as usize & (self.chains.len() - 1)
    }

    fn chain_push(&mut self, id: BufferId, trace: &mut impl Trace) {
        let chain = self.chain_of(self.buffers[id.index()].frame);
        let next = self.chains[chain].push_front(&mut self.chain_links, id.0);
        trace.head(chain, Access::Write);
        trace.buffer(id, Access::Write);
        trace_written(trace, next);
    }

    fn chain_remove(&mut self, id: BufferId, trace: &mut impl Trace) {
        let chain = self.chain_of(self.buffers[id.index()].frame);
        let links = self.chains[chain].remove(&mut self.chain_links, id.0);
        trace.buffer(id, Access::Read);
        match links.prev() {
            None => trace.head(chain, Access::Write),
            prev => trace_written(trace, prev),
        }
        trace_written(trace, links.next());
    }

    /// The ends of this list belong to the owner's state, which is not accounted for.
    fn inactive_append(&mut self, id: BufferId, trace: &mut impl Trace) {
        let last = self.inactive.push_back(&mut self.inactive_links, id.0);
        trace_written(trace, last);
    }

    pub(crate) fn inactive_remove(&mut self, id: BufferId, trace: &mut impl Trace) {
        let links = self.inactive.remove(&mut self.inactive_links, id.0);
        trace_written(trace, links.prev());
        trace_written(trace, links.next());
    }

    /// Tests the invariants of the sf_buf paper, 4.2: a buffer is in the hash if and only if it is valid, and on the
    /// inactive list if and only if it has no reference; no frame has two buffers. O(entries).
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut hashed = vec![false; self.buffers.len()];
        for chain in 0..self.chains.len() {
            self.check_chain(chain, &mut hashed)?;
        }
        self.inactive.check(&self.inactive_links).map_err(|what| format!("inactive buffers: {what}"))?;
        let mut listed = vec![false; self.buffers.len()];
        self.inactive.iter(&self.inactive_links).for_each(|at| listed[at as usize] = true);
        for (i, b) in self.buffers.iter().enumerate() {
            if hashed[i] != (b.frame != NIL) {
                return Err(format!("buffer {i}: in the hash {}, frame {:?}", hashed[i], b.frame));
            }
            if listed[i] != (b.references == 0) {
                return Err(format!("buffer {i}: inactive {}, {} references", listed[i], b.references));
            }
        }
        Ok(())
    }

    fn check_chain(&self, chain: usize, hashed: &mut [bool]) -> Result<(), String> {
        let list = &self.chains[chain];
        list.check(&self.chain_links).map_err(|what| format!("hash chain {chain}: {what}"))?;
        for (position, at) in list.iter(&self.chain_links).enumerate() {
            let frame = self.buffers[at as usize].frame;
            if core::mem::replace(&mut hashed[at as usize], true) {
                return Err(format!("buffer {at} is in the hash twice"));
            }
            if frame == NIL || self.chain_of(frame) != chain {
                return Err(format!("buffer {at} does not belong in hash chain {chain}"));
            }
            let mut behind = list.iter(&self.chain_links).skip(position + 1);
            if let Some(other) = behind.find(|&other| self.buffers[other as usize].frame == frame) {
                return Err(format!("frame {frame:#x} has two buffers, {at} and {other}"));
            }
        }
        Ok(())
    }
}

/// Accounts for a neighbour whose links were written.
fn trace_written(trace: &mut impl Trace, neighbour: Option<u32>) {
    if let Some(id) = neighbour {
        trace.buffer(BufferId(id), Access::Write);
    }
}
