//! How many invalidations a flush has issued.

use core::ops::AddAssign;

/// What a flush has issued, in pages, as [`crate::PmapCounter`] counts them: for those who want to know whose they
/// were. Those of other CPUs that flush meanwhile are not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Invalidations {
    /// In the own TLB.
    pub local: u64,
    /// Asked of other CPUs: once, however many they are.
    pub remote: u64,
}

impl Invalidations {
    /// None.
    pub const NONE: Invalidations = Invalidations { local: 0, remote: 0 };
}

impl AddAssign for Invalidations {
    fn add_assign(&mut self, more: Invalidations) {
        self.local += more.local;
        self.remote += more.remote;
    }
}
