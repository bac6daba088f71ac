//! Which slots are whose.

use crate::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;

/// The right to a run of slots of one view. Nobody else has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    first: u32,
    slots: u32,
}

impl Run {
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The first of them, and how many they are.
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.first, self.slots)
    }
}

/// Which of the free slots is taken next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Reuse {
    /// The lowest: what came back last is likely still in a near cache.
    #[default]
    Near,
    /// The one behind the last taken: as long as can be, so that the peer's core has let its lines go.
    Far,
}

/// The table of a view's slots.
#[derive(Debug)]
pub(crate) struct Slots {
    taken: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    taken: Vec<bool>,
    next: usize,
}

impl Slots {
    /// All free.
    pub(crate) fn new(slots: u32) -> Slots {
        Slots { taken: Mutex::new(Table { taken: vec![false; slots as usize], next: 0 }) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a run of free slots: the first that is long enough, from where `reuse` says.
    pub(crate) fn take(&self, slots: u32, reuse: Reuse) -> Option<Run> {
        let mut table = self.table();
        let start = if reuse == Reuse::Far { table.next } else { 0 };
        let all = table.taken.len();
        let first = table
            .first_free(start..all, slots as usize)
            .or_else(|| table.first_free(0..all, slots as usize))?;
        table.next = (first + slots as usize) % all;
        table.mark(first, slots as usize, true);
        Some(Run { first: first as u32, slots })
    }

    /// Takes just these, if they exist and all are free.
    pub(crate) fn claim(&self, first: u32, slots: u32) -> Option<Run> {
        let mut table = self.table();
        let end = first.checked_add(slots)?;
        let range = table.taken.get(first as usize..end as usize)?;
        if slots == 0 || (range.contains(&true) && !planted!(NoOverlapCheck)) {
            return None;
        }
        table.mark(first as usize, slots as usize, true);
        Some(Run { first, slots })
    }

    /// Gives a run back.
    pub(crate) fn give(&self, run: Run) {
        self.table().mark(run.first as usize, run.slots as usize, false);
    }

    /// Slots that are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.table().taken.iter().filter(|&&taken| taken).count() as u32
    }
}

impl Table {
    fn first_free(&self, range: std::ops::Range<usize>, slots: usize) -> Option<usize> {
        let mut free = 0;
        for index in range {
            free = if self.taken[index] { 0 } else { free + 1 };
            if free == slots {
                return Some(index + 1 - slots);
            }
        }
        None
    }

    fn mark(&mut self, first: usize, slots: usize, taken: bool) {
        self.taken[first..first + slots].fill(taken);
    }
}
