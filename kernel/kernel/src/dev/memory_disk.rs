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

use crate::Kernel;
use crate::fs::{Cursor, FileOps, Rights, either};
use crate::proc::{Shown, Stopped, Syscall, Window, moved};
use crate::sched::{Monitor, SleepLock};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::{Errno, SendMode};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Pfn, StructArena, Threads, Va};
use pageferry_vm::KernelPages;

/// What is read and written at least, and at multiples of what (`DEV_BSIZE`).
pub(crate) const SECTOR_BYTES: usize = 512;

/// The memory disk of a kernel. See the [module](self).
pub(crate) struct MemoryDisk<M: Machine> {
    state: Monitor<M, State>,
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

/// What a request does to the bytes of a page at a kernel address: `(address, bytes of the request before, length)`.
type Piece<'a> = &'a mut dyn FnMut(Va, usize, usize) -> Result<(), Stopped>;

impl<M: Machine> MemoryDisk<M> {
    pub(crate) fn new(machine: &M, arena: &mut StructArena) -> Result<MemoryDisk<M>, ArenaFull> {
        let at = arena.array("memory disk", 1, 128)?;
        Ok(MemoryDisk { state: Monitor::new(machine, at, State::default()) })
    }

    /// There is a disk.
    pub(crate) fn exists(&self) -> bool {
        self.state.lock().disk.is_some()
    }

    /// Makes a disk of `len_bytes` (`mdconfig -a`).
    pub(crate) fn attach(&self, len_bytes: u64) -> Result<(), Errno> {
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
    pub(crate) fn detach(&self, kernel: &Kernel<M>) -> Result<(), Errno> {
        let disk = {
            let mut state = self.state.lock();
            if state.opens > 0 || state.io.is_taken() {
                return Err(Errno::Busy);
            }
            state.disk.take().ok_or(Errno::NoDevice)?
        };
        disk.frames.into_iter().flatten().for_each(|page| kernel.vm.free_kernel_pages(page));
        Ok(())
    }

    /// One more uses the disk.
    pub(crate) fn open(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.disk.is_none() {
            return Err(Errno::NoDevice);
        }
        state.opens += 1;
        Ok(())
    }

    /// One less.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        assert!(state.opens > 0, "a memory disk is closed more often than it was opened");
        state.opens -= 1;
    }

    /// Its length; the disk is open.
    pub(crate) fn len_bytes(&self) -> u64 {
        let state = self.state.lock();
        let disk = state.disk.as_ref().expect("a disk that is open is there");
        disk.frames.len() as u64 * PAGE_SIZE as u64
    }

    /// Does `piece` with each page of the bytes from `at` on, which are whole sectors within the disk; `writes` says
    /// which way. Answers how many bytes were done.
    pub(crate) fn request(
        &self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        bytes: Range<u64>,
        writes: bool,
        piece: Piece<'_>,
    ) -> Result<(usize, Result<(), Errno>), Errno> {
        let _c = kernel.machine.scope(Cause::Protocol);
        kernel.machine.execute(kernel.config.disk.paths.request);
        let (held, taken) = self.state.acquire(threads, self.state.lock(), |s| &mut s.io, "mdwait", true);
        drop(held);
        taken?;
        let result = Window::open(kernel).map(|mut window| {
            let result = self.move_pages(kernel, threads, &mut window, bytes, writes, piece);
            window.close(kernel);
            result
        });
        let mut held = self.state.lock();
        self.state.release(threads, &mut held, |s| &mut s.io);
        result
    }

    fn move_pages(
        &self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        window: &mut Window,
        bytes: Range<u64>,
        writes: bool,
        piece: Piece<'_>,
    ) -> (usize, Result<(), Errno>) {
        let (mut at, mut done, mut result) = (bytes.start, 0, Ok(()));
        while at < bytes.end && result.is_ok() {
            let offset = at as usize % PAGE_SIZE;
            let len = (PAGE_SIZE - offset).min((bytes.end - at) as usize);
            let whole = writes && len == PAGE_SIZE;
            let clear = |at: Va, len: usize| {
                let _c = kernel.machine.scope(Cause::Zero);
                kernel.machine.zero(at, len).expect("the kernel's own address is mapped");
            };
            let page = (at / PAGE_SIZE as u64) as usize;
            let shown = self.frame(kernel, threads, page).and_then(|(frame, is_new)| {
                window.show(kernel, threads, frame, Shown::Privately, |va| {
                    if is_new && !whole {
                        clear(va, PAGE_SIZE);
                    }
                    let moved = moved(len, piece(va + offset, done, len));
                    if is_new && whole && moved.0 < len {
                        clear(va + moved.0, len - moved.0);
                    }
                    moved
                })
            });
            match shown {
                Ok((bytes, how)) => {
                    done += bytes;
                    at += bytes as u64;
                    result = how;
                }
                Err(e) => result = Err(e),
            }
        }
        (done, result)
    }

    /// The frame of a page, and whether it is new: then its bytes are whoever's. The caller holds the sleep lock.
    fn frame(&self, kernel: &Kernel<M>, threads: &dyn Threads, page: usize) -> Result<(Pfn, bool), Errno> {
        let known = |state: &mut State| {
            let disk = state.disk.as_mut().expect("a disk that is open is there");
            disk.frames[page].as_ref().map(|pages| pages.frames()[0])
        };
        if let Some(frame) = known(&mut self.state.lock()) {
            return Ok((frame, false));
        }
        let new = kernel.vm.kernel_pages_waiting(threads, 1)?;
        let frame = new.frames()[0];
        let mut state = self.state.lock();
        state.disk.as_mut().expect("a disk that is open is there").frames[page] = Some(new);
        Ok((frame, true))
    }
}

/// The memory disk as an open file.
pub(crate) struct DiskFile<M: Machine> {
    cursor: Cursor<M>,
}

impl<M: Machine> DiskFile<M> {
    /// An open file of the disk, which was [opened](MemoryDisk::open).
    pub(crate) fn new(machine: &M, rights: Rights) -> DiskFile<M> {
        DiskFile { cursor: Cursor::new(machine, rights) }
    }

    /// The sectors of a request of `len_bytes` at byte `at`.
    fn sectors(&self, call: &Syscall<'_, M>, at: u64, len_bytes: usize) -> Result<Range<u64>, Errno> {
        let end = call.kernel.memory_disk.len_bytes();
        let sector = SECTOR_BYTES as u64;
        if !at.is_multiple_of(sector) || !(len_bytes as u64).is_multiple_of(sector) {
            return Err(Errno::Invalid);
        }
        let at = at.min(end);
        Ok(at..end.min(at.saturating_add(len_bytes as u64)))
    }

    fn request(
        &self,
        call: &Syscall<'_, M>,
        bytes: Range<u64>,
        writes: bool,
        piece: Piece<'_>,
    ) -> Result<(usize, Result<(), Errno>), Errno> {
        call.kernel.memory_disk.request(call.kernel, call.thread, bytes, writes, piece)
    }

    fn read_sectors(
        &self,
        call: &Syscall<'_, M>,
        bytes: Range<u64>,
        to: Va,
    ) -> Result<(usize, Result<(), Errno>), Errno> {
        self.request(call, bytes, false, &mut |va, done, len| call.copy_out(to + done, va, len))
    }

    fn write_sectors(
        &self,
        call: &Syscall<'_, M>,
        bytes: Range<u64>,
        from: Va,
        len_bytes: usize,
    ) -> Result<(usize, Result<(), Errno>), Errno> {
        if bytes.is_empty() && len_bytes > 0 {
            return Err(Errno::NoSpace);
        }
        self.request(call, bytes, true, &mut |va, done, len| call.copy_in(va, from + done, len))
    }
}

impl<M: Machine> FileOps<M> for DiskFile<M> {
    fn cursor(&self) -> Option<&Cursor<M>> {
        Some(&self.cursor)
    }

    /// Reads whole sectors from the offset on, and moves it; zero at the disk's end.
    fn read(&self, call: &Syscall<'_, M>, to: Va, len_bytes: usize, _: bool) -> Result<usize, Errno> {
        let bytes = self.sectors(call, self.cursor.at(), len_bytes)?;
        let at = bytes.start;
        self.cursor.moved_on(at, self.read_sectors(call, bytes, to)?)
    }

    fn read_at(&self, call: &Syscall<'_, M>, offset: u64, to: Va, len_bytes: usize) -> Result<usize, Errno> {
        let bytes = self.sectors(call, offset, len_bytes)?;
        either(self.read_sectors(call, bytes, to)?)
    }

    /// Writes whole sectors at the offset, and moves it; [`Errno::NoSpace`] at the disk's end.
    fn write(
        &self,
        call: &Syscall<'_, M>,
        from: Va,
        len_bytes: usize,
        mode: SendMode,
        _: bool,
    ) -> Result<usize, Errno> {
        if mode != SendMode::Copy {
            return Err(Errno::NotSupported);
        }
        let bytes = self.sectors(call, self.cursor.at(), len_bytes)?;
        let at = bytes.start;
        self.cursor.moved_on(at, self.write_sectors(call, bytes, from, len_bytes)?)
    }

    fn write_at(
        &self,
        call: &Syscall<'_, M>,
        offset: u64,
        from: Va,
        len_bytes: usize,
    ) -> Result<usize, Errno> {
        let bytes = self.sectors(call, offset, len_bytes)?;
        either(self.write_sectors(call, bytes, from, len_bytes)?)
    }

    fn size_bytes(&self, call: &Syscall<'_, M>) -> Result<u64, Errno> {
        Ok(call.kernel.memory_disk.len_bytes())
    }

    fn release(self: Box<Self>, call: &Syscall<'_, M>) {
        call.kernel.memory_disk.close();
    }
}

/// The null device as an open file: takes everything, gives nothing.
pub(crate) struct NullFile;

impl<M: Machine> FileOps<M> for NullFile {
    fn read(&self, _: &Syscall<'_, M>, _: Va, _: usize, _: bool) -> Result<usize, Errno> {
        Ok(0)
    }

    fn write(
        &self,
        _: &Syscall<'_, M>,
        _: Va,
        len_bytes: usize,
        _: SendMode,
        _: bool,
    ) -> Result<usize, Errno> {
        Ok(len_bytes)
    }

    fn release(self: Box<Self>, _: &Syscall<'_, M>) {}
}
