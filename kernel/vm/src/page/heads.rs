//! Heads of buffers: what a kernel keeps of each block that is on its way between memory and disk, and a hash table of
//! those that stay (Linux: `struct buffer_head`, `hash_table`; 2.2, `fs/buffer.c`).
//!
//! # What it holds
//! Addresses only, in the arena of kernel structures. A page that is on its way has one head for each of its blocks,
//! from the front of the unused ones (`get_unused_buffer_head`), where it goes when the block has come or gone
//! (`end_buffer_io_async`). For each block the hash table is looked through for a buffer that has it already
//! (`brw_page`); none has: the model keeps no blocks of files but their pages. How long that takes is part of
//! `paths.io`.
//!
//! # Locks
//! None of its own: that of the requests is held.
//!
//! # What can fail
//! Room in the arena, at boot. There are heads of [`MAX_PAGES`] pages: of more that are on their way at once, none is
//! looked at.

use crate::config::BufferHeads;
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_hal::arena::{ArenaFull, Zone};
use pageferry_hal::{Access, Machine, PAGE_SIZE, StructArena, StructVa};

/// Pages of which there are heads.
const MAX_PAGES: usize = 256;
/// A pointer of a 32-bit kernel.
const POINTER_BYTES: usize = 4;

impl BufferHeads {
    fn blocks_of_page(self) -> usize {
        (PAGE_SIZE / self.block_bytes).max(1)
    }

    /// Bytes of the arena that they take.
    pub(crate) fn arena_bytes(self) -> usize {
        self.buckets * POINTER_BYTES + MAX_PAGES * self.blocks_of_page() * self.head_bytes + 2 * PAGE_SIZE
    }
}

/// The heads of a kernel. See the [module](self).
pub(crate) struct Heads {
    config: BufferHeads,
    table: StructVa,
    unused: Zone,
    /// Those of each request.
    used: LiteMap<u64, Vec<StructVa>>,
}

impl Heads {
    pub(crate) fn new(config: BufferHeads, arena: &mut StructArena) -> Result<Heads, ArenaFull> {
        let table = arena.array("hash table of buffers", config.buckets, POINTER_BYTES)?;
        let count = MAX_PAGES * config.blocks_of_page();
        let unused = arena.zone("heads of buffers", count, config.head_bytes)?;
        Ok(Heads { config, table, unused, used: LiteMap::new() })
    }

    /// How many are not unused.
    pub(crate) fn in_use(&self) -> usize {
        self.unused.live()
    }

    /// A request is made, of so many pages from a block of a page's size on.
    pub(crate) fn begin<M: Machine>(&mut self, m: &M, request: u64, block: u64, pages: usize) {
        let blocks = self.config.blocks_of_page();
        let first = block * blocks as u64;
        let mut used = Vec::new();
        for place in first..first + (pages * blocks) as u64 {
            let Some(head) = self.unused.alloc() else { break };
            m.touch(head, self.config.head_bytes, Access::Write);
            // Places that follow one another are in buckets that do (`_hashfn`).
            let bucket = (place % self.config.buckets as u64) as usize;
            m.touch(self.table.element(bucket, POINTER_BYTES), POINTER_BYTES, Access::Read);
            used.push(head);
        }
        self.used.insert(request, used);
    }

    /// It is done.
    pub(crate) fn end<M: Machine>(&mut self, m: &M, request: u64) {
        for head in self.used.remove(&request).into_iter().flatten() {
            m.touch(head, self.config.head_bytes, Access::Write);
            self.unused.free(head);
        }
    }
}
