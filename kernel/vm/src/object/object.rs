//! The object: the lower layer of a mapping (UVM paper, 3.1). A file, or a zero-fill area that is shared as a whole.
//!
//! An object is an array of pages, each resident in a frame that the object owns, or to be had from where its contents
//! are: see `pager`. It is referenced by map entries and by holders of kernel objects (open files); with the last
//! reference its frames are released. Private mappings see an object's pages read-only, and writing promotes a page to
//! an anon; shared mappings write the object's frames.
//!
//! Each object has its own lock of class `Object`; it must be held to map one of its frames. While a page moves between
//! frame and disk it is *busy*: the lock is not held, but only the mover may use the page; a thread that wants it
//! sleeps and retries. The mover has a reference to the object, so that none dies with a page on its way. A page can be
//! lacking because no frame is free, because the pager or the disk cannot supply it, or because the object ends before
//! it.

use crate::error::VmError;
use crate::page::SwapSlot;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use pageferry_hal::{Channel, Machine, Pfn, SpinLock, StructVa, Threads};

/// The pager could not supply a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the pager cannot supply page {page}")]
pub struct PagerError {
    /// The page of the object.
    pub page: u64,
}

/// Supplies the contents of an object's pages (`uvm_pagerops`, UVM paper, 3.1).
pub trait Pager: Send + Sync {
    /// Fills `bytes`, which are [`pageferry_hal::PAGE_SIZE`] and zero, with page `page`. Called under the object's
    /// lock: it must not sleep.
    ///
    /// # Errors
    /// [`PagerError`]; the call that wanted the page fails with [`crate::VmError::Fault`].
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError>;
}

/// Moves the pages of a file between frames and the file system that has it (`vnode_pager`).
pub trait VnodePager {
    /// Fills `frame` with page `page` of the file; what lies behind the file's end is clear. Called with no lock held:
    /// it may sleep. Nobody else uses the frame meanwhile.
    ///
    /// # Errors
    /// [`VmError::Io`], or [`VmError::NoMemory`] where the file system found none; the call that wanted the page fails
    /// so.
    fn get(&self, t: &dyn Threads, page: u64, frame: Pfn) -> Result<(), VmError>;

    /// Writes `frame` to page `page` of the file, as far as the file goes. Called with no lock held: it may sleep.
    /// Others may store to the frame meanwhile.
    ///
    /// # Errors
    /// As [`VnodePager::get`]; the page stays modified.
    fn put(&self, t: &dyn Threads, page: u64, frame: Pfn) -> Result<(), VmError>;
}

/// Where an object's pages come from when they are first wanted. What is written to them afterwards goes to the swap
/// area when memory is short, and is gone with the object.
#[derive(Clone)]
pub enum Backing {
    /// They are clear.
    Zero,
    /// A pager supplies them.
    Pager(Arc<dyn Pager>),
}

/// Where the contents of an object's pages are while no frame has them.
pub(crate) enum Store {
    /// See [`Backing`].
    Memory(Backing),
    /// In blocks of the disk: a file.
    Disk,
    /// In a file of a file system of its own. What memory has no room for goes to the swap area: the page daemon must
    /// not wait for a file system, which may be waiting for memory.
    Vnode(Arc<dyn VnodePager>),
    /// Nowhere else: the frames are a device's, and stay.
    Device,
    /// Nowhere else: the frames were the kernel's, and are shown to a process until the kernel has them back.
    Window,
    /// In the swap area, or in the object that this one shadows: the memory of a copy-on-write mapping, where it is
    /// made of shadow objects ([`crate::Anonymous::Shadows`]). A page that is in none of them is clear.
    Internal,
}

/// A block of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) at: u64,
    /// What is in it is the file's; before the first write it is whatever the last file left, and the page is clear.
    pub(crate) written: bool,
}

/// A `uvm_object`. Made by [`crate::Vm::object`], [`crate::Vm::file_object`] or [`crate::Vm::device_object`]; every
/// holder gives its reference back with [`crate::Vm::release_object`].
pub struct Object<M: Machine> {
    pub(super) at: StructVa,
    pub(crate) store: Store,
    /// That of its first page, where pages have colours that the kernel gives them.
    pub(crate) first_colour: u32,
    pub(super) state: M::Lock<ObjectState>,
}

pub(crate) struct ObjectState {
    /// Map entries, holders, and movers of pages.
    pub(super) refs: u32,
    pub(super) len_pages: u64,
    pub(super) pages: BTreeMap<u64, Pfn>,
    /// Pages that are on their way.
    pub(super) busy: BTreeSet<u64>,
    /// A thread sleeps until one of them has arrived.
    pub(super) wanted: bool,
    /// Pages that are in the swap area, perhaps besides a frame.
    pub(crate) swap: BTreeMap<u64, SwapSlot>,
    /// A file's blocks, one for each page.
    pub(crate) blocks: Vec<Block>,
}

pub(crate) type ObjectGuard<'a, M> = <<M as Machine>::Lock<ObjectState> as SpinLock<ObjectState>>::Guard<'a>;

impl ObjectState {
    pub(crate) fn refs(&self) -> u32 {
        self.refs
    }

    /// One reference goes that is not the last; what is done with the last is [`Object::drop_ref`]'s.
    pub(crate) fn forget_ref(&mut self) {
        self.refs -= 1;
    }

    /// The same, if it is not the last; else nothing happens, and the answer is no.
    pub(crate) fn forget_ref_unless_last(&mut self) -> bool {
        let others = self.refs > 1;
        self.refs -= u32::from(others);
        others
    }

    pub(crate) fn len_pages(&self) -> u64 {
        self.len_pages
    }

    pub(crate) fn set_len_pages(&mut self, len_pages: u64) {
        self.len_pages = len_pages;
    }

    /// The resident pages, in order. Busy ones among them are on their way out.
    pub(crate) fn pages(&self) -> &BTreeMap<u64, Pfn> {
        &self.pages
    }

    pub(crate) fn pages_mut(&mut self) -> &mut BTreeMap<u64, Pfn> {
        &mut self.pages
    }

    pub(crate) fn busy(&self) -> &BTreeSet<u64> {
        &self.busy
    }
}

impl<M: Machine> Object<M> {
    /// Length in pages.
    ///
    /// # Locks
    /// Takes the object's lock.
    pub fn len_pages(&self) -> u64 {
        self.lock().len_pages
    }

    /// Pages that are in frames.
    ///
    /// # Locks
    /// Takes the object's lock.
    pub fn resident_pages(&self) -> usize {
        self.lock().pages.len()
    }

    /// The frame of page `page` of a device's memory, which is always there.
    ///
    /// # Panics
    /// When this is no device, or has no such page.
    ///
    /// # Locks
    /// Takes the object's lock.
    pub fn device_frame(&self, page: u64) -> Pfn {
        assert!(matches!(self.store, Store::Device), "only a device's frames stay where they are");
        self.lock().pages[&page]
    }

    /// True for a file of either kind: it can be mapped behind its end, and written back.
    pub fn is_file(&self) -> bool {
        matches!(self.store, Store::Disk | Store::Vnode(_))
    }

    /// True for one whose pages are the kernel's to give and to take.
    pub(crate) fn is_window(&self) -> bool {
        matches!(self.store, Store::Window)
    }

    /// True for an object that can stand in a chain with another behind it.
    pub(crate) fn is_internal(&self) -> bool {
        matches!(self.store, Store::Internal)
    }

    /// Where the structure lies: names the object as long as it lives.
    pub(crate) fn struct_va(&self) -> StructVa {
        self.at
    }

    pub(crate) fn lock(&self) -> ObjectGuard<'_, M> {
        self.state.lock()
    }

    /// For who has locked what comes behind it.
    pub(crate) fn try_lock(&self) -> Option<ObjectGuard<'_, M>> {
        self.state.try_lock()
    }

    /// Gives page `page` another frame; returns the old one, which the caller releases once nothing maps it.
    pub(crate) fn replace(&self, state: &mut ObjectState, page: u64, frame: Pfn) -> Pfn {
        state.pages.insert(page, frame).expect("only a resident page is replaced")
    }

    pub(super) fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// Begins to move `page`; each of these is ended by [`Object::end_moves`].
    pub(crate) fn begin_move(&self, state: &mut ObjectState, page: u64) {
        assert!(state.refs > 0, "only a live object's pages are moved");
        let new = state.busy.insert(page);
        assert!(new, "page {page} is on its way already");
        state.refs += 1;
    }

    /// Sleeps until a page on its way has arrived; the caller retries.
    pub(crate) fn wait_for_moves(&self, t: &dyn Threads, mut state: ObjectGuard<'_, M>) {
        state.wanted = true;
        let mut held = Some(state);
        let slept = t.sleep(self.channel(), "page on its way", false, &mut || drop(held.take()));
        assert!(slept.is_ok(), "this sleep is not interruptible");
    }
}

/// Why a page of an object cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ObjectPageError {
    NoMemory,
    Pager(PagerError),
    /// It is on the disk or on its way: [`Object::fetch`] waits for it, with no lock held.
    NotResident,
    BehindEnd,
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backing::Zero => "Zero",
            Backing::Pager(_) => "Pager",
        })
    }
}
