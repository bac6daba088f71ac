//! The buffers of a file server: pieces of the memory disk in the server's own memory.
//!
//! # What it holds
//! A row of buffers in one mapping, each for some place of the disk or for none; of each sector it is known whether the
//! buffer has it and whether it waits to be written. The disk is the device file, read and written by system calls.
//! When all buffers are in use, the one that was used least recently is written and used anew. What is written when is
//! as in the kernel's own ([`crate::fs`]): at once, all of the buffer that is valid around what changed; later, when
//! too much waits, the oldest first.
//!
//! # Locks
//! None: the server does one thing at a time.
//!
//! # What can fail
//! The disk, also because the server was killed.

use crate::counter::KernelCounter;
use crate::fs::volume_work::{BUFFER_BYTES, Buffered, SECTOR, Sectors, cut_sectors, runs, sectors, spans};
use crate::sys::User;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::{Errno, Fd};
use pageferry_fs::{IoError, Store, When};
use pageferry_hal::{Cause, Machine, Prot, Va};
use pageferry_vm::Inherit;

const LEAST_BUFFERS: usize = 8;
/// Bytes that a copy by a program takes into registers at a time.
const COPY_BYTES: usize = 512;

#[derive(Clone, Copy, Default)]
struct Buffer {
    /// Which piece of the disk it is for.
    index: Option<u64>,
    used: u64,
    dirty_since: u64,
    valid: Sectors,
    dirty: Sectors,
}

/// See the [module](self).
pub(super) struct Buffers {
    disk: Fd,
    len_bytes: u64,
    at: Va,
    buffers: Vec<Buffer>,
    by_index: BTreeMap<u64, usize>,
    /// When each was used last, and since when each waits.
    by_use: BTreeMap<u64, usize>,
    by_wait: BTreeMap<u64, usize>,
    most_dirty: usize,
    clock: u64,
}

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
        let most = (wanted as usize).max(LEAST_BUFFERS);
        Ok(Buffers {
            disk,
            len_bytes,
            at: user.map(most * BUFFER_BYTES, Prot::RW, Inherit::Copy)?,
            buffers: alloc::vec![Buffer::default(); most],
            by_index: BTreeMap::new(),
            by_use: BTreeMap::new(),
            by_wait: BTreeMap::new(),
            most_dirty: config.dirty_buffers.clamp(1, most / 2),
            clock: 0,
        })
    }

    pub(super) fn disk(&self) -> Fd {
        self.disk
    }

    fn va(&self, slot: usize) -> Va {
        self.at + slot * BUFFER_BYTES
    }

    /// The buffer of a piece of the disk.
    fn get<M: Machine>(&mut self, user: &User<M>, index: u64) -> Result<usize, IoError> {
        user.compute(user.kernel().config().disk.paths.buffer.instructions);
        self.clock += 1;
        let slot = match self.by_index.get(&index) {
            Some(&slot) => {
                self.by_use.remove(&self.buffers[slot].used);
                slot
            }
            None if self.by_index.len() < self.buffers.len() => self.by_index.len(),
            None => {
                let (&used, &victim) = self.by_use.first_key_value().expect("there are buffers");
                self.write_out(user, victim)?;
                self.by_use.remove(&used);
                self.buffers[victim].index.map(|old| self.by_index.remove(&old));
                self.buffers[victim] = Buffer::default();
                victim
            }
        };
        let buffer = &mut self.buffers[slot];
        (buffer.index, buffer.used) = (Some(index), self.clock);
        self.by_index.insert(index, slot);
        self.by_use.insert(self.clock, slot);
        Ok(slot)
    }

    /// A buffer that has these sectors; what it lacks of all comes from the disk.
    fn get_with<M: Machine>(
        &mut self,
        user: &User<M>,
        index: u64,
        needed: Sectors,
    ) -> Result<usize, IoError> {
        let slot = self.get(user, index)?;
        let valid = self.buffers[slot].valid;
        if needed & !valid != 0 {
            let there = (self.len_bytes - index * BUFFER_BYTES as u64).min(BUFFER_BYTES as u64) as usize;
            let all = sectors(&(0..there));
            for run in runs(all & !valid) {
                let (at, own, len) = self.place(slot, index, &run);
                let read = user.read_at(self.disk, at, own, len);
                read.ok().filter(|got| *got == len).ok_or(IoError { at })?;
            }
            self.buffers[slot].valid = all | valid;
        }
        Ok(slot)
    }

    /// Where some sectors of a buffer are on the disk and in memory, and how long that is.
    fn place(&self, slot: usize, index: u64, run: &Range<usize>) -> (u64, Va, usize) {
        let at = index * BUFFER_BYTES as u64 + (run.start * SECTOR) as u64;
        (at, self.va(slot) + run.start * SECTOR, run.len() * SECTOR)
    }

    /// Writes what waits of a buffer, with what is valid around it.
    fn write_out<M: Machine>(&mut self, user: &User<M>, slot: usize) -> Result<(), IoError> {
        let Buffer { index, dirty_since, valid, dirty, .. } = self.buffers[slot];
        let Some(index) = index.filter(|_| dirty != 0) else { return Ok(()) };
        for run in runs(valid) {
            if sectors(&(run.start * SECTOR..run.end * SECTOR)) & dirty != 0 {
                let (at, own, len) = self.place(slot, index, &run);
                let wrote = user.write_at(self.disk, at, own, len);
                wrote.ok().filter(|put| *put == len).ok_or(IoError { at })?;
            }
        }
        self.by_wait.remove(&dirty_since);
        self.buffers[slot].dirty = 0;
        Ok(())
    }

    fn mark_dirty(&mut self, slot: usize, which: Sectors) {
        self.clock += 1;
        let buffer = &mut self.buffers[slot];
        buffer.valid |= which;
        if buffer.dirty == 0 {
            buffer.dirty_since = self.clock;
            self.by_wait.insert(self.clock, slot);
        }
        buffer.dirty |= which;
    }
}

/// The buffers, with the program whose they are.
pub(super) struct Disk<'a, M: Machine> {
    pub(super) user: &'a User<M>,
    pub(super) buffers: &'a mut Buffers,
}

impl<M: Machine> Disk<'_, M> {
    fn check(&self, at: u64, len: usize) -> Result<(), IoError> {
        let end = at.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.buffers.len_bytes) { Ok(()) } else { Err(IoError { at }) }
    }
}

impl<M: Machine> Buffered for Disk<'_, M> {
    fn account_name(&self) {
        self.user.compute(self.user.kernel().config().disk.paths.lookup.instructions);
    }

    fn buffer(&mut self, index: u64, needed: Sectors) -> Result<Va, Errno> {
        let slot = self.buffers.get_with(self.user, index, needed)?;
        Ok(self.buffers.va(slot))
    }

    fn stored(&mut self, index: u64, which: Sectors) {
        let slot = self.buffers.by_index[&index];
        self.buffers.mark_dirty(slot, which);
    }

    fn waiting(&self) -> (usize, usize) {
        (self.buffers.by_wait.len(), self.buffers.most_dirty)
    }

    fn write_oldest(&mut self) -> Result<(), Errno> {
        let slot = *self.buffers.by_wait.first_key_value().expect("some wait").1;
        Ok(self.buffers.write_out(self.user, slot)?)
    }
}

impl<M: Machine> Store for Disk<'_, M> {
    fn len_bytes(&self) -> u64 {
        self.buffers.len_bytes
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.check(at, bytes.len())?;
        let user = self.user;
        let mut done = 0;
        let result = self.each_piece(at, bytes.len(), false, &mut |va, len| {
            user.load(va, &mut bytes[done..][..len]);
            done += len;
            (len, Ok(()))
        });
        // A server that was killed has loaded zeros.
        let result = result.and(if user.is_killed() { Err(Errno::Killed) } else { Ok(()) });
        result.map_err(|_| IoError { at: at + done as u64 })
    }

    fn write(&mut self, at: u64, bytes: &[u8], when: When) -> Result<(), IoError> {
        self.check(at, bytes.len())?;
        let user = self.user;
        let mut done = 0;
        let result = self.each_piece(at, bytes.len(), true, &mut |va, len| {
            let _c = user.machine().scope(Cause::Copy);
            user.store(va, &bytes[done..][..len]);
            done += len;
            (len, Ok(()))
        });
        result.map_err(|_| IoError { at: at + done as u64 })?;
        match when {
            When::Now => self.flush(at..at + bytes.len() as u64),
            When::Later => self.limit().map_err(|_| IoError { at }),
        }
    }

    fn forget(&mut self, bytes: Range<u64>) {
        for (index, span) in spans(bytes) {
            let Some(&slot) = self.buffers.by_index.get(&index) else { continue };
            let buffer = &mut self.buffers.buffers[slot];
            if buffer.dirty != 0 {
                buffer.dirty &= !(sectors(&span) & !cut_sectors(&span));
                if buffer.dirty == 0 {
                    self.buffers.by_wait.remove(&buffer.dirty_since);
                }
            }
        }
    }

    fn flush(&mut self, bytes: Range<u64>) -> Result<(), IoError> {
        let size = BUFFER_BYTES as u64;
        let within = bytes.start / size..bytes.end.div_ceil(size);
        let is_within = |slot: &usize| self.buffers.buffers[*slot].index.is_some_and(|i| within.contains(&i));
        let waiting: Vec<usize> = self.buffers.by_wait.values().copied().filter(is_within).collect();
        waiting.into_iter().try_for_each(|slot| self.buffers.write_out(self.user, slot))
    }
}
