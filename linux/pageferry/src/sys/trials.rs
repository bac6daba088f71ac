//! Trials of what the kernel can do, on scratch memory: each says whether a trick has worked, or which call failed.

use super::map::{Prot, Region};
use super::{Named as _, Result, lease, memfd, pages};
use crate::sys;
use rustix::fd::{AsFd, AsRawFd as _, OwnedFd};
use rustix::fs::OFlags;
use std::path::Path;

/// A page of a memfd, mapped shared, that starts with a 1.
pub(crate) struct Scratch {
    fd: OwnedFd,
    region: Region,
    len: usize,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch> {
        Scratch::of(sys::page_bytes(), sys::page_bytes())
    }

    fn of(len: usize, align: usize) -> Result<Scratch> {
        let fd = memfd::create("pageferry-trial", len)?;
        let region = Region::reserve(len, align)?;
        // SAFETY: the region is new, and ours alone.
        unsafe { region.map_shared(0, len, Prot::ReadWrite, fd.as_fd(), 0)? };
        region.dont_fork(0, len)?;
        let scratch = Scratch { fd, region, len };
        scratch.store(1);
        Ok(scratch)
    }

    fn store(&self, byte: u8) {
        // SAFETY: the first byte is mapped writable wherever a trial stores, and ours alone.
        unsafe { self.region.at(0).write_volatile(byte) }
    }

    /// Whether the kernel can store its first byte there, which stays the same.
    fn can_be_stored_to(&self) -> Result<bool> {
        let (read, write) = rustix::pipe::pipe().of("pipe")?;
        rustix::io::write(&write, &[1]).of("write")?;
        // SAFETY: one byte of memory that is ours alone; the kernel looks whether it is mapped writable.
        Ok(unsafe { libc::read(read.as_raw_fd(), self.region.at(0).cast(), 1) } == 1)
    }

    fn first(&self) -> u8 {
        first(&self.region)
    }

    /// What the file's first byte is.
    fn in_file(&self) -> Result<u8> {
        let mut byte = [0];
        rustix::io::pread(&self.fd, &mut byte, 0).of("pread")?;
        Ok(byte[0])
    }
}

fn first(region: &Region) -> u8 {
    // SAFETY: the first byte is mapped readable wherever a trial looks.
    unsafe { region.at(0).read_volatile() }
}

pub(crate) fn try_proc() -> Result<bool> {
    let scratch = Scratch::new()?;
    let again = memfd::reopen(scratch.fd.as_fd(), OFlags::RDONLY)?;
    let region = Region::reserve(scratch.len, scratch.len)?;
    // SAFETY: the region is new.
    unsafe { region.map_private(0, scratch.len, Prot::Read, again.as_fd(), 0)? };
    Ok(first(&region) == 1)
}

/// Four pages, of which one is written.
pub(crate) fn try_scan() -> Result<bool> {
    let page = sys::page_bytes();
    let scratch = Scratch::of(4 * page, page)?;
    // SAFETY: ours alone.
    unsafe { scratch.region.map_private(0, scratch.len, Prot::ReadWrite, scratch.fd.as_fd(), 0)? };
    // SAFETY: readable.
    unsafe { scratch.region.touch(0, scratch.len, page) };
    let before = pages::written_pages(&scratch.region, 0, scratch.len, 0)?;
    scratch.store(2);
    let after = pages::written_pages(&scratch.region, 0, scratch.len, 0)?;
    Ok((before, after) == (0, 1))
}

pub(crate) fn try_future_write() -> Result<bool> {
    let scratch = Scratch::new()?;
    memfd::seal(&scratch.fd, memfd::POOL_SEALS)?;
    scratch.store(2);
    let region = Region::reserve(scratch.len, scratch.len)?;
    // SAFETY: the region is new.
    let refused =
        unsafe { region.map_shared(0, scratch.len, Prot::ReadWrite, scratch.fd.as_fd(), 0) }.is_err();
    Ok(refused && scratch.in_file()? == 2)
}

/// Under the seal, as it will be.
pub(crate) fn try_alias() -> Result<bool> {
    let scratch = Scratch::new()?;
    memfd::seal(&scratch.fd, memfd::POOL_SEALS)?;
    let region = Region::reserve(scratch.len, scratch.len)?;
    // SAFETY: both are ours alone.
    unsafe {
        scratch.region.protect(0, scratch.len, Prot::None)?;
        region.alias(0, scratch.len, &scratch.region, 0)?;
        region.protect(0, scratch.len, Prot::ReadWrite)?;
        region.at(0).write_volatile(3);
    }
    Ok(scratch.in_file()? == 3)
}

/// Under the seal, as it will be.
pub(crate) fn try_freeze() -> Result<bool> {
    let scratch = Scratch::new()?;
    memfd::seal(&scratch.fd, memfd::POOL_SEALS)?;
    // SAFETY: ours alone.
    unsafe { scratch.region.protect(0, scratch.len, Prot::Read)? };
    let missed = !scratch.can_be_stored_to()?;
    // SAFETY: ours alone.
    unsafe { scratch.region.protect(0, scratch.len, Prot::ReadWrite)? };
    scratch.store(2);
    Ok(missed && scratch.in_file()? == 2)
}

pub(crate) fn try_private() -> Result<bool> {
    let scratch = Scratch::new()?;
    // SAFETY: ours alone.
    unsafe { scratch.region.map_private(0, scratch.len, Prot::ReadWrite, scratch.fd.as_fd(), 0)? };
    let before = scratch.first();
    scratch.store(2);
    Ok((before, scratch.first(), scratch.in_file()?) == (1, 2, 1))
}

pub(crate) fn try_dont_need() -> Result<bool> {
    let scratch = Scratch::new()?;
    // SAFETY: ours alone.
    unsafe { scratch.region.map_private(0, scratch.len, Prot::ReadWrite, scratch.fd.as_fd(), 0)? };
    scratch.store(2);
    // SAFETY: as above.
    unsafe { scratch.region.dont_need(0, scratch.len)? };
    Ok(scratch.first() == 1)
}

pub(crate) fn try_seal_write() -> Result<bool> {
    let scratch = Scratch::new()?;
    let busy = memfd::seal(&scratch.fd, memfd::SNAPSHOT_SEALS).is_err();
    // SAFETY: ours alone.
    unsafe { scratch.region.map_private(0, scratch.len, Prot::Read, scratch.fd.as_fd(), 0)? };
    memfd::seal(&scratch.fd, memfd::SNAPSHOT_SEALS)?;
    Ok(busy && rustix::io::pwrite(&scratch.fd, &[2], 0).is_err() && scratch.first() == 1)
}

/// A lease is refused while there is a writer, and a view that was read-only can be made this process's own.
pub(crate) fn try_lease() -> Result<bool> {
    let scratch = Scratch::new()?;
    let reader = memfd::reopen(scratch.fd.as_fd(), OFlags::RDONLY)?;
    // The descriptor of memfd_create itself is not counted as a writer, so a second one must be.
    let writer = memfd::reopen(scratch.fd.as_fd(), OFlags::RDWR)?;
    let refused = !lease::take(&reader)?;
    drop(writer);
    let granted = lease::take(&reader)? && lease::is_whole(&reader);
    let broken = memfd::reopen(scratch.fd.as_fd(), OFlags::RDWR | OFlags::NONBLOCK).is_err();
    let seen = !lease::is_whole(&reader);
    lease::give_up(&reader);
    // SAFETY: ours alone.
    unsafe { scratch.region.map_private(0, scratch.len, Prot::Read, reader.as_fd(), 0)? };
    // SAFETY: as above.
    unsafe { scratch.region.protect(0, scratch.len, Prot::ReadWrite)? };
    scratch.region.make_own(0, scratch.len)?;
    rustix::io::pwrite(&scratch.fd, &[2], 0).of("pwrite")?;
    Ok(refused && granted && broken && seen && scratch.first() == 1)
}

/// Readers of memory are counted: open, mapped, and in a socket.
pub(crate) fn try_count() -> Result<bool> {
    let scratch = Scratch::new()?;
    let own = memfd::reopen(scratch.fd.as_fd(), OFlags::RDWR)?;
    drop(scratch);
    let alone = || lease::is_alone(&own);
    let before = alone()?;
    let reader = memfd::reopen(own.as_fd(), OFlags::RDONLY)?;
    let open = !alone()?;
    let (ours, theirs) = sys::socket::pair()?;
    sys::socket::send(ours.as_fd(), &[0], &[reader.as_fd()])?;
    drop(reader);
    let queued = !alone()?;
    let sys::socket::Came::Packet(mut packet) = sys::socket::recv(theirs.as_fd(), &mut [0])? else {
        return Ok(false);
    };
    let Some(reader) = packet.fds.pop() else { return Ok(false) };
    let region = Region::reserve(sys::page_bytes(), sys::page_bytes())?;
    // SAFETY: the region is new.
    unsafe { region.map_private(0, region.len(), Prot::ReadWrite, reader.as_fd(), 0)? };
    drop(reader);
    let mapped = !alone()?;
    drop(region);
    Ok(before && open && queued && mapped && alone()?)
}

pub(crate) fn try_landlock() -> Result<bool> {
    Ok(sys::confine::landlock_abi()? >= 1)
}

pub(crate) fn try_collapse(huge: usize, scan: bool) -> Result<bool> {
    if huge > pages::MAX_SLOT_ALIGN {
        return Ok(false);
    }
    let scratch = Scratch::of(huge, huge)?;
    scratch.region.collapse(0, huge)?;
    let found = if scan { pages::huge_bytes(&scratch.region, 0, huge).ok() } else { None };
    let found = found.or_else(|| huge_bytes_by_smaps(scratch.region.at(0) as usize, huge));
    Ok(found == Some(huge as u64))
}

/// What /proc/self/smaps says of huge pages within a range that is one mapping, or a part of one.
pub(crate) fn huge_bytes_by_smaps(start: usize, len: usize) -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/self/smaps")).ok()?;
    let (mut inside, mut bytes) = (false, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if let Some((low, high)) = first.split_once('-') {
            let address = |text| usize::from_str_radix(text, 16);
            if let (Ok(low), Ok(high)) = (address(low), address(high)) {
                inside = low < start + len && start < high;
            }
        } else if inside && matches!(first, "ShmemPmdMapped:" | "FilePmdMapped:") {
            bytes += words.next()?.parse::<u64>().ok()? << 10;
        }
    }
    Some(bytes.min(len as u64))
}
