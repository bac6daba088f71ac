//! Logical CPUs and sets of them.

use core::fmt;

/// A logical CPU: one hardware thread. SMT siblings are two CPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuId(pub u8);

impl CpuId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of logical CPUs: the `cpumask_t` of the sf_buf paper (Fig. 1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuSet(u64);

impl CpuSet {
    /// The most CPUs that a set can hold.
    pub const MAX_CPUS: usize = 64;
    /// The empty set.
    pub const EMPTY: CpuSet = CpuSet(0);

    /// CPUs 0 to `cpus - 1`.
    ///
    /// # Panics
    /// When `cpus` exceeds [`CpuSet::MAX_CPUS`].
    pub const fn first(cpus: usize) -> CpuSet {
        assert!(cpus <= CpuSet::MAX_CPUS);
        if cpus == 64 { CpuSet(u64::MAX) } else { CpuSet((1 << cpus) - 1) }
    }
    /// The set of one CPU.
    pub const fn only(cpu: CpuId) -> CpuSet {
        CpuSet(1 << cpu.0)
    }
    /// True when `cpu` is a member.
    pub const fn contains(self, cpu: CpuId) -> bool {
        self.0 & (1 << cpu.0) != 0
    }
    /// True when every member of `other` is a member.
    pub const fn covers(self, other: CpuSet) -> bool {
        other.0 & !self.0 == 0
    }
    /// Adds `cpu`.
    pub const fn insert(&mut self, cpu: CpuId) {
        self.0 |= 1 << cpu.0;
    }
    /// Takes `cpu` out.
    pub const fn remove(&mut self, cpu: CpuId) {
        self.0 &= !(1 << cpu.0);
    }
    /// Members of either.
    pub const fn union(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 | other.0)
    }
    /// Members of both.
    pub const fn intersection(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 & other.0)
    }
    /// Members of `self` that are not in `other`.
    pub const fn difference(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 & !other.0)
    }
    /// True when no CPU is a member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The number of members.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
    /// The members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = CpuId> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            (rest != 0).then(|| {
                let cpu = CpuId(rest.trailing_zeros() as u8);
                rest &= rest - 1;
                cpu
            })
        })
    }
    /// The bits, CPU 0 lowest: for atomics.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// The set with these bits.
    pub const fn from_bits(bits: u64) -> CpuSet {
        CpuSet(bits)
    }
}

impl fmt::Debug for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}
impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_algebra() {
        let all = CpuSet::first(4);
        let mut odd = CpuSet::only(CpuId(1));
        odd.insert(CpuId(3));
        assert_eq!(all.difference(odd).iter().map(|c| c.0).collect::<alloc::vec::Vec<_>>(), [0, 2]);
        assert!(all.covers(odd) && !odd.covers(all));
        odd.remove(CpuId(3));
        assert_eq!(odd.len(), 1);
        assert_eq!(CpuSet::first(64).len(), 64);
    }
}
