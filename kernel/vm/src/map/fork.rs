//! fork: a new address space with the parent's memory.
//!
//! What happens to a range is the entry's inheritance. *Share* lets both entries refer to one amap (or object). *Copy*
//! lets both refer to one amap too, flagged needs-copy, and write-protects the parent's mappings: the first write
//! copies the amap, and then only the anons that are written are copied (UVM paper, 3.3). All write-protection of one
//! fork is flushed in one shootdown, at its end.
//!
//! A copy is made at once, not deferred, where deferring would change what others see: when the parent shares the amap
//! with another space (flagging it needs-copy would end the sharing), and when frames are wired (the kernel may be
//! writing into them: the parent keeps the wired frame, the child gets its bytes).
//!
//! Where memory is made of shadow objects, both map the same object, flagged likewise, and the first write puts another
//! before it; a copy that cannot wait is an object put behind it (`shadow::copy`).
//!
//! The parent's map is held exclusively throughout. All that can fail comes first and touches the parent only in ways
//! that cannot be seen; then the copy is committed.

use super::clip::collect_entries;
use super::entry::{AmapRef, Entry, Inherit};
use super::map::Map;
use crate::error::VmError;
use crate::probe::VmDefect;
use crate::vm::{Space, Vm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Cause, Machine, Prot, Threads};
use pageferry_pmap::TlbFlush;

impl<M: Machine> Space<M> {
    /// A copy of this address space, as the inheritance of each range says.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    ///
    /// # Locks
    /// Sleeps for the map lock: no spin lock may be held.
    pub fn fork(&self, t: &dyn Threads) -> Result<Arc<Space<M>>, VmError> {
        let vm = self.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let child = vm.with_memory(t, || vm.space())?;
        let mut parent = self.locked_map().write(t);
        let entries = copy_entries(vm, t, &mut parent)?;
        self.commit_deferred(&mut parent, &entries);
        let mut map = child.locked_map().write(t);
        for entry in entries {
            map.insert(vm, entry);
        }
        map.transfer_area = parent.transfer_area;
        drop(map);
        Ok(child)
    }

    /// Write-protects the parent where the child's entries share an amap with it until one of them writes.
    pub(crate) fn commit_deferred(&self, parent: &mut Map<M>, entries: &[Entry<M>]) {
        let vm = self.vm();
        let mut pending = TlbFlush::new();
        let shadows = vm.shadows().is_some();
        let waits =
            |e: &&Entry<M>| e.attributes.needs_copy && (e.amap.is_some() || shadows && e.object.is_some());
        for entry in entries.iter().filter(waits) {
            let own =
                parent.look_up_mut(vm, entry.range.start()).expect("the child's entries are the parent's");
            assert!(own.range == entry.range, "{:?} was copied from {:?}", entry.range, own.range);
            if own.attributes.needs_copy || shadows && !own.waits_with(entry) {
                continue;
            }
            own.attributes.needs_copy = !vm.has(VmDefect::ForkForgetsNeedsCopy);
            let readable = own.attributes.prot.difference(Prot::WRITE);
            if readable != own.attributes.prot && !vm.has(VmDefect::ForkWithoutProtect) {
                pending.merge(vm.pmaps().protect(self.pmap(), own.range, readable));
            }
        }
        pending.flush(vm.pmaps());
    }
}

/// The child's entries, in order. On failure none is left.
fn copy_entries<M: Machine>(
    vm: &Vm<M>,
    t: &dyn Threads,
    parent: &mut Map<M>,
) -> Result<Vec<Entry<M>>, VmError> {
    let made = parent.entries_mut().filter_map(|entry| match entry.attributes.inherit {
        Inherit::None => None,
        Inherit::Share => Some(share_entry(vm, entry)),
        Inherit::Copy => Some(copy_entry(vm, t, entry)),
    });
    collect_entries(vm, made)
}

/// An entry through which the child sees the same memory.
pub(crate) fn share_entry<M: Machine>(vm: &Vm<M>, entry: &mut Entry<M>) -> Result<Entry<M>, VmError> {
    // What is written first must be seen by both: the amap must exist, and have no other users.
    if !vm.has(VmDefect::ShareForgetsCopy) {
        entry.amap_copy(vm)?;
    }
    entry.note_shared(vm);
    entry.duplicate(vm)
}

/// An entry through which the child sees the memory as it is now.
pub(crate) fn copy_entry<M: Machine>(
    vm: &Vm<M>,
    t: &dyn Threads,
    entry: &mut Entry<M>,
) -> Result<Entry<M>, VmError> {
    let mut child = entry.duplicate(vm)?;
    // A mapping that writes to its object is copied as one that promotes what the child writes.
    child.attributes.copy_on_write = true;
    if let Some(aref) = child.amap.take_if(|_| !entry.attributes.needs_copy) {
        let kept = if must_copy_now(vm, entry) { copy_now(vm, entry, &aref) } else { Ok(None) };
        match kept {
            Ok(None) => child.amap = Some(aref),
            Ok(Some(own)) => {
                aref.amap.drop_ref(vm, entry.slots(&aref));
                child.amap = Some(own);
                child.attributes.needs_copy = false;
                return Ok(child);
            }
            Err(e) => {
                child.amap = Some(aref);
                child.dispose(vm);
                return Err(e);
            }
        }
    }
    if vm.shadows().is_some() {
        if !entry.must_put_behind(vm) {
            entry.mark_pages(vm);
        } else {
            match entry.put_behind(vm, t) {
                Ok(behind) => {
                    let old = child.object.replace(behind);
                    old.into_iter().for_each(|old| old.object.drop_ref(vm));
                }
                Err(e) => {
                    child.dispose(vm);
                    return Err(e);
                }
            }
        }
    }
    child.attributes.needs_copy = true;
    Ok(child)
}

/// True when the entry's amap must be copied during the fork.
fn must_copy_now<M: Machine>(vm: &Vm<M>, entry: &Entry<M>) -> bool {
    let Some(aref) = &entry.amap else { return false };
    // The child's entry counts already, so two is the parent's own and the child's.
    let amap = aref.amap.lock();
    let shared = amap.slot_refs().max_of(entry.slots(aref)) > 2;
    let any_wired = vm.frames().held_wires() > 0;
    let any_wired = any_wired && !vm.has(VmDefect::ForkSharesWired);
    shared || any_wired && amap.anons(entry.slots(aref)).any(|(_, anon)| anon.is_wired(vm))
}

/// Copies the amap, and write-protects its frames wherever they are mapped: other spaces that share it must copy before
/// they write, too. Flushed under the amap's lock, so that no such write finds a stale translation.
fn copy_now<M: Machine>(
    vm: &Vm<M>,
    entry: &Entry<M>,
    from: &AmapRef<M>,
) -> Result<Option<AmapRef<M>>, VmError> {
    let amap = from.amap.lock();
    let copy = amap.copy_range(vm, entry.slots(from), true)?;
    let mut pending = TlbFlush::new();
    for (_, anon) in amap.anons(entry.slots(from)) {
        let state = anon.lock();
        if let Some(frame) = state.frame.filter(|_| state.refs > 1) {
            pending.merge(vm.pmaps().page_protect(frame, Prot::all().difference(Prot::WRITE)));
        }
    }
    pending.flush(vm.pmaps());
    Ok(Some(AmapRef { amap: copy, slot: 0 }))
}
