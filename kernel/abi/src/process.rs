//! Processes, and what is measured for one of them.

/// The number of a process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pid(pub u32);

/// Which invalidations of TLB entries a system call repeats, to be measured (sf_buf paper, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidateKind {
    /// Local, the page-table entry in the data cache.
    LocalCached,
    /// Local, the entry flushed from the caches before each.
    LocalUncached,
    /// Remote, waiting for all other CPUs. Nothing happens on a uniprocessor.
    Remote,
}
