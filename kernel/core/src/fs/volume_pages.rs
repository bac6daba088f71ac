//! The page cache of the volume: files whose pages are a VM object's, because they are mapped (`ubc`).
//!
//! As long as there is such a file, files of the volume are read and written by pages, as those in memory are: so that
//! mappings and calls see the same bytes, and because a buffer may itself be a mapping of the volume, whose pages come
//! from where the volume's lock has to be taken. What was stored through a mapping is written back when the program
//! asks for it, when a file is closed and nobody maps this one any more, and when the volume is unmounted.
//!
//! # Locks
//! A sleep lock of those who read and write by pages, and the volume's within that for a moment. Faults take the latter
//! alone, so a process may read a file into its own mapping of it.
//!
//! # What can fail
//! Space on the volume: where a write has none for all of its bytes, it ends where the space does.

use super::mounted::MountedVolume;
use super::object_io::{clear_tail, each_page};
use super::volume_pager::FilePager;
use crate::proc::{Syscall, Uio, UioRw};
use alloc::sync::Arc;
use alloc::vec;
use pageferry_abi::Errno;
use pageferry_fs::{FsError, Ino, Store as _, When};
use pageferry_hal::{Machine, PAGE_SIZE};
use pageferry_vm::Object;

fn pages_of(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(PAGE_SIZE as u64)
}

impl<M: Machine> MountedVolume<M> {
    /// Does `work` with the object of a file, which is made if there is none.
    ///
    /// # Errors
    /// [`Errno::NoMemory`]; those of `work`.
    pub(super) fn with_object<R>(
        self: &Arc<Self>,
        call: &Syscall<'_, M>,
        ino: Ino,
        work: impl FnOnce(&Arc<Object<M>>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let vm = &call.core.vm;
        let object = self.with_objects(call.core, call.thread, |volume, disk, objects| {
            if let Some(object) = objects.get(&ino) {
                vm.reference_object(object);
                return Ok(object.clone());
            }
            let pages = pages_of(volume.stat(disk, ino)?.size_bytes);
            let object = vm.vnode_object(pages, Arc::new(FilePager::new(call.core, self, ino)))?;
            if let Err(e) = volume.open(disk, ino) {
                vm.release_object(object);
                return Err(e.into());
            }
            vm.reference_object(&object);
            objects.insert(ino, object.clone());
            Ok(object)
        })?;
        let result = work(&object);
        vm.release_object(object);
        result
    }

    /// The object of a file, if it has one. The caller has a call on the file in progress, or it is not its own.
    fn object(&self, call: &Syscall<'_, M>, ino: Ino) -> Result<Option<Arc<Object<M>>>, Errno> {
        self.with_objects(call.core, call.thread, |_, _, objects| {
            let object = objects.get(&ino);
            object.into_iter().for_each(|object| call.core.vm.reference_object(object));
            Ok(object.cloned())
        })
    }

    /// Writes back what was stored through mappings of a file.
    ///
    /// # Errors
    /// [`Errno::Io`].
    pub(super) fn write_back(&self, call: &Syscall<'_, M>, ino: Ino) -> Result<(), Errno> {
        if !self.has_objects() {
            return Ok(());
        }
        let Some(object) = self.object(call, ino)? else { return Ok(()) };
        let written = call.core.vm.clean_file(call.thread, &object);
        call.core.vm.release_object(object);
        Ok(written?)
    }

    fn size_of(&self, call: &Syscall<'_, M>, ino: Ino) -> Result<u64, Errno> {
        self.with(call.core, call.thread, false, |volume, disk, _| Ok(volume.stat(disk, ino)?.size_bytes))
    }

    /// Moves bytes between a file and a buffer, from where that is in the file on. Under the lock of
    /// [`MountedVolume::by_pages`].
    ///
    /// # Errors
    /// Space on the volume, the disk, the caller's addresses; the bytes before have moved.
    pub(super) fn move_pages(
        self: &Arc<Self>,
        call: &Syscall<'_, M>,
        ino: Ino,
        uio: &mut Uio,
        copy: &mut dyn FnMut(pageferry_hal::Va, usize, &mut Uio) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.with_object(call, ino, |object| match uio.rw() {
            UioRw::Read => {
                let left = self.size_of(call, ino)?.saturating_sub(uio.offset());
                uio.limit(usize::try_from(left).unwrap_or(usize::MAX));
                let (at, len) = (uio.offset(), uio.left());
                each_page(call, object, at, len, false, &mut |kva, _, piece| copy(kva, piece, uio))
            }
            UioRw::Write => {
                let (old, how) = self.make_room(call, ino, uio)?;
                let (at, len) = (uio.offset(), uio.left());
                let end = at + len as u64;
                call.core.vm.extend_vnode(object, pages_of(end));
                if end > old {
                    self.clear_old_end(call, ino, object, old)?;
                }
                let copied =
                    each_page(call, object, at, len, true, &mut |kva, _, piece| copy(kva, piece, uio));
                let reached = if uio.done() > 0 { uio.offset().max(old) } else { old };
                if end > old && reached < end {
                    self.cut(call, ino, object, reached)?;
                }
                copied.and(how)
            }
        })
    }

    /// Takes the blocks that a write needs, and makes the file so long; answers how long it was. Where there is not
    /// room for all of it the buffer is limited to what there is room for, and the reason is for when it is written.
    fn make_room(
        &self,
        call: &Syscall<'_, M>,
        ino: Ino,
        uio: &mut Uio,
    ) -> Result<(u64, Result<(), Errno>), Errno> {
        let begin = uio.offset();
        let end = begin.checked_add(uio.left() as u64).ok_or(Errno::TooLarge)?;
        self.with(call.core, call.thread, false, |volume, disk, _| {
            let old = volume.stat(disk, ino)?.size_bytes;
            let (mut at, mut how) = (begin, Ok(()));
            while at < end {
                let len = usize::try_from(end - at).unwrap_or(usize::MAX);
                match volume.piece_to_write(disk, ino, at, len) {
                    Ok(next) => {
                        if next.is_new
                            && let Err(e) = disk.write(next.at, &vec![0; next.len_bytes], When::Later)
                        {
                            volume.give_back(disk, ino, at)?;
                            volume.give_back_behind(disk, ino)?;
                            return Err(e.into());
                        }
                        at += next.len_bytes as u64;
                    }
                    Err(e) if at > begin && matches!(e, FsError::NoSpace | FsError::TooLarge) => {
                        how = Err(e.into());
                        break;
                    }
                    Err(e) => {
                        volume.give_back_behind(disk, ino)?;
                        return Err(e.into());
                    }
                }
            }
            uio.limit((at - begin) as usize);
            if at > begin {
                volume.wrote(disk, ino, at.max(old))?;
            }
            Ok((old, how))
        })
    }

    /// Cuts a file, or lets it grow by zeros. Under the lock of [`MountedVolume::by_pages`].
    ///
    /// # Errors
    /// Those of the file system; and of its pages, of which the file is cut all the same.
    pub(super) fn set_size(
        self: &Arc<Self>,
        call: &Syscall<'_, M>,
        ino: Ino,
        size_bytes: u64,
    ) -> Result<(), Errno> {
        self.with_object(call, ino, |object| {
            let old = self.size_of(call, ino)?;
            if size_bytes > old {
                self.with(call.core, call.thread, false, |volume, disk, _| {
                    Ok(volume.truncate(disk, ino, size_bytes)?)
                })?;
                call.core.vm.extend_vnode(object, pages_of(size_bytes));
                return self.clear_old_end(call, ino, object, old);
            }
            self.cut(call, ino, object, size_bytes)
        })
    }

    /// Clears what was stored behind the old end of a file that has grown. If that cannot be done, it is as long as it
    /// was.
    fn clear_old_end(
        &self,
        call: &Syscall<'_, M>,
        ino: Ino,
        object: &Arc<Object<M>>,
        old: u64,
    ) -> Result<(), Errno> {
        clear_tail(call, object, old).inspect_err(|_| {
            // Why it has to be cut is what the caller is told.
            _ = self.cut(call, ino, object, old);
        })
    }

    fn cut(
        &self,
        call: &Syscall<'_, M>,
        ino: Ino,
        object: &Arc<Object<M>>,
        size_bytes: u64,
    ) -> Result<(), Errno> {
        self.with(call.core, call.thread, false, |volume, disk, _| {
            Ok(volume.truncate(disk, ino, size_bytes)?)
        })?;
        call.core.vm.truncate_file(call.thread, object, pages_of(size_bytes));
        clear_tail(call, object, size_bytes)
    }
}
