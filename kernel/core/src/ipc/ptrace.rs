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

use crate::config::PtraceBy;
use crate::proc::{Syscall, Uio, UioRw, Visibility, Window};
use pageferry_abi::{Errno, SendMode};
use pageferry_ephemeral::MappingUser;
use pageferry_hal::{Access, Machine, PAGE_SIZE, Prot, Va};
use pageferry_vm::{QUICK_REF_PAGES, Space, VmError, quick_ref};

/// One piece of a transfer: no more pages than a quick reference takes, wherever in a page it begins.
const PIECE_BYTES: usize = (QUICK_REF_PAGES - 1) * PAGE_SIZE;

/// What is to be copied.
#[derive(Clone, Copy)]
pub struct Traced {
    /// In the child's memory.
    pub theirs: Va,
    /// In the caller's memory.
    pub own: Va,
    /// How much.
    pub len_bytes: usize,
    /// What is done to the child's memory.
    pub access: Access,
}

/// Copies between the caller's memory and that of its child. Gives how many bytes it copied, fewer only where the
/// memory of either ends.
///
/// # Errors
/// [`Errno::Fault`], [`Errno::NoMemory`]; nothing was copied.
pub fn trace<M: Machine>(call: &Syscall<'_, M>, child: &Space<M>, traced: Traced) -> Result<usize, Errno> {
    let mut done = 0;
    while done < traced.len_bytes {
        let len_bytes = PIECE_BYTES.min(traced.len_bytes - done);
        let (theirs, own) = (traced.theirs.checked_add(done), traced.own + done);
        let theirs = theirs.ok_or(Errno::Fault)?;
        if call.core.config.disk.ptrace == PtraceBy::Frames {
            let left = traced.len_bytes - done;
            let mut own = match traced.access {
                Access::Write => Uio::write(own, left, SendMode::Copy),
                _ => Uio::read(own, left),
            };
            let result = trace_frames(call, child, theirs, &mut own);
            done += own.done();
            match result {
                Ok(()) => break,
                // What is left of this page may go by the other way.
                Err(_) if own.done() > 0 => continue,
                Err(_) => {}
            }
        }
        match trace_piece(call, child, Traced { theirs, own, len_bytes, ..traced }) {
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

/// Copies through the frames of the child, page by page; the caller's buffer is moved on by what was copied.
fn trace_frames<M: Machine>(
    call: &Syscall<'_, M>,
    child: &Space<M>,
    theirs: Va,
    own: &mut Uio,
) -> Result<(), Errno> {
    let (core, thread) = (call.core, call.thread);
    let mut window = Window::open(core, MappingUser::Ptrace)?;
    let prot = if own.rw() == UioRw::Write { Prot::RW } else { Prot::READ };
    let mut result = Ok(());
    while own.left() > 0 && result.is_ok() {
        let at = theirs + own.done();
        let len = (PAGE_SIZE - at.offset()).min(own.left());
        result = child.wire(thread, at, len, prot).map_err(Errno::from).and_then(|wired| {
            let frame = wired.frames()[0];
            let shown = window.show(core, thread, frame, Visibility::Private, |va| {
                call.uiomove(va + at.offset(), len, own)
            });
            core.vm.unwire(wired);
            shown.and_then(|copied| copied)
        });
    }
    window.close(core);
    result
}
