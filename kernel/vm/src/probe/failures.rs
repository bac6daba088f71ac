//! Planned allocation failures, for tests.
//!
//! One counter for all allocations of this floor (frames, structures, kernel addresses), so that a test can let the
//! first, the second, ... allocation of an operation fail and see that nothing changed and nothing leaked. At rest the
//! counter is zero and costs one load. Shared by all that allocate; an atomic, no lock.

use core::sync::atomic::{AtomicU32, Ordering};

/// Counts down to one failure.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Zero: none is planned. `n`: the n-th allocation from now fails.
    left: AtomicU32,
}

impl Failures {
    /// Lets `succeed` more allocations succeed and the next one fail, once; `None` calls it off.
    pub(crate) fn plan(&self, succeed: Option<u32>) {
        let left = succeed.map_or(0, |n| n.checked_add(1).expect("a failure so far away never comes"));
        self.left.store(left, Ordering::Relaxed);
    }

    /// True while a planned failure has not come.
    pub(crate) fn pending(&self) -> bool {
        self.left.load(Ordering::Relaxed) != 0
    }

    /// Asked once by each allocation: true when this one is to fail.
    pub(crate) fn due(&self) -> bool {
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        before == Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fails_once_at_the_planned_allocation() {
        let f = Failures::default();
        assert!(!f.due() && !f.pending());
        f.plan(Some(2));
        assert_eq!([f.due(), f.due(), f.due(), f.due()], [false, false, true, false]);
        f.plan(Some(0));
        f.plan(None);
        assert!(!f.due());
    }
}
