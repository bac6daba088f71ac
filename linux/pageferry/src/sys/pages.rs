//! What kind of pages lie behind an address: huge ones, written ones.

use super::map::Region;
use super::{Failed, Result, checked, may_fail};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// Bytes that slots are multiples of, where the host has no huge pages or larger ones.
pub(crate) const MAX_SLOT_ALIGN: usize = 2 << 20;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// This process's own page map; a child of `fork` must not use its parent's, so it is kept with the pid.
fn pagemap() -> Result<&'static OwnedFd> {
    static PAGEMAP: OnceLock<core::result::Result<(u32, OwnedFd), Failed>> = OnceLock::new();
    may_fail("open /proc/self/pagemap")?;
    let opened = PAGEMAP.get_or_init(|| {
        use super::Named as _;
        let fd = rustix::fs::open("/proc/self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        fd.of("open /proc/self/pagemap").map(|fd| (super::fork::generation(), fd))
    });
    match opened {
        Ok((generation, fd)) if *generation == super::fork::generation() => Ok(fd),
        Ok(_) => Err(Failed { call: "open /proc/self/pagemap", errno: super::Errno::CHILD }),
        Err(error) => Err(*error),
    }
}

/// Which pages are counted: those that have all of one set of categories, of which some are turned round, and one of
/// another set, where that is not empty.
#[derive(Clone, Copy, Default)]
struct PageFilter {
    all: u64,
    inverted: u64,
    any: u64,
}

/// Pages in the part that are wanted; stops at `max` where that is not 0.
fn scan(region: &Region, offset: usize, len: usize, wanted: PageFilter, max: u64) -> Result<u64> {
    may_fail("PAGEMAP_SCAN")?;
    assert!(offset + len <= region.len());
    let fd = pagemap()?;
    let mut regions = [PageRegion::default(); 32];
    let start = region.at(offset) as u64;
    let end = start + len as u64;
    let page = super::page_bytes() as u64;
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        start,
        end,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        max_pages: max,
        category_inverted: wanted.inverted,
        category_mask: wanted.all,
        category_anyof_mask: wanted.any,
        return_mask: wanted.all,
        ..ScanArg::default()
    };
    let mut pages = 0;
    loop {
        // SAFETY: the argument and the vector that it names live through the call; the kernel writes only into these.
        let found = unsafe { libc::ioctl(fd.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg) };
        let found = checked(found, "PAGEMAP_SCAN")? as usize;
        pages += regions[..found].iter().map(|region| (region.end - region.start) / page).sum::<u64>();
        if arg.walk_end >= end || (max > 0 && pages >= max) || arg.walk_end <= arg.start {
            return Ok(pages);
        }
        arg.start = arg.walk_end;
    }
}

/// Bytes of the part that huge pages map.
pub(crate) fn huge_bytes(region: &Region, offset: usize, len: usize) -> Result<u64> {
    let wanted = PageFilter { all: PAGE_IS_PRESENT | PAGE_IS_HUGE, ..PageFilter::default() };
    Ok(scan(region, offset, len, wanted, 0)? * super::page_bytes() as u64)
}

/// Pages of a private mapping of a file that this process has written, which are its own since; at most
/// `max`, or all for 0.
pub(crate) fn written_pages(region: &Region, offset: usize, len: usize, max: u64) -> Result<u64> {
    // A page that was written is anonymous: present or swapped out, and not of a file. What was never touched, or taken
    // away since, has no entry in the table at all.
    let wanted =
        PageFilter { all: PAGE_IS_FILE, inverted: PAGE_IS_FILE, any: PAGE_IS_PRESENT | PAGE_IS_SWAPPED };
    scan(region, offset, len, wanted, max)
}

/// Bytes that one entry of the second-lowest page table maps: what a huge page has. 0 where the kernel has none.
pub(crate) fn huge_page_bytes() -> usize {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
