//! What is mounted: the volume on the memory disk, under its lock.
//!
//! # What it holds
//! At most one [`Volume`], its [`Buffers`], the objects of files that are mapped, and how many files are open. All that
//! a file system does is in `pageferry_fs`; here are the buffers that it is lent for a call.
//!
//! # Locks
//! One sleep lock over all of it, as FreeBSD 5 ran its file systems under one lock; whoever holds it has taken the
//! volume out of the state. It is held while bytes move to a process or from it, and while the disk works. No spin lock
//! is held before and after.
//!
//! # What can fail
//! All that fails in a file system; a wait, by a signal. A file that is closed, and what becomes free by that, waits
//! for the lock whatever comes.

use super::buffer_cache::Cached;
use super::buffers::{Buffers, Disk};
use crate::base::Core;
use crate::disk::MemoryDisk;
use crate::proc::Syscall;
use crate::sched::{Monitor, SleepLock};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use litemap::LiteMap;
use pageferry_abi::Errno;
use pageferry_fs::{Format, Ino, Volume};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Cause, Machine, StructArena, Threads};
use pageferry_vm::Object;

/// The mounted volume of a kernel, if there is one, under one sleep lock.
pub struct MountedVolume<M: Machine> {
    disk: Arc<MemoryDisk<M>>,
    /// Files whose pages are an object's, to be looked at without a lock.
    objects: AtomicUsize,
    state: Monitor<M, State<M>>,
}

struct State<M: Machine> {
    io: SleepLock,
    /// Whoever reads or writes by pages has it, beside that: see `volume_pages`.
    pages: SleepLock,
    mounted: Option<Box<Mounted<M>>>,
}

struct Mounted<M: Machine> {
    volume: Volume,
    buffers: Buffers<M>,
    opens: u32,
    /// Files whose pages are an object's. Each has its inode open.
    objects: Objects<M>,
}

/// Objects by inode.
pub(super) type Objects<M> = LiteMap<Ino, Arc<Object<M>>>;

impl<M: Machine> MountedVolume<M> {
    /// Nothing is mounted yet; what will be is on `disk`.
    pub fn new(
        machine: &M,
        disk: Arc<MemoryDisk<M>>,
        arena: &mut StructArena,
    ) -> Result<MountedVolume<M>, ArenaFull> {
        let at = arena.array("mount", 1, 256)?;
        let state = State { io: SleepLock::default(), pages: SleepLock::default(), mounted: None };
        Ok(MountedVolume { disk, objects: AtomicUsize::new(0), state: Monitor::new(machine, at, state) })
    }

    /// Something is mounted.
    pub fn exists(&self) -> bool {
        let state = self.state.lock();
        state.mounted.is_some() || state.io.is_taken()
    }

    /// Does `work` with what is mounted, or is not, under the sleep lock.
    fn locked<R>(
        &self,
        core: &Core<M>,
        threads: &dyn Threads,
        interruptible: bool,
        work: impl FnOnce(&mut Option<Box<Mounted<M>>>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let _c = core.machine.scope(Cause::Protocol);
        let mut mounted = self.take(threads, interruptible)?;
        let result = work(&mut mounted);
        self.put_back(threads, mounted);
        result
    }

    /// Takes the sleep lock, and what is mounted.
    fn take(&self, threads: &dyn Threads, interruptible: bool) -> Result<Option<Box<Mounted<M>>>, Errno> {
        let (mut held, taken) =
            self.state.acquire(threads, self.state.lock(), |s| &mut s.io, "ufs", interruptible);
        taken?;
        Ok(held.mounted.take())
    }

    fn put_back(&self, threads: &dyn Threads, mounted: Option<Box<Mounted<M>>>) {
        let mut held = self.state.lock();
        held.mounted = mounted;
        self.state.release(threads, &mut held, |s| &mut s.io);
    }

    /// Does `work` with the volume and its disk.
    pub(super) fn with<R>(
        &self,
        core: &Core<M>,
        threads: &dyn Threads,
        interruptible: bool,
        work: impl FnOnce(&mut Volume, &mut Cached<'_, Disk<'_, M>>, &mut u32) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.locked(core, threads, interruptible, |mounted| {
            let Mounted { volume, buffers, opens, .. } = &mut **mounted.as_mut().ok_or(Errno::NoFile)?;
            let mut disk = buffers.on(core, threads, &self.disk);
            // Whoever wants something may not be told that the disk has failed others: they try again.
            _ = disk.sync_due();
            work(volume, &mut disk, opens)
        })
    }

    /// Does `work` with the volume, its disk and the objects of its files. No signal keeps it from that.
    pub(super) fn with_objects<R>(
        &self,
        core: &Core<M>,
        threads: &dyn Threads,
        work: impl FnOnce(&mut Volume, &mut Cached<'_, Disk<'_, M>>, &mut Objects<M>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.locked(core, threads, false, |mounted| {
            let Mounted { volume, buffers, objects, .. } = &mut **mounted.as_mut().ok_or(Errno::NoFile)?;
            let result = work(volume, &mut buffers.on(core, threads, &self.disk), objects);
            self.objects.store(objects.len(), Ordering::Relaxed);
            result
        })
    }

    /// Pages of some file are an object's: then files are read and written by pages.
    pub(super) fn has_objects(&self) -> bool {
        self.objects.load(Ordering::Relaxed) > 0
    }

    /// Does `work` under the lock of those who read and write by pages.
    pub(super) fn by_pages<R>(
        &self,
        call: &Syscall<'_, M>,
        work: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let _c = call.machine().scope(Cause::Protocol);
        let (held, taken) =
            self.state.acquire(call.thread, self.state.lock(), |s| &mut s.pages, "vnode", true);
        drop(held);
        taken?;
        let result = work();
        self.state.release(call.thread, &mut self.state.lock(), |s| &mut s.pages);
        result
    }

    /// Writes all, and lets go of the disk. At the end of everything no signal keeps it from that.
    pub fn let_go(&self, core: &Core<M>, threads: &dyn Threads, interruptible: bool) -> Result<(), Errno> {
        self.end_objects(core, threads);
        self.locked(core, threads, interruptible, |mounted| {
            let mut there = mounted.take().ok_or(Errno::Invalid)?;
            if there.opens > 0 || interruptible && !there.objects.is_empty() {
                *mounted = Some(there);
                return Err(Errno::Busy);
            }
            // What could not be written goes with the disk.
            for (ino, object) in core::mem::take(&mut there.objects) {
                core.vm.truncate_file(threads, &object, 0);
                assert!(core.vm.end_vnode(&object), "no process is left that could map it");
                _ = there.volume.close(&mut there.buffers.on(core, threads, &self.disk), ino);
            }
            self.objects.store(0, Ordering::Relaxed);
            let Mounted { volume, mut buffers, .. } = *there;
            let written = volume.unmount(&mut buffers.on(core, threads, &self.disk));
            buffers.end(core);
            self.disk.close();
            Ok(written?)
        })
    }

    /// Ends the objects of files that nobody maps, and writes back what was stored through their mappings. What cannot
    /// be written stays, and is tried again.
    pub(super) fn end_objects(&self, core: &Core<M>, threads: &dyn Threads) {
        if !self.has_objects() {
            return;
        }
        let there = self.with_objects(core, threads, |_, _, objects| {
            Ok(objects.iter().map(|(ino, object)| (*ino, object.clone())).collect::<Vec<_>>())
        });
        for (ino, object) in there.unwrap_or_default() {
            if core.vm.is_shared(&object) {
                continue;
            }
            _ = core.vm.clean_file(threads, &object);
            // The disk may fail, and no caller is left to be told.
            _ = self.with_objects(core, threads, |volume, disk, objects| {
                let same = objects.get(&ino).is_some_and(|there| Arc::ptr_eq(there, &object));
                if same && core.vm.end_vnode(&object) {
                    objects.remove(&ino);
                    volume.close(disk, ino)?;
                }
                Ok(())
            });
        }
    }

    /// Closes a file; it goes if it has no names.
    pub fn close(&self, call: &Syscall<'_, M>, ino: Ino) {
        let closed = self.with(call.core, call.thread, false, |volume, disk, opens| {
            *opens -= 1;
            Ok(volume.close(disk, ino)?)
        });
        // The disk may fail, and no caller is left to be told.
        let _ = closed;
        self.end_objects(call.core, call.thread);
    }

    /// Makes a volume on the disk, which is not mounted, or mounts what is there.
    pub(super) fn mount(
        &self,
        call: &Syscall<'_, M>,
        format: Option<Format>,
        soft_updates: bool,
    ) -> Result<(), Errno> {
        let (core, threads) = (call.core, call.thread);
        self.locked(core, threads, true, |mounted| {
            if mounted.is_some() {
                return Err(Errno::Busy);
            }
            self.disk.open()?;
            let begun = Buffers::new(core, self.disk.len_bytes()).and_then(|mut buffers| {
                let disk = &mut buffers.on(core, threads, &self.disk);
                let volume = match format {
                    Some(format) => Volume::format(disk, format),
                    None => Volume::mount(disk),
                };
                let volume = volume.and_then(|mut volume| {
                    if soft_updates {
                        disk.cache.use_soft_updates(core.config.disk.syncer, core.config.defect);
                        volume.use_soft_updates(disk)?;
                    }
                    Ok(volume)
                });
                match volume {
                    Ok(volume) => Ok(Mounted { volume, buffers, opens: 0, objects: LiteMap::new() }),
                    Err(e) => {
                        buffers.end(core);
                        Err(e.into())
                    }
                }
            });
            let new = begun.inspect_err(|_| self.disk.close())?;
            *mounted = Some(Box::new(new));
            Ok(())
        })
    }
}
