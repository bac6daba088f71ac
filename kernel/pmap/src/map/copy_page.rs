//! Clearing and copying whole frames, which need a kernel address to be reached by.
//!
//! With a direct map every frame has one. Where pages have colours, that may be the wrong one: see `colours`.
//! Without, and then, each CPU owns two pages of kernel addresses (as FreeBSD 5 does on i386: `sysmaps_pcpu`), guarded
//! by a lock of the CPU: while it is held, the thread stays on the CPU, and so no other CPU's TLB ever sees these
//! addresses. A page is mapped, invalidated in the own TLB, used, and unmapped; the stale translation that is then left
//! in the own TLB is harmless, because the next use invalidates before it begins.

use crate::pmap::Pmaps;
use crate::tables::cached::Reach;
use crate::tables::fixed::PERMANENT;
use crate::tables::radix;
use crate::tables::sysmap::Sysmap;
use pageferry_hal::{Asid, Cause, Machine, PAGE_SIZE, Pfn, SpaceId, SpinLock, Tte, Va};

impl<M: Machine> Pmaps<M> {
    /// Clears a frame through a temporary or the direct mapping.
    ///
    /// # Locks
    /// Without a direct map, takes a lock of class `Pmap`.
    #[track_caller]
    pub fn zero_page(&self, frame: Pfn) {
        self.with_frames([(frame, Reach::Write)], |[va]| {
            let _c = self.machine.scope(Cause::Zero);
            self.machine.zero(va, PAGE_SIZE).expect("a mapped page is cleared");
        });
    }

    /// Copies the frame `from` to the frame `to`, through temporary or the direct mappings.
    ///
    /// # Locks
    /// Without a direct map, takes a lock of class `Pmap`.
    #[track_caller]
    pub fn copy_page(&self, from: Pfn, to: Pfn) {
        assert!(from != to, "{from:?} is copied onto itself");
        self.with_frames([(from, Reach::Read), (to, Reach::Write)], |[from, to]| {
            let _c = self.machine.scope(Cause::Copy);
            self.machine.copy_kernel(to, from, PAGE_SIZE).expect("a mapped page is copied");
        });
    }

    /// Calls `work` with addresses of `frames`.
    #[track_caller]
    fn with_frames<const N: usize>(&self, frames: [(Pfn, Reach); N], work: impl FnOnce([Va; N])) {
        assert!(N <= Sysmap::<M>::FRAMES, "a CPU cannot map {N} frames");
        let colours = frames.map(|(frame, _)| self.best_colour(frame));
        let direct = |i: usize| {
            let frame = frames[i].0;
            self.direct_va(frame).filter(|_| colours[i] == self.own_colour(frame))
        };
        if (0..N).all(|i| direct(i).is_some()) {
            return work(
                frames.map(|(frame, reach)| self.direct(frame, reach).expect("there is a direct map")),
            );
        }
        let sysmap = &self.sysmaps[self.machine.cpu().index()];
        for (i, &(frame, reach)) in frames.iter().enumerate() {
            // The colour is the same on all CPUs.
            self.claim(frame, direct(i).unwrap_or_else(|| sysmap.page(i, colours[i])), reach);
        }
        let (sysmap, _guard) = self.sysmap_here();
        let addresses: [Va; N] =
            core::array::from_fn(|i| direct(i).unwrap_or_else(|| sysmap.page(i, colours[i])));
        for (i, (va, (frame, _))) in addresses.iter().zip(&frames).enumerate() {
            if direct(i).is_none() {
                self.map_sysmap(*va, *frame);
            }
        }
        work(addresses);
        for (i, va) in addresses.into_iter().enumerate() {
            if direct(i).is_none() {
                self.unmap_sysmap(va);
            }
        }
    }

    /// The executing CPU's pages, and the lock that keeps the thread there.
    fn sysmap_here(&self) -> (&Sysmap<M>, <M::Lock<()> as SpinLock<()>>::Guard<'_>) {
        loop {
            let cpu = self.machine.cpu();
            let sysmap = &self.sysmaps[cpu.index()];
            let guard = sysmap.lock.lock();
            if self.machine.cpu() == cpu {
                return (sysmap, guard);
            }
        }
    }

    #[track_caller]
    fn map_sysmap(&self, va: Va, frame: Pfn) {
        let _c = self.machine.scope(Cause::PteWork);
        self.machine.execute(self.config.paths.kenter);
        // All that can be noted is noted beforehand: nothing asks, and the machine is spared two writes.
        let new = Tte::page(frame, PERMANENT);
        radix::store(&self.machine, &self.kernel.format, self.kernel.slot(va), new);
        self.machine.mapping_changed(SpaceId::KERNEL, va, None, Some(new), None);
        self.invalidate_local(va);
    }

    #[track_caller]
    fn unmap_sysmap(&self, va: Va) {
        let _c = self.machine.scope(Cause::PteWork);
        let window = self.machine.open_flush_window();
        let old = radix::swap(&self.machine, &self.kernel.format, self.kernel.slot(va), None);
        assert!(old.is_some(), "the temporary page {va:?} was unmapped by another thread");
        self.machine.mapping_changed(SpaceId::KERNEL, va, old, None, Some(&window));
        self.forget_hashed(Some(Asid::KERNEL), va);
        self.machine.close_flush_window(window);
    }
}
