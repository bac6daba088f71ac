//! The tricks that the library uses, and a trial of each on scratch memory.

use crate::sys::trials::{self, Scratch};
use crate::sys::{self, Result};
use rustix::fd::AsFd as _;

bitflags::bitflags! {
    /// Tricks that work here.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Works: u32 {
        /// memfds with seals.
        const MEMFD = 1;
        /// The seal FUTURE_WRITE, which leaves the owner's mapping.
        const FUTURE_WRITE = 1 << 1;
        /// `MADV_COLLAPSE`, with a huge page to show for it.
        const COLLAPSE = 1 << 2;
        /// `mremap` from nothing duplicates a shared mapping.
        const ALIAS = 1 << 3;
        /// What the owner of a sealed pool has made read-only it can make writable again.
        const FREEZE = 1 << 4;
        /// `MADV_DONTNEED` brings the file's bytes back.
        const DONT_NEED = 1 << 5;
        /// `PAGEMAP_SCAN` finds what was written.
        const SCAN = 1 << 6;
        /// /proc/self/fd opens a memfd again.
        const PROC = 1 << 7;
        /// `F_SEAL_WRITE` once the last writable mapping is gone.
        const SEAL_WRITE = 1 << 8;
        /// File leases on memfds.
        const LEASE = 1 << 9;
        /// `SO_PEERPIDFD`.
        const PEER_PIDFD = 1 << 10;
        /// Landlock.
        const LANDLOCK = 1 << 11;
        /// Private mappings of memfds.
        const PRIVATE = 1 << 12;
        /// The kernel says whether anybody else has a memfd open or mapped.
        const COUNT = 1 << 13;
    }
}

impl Works {
    /// Tries each. `huge_page_bytes`: bytes of a huge page, 0 where the kernel has none.
    pub(super) fn tried(huge_page_bytes: usize) -> Works {
        let mut works = Works::empty();
        let mut note = |trick: Works, worked: Result<bool>| works.set(trick, matches!(worked, Ok(true)));
        note(Works::MEMFD, Scratch::new().map(|_| true));
        note(Works::PROC, trials::try_proc());
        note(Works::SCAN, trials::try_scan());
        note(Works::FUTURE_WRITE, trials::try_future_write());
        note(Works::ALIAS, trials::try_alias());
        note(Works::FREEZE, trials::try_freeze());
        note(Works::PRIVATE, trials::try_private());
        note(Works::DONT_NEED, trials::try_dont_need());
        note(Works::SEAL_WRITE, trials::try_seal_write());
        note(Works::LEASE, trials::try_lease());
        note(Works::COUNT, trials::try_count());
        note(Works::LANDLOCK, trials::try_landlock());
        note(
            Works::PEER_PIDFD,
            sys::socket::pair().and_then(|(ours, _)| sys::peer::pidfd(ours.as_fd())).map(|_| true),
        );
        if huge_page_bytes > 0 {
            let scan = works.contains(Works::SCAN);
            works.set(Works::COLLAPSE, matches!(trials::try_collapse(huge_page_bytes, scan), Ok(true)));
        }
        works
    }
}
