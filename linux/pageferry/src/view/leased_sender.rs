//! Slots that the receiver has made, as the sender uses them.
//!
//! # What it holds
//! [`LeasedSlots`]: a descriptor for reading of each slot's memfd. A slot is *opened* by opening its memfd once more
//! for writing, by its name in /proc, and mapping it shared; that descriptor is closed at once, and the mapping alone
//! makes this process a writer. It is *frozen* by a private mapping in the place of the shared one: then no writer is
//! left, and the receiver is granted its lease.
//!
//! # What must not be
//! A child that this process makes while a slot is open would be a writer that nobody knows of. So shared mappings
//! stay out of children, and none is made between the open and that.

use crate::error::{Broken, Error};
use crate::sys::map::{Prot, Region};
use crate::sys::pages::MAX_SLOT_ALIGN;
use crate::sys::{Errno, fork, memfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, SealFlags};
use std::collections::HashSet;

/// The receiver's slots, as the sender fills and freezes them.
#[derive(Debug)]
pub(super) struct LeasedSlots {
    fds: Vec<OwnedFd>,
    slot_bytes: usize,
}

impl LeasedSlots {
    /// Looks at slots that came from the receiver, and freezes all of them in the region.
    pub(super) fn new(fds: Vec<OwnedFd>, region: &Region, slot_bytes: usize) -> Result<LeasedSlots, Error> {
        const WHAT: &str = "slot";
        let mut files = HashSet::new();
        for fd in &fds {
            let seals = memfd::seals(fd).map_err(|_| Broken::NotSealed { what: WHAT })?;
            // It can be written, so a seal against that would be as wrong as none against shrinking.
            let forbidden = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
            if !seals.contains(SealFlags::SHRINK) || seals.intersects(forbidden) {
                return Err(Broken::NotSealed { what: WHAT }.into());
            }
            if !files.insert(memfd::number(fd)?) {
                return Err(Broken::Handshake("two slots are the same memory").into());
            }
            let found = memfd::len(fd)?;
            if found != slot_bytes as u64 {
                return Err(Broken::Size { what: WHAT, found, expected: slot_bytes as u64 }.into());
            }
        }
        let slots = LeasedSlots { fds, slot_bytes };
        for slot in 0..slots.fds.len() as u32 {
            // SAFETY: the region is new.
            unsafe { slots.freeze(region, slot, Prot::Read)? };
        }
        // SAFETY: mapped readable, and the files cannot shrink.
        unsafe { region.touch(0, region.len(), MAX_SLOT_ALIGN.min(slot_bytes)) };
        Ok(slots)
    }

    fn at(&self, slot: u32) -> usize {
        slot as usize * self.slot_bytes
    }

    fn fd(&self, slot: u32) -> &OwnedFd {
        &self.fds[slot as usize]
    }

    /// What a child maps for itself.
    pub(super) fn memory(&self, region: &Region) -> Vec<fork::Memory> {
        let memory = |(fd, slot)| region.in_children(self.at(slot), self.slot_bytes, self.slot_bytes, fd);
        self.fds.iter().zip(0..).map(memory).collect()
    }

    /// Makes a slot shared and writable.
    ///
    /// # Safety
    /// Nobody has a reference into the slot.
    pub(super) unsafe fn open(&self, region: &Region, slot: u32) -> Result<(), Error> {
        fork::without_children(|| {
            let flags = OFlags::RDWR | OFlags::NONBLOCK;
            let writable =
                memfd::reopen(self.fd(slot).as_fd(), flags).map_err(|failed| match failed.errno {
                    Errno::AGAIN => Error::from(Broken::LeaseKept),
                    Errno::ACCESS | Errno::PERM => Broken::SlotClosed.into(),
                    _ => failed.into(),
                })?;
            let (at, len) = (self.at(slot), self.slot_bytes);
            // SAFETY: as the caller promises.
            unsafe { region.map_shared(at, len, Prot::ReadWrite, writable.as_fd(), 0)? };
            if !planted!(NoDontFork) {
                region.dont_fork(at, len)?;
            }
            Ok(())
        })
    }

    /// Makes a slot private.
    ///
    /// # Safety
    /// Nobody has a `&mut` into the slot.
    pub(super) unsafe fn freeze(&self, region: &Region, slot: u32, prot: Prot) -> Result<(), Error> {
        let fd = self.fd(slot).as_fd();
        // SAFETY: the bytes stay the same.
        unsafe { region.map_private(self.at(slot), self.slot_bytes, prot, fd, 0)? };
        Ok(())
    }
}
