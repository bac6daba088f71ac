//! What is true of mappings, declared by the kernel: for a judge of the translations that CPUs use.
//!
//! A modelled machine compares each use of a translation with what was declared. On bare metal nobody does, and the
//! declarations are empty.

use crate::addr::Va;
use crate::mmu::{SpaceId, Tte};

/// The judge of a machine. See the [module](self).
pub trait Oracle {
    /// Stands for a change of mappings whose stale translations are still to be invalidated.
    type FlushWindow;

    /// Declares that the mapping of the page at `va` is now `new`, and was `old`; `None` is none. Called once for each
    /// page whose mapping is made, changed or removed, and not for entries that lead to further tables.
    ///
    /// # When
    /// Right after the word was written that makes it so, with no call on the machine between: then no other CPU can
    /// come between the two. If the executing CPU itself touches the page between them, what it finds in the table is
    /// not declared: on a modelled machine that is the use of a stale translation. So is every touch if the declaration
    /// of a new mapping is forgotten. If that of a removed one is forgotten, its old translations go on to stand:
    /// nothing is found until something else is declared for the page, which is refused because `old` is not what was
    /// declared last.
    ///
    /// # The window
    /// Translations made from `old` that say more than `new` (another frame, a permission that is gone, a page noted as
    /// modified) may live in TLBs. Until `window` is closed, any CPU may still use them, and it is not an error:
    /// hardware promises no more while invalidations are on their way. From then on a use is an error. `None` says that
    /// there can be no such translations: nothing was mapped before, or `new` only permits more.
    ///
    /// # Panics
    /// A modelled machine panics when `old` is not what was declared last, and when there is no window though
    /// translations made from `old` could live.
    #[track_caller]
    fn mapping_changed(
        &self,
        space: SpaceId,
        va: Va,
        old: Option<Tte>,
        new: Option<Tte>,
        window: Option<&Self::FlushWindow>,
    ) {
        let _ = (space, va, old, new, window);
    }

    /// Declares that mappings are about to change, and that stale translations may be used until the window closes.
    #[must_use = "a window must be closed"]
    fn open_flush_window(&self) -> Self::FlushWindow;

    /// Declares that the calling thread sleeps next: it has looked for the last time at what it waits for, and is not
    /// on the queue of sleepers yet. Whoever makes it come true in between must not be missed, so a modelled machine
    /// can be told to let others run here.
    fn sleeps_next(&self) {}

    /// Declares that all is invalidated that needed to be: from here on the use of a stale translation is an error.
    #[track_caller]
    fn close_flush_window(&self, window: Self::FlushWindow);
}
