//! The two structures of the mapping cache as plain data: which buffer maps which frame, and which buffer is the least
//! recently used of those that nobody uses.
//!
//! A [`MappingIndex`] is an array of buffers (`struct sf_buf`, sf_buf paper, Fig. 1), threaded by indices into
//! * a hash of the *valid* buffers by frame, of fixed size, with doubly linked chains;
//! * the *inactive* list: the buffers without a reference, least recently used first.
//!
//! A buffer may be in both: unused, yet still mapping its frame. It knows no machine, takes no lock, maps nothing and
//! allocates nothing after [`MappingIndex::new`]; its owner keeps it under one lock. Every operation is O(1), the look-up
//! expected O(1). Nothing here can fail but by a caller's mistake, which panics.
//!
//! What an operation reads and writes is told to a [`Trace`], so that a modelled machine can account for it; with
//! [`Untraced`] the calls vanish.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use pageferry_hal::{Access, CpuSet, Pfn};

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
    chain_next: u32,
    chain_prev: u32,
    lru_next: u32,
    lru_prev: u32,
    /// CPUs that cannot hold a translation older than the mapping (`cpumask`).
    cpus: CpuSet,
}

/// Is told which parts of the index an operation reads or writes.
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
    heads: Vec<u32>,
    lru_first: u32,
    lru_last: u32,
    inactive: usize,
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
        let last = entries as u32 - 1;
        let buffer = |i: u32| Buffer {
            frame: NIL,
            references: 0,
            chain_next: NIL,
            chain_prev: NIL,
            lru_next: if i == last { NIL } else { i + 1 },
            lru_prev: if i == 0 { NIL } else { i - 1 },
            cpus,
        };
        MappingIndex {
            buffers: (0..=last).map(buffer).collect(),
            heads: vec![NIL; Self::chains(entries)],
            lru_first: 0,
            lru_last: last,
            inactive: entries,
        }
    }

    /// Buffers, used or not.
    pub fn entries(&self) -> usize {
        self.buffers.len()
    }
    /// Buffers with at least one reference.
    pub fn active(&self) -> usize {
        self.buffers.len() - self.inactive
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
        let mut at = self.heads[chain];
        while at != NIL {
            let buffer = &self.buffers[at as usize];
            trace.buffer(BufferId(at), Access::Read);
            if buffer.frame == frame.0 {
                return Some(BufferId(at));
            }
            at = buffer.chain_next;
        }
        None
    }

    /// The least recently used inactive buffer.
    pub fn victim(&self) -> Option<BufferId> {
        (self.lru_first != NIL).then_some(BufferId(self.lru_first))
    }

    /// Adds a reference to the valid buffer `id`; the first takes it off the inactive list.
    ///
    /// # Panics
    /// When `id` is not valid.
    pub fn acquire(&mut self, id: BufferId, trace: &mut impl Trace) {
        assert!(self.buffers[id.index()].frame != NIL, "{id:?} is acquired, but maps nothing");
        if self.buffers[id.index()].references == 0 {
            self.lru_unlink(id.0, trace);
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
        self.lru_append(id.0, trace);
        true
    }

    /// Makes the inactive buffer `id` map `frame`, with one reference. Its mask stays.
    ///
    /// # Panics
    /// When `id` is in use; a second buffer for a frame is found by [`MappingIndex::check`].
    pub fn rebind(&mut self, id: BufferId, frame: Pfn, trace: &mut impl Trace) {
        assert_eq!(self.buffers[id.index()].references, 0, "{id:?} is in use and cannot map another frame");
        assert_ne!(frame.0, NIL, "no such frame");
        self.lru_unlink(id.0, trace);
        if self.buffers[id.index()].frame != NIL {
            self.chain_unlink(id.0, trace);
        }
        self.buffers[id.index()].frame = frame.0;
        self.buffers[id.index()].references = 1;
        self.chain_push(id.0, trace);
    }

    /// Frames are dense, so their low bits spread them best (FreeBSD: `SF_BUF_HASH`).
    fn chain_of(&self, frame: u32) -> usize {
        frame as usize & (self.heads.len() - 1)
    }

    fn chain_push(&mut self, id: u32, trace: &mut impl Trace) {
        let chain = self.chain_of(self.buffers[id as usize].frame);
        let next = core::mem::replace(&mut self.heads[chain], id);
        trace.head(chain, Access::Write);
        trace.buffer(BufferId(id), Access::Write);
        self.buffers[id as usize].chain_next = next;
        self.buffers[id as usize].chain_prev = NIL;
        if next != NIL {
            trace.buffer(BufferId(next), Access::Write);
            self.buffers[next as usize].chain_prev = id;
        }
    }

    fn chain_unlink(&mut self, id: u32, trace: &mut impl Trace) {
        let Buffer { chain_next: next, chain_prev: prev, frame, .. } = self.buffers[id as usize];
        trace.buffer(BufferId(id), Access::Read);
        if prev == NIL {
            let chain = self.chain_of(frame);
            assert_eq!(self.heads[chain], id, "a valid buffer is not in its hash chain");
            trace.head(chain, Access::Write);
            self.heads[chain] = next;
        } else {
            trace.buffer(BufferId(prev), Access::Write);
            self.buffers[prev as usize].chain_next = next;
        }
        if next != NIL {
            trace.buffer(BufferId(next), Access::Write);
            self.buffers[next as usize].chain_prev = prev;
        }
    }

    fn lru_append(&mut self, id: u32, trace: &mut impl Trace) {
        let last = core::mem::replace(&mut self.lru_last, id);
        self.buffers[id as usize].lru_prev = last;
        self.buffers[id as usize].lru_next = NIL;
        if last == NIL {
            self.lru_first = id;
        } else {
            trace.buffer(BufferId(last), Access::Write);
            self.buffers[last as usize].lru_next = id;
        }
        self.inactive += 1;
    }

    fn lru_unlink(&mut self, id: u32, trace: &mut impl Trace) {
        let Buffer { lru_next: next, lru_prev: prev, .. } = self.buffers[id as usize];
        if prev == NIL {
            assert_eq!(self.lru_first, id, "an unused buffer is not on the inactive list");
            self.lru_first = next;
        } else {
            trace.buffer(BufferId(prev), Access::Write);
            self.buffers[prev as usize].lru_next = next;
        }
        if next == NIL {
            self.lru_last = prev;
        } else {
            trace.buffer(BufferId(next), Access::Write);
            self.buffers[next as usize].lru_prev = prev;
        }
        self.inactive -= 1;
    }

    /// Tests the invariants of the sf_buf paper, 4.2: a buffer is in the hash if and only if it is valid, and on the
    /// inactive list if and only if it has no reference; no frame has two buffers. O(entries).
    ///
    /// # Errors
    /// What is broken, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut hashed = vec![false; self.buffers.len()];
        for (chain, &head) in self.heads.iter().enumerate() {
            self.check_chain(chain, head, &mut hashed)?;
        }
        let mut listed = vec![false; self.buffers.len()];
        let (mut at, mut prev) = (self.lru_first, NIL);
        while at != NIL {
            let b = &self.buffers[at as usize];
            if core::mem::replace(&mut listed[at as usize], true) {
                return Err(format!("buffer {at} is on the inactive list twice"));
            }
            if b.lru_prev != prev {
                return Err(format!("the inactive list is torn before buffer {at}"));
            }
            (prev, at) = (at, b.lru_next);
        }
        if self.lru_last != prev || listed.iter().filter(|&&l| l).count() != self.inactive {
            return Err(format!("the inactive list ends at {} and counts {}", self.lru_last, self.inactive));
        }
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

    fn check_chain(&self, chain: usize, head: u32, hashed: &mut [bool]) -> Result<(), String> {
        let (mut at, mut prev) = (head, NIL);
        while at != NIL {
            let b = &self.buffers[at as usize];
            if core::mem::replace(&mut hashed[at as usize], true) {
                return Err(format!("buffer {at} is in the hash twice"));
            }
            if b.frame == NIL || self.chain_of(b.frame) != chain || b.chain_prev != prev {
                return Err(format!("buffer {at} does not belong in hash chain {chain} behind {prev}"));
            }
            let mut other = b.chain_next;
            while other != NIL && self.buffers[other as usize].frame != b.frame {
                other = self.buffers[other as usize].chain_next;
            }
            if other != NIL {
                return Err(format!("frame {:#x} has two buffers, {at} and {other}", b.frame));
            }
            (prev, at) = (at, b.chain_next);
        }
        Ok(())
    }
}
