//! Accounting: what kernel code does, said as it does it.
//!
//! Every call here costs what a modelled machine charges for it, and changes nothing else. On bare metal all of them
//! are empty, as they are by default: the instructions themselves take the time.

use crate::addr::{Pfn, Va};
use crate::arena::StructVa;
use crate::cause::Cause;
use crate::lock::LockCosts;
use crate::memory_use::MemoryUse;
use crate::metric::Metric;
use crate::path::CodePath;
use crate::trap::Access;

/// The hardware's part of entering or leaving the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Crossing {
    /// User to kernel by a system call.
    SyscallEnter,
    /// Kernel to user after a system call.
    SyscallExit,
    /// User or kernel to the fault handler.
    TrapEnter,
    /// Back from the fault handler.
    TrapExit,
}

/// The accounts of a machine. See the [module](self).
pub trait Account {
    /// Keeps a [`Cause`] in force until it is dropped; scopes nest, the innermost counts.
    type Scope;

    /// True when accounting calls do something; lets callers skip work that only feeds them.
    const ACCOUNTING: bool = false;

    /// Attributes what follows to `cause`, until the scope is dropped. The scope belongs to the thread of control, and
    /// goes with it through context switches.
    #[must_use = "the cause ends when the scope is dropped"]
    fn scope(&self, cause: Cause) -> Self::Scope;

    /// Accounts for a path of instructions in the cause in force: for its time, and for the fetching of its text if it
    /// has a place.
    ///
    /// # Panics
    /// A modelled machine panics where the text is not mapped.
    #[track_caller]
    fn execute(&self, path: impl Into<CodePath>) {
        let _ = path.into();
    }

    /// Says where the kernel's text lies, in which paths have their places. Called at boot, where the board
    /// [fetches](crate::Board::fetches); paths take nothing but their time before.
    fn set_text(&self, at: StructVa) {
        let _ = at;
    }

    /// Says what so many bytes of the kernel's are for. What is said later holds, of what it covers. Called at boot.
    fn set_use(&self, at: Va, len_bytes: usize, what: MemoryUse) {
        let _ = (at, len_bytes, what);
    }

    /// Says where the kernel has its direct map of so many frames, the first one first: what [`Account::set_use`] says
    /// nothing of there is for what its frame is for. Called at boot.
    fn set_direct_map(&self, at: Va, frames: usize) {
        let _ = (at, frames);
    }

    /// Says what a frame is for now.
    fn set_frame_use(&self, frame: Pfn, what: MemoryUse) {
        let _ = (frame, what);
    }

    /// Counts `n` events, of those that a floor has [declared](crate::counters).
    fn count(&self, counter: impl Into<Metric>, n: u64) {
        let _ = (counter, n);
    }

    /// The same, of events at an address: a modelled machine also counts them by what that is for. Of one counter all
    /// are counted so, or none.
    fn count_at(&self, counter: impl Into<Metric>, at: Va, n: u64) {
        let _ = at;
        self.count(counter, n);
    }

    /// Accounts for an access to a kernel structure, through TLB and caches, in the cause in force.
    #[track_caller]
    fn touch(&self, at: StructVa, len_bytes: usize, access: Access) {
        let _ = (at, len_bytes, access);
    }

    /// Reads or writes a register of a device, at a kernel address of
    /// [`Board::device_memory`](crate::Board::device_memory): past all caches.
    ///
    /// # Panics
    /// When nothing is mapped there.
    #[track_caller]
    fn touch_register(&self, at: Va, access: Access) {
        let _ = (at, access);
    }

    /// Accounts for accesses to the ports of the interval timer, by which a kernel reads the time where its CPU has no
    /// counter of cycles, or it does not use that. They take nothing on a machine that does not say what they cost.
    fn touch_timer(&self, accesses: u32) {
        let _ = accesses;
    }

    /// Says how the locks of the kernel that is modelled are made. Called at boot, before any lock is made; until then
    /// they are [`LockCosts::default`].
    fn set_locks(&self, costs: LockCosts) {
        let _ = costs;
    }

    /// Accounts for the hardware's part of entering or leaving the kernel.
    fn cross(&self, crossing: Crossing) {
        let _ = crossing;
    }
}
