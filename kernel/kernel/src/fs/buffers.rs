//! The buffer cache of a mounted volume: pieces of the memory disk in the page cache, and kernel addresses for them.
//!
//! # What it holds
//! The pages are those of one VM object, the disk's, and stay resident whether or not a buffer shows them. A buffer is
//! a run of addresses that keeps four pages mapped and wired: what it was made for once is used again and again without
//! any work on mappings, in every kind of kernel alike (FreeBSD 5: `getblk`, `pmap_qenter`). When all buffers are in
//! use, the one that was used least recently is mapped anew. Of each sector it is known whether the page has it, and
//! whether it waits to be written.
//!
//! A write at once writes the buffer as `bwrite` does: all of it that is valid and lies around what changed. Buffers
//! that wait are written when there are too many, the oldest first.
//!
//! # Locks
//! None of its own: whoever mounted the volume holds its sleep lock.
//!
//! # What can fail
//! Getting a buffer, for want of frames or addresses, or by a signal in a wait: an error of the disk to the file
//! system.

use super::volume_work::{BUFFER_BYTES, Buffered, SECTOR, Sectors, cut_sectors, runs, sectors, spans};
use crate::Kernel;
use crate::proc::UioRw;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_ephemeral::KvaRun;
use pageferry_fs::{IoError, Store, When};
use pageferry_hal::{Cause, Machine, Mode, PAGE_SIZE, Pfn, Threads, Va};
use pageferry_vm::{Backing, Object, Wired};

const LEAST_BUFFERS: usize = 8;

struct Buffer {
    run: KvaRun,
    at: Va,
    wired: Vec<Wired>,
    used: u64,
    /// When it began to wait.
    dirty_since: u64,
    dirty: Sectors,
}

/// The buffers of a volume. See the [module](self).
pub(super) struct Buffers<M: Machine> {
    object: Arc<Object<M>>,
    len_bytes: u64,
    most: usize,
    most_dirty: usize,
    buffers: BTreeMap<u64, Buffer>,
    /// When each was used last, and since when each waits.
    by_use: BTreeMap<u64, u64>,
    by_wait: BTreeMap<u64, u64>,
    /// Sectors that pages of the object have.
    valid: BTreeMap<u64, Sectors>,
    clock: u64,
}

impl<M: Machine> Buffers<M> {
    pub(super) fn new(kernel: &Kernel<M>, len_bytes: u64) -> Result<Buffers<M>, Errno> {
        let config = &kernel.config.disk;
        let pages = len_bytes.div_ceil(BUFFER_BYTES as u64) * (BUFFER_BYTES / PAGE_SIZE) as u64;
        Ok(Buffers {
            object: kernel.vm.object(pages, Backing::Zero)?,
            len_bytes,
            most: config.buffers.max(LEAST_BUFFERS),
            most_dirty: config.dirty_buffers.clamp(1, config.buffers.max(LEAST_BUFFERS) / 2),
            buffers: BTreeMap::new(),
            by_use: BTreeMap::new(),
            by_wait: BTreeMap::new(),
            valid: BTreeMap::new(),
            clock: 0,
        })
    }

    /// Gives everything back. Nothing waits.
    pub(super) fn end(mut self, kernel: &Kernel<M>) {
        while let Some((_, buffer)) = self.buffers.pop_first() {
            let run = Self::unmap(kernel, buffer);
            kernel.ephemeral.release_run(run);
        }
        kernel.vm.release_object(self.object);
    }

    fn unmap(kernel: &Kernel<M>, mut buffer: Buffer) -> KvaRun {
        kernel.ephemeral.remove_run(&mut buffer.run);
        buffer.wired.into_iter().for_each(|wired| kernel.vm.unwire(wired));
        buffer.run
    }

    /// A buffer's address; it is made, or taken from the one used least recently.
    fn get(&mut self, kernel: &Kernel<M>, threads: &dyn Threads, index: u64) -> Result<Va, Errno> {
        kernel.machine.execute(kernel.config.disk.paths.buffer);
        self.clock += 1;
        if let Some(buffer) = self.buffers.get_mut(&index) {
            self.by_use.remove(&buffer.used);
            buffer.used = self.clock;
            self.by_use.insert(self.clock, index);
            return Ok(buffer.at);
        }
        let mut run = if self.buffers.len() < self.most {
            kernel.ephemeral.kva_run(BUFFER_BYTES / PAGE_SIZE)?
        } else {
            let victim = *self.by_use.first_key_value().expect("there are buffers").1;
            self.write_out(kernel, threads, victim)?;
            let buffer = self.buffers.remove(&victim).expect("it is in the list");
            self.by_use.remove(&buffer.used);
            Self::unmap(kernel, buffer)
        };
        let mut wired = Vec::new();
        for page in 0..(BUFFER_BYTES / PAGE_SIZE) as u64 {
            let page = index * (BUFFER_BYTES / PAGE_SIZE) as u64 + page;
            match kernel.vm.wire_page(threads, &self.object, page, true) {
                Ok(one) => wired.push(one),
                Err(e) => {
                    wired.into_iter().for_each(|one| kernel.vm.unwire(one));
                    kernel.ephemeral.release_run(run);
                    return Err(e.into());
                }
            }
        }
        let frames: Vec<Pfn> = wired.iter().map(|one| one.frames()[0]).collect();
        let at = kernel.ephemeral.enter_run(&mut run, &frames);
        let used = self.clock;
        self.by_use.insert(used, index);
        self.buffers.insert(index, Buffer { run, at, wired, used, dirty_since: 0, dirty: 0 });
        Ok(at)
    }

    /// A buffer that has these sectors; what it lacks of all comes from the disk.
    fn get_with(
        &mut self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        index: u64,
        needed: Sectors,
    ) -> Result<Va, Errno> {
        let at = self.get(kernel, threads, index)?;
        let valid = self.valid.get(&index).copied().unwrap_or(0);
        if needed & !valid != 0 {
            let there = (self.len_bytes - index * BUFFER_BYTES as u64).min(BUFFER_BYTES as u64) as usize;
            let all = sectors(&(0..there));
            for run in runs(all & !valid) {
                self.transfer(kernel, threads, index, at, run, false)?;
            }
            self.valid.insert(index, all | valid);
        }
        Ok(at)
    }

    /// Moves some sectors of a buffer from the disk or to it.
    fn transfer(
        &self,
        kernel: &Kernel<M>,
        threads: &dyn Threads,
        index: u64,
        at: Va,
        run: Range<usize>,
        writes: bool,
    ) -> Result<(), Errno> {
        let start = index * BUFFER_BYTES as u64 + (run.start * SECTOR) as u64;
        let bytes = start..start + (run.len() * SECTOR) as u64;
        let own = at + run.start * SECTOR;
        kernel.move_disk(threads, bytes, own, if writes { UioRw::Write } else { UioRw::Read })
    }

    /// Writes what waits of a buffer, with what is valid around it.
    fn write_out(&mut self, kernel: &Kernel<M>, threads: &dyn Threads, index: u64) -> Result<(), Errno> {
        let Some(buffer) = self.buffers.get(&index).filter(|buffer| buffer.dirty != 0) else { return Ok(()) };
        let (at, dirty, since) = (buffer.at, buffer.dirty, buffer.dirty_since);
        let valid = self.valid.get(&index).copied().unwrap_or(0);
        for run in runs(valid) {
            if sectors(&(run.start * SECTOR..run.end * SECTOR)) & dirty != 0 {
                self.transfer(kernel, threads, index, at, run, true)?;
            }
        }
        self.by_wait.remove(&since);
        self.buffers.get_mut(&index).expect("just seen").dirty = 0;
        Ok(())
    }

    fn mark_dirty(&mut self, index: u64, which: Sectors) {
        *self.valid.entry(index).or_default() |= which;
        self.clock += 1;
        let buffer = self.buffers.get_mut(&index).expect("its caller has just got it");
        if buffer.dirty == 0 {
            buffer.dirty_since = self.clock;
            self.by_wait.insert(self.clock, index);
        }
        buffer.dirty |= which;
    }
}

/// The buffers, with the thread that uses them: what a file system gets for the time of a call.
pub(super) struct Disk<'a, M: Machine> {
    pub(super) kernel: &'a Kernel<M>,
    pub(super) threads: &'a dyn Threads,
    pub(super) buffers: &'a mut Buffers<M>,
}

impl<M: Machine> Buffered for Disk<'_, M> {
    fn account_name(&self) {
        self.kernel.machine.execute(self.kernel.config.disk.paths.lookup);
    }

    fn buffer(&mut self, index: u64, needed: Sectors) -> Result<Va, Errno> {
        self.buffers.get_with(self.kernel, self.threads, index, needed)
    }

    fn stored(&mut self, index: u64, which: Sectors) {
        self.buffers.mark_dirty(index, which);
    }

    fn waiting(&self) -> (usize, usize) {
        (self.buffers.by_wait.len(), self.buffers.most_dirty)
    }

    fn write_oldest(&mut self) -> Result<(), Errno> {
        let index = *self.buffers.by_wait.first_key_value().expect("some wait").1;
        self.buffers.write_out(self.kernel, self.threads, index)
    }
}

impl<M: Machine> Store for Disk<'_, M> {
    fn len_bytes(&self) -> u64 {
        self.buffers.len_bytes
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        if at + bytes.len() as u64 > self.len_bytes() {
            return Err(IoError { at });
        }
        let m = &self.kernel.machine;
        let mut done = 0;
        let result = self.each_piece(at, bytes.len(), false, &mut |va, len| {
            let loaded = m.load(Mode::Kernel, va, &mut bytes[done..][..len]);
            loaded.unwrap_or_else(|e| panic!("the kernel's own buffer is mapped: {e:?}"));
            done += len;
            (len, Ok(()))
        });
        result.map_err(|_| IoError { at: at + done as u64 })
    }

    fn write(&mut self, at: u64, bytes: &[u8], when: When) -> Result<(), IoError> {
        if at + bytes.len() as u64 > self.len_bytes() {
            return Err(IoError { at });
        }
        let m = &self.kernel.machine;
        let mut done = 0;
        let result = self.each_piece(at, bytes.len(), true, &mut |va, len| {
            let _c = m.scope(Cause::Copy);
            let stored = m.store(Mode::Kernel, va, &bytes[done..][..len]);
            stored.unwrap_or_else(|e| panic!("the kernel's own buffer is mapped: {e:?}"));
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
            if let Some(buffer) = self.buffers.buffers.get_mut(&index)
                && buffer.dirty != 0
            {
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
        let at = bytes.start;
        let waiting: Vec<u64> = if within.end - within.start <= 1 {
            Vec::from([within.start])
        } else {
            self.buffers.by_wait.values().copied().filter(|index| within.contains(index)).collect()
        };
        for index in waiting {
            self.buffers.write_out(self.kernel, self.threads, index).map_err(|_| IoError { at })?;
        }
        Ok(())
    }
}
