//! Memory without a name: memfds and their seals.

use super::{Errno, Failed, Named, Result, may_fail};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The seals of a pool that its owner alone may write, and that stays as long as it is.
pub(crate) const POOL_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);
/// What of them is added only when the receiver has mapped the pool for donations. `SEAL` forbids further
/// seals, so it comes with the last.
pub(crate) const SEALED_LATER: SealFlags = SealFlags::FUTURE_WRITE.union(SealFlags::SEAL);
/// The seals of memory that nobody may write any more.
pub(crate) const SNAPSHOT_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE).union(SealFlags::SEAL);

/// Makes a memfd of `len` bytes, all zero. It is not executable where the kernel can promise that, and is
/// closed by `exec`.
pub(crate) fn create(name: &str, len: usize) -> Result<OwnedFd> {
    may_fail("memfd_create")?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know the flag.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    }
    .of("memfd_create")?;
    resize(&fd, len)?;
    Ok(fd)
}

/// A memfd may not be longer than RLIMIT_FSIZE: the kernel would answer with SIGXFSZ, which kills.
fn resize(fd: &OwnedFd, len: usize) -> Result<()> {
    may_fail("ftruncate")?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    if limit.current.is_some_and(|limit| limit < len as u64) && !planted!(NoFileLimit) {
        return Err(super::Failed { call: "ftruncate", errno: Errno::FBIG });
    }
    rustix::fs::ftruncate(fd, len as u64).of("ftruncate")
}

/// Adds seals. `EBUSY`: a mapping or a pinned page could still be written.
pub(crate) fn seal(fd: impl AsFd, seals: SealFlags) -> Result<()> {
    may_fail("F_ADD_SEALS")?;
    rustix::fs::fcntl_add_seals(fd, seals).of("F_ADD_SEALS")
}

/// The seals of a descriptor that somebody else sent; none, where it is of a kind that has none: all but shmem
/// and hugetlbfs.
pub(crate) fn seals(fd: impl AsFd) -> Result<SealFlags> {
    may_fail("F_GET_SEALS")?;
    match rustix::fs::fcntl_get_seals(fd) {
        Err(Errno::INVAL | Errno::BADF) => Ok(SealFlags::empty()),
        other => other.of("F_GET_SEALS"),
    }
}

/// Whether a descriptor that somebody else sent is one of memory that can be read. Memory of huge pages is none:
/// reading its holes kills where the host has no more of these. No call here waits for what is behind the descriptor.
pub(crate) fn is_memory(fd: &OwnedFd) -> bool {
    let readable =
        || rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| (flags & OFlags::ACCMODE) != OFlags::WRONLY);
    rustix::fs::fcntl_get_seals(fd).is_ok() && is_of_huge_pages(fd).is_ok_and(|huge| !huge) && readable()
}

/// Whether a descriptor is one of memory of huge pages.
pub(crate) fn is_of_huge_pages(fd: &OwnedFd) -> Result<bool> {
    const HUGETLBFS: i64 = 0x9584_58f6;
    Ok(rustix::fs::fstatfs(fd).of("fstatfs")?.f_type & 0xffff_ffff == HUGETLBFS)
}

/// Reads bytes of the file, all that are asked for.
pub(crate) fn read_at(fd: impl AsFd, mut offset: u64, mut to: &mut [u8]) -> Result<()> {
    while !to.is_empty() {
        let read =
            rustix::io::retry_on_intr(|| rustix::io::pread(fd.as_fd(), &mut *to, offset)).of("pread")?;
        if read == 0 {
            return Err(Failed { call: "pread", errno: Errno::IO });
        }
        offset += read as u64;
        to = &mut to[read..];
    }
    Ok(())
}

/// Bytes of the file.
pub(crate) fn len(fd: impl AsFd) -> Result<u64> {
    Ok(rustix::fs::fstat(fd).of("fstat")?.st_size as u64)
}

/// The number of the file, by which two descriptors of the same one are told.
pub(crate) fn number(fd: impl AsFd) -> Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd).of("fstat")?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Opens the same memory once more by its name in /proc. `EAGAIN`: somebody holds a lease on it, for whose end this
/// does not wait.
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    may_fail("open /proc/self/fd")?;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).of("open /proc/self/fd")
}
