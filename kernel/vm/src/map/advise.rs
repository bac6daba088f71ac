//! What a program says about its memory: write it back (`msync`), and how it will be used (`madvise`).
//!
//! Both look at a range entry by entry with the map shared, note what they found, and work with the map unlocked: pages
//! may come and go meanwhile, and no harm is done, for advice changes nothing that can be read, except where the advice
//! is that the contents may be lost. Pages that are wired or lent are left alone by all advice, as in NetBSD.

use super::entry::{Advice, Attributes, Entry};
use super::map::Map;
use super::mlock::with_resident;
use super::space::page_range;
use crate::error::VmError;
use crate::object::Object;
use crate::page::Queue;
use crate::vm::{Space, Vm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use pageferry_hal::{Access, Cause, Machine, Pfn, Threads, Va, VaRange};
use pageferry_pmap::TlbFlush;

/// The advice that can be given (`madvise`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Madvise {
    /// How the range will be used from now on.
    Use(Advice),
    /// It will be used soon: what is not resident comes in now.
    WillNeed,
    /// It will not be used soon: its pages are the next to be taken. Their contents stay.
    DontNeed,
    /// Its contents are not needed any more: what is the range's alone is freed, and reads as zero, or as the file
    /// below.
    Free,
}

impl<M: Machine> Space<M> {
    /// Writes what was written through shared mappings of files in the range to the disk; sleeps until it is there.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: `at` is not page-aligned. [`VmError::NoMemory`]: not all of the range is mapped.
    /// [`VmError::Io`]: not all could be written; what could not stays in memory, and is tried again next time.
    ///
    /// # Locks
    /// Sleeps for the map lock and the disk: no spin lock may be held.
    pub fn sync(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<(), VmError> {
        let vm = &**self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let range = page_range(vm, at, len_bytes, VmError::NoMemory)?;
        let mut files: Vec<(Arc<Object<M>>, Range<u64>)> = Vec::new();
        {
            let map = self.mapped(t, range)?;
            for entry in map.overlapping(range).filter(|e| !e.attributes.copy_on_write) {
                let part = entry.range.intersect(&range).expect("it overlaps");
                let oref = entry.object.as_ref().expect("it writes to its object");
                let first = entry.object_page(oref, part.start());
                oref.object.add_ref(vm);
                files.push((oref.object.clone(), first..first + part.len_pages() as u64));
            }
        }
        let mut result = Ok(());
        for (object, pages) in files {
            result = result.and(object.clean(vm, t, pages));
            object.drop_ref(vm);
        }
        result
    }

    /// Takes advice about a range. A length of zero changes nothing.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: `at` is not page-aligned. [`VmError::NoMemory`]: not all of the range is mapped, or there
    /// is no structure for a map entry.
    ///
    /// # Locks
    /// Sleeps for the map lock and, to bring pages in, for the disk: no spin lock may be held.
    pub fn advise(&self, t: &dyn Threads, at: Va, len_bytes: usize, advise: Madvise) -> Result<(), VmError> {
        let vm = &**self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let range = page_range(vm, at, len_bytes, VmError::NoMemory)?;
        if range.is_empty() {
            return Ok(());
        }
        match advise {
            Madvise::Use(advice) => {
                return self.change(t, at, len_bytes, |a| Ok(Attributes { advice, ..a }));
            }
            Madvise::WillNeed => {
                drop(self.mapped(t, range)?);
                for page in range.pages() {
                    // What cannot be had now is not had: it was advice.
                    if vm.frames().free_now() <= vm.paging().map_or(0, |p| p.free_target_pages)
                        || self.resolve(t, page, Access::Read) == Err(VmError::NoMemory)
                    {
                        break;
                    }
                }
            }
            Madvise::DontNeed => {
                let map = self.mapped(t, range)?;
                let mut pending = TlbFlush::new();
                for (entry, page) in pages(&map, range) {
                    with_resident(vm, entry, page, Access::Read, |frame| {
                        pending.merge(vm.pmaps().clear_referenced(frame));
                        vm.frames().lock().move_to(frame, Queue::Inactive);
                    });
                }
                pending.flush(vm.pmaps());
            }
            Madvise::Free => self.free_contents(t, range)?,
        }
        Ok(())
    }

    /// Frees the anons of `range` that have no other reference.
    fn free_contents(&self, t: &dyn Threads, range: VaRange) -> Result<(), VmError> {
        let vm = &**self.vm();
        let mut removed = Vec::new();
        {
            let map = self.mapped(t, range)?;
            for entry in map.overlapping(range).filter(|e| !e.attributes.needs_copy) {
                let Some(aref) = &entry.amap else { continue };
                let part = entry.range.intersect(&range).expect("it overlaps");
                let first = entry.slot(aref, part.start());
                let mut amap = aref.amap.lock();
                let mut pending = TlbFlush::new();
                let mut slots = Vec::new();
                for (slot, anon) in amap.anons(first..first + part.len_pages() as u64) {
                    let state = anon.lock();
                    let alone = state.refs == 1 && !state.busy && amap.slot_refs().of(slot) == 1;
                    if alone && state.frame.is_none_or(|frame| !is_in_use(vm, frame)) {
                        let page = part.start() + (slot - first) as usize * pageferry_hal::PAGE_SIZE;
                        pending.merge(vm.pmaps().remove(self.pmap(), VaRange::pages_from(page, 1)));
                        slots.push(slot);
                    }
                }
                pending.flush(vm.pmaps());
                slots.into_iter().for_each(|slot| amap.take(vm, slot..slot + 1, &mut removed));
            }
        }
        removed.iter().for_each(|anon| anon.drop_ref(vm));
        Ok(())
    }

    /// The map, shared, if it covers `range`.
    fn mapped<'a>(
        &'a self,
        t: &'a dyn Threads,
        range: VaRange,
    ) -> Result<super::lock::MapRead<'a, M, Map<M>>, VmError> {
        let map = self.locked_map().read(t);
        if map.covers(self.vm(), range) { Ok(map) } else { Err(VmError::NoMemory) }
    }
}

fn is_in_use<M: Machine>(vm: &Vm<M>, frame: Pfn) -> bool {
    let table = vm.frames().lock();
    let f = table.get(frame);
    f.wire_count > 0 || f.loan_count > 0
}

fn pages<M: Machine>(map: &Map<M>, range: VaRange) -> impl Iterator<Item = (&Entry<M>, Va)> {
    map.overlapping(range).flat_map(move |entry| {
        let part = entry.range.intersect(&range).expect("it overlaps");
        part.pages().map(move |page| (entry, page))
    })
}
