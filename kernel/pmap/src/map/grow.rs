//! Frames for the tables of a user's address space.

use crate::config::FrameSource;
use crate::error::PmapError;
use crate::pmap::Pmaps;
use crate::tables::cached::Reach;
use alloc::vec::Vec;
use pageferry_hal::{Machine, Pfn, Va};

impl<M: Machine> Pmaps<M> {
    /// Tries until there are page tables enough: `attempt` is handed cleared frames for new ones, and answers how many
    /// it misses.
    ///
    /// # Errors
    /// [`PmapError::NoFrame`] when `frames` has none left.
    ///
    /// # Locks
    /// `frames` is called with none of those that `attempt` takes.
    pub(crate) fn with_tables<R>(
        &self,
        frames: &dyn FrameSource,
        mut attempt: impl FnMut(&mut Vec<Pfn>) -> Result<R, usize>,
    ) -> Result<R, PmapError> {
        let mut spare = Vec::new();
        let done = loop {
            match attempt(&mut spare) {
                Ok(done) => break Ok(done),
                Err(missing) if !self.add_spare(frames, &mut spare, missing) => {
                    break Err(PmapError::NoFrame);
                }
                Err(_) => {}
            }
        };
        // Another CPU may have added the tables meanwhile.
        spare.into_iter().for_each(|frame| frames.give(frame));
        done
    }

    fn add_spare(&self, frames: &dyn FrameSource, spare: &mut Vec<Pfn>, missing: usize) -> bool {
        for _ in 0..missing {
            let Some(frame) = frames.take() else { return false };
            // Page tables are reached by physical addresses, of the frame's own colour.
            self.claim(frame, Va(frame.pa().0), Reach::Write);
            self.machine.pt_clear(frame.pa());
            spare.push(frame);
        }
        true
    }
}
