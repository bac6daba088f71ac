//! The pages by which reserved entries attach a piece, and how many entries that takes.
//!
//! One for each page of [`piece_page_bytes`](crate::IspcConfig::piece_page_bytes); or, where large pages are wanted
//! ([`large_pieces`](crate::IspcConfig::large_pieces)), the largest that fit where the piece lies. A piece that is
//! as long as a large page begins where one does. What a large page maps is the piece's alone: none goes beyond the
//! end.

use super::state::{Ispc, State};
use crate::IspcDefect;
use crate::port::RequestId;
use core::iter;
use pageferry_hal::{Machine, PAGE_SHIFT, PAGE_SIZE};
use pageferry_pmap::AreaPage;

impl<M: Machine> Ispc<M> {
    /// What attaches the piece of so many pages whose first is `page`, in order.
    pub(super) fn pages_of_piece(&self, page: usize, pages: usize) -> impl Iterator<Item = AreaPage> + '_ {
        let (mut offset_bytes, end) = (page << PAGE_SHIFT, (page + pages) << PAGE_SHIFT);
        let beyond = self.has(IspcDefect::LargeBeyondEnd);
        let own = self.config.piece_page_bytes.ilog2() as u8;
        iter::from_fn(move || {
            let left = end.checked_sub(offset_bytes).filter(|left| *left > 0)?;
            let fits = |shift: u8| {
                let bytes = 1 << shift;
                let long_enough = left >= if beyond { bytes - PAGE_SIZE } else { bytes };
                offset_bytes.is_multiple_of(bytes) && long_enough
            };
            let shift = self.attaching.large.iter().rev().copied().find(|shift| fits(*shift)).unwrap_or(own);
            let next = AreaPage { offset_bytes, shift };
            offset_bytes += 1 << shift;
            Some(next)
        })
    }

    /// Where a piece of so many pages is to begin: at a multiple of this.
    pub(super) fn step_pages(&self, pages: usize) -> usize {
        let sizes = self.attaching.large.iter().map(|shift| 1 << (shift - PAGE_SHIFT as u8));
        sizes.filter(|size| *size <= pages).max().unwrap_or(1)
    }

    /// Entries that attach a piece of so many pages, wherever it lies.
    pub(super) fn entries_of(&self, pages: usize) -> usize {
        self.pages_of_piece(0, pages).count()
    }

    /// Entries that attach the pieces that go with a request.
    pub(super) fn entries_of_request(&self, state: &State, id: RequestId) -> usize {
        let pieces = state.requests.get(&id).into_iter().flat_map(|request| request.pieces());
        pieces.map(|page| self.entries_of(state.icas[&page].pages)).sum()
    }
}
