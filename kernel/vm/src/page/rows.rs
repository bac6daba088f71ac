//! Free frames in a row: looked for, and taken one by one.
//!
//! Part of the table of frames, under its lock. Nothing is reserved: what is found may be taken before the caller takes
//! it, and then the call fails that takes it.

use super::frame::{Frames, FramesGuard, Owner, Table};
use crate::error::VmError;
use pageferry_hal::{Cause, Machine, Pfn};

/// Rows that are looked at before one gives up: a search in vain costs no more than a page that is copied.
const MAX_ROWS_LOOKED_AT: usize = 64;

impl<M: Machine> Frames<M> {
    /// The first of so many free frames in a row, from a multiple of `len` on, if there are. They are not taken yet.
    pub(crate) fn free_row(&self, len: usize) -> Option<Pfn> {
        let _c = self.machine.scope(Cause::Frame);
        self.lock().free_row(len)
    }
}

impl<M: Machine> FramesGuard<'_, M> {
    /// As [`Frames::free_row`]. One look at a `vm_page` tells of each row whether it goes on.
    fn free_row(&mut self, len: usize) -> Option<Pfn> {
        let is_free = |frame: usize| matches!(self.get(Pfn(frame as u32)).owner, Owner::Free);
        let rows = 0..self.table.len / len;
        let begin = self.table.next_row.div_ceil(len).min(rows.end);
        let mut order = (begin..rows.end).chain(0..begin).take(MAX_ROWS_LOOKED_AT);
        let found = order.find(|row| {
            self.frames.machine.execute(self.frames.paths.frame);
            (row * len..(row + 1) * len).all(is_free)
        });
        // Not those again that were looked at in vain.
        let next = found.map_or_else(|| (begin + MAX_ROWS_LOOKED_AT) % rows.end.max(1), |row| row + 1);
        self.table.next_row = next * len;
        found.map(|row| Pfn((row * len) as u32))
    }

    /// Takes a free frame off its list; those that were never used before it come on one.
    pub(super) fn unlist(&mut self, frame: Pfn) -> Result<Pfn, VmError> {
        if !matches!(self.get(frame).owner, Owner::Free) {
            return Err(VmError::NoMemory);
        }
        self.table.know(frame.index() + 1, self.frames.lists.freed_to);
        let Table { links, free, .. } = &mut *self.table;
        let colours = free.len();
        free[frame.index() % colours].remove(links, frame.0);
        Ok(frame)
    }
}
