//! Mbufs: the pieces that data is in while it is in a socket (4.4BSD; UVM paper, 4.2.3).
//!
//! An [`Mbuf`] is a header with bytes behind it, of one of five kinds. *Small*: in the mbuf itself. *Cluster*: a page
//! of the kernel's, from a pool. *Disposable*: a page that a driver receives into, made to be given away. *External*:
//! pages that a process has lent. *Card*: a page of a device's own memory, which can be neither given away nor lent on,
//! only copied. Storage is reference-counted, because several mbufs may show parts of the same; with the last reference
//! a cluster goes back to the pool, a disposable page is freed, and a loan goes back to its lender.
//!
//! # Who owns it
//! Whoever has the mbuf, and its bytes with it. An mbuf that is dropped instead of given to [`Pool::free`](super::Pool)
//! leaks: the checks at rest find that, and lost loans are counted by the VM system.

use super::disposable::Disposable;
use super::lent::External;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use pageferry_hal::{PAGE_SIZE, Pfn, StructVa, Va, VaRange};
use pageferry_vm::KernelPages;

/// An mbuf (`MSIZE`).
pub const MBUF_BYTES: usize = 128;
/// The header of an mbuf that begins a record, or has the place of its external bytes.
pub(super) const HEADER_BYTES: usize = 28;
/// Bytes that fit in an mbuf itself (`MHLEN`).
pub const SMALL_BYTES: usize = MBUF_BYTES - HEADER_BYTES;
/// From this size on, bytes go into a cluster (`MINCLSIZE`).
pub const MIN_CLUSTER_BYTES: usize = 2 * SMALL_BYTES + 8;

/// A page of the pool's, and its address where there is no direct map.
#[derive(Debug)]
pub struct Cluster {
    pub(super) mapped_at: Option<Va>,
    pub(super) pages: KernelPages,
    /// Its page was taken while others showed it, which only a defect does.
    pub(super) is_robbed: AtomicBool,
}

impl Cluster {
    pub(super) fn new(mapped_at: Option<Va>, pages: KernelPages) -> Cluster {
        Cluster { mapped_at, pages, is_robbed: AtomicBool::new(false) }
    }
}

/// A page of a device's own memory, and where the kernel has mapped it. It can be neither given away nor lent.
#[derive(Debug)]
pub struct CardPage {
    pub(super) frame: Pfn,
    pub(super) mapped: Option<VaRange>,
}

/// Where an mbuf's bytes are.
#[derive(Clone)]
pub(super) enum Storage {
    Small,
    Cluster(Arc<Cluster>),
    Disposable(Arc<Disposable>),
    External(Arc<External>),
    Card(Arc<CardPage>),
}

/// A piece of data. To be given back with [`Pool::free`](super::Pool::free).
#[must_use = "mbufs must be freed"]
pub struct Mbuf {
    pub(super) at: StructVa,
    pub(super) storage: Storage,
    /// Where the bytes begin in the storage, and how many there are.
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl Mbuf {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No byte is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it counts against a socket buffer's limit of memory.
    pub fn memory_bytes(&self) -> usize {
        match &self.storage {
            Storage::Small => MBUF_BYTES,
            Storage::Cluster(_) | Storage::Disposable(_) | Storage::Card(_) => MBUF_BYTES + PAGE_SIZE,
            Storage::External(_) => MBUF_BYTES + self.len.next_multiple_of(PAGE_SIZE),
        }
    }

    /// Drops `len` bytes from the front.
    pub fn advance(&mut self, len: usize) {
        assert!(len <= self.len, "{len} bytes are taken from {}", self.len);
        self.offset += len;
        self.len -= len;
    }

    /// Room in front (`M_LEADINGSPACE`) of the bytes of a small mbuf, which only its owner can see.
    pub fn leading_space(&self) -> usize {
        match self.storage {
            Storage::Small => self.offset,
            _ => 0,
        }
    }

    /// Takes `len` bytes of the room in front.
    pub fn prepend(&mut self, len: usize) {
        assert!(
            len <= self.leading_space(),
            "{len} bytes go in front of an mbuf with room for {}",
            self.offset
        );
        self.offset -= len;
        self.len += len;
    }

    /// Drops all but the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len, "{len} bytes are kept of {}", self.len);
        self.len = len;
    }

    /// Space behind (`M_TRAILINGSPACE`) the bytes of a small mbuf, which only its owner can see.
    pub fn trailing_space(&self) -> usize {
        match self.storage {
            Storage::Small => SMALL_BYTES - self.offset - self.len,
            _ => 0,
        }
    }

    /// Notes that the bytes were extended by `len`.
    pub fn extend(&mut self, len: usize) {
        assert!(len <= self.trailing_space(), "{len} bytes are added where {} fit", self.trailing_space());
        self.len += len;
    }

    /// It shows a page that a driver has received into, made to be given away.
    pub fn is_disposable(&self) -> bool {
        matches!(self.storage, Storage::Disposable(_))
    }

    /// How many whole pages of a loan it begins with.
    pub fn whole_lent_pages(&self) -> usize {
        match &self.storage {
            Storage::External(external)
                if external.loan().is_some() && self.offset.is_multiple_of(PAGE_SIZE) =>
            {
                self.len / PAGE_SIZE
            }
            _ => 0,
        }
    }

    /// Where its bytes are in memory, for a device: frames, and in each the first byte and how many. `None` for a small
    /// mbuf, whose bytes are in no page of their own.
    pub fn fragments(&self) -> Option<Vec<(Pfn, usize, usize)>> {
        let frames = match &self.storage {
            Storage::Small => return None,
            Storage::Cluster(c) => c.pages.frames(),
            Storage::Disposable(d) => d.frames(),
            Storage::External(e) => e.frames(),
            Storage::Card(page) => core::slice::from_ref(&page.frame),
        };
        let mut found = Vec::new();
        let mut at = self.offset;
        while at < self.offset + self.len {
            let len = (PAGE_SIZE - at % PAGE_SIZE).min(self.offset + self.len - at);
            found.push((frames[at / PAGE_SIZE], at % PAGE_SIZE, len));
            at += len;
        }
        Some(found)
    }

    /// The frames of its pages that are on loan; for checks.
    pub fn lent_frames(&self) -> &[Pfn] {
        match &self.storage {
            Storage::External(external) => external.loan().map_or(&[], |loan| loan.frames()),
            _ => &[],
        }
    }
}
