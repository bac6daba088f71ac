//! Pushing pages down: what a private mapping has in anons becomes the object's below it (UVM paper, 4.2.2, the third way to
//! dispose of transferred data).
//!
//! Either the object takes the frame over and the anon has it on loan from then on, as if the object had lent it; or the
//! anon goes, and the object has the page alone. No byte is copied. What the object had there before is let go, and what
//! maps it is revoked: whoever has the object mapped sees the new page.
//!
//! The map is held exclusively; then, page by page, amap, object, anon and page queues, in this order.

use crate::anon::Anon;
use crate::error::VmError;
use crate::object::Object;
use crate::space::{Space, page_range};
use crate::transfer::{own_amaps, part};
use crate::vm::{Pending, Vm};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Cause, Machine, Prot, Threads, Va, VaRange};

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
}

impl<M: Machine> Space<M> {
    /// Makes the anonymous pages of a range pages of the objects below; returns how many. Pages without an anon, and
    /// mappings without an object, are left as they are. The caller has seen to it that the objects may be written.
    ///
    /// # Errors
    /// [`VmError::Invalid`]: no length, or `at` is not page-aligned. [`VmError::NoMemory`]: not all of the range is mapped,
    /// or out of structures. [`VmError::Bus`]: the object ends before the page. [`VmError::Busy`]: a page is wired or on its
    /// way to the disk, belongs to another object, or, if it is to be given, to others too; [`VmError::Io`]. Pages before
    /// the one that is refused are down.
    ///
    /// # Locks
    /// Sleeps for the map lock and for the disk: no spin lock may be held.
    pub fn push_down(
        &self,
        t: &dyn Threads,
        at: Va,
        len_bytes: usize,
        how: PushDown,
    ) -> Result<usize, VmError> {
        let vm = &**self.vm();
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
                let one = VaRange::pages_from(page, 1);
                own_amaps(vm, &mut map, one)?;
                let entry = map.look_up(vm, page).expect("the range is covered");
                let (Some((_, aref, slots)), Some(oref)) = (part(entry, one), &entry.object) else { break };
                let mut amap = aref.amap.lock();
                let Some(anon) = amap.look_up(vm, slots.start).cloned() else { break };
                let number = entry.object_page(oref, page);
                match push_page(vm, &oref.object, number, &anon, how, page)? {
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
                        drop(amap);
                        drop(map);
                        anon.page_in(vm, t)?;
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
    }
    // What maps the anon's page may go on reading it if the anon keeps it; what maps the object's old page may not.
    let mut pending = Pending::none();
    let left = if how == PushDown::Lend { Prot::all().difference(Prot::WRITE) } else { Prot::empty() };
    pending.add(vm.pmaps().page_protect(frame, left));
    old.into_iter().for_each(|old| pending.add(vm.pmaps().page_protect(old, Prot::empty())));
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
    old.into_iter().for_each(|old| vm.frames().disown(old));
    Ok(Step::Done)
}
