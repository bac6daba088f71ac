//! What was found out in a run.

use core::sync::atomic::{AtomicU64, Ordering};
use pageferry_workloads::CallError;

/// What was found out in a run. Whoever judges writes it, on any CPU.
#[derive(Default, Debug)]
pub struct Verdict {
    right: AtomicU64,
    wrong: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    program: AtomicU64,
}

impl Verdict {
    /// Bytes that were right, and bytes that were wrong.
    pub fn bytes(&self) -> (u64, u64) {
        (self.right.load(Ordering::Relaxed), self.wrong.load(Ordering::Relaxed))
    }

    /// Processes that ended well, and those that did not.
    pub fn processes(&self) -> (u64, u64) {
        (self.ended.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Whether bytes were looked at, all of them were right, and no process failed.
    pub fn is_well(&self) -> bool {
        let ((right, wrong), (ended, failed)) = (self.bytes(), self.processes());
        right > 0 && wrong == 0 && ended > 0 && failed == 0
    }

    /// A program at random begins, by its number.
    pub(crate) fn begins(&self, number: u32) {
        self.program.store(number.into(), Ordering::Relaxed);
    }

    /// The program at random that began last.
    pub fn program(&self) -> u64 {
        self.program.load(Ordering::Relaxed)
    }

    /// A process has ended.
    pub fn ends(&self, ended: Result<(), CallError>) {
        let count = if ended.is_ok() { &self.ended } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A process got less than was sent.
    pub(crate) fn falls_short(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes were looked at.
    pub(crate) fn compares(&self, found: &[u8], expected: &[u8]) {
        let wrong = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
        self.right.fetch_add((found.len() - wrong) as u64, Ordering::Relaxed);
        self.wrong.fetch_add(wrong as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_kernel::Errno;

    #[test]
    fn all_is_well_where_all_that_was_seen_was_right_and_something_was() {
        type Does = fn(&Verdict);
        /// What is done, whether all is well then, and what is counted.
        type Case<'a> = (&'a [Does], bool, (u64, u64), (u64, u64));
        let (right, wrong): (Does, Does) = (|v| v.compares(b"ab", b"ab"), |v| v.compares(b"ab", b"ax"));
        let (ends, fails): (Does, Does) = (|v| v.ends(Ok(())), |v| v.ends(Err(("read", Errno::Fault))));
        let short: Does = |v| v.falls_short();
        let cases: [Case<'_>; 8] = [
            (&[], false, (0, 0), (0, 0)),
            (&[right], false, (2, 0), (0, 0)),
            (&[ends], false, (0, 0), (1, 0)),
            (&[right, ends], true, (2, 0), (1, 0)),
            (&[right, ends, right, ends], true, (4, 0), (2, 0)),
            (&[right, ends, wrong], false, (3, 1), (1, 0)),
            (&[right, ends, fails], false, (2, 0), (1, 1)),
            (&[right, ends, short], false, (2, 0), (1, 1)),
        ];
        for (all, is_well, bytes, processes) in cases {
            let verdict = Verdict::default();
            all.iter().for_each(|one| one(&verdict));
            assert_eq!(
                (verdict.is_well(), verdict.bytes(), verdict.processes()),
                (is_well, bytes, processes)
            );
        }
    }
}
