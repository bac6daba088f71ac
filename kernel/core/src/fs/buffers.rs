//! The kernel's part of the buffer cache of a mounted volume: pieces of the memory disk in the page cache, and kernel
//! addresses for them.
//!
//! # What it holds
//! The pages are those of one VM object, the disk's, and stay resident whether or not a buffer shows them. A buffer is
//! a run of addresses that keeps four pages mapped and wired: what it was made for once is used again and again without
//! any work on mappings, in every kind of kernel alike (FreeBSD 5: `getblk`, `pmap_qenter`). When all buffers are in
//! use, the one that was used least recently is mapped anew.
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
use pageferry_hal::{Cause, Cycles, Machine, Mode, PAGE_SIZE, Pfn, Threads, Va};
use pageferry_vm::{Backing, Object, Wired};

const BUFFER_PAGES: usize = BUFFER_BYTES / PAGE_SIZE;

/// Addresses, and the pages that they show.
pub(super) struct Mapping {
    run: KvaRun,
    at: Va,
    wired: Vec<Wired>,
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
        let max = config.buffers.max(MIN_BUFFERS);
        let max_dirty = config.dirty_buffers.clamp(1, max / 2);
        let object = core.vm.object(pages, Backing::Zero)?;
        Ok(Buffers { object, cache: BufferCache::new(len_bytes, max, max_dirty) })
    }

    /// Gives everything back. Nothing waits.
    pub(super) fn end(self, core: &Core<M>) {
        for shown in self.cache.into_memory() {
            let run = unmap(core, shown);
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

fn unmap<M: Machine>(core: &Core<M>, mut shown: Mapping) -> KvaRun {
    core.ephemeral.remove_run(&mut shown.run);
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

impl<'a, M: Machine> Disk<'a, M> {
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

    fn show(&mut self, index: u64, room: Room<Mapping>) -> Result<Mapping, Errno> {
        let Disk { core, threads, object, .. } = *self;
        let mut run = match room {
            Room::New(_) => core.ephemeral.kva_run(BUFFER_PAGES, MappingUser::Buffers)?,
            Room::Used(shown) => unmap(core, shown),
        };
        let mut wired = Vec::new();
        for page in 0..BUFFER_PAGES as u64 {
            match core.vm.wire_page(threads, object, index * BUFFER_PAGES as u64 + page, true) {
                Ok(one) => wired.push(one),
                Err(e) => {
                    wired.into_iter().for_each(|one| core.vm.unwire(one));
                    core.ephemeral.release_run(run);
                    return Err(e.into());
                }
            }
        }
        let frames: Vec<Pfn> = wired.iter().map(|one| one.frames()[0]).collect();
        let at = core.ephemeral.enter_run(&mut run, &frames);
        Ok(Mapping { run, at, wired })
    }

    fn address(shown: &Mapping) -> Va {
        shown.at
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
