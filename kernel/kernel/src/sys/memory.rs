//! The system calls of mapped memory beside mapping, unmapping and protecting it.

use super::user::User;
use pageferry_abi::Errno;
use pageferry_hal::{Machine, Prot, Va};
use pageferry_vm::{Inherit, Madvise, MapAddr};

impl<M: Machine> User<M> {
    /// Maps zero-filled memory at `place` (`mmap` with `MAP_ANON`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: no length, or an address that makes no sense or is taken. [`Errno::NoMemory`].
    pub fn map_at(
        &self,
        place: MapAddr,
        len_bytes: usize,
        prot: Prot,
        inherit: Inherit,
    ) -> Result<Va, Errno> {
        self.system_call(|call| {
            Ok(call.space.map_at(call.thread, place, len_bytes, (prot, Prot::all()), inherit, None)?)
        })
    }

    /// Maps the frame buffer at `place` (`mmap` of its device, whose driver calls `ioremap`): by a block of the
    /// process's own where the kernel has those and the address is aligned to the frame buffer's size.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: there is none, or an address that makes no sense or is taken. [`Errno::NoMemory`].
    pub fn map_frame_buffer(&self, place: MapAddr) -> Result<Va, Errno> {
        self.system_call(|call| Ok(call.space.map_frame_buffer(call.thread, place)?))
    }

    /// Writes a line of text to the console: as much of it as the screen is wide. Without a frame buffer it is not to
    /// be seen.
    ///
    /// # Errors
    /// [`Errno::Fault`].
    pub fn print(&self, from: Va, len_bytes: usize) -> Result<usize, Errno> {
        self.system_call(|call| {
            let mut text = [0; 256];
            let text = &mut text[..len_bytes.min(256)];
            call.fetch_bytes(from, text)?;
            self.kernel.screen.draw(call.core.vm.pmaps(), text);
            Ok(text.len())
        })
    }

    /// Writes what was stored through shared mappings of files to the disk (`msync` with `MS_SYNC`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: `at` is not page-aligned. [`Errno::NoMemory`]: not all of the range is mapped, or
    /// there is no memory to write it. [`Errno::Io`].
    pub fn sync_memory(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.system_call(|call| Ok(call.space.sync(call.thread, at, len_bytes)?))
    }

    /// Keeps pages in memory (`mlock`), until they are unlocked or unmapped.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: `at` is not page-aligned. [`Errno::NoMemory`]: not all of the range is mapped, or memory is
    /// full. [`Errno::WouldBlock`] (EAGAIN): more would be wired than may be. [`Errno::Io`], [`Errno::Fault`]: a page
    /// cannot be had. Nothing more is locked then.
    pub fn lock_memory(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.system_call(|call| Ok(call.space.lock_memory(call.thread, at, len_bytes)?))
    }

    /// Ends that (`munlock`).
    ///
    /// # Errors
    /// [`Errno::Invalid`], [`Errno::NoMemory`] as of [`User::lock_memory`].
    pub fn unlock_memory(&self, at: Va, len_bytes: usize) -> Result<(), Errno> {
        self.system_call(|call| Ok(call.space.unlock_memory(call.thread, at, len_bytes)?))
    }

    /// Says how memory will be used (`madvise`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: `at` is not page-aligned. [`Errno::NoMemory`]: not all of the range is mapped.
    pub fn advise(&self, at: Va, len_bytes: usize, advise: Madvise) -> Result<(), Errno> {
        self.system_call(|call| Ok(call.space.advise(call.thread, at, len_bytes, advise)?))
    }

    /// Says what happens to memory at fork (`minherit`).
    ///
    /// # Errors
    /// [`Errno::Invalid`]: `at` is not page-aligned. [`Errno::NoMemory`]: not all of the range is mapped.
    pub fn inherit(&self, at: Va, len_bytes: usize, inherit: Inherit) -> Result<(), Errno> {
        self.system_call(|call| Ok(call.space.inherit(call.thread, at, len_bytes, inherit)?))
    }
}
