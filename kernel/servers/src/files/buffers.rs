//! A file server's part of the buffer cache: pieces of the memory disk in the server's own memory.
//!
//! # What it holds
//! A row of buffers in one mapping, each for some place of the disk or for none. The disk is the device file, read and
//! written by system calls.
//!
//! # Locks
//! None: the server does one thing at a time.
//!
//! # What can fail
//! The disk, also because the server was killed.

use core::ops::Range;
use pageferry_abi::{Errno, Fd};
use pageferry_core::counter::KernelCounter;
use pageferry_core::fs::buffer_cache::{BUFFER_BYTES, BufferCache, Cached, MIN_BUFFERS, Room, Strategy};
use pageferry_core::proc::UioRw;
use pageferry_hal::{Cause, Cycles, Machine, Prot, Va};
use pageferry_kernel::User;
use pageferry_vm::Inherit;

/// Bytes that a copy by a program takes into registers at a time.
const COPY_BYTES: usize = 512;

/// Copies `len` bytes of the program's memory, in user mode.
pub(super) fn copy<M: Machine>(user: &User<M>, to: Va, from: Va, len: usize) {
    let m = user.machine();
    let _c = m.scope(Cause::Copy);
    user.compute(user.kernel().config().paths.uiomove.instructions);
    let (mut registers, mut done) = ([0; COPY_BYTES], 0);
    while done < len {
        let part = COPY_BYTES.min(len - done);
        user.load(from + done, &mut registers[..part]);
        user.store(to + done, &registers[..part]);
        done += part;
    }
    m.count(KernelCounter::BytesCopied, len as u64);
}

/// Clears `len` bytes of the program's memory.
pub(super) fn clear<M: Machine>(user: &User<M>, to: Va, len: usize) {
    let _c = user.machine().scope(Cause::Zero);
    for done in (0..len).step_by(COPY_BYTES) {
        user.store(to + done, &[0; COPY_BYTES][..COPY_BYTES.min(len - done)]);
    }
}

/// See the [module](self).
pub(super) struct Buffers {
    disk: Fd,
    /// Where the first one is.
    at: Va,
    cache: BufferCache<Va>,
}

impl Buffers {
    /// Buffers of the open device file `disk`.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub(super) fn new<M: Machine>(user: &User<M>, disk: Fd) -> Result<Buffers, Errno> {
        let config = user.kernel().config().disk;
        let len_bytes = user.file_size(disk)?;
        // More than the disk has are not wanted.
        let wanted = (config.buffers as u64).min(len_bytes.div_ceil(BUFFER_BYTES as u64));
        let max = (wanted as usize).max(MIN_BUFFERS);
        let at = user.map(max * BUFFER_BYTES, Prot::RW, Inherit::Copy)?;
        let max_dirty = config.dirty_buffers.clamp(1, max / 2);
        Ok(Buffers { disk, at, cache: BufferCache::new(len_bytes, max, max_dirty) })
    }

    pub(super) fn disk(&self) -> Fd {
        self.disk
    }

    /// With the program whose they are.
    pub(super) fn on<'a, M: Machine>(&'a mut self, user: &'a User<M>) -> Cached<'a, Disk<'a, M>> {
        let Buffers { disk, at, cache } = self;
        Cached { strategy: Disk { user, disk: *disk, at: *at }, cache }
    }
}

/// The disk, for a program.
pub(super) struct Disk<'a, M: Machine> {
    user: &'a User<M>,
    disk: Fd,
    at: Va,
}

impl<M: Machine> Strategy for Disk<'_, M> {
    type Memory = Va;
    const KEEPS_PIECES: bool = false;

    fn account_name(&self) {
        self.user.compute(self.user.kernel().config().disk.paths.lookup.instructions);
    }

    fn account_buffer(&self) {
        self.user.compute(self.user.kernel().config().disk.paths.buffer.instructions);
    }

    fn now(&self) -> Cycles {
        self.user.machine().now()
    }

    fn show(&mut self, _: u64, _: Range<usize>, room: Room<Va>) -> Result<Va, Errno> {
        Ok(match room {
            Room::New(before) => self.at + before * BUFFER_BYTES,
            Room::Used(at) => at,
        })
    }

    fn show_more(&mut self, _: u64, _: usize, _: &mut Va) -> Result<(), Errno> {
        Ok(())
    }

    fn hide(&mut self, at: Va) -> Va {
        at
    }

    fn address(at: &Va) -> Va {
        *at
    }

    fn transfer(&mut self, bytes: Range<u64>, at: Va, rw: UioRw) -> Result<(), Errno> {
        let len = (bytes.end - bytes.start) as usize;
        let moved = match rw {
            UioRw::Read => self.user.read_at(self.disk, bytes.start, at, len),
            UioRw::Write => self.user.write_at(self.disk, bytes.start, at, len),
        };
        match moved {
            Ok(moved) if moved == len => Ok(()),
            // The same may be done later. A signal was the server's own, of which a client knows nothing.
            Err(Errno::NoMemory) => Err(Errno::NoMemory),
            _ => Err(Errno::Io),
        }
    }

    fn load(&self, at: Va, bytes: &mut [u8]) -> Result<(), Errno> {
        self.user.load(at, bytes);
        // A server that was killed has loaded zeros.
        if self.user.is_killed() { Err(Errno::Killed) } else { Ok(()) }
    }

    fn store(&self, at: Va, bytes: &[u8]) {
        let _c = self.user.machine().scope(Cause::Copy);
        self.user.store(at, bytes);
    }
}
