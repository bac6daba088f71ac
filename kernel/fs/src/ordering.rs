//! Soft updates, the part of the volume: what it says to its store of what has to be on the disk before what.
//!
//! # The model
//! A volume without soft updates writes names, inodes and pointers at once, one behind the other, in an order that the
//! [crate] tells of. With them it says the same order and does not wait:
//!
//! * **Within a call** each change that would be written at once is after the one before it (`chain`). So what a power
//!   cut leaves of a call is what it would have left without soft updates: some first part.
//! * **Contents before pointers.** An inode or an indirect block that points to a block just taken is after that
//!   block's contents; those of files, too: no file shows what another had in its blocks.
//! * **A name is after its inode, after the end of the same name before, and after its directory**: that has its blocks
//!   and its own name. So a name on the disk can be reached there, and `fsync` has to see to the names of one file
//!   only. (A directory of its path that has moved since may still be in the old place.)
//! * **An inode waits for what its earlier states wait for** (but for contents of blocks that it no longer has): its
//!   count of names does not sink before the names are gone.
//! * **A directory's name goes after all changes in it**: what was moved out has its new name.
//! * **Directories move one after the other**, each after its name, and go after that: no two come to lie within
//!   each other, and one that has moved and does not know it has both names.
//! * **Blocks and inodes are free again when nothing on the disk points to them** (`freed`): with the call's last
//!   change. Where a call finds no room, and some are on their way, it has all written first.
//!
//! Free maps are after nothing, as ever: the checker makes them anew.
//!
//! # Who owns it
//! The volume. What waits is in the store: here are numbers of changes, and those that wait no more are dropped.

use crate::Ino;
use crate::chunk::KIND_AT;
use crate::defect::FsDefect;
use crate::error::FsError;
use crate::inode::Inode;
use crate::layout::{INODE_BYTES, Run};
use crate::order::{Freed, MIN_KEPT, NameChange, Order, prune};
use crate::soft::{ChangeId, ChangeOf, SoftUpdates};
use crate::store::{SECTOR_BYTES, Sort, Store, When};
use crate::volume::Volume;
use alloc::vec;
use alloc::vec::Vec;

/// The soft updates of a store of which the volume knows that it has them.
fn soft(store: &mut dyn Store) -> &mut SoftUpdates {
    store.soft_updates().expect("the volume has seen that the store has them")
}

impl Volume {
    /// From now on changes are written as soft updates.
    ///
    /// # Errors
    /// [`FsError::Invalid`]: the store cannot do that.
    pub fn use_soft_updates(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        let soft = store.soft_updates().ok_or(FsError::Invalid)?;
        let seen = soft.settled();
        self.order = Some(Order { seen, kept: MIN_KEPT, ..Order::default() });
        Ok(())
    }

    /// A call begins that changes something.
    pub(crate) fn begin(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        let Some(order) = &mut self.order else { return Ok(()) };
        order.chain.clear();
        self.reap(store)
    }

    /// Gives back what nothing on the disk points to any more.
    fn reap(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        let Some(order) = &mut self.order else { return Ok(()) };
        let soft = soft(store);
        if order.len() > order.kept {
            prune(&mut order.inodes, soft);
            prune(&mut order.names, soft);
            prune(&mut order.left, soft);
            order.kept = MIN_KEPT + 2 * order.len();
        }
        if order.seen == soft.settled() {
            return Ok(());
        }
        order.seen = soft.settled();
        let ready = |freed: &mut Freed| freed.after.iter().all(|id| !soft.waits(*id));
        let ready: Vec<Freed> = order.freed.extract_if(.., ready).collect();
        ready.into_iter().try_for_each(|freed| self.give(store, &freed.runs, freed.ino))
    }

    /// Gives fragments, and an inode, back, to which nothing on the disk points.
    pub(crate) fn give(
        &mut self,
        store: &mut dyn Store,
        runs: &[Run],
        ino: Option<Ino>,
    ) -> Result<(), FsError> {
        for &run in runs {
            store.forget(self.geometry.bytes_of(run));
            if !self.defect.is(FsDefect::BlocksNotFreed) {
                self.maps.give_run(store, run)?;
            }
        }
        ino.map_or(Ok(()), |ino| self.maps.give_inode(store, ino))
    }

    /// Frees fragments, and an inode, to which this call has cleared all pointers.
    pub(crate) fn free(
        &mut self,
        store: &mut dyn Store,
        runs: &[Run],
        ino: Option<Ino>,
    ) -> Result<(), FsError> {
        let Some(order) = &mut self.order else { return self.give(store, runs, ino) };
        if let Some(ino) = ino {
            order.inodes.remove(&ino);
            order.names.remove(&ino);
        }
        let soft = soft(store);
        let after: Vec<ChangeId> = order.chain.iter().copied().filter(|id| soft.waits(*id)).collect();
        if after.is_empty() || self.defect.is(FsDefect::ReusedEarly) {
            return self.give(store, runs, ino);
        }
        order.freed.push(Freed { after, runs: runs.to_vec(), ino });
        Ok(())
    }

    /// A file has moved from these fragments by this call. Without soft updates its inode is not written at once for
    /// that (`ffs_realloccg`): they are free when it next is, or all that waits.
    pub(crate) fn vacate(&mut self, store: &mut dyn Store, ino: Ino, run: Run) -> Result<(), FsError> {
        if self.order.is_some() {
            return self.free(store, &[run], None);
        }
        store.forget(self.geometry.bytes_of(run));
        if self.defect.is(FsDefect::VacatedReused) {
            return self.give(store, &[run], None);
        }
        self.vacated.entry(ino).or_default().push(run);
        Ok(())
    }

    /// All that waited is on the disk: gives back what files have moved from.
    pub(crate) fn give_vacated(&mut self, store: &mut dyn Store) -> Result<(), FsError> {
        core::mem::take(&mut self.vacated).into_values().try_for_each(|runs| self.give(store, &runs, None))
    }

    /// Fragments and inodes that are on their way to be free.
    pub(crate) fn on_their_way(&self) -> (u32, u32) {
        let count = |runs: &[Run]| runs.iter().map(|run| run.count).sum::<u32>();
        let vacated: u32 = self.vacated.values().map(|runs| count(runs)).sum();
        let freed = self.order.iter().flat_map(|order| &order.freed);
        freed.fold((vacated, 0), |(fragments, inodes), one| {
            (fragments + count(&one.runs), inodes + u32::from(one.ino.is_some()))
        })
    }

    /// There is no room: has what is on its way to be free written. True if there is more room then.
    fn make_room(&mut self, store: &mut dyn Store) -> Result<bool, FsError> {
        let waiting = self.on_their_way();
        if waiting == (0, 0) {
            return Ok(false);
        }
        // Those that are in memory may not have been written since.
        let moved = self.vacated.keys().filter_map(|ino| Some((*ino, self.nodes.get(ino)?.inode)));
        moved
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|(ino, inode)| inode.write(&self.geometry, store, ino, When::Later))?;
        store.sync()?;
        self.reap(store)?;
        self.give_vacated(store)?;
        Ok(self.on_their_way() != waiting)
    }

    /// Takes fragments whose contents come now: `near`, and with room to grow if they are to be `roomy`.
    pub(crate) fn take_run(
        &mut self,
        store: &mut dyn Store,
        near: u32,
        count: u32,
        roomy: bool,
    ) -> Result<Run, FsError> {
        let run = match self.maps.take_run(store, near, count, roomy) {
            Err(FsError::NoSpace) if self.make_room(store)? => self.maps.take_run(store, near, count, roomy),
            taken => taken,
        }?;
        self.expect_contents(store, run);
        Ok(run)
    }

    /// Takes a block whose contents come now.
    pub(crate) fn take_block(&mut self, store: &mut dyn Store, near: u32) -> Result<Run, FsError> {
        self.take_run(store, near, self.geometry.per_block(), false)
    }

    /// The contents of fragments that were just taken come now.
    pub(crate) fn expect_contents(&mut self, store: &mut dyn Store, run: Run) {
        if self.order.is_some() && !self.defect.is(FsDefect::ContentsForgotten) {
            soft(store).add_contents(self.geometry.bytes_of(run));
        }
    }

    /// Takes an inode.
    pub(crate) fn take_inode(
        &mut self,
        store: &mut dyn Store,
        near: Ino,
        directory: bool,
    ) -> Result<Ino, FsError> {
        match self.maps.take_inode(store, near, directory) {
            Err(FsError::NoSpace) if self.make_room(store)? => self.maps.take_inode(store, near, directory),
            taken => taken,
        }
    }

    /// Writes the contents of new fragments, or the first part of them.
    pub(crate) fn write_contents(
        &mut self,
        store: &mut dyn Store,
        run: Run,
        bytes: &[u8],
        sort: Sort,
        when: When,
    ) -> Result<(), FsError> {
        let at = self.geometry.byte_of(run.first);
        if self.order.is_none() {
            return Ok(store.write(at, bytes, when)?);
        }
        let mut whole = bytes.to_vec();
        whole.resize(self.geometry.len_of(run), 0);
        store.write(at, &whole, When::Later)?;
        store.hurry(self.geometry.bytes_of(run), sort);
        Ok(())
    }

    /// Writes an inode.
    pub(crate) fn write_inode(
        &mut self,
        store: &mut dyn Store,
        ino: Ino,
        inode: &Inode,
        when: When,
    ) -> Result<(), FsError> {
        let Some(order) = &mut self.order else {
            inode.write(&self.geometry, store, ino, when)?;
            let vacated = if when == When::Now { self.vacated.remove(&ino) } else { None };
            return vacated.map_or(Ok(()), |runs| self.give(store, &runs, None));
        };
        let soft = soft(store);
        let mut after = order.inodes.remove(&ino).unwrap_or_default();
        if when == When::Now && !self.defect.is(FsDefect::CountBeforeName) {
            after.extend(&order.chain);
        }
        after.retain(|id| soft.waits(*id));
        after.sort_unstable();
        after.dedup();
        if !after.is_empty() {
            order.inodes.insert(ino, after.clone());
        }
        let runs =
            (0..inode.pointers.len()).filter_map(|which| self.run_of(inode, inode.size, which).ok()?);
        after.extend(runs.flat_map(|run| soft.contents_of(self.geometry.bytes_of(run))));
        let at = self.geometry.inode_at(ino.0);
        self.change_bytes(store, (at, &inode.encode()), when, &after)
    }

    /// Writes bytes of an indirect block; where it is a pointer, after the contents of that block.
    pub(crate) fn write_pointers(
        &mut self,
        store: &mut dyn Store,
        (at, bytes): (u64, &[u8]),
        block: Option<u32>,
        when: When,
    ) -> Result<(), FsError> {
        let Some(order) = &self.order else { return Ok(store.write(at, bytes, when)?) };
        let mut after = if when == When::Now { order.chain.clone() } else { Vec::new() };
        let contents =
            block.map(|block| soft(store).contents_of(self.geometry.bytes_of(self.geometry.block_at(block))));
        after.extend(contents.into_iter().flatten());
        self.change_bytes(store, (at, bytes), when, &after)
    }

    /// Writes a chunk of a directory in which a name has changed, whose entry is at `entry`.
    ///
    /// With soft updates the entry's inode is a change, and the rest is written whenever it likes: an entry without an
    /// inode is room. (FFS rolls back names in this way, too.)
    pub(crate) fn write_name(
        &mut self,
        store: &mut dyn Store,
        (at, chunk, entry): (u64, &[u8; SECTOR_BYTES], usize),
        how: &NameChange<'_>,
    ) -> Result<(), FsError> {
        if self.order.is_none() {
            return Ok(store.write(at, chunk, When::Now)?);
        }
        let after = self.before_name(store, how);
        let mut old = [0; SECTOR_BYTES];
        store.read(at, &mut old)?;
        let mut rest = *chunk;
        rest[entry..entry + 4].fill(0);
        if how.is_taken {
            rest[entry..entry + 4].copy_from_slice(&old[entry..entry + 4]);
            rest[entry + KIND_AT] = old[entry + KIND_AT];
        }
        if rest != old {
            store.write(at, &rest, When::Later)?;
            store.hurry(at..at + SECTOR_BYTES as u64, Sort::Directory);
        }
        let of = match how.given_to {
            Some(_) if how.is_taken => ChangeOf::NameMoved,
            Some(_) => ChangeOf::NameGiven,
            None => ChangeOf::NameTaken,
        };
        let (ino, kind) = (entry..entry + 4, entry + KIND_AT..entry + KIND_AT + 1);
        let ids = self.note(store, (at + ino.start as u64, &chunk[ino.clone()]), &after, of)?;
        self.follow(&ids);
        if rest[kind.clone()] != chunk[kind.clone()] {
            // Another kind has the name: with the inode, or not at all.
            let ids = self.note(store, (at + kind.start as u64, &chunk[kind.clone()]), &ids, of)?;
            self.follow(&ids);
        }
        store.write(at + entry as u64, &chunk[ino.start..kind.end], When::Later)?;
        store.hurry(at..at + SECTOR_BYTES as u64, Sort::Directory);
        let Some(order) = &mut self.order else { return Ok(()) };
        match how.given_to {
            Some(ino) => order.names.entry(ino).or_default().extend(&order.chain),
            None => order.left.entry((how.dir, how.name.to_vec())).or_default().extend(&order.chain),
        }
        Ok(())
    }

    /// What a change of a name is after.
    fn before_name(&mut self, store: &mut dyn Store, how: &NameChange<'_>) -> Vec<ChangeId> {
        let Some(order) = &self.order else { return Vec::new() };
        let is_early = match how.given_to {
            Some(_) => self.defect.is(FsDefect::NameBeforeItsInode),
            None => self.defect.is(FsDefect::NameGoneFirst),
        };
        let mut after = if is_early { Vec::new() } else { order.chain.clone() };
        if how.given_to.is_some() {
            let own = self.geometry.inode_at(how.dir.0);
            after.extend(soft(store).within(own..own + INODE_BYTES as u64));
            after.extend(order.names.get(&how.dir).into_iter().flatten());
            if !self.defect.is(FsDefect::NameTwice) {
                after.extend(order.left.get(&(how.dir, how.name.to_vec())).into_iter().flatten());
            }
        }
        after
    }

    /// The entry at a byte of the disk is as it is now whenever its sector is written.
    pub(crate) fn is_settled(&self, store: &mut dyn Store, entry: u64) -> bool {
        self.order.is_none() || soft(store).is_always_written(entry..entry + 4)
    }

    /// Changes bytes in the buffers; what comes next in this call is after that, unless this may be `when` it likes.
    fn change_bytes(
        &mut self,
        store: &mut dyn Store,
        (at, bytes): (u64, &[u8]),
        when: When,
        after: &[ChangeId],
    ) -> Result<(), FsError> {
        let mut old = vec![0; bytes.len()];
        store.read(at, &mut old)?;
        let ids = if old == bytes {
            // Those before it are still to be waited for.
            let within = soft(store).within(at..at + bytes.len() as u64);
            self.order.iter().flat_map(|order| &order.chain).copied().chain(within).collect()
        } else {
            let ids = self.note(store, (at, bytes), after, ChangeOf::Metadata)?;
            store.write(at, bytes, When::Later)?;
            store.hurry(at..at + bytes.len() as u64, Sort::Metadata);
            ids
        };
        if when == When::Now {
            self.follow(&ids);
        }
        Ok(())
    }

    /// Tells the store of bytes that are about to change.
    fn note(
        &mut self,
        store: &mut dyn Store,
        (at, bytes): (u64, &[u8]),
        after: &[ChangeId],
        of: ChangeOf,
    ) -> Result<Vec<ChangeId>, FsError> {
        let mut old = vec![0; bytes.len()];
        store.read(at, &mut old)?;
        let soft = soft(store);
        let (mut ids, mut from) = (Vec::new(), 0);
        while from < bytes.len() {
            let to = bytes.len().min(from + SECTOR_BYTES - (at as usize + from) % SECTOR_BYTES);
            ids.extend(soft.add_bytes(at + from as u64, (&old[from..to], &bytes[from..to]), after, of));
            from = to;
        }
        Ok(ids)
    }

    /// What comes next in this call is after these changes.
    fn follow(&mut self, ids: &[ChangeId]) {
        if let Some(order) = &mut self.order {
            order.chain = ids.to_vec();
        }
    }

    /// What comes next in this call is after all changes in a directory: it is about to lose its name.
    pub(crate) fn after_all_in(&mut self, store: &mut dyn Store, dir: Ino) -> Result<(), FsError> {
        if self.order.is_none() || self.defect.is(FsDefect::FullDirectoryGone) {
            return Ok(());
        }
        let blocks = self.size(store, dir)?.div_ceil(u64::from(self.geometry.block_bytes));
        for index in 0..blocks {
            let Some(block) = self.block_of(store, dir, index)? else { continue };
            let within = soft(store).within(self.geometry.bytes_of(self.geometry.block_at(block)));
            self.order.iter_mut().for_each(|order| order.chain.extend(&within));
        }
        Ok(())
    }

    /// What comes next in this call moves a directory, or takes its name: it is after the last move, and after the name
    /// that it has had.
    pub(crate) fn after_moves(&mut self, ino: Ino) {
        if let Some(order) = &mut self.order
            && !self.defect.is(FsDefect::MovesCross)
        {
            order.chain.extend(&order.moved);
            order.chain.extend(order.names.get(&ino).into_iter().flatten());
        }
    }

    /// A directory has moved by this call.
    pub(crate) fn moved(&mut self) {
        if let Some(order) = &mut self.order {
            order.moved.clone_from(&order.chain);
        }
    }

    /// Has an inode and its names written.
    pub(crate) fn flush_inode(&mut self, store: &mut dyn Store, ino: Ino) -> Result<(), FsError> {
        let Some(order) = &mut self.order else { return Ok(()) };
        let at = self.geometry.inode_at(ino.0);
        let mut ids = soft(store).within(at..at + INODE_BYTES as u64);
        if !self.defect.is(FsDefect::SyncForgetsName) {
            ids.extend(order.names.remove(&ino).unwrap_or_default());
        }
        for id in ids {
            if let Some(bytes) = soft(store).bytes_of(id) {
                store.flush(bytes)?;
            }
        }
        Ok(())
    }
}
