//! A memory disk: frames that are read and written as the sectors of a disk (`md`; sf_buf paper, 2.2), as a device
//! file.
//!
//! # What it holds
//! At most one disk. Its pages get their frames when they are first written or read, and keep them until the disk is
//! destroyed; what was never written reads as zeros. The frames are the disk's alone, so they need no wiring; they are
//! mapped only while bytes move, page by page, by a [`Window`].
//!
//! # Locks
//! One request at a time, as the driver's one thread served them: a sleep lock, held while bytes move. FreeBSD 5 also
//! mapped the *caller's* pages for the driver's thread (`physio`), in both kernels alike; here the caller's thread
//! copies, as the paper tells it.
//!
//! # What can fail
//! A request for no whole sectors; a first write, for want of frames; the caller's addresses; a wait, by a signal.
//! Making a disk where there is one, and destroying one that is open.

use crate::base::Core;
use crate::counter::KernelCounter;
use crate::fs::{Cursor, FileOps, Rights, VnodeOps};
use crate::proc::{Syscall, Uio, UioMode, UioRw, Visibility, Window};
use crate::sched::{Monitor, SleepLock};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_abi::{Errno, SendMode};
use pageferry_ephemeral::MappingUser;
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Pfn, Prot, StructArena, Threads, Va};
use pageferry_vm::KernelPages;

/// What is read and written at least, and at multiples of what (`DEV_BSIZE`).
pub const SECTOR_BYTES: usize = 512;

/// Bytes of a buffer that are wired at a time, where that has to be.
const MAX_WIRED_BYTES: usize = 16 * PAGE_SIZE;

/// The memory disk of a kernel (`md`): at most one, whose pages get frames when they are first written or read.
pub struct MemoryDisk<M: Machine> {
    state: Monitor<M, State>,
    /// Files of a volume on it are mapped: a buffer may be such a mapping.
    mapped_files: AtomicBool,
}

#[derive(Default)]
struct State {
    io: SleepLock,
    disk: Option<Pages>,
    opens: u32,
}

struct Pages {
    frames: Vec<Option<KernelPages>>,
}

/// Moves so many bytes between a page of the disk, at a kernel address, and the buffer of a request, and that on.
type MovePiece<'a> = &'a mut dyn FnMut(Va, usize, &mut Uio) -> Result<(), Errno>;

impl<M: Machine> MemoryDisk<M> {
    /// No disk yet.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(machine: &M, arena: &mut StructArena) -> Result<MemoryDisk<M>, ArenaFull> {
        let at = arena.array("memory disk", 1, 128)?;
        Ok(MemoryDisk {
            state: Monitor::new(machine, at, State::default()),
            mapped_files: AtomicBool::new(false),
        })
    }

    /// There is a disk.
    pub fn exists(&self) -> bool {
        self.state.lock().disk.is_some()
    }

    /// Makes a disk of `len_bytes` (`mdconfig -a`).
    pub fn attach(&self, len_bytes: u64) -> Result<(), Errno> {
        let pages = usize::try_from(len_bytes / PAGE_SIZE as u64).map_err(|_| Errno::NoMemory)?;
        if pages == 0 || !len_bytes.is_multiple_of(PAGE_SIZE as u64) {
            return Err(Errno::Invalid);
        }
        let mut state = self.state.lock();
        if state.disk.is_some() {
            return Err(Errno::Busy);
        }
        let mut frames = Vec::new();
        frames.try_reserve_exact(pages).map_err(|_| Errno::NoMemory)?;
        frames.resize_with(pages, || None);
        state.disk = Some(Pages { frames });
        Ok(())
    }

    /// Destroys the disk, and what is on it (`mdconfig -d`).
    pub fn detach(&self, core: &Core<M>) -> Result<(), Errno> {
        let disk = {
            let mut state = self.state.lock();
            if state.opens > 0 || state.io.is_taken() {
                return Err(Errno::Busy);
            }
            state.disk.take().ok_or(Errno::NoDevice)?
        };
        disk.frames.into_iter().flatten().for_each(|page| core.vm.free_kernel_pages(page));
        Ok(())
    }

    /// Files of a volume on it are mapped from now on, or are no more.
    pub(crate) fn set_mapped_files(&self, there_are: bool) {
        self.mapped_files.store(there_are, Ordering::Relaxed);
    }

    /// One more uses the disk.
    pub fn open(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.disk.is_none() {
            return Err(Errno::NoDevice);
        }
        state.opens += 1;
        Ok(())
    }

    /// One less.
    pub fn close(&self) {
        let mut state = self.state.lock();
        assert!(state.opens > 0, "a memory disk is closed more often than it was opened");
        state.opens -= 1;
    }

    /// Its length; the disk is open.
    pub fn len_bytes(&self) -> u64 {
        let state = self.state.lock();
        let disk = state.disk.as_ref().expect("a disk that is open is there");
        disk.frames.len() as u64 * PAGE_SIZE as u64
    }

    /// Does `piece` with each page of what `uio` is about: whole sectors within the disk.
    ///
    /// # Errors
    /// Those of `piece`; a wait's, and what a page may be short of. The bytes before have moved.
    pub fn request(
        &self,
        core: &Core<M>,
        threads: &dyn Threads,
        uio: &mut Uio,
        piece: MovePiece<'_>,
    ) -> Result<(), Errno> {
        let _c = core.machine.scope(Cause::Protocol);
        core.machine.execute(core.config.disk.paths.request);
        let (held, taken) = self.state.acquire(threads, self.state.lock(), |s| &mut s.io, "mdwait", true);
        drop(held);
        taken?;
        let result = Window::open(core, MappingUser::MemoryDisk).and_then(|mut window| {
            let result = self.move_pages(core, threads, &mut window, uio, piece);
            window.close(core);
            result
        });
        let mut held = self.state.lock();
        self.state.release(threads, &mut held, |s| &mut s.io);
        result
    }

    /// Moves whole sectors between the disk and kernel memory at `own`.
    ///
    /// # Errors
    /// As [`MemoryDisk::request`].
    pub fn move_kernel(
        &self,
        core: &Core<M>,
        threads: &dyn Threads,
        bytes: Range<u64>,
        own: Va,
        rw: UioRw,
    ) -> Result<(), Errno> {
        let len = (bytes.end - bytes.start) as usize;
        let uio = match rw {
            UioRw::Read => Uio::read(own, len),
            UioRw::Write => Uio::write(own, len, SendMode::Copy),
        };
        let m = &core.machine;
        let mut uio = uio.at_offset(bytes.start);
        self.request(core, threads, &mut uio, &mut |va, len, uio| {
            let _c = m.scope(Cause::Copy);
            let (to, from) = if rw == UioRw::Write { (va, uio.at()) } else { (uio.at(), va) };
            m.copy_kernel(to, from, len).expect("the kernel's own addresses are mapped");
            m.count(KernelCounter::BytesCopied, len as u64);
            uio.advance(len);
            Ok(())
        })
    }

    fn move_pages(
        &self,
        core: &Core<M>,
        threads: &dyn Threads,
        window: &mut Window,
        uio: &mut Uio,
        piece: MovePiece<'_>,
    ) -> Result<(), Errno> {
        while uio.left() > 0 {
            let at = uio.offset();
            let offset = at as usize % PAGE_SIZE;
            let len = (PAGE_SIZE - offset).min(uio.left());
            let whole = uio.rw() == UioRw::Write && len == PAGE_SIZE;
            let clear = |at: Va, len: usize| {
                let _c = core.machine.scope(Cause::Zero);
                core.machine.zero(at, len).expect("the kernel's own address is mapped");
            };
            let page = (at / PAGE_SIZE as u64) as usize;
            let (frame, is_new) = self.frame(core, threads, page)?;
            window.show(core, threads, frame, Visibility::Private, |va| {
                if is_new && !whole {
                    clear(va, PAGE_SIZE);
                }
                let before = uio.done();
                let result = piece(va + offset, len, uio);
                let moved = uio.done() - before;
                if is_new && whole && moved < len {
                    clear(va + moved, len - moved);
                }
                result
            })??;
        }
        Ok(())
    }

    /// The frame of a page, and whether it is new: then its bytes are whoever's. The caller holds the sleep lock.
    fn frame(&self, core: &Core<M>, threads: &dyn Threads, page: usize) -> Result<(Pfn, bool), Errno> {
        let known = |state: &mut State| {
            let disk = state.disk.as_mut().expect("a disk that is open is there");
            disk.frames[page].as_ref().map(|pages| pages.frames()[0])
        };
        if let Some(frame) = known(&mut self.state.lock()) {
            return Ok((frame, false));
        }
        let new = core.vm.kernel_pages_waiting(threads, 1)?;
        let frame = new.frames()[0];
        let mut state = self.state.lock();
        state.disk.as_mut().expect("a disk that is open is there").frames[page] = Some(new);
        Ok((frame, true))
    }
}

/// The memory disk as an open file.
pub struct DiskFile<M: Machine> {
    disk: Arc<MemoryDisk<M>>,
    cursor: Cursor<M>,
}

impl<M: Machine> DiskFile<M> {
    /// An open file of the disk, which was [opened](MemoryDisk::open).
    pub fn new(machine: &M, disk: Arc<MemoryDisk<M>>, rights: Rights) -> DiskFile<M> {
        DiskFile { disk, cursor: Cursor::new(machine, rights) }
    }

    /// Moves the whole sectors that `uio` is about, up to the disk's end.
    fn request(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        let disk = &self.disk;
        let (at, end, sector) = (uio.offset(), disk.len_bytes(), SECTOR_BYTES as u64);
        if !at.is_multiple_of(sector) || !(uio.left() as u64).is_multiple_of(sector) {
            return Err(Errno::Invalid);
        }
        if uio.rw() == UioRw::Write && at >= end && uio.left() > 0 {
            return Err(Errno::NoSpace);
        }
        uio.limit(usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX));
        if !disk.mapped_files.load(Ordering::Relaxed) {
            return disk.request(call.core, call.thread, uio, &mut |va, len, uio| call.uiomove(va, len, uio));
        }
        // A page of the buffer that has to come from this disk would wait for this request.
        while uio.left() > 0 {
            let prot = if uio.rw() == UioRw::Read { Prot::RW } else { Prot::READ };
            let mut part = uio.part(MAX_WIRED_BYTES);
            let wired = call.space.wire(call.thread, part.at(), part.left(), prot)?;
            let result = disk
                .request(call.core, call.thread, &mut part, &mut |va, len, uio| call.uiomove(va, len, uio));
            call.core.vm.unwire(wired);
            uio.advance(part.done());
            result?;
        }
        Ok(())
    }
}

impl<M: Machine> FileOps<M> for DiskFile<M> {
    /// Reads whole sectors; nothing at the disk's end.
    fn read(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::BadFd);
        }
        self.cursor.moving(uio, || Ok(self.cursor.at()), |uio| self.request(call, uio))
    }

    /// Writes whole sectors; [`Errno::NoSpace`] at the disk's end.
    fn write(&self, call: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() != UioMode::Copy {
            return Err(Errno::NotSupported);
        }
        self.cursor.moving(uio, || Ok(self.cursor.at()), |uio| self.request(call, uio))
    }

    fn release(self: Box<Self>, _: &Syscall<'_, M>) {
        self.disk.close();
    }
}

impl<M: Machine> VnodeOps<M> for DiskFile<M> {
    fn seek(&self, _: &Syscall<'_, M>, to: u64) -> Result<(), Errno> {
        self.cursor.seek(to);
        Ok(())
    }

    fn size_bytes(&self, _: &Syscall<'_, M>) -> Result<u64, Errno> {
        Ok(self.disk.len_bytes())
    }
}

/// The null device as an open file: takes everything, gives nothing.
pub struct NullFile;

impl<M: Machine> FileOps<M> for NullFile {
    fn read(&self, _: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        if uio.mode() == UioMode::Copy { Ok(()) } else { Err(Errno::BadFd) }
    }

    fn write(&self, _: &Syscall<'_, M>, uio: &mut Uio) -> Result<(), Errno> {
        uio.advance(uio.left());
        Ok(())
    }

    fn release(self: Box<Self>, _: &Syscall<'_, M>) {}
}
