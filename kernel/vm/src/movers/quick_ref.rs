//! Quick references: a few pages of another space, looked at for a moment (UVM paper, 4.3.1; `ptrace`).
//!
//! Passing a small piece of a large mapping cuts the sender's map entry, and the pieces stay. A quick reference takes
//! its references to the layers from the entry as it is: the source's map keeps its entries. In the holder's map the
//! pages stand at the top of its addresses, in entries that are joined with nothing, so that giving them back cuts
//! nothing and cannot fail.
//!
//! The holder may read and write what the mapping could ever permit, whatever it permits now: a debugger sets
//! breakpoints in memory that is mapped read-only. So a quick reference is no means of communication, and not in reach
//! of one. What the holder writes is the source's own, as if the source had written it: copy-on-write is resolved in
//! the source's layers.
//!
//! # Locks
//! Both maps, as for [`crate::pass`]. The reference is held by a thread of the holder; while it is, no other call
//! changes the holder's map at these addresses.

use super::pass::Maps;
use crate::error::VmError;
use crate::map::{Entry, Inherit};
use crate::probe::VmDefect;
use crate::vm::{Space, Vm};
use alloc::vec::Vec;
use pageferry_hal::{Access, Cause, Machine, PAGE_SIZE, Prot, Threads, Va, VaRange, page_round};
use pageferry_pmap::TlbFlush;

/// The longest quick reference: beyond it, passing entries is the better way.
pub const QUICK_REF_PAGES: usize = 16;

/// Pages of another space in the holder's own.
#[must_use = "a quick reference must be released"]
pub struct QuickRef<'a, M: Machine> {
    holder: &'a Space<M>,
    range: VaRange,
    /// Where the first byte that was asked for is.
    at: Va,
}

/// Takes a quick reference to `len_bytes` at `at` in `from`, for `access`, into `holder`.
///
/// # Errors
/// [`VmError::Invalid`]: no length, more than [`QUICK_REF_PAGES`], or a reference to the holder's own memory.
/// [`VmError::Fault`]: a page is not mapped, or the range is no range of user addresses. [`VmError::Access`]: the
/// mapping can never permit it. [`VmError::NoMemory`]. Nothing has changed then.
///
/// # Locks
/// Sleeps for both map locks: no spin lock may be held.
pub fn quick_ref<'a, M: Machine>(
    from: &Space<M>,
    holder: &'a Space<M>,
    t: &dyn Threads,
    at: Va,
    len_bytes: usize,
    access: Access,
) -> Result<QuickRef<'a, M>, VmError> {
    let vm = &**from.vm();
    assert!(core::ptr::eq(vm, &**holder.vm()), "memory is referred to within one machine");
    let _c = vm.machine().scope(Cause::Vm);
    if len_bytes == 0 || from.struct_va() == holder.struct_va() {
        return Err(VmError::Invalid);
    }
    let end = at.checked_add(len_bytes).and_then(|end| page_round(end.0)).ok_or(VmError::Fault(at))?;
    let source = VaRange::new(at.page(), Va(end));
    if !vm.user().covers(&source) {
        return Err(VmError::Fault(at));
    }
    if source.len_pages() > QUICK_REF_PAGES {
        return Err(VmError::Invalid);
    }
    let mut maps = Maps::lock(from, holder, t);
    if !maps.from.covers(vm, source) {
        return Err(VmError::Fault(at));
    }
    if maps.from.overlapping(source).any(|entry| !entry.attributes.max_prot.permits(access)) {
        return Err(VmError::Access);
    }
    if vm.has(VmDefect::QuickRefCutsSource) {
        maps.from.clip(vm, source)?;
    }
    let like = Some(source.start());
    let start = maps.to().find_space_high(vm, source.len_pages(), like).ok_or(VmError::NoMemory)?;
    for mut entry in refer(vm, &mut maps, source, access)? {
        let target = start + (entry.range.start() - source.start());
        entry.range = VaRange::pages_from(target, entry.range.len_pages());
        maps.to().insert_apart(vm, entry);
    }
    let range = VaRange::pages_from(start, source.len_pages());
    Ok(QuickRef { holder, range, at: start + at.offset() })
}

/// The holder's entries, still at the source's addresses. On failure none is left.
fn refer<M: Machine>(
    vm: &Vm<M>,
    maps: &mut Maps<'_, M>,
    source: VaRange,
    access: Access,
) -> Result<Vec<Entry<M>>, VmError> {
    let mut made: Vec<Entry<M>> = Vec::new();
    let mut page = source.start();
    while page < source.end() {
        let entry = maps.from.look_up_mut(vm, page).expect("all of the source is mapped");
        let part = entry.range.intersect(&source).expect("the entry holds a page of the source");
        page = part.end();
        // What is written must be seen through the source's own entry: its amap must exist, and have no other users.
        let prepared = if access == Access::Write { entry.amap_copy(vm) } else { Ok(()) };
        match prepared.and_then(|()| entry.duplicate_part(vm, part)) {
            Ok(mut entry) => {
                entry.note_shared(vm);
                entry.attributes.prot = if access == Access::Write { Prot::RW } else { Prot::READ };
                entry.attributes.inherit = Inherit::None;
                entry.attributes.transfer_area = false;
                made.push(entry);
            }
            Err(e) => {
                made.into_iter().for_each(|entry| entry.dispose(vm));
                return Err(e);
            }
        }
    }
    Ok(made)
}

impl<M: Machine> QuickRef<'_, M> {
    /// Where the holder sees the bytes that it asked for.
    pub fn at(&self) -> Va {
        self.at
    }

    /// Gives the reference back.
    ///
    /// # Locks
    /// Sleeps for the holder's map lock: no spin lock may be held.
    pub fn release(self, t: &dyn Threads) {
        let vm = &**self.holder.vm();
        let _c = vm.machine().scope(Cause::Vm);
        let mut map = self.holder.locked_map().write(t);
        let entries = map.extract(vm, self.range);
        assert!(
            entries.iter().map(|e| e.range.len_bytes()).sum::<usize>() == self.range.len_pages() * PAGE_SIZE,
            "a quick reference at {:?} was unmapped under its holder",
            self.range
        );
        let mut pending = TlbFlush::new();
        if !vm.has(VmDefect::QuickRefKeepsMappings) {
            pending.merge(vm.pmaps().remove(self.holder.pmap(), self.range));
        }
        pending.flush(vm.pmaps());
        drop(map);
        if !vm.has(VmDefect::QuickRefKeepsReference) {
            entries.into_iter().for_each(|entry| entry.dispose(vm));
        }
    }
}
