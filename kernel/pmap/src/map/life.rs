//! The life of an address space's page tables: made, and given back.

use crate::config::FrameSource;
use crate::defect::PmapDefect;
use crate::error::PmapError;
use crate::pmap::{Pmap, Pmaps};
use crate::tables::cached::Reach;
use crate::tables::radix::Tables;
use crate::tables::space::Shared;
use crate::tlb::asid::{Tagging, Tags};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use pageferry_hal::{Asid, Cause, LockClass, Machine, SpinLock, Va};

impl<M: Machine> Pmaps<M> {
    /// An empty address space: one table, in which the kernel's half is that of all others.
    ///
    /// # Errors
    /// [`PmapError::NoFrame`], [`PmapError::NoTag`].
    ///
    /// # Locks
    /// Takes the lock of reverse mappings, and the shootdown lock where tags run out; `frames` is called with no lock
    /// held.
    pub fn create(&self, frames: &dyn FrameSource) -> Result<Pmap<M>, PmapError> {
        let (m, width) = (&self.machine, self.kernel.format.width);
        let _c = m.scope(Cause::PteWork);
        let frame = frames.take().ok_or(PmapError::NoFrame)?;
        let root = frame.pa();
        self.claim(frame, Va(root.0), Reach::Write);
        m.pt_clear(root);
        for &index in &self.kernel.root_entries {
            let offset = index * width.bytes();
            let entry = m.pt_load(self.kernel.root + offset, width);
            m.pt_store(root + offset, width, entry);
        }
        let tags = match self.tagging {
            Tagging::None => None,
            Tagging::PerCpu => Some(Tags::per_cpu(self.active.len())),
            Tagging::Shared => {
                let Some(asid) = self.shared_number() else {
                    frames.give(frame);
                    return Err(PmapError::NoTag);
                };
                Some(Tags::Shared { asid: AtomicU32::new(asid.0), ran_on: Default::default() })
            }
        };
        let mut pv = self.pv.lock();
        let id = pv.new_id();
        let tables = m.new_lock(LockClass::PMAP, Tables::new(frame));
        let shared = Arc::new(Shared {
            id,
            root,
            tables,
            block: AtomicU64::new(0),
            tags: tags.map(Arc::new),
            wired: AtomicU32::new(0),
            wired_asid: AtomicU32::new(Asid::KERNEL.0),
            attached: AtomicU32::new(0),
        });
        pv.spaces.insert(id, shared.clone());
        Ok(Pmap { shared })
    }

    /// A number that is the same on all CPUs; `None` when all are in use.
    fn shared_number(&self) -> Option<Asid> {
        loop {
            let rested = {
                let mut pv = self.pv.lock();
                let free = pv.numbers.take();
                if free.is_some() || !pv.numbers.some_rest() {
                    return free;
                }
                pv.numbers.rested()
            };
            // Also for those that another CPU is about to free: then it is waited for.
            if !self.config.defect.is(PmapDefect::TagReusedEarly) {
                self.empty_everywhere();
            }
            if let Some(second) = self.second.as_ref().filter(|_| self.purges()) {
                second.purge(&self.machine, &rested);
            }
            self.pv.lock().numbers.free(rested);
        }
    }

    /// The hash table may hold entries of numbers that no address space has.
    fn purges(&self) -> bool {
        self.config.renew_pages.is_some() && !self.config.defect.is(PmapDefect::TagReusedInHashTable)
    }

    /// Gives back the page tables of an address space that maps nothing any more.
    ///
    /// # Locks
    /// Takes the shootdown lock, then those of the space and of the reverse mappings, one after the other; `frames` is
    /// called with no lock held.
    ///
    /// # Panics
    /// When mappings are left, or a process runs on it.
    pub fn destroy(&self, frames: &dyn FrameSource, pmap: Pmap<M>) {
        let _c = self.machine.scope(Cause::PteWork);
        let shared = pmap.shared;
        let wired = shared.wired.load(SeqCst);
        assert_eq!(wired, 0, "an address space is destroyed with reserved entries of its own");
        self.leave_everywhere(&shared);
        let taken = {
            let mut tables = shared.tables.lock();
            assert_eq!(
                (tables.resident, tables.wired),
                (0, 0),
                "an address space is destroyed with mappings in it"
            );
            core::mem::take(&mut tables.frames)
        };
        let registered = {
            let mut pv = self.pv.lock();
            // A flush of what another thread has changed in it may still be owed: the number rests first.
            shared.hash_tag().into_iter().for_each(|asid| pv.numbers.give(asid));
            pv.spaces.remove(&shared.id)
        };
        assert!(registered.is_some(), "an address space is destroyed that was never created here");
        taken.into_iter().for_each(|frame| frames.give(frame));
    }
}
