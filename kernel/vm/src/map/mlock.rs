//! Locking memory: pages that stay resident as long as they are mapped (`mlock`).
//!
//! An entry that is locked has all of its pages in frames, each with a wire, and remembers which. A page is made
//! resident as if it were written, where the mapping could ever be made writable: so what is shared is copied and what
//! is lent is broken *before*, and the locked frame need never be replaced while the lock lasts. (A wired frame is not
//! lent, and a fork copies it.) Locks do not nest and are not inherited. Unmapping unlocks.
//!
//! The map is not held while pages come in, so it may change; the frames are wired and put in their entries in one step
//! at the end, if the range is still the same. What fails leaves everything unlocked that was not locked before.

use super::entry::Entry;
use super::map::Map;
use super::space::page_range;
use crate::error::VmError;
use crate::vm::{Space, Vm};
use alloc::vec::Vec;
use pageferry_hal::{Access, Cause, Machine, Pfn, Prot, Threads, Va, VaRange};

impl<M: Machine> Space<M> {
    /// Locks the pages of a range in memory. A length of zero does nothing.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: `at` is not page-aligned. [`VmError::NoMemory`]: not all of the range is mapped, or memory
    /// is full. [`VmError::Again`]: more would be wired than may be. [`VmError::Bus`] and [`VmError::Io`]: a page
    /// cannot be had. Nothing is locked then that was not before.
    ///
    /// # Locks
    /// Sleeps for the map lock and for pages: no spin lock may be held.
    pub fn lock_memory(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<(), VmError> {
        let vm = &**self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let range = page_range(vm, at, len_bytes, VmError::NoMemory)?;
        if range.is_empty() {
            return Ok(());
        }
        let mut frames: Vec<Option<Pfn>> = Vec::new();
        let result = self.lock_pages(t, range, &mut frames);
        // Wires that no entry has taken over are taken off.
        let mut table = vm.frames().lock();
        frames.into_iter().flatten().for_each(|frame| table.unwire(frame));
        result
    }

    /// Wires the pages of `range` in `frames`, and hands them to their entries.
    fn lock_pages(
        &self,
        t: &dyn Threads,
        range: VaRange,
        frames: &mut Vec<Option<Pfn>>,
    ) -> Result<(), VmError> {
        let vm = &**self.vm();
        let limit_percent = vm.paging().map_or(33, |p| p.lock_limit_percent) as u64;
        let limit = vm.frames().lock().len() as u64 * limit_percent / 100;
        for page in range.pages() {
            let wired = loop {
                let access = {
                    let map = self.locked_map().read(t);
                    let entry = map.look_up(vm, page).ok_or(VmError::NoMemory)?;
                    if !entry.locked.is_empty() {
                        break None;
                    }
                    lock_access(entry)
                };
                self.resolve_to_lock(t, page, access).map_err(|e| match e {
                    VmError::Fault(_) => VmError::NoMemory,
                    e => e,
                })?;
                let map = self.locked_map().read(t);
                let Some(entry) = map.look_up(vm, page).filter(|e| e.locked.is_empty()) else { continue };
                if vm.frames().held_wires() >= limit {
                    return Err(VmError::Again);
                }
                let wire = |frame: Pfn| {
                    let mut table = vm.frames().lock();
                    let f = table.get(frame);
                    let usable = !(f.busy || access == Access::Write && f.loan_count > 0);
                    if usable {
                        table.wire(frame);
                    }
                    usable.then_some(frame)
                };
                if let Some(frame) = with_resident(vm, entry, page, access, wire).flatten() {
                    break Some(frame);
                }
            };
            frames.push(wired);
        }
        let mut map = self.locked_map().write(t);
        if !self.still_there(&map, range, frames) {
            return Err(VmError::Again);
        }
        map.clip(vm, range)?;
        for entry in map.within_mut(range).filter(|e| e.locked.is_empty()) {
            let first = (entry.range.start() - range.start()) / pageferry_hal::PAGE_SIZE;
            let pages = &mut frames[first..first + entry.range.len_pages()];
            entry.locked = pages.iter_mut().map(|f| f.take().expect("wired above")).collect();
        }
        map.join_around(vm, range);
        Ok(())
    }

    /// True when every page of `range` still has the frame that was wired for it.
    fn still_there(&self, map: &Map<M>, range: VaRange, frames: &[Option<Pfn>]) -> bool {
        map.covers(self.vm(), range)
            && range.pages().zip(frames).all(|(page, frame)| {
                let entry = map.overlapping(VaRange::pages_from(page, 1)).next().expect("covered");
                match frame {
                    Some(frame) => {
                        let now = with_resident(self.vm(), entry, page, lock_access(entry), |frame| frame);
                        entry.locked.is_empty() && now == Some(*frame)
                    }
                    None => !entry.locked.is_empty(),
                }
            })
    }

    /// Unlocks the pages of a range (`munlock`). A length of zero does nothing.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: `at` is not page-aligned. [`VmError::NoMemory`]: not all of the range is mapped, or a map
    /// entry must be cut and there is no structure for it.
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn unlock_memory(&self, t: &dyn Threads, at: Va, len_bytes: usize) -> Result<(), VmError> {
        let vm: &Vm<M> = self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let range = page_range(vm, at, len_bytes, VmError::NoMemory)?;
        if range.is_empty() {
            return Ok(());
        }
        let mut map = self.locked_map().write(t);
        if !map.covers(vm, range) {
            return Err(VmError::NoMemory);
        }
        map.clip(vm, range)?;
        map.within_mut(range).for_each(|entry| entry.unlock(vm));
        map.join_around(vm, range);
        Ok(())
    }
}

/// What the pages of `entry` are to be made resident for.
fn lock_access<M: Machine>(entry: &Entry<M>) -> Access {
    if entry.attributes.max_prot.contains(Prot::WRITE) { Access::Write } else { Access::Read }
}

/// Calls `work` with the frame that the layers have at `page`, if it would serve `access` without being replaced (loans
/// apart). The frame's owner is locked meanwhile.
pub(crate) fn with_resident<M: Machine, R>(
    vm: &Vm<M>,
    entry: &Entry<M>,
    page: Va,
    access: Access,
    work: impl FnOnce(Pfn) -> R,
) -> Option<R> {
    let copies = access == Access::Write && entry.attributes.copy_on_write;
    if copies && entry.attributes.needs_copy {
        return None;
    }
    if vm.shadows().is_some() {
        return with_resident_in_chain(vm, entry, page, copies, work);
    }
    let upper = entry.amap.as_ref().map(|aref| (aref.amap.lock(), entry.slot(aref, page)));
    if let Some((amap, slot)) = &upper
        && let Some((_, anon)) = amap.anons(*slot..slot + 1).next()
    {
        let state = anon.lock();
        return state.usable().filter(|_| !copies || state.refs == 1).map(work);
    }
    let oref = entry.object.as_ref().filter(|_| !copies)?;
    let number = entry.object_page(oref, page);
    let state = oref.object.lock();
    state.pages().get(&number).copied().filter(|_| !state.busy().contains(&number)).map(work)
}

/// The same for a chain of shadow objects; `copies` is for an access that only the first may serve.
fn with_resident_in_chain<M: Machine, R>(
    vm: &Vm<M>,
    entry: &Entry<M>,
    page: Va,
    copies: bool,
    work: impl FnOnce(Pfn) -> R,
) -> Option<R> {
    let top = entry.object.as_ref()?;
    let chains = vm.chains();
    let (depth, object, number) = chains.holder(&top.object, entry.object_page(top, page))?;
    if copies && depth > 0 {
        return None;
    }
    let state = object.lock();
    state.pages().get(&number).copied().filter(|_| !state.busy().contains(&number)).map(work)
}
