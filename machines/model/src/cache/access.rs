//! One access to the caches: how it depends on those before it, and the page that it is in.

/// How an access depends on those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The next step waits for it, as in a page table walk or along a list: it pays the latency of the first level that
    /// has the line.
    Latency,
    /// One line of a copy or a fill, overlapped with its neighbours: it pays the stream cost of the level that takes
    /// it.
    Stream,
}

/// A page that a package is about to access: see [`super::Caches::enter`].
#[derive(Clone, Copy, Debug)]
pub struct PageAccess {
    pub(super) package: usize,
    /// The other packages that may hold lines of the page; of other complexes, where there are such.
    pub(super) others: u64,
    /// Those of the own complex.
    pub(super) near: u64,
    /// What is added to the number of a line to have that by which the first level knows it.
    pub(super) skew: u64,
}
