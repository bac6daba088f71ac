//! Making chains shorter (4.4BSD-Lite, `vm_object_collapse`).
//!
//! *Collapse*: an object that only the object before it refers to is made one with that. Pages that the object before
//! has, or does not reach, are freed; all others become its own. *Bypass*: of an object that others refer to as well,
//! the object before it may need nothing any more; then it goes past it. Both are tried again with what stands behind
//! then.
//!
//! It is tried when a write has given an object another page, and before an object goes to the swap area for the first
//! time; not when a reference goes. And it has limits, which are what the UVM paper holds against it (2.1). An object
//! that has been to the swap area takes nothing in. One that has been there is not gone past, since what is there would
//! have to be looked at. What is taken in keeps all of its slots: those of pages that the object before has already, or
//! does not reach, are of no use to anybody, and are freed with the object. Pages that two references keep from
//! collapsing stay too, though nobody can reach them. All of that is the *swap leak*.
//!
//! The caller holds the chains; objects are locked one at a time. Nothing fails.

use super::chains::{Behind, Chains};
use crate::object::{Contents, Object};
use crate::page::{FrameState, Holder};
use crate::probe::VmDefect;
use crate::vm::Vm;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Access, Machine, Pfn};

/// Makes the chain from `object` on as short as it can be made there. Returns how many frames are free by it.
pub(crate) fn collapse<M: Machine>(vm: &Vm<M>, chains: &mut Chains<M>, object: &Arc<Object<M>>) -> usize {
    let mut freed = 0;
    while let Some(behind) = chains.behind(object) {
        let (below, first) = (behind.object.clone(), behind.page);
        let len_pages = {
            let state = object.lock();
            // One that has a slot has a pager in the kernels that this one is like.
            let at_rest = state.refs() > 0 && state.busy().is_empty() && state.swap.is_empty();
            if !at_rest || !below.is_internal() {
                return freed;
            }
            state.len_pages()
        };
        vm.machine().touch(below.struct_va(), vm.sizes().object_bytes, Access::Read);
        let mut state = below.lock();
        if !state.busy().is_empty() {
            return freed;
        }
        // The chain counts as one: without any, nothing here would ever come to an end.
        assert!(state.refs() > 0, "an object of a chain counts no reference");
        if state.refs() == 1 {
            let contents = below.take_all(&mut state);
            drop(state);
            freed += take_in(vm, object, first, contents);
            let next = chains.remove(&below).map(|next| Behind { page: next.page + first, ..next });
            chains.replace(object, next);
            below.bury(vm);
            chains.collapses += 1;
            continue;
        }
        if !state.swap.is_empty() {
            return freed;
        }
        let pages: Vec<u64> =
            state.pages().range(first..first + len_pages).map(|(&page, _)| page - first).collect();
        drop(state);
        if is_needed(vm, object, &pages) && !vm.has(VmDefect::BypassUnchecked) {
            return freed;
        }
        // Others may have let go of it meanwhile: then it is taken in after all.
        if !below.lock().forget_ref_unless_last() {
            continue;
        }
        let next = chains.behind(&below).map(|next| {
            next.object.add_ref(vm);
            Behind { object: next.object.clone(), page: next.page + first }
        });
        chains.replace(object, next);
        chains.bypasses += 1;
    }
    freed
}

/// True when `object` lacks one of `pages`.
fn is_needed<M: Machine>(vm: &Vm<M>, object: &Object<M>, pages: &[u64]) -> bool {
    let path = vm.shadows().expect("there are chains").paths.collapse;
    let state = object.lock();
    pages.iter().any(|&page| {
        vm.machine().execute(path);
        !object.has_page(&state, page)
    })
}

/// `object` gets the contents of what stood behind it, from page `first` on. Returns how many frames are free by it.
fn take_in<M: Machine>(vm: &Vm<M>, object: &Arc<Object<M>>, first: u64, (pages, slots): Contents) -> usize {
    let path = vm.shadows().expect("there are chains").paths.collapse;
    let mut state = object.lock();
    let len_pages = state.len_pages();
    let mut freed = Vec::new();
    for (&page, &frame) in &pages {
        vm.machine().execute(path);
        // Pages before the first have numbers behind all others.
        let here = page.wrapping_sub(first);
        let is_wanted = here < len_pages && !object.has_page(&state, here);
        if is_wanted || here < len_pages && vm.has(VmDefect::CollapseOldWins) {
            vm.frames().lock().rename(frame, object, here);
            freed.extend(state.pages_mut().insert(here, frame));
        } else {
            freed.push(frame);
        }
    }
    for (page, slot) in slots {
        let (here, was_only) = (page.wrapping_sub(first), !pages.contains_key(&page));
        // It has got one of its own since it was looked at.
        if state.swap.contains_key(&here) || vm.has(VmDefect::CollapseForgetsSlots) {
            vm.swap().free(slot, was_only);
            continue;
        }
        let is_only = !state.pages().contains_key(&here);
        let holder = Holder::Page(Arc::downgrade(object), here);
        vm.swap().rename(slot, holder, (was_only, is_only));
        state.swap.insert(here, slot);
    }
    drop(state);
    let is_free = |&frame: &Pfn| {
        vm.frames().disown(frame);
        vm.frame_info(frame).state == FrameState::Free
    };
    freed.iter().filter(|frame| is_free(frame)).count()
}
