//! New objects in a chain: one before another, for what a mapping is about to write, and one behind, for what others
//! are to see as it is now.
//!
//! To put an object *before* is the usual way (4.4BSD, `vm_object_shadow`): a fork only flags both entries, and the
//! first of them that is written to gets an object of its own, behind which stands what both had. That cannot be where
//! the parent's memory is shared with another space, whose writes the parent must go on seeing, or where frames are
//! wired, which must stay the parent's. Then an object is put *behind*: it takes all pages over, and the object that is
//! shared goes on empty. (BSD VM comes to the same chain by way of its share maps: the shared entry itself is flagged,
//! and what is put before it is seen by all.) Wired pages stay where they are, and the object behind gets copies.
//!
//! Fails for want of a structure, or of frames for copies; then nothing has changed but permissions that come again.

use super::chains::Behind;
use crate::error::VmError;
use crate::map::{Entry, ObjectRef};
use crate::object::Object;
use crate::page::{Holder, WantedFrame};
use crate::probe::VmDefect;
use crate::vm::Vm;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use pageferry_hal::{Access, Machine, Pfn, Prot, Threads};
use pageferry_pmap::TlbFlush;

impl<M: Machine> Entry<M> {
    /// Resolves needs-copy: the entry gets an object of its own, before the one that it maps now, if any. The caller
    /// holds the map exclusively.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]; the entry is as before.
    pub(crate) fn shadow(&mut self, vm: &Vm<M>) -> Result<(), VmError> {
        let paths = vm.shadows().expect("memory is made of shadow objects").paths;
        vm.machine().execute(paths.shadow);
        let first_colour = self.lower_colour(vm);
        let object = vm.internal_object(self.len_pages(), first_colour)?;
        let behind = self.object.take().map(|o| Behind { object: o.object, page: o.page });
        if let Some(behind) = behind.as_ref().filter(|_| vm.has(VmDefect::ShadowUncounted)) {
            behind.object.lock().forget_ref();
        }
        vm.chains().insert(&object, behind);
        self.object = Some(ObjectRef { object, page: 0 });
        self.attributes.needs_copy = false;
        self.touch(vm, Access::Write);
        Ok(())
    }

    /// Others see what is written through this entry from now on.
    pub(crate) fn note_shared(&self, vm: &Vm<M>) {
        if let Some(o) = self.object.as_ref().filter(|_| vm.shadows().is_some()) {
            vm.chains().share(&o.object);
        }
    }

    /// At a fork each page of the object that is to be shared is marked (4.4BSD, `vm_object_copy`). The mark says what
    /// the chain says as well, and nothing reads it here; but it takes its time.
    pub(crate) fn mark_pages(&self, vm: &Vm<M>) {
        let path = vm.shadows().expect("memory is made of shadow objects").paths.mark;
        let Some(o) = self.object.as_ref().filter(|o| o.object.is_internal()) else { return };
        let state = o.object.lock();
        for &frame in state.pages().values() {
            vm.machine().execute(path);
            vm.frames().lock().touch_counts(frame, Access::Write);
        }
    }

    /// True when a copy of what the entry maps cannot wait until somebody writes.
    pub(crate) fn must_put_behind(&self, vm: &Vm<M>) -> bool {
        let own = self.attributes.copy_on_write && !self.attributes.needs_copy;
        let Some(o) = self.object.as_ref().filter(|o| own && o.object.is_internal()) else { return false };
        if vm.chains().is_shared(&o.object) {
            return true;
        }
        let any_wired = vm.frames().held_wires() > 0 && !vm.has(VmDefect::ForkSharesWired);
        let state = o.object.lock();
        let mut frames = state.pages().range(o.page..o.page + self.len_pages());
        any_wired && frames.any(|(_, &frame)| vm.frames().lock().get(frame).is_pinned())
    }

    /// Puts a new object behind the one that the entry maps, with all that this has; the caller gets a reference to it.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    ///
    /// # Locks
    /// Sleeps until pages on their way have arrived: no spin lock may be held.
    pub(crate) fn put_behind(&self, vm: &Vm<M>, t: &dyn Threads) -> Result<ObjectRef<M>, VmError> {
        let o = self.object.as_ref().expect("it maps an object of its own");
        let object = put_behind(vm, t, &o.object)?;
        Ok(ObjectRef { object, page: o.page })
    }
}

fn put_behind<M: Machine>(
    vm: &Vm<M>,
    t: &dyn Threads,
    top: &Arc<Object<M>>,
) -> Result<Arc<Object<M>>, VmError> {
    let paths = vm.shadows().expect("memory is made of shadow objects").paths;
    vm.machine().execute(paths.shadow);
    let object = vm.internal_object(top.len_pages(), top.first_colour)?;
    let (mut chains, mut state) = loop {
        let chains = vm.chains();
        let state = top.lock();
        if state.busy().is_empty() {
            break (chains, state);
        }
        drop(chains);
        top.wait_for_moves(t, state);
    };
    // First of all nobody can store, or wire to store, any more.
    let mut pending = TlbFlush::new();
    for &frame in state.pages().values() {
        vm.machine().execute(paths.collapse);
        pending.merge(vm.pmaps().page_protect(frame, Prot::all().difference(Prot::WRITE)));
    }
    pending.flush(vm.pmaps());
    let copies = match copy_wired(vm, &object, state.pages()) {
        Ok(copies) => copies,
        Err(e) => {
            drop(state);
            drop(chains);
            object.drop_ref(vm);
            return Err(e);
        }
    };
    let stay: BTreeMap<u64, Pfn> = copies.keys().map(|page| (*page, state.pages()[page])).collect();
    let mut pages = core::mem::replace(state.pages_mut(), stay);
    let mut slots = core::mem::take(&mut state.swap);
    for (&page, &copy) in &copies {
        pages.insert(page, copy);
        state.swap.extend(slots.remove(&page).map(|slot| (page, slot)));
    }
    drop(state);
    let mut below = object.lock();
    for (&page, &frame) in &pages {
        match copies.contains_key(&page) {
            true => vm.frames().publish(frame),
            false => vm.frames().lock().rename(frame, &object, page),
        }
    }
    for (&page, &slot) in &slots {
        let only = !pages.contains_key(&page);
        vm.swap().rename(slot, Holder::Page(Arc::downgrade(&object), page), (only, only));
    }
    *below.pages_mut() = pages;
    below.swap = slots;
    drop(below);
    // One reference for the caller, and one for the object before it.
    object.add_ref(vm);
    let behind = chains.replace(top, Some(Behind { object: object.clone(), page: 0 }));
    chains.insert(&object, behind);
    Ok(object)
}

/// Copies, for `object`, of those of `pages` whose frames are wired. On failure there is none.
fn copy_wired<M: Machine>(
    vm: &Vm<M>,
    object: &Arc<Object<M>>,
    pages: &BTreeMap<u64, Pfn>,
) -> Result<BTreeMap<u64, Pfn>, VmError> {
    let mut copies = BTreeMap::new();
    for (&page, &frame) in pages {
        if !vm.frames().lock().get(frame).is_pinned() || vm.has(VmDefect::ForkSharesWired) {
            continue;
        }
        match object.frame_for(vm, page, WantedFrame::of) {
            Ok(copy) => {
                vm.copy(frame, copy);
                copies.insert(page, copy);
            }
            Err(e) => {
                copies.into_values().for_each(|copy| vm.frames().free_busy(copy));
                return Err(e);
            }
        }
    }
    Ok(copies)
}
