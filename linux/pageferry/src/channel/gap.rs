//! Parts of a confinement that a host does not have.

use crate::sys::confine;

/// A part of a confinement that this host does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gap {
    /// No Landlock: the program opens files, and writes to this process's memory, as its user may.
    Landlock,
    /// No filters of system calls: the program can pin pages.
    Filters,
    /// No `close_range`: descriptors that other code of this process left open without O_CLOEXEC are inherited.
    Descriptors,
}

impl Gap {
    /// What is missing, and what would bring it.
    pub(super) fn what(self) -> (&'static str, &'static str) {
        match self {
            Gap::Landlock => (
                "Landlock, which keeps a program out of other processes' memory,",
                "Linux 5.13 with CONFIG_SECURITY_LANDLOCK, and `landlock` in the boot parameter lsm=",
            ),
            Gap::Filters => ("a filter of system calls", "a kernel with CONFIG_SECCOMP_FILTER"),
            Gap::Descriptors => ("close_range", "Linux 5.11"),
        }
    }

    /// All that this host lacks.
    pub(super) fn missing() -> Vec<Gap> {
        let landlock = confine::landlock_abi().is_ok_and(|abi| abi >= 1);
        let there = [
            (Gap::Landlock, landlock),
            (Gap::Filters, confine::can_filter().is_ok()),
            (Gap::Descriptors, confine::can_close().is_ok()),
        ];
        there.into_iter().filter(|(_, there)| !there).map(|(gap, _)| gap).collect()
    }
}

impl core::fmt::Display for Gap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (what, setting) = self.what();
        write!(f, "{what} is not to be had here: {setting}")
    }
}
