//! Sealed memory: memfds that nobody can write any more.
//!
//! # What it holds
//! [`Draft`] is a memfd that its owner fills; [`Draft::seal`] makes it a [`Snapshot`], which is read by any
//! number of processes for ever after. A snapshot that comes from a peer is looked at before it is mapped:
//! `F_GET_SEALS` fails on everything but memory, so a file of another kind, whose reads could hang or fail,
//! is refused.
//!
//! # Why references hold
//! The kernel refuses every write, mapping and truncation of a file sealed `WRITE | SHRINK`, whoever asks. So
//! `&[u8]` holds against any peer.

use super::make_huge;
use crate::error::{Broken, Error, HostFault};
use crate::host::Host;
use crate::sys::copy::{self, Stores};
use crate::sys::map::{Prot, Region};
use crate::sys::pages::MAX_SLOT_ALIGN;
use crate::sys::{self, Errno, fork, memfd};
use rustix::fd::{AsFd, OwnedFd};

/// Memory that is being filled.
#[derive(Debug)]
pub(crate) struct Draft {
    fd: OwnedFd,
    region: Region,
    _registered: fork::Registration,
}

impl Draft {
    /// Bytes that are made for `len` bytes.
    pub(crate) fn whole(len: usize, host: &Host) -> Result<usize, Error> {
        let align = Draft::align(host);
        let of = if len >= align / 2 { align } else { sys::page_bytes() };
        let whole = len.max(1).checked_next_multiple_of(of);
        Ok(whole.ok_or(sys::Failed { call: "mmap", errno: sys::Errno::NOMEM })?)
    }

    fn align(host: &Host) -> usize {
        host.slot_align().max(sys::page_bytes())
    }

    /// Makes zero memory for `len` bytes.
    pub(crate) fn new(len: usize, host: &Host) -> Result<Draft, Error> {
        let (whole, align) = (Draft::whole(len, host)?, Draft::align(host));
        let fd = memfd::create("pageferry-sealed", whole)?;
        let region = Region::reserve(whole, align)?;
        // SAFETY: the region is new. A child that had this mapping would keep the memory from being sealed.
        unsafe { region.map_shared_here(0, whole, Prot::ReadWrite, fd.as_fd())? };
        // SAFETY: as above. All memory is there from now on, so that a limit of memory bites here and not in a store.
        unsafe { make_huge(&region, host) };
        let registered = fork::register_memory(region.in_children(0, whole, whole, &fd));
        Ok(Draft { fd, region, _registered: registered })
    }

    pub(crate) fn len(&self) -> usize {
        self.region.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as the region lives; nobody else has the descriptor before the seal.
        unsafe { core::slice::from_raw_parts(self.region.at(0), self.region.len()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is alone.
        unsafe { core::slice::from_raw_parts_mut(self.region.at(0), self.region.len()) }
    }

    /// The first `len` bytes, to be overwritten.
    pub(crate) fn uninit_mut(&mut self, len: usize) -> &mut [core::mem::MaybeUninit<u8>] {
        let bytes = &mut self.bytes_mut()[..len];
        // SAFETY: the same memory and length; what callers store there is bytes.
        unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    /// Copies the first bytes of what was sealed: of the file, for this process may have stored to its mapping.
    pub(crate) fn copy_sealed(&mut self, from: &Snapshot, len: usize) -> Result<(), Error> {
        Ok(memfd::read_at(&from.fd, 0, &mut self.bytes_mut()[..len])?)
    }

    pub(crate) fn copy_in(&mut self, offset: usize, from: &[u8], stores: Stores) {
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= self.len()));
        // SAFETY: within the region, and ours alone.
        unsafe { copy::in_to(self.region.at(offset), from, stores) }
    }

    /// Seals it. Where somebody may still write to it, a device or a child that has it mapped, that fails for as long
    /// as they may; then a copy is sealed. What this process stores to it from now on is a fault, or, with
    /// `copy_on_write`, makes pages of its own.
    pub(crate) fn seal(self, host: &Host, copy_on_write: bool) -> Result<Snapshot, Error> {
        let prot = if copy_on_write { Prot::ReadWrite } else { Prot::Read };
        let (busy, draft) = match self.try_seal(prot) {
            Err((Error::Host(HostFault::Failed { failed }), draft)) if failed.errno == Errno::BUSY => {
                (failed, draft)
            }
            Err((error, _)) => return Err(error),
            Ok(snapshot) => return Ok(snapshot),
        };
        let mut copy = Draft::new(draft.len(), host)?;
        copy.copy_in(0, draft.bytes(), Stores::Ordinary);
        copy.try_seal(prot).map_err(|_| busy.into())
    }

    /// The mapping becomes private first, since a shared writable one makes the seal fail. The error brings the draft
    /// back, which can be read still.
    fn try_seal(self, prot: Prot) -> Result<Snapshot, (Error, Draft)> {
        let len = self.region.len();
        // SAFETY: nobody has a reference: `self` is given up.
        if let Err(failed) = unsafe { self.region.map_private(0, len, prot, self.fd.as_fd(), 0) } {
            return Err((failed.into(), self));
        }
        match memfd::seal(&self.fd, memfd::SNAPSHOT_SEALS) {
            Ok(()) => Ok(Snapshot { fd: self.fd, region: self.region, len }),
            Err(failed) => Err((failed.into(), self)),
        }
    }
}

/// Memory that nobody can write.
#[derive(Debug)]
pub(crate) struct Snapshot {
    fd: OwnedFd,
    region: Region,
    len: usize,
}

impl Snapshot {
    /// Maps what a peer has sent, if it is sealed and has at most `max` bytes. The error brings the descriptor back.
    pub(crate) fn open(fd: OwnedFd, max: u64) -> Result<Snapshot, (Error, OwnedFd)> {
        match Self::map(&fd, max) {
            Ok((region, len)) => Ok(Snapshot { fd, region, len }),
            Err(error) => Err((error, fd)),
        }
    }

    fn map(fd: &OwnedFd, max: u64) -> Result<(Region, usize), Error> {
        let what = "sealed memory";
        let seals = memfd::seals(fd)?;
        if !seals.contains(memfd::SNAPSHOT_SEALS.difference(rustix::fs::SealFlags::GROW))
            && !planted!(NoSealCheck)
        {
            return Err(Broken::NotSealed { what }.into());
        }
        let found = memfd::len(fd)?;
        if found == 0 || (found > max && !planted!(NoBudgetCheck)) {
            return Err(Broken::Size { what, found, expected: max }.into());
        }
        let len = usize::try_from(found).map_err(|_| Broken::Size { what, found, expected: max })?;
        let whole = len.next_multiple_of(sys::page_bytes());
        let region = Region::reserve(whole, MAX_SLOT_ALIGN.max(sys::page_bytes()))?;
        // SAFETY: the region is new. Reading a hole allocates its page here, so all of the file counts
        // against the budget.
        unsafe { region.map_shared(0, whole, Prot::Read, fd.as_fd(), 0)? };
        Ok((region, len))
    }

    /// Whether this process has pages of its own in the place of those that are sealed, or may have.
    pub(crate) fn is_written(&self, host: &Host) -> bool {
        !host.scan()
            || sys::pages::written_pages(&self.region, 0, self.region.len(), 1)
                .map_or(true, |pages| pages > 0)
    }

    /// To hand it on.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as the region lives, of the file's length, and nobody can write it.
        unsafe { core::slice::from_raw_parts(self.region.at(0), self.len) }
    }
}
