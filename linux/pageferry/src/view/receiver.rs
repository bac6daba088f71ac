//! A pool as the receiver sees it.
//!
//! # What it holds
//! `read`: a private view of the whole pool, read-only except where a message is being written to: there the
//! kernel copies each page that is written. `memory`: the pool's descriptor; or, of a leased channel, the slots,
//! which this side has made, and which `leased_receiver` leases. `donated`: for channels with donations, a shared
//! view of which only what was donated is accessible. `shared`: made at the first message that is shared.
//!
//! # Why references hold
//! `&[u8]` of memory that another process can change is undefined behaviour. So references are given only for
//! messages of a peer that is trusted as this process trusts itself (`trust::Same`): it runs this library,
//! which freezes what it lends, or keeps it by its types ([`Level::Typed`]); and for leased messages of a peer
//! that was started confined. Of everybody else's pool bytes are only copied out.

use super::leased_receiver::LeasedPool;
use super::{Geometry, Run, Slots};
use crate::error::{Broken, Error};
use crate::host::Host;
use crate::sys::copy::{self, Stores};
use crate::sys::map::{Prot, Region};
use crate::sys::pages::MAX_SLOT_ALIGN;
use crate::sys::socket::Socket;
use crate::sys::{self, fork, memfd};
use crate::wire::Level;
use core::mem::MaybeUninit;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use std::sync::{Arc, OnceLock};

/// How a receiver is to map a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// The peer has not sealed it against writing yet, and will.
    pub(crate) sealed_later: bool,
    /// Slots will be donated.
    pub(crate) donations: bool,
    /// Messages are read where they lie, so translations are made now. Where they are only copied, a pool of holes
    /// would be allocated at our expense.
    pub(crate) in_place: bool,
}

/// The pool as its receiver sees it.
#[derive(Debug)]
pub(crate) struct ReceiverView {
    geometry: Geometry,
    slots: Slots,
    read: Arc<Region>,
    donated: Option<Region>,
    shared: OnceLock<Region>,
    memory: Memory,
    huge: bool,
}

/// What the slots are of.
#[derive(Debug)]
enum Memory {
    Pool(OwnedFd),
    Leased(Arc<LeasedPool>),
}

impl ReceiverView {
    /// Maps a pool that a peer has made.
    pub(crate) fn new(
        geometry: Geometry,
        fd: OwnedFd,
        access: Access,
        host: &Host,
    ) -> Result<ReceiverView, Error> {
        let len = geometry.bytes();
        let wanted = if access.sealed_later {
            memfd::POOL_SEALS.difference(memfd::SEALED_LATER)
        } else {
            memfd::POOL_SEALS
        };
        Self::verify(&fd, wanted, len)?;
        let align = host.slot_align().max(sys::page_bytes());
        let donated = if access.donations {
            let region = Region::reserve(len, align)?;
            // SAFETY: the region is new.
            unsafe { region.map_shared_here(0, len, Prot::ReadWrite, fd.as_fd()) }.map_err(of_pool)?;
            // SAFETY: as above. It may become writable again, by `protect`, also under the seal.
            unsafe { region.protect(0, len, Prot::None)? };
            region.keep_apart(geometry.slot_bytes);
            Some(region)
        } else {
            None
        };
        // Another descriptor, which cannot be written through; where /proc is not there, the seal alone does it.
        let fd = match host.proc().then(|| memfd::reopen(fd.as_fd(), OFlags::RDONLY)) {
            Some(Ok(reopened)) => reopened,
            // The peer has taken the file's mode away, or holds a lease on it: the descriptor that came serves as well.
            Some(Err(failed))
                if !matches!(failed.errno, sys::Errno::ACCESS | sys::Errno::PERM | sys::Errno::AGAIN) =>
            {
                return Err(failed.into());
            }
            _ => fd,
        };
        let read = Region::reserve(len, align)?;
        // SAFETY: the region is new.
        unsafe { read.map_private(0, len, Prot::Read, fd.as_fd(), 0)? };
        read.keep_apart(geometry.slot_bytes);
        let mut view = ReceiverView {
            geometry,
            slots: Slots::new(geometry.slots),
            read: Arc::new(read),
            donated,
            shared: OnceLock::new(),
            memory: Memory::Pool(fd),
            huge: false,
        };
        if !access.in_place {
            return Ok(view);
        }
        // SAFETY: mapped readable, and the file cannot shrink.
        unsafe { view.read.touch(0, len, MAX_SLOT_ALIGN) };
        view.huge = host.is_huge(&view.read, 0, len);
        if !view.huge {
            // SAFETY: as above.
            unsafe { view.read.touch(0, len, sys::page_bytes()) };
        }
        Ok(view)
    }

    /// Makes slots for a leased channel; with a descriptor of each, for the peer.
    pub(crate) fn leased(geometry: Geometry, host: &Host) -> Result<(ReceiverView, Vec<OwnedFd>), Error> {
        let align = host.slot_align().max(sys::page_bytes());
        let read = Arc::new(Region::reserve(geometry.bytes(), align)?);
        let (leased, theirs, huge) = LeasedPool::new(geometry, &read, host)?;
        let (slots, memory) = (Slots::new(geometry.slots), Memory::Leased(leased));
        let view =
            ReceiverView { geometry, slots, read, donated: None, shared: OnceLock::new(), memory, huge };
        Ok((view, theirs))
    }

    /// Makes sure that nobody can write to a lent run; whether that is so. Without leases there is nothing to do.
    pub(crate) fn hold(&self, run: &Run) -> Result<bool, Error> {
        match &self.memory {
            Memory::Pool(_) => Ok(true),
            Memory::Leased(leased) => leased.take(run),
        }
    }

    /// The run is not read any more; whether it was whole all the time, so that it may be given back.
    pub(crate) fn let_go(&self, run: &Run) -> bool {
        match &self.memory {
            Memory::Pool(_) => true,
            Memory::Leased(leased) => leased.give_up(run),
        }
    }

    /// Whether the peer has tried to write to what it had lent.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(&self.memory, Memory::Leased(leased) if leased.is_broken())
    }

    fn verify(fd: &OwnedFd, wanted: rustix::fs::SealFlags, len: usize) -> Result<(), Error> {
        let seals = memfd::seals(fd)?;
        if !seals.contains(wanted) && !planted!(NoSealCheck) {
            return Err(Broken::NotSealed { what: "pool" }.into());
        }
        let found = memfd::len(fd)?;
        if found != len as u64 && !planted!(NoSizeCheck) {
            return Err(Broken::Size { what: "pool", found, expected: len as u64 }.into());
        }
        Ok(())
    }

    /// The peer says that it has sealed the pool: has it?
    pub(crate) fn verify_sealed(&self) -> Result<(), Error> {
        match &self.memory {
            Memory::Pool(fd) if !planted!(NoLateSealCheck) => {
                Self::verify(fd, memfd::POOL_SEALS, self.geometry.bytes())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Enters the process's registry of what `fork` must keep away from children, and of what a child sees
    /// all the same.
    pub(crate) fn register(&self, socket: &Socket) -> fork::Registration {
        let memory = match (&self.donated, &self.memory) {
            (Some(donated), Memory::Pool(fd)) => {
                vec![donated.in_children(0, donated.len(), self.geometry.slot_bytes, fd)]
            }
            _ => Vec::new(),
        };
        fork::register(socket.as_fd(), memory)
    }

    /// Whether huge pages lie behind it.
    pub(crate) fn huge(&self) -> bool {
        self.huge
    }

    fn part(&self, run: &Run) -> (usize, usize) {
        (self.geometry.offset(run), self.geometry.len(run))
    }

    /// The bytes of a loan or of a donation.
    pub(crate) fn bytes<'a>(
        &'a self,
        run: &'a Run,
        offset: usize,
        len: usize,
        level: Level,
        donated: bool,
    ) -> &'a [u8] {
        let (at, whole) = self.part(run);
        assert!(offset.checked_add(len).is_some_and(|end| end <= whole));
        debug_assert!(level != Level::Copy, "what is to be copied is not looked at in place");
        debug_assert!((level == Level::Leased) == matches!(self.memory, Memory::Leased(_)));
        let region = self.region(donated);
        // SAFETY: mapped readable and initialised. Nobody here has `&mut Run`; the peer is trusted to leave
        // the run alone (see the top).
        unsafe { core::slice::from_raw_parts(region.at(at + offset), len) }
    }

    /// The same, to be written to; [`ReceiverView::own`] came before.
    pub(crate) fn bytes_mut<'a>(
        &'a self,
        run: &'a mut Run,
        offset: usize,
        len: usize,
        donated: bool,
    ) -> &'a mut [u8] {
        let (at, whole) = self.part(run);
        assert!(offset.checked_add(len).is_some_and(|end| end <= whole));
        let region = self.region(donated);
        // SAFETY: as for `bytes`; `&mut Run` makes it the only reference, and the run is mapped writable.
        unsafe { core::slice::from_raw_parts_mut(region.at(at + offset), len) }
    }

    fn region(&self, donated: bool) -> &Region {
        match &self.donated {
            Some(region) if donated => region,
            _ => &self.read,
        }
    }

    /// Makes a lent run writable: the kernel copies each page at the first store.
    pub(crate) fn own(&self, run: &mut Run) -> Result<(), Error> {
        let (at, len) = self.part(run);
        // SAFETY: more is permitted than before.
        unsafe { self.read.protect(at, len, Prot::ReadWrite)? };
        Ok(())
    }

    /// Pages of a run that was made writable that were written; `None` where the kernel cannot say.
    pub(crate) fn written_pages(&self, run: &Run, host: &Host) -> Option<u64> {
        let (at, len) = self.part(run);
        if host.scan() { sys::pages::written_pages(&self.read, at, len, 0).ok() } else { None }
    }

    /// What was written to the run, if anything may have been, is forgotten, and it is read-only again.
    pub(crate) fn disown(&self, run: &mut Run, written: bool) -> Result<(), Error> {
        let (at, len) = self.part(run);
        // SAFETY: `&mut Run`: nobody has a reference into the run.
        unsafe {
            // Without it the pages stay mapped, for the next message to be read without faults.
            if written && !planted!(NoDontNeed) {
                self.read.dont_need(at, len)?;
            }
            self.read.protect(at, len, Prot::Read)?;
        }
        Ok(())
    }

    /// Opens a run that was donated.
    pub(crate) fn take(&self, run: &mut Run) -> Result<(), Error> {
        let (at, len) = self.part(run);
        let region = self.donated.as_ref().expect("the channel has donations: `admit` has looked");
        // SAFETY: more is permitted than before.
        unsafe { region.protect(at, len, Prot::ReadWrite)? };
        Ok(())
    }

    /// Closes a run that was donated.
    pub(crate) fn give_up(&self, run: &mut Run) -> Result<(), Error> {
        let (at, len) = self.part(run);
        let region = self.donated.as_ref().expect("the channel has donations: `admit` has looked");
        let prot = if planted!(NoGiveUp) { Prot::ReadWrite } else { Prot::None };
        // SAFETY: `&mut Run`: nobody has a reference into the run.
        unsafe { region.protect(at, len, prot)? };
        Ok(())
    }

    /// Copies bytes out, each read once. The peer may be writing them: the copy is a value, of whatever was there.
    pub(crate) fn copy_out(&self, run: &Run, offset: usize, to: &mut [MaybeUninit<u8>], stores: Stores) {
        let (at, whole) = self.part(run);
        assert!(offset.checked_add(to.len()).is_some_and(|end| end <= whole));
        // SAFETY: mapped readable; the file cannot shrink.
        unsafe { copy::out_of(to, self.read.at(at + offset), stores) }
    }

    /// Where a shared run is. Both sides may write it, so there is no reference to it.
    pub(crate) fn shared(&self, run: &Run, offset: usize) -> Result<*const u8, Error> {
        let Memory::Pool(fd) = &self.memory else {
            unreachable!("a leased channel does not share: `admit` has looked")
        };
        if self.shared.get().is_none() {
            let len = self.geometry.bytes();
            let region = Region::reserve(len, MAX_SLOT_ALIGN.max(sys::page_bytes()))?;
            // SAFETY: the region is new.
            unsafe { region.map_shared_here(0, len, Prot::Read, fd.as_fd())? };
            let _ = self.shared.set(region);
        }
        let region = self.shared.get().expect("it was set just now");
        Ok(region.at(self.geometry.offset(run) + offset).cast_const())
    }

    /// Copies bytes of a shared run out, each read once.
    pub(crate) fn copy_shared(
        &self,
        run: &Run,
        offset: usize,
        to: &mut [MaybeUninit<u8>],
    ) -> Result<(), Error> {
        let (_, whole) = self.part(run);
        assert!(offset.checked_add(to.len()).is_some_and(|end| end <= whole));
        let from = self.shared(run, offset)?;
        // SAFETY: within the run, and mapped readable.
        unsafe { copy::out_of(to, from, Stores::Ordinary) }
        Ok(())
    }

    /// The same, to bytes that have a value.
    pub(crate) fn read_shared(&self, run: &Run, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the same memory and length; bytes are stored there and nothing else.
        let to = unsafe { core::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), to.len()) };
        self.copy_shared(run, offset, to)
    }
}

/// A pool that cannot be mapped as it was agreed is its peer's fault: it was sealed too early, or opened otherwise.
fn of_pool(failed: sys::Failed) -> Error {
    match failed.errno {
        sys::Errno::ACCESS | sys::Errno::PERM if failed.call == "mmap" => {
            Broken::NotSealed { what: "pool" }.into()
        }
        _ => failed.into(),
    }
}
