//! The communication area: its addresses, its memory, and what its reserved entries map.

use crate::config::AreaConfig;
use crate::error::PmapError;
use crate::tables::space::Shared;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{
    Board, LockClass, Machine, PAGE_SHIFT, PAGE_SIZE, Pa, Pfn, StructArena, StructVa, Tte, Va, VaRange,
};

/// A reserved entry in use.
pub(crate) struct ReservedEntry<M: Machine> {
    pub(crate) shared: Arc<Shared<M>>,
    pub(crate) va: Va,
    pub(crate) tte: Tte,
}

/// The area, and its reserved entries.
pub(crate) struct Area<M: Machine> {
    pub(crate) config: AreaConfig,
    pub(crate) range: VaRange,
    pub(crate) at: StructVa,
    first: Pfn,
    pub(crate) held: M::Lock<Vec<Option<ReservedEntry<M>>>>,
}

/// Where the area lies in user space; the same for all who ask.
fn range_of(board: &Board, len_bytes: usize) -> VaRange {
    let end = board.layout.user_end.0 & !(AreaConfig::LARGEST_PAGE as u64 - 1);
    let len = len_bytes.next_multiple_of(AreaConfig::LARGEST_PAGE.min(len_bytes.next_power_of_two()));
    let start = Va((end - len as u64) & !(AreaConfig::LARGEST_PAGE as u64 - 1));
    VaRange::pages_from(start, len_bytes / PAGE_SIZE)
}

impl<M: Machine> Area<M> {
    /// # Errors
    /// [`PmapError::BadArea`], [`PmapError::TooManyReserved`], [`PmapError::NoReserved`], [`PmapError::ArenaTooSmall`].
    pub(crate) fn new(
        machine: &M,
        config: AreaConfig,
        arena: &mut StructArena,
    ) -> Result<Area<M>, PmapError> {
        let board = machine.board();
        let AreaConfig { len_bytes, reserved, .. } = config;
        if len_bytes == 0 || !len_bytes.is_multiple_of(PAGE_SIZE) || len_bytes > 64 << 20 {
            return Err(PmapError::BadArea { len_bytes });
        }
        match board.reservable_entries() {
            Some(entries) if reserved > 0 && reserved + 2 > entries => {
                return Err(PmapError::TooManyReserved { reserved, entries });
            }
            None if reserved > 0 => return Err(PmapError::NoReserved { reserved }),
            _ => {}
        }
        let at = arena.aligned_array("communication area", len_bytes, AreaConfig::LARGEST_PAGE)?;
        let first = Pa((at.0 - board.layout.kernel_base) as u64).pfn();
        let held = machine.new_lock(LockClass::RESERVED_ENTRIES, (0..reserved).map(|_| None).collect());
        Ok(Area { config, range: range_of(&board, len_bytes), at, first, held })
    }

    pub(crate) fn va(&self, page: usize) -> Va {
        assert!(page < self.range.len_pages(), "page {page} of an area of {}", self.range.len_pages());
        self.range.start() + (page << PAGE_SHIFT)
    }

    pub(crate) fn frame(&self, page: usize) -> Pfn {
        Pfn(self.first.0 + page as u32)
    }
}
