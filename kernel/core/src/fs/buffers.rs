//! The kernel's part of the buffer cache of a mounted volume: pieces of the memory disk in the page cache, and kernel
//! addresses for them.
//!
//! # What it holds
//! The pages are those of one VM object, the disk's, and stay resident whether or not a buffer shows them. A buffer is
//! a run of addresses for four pages, of which it keeps those of its block, or of a piece of the disk, mapped and
//! wired: what it was made for once is used again and again without any work on mappings, in every kind of kernel
//! alike. Mappings change, all of a buffer's at once, when it is made for something (FreeBSD 5: `getblk`, `allocbuf`,
//! `pmap_qenter`), when its block grows (again `allocbuf`: all are entered once more), and when it is no block's any
//! more, or when all are in use and this one was used least recently (`vfs_vmio_release`, `pmap_qremove`).
//!
//! # Locks
//! None of its own: whoever mounted the volume holds its sleep lock.
//!
//! # What can fail
//! Getting a buffer, for want of frames or addresses, or by a signal in a wait: an error of the disk to the file
//! system.

use super::buffer_cache::{BUFFER_BYTES, BufferCache, Cached, MIN_BUFFERS, Room, Strategy};
use crate::base::Core;
use crate::disk::MemoryDisk;
use crate::proc::UioRw;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_ephemeral::{KvaRun, MappingUser};
use pageferry_fs::SECTOR_BYTES;
use pageferry_hal::{Cause, Cycles, Machine, Mode, PAGE_SIZE, Pfn, Threads, Va};
use pageferry_vm::{Backing, Object, Wired};

const BUFFER_PAGES: usize = BUFFER_BYTES / PAGE_SIZE;

/// Addresses, and the pages that they show, if any.
pub(super) struct Mapping {
    run: KvaRun,
    at: Va,
    /// The first of them, of its piece.
    first: usize,
    wired: Vec<Wired>,
}

/// The pages that sectors of a piece are in.
fn pages_of(sectors: &Range<usize>) -> Range<usize> {
    sectors.start * SECTOR_BYTES / PAGE_SIZE..(sectors.end * SECTOR_BYTES).div_ceil(PAGE_SIZE)
}

/// The buffers of a volume. See the [module](self).
pub(super) struct Buffers<M: Machine> {
    object: Arc<Object<M>>,
    cache: BufferCache<Mapping>,
}

impl<M: Machine> Buffers<M> {
    pub(super) fn new(core: &Core<M>, len_bytes: u64) -> Result<Buffers<M>, Errno> {
        let config = &core.config.disk;
        let pages = len_bytes.div_ceil(BUFFER_BYTES as u64) * BUFFER_PAGES as u64;
        let fit = buffers_for(core.machine.board().frames * PAGE_SIZE);
        let max = config.buffers.min(fit).max(MIN_BUFFERS);
        let max_dirty = config.dirty_buffers.min(fit / 4 + 20).clamp(1, max / 2);
        let object = core.vm.object(pages, Backing::Zero)?;
        Ok(Buffers { object, cache: BufferCache::new(len_bytes, max, max_dirty) })
    }

    /// Gives everything back. Nothing waits.
    pub(super) fn end(self, core: &Core<M>) {
        let (shown, hidden) = self.cache.into_memory();
        for memory in shown.chain(hidden) {
            let run = unmap(core, memory);
            core.ephemeral.release_run(run);
        }
        core.vm.release_object(self.object);
    }

    /// With the thread that uses them, and the disk whose they are.
    pub(super) fn on<'a>(
        &'a mut self,
        core: &'a Core<M>,
        threads: &'a dyn Threads,
        disk: &'a MemoryDisk<M>,
    ) -> Cached<'a, Disk<'a, M>> {
        let Buffers { object, cache } = self;
        Cached { strategy: Disk { core, threads, disk, object }, cache }
    }
}

/// As many buffers as FreeBSD 5 has with so much memory, but for its limit (`kern_vfs_bio_buffer_alloc`, from memory):
/// 50, one for each 64 KB of that between 4 and 68 MB, and two for each 320 KB of what is above 64 MB.
fn buffers_for(memory_bytes: usize) -> usize {
    const FACTOR: usize = 4 * BUFFER_BYTES / 1024;
    let kb = memory_bytes / 1024;
    50 + (kb.saturating_sub(4096) / FACTOR).min(65536 / FACTOR) + kb.saturating_sub(65536) * 2 / (FACTOR * 5)
}

fn unmap<M: Machine>(core: &Core<M>, mut shown: Mapping) -> KvaRun {
    if !shown.wired.is_empty() {
        core.ephemeral.remove_run(&mut shown.run);
    }
    shown.wired.into_iter().for_each(|wired| core.vm.unwire(wired));
    shown.run
}

/// The disk, for a thread.
pub(super) struct Disk<'a, M: Machine> {
    core: &'a Core<M>,
    threads: &'a dyn Threads,
    disk: &'a MemoryDisk<M>,
    object: &'a Arc<Object<M>>,
}

fn frames_of(wired: &[Wired]) -> Vec<Pfn> {
    wired.iter().map(|one| one.frames()[0]).collect()
}

impl<'a, M: Machine> Disk<'a, M> {
    /// Wires pages of a piece.
    fn wire(&self, piece: u64, pages: Range<usize>) -> Result<Vec<Wired>, Errno> {
        let Disk { core, threads, object, .. } = *self;
        let mut wired = Vec::new();
        for page in pages {
            match core.vm.wire_page(threads, object, piece * BUFFER_PAGES as u64 + page as u64, true) {
                Ok(one) => wired.push(one),
                Err(e) => {
                    wired.into_iter().for_each(|one| core.vm.unwire(one));
                    return Err(e.into());
                }
            }
        }
        Ok(wired)
    }

    /// The disk itself, beside its buffers.
    pub(super) fn disk(&self) -> &'a MemoryDisk<M> {
        self.disk
    }
}

impl<M: Machine> Strategy for Disk<'_, M> {
    type Memory = Mapping;
    const KEEPS_PIECES: bool = true;

    fn account_name(&self) {
        self.core.machine.execute(self.core.config.disk.paths.lookup);
    }

    fn account_buffer(&self) {
        self.core.machine.execute(self.core.config.disk.paths.buffer);
    }

    fn now(&self) -> Cycles {
        self.core.machine.now()
    }

    fn show(&mut self, piece: u64, sectors: Range<usize>, room: Room<Mapping>) -> Result<Mapping, Errno> {
        let core = self.core;
        let mut run = match room {
            Room::New(_) => core.ephemeral.kva_run(BUFFER_PAGES, MappingUser::Buffers)?,
            Room::Used(memory) => unmap(core, memory),
        };
        let pages = pages_of(&sectors);
        let first = pages.start;
        let wired = match self.wire(piece, pages) {
            Ok(wired) => wired,
            Err(e) => {
                core.ephemeral.release_run(run);
                return Err(e);
            }
        };
        let at = core.ephemeral.enter_run(&mut run, &frames_of(&wired));
        Ok(Mapping { run, at, first, wired })
    }

    fn show_more(&mut self, piece: u64, end: usize, memory: &mut Mapping) -> Result<(), Errno> {
        let Mapping { run, first, wired, .. } = memory;
        let more = self.wire(piece, *first + wired.len()..pages_of(&(0..end)).end)?;
        wired.extend(more);
        self.core.ephemeral.extend_run(run, &frames_of(wired));
        Ok(())
    }

    fn hide(&mut self, memory: Mapping) -> Mapping {
        let (at, first) = (memory.at, memory.first);
        Mapping { run: unmap(self.core, memory), at, first, wired: Vec::new() }
    }

    fn address(memory: &Mapping) -> Va {
        Va(memory.at.0.wrapping_sub((memory.first * PAGE_SIZE) as u64))
    }

    fn transfer(&mut self, bytes: Range<u64>, at: Va, rw: UioRw) -> Result<(), Errno> {
        self.disk.io(self.core, self.threads, (bytes, at, rw)).1
    }

    fn load(&self, at: Va, bytes: &mut [u8]) -> Result<(), Errno> {
        let loaded = self.core.machine.load(Mode::Kernel, at, bytes);
        loaded.unwrap_or_else(|e| panic!("the kernel's own buffer is mapped: {e:?}"));
        Ok(())
    }

    fn store(&self, at: Va, bytes: &[u8]) {
        let m = &self.core.machine;
        let _c = m.scope(Cause::Copy);
        let stored = m.store(Mode::Kernel, at, bytes);
        stored.unwrap_or_else(|e| panic!("the kernel's own buffer is mapped: {e:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_buffers_as_memory_is_for() {
        let mb = |mb: usize| buffers_for(mb << 20);
        assert_eq!([4, 8, 64, 68].map(mb), [50, 50 + 64, 50 + 960, 50 + 1024 + 25]);
        assert!((12_800..14_000).contains(&mb(2048)), "beyond what 200 MB of addresses have room for");
    }
}
