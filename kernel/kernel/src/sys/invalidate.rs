//! A system call that measures invalidations (sf_buf paper, 3): one page of the kernel, again and again.
//!
//! The paper gives the cost of an invalidation when the page-table entry is in the data cache and when it is not,
//! because the instruction looks at it. So one repetition reads the entry and invalidates the page; for the uncached
//! case the entry's line is flushed from all caches first, outside the measured time.

use pageferry_abi::{Errno, InvalidateKind};
use pageferry_core::proc::Syscall;
use pageferry_hal::{Cause, CpuSet, Cycles, Machine, Threads};

/// Repeats an invalidation `times` times; answers the cycles that they took together.
pub(super) fn invalidate<M: Machine>(
    call: &Syscall<'_, M>,
    kind: InvalidateKind,
    times: u32,
) -> Result<Cycles, Errno> {
    let (m, pmaps) = (call.machine(), call.core.vm.pmaps());
    let memory = call.core.vm.kernel_alloc(1)?;
    let va = memory.va();
    let entry = pmaps.kernel_entry(va);
    // The cycles of one CPU's clock are added up.
    call.thread.pin();
    let others = m.cpus().difference(CpuSet::only(m.cpu()));
    let mut total = Cycles::ZERO;
    pmaps.read_kernel_entry(va);
    for _ in 0..times {
        if kind == InvalidateKind::LocalUncached {
            m.flush_line(entry);
        }
        let start = m.now();
        match kind {
            InvalidateKind::LocalCached | InvalidateKind::LocalUncached => {
                let _c = m.scope(Cause::InvalidateLocal);
                pmaps.read_kernel_entry(va);
                pmaps.invalidate_local(va);
            }
            InvalidateKind::Remote => {
                pmaps.invalidate_remote(va, others);
            }
        }
        total += m.now() - start;
    }
    call.thread.unpin();
    call.core.vm.kernel_free(memory);
    Ok(total)
}
