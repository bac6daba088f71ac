//! Pushing pages down: what a private mapping has in anons becomes the object's below it (UVM paper, 4.2.2, the third
//! way to dispose of transferred data).
//!
//! Either the object takes the frame over and the anon has it on loan from then on, as if the object had lent it; or
//! the anon goes, and the object has the page alone. No byte is copied. What the object had there before is released,
//! and its mappings are revoked: every mapping of the object sees the new page.
//!
//! So the object is written, and the caller names it: what permits that (a file open to be written) is the caller's
//! business, and no other object is touched by mistake.
//!
//! The map is held exclusively; then, page by page, amap, object, anon and page queues, in this order.

use super::transfer::part;
use crate::anon::Anon;
use crate::error::VmError;
use crate::map::{Entry, page_range};
use crate::object::Object;
use crate::probe::VmDefect;
use crate::vm::{Space, Vm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Cause, Machine, Prot, Threads, Va, VaRange};
use pageferry_pmap::TlbFlush;

/// What becomes of the anon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushDown {
    /// It keeps the page, on loan from the object.
    Lend,
    /// It is freed.
    Give,
}

/// How one page went.
enum Step<M: Machine> {
    Done,
    /// The anon's page must come in first.
    Missing(Arc<Anon<M>>),
    /// Write-protection of the anon's page must first have reached every CPU.
    Unflushed,
}

impl<M: Machine> Space<M> {
    /// Makes the anonymous pages of a range, which maps `below`, pages of that object; returns how many. Pages without
    /// an anon are left as they are. The caller has seen to it that the object may be written.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no length, `at` is not page-aligned, or something else is mapped in the range.
    /// [`VmError::NoMemory`]: not all of the range is mapped, or out of frames or structures. [`VmError::Bus`]: the
    /// object ends before the page. [`VmError::Busy`]: a page is wired, or the object's is on its way to or from the
    /// disk; the anon's is an object's, or, if it is to be given, others have it too. [`VmError::Io`]. Pages before the
    /// one that is refused are down; that one, and all behind it, are as before.
    ///
    /// # Locks
    /// Sleeps for the map lock and for the disk: no spin lock may be held.
    pub fn push_down(
        &self,
        t: &dyn Threads,
        at: Va,
        len_bytes: usize,
        below: &Arc<Object<M>>,
        how: PushDown,
    ) -> Result<usize, VmError> {
        let vm = &**self.vm();
        vm.needs_anons()?;
        let _c = vm.machine().scope(Cause::Vm);
        if len_bytes == 0 {
            return Err(VmError::Invalid);
        }
        let range = page_range(vm, at, len_bytes, VmError::NoMemory)?;
        let mut pushed = 0;
        for page in range.pages() {
            loop {
                let mut map = self.locked_map().write(t);
                if !map.covers(vm, range) {
                    return Err(VmError::NoMemory);
                }
                let maps = |e: &Entry<M>| e.object.as_ref().is_some_and(|o| Arc::ptr_eq(&o.object, below));
                if !map.overlapping(range).all(maps) {
                    return Err(VmError::Invalid);
                }
                let entry = map.look_up_mut(vm, page).expect("the range is covered");
                if entry.amap.is_some() {
                    entry.amap_copy(vm)?;
                }
                let entry = &*entry;
                let one = VaRange::pages_from(page, 1);
                let (Some((_, aref, slots)), Some(oref)) = (part(entry, one), &entry.object) else { break };
                let mut amap = aref.amap.lock();
                let Some(anon) = amap.look_up(vm, slots.start).cloned() else { break };
                let number = entry.object_page(oref, page);
                match push_page(vm, below, number, &anon, how, page)? {
                    Step::Done => {
                        let mut emptied = Vec::new();
                        if how == PushDown::Give {
                            amap.take(vm, slots, &mut emptied);
                        }
                        drop(amap);
                        emptied.iter().for_each(|anon| anon.drop_ref(vm));
                        pushed += 1;
                        break;
                    }
                    Step::Missing(anon) => {
                        let colour = entry.anon_colour(vm, page);
                        drop(amap);
                        drop(map);
                        anon.page_in(vm, t, colour)?;
                    }
                    Step::Unflushed => {
                        drop(amap);
                        drop(map);
                        vm.batches().wait_flushed(vm.machine());
                    }
                }
            }
        }
        Ok(pushed)
    }
}

/// Gives the object the anon's frame as its page `number`.
fn push_page<M: Machine>(
    vm: &Vm<M>,
    object: &Arc<Object<M>>,
    number: u64,
    anon: &Arc<Anon<M>>,
    how: PushDown,
    at: Va,
) -> Result<Step<M>, VmError> {
    vm.machine().execute(vm.paths().transfer);
    let mut lower = object.lock();
    let mut upper = anon.lock();
    if number >= lower.len_pages() {
        return Err(VmError::Bus(at));
    }
    let Some(frame) = upper.usable() else { return Ok(Step::Missing(anon.clone())) };
    anon.adopt_orphan(vm, &upper);
    if how == PushDown::Give && upper.refs > 1 || lower.busy().contains(&number) {
        return Err(VmError::Busy);
    }
    let old = lower.pages().get(&number).copied();
    {
        let table = vm.frames().lock();
        if !table.is_owned_by(frame, anon) || table.get(frame).is_pinned() {
            return Err(VmError::Busy);
        }
        if old.is_some_and(|old| table.get(old).is_pinned()) {
            return Err(VmError::Busy);
        }
        // It is protected already, and that may not be flushed yet.
        if table.get(frame).loan_count > 0 && !vm.batches().all_flushed() {
            return Ok(Step::Unflushed);
        }
    }
    // What maps the anon's page may go on reading it if the anon keeps it; what maps the object's old page may not.
    let mut pending = TlbFlush::new();
    let left = if how == PushDown::Lend { Prot::all().difference(Prot::WRITE) } else { Prot::empty() };
    pending.merge(vm.pmaps().page_protect(frame, left));
    if !vm.has(VmDefect::PushDownKeepsMappings) {
        old.into_iter().for_each(|old| pending.merge(vm.pmaps().page_protect(old, Prot::empty())));
    }
    pending.flush(vm.pmaps());
    // Both had a place in the swap area for what is not theirs any more.
    if let Some(slot) = lower.swap.remove(&number) {
        vm.swap().free(slot, old.is_none());
    }
    if let Some(slot) = upper.swap.take() {
        vm.swap().free(slot, false);
    }
    lower.pages_mut().insert(number, frame);
    let borrower = (how == PushDown::Lend).then_some(anon);
    vm.frames().lock().give_to_object(frame, object, number, borrower);
    if how == PushDown::Give {
        upper.frame = None;
    }
    drop(upper);
    if !vm.has(VmDefect::PushDownKeepsOld) {
        old.into_iter().for_each(|old| vm.frames().disown(old));
    }
    Ok(Step::Done)
}
