//! Reading and writing the memory of a child (`ptrace`), through quick references to it (UVM paper, 4.3.1), or through
//! its frames (sf_buf paper, 2.5).
//!
//! By frames the child's pages are faulted in and wired as the child could have touched them itself, so that a write
//! breaks its loans and copies what it shares; each is mapped for a moment, and unwired. What its mapping does not
//! permit at the moment goes by quick reference in any case.
//!
//! A parent may look into its children, and no process into any other. The bytes go from one address space to the other
//! in one copy: a few pages of the child at a time stand in the parent's map while the copy runs, and the child's map
//! keeps its entries. What the child's mapping permits at the moment does not matter, what it could ever permit does.
//! Holds nothing between calls.

use crate::Kernel;
use crate::config::PtraceBy;
use crate::proc::{Shown, Syscall, Window, moved};
use alloc::sync::Arc;
use pageferry_abi::{Errno, Pid};
use pageferry_hal::{Access, Machine, PAGE_SIZE, Prot, SpinLock, Va};
use pageferry_vm::{QUICK_REF_PAGES, Space, VmError, quick_ref};

/// One piece of a transfer: no more pages than a quick reference takes, wherever in a page it begins.
const PIECE_BYTES: usize = (QUICK_REF_PAGES - 1) * PAGE_SIZE;

/// What is to be copied.
#[derive(Clone, Copy)]
pub(crate) struct Traced {
    /// In the child's memory.
    pub(crate) theirs: Va,
    /// In the caller's memory.
    pub(crate) own: Va,
    pub(crate) len_bytes: usize,
    /// What is done to the child's memory.
    pub(crate) access: Access,
}

impl<M: Machine> Kernel<M> {
    /// The memory of `pid`, for its parent.
    fn traced(&self, parent: Pid, pid: Pid) -> Result<Arc<Space<M>>, Errno> {
        let table = self.processes.lock();
        let (its_parent, space) = table.memory_of(pid).ok_or(Errno::NoProcess)?;
        if its_parent == Some(parent) { Ok(space) } else { Err(Errno::Access) }
    }

    /// Copies between the caller's memory and that of its child `pid`. Gives how many bytes it copied, fewer only where
    /// the memory of either ends.
    pub(crate) fn trace(
        &self,
        call: &Syscall<'_, M>,
        caller: Pid,
        pid: Pid,
        traced: Traced,
    ) -> Result<usize, Errno> {
        let child = self.traced(caller, pid)?;
        let mut done = 0;
        while done < traced.len_bytes {
            let len_bytes = PIECE_BYTES.min(traced.len_bytes - done);
            let (theirs, own) = (traced.theirs.checked_add(done), traced.own + done);
            let theirs = theirs.ok_or(Errno::Fault)?;
            if self.config.disk.ptrace == PtraceBy::Frames {
                let left = Traced { theirs, own, len_bytes: traced.len_bytes - done, ..traced };
                let (bytes, result) = trace_frames(call, &child, left);
                done += bytes;
                match result {
                    Ok(()) => break,
                    // What is left of this page may go by the other way.
                    Err(_) if bytes > 0 => continue,
                    Err(_) => {}
                }
            }
            match trace_piece(call, &child, Traced { theirs, own, len_bytes, ..traced }) {
                Ok(()) => done += len_bytes,
                Err((part, _)) if done + part > 0 => {
                    done += part;
                    break;
                }
                Err((_, why)) => return Err(why),
            }
        }
        Ok(done)
    }
}

/// Copies a piece; else, what was copied of it and why not more.
fn trace_piece<M: Machine>(
    call: &Syscall<'_, M>,
    child: &Space<M>,
    Traced { theirs, own, len_bytes, access }: Traced,
) -> Result<(), (usize, Errno)> {
    let reference = quick_ref(child, call.space, call.thread, theirs, len_bytes, access).map_err(
        |error| match error {
            VmError::Invalid | VmError::Access => (0, Errno::Fault),
            error => (0, error.into()),
        },
    )?;
    let (to, from) = if access == Access::Write { (reference.at(), own) } else { (own, reference.at()) };
    let copied = call.copy_out(to, from, len_bytes);
    reference.release(call.thread);
    copied.map_err(|stopped| (stopped.done_bytes, stopped.why))
}

/// Copies through the frames of the child, page by page; how many bytes, and why not more.
fn trace_frames<M: Machine>(
    call: &Syscall<'_, M>,
    child: &Space<M>,
    Traced { theirs, own, len_bytes, access }: Traced,
) -> (usize, Result<(), Errno>) {
    let (kernel, thread) = (call.kernel, call.thread);
    let mut window = match Window::open(kernel) {
        Ok(window) => window,
        Err(e) => return (0, Err(e)),
    };
    let prot = if access == Access::Write { Prot::RW } else { Prot::READ };
    let (mut done, mut result) = (0, Ok(()));
    while done < len_bytes && result.is_ok() {
        let at = theirs + done;
        let len = (PAGE_SIZE - at.offset()).min(len_bytes - done);
        let shown = child.wire(thread, at, len, prot).map_err(Errno::from).and_then(|wired| {
            let frame = wired.frames()[0];
            let shown = window.show(kernel, thread, frame, Shown::Privately, |va| {
                let (va, own) = (va + at.offset(), own + done);
                let copied = match access {
                    Access::Write => call.copy_in(va, own, len),
                    _ => call.copy_out(own, va, len),
                };
                moved(len, copied)
            });
            kernel.vm.unwire(wired);
            shown
        });
        match shown {
            Ok((bytes, how)) => {
                done += bytes;
                result = how;
            }
            Err(e) => result = Err(e),
        }
    }
    window.close(kernel);
    (done, result)
}
