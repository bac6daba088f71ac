//! The trials, on scratch memory.

use super::{Host, Works};
use crate::sys::trials::{self, Scratch};
use crate::sys::{self, Result, pages};
use rustix::fd::AsFd as _;

pub(super) fn probe() -> Host {
    let huge_page_bytes = pages::huge_page_bytes();
    let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    let mut host = Host {
        huge_page_bytes,
        works: Works::empty(),
        overcommit_never: overcommit.is_ok_and(|text| text.trim() == "2"),
    };
    let mut note = |works: Works, worked: Result<bool>| host.works.set(works, matches!(worked, Ok(true)));
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
    if host.huge_page_bytes > 0 {
        let scan = host.has(Works::SCAN);
        host.works.set(Works::COLLAPSE, matches!(trials::try_collapse(huge_page_bytes, scan), Ok(true)));
    }
    host
}
