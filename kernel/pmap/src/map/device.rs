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
        (0..pages)
            .try_for_each(|i| self.enter_device(frames, pmap, va + i * PAGE_SIZE, Pfn(first.0 + i as u32)))
    }

    fn enter_device(
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
            assert!(radix::load(m, format, slot).is_none(), "{va:?} is mapped already");
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
        let block = fixed::unpack(pmap.shared.block.load(SeqCst));
        let meets = |b: &Block| range.start().0 < b.va.0 + b.len_bytes() && range.end() > b.va;
        if block.as_ref().is_some_and(meets) {
            self.leave_everywhere_else(&pmap.shared);
            self.set_block(&pmap.shared, 0);
        }
    }
}
