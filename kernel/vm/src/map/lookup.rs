//! Looking up: which entries a range of addresses has, and where addresses are free.
//!
//! With the map held, shared or exclusively. Each call accounts for what it reads: the entry that was found last, and
//! if it is not that one, the entries on the way down the tree. Nothing changes but the hint, and nothing fails.

use super::entry::Entry;
use super::map::Map;
use crate::vm::Vm;
use core::sync::atomic::Ordering;
use pageferry_hal::{Access, Machine, PAGE_SHIFT, PAGE_SIZE, Pfn, StructVa, Va, VaRange};

/// What a way down the tree reads of a node: its range, its children, its gaps.
const NODE_BYTES: usize = 32;

impl<M: Machine> Entry<M> {
    pub(crate) fn touch(&self, vm: &Vm<M>, access: Access) {
        vm.machine().touch(self.at, vm.sizes().entry_bytes, access);
    }

    /// What the layers have at `va`, and whether it may be written; not accounted for.
    pub(crate) fn layers_at(&self, vm: &Vm<M>, va: Va) -> Option<(Pfn, bool)> {
        if vm.shadows().is_some() {
            return self.chain_at(vm, va);
        }
        let page = (va - self.range.start()) as u64 >> PAGE_SHIFT;
        if let Some(a) = &self.amap
            && let Some((_, anon)) = a.amap.lock().anons(a.slot + page..a.slot + page + 1).next()
        {
            let state = anon.lock();
            return state.frame.map(|frame| (frame, state.refs == 1));
        }
        let o = self.object.as_ref()?;
        let frame = *o.object.lock().pages().get(&(o.page + page))?;
        Some((frame, !self.attributes.copy_on_write))
    }

    /// What the chain of shadow objects has at `va`, and whether it may be written; not accounted for.
    pub(crate) fn chain_at(&self, vm: &Vm<M>, va: Va) -> Option<(Pfn, bool)> {
        let top = self.object.as_ref()?;
        let chains = vm.chains();
        let (depth, object, page) = chains.holder(&top.object, self.object_page(top, va))?;
        let frame = *object.lock().pages().get(&page)?;
        Some((frame, depth == 0 && !self.attributes.needs_copy))
    }
}

impl<M: Machine> Map<M> {
    /// The entry that holds `va`. Accounts for the way there: the entry that was found last, and if it is not that one,
    /// the entries on the way down the tree.
    fn seek(&self, vm: &Vm<M>, va: Va) -> Option<&Entry<M>> {
        let hint = self.hint.load(Ordering::Relaxed);
        if hint != 0 {
            vm.machine().touch(StructVa(Va(hint)), NODE_BYTES, Access::Read);
        }
        let entry = self.entry_at(va);
        let at = entry.map(|entry| entry.at.0.0);
        if at != Some(hint) {
            self.entries.find(va, visit(vm, Access::Read));
            if let Some(at) = at {
                self.hint.store(at, Ordering::Relaxed);
            }
        }
        entry
    }

    /// The entry that holds `va`.
    pub(crate) fn look_up(&self, vm: &Vm<M>, va: Va) -> Option<&Entry<M>> {
        let entry = self.seek(vm, va)?;
        entry.touch(vm, Access::Read);
        Some(entry)
    }

    /// The same, to change anything but its range.
    pub(crate) fn look_up_mut(&mut self, vm: &Vm<M>, va: Va) -> Option<&mut Entry<M>> {
        self.seek(vm, va);
        let entry = self.entries.find_mut(va)?;
        entry.touch(vm, Access::Read);
        Some(entry)
    }

    /// Looks `range` up: the entries that share a page with it, in order.
    pub(crate) fn look_up_range(&self, vm: &Vm<M>, range: VaRange) -> impl Iterator<Item = &Entry<M>> {
        self.seek(vm, range.start());
        self.overlapping(range).inspect(|entry| entry.touch(vm, Access::Read))
    }

    /// Looks `range` up: true when every page of it is mapped.
    pub(crate) fn covers(&self, vm: &Vm<M>, range: VaRange) -> bool {
        let mapped: usize = self
            .look_up_range(vm, range)
            .filter_map(|e| e.range.intersect(&range))
            .map(|r| r.len_pages())
            .sum();
        mapped == range.len_pages()
    }

    /// The lowest free addresses for `len_pages` pages; of which the first has the colour of `like`, if that is given
    /// and there are such addresses.
    pub(crate) fn find_space(&self, vm: &Vm<M>, len_pages: usize, like: Option<Va>) -> Option<Va> {
        of_colour(vm, len_pages, like, |len_pages| {
            let len_bytes = len_pages.checked_mul(PAGE_SIZE)?;
            self.entries.lowest_gap(self.bounds, len_bytes, visit(vm, Access::Read))
        })
    }

    /// The highest free addresses for `len_pages` pages; of a colour as in [`Map::find_space`].
    pub(crate) fn find_space_high(&self, vm: &Vm<M>, len_pages: usize, like: Option<Va>) -> Option<Va> {
        of_colour(vm, len_pages, like, |len_pages| {
            let len_bytes = len_pages.checked_mul(PAGE_SIZE)?;
            let end = self.entries.highest_gap_end(self.bounds, len_bytes, visit(vm, Access::Read))?;
            Some(Va(end.0 - len_bytes as u64))
        })
    }
}

/// Addresses for `len_pages` pages, by `find`, which gets a number of pages; of which the first has the colour of
/// `like`, if that is given and there are such addresses.
pub(crate) fn of_colour<M: Machine>(
    vm: &Vm<M>,
    len_pages: usize,
    like: Option<Va>,
    find: impl Fn(usize) -> Option<Va>,
) -> Option<Va> {
    // So many pages in a row more begin with every colour somewhere.
    let spare = vm.pmaps().colours() as usize - 1;
    let coloured = like.filter(|_| spare > 0).and_then(|like| {
        let start = find(len_pages.checked_add(spare)?)?;
        let colour = |va| vm.pmaps().colour(va) as usize;
        Some(start + (colour(like).wrapping_sub(colour(start)) & spare) * PAGE_SIZE)
    });
    coloured.or_else(|| find(len_pages))
}

/// Accounts for the nodes on a way down the tree.
pub(super) fn visit<M: Machine>(vm: &Vm<M>, access: Access) -> impl FnMut(&Entry<M>) {
    move |entry| {
        vm.machine().execute(vm.paths().map_node);
        vm.machine().touch(entry.at, NODE_BYTES, access);
    }
}
