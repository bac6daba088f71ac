//! Spin locks as errors and events name them: which one, who holds it, who waits for it.

use crate::mmu::access::Site;
use core::fmt;
use pageferry_hal::LockClass;

/// A lock, as errors and [events](crate::Event) name it: `runq#1` is the second lock of the class `runq` that this
/// machine made.
///
/// A kernel makes its locks in the same order in every run, so the number says which lock it is: of one run queue for
/// each CPU, the second is that of CPU 1. Where a class has many locks that come and go, the number tells two of them
/// apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockId {
    /// Its class.
    pub class: LockClass,
    /// How many locks of that class were made before it.
    pub number: u32,
}

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}#{}", self.class, self.number)
    }
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A lock that a context holds, or waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockRef {
    /// Its address.
    pub(crate) lock: usize,
    pub(crate) id: LockId,
    /// The call that took it, or waits for it.
    pub(crate) at: Site,
}

impl fmt::Debug for LockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (taken at {})", self.id, self.at)
    }
}

/// A lock that a context waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingLock {
    pub(crate) lock: LockRef,
    /// How many locks the context held when it began to wait. Those that it has taken since are its interrupt
    /// handlers', who give them back whatever it waits for.
    pub(crate) held: usize,
}

/// A context in a deadlock of locks: it holds one, and waits for one that the next context of the circle holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// The context's name.
    pub context: String,
    /// The lock that the context before it waits for, and the call that took it.
    pub holds: (LockId, Site),
    /// The lock that it waits for, and the call that does.
    pub wants: (LockId, Site),
}

impl fmt::Display for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, holds: (held, taken_at), wants: (wanted, waits_at) } = self;
        write!(f, "context {context} holds {held}, taken at {taken_at}, and waits for {wanted} at {waits_at}")
    }
}

/// The contexts of a deadlock of locks, each of which waits for the next, and the last for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockCircle(pub Vec<LockWait>);

impl fmt::Display for LockCircle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, wait) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "; " })?;
            wait.fmt(f)?;
        }
        Ok(())
    }
}
