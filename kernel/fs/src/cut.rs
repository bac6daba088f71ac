//! Taking fragments from a file: all behind a new end, or all there are.
//!
//! What points to them is cleared on the disk first, the inode at once and then what stays of indirect blocks;
//! only then are they free, and what waits to be written to them is forgotten.

use crate::Ino;
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::inode::Inode;
use crate::layout::{DIRECT, Run};
use crate::store::{Store, When};
use crate::volume::Volume;
use alloc::vec;
use alloc::vec::Vec;

/// What is found on the way through a file's pointers.
#[derive(Default)]
struct Found {
    /// What is to be free.
    runs: Vec<Run>,
    /// Indirect blocks that stay, and their pointers that do not: block, first pointer.
    kept: Vec<(u32, u64)>,
}

impl Volume {
    /// Cuts a file to `size` bytes, with room for `room` or more; on the disk as well when this returns.
    pub(crate) fn cut(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        room: u64,
        size: u64,
    ) -> Result<(), FsError> {
        let node = self.node(store, ino)?;
        let (before, had) = (node.inode, node.room_bytes);
        let (mut after, found) = self.shortened(store, (before, had), room)?;
        after.size = size;
        self.node(store, ino)?.room_bytes = room;
        if self.defect.is(FsDefect::FreedBeforeCleared) {
            self.give(store, &found.runs, None)?;
            return self.change(store, ino, When::Later, |inode| *inode = after);
        }
        self.change(store, ino, When::Now, |inode| *inode = after)?;
        for (block, first) in found.kept {
            let zeros = vec![0; ((self.geometry.pointers() - first) * 4) as usize];
            let at = self.geometry.byte_of(block) + 4 * first;
            self.write_pointers(store, (at, &zeros), None, When::Now)?;
        }
        self.free(store, &found.runs, None)
    }

    /// Ends an inode without names and openers: it is free on the disk when this returns.
    pub(crate) fn end(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let node = self.node(store, ino)?;
        let before = (node.inode, node.room_bytes);
        let (_, found) = self.shortened(store, before, 0)?;
        if self.defect.is(FsDefect::FreedBeforeCleared) {
            self.give(store, &found.runs, None)?;
            self.write_inode(store, ino, &Inode::FREE, When::Later)?;
            self.give(store, &[], Some(ino))?;
        } else {
            self.write_inode(store, ino, &Inode::FREE, When::Now)?;
            self.free(store, &found.runs, Some(ino))?;
        }
        self.nodes.remove(&ino);
        self.dirs.remove(&ino);
        Ok(())
    }

    /// The inode, which has room for `had` bytes, without what is behind those of `keep`, and what becomes free by
    /// that.
    fn shortened(
        &mut self,
        store: &mut dyn Store,
        (mut inode, had): (Inode, u64),
        keep: u64,
    ) -> Result<(Inode, Found), FsError> {
        let mut found = Found::default();
        let keep_bytes = keep;
        let keep = keep.div_ceil(u64::from(self.geometry.block_bytes));
        for i in 0..DIRECT {
            let Some(run) = self.run_of(&inode, had, i)? else { continue };
            if i as u64 >= keep {
                found.runs.push(run);
                inode.pointers[i] = 0;
                continue;
            }
            let count = self.geometry.fragments_at(keep_bytes, i as u64);
            if count < run.count && !self.defect.is(FsDefect::TailKeepsFragments) {
                found.runs.push(run.behind(count));
            }
        }
        let (mut first, mut covers) = (DIRECT as u64, self.geometry.pointers());
        for (which, depth) in [(DIRECT, 1), (DIRECT + 1, 2)] {
            let root = self.sound_block(inode.pointers[which])?;
            if root != 0 && keep < first + covers {
                let kept = keep.saturating_sub(first);
                if self.prune(store, root, depth, kept, &mut found)? {
                    inode.pointers[which] = 0;
                }
            }
            first += covers;
            covers *= self.geometry.pointers();
        }
        let gone = found.runs.iter().map(|run| run.count).sum();
        inode.fragments = inode.fragments.saturating_sub(gone);
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
            let pointer = self.sound_block(u32::from_le_bytes(pointer.try_into().expect("four bytes")))?;
            if pointer == 0 {
                continue;
            }
            if depth == 2 {
                let kept = if i == first { keep % below } else { 0 };
                if !self.prune(store, pointer, 1, kept, found)? {
                    clear_from = i + 1;
                }
            } else {
                found.runs.push(self.geometry.block_at(pointer));
            }
        }
        let goes = keep == 0;
        if goes {
            found.runs.push(self.geometry.block_at(block));
        } else if clear_from < per {
            found.kept.push((block, clear_from));
        }
        Ok(goes)
    }
}
