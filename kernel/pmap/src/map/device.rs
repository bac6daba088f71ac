//! The memory of devices: where the kernel has it, and how a process gets a frame buffer.
//!
//! The kernel has all of it from boot on, by pages or by a block. A process gets it by pages that are in no list (their
//! frames are nobody's to take), or by a block of its own, which a switch to it sets and a switch to another takes away
//! (PPC paper: what a call of `ioremap` could do for programs such as X). A block covers what pages of other processes
//! have at the same addresses: it must go with its process.

use crate::config::{FrameSource, KernelMapping};
use crate::error::PmapError;
use crate::pmap::{Pmap, Pmaps};
use crate::tables::fixed;
use crate::tables::radix::{self, walk_or_grow};
use core::sync::atomic::Ordering::SeqCst;
use pageferry_hal::{Attr, Block, Cause, Machine, PAGE_SHIFT, PAGE_SIZE, Pfn, SpinLock, Tte, Va, VaRange};

impl<M: Machine> Pmaps<M> {
    /// Where the kernel has page `page` of the memory of devices, if there is any.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn device_va(&self, page: usize) -> Option<Va> {
        let base = self.kernel.devices?;
        let pages = self.machine.board().device_memory.map_or(0, |devices| devices.pages());
        assert!(page < pages, "page {page} of the memory of devices, which has {pages}");
        Some(base + (page << PAGE_SHIFT))
    }

    /// Maps the frame buffer at `va`, where nothing is mapped: by a block if the kernel does so and `va` is aligned to
    /// its size, else by pages. [`Pmaps::remove`] unmaps it.
    ///
    /// # Errors
    /// [`PmapError::NoFrame`]: some pages may be mapped then.
    ///
    /// # Locks
    /// Takes the lock of reverse mappings and the space's lock; `frames` is called with neither. No other CPU runs the
    /// space.
    ///
    /// # Panics
    /// When there is no frame buffer, or the range is not in user space.
    pub fn enter_frame_buffer(
        &self,
        frames: &dyn FrameSource,
        pmap: &Pmap<M>,
        va: Va,
    ) -> Result<(), PmapError> {
        let _c = self.machine.scope(Cause::PteWork);
        let board = self.machine.board();
        let pages = board.device_memory.map_or(0, |devices| devices.frame_buffer_pages);
        assert!(pages > 0, "this board has no frame buffer");
        self.assert_user(VaRange::pages_from(va, pages));
        let first = Pfn(board.frames as u32);
        let bytes = pages * PAGE_SIZE;
        let aligned = bytes.is_power_of_two() && (va.0 | first.pa().0).is_multiple_of(bytes as u64);
        if self.config.mapping == KernelMapping::BlocksAndProcess && aligned {
            self.leave_everywhere_else(&pmap.shared);
            let attr = Attr::WRITE | Attr::USER;
            let block = Block { va, pa: first.pa(), shift: bytes.ilog2() as u8, attr };
            self.set_block(&pmap.shared, fixed::pack(Some(block)));
            return Ok(());
        }
        self.enter_device(frames, pmap, va, (first, pages))
    }

    /// Makes pages of the space's block if `range` holds a part of it and not all: a part can then be unmapped, and
    /// what is left stays mapped.
    ///
    /// # Errors
    /// [`PmapError::NoFrame`]: all is mapped as before.
    ///
    /// # Locks
    /// As [`Pmaps::enter_frame_buffer`].
    pub fn split_block(
        &self,
        frames: &dyn FrameSource,
        pmap: &Pmap<M>,
        range: VaRange,
    ) -> Result<(), PmapError> {
        let Some(block) = block_of(pmap).filter(|block| meets(block, range)) else { return Ok(()) };
        let pages = (block.len_bytes() >> PAGE_SHIFT) as usize;
        if range.covers(&VaRange::pages_from(block.va, pages)) {
            return Ok(());
        }
        let _c = self.machine.scope(Cause::PteWork);
        // As long as the block is there, they lead where it does.
        self.enter_device(frames, pmap, block.va, (block.pa.pfn(), pages))?;
        self.drop_block(pmap, range);
        Ok(())
    }

    /// Enters pages of the memory of devices, of which some may have been entered by an attempt that failed.
    fn enter_device(
        &self,
        frames: &dyn FrameSource,
        pmap: &Pmap<M>,
        va: Va,
        (first, pages): (Pfn, usize),
    ) -> Result<(), PmapError> {
        let page = |i: usize| (va + i * PAGE_SIZE, Pfn(first.0 + i as u32));
        (0..pages).map(page).try_for_each(|(va, frame)| self.enter_device_page(frames, pmap, va, frame))
    }

    fn enter_device_page(
        &self,
        frames: &dyn FrameSource,
        pmap: &Pmap<M>,
        va: Va,
        frame: Pfn,
    ) -> Result<(), PmapError> {
        let (m, format) = (&self.machine, &self.kernel.format);
        m.execute(self.config.paths.enter);
        self.with_tables(frames, |spare| {
            let mut tables = pmap.shared.tables.lock();
            let slot = walk_or_grow(m, format, &mut tables, va, spare)?;
            if let Some(old) = radix::load(m, format, slot) {
                assert_eq!(old.frame, frame, "{va:?} is mapped already");
                return Ok(());
            }
            // Nothing asks whether it is used or modified.
            let noted = Attr::REFERENCED | Attr::MODIFIED;
            let new = Tte::page(frame, Attr::USER | Attr::WRITE | noted);
            radix::store(m, format, slot, new);
            m.mapping_changed(pmap.id(), va, None, Some(new), None);
            tables.resident += 1;
            Ok(())
        })
    }

    /// Takes the space's block away if it maps any of `range`.
    pub(crate) fn drop_block(&self, pmap: &Pmap<M>, range: VaRange) {
        if block_of(pmap).is_some_and(|block| meets(&block, range)) {
            self.leave_everywhere_else(&pmap.shared);
            self.set_block(&pmap.shared, 0);
        }
    }
}

fn block_of<M: Machine>(pmap: &Pmap<M>) -> Option<Block> {
    fixed::unpack(pmap.shared.block.load(SeqCst))
}

/// A block maps some of a range.
fn meets(block: &Block, range: VaRange) -> bool {
    range.start().0 < block.va.0 + block.len_bytes() && range.end() > block.va
}
