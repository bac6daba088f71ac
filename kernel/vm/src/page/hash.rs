//! The hash table of pages: for each page of an object, where its `vm_page` is found (UVM paper, 3.1; `uvm_pagehash`).
//!
//! # What it holds
//! The address of an array of list heads, a power of two of them, at least as many as frames. The lists go through the
//! `vm_page`s. The model finds pages by maps of its own; here it only says which lines are looked at and written.
//! The kernel's own pages are an object's, too (`uvm.kernel_object`, `uvmexp.mb_object`): their numbers are those of
//! the addresses that the kernel has them at.
//!
//! # Locks
//! Those of the objects; a page changes its list with the page queues locked.
//!
//! # What can fail
//! Room in the arena, at boot.

use crate::config::{bucket_bytes, page_hash_buckets};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Access, Board, Machine, StructArena, StructVa};

/// See the [module](self).
pub(crate) struct PageHash {
    at: StructVa,
    buckets: usize,
    /// Of a list's head: two pointers.
    bucket_bytes: usize,
}

impl PageHash {
    pub(crate) fn new(board: Board, arena: &mut StructArena) -> Result<PageHash, ArenaFull> {
        let (buckets, bucket_bytes) = (page_hash_buckets(board), bucket_bytes(board));
        let at = arena.array("hash table of pages", buckets, bucket_bytes)?;
        Ok(PageHash { at, buckets, bucket_bytes })
    }

    /// Looks at the list of page `page` of the object whose structure lies at `object`, or changes it.
    pub(super) fn touch<M: Machine>(&self, m: &M, object: StructVa, page: u64, access: Access) {
        let bucket = (object.0.0.wrapping_add(page)) as usize & (self.buckets - 1);
        m.touch(self.at.element(bucket, self.bucket_bytes), self.bucket_bytes, access);
    }
}
