//! Raw reads and writes of a disk: from the pages of the caller's buffer and to them (FreeBSD 5, `physio`, `vmapbuf`).
//!
//! # What it holds
//! Nothing beyond a call. The disk's thread does not run in the caller's address space, so the pages of the buffer are
//! wired and mapped in the kernel's: as a run, with one flush when they are mapped and one when they are unmapped, in
//! every kind of kernel alike (`pmap_qenter`, `pmap_qremove`). The addresses are kept for the next call.
//!
//! # Locks
//! None of its own.
//!
//! # What can fail
//! The caller's addresses, as far as a request goes: none of its bytes has moved then. Memory and addresses.

use super::memory_disk::MemoryDisk;
use crate::defect::KernelDefect;
use crate::proc::{Syscall, Uio, UioRw};
use pageferry_abi::Errno;
use pageferry_hal::{Machine, PAGE_SIZE, Prot};

/// The longest request (`MAXPHYS`).
const MAX_PHYS_BYTES: usize = 128 << 10;

/// Moves what `uio` is about, whole sectors within the disk, request by request.
///
/// # Errors
/// Those of wiring the buffer, and of the disk. What requests before have moved is done.
pub(super) fn physio<M: Machine>(
    call: &Syscall<'_, M>,
    disk: &MemoryDisk<M>,
    uio: &mut Uio,
) -> Result<(), Errno> {
    let (core, geom) = (call.core, &call.core.geom);
    let prot = if uio.rw() == UioRw::Read { Prot::RW } else { Prot::READ };
    while uio.left() > 0 {
        let part = uio.part(MAX_PHYS_BYTES);
        let wired = call.space.wire(call.thread, part.at(), part.left(), prot)?;
        // A buffer that is not aligned has a page more.
        let mut run = match geom.run(MAX_PHYS_BYTES / PAGE_SIZE + 1) {
            Ok(run) => run,
            Err(e) => {
                core.vm.unwire(wired);
                return Err(e.into());
            }
        };
        let data = core.ephemeral.enter_run(&mut run, wired.frames()) + part.at().offset();
        let mut wired = Some(wired);
        if core.config.defect.is(KernelDefect::BufferNotWired) {
            wired.take().into_iter().for_each(|wired| core.vm.unwire(wired));
        }
        let bytes = part.offset()..part.offset() + part.left() as u64;
        let (done, result) = disk.io(core, call.thread, (bytes, data, part.rw()));
        core.ephemeral.remove_run(&mut run);
        geom.keep(run);
        wired.into_iter().for_each(|wired| core.vm.unwire(wired));
        uio.advance(done);
        result?;
    }
    Ok(())
}
