//! A window on frames: how the kernel gets at the bytes of a page for a moment, one page after the other, in a memory
//! disk, in exec, in ptrace and in the vnode pager.
//!
//! # What it holds
//! In the original form ([`FrameMapping::Own`]) an address that its request allocates, maps each page at, and frees in
//! the end: every page costs a flush when it is mapped and one when it is unmapped, on all CPUs (`kmem_alloc_nofault`,
//! `pmap_qenter`, `pmap_qremove`). In the other form nothing: every page has an ephemeral mapping (sf_buf paper, 2.2 to
//! 2.6). How often the original form flushes, and whether a request for several pages maps them as one range, is the
//! [`FlushPolicy`](pageferry_ephemeral::FlushPolicy)'s.
//!
//! Where all ephemeral mappings are in use a window does not wait for one: its thread may hold one itself, as when a
//! page comes at a fault in the middle of a copy, and so may others that wait. It has an address of its own then, too.
//!
//! # Locks
//! None of its own; see [`pageferry_ephemeral::Ephemeral::alloc`]. While a page is shown in private, the thread is
//! pinned.
//!
//! # What can fail
//! Opening, for want of addresses. Showing a page fails only where ephemeral mappings do.

use crate::base::Core;
use crate::config::FrameMapping;
use core::ops::Range;
use pageferry_abi::Errno;
use pageferry_ephemeral::{AllocError, Flags, FlushBy, KvaRun, MappingUser};
use pageferry_hal::{Machine, Pfn, Threads, Va};

/// Which threads will use the address of a page that is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    /// The thread that asks, and it only.
    Private,
    /// Any CPU.
    Shared,
}

/// Kernel addresses for frames that are looked at for a moment, one after the other, or several in a row. To be
/// [closed](Window::close).
#[must_use = "a window must be closed"]
pub struct Window {
    by: MappingUser,
    own: Option<KvaRun>,
}

impl Window {
    /// A window for one request of `by`.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn open<M: Machine>(core: &Core<M>, by: MappingUser) -> Result<Window, Errno> {
        Window::open_for(core, by, 1)
    }

    /// A window for one request of `by`, which shows up to `len_pages` pages at once where the policy is to map and
    /// flush by ranges.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn open_for<M: Machine>(core: &Core<M>, by: MappingUser, len_pages: usize) -> Result<Window, Errno> {
        let len_pages = match core.ephemeral.flush_policy().by {
            FlushBy::Range => len_pages,
            FlushBy::User | FlushBy::Page => 1,
        };
        let own = match core.config.disk.mapping {
            FrameMapping::Own => Some(core.ephemeral.kva_run(len_pages, by)?),
            FrameMapping::Ephemeral => None,
        };
        Ok(Window { by, own })
    }

    /// Calls `work` with all of `frames`, as many in a row as the window has room for: which of them, and the kernel
    /// address of the first. Ends with the first error.
    ///
    /// # Errors
    /// Those of `work`; [`Errno::NoMemory`].
    pub fn show_run<M: Machine>(
        &mut self,
        core: &Core<M>,
        threads: &dyn Threads,
        frames: &[Pfn],
        visibility: Visibility,
        work: &mut dyn FnMut(Range<usize>, Va) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let at_once = self.own.as_ref().map_or(1, KvaRun::len_pages);
        for first in (0..frames.len()).step_by(at_once) {
            let shown = first..frames.len().min(first + at_once);
            match &mut self.own {
                Some(run) => {
                    let at = core.ephemeral.enter_run(run, &frames[shown.clone()]);
                    let result = work(shown, at);
                    core.ephemeral.remove_run(run);
                    result?;
                }
                None => {
                    self.show(core, threads, frames[first], visibility, |at| work(shown, at))??;
                }
            }
        }
        Ok(())
    }

    /// Calls `work` with the kernel address of `frame`, which stays where it is meanwhile.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn show<M: Machine, R>(
        &mut self,
        core: &Core<M>,
        threads: &dyn Threads,
        frame: Pfn,
        visibility: Visibility,
        work: impl FnOnce(Va) -> R,
    ) -> Result<R, Errno> {
        let ephemeral = &core.ephemeral;
        if let Some(run) = &mut self.own {
            let at = ephemeral.enter_run(run, &[frame]);
            let result = work(at);
            ephemeral.remove_run(run);
            return Ok(result);
        }
        let flags = match visibility {
            Visibility::Private => {
                threads.pin();
                Flags::PRIVATE
            }
            Visibility::Shared => Flags::empty(),
        };
        let result = match ephemeral.alloc(threads, frame, self.by, flags | Flags::NOWAIT) {
            Ok(mapping) => {
                let result = work(ephemeral.kva(&mapping));
                ephemeral.free(threads, mapping);
                Ok(result)
            }
            Err(AllocError::WouldBlock) => ephemeral.kva_run(1, self.by).map(|mut run| {
                let result = work(ephemeral.enter_run(&mut run, &[frame]));
                ephemeral.remove_run(&mut run);
                ephemeral.release_run(run);
                result
            }),
            Err(error) => Err(error),
        };
        if visibility == Visibility::Private {
            threads.unpin();
        }
        Ok(result?)
    }

    /// Gives the addresses back, where there are any.
    pub fn close<M: Machine>(self, core: &Core<M>) {
        if let Some(run) = self.own {
            core.ephemeral.release_run(run);
        }
    }
}
