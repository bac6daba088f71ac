//! Taking blocks from a file: all behind a new end, or all there are.
//!
//! What points to the blocks is cleared on the disk first, the inode at once and then what stays of indirect blocks;
//! only then are the blocks free, and what waits to be written to them is forgotten.

use crate::Ino;
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::inode::Inode;
use crate::layout::DIRECT;
use crate::store::{Store, When};
use crate::volume::Volume;
use alloc::vec;
use alloc::vec::Vec;

/// What is found on the way through a file's pointers.
#[derive(Default)]
struct Found {
    /// Blocks that are to be free.
    blocks: Vec<u32>,
    /// Indirect blocks that stay, and their pointers that do not: block, first pointer.
    kept: Vec<(u32, u64)>,
}

impl Volume {
    /// Cuts a file to `blocks` blocks and `size` bytes; on the disk as well when this returns.
    pub(crate) fn cut(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        blocks: u64,
        size: u64,
    ) -> Result<(), FsError> {
        let before = self.node(store, ino)?.inode;
        let (mut after, found) = self.shortened(store, before, blocks)?;
        after.size = size;
        if self.defect.is(FsDefect::FreedBeforeCleared) {
            self.give(store, &found.blocks, None)?;
            return self.change(store, ino, When::Later, |inode| *inode = after);
        }
        self.change(store, ino, When::Now, |inode| *inode = after)?;
        for (block, first) in found.kept {
            let zeros = vec![0; ((self.geometry.pointers() - first) * 4) as usize];
            let at = self.geometry.byte_of(block) + 4 * first;
            self.write_pointers(store, (at, &zeros), None, When::Now)?;
        }
        self.free(store, &found.blocks, None)
    }

    /// Ends an inode without names and openers: it is free on the disk when this returns.
    pub(crate) fn end(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let before = self.node(store, ino)?.inode;
        let (_, found) = self.shortened(store, before, 0)?;
        if self.defect.is(FsDefect::FreedBeforeCleared) {
            self.give(store, &found.blocks, None)?;
            self.write_inode(store, ino, &Inode::FREE, When::Later)?;
            self.give(store, &[], Some(ino))?;
        } else {
            self.write_inode(store, ino, &Inode::FREE, When::Now)?;
            self.free(store, &found.blocks, Some(ino))?;
        }
        self.nodes.remove(&ino);
        self.dirs.remove(&ino);
        Ok(())
    }

    /// The inode without what is behind block `keep`, and what becomes free by that.
    fn shortened(
        &mut self,
        store: &mut dyn Store,
        mut inode: Inode,
        keep: u64,
    ) -> Result<(Inode, Found), FsError> {
        let mut found = Found::default();
        for i in 0..DIRECT {
            if i as u64 >= keep && self.sound(inode.pointers[i])? != 0 {
                found.blocks.push(core::mem::take(&mut inode.pointers[i]));
            }
        }
        let (mut first, mut covers) = (DIRECT as u64, self.geometry.pointers());
        for (which, depth) in [(DIRECT, 1), (DIRECT + 1, 2)] {
            let root = self.sound(inode.pointers[which])?;
            if root != 0 && keep < first + covers {
                let kept = keep.saturating_sub(first);
                if self.prune(store, root, depth, kept, &mut found)? {
                    inode.pointers[which] = 0;
                }
            }
            first += covers;
            covers *= self.geometry.pointers();
        }
        inode.blocks = inode.blocks.saturating_sub(found.blocks.len() as u32);
        Ok((inode, found))
    }

    /// Goes through an indirect block, of whose blocks the first `keep` stay; true if it goes itself.
    fn prune(
        &mut self,
        store: &mut dyn Store,
        block: u32,
        depth: u32,
        keep: u64,
        found: &mut Found,
    ) -> Result<bool, FsError> {
        let per = self.geometry.pointers();
        let below = if depth == 2 { per } else { 1 };
        let first = keep / below;
        let mut bytes = vec![0; self.geometry.block_bytes as usize];
        store.read(self.geometry.byte_of(block), &mut bytes)?;
        let mut clear_from = keep.div_ceil(below);
        for (i, pointer) in (0..per).zip(bytes.chunks_exact(4)).skip(first as usize) {
            let pointer = self.sound(u32::from_le_bytes(pointer.try_into().expect("four bytes")))?;
            if pointer == 0 {
                continue;
            }
            if depth == 2 {
                let kept = if i == first { keep % below } else { 0 };
                if !self.prune(store, pointer, 1, kept, found)? {
                    clear_from = i + 1;
                }
            } else {
                found.blocks.push(pointer);
            }
        }
        let goes = keep == 0;
        if goes {
            found.blocks.push(block);
        } else if clear_from < per {
            found.kept.push((block, clear_from));
        }
        Ok(goes)
    }
}
