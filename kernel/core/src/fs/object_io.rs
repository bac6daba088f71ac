//! Bytes of a file whose pages are a VM object's: a page is wired, mapped by an ephemeral mapping, and copied (sf_buf
//! paper, 2.3: as the vnode pager and `uiomove` of a page in FreeBSD 5).
//!
//! # Locks
//! None is held before and after; a page may have to come from the disk.
//!
//! # What can fail
//! The disk; memory; what the copy answers.

use crate::proc::Syscall;
use alloc::sync::Arc;
use pageferry_abi::Errno;
use pageferry_ephemeral::{Flags, MappingUser};
use pageferry_hal::{Cause, Machine, PAGE_SIZE, Threads, Va};
use pageferry_vm::Object;

/// Calls `work` with the kernel address of `page`, and how it is to be used.
pub(super) fn with_page<M: Machine, R>(
    call: &Syscall<'_, M>,
    object: &Arc<Object<M>>,
    page: u64,
    write: bool,
    work: impl FnOnce(Va) -> R,
) -> Result<R, Errno> {
    let (vm, ephemeral, thread) = (&call.core.vm, &call.core.ephemeral, call.thread);
    let wired = vm.wire_page(thread, object, page, write)?;
    thread.pin();
    let mapped = ephemeral.alloc(thread, wired.frames()[0], MappingUser::Files, Flags::PRIVATE);
    let result = mapped.map(|mapping| {
        let result = work(ephemeral.kva(&mapping));
        ephemeral.free(thread, mapping);
        result
    });
    thread.unpin();
    vm.unwire(wired);
    Ok(result?)
}

/// Calls `copy` with the kernel address of each piece of `len` bytes from byte `at` on, a page at a time: how many
/// bytes are before it, and how long it is.
pub(super) fn each_page<M: Machine>(
    call: &Syscall<'_, M>,
    object: &Arc<Object<M>>,
    at: u64,
    len: usize,
    write: bool,
    copy: &mut dyn FnMut(Va, usize, usize) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let position = at + done as u64;
        let offset = position as usize % PAGE_SIZE;
        let piece = (PAGE_SIZE - offset).min(len - done);
        let page = position / PAGE_SIZE as u64;
        with_page(call, object, page, write, |kva| copy(kva + offset, done, piece))??;
        done += piece;
    }
    Ok(())
}

/// Clears what lies behind byte `from` in its page, so that what was stored behind the end is never read.
pub(super) fn clear_tail<M: Machine>(
    call: &Syscall<'_, M>,
    object: &Arc<Object<M>>,
    from: u64,
) -> Result<(), Errno> {
    let offset = from as usize % PAGE_SIZE;
    if offset == 0 {
        return Ok(());
    }
    with_page(call, object, from / PAGE_SIZE as u64, true, |va| {
        let _c = call.machine().scope(Cause::Zero);
        call.machine().zero(va + offset, PAGE_SIZE - offset).expect("the kernel's own page is mapped");
    })
}
