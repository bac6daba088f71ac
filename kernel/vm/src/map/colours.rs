//! The colours that the pages of an entry have, where the kernel gives them colours. See `page::colour`.

use super::entry::Entry;
use crate::vm::Vm;
use pageferry_hal::{Machine, Va};

impl<M: Machine> Entry<M> {
    /// The colour of the entry's first page as what it maps has it; of one that maps nothing yet, the next one. What
    /// comes before it has the same, so that pages of both lie beside each other (FreeBSD, `vm_object_shadow`).
    pub(crate) fn lower_colour(&self, vm: &Vm<M>) -> u32 {
        match &self.object {
            Some(o) => o.object.first_colour.wrapping_add(o.page as u32),
            None => vm.frames().next_first_colour(self.len_pages()),
        }
    }

    /// The colour of a page of anonymous memory at `va`, where pages have colours.
    pub(crate) fn anon_colour(&self, vm: &Vm<M>, va: Va) -> Option<u32> {
        let place = self.amap.as_ref().map(|a| (a.amap.first_colour, self.slot(a, va)));
        let (first_colour, slot) = place.unwrap_or_default();
        vm.frames().colour_of_mapped(va, first_colour, slot)
    }
}
