//! The object: the lower layer of a mapping (UVM paper, 3.1). A file, or a zero-fill area that is shared as a whole.
//!
//! An object is an array of pages, each resident in a frame that the object owns, or to be had from where its contents are:
//! see `pager`. It is referenced by map entries and by those who hold it as kernel objects (open files); with the last
//! reference its frames are let go. Private mappings see an object's pages read-only, and writing promotes a page to an
//! anon; shared mappings write the object's frames.
//!
//! Each object has its own lock of class `Object`; whoever maps one of its frames holds it. While a page moves between
//! frame and disk it is *busy*: the lock is not held, but nobody else may use the page, and who wants it sleeps and looks
//! again. Who moves it has a reference to the object, so that none dies with a page on its way. A page can be lacking
//! because no frame is free, because the pager or the disk cannot supply it, or because the object ends before it.

use crate::config::Kind;
use crate::error::VmError;
use crate::page::{Owner, SwapSlot};
use crate::vm::Vm;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use pageferry_hal::{Access, Channel, LockClass, Machine, PAGE_SIZE, Pfn, SpinLock, StructVa, Threads};

/// The pager could not supply a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the pager cannot supply page {page}")]
pub struct PagerError {
    /// The page of the object.
    pub page: u64,
}

/// Supplies the contents of an object's pages (`uvm_pagerops`, UVM paper, 3.1).
pub trait Pager: Send + Sync {
    /// Fills `bytes`, which are [`PAGE_SIZE`] and zero, with page `page`. Called under the object's lock: it must not
    /// sleep.
    ///
    /// # Errors
    /// [`PagerError`]; whoever wanted the page gets [`VmError::Fault`].
    fn get(&self, page: u64, bytes: &mut [u8]) -> Result<(), PagerError>;
}

/// Where an object's pages come from when they are first wanted. What is written to them afterwards goes to the swap area
/// when memory is short, and is gone with the object.
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
    /// Nowhere else: the frames are a device's, and stay.
    Device,
}

/// A block of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) at: u64,
    /// What is in it is the file's; before the first write it is whatever the last file left, and the page is clear.
    pub(crate) written: bool,
}

/// A `uvm_object`. Made by [`Vm::object`], [`Vm::file_object`] or [`Vm::device_object`]; every holder gives its reference
/// back with [`Vm::release_object`].
pub struct Object<M: Machine> {
    at: StructVa,
    pub(crate) store: Store,
    state: M::Lock<ObjectState>,
}

pub(crate) struct ObjectState {
    /// Map entries, holders, and who moves pages.
    refs: u32,
    len_pages: u64,
    pages: BTreeMap<u64, Pfn>,
    /// Pages that are on their way.
    busy: BTreeSet<u64>,
    /// Somebody sleeps until one of them has arrived.
    wanted: bool,
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

    /// True for a file: it can be mapped behind its end, and written back.
    pub fn is_file(&self) -> bool {
        matches!(self.store, Store::Disk)
    }

    /// Where the structure lies: names the object as long as it lives.
    pub(crate) fn struct_va(&self) -> StructVa {
        self.at
    }

    pub(crate) fn lock(&self) -> ObjectGuard<'_, M> {
        self.state.lock()
    }

    pub(crate) fn add_ref(&self, vm: &Vm<M>) {
        let mut state = self.lock();
        vm.machine().touch(self.at, vm.sizes().object_bytes, Access::Write);
        assert!(state.refs > 0, "a dead object gets no reference");
        state.refs = state.refs.checked_add(1).expect("object reference count overflows");
    }

    /// The caller has removed its mappings, and flushed.
    pub(crate) fn drop_ref(&self, vm: &Vm<M>) {
        let mut state = self.lock();
        vm.machine().touch(self.at, vm.sizes().object_bytes, Access::Write);
        assert!(state.refs > 0, "an object's references are counted wrongly");
        state.refs -= 1;
        if state.refs == 0 {
            assert!(state.busy.is_empty(), "an object dies while pages are on their way");
            let (pages, swap) = (core::mem::take(&mut state.pages), core::mem::take(&mut state.swap));
            for (page, slot) in swap {
                vm.swap().free(slot, !pages.contains_key(&page));
            }
            if matches!(self.store, Store::Device) {
                let mut table = vm.frames().lock();
                pages.values().for_each(|&frame| table.unwire(frame));
            }
            for frame in pages.into_values() {
                vm.frames().disown(frame);
            }
            drop(state);
            vm.structures().forget_object(self.at);
            vm.structures().free(Kind::Object, self.at);
        }
    }

    /// The frame of page `page`, filled if it was not resident and that takes no waiting.
    ///
    /// # Errors
    /// [`ObjectPageError`].
    pub(crate) fn page(
        self: &Arc<Self>,
        vm: &Vm<M>,
        state: &mut ObjectState,
        page: u64,
    ) -> Result<Pfn, ObjectPageError> {
        vm.machine().touch(self.at, vm.sizes().object_bytes, Access::Read);
        if page >= state.len_pages {
            return Err(ObjectPageError::BehindEnd);
        }
        if state.busy.contains(&page) {
            return Err(ObjectPageError::NotResident);
        }
        if let Some(&frame) = state.pages.get(&page) {
            return Ok(frame);
        }
        if self.is_on_disk(state, page) {
            return Err(ObjectPageError::NotResident);
        }
        let owner = Owner::Object(Arc::downgrade(self), page);
        let frame = vm.frames().alloc(owner).map_err(|_| ObjectPageError::NoMemory)?;
        if let Err(e) = self.fill(vm, frame, page) {
            vm.frames().free_busy(frame);
            return Err(e);
        }
        vm.publish_clean(frame, false);
        let old = state.pages.insert(page, frame);
        assert!(old.is_none(), "page {page} became resident twice");
        Ok(frame)
    }

    fn fill(&self, vm: &Vm<M>, frame: Pfn, page: u64) -> Result<(), ObjectPageError> {
        match &self.store {
            Store::Memory(Backing::Zero) | Store::Disk => {
                vm.zero(frame);
                Ok(())
            }
            Store::Memory(Backing::Pager(pager)) => {
                let mut bytes = vec![0; PAGE_SIZE];
                pager.get(page, &mut bytes).map_err(ObjectPageError::Pager)?;
                vm.store_frame(frame, &bytes).map_err(|_| ObjectPageError::NoMemory)
            }
            Store::Device => panic!("page {page} of a device is gone"),
        }
    }

    /// Gives page `page` another frame; returns the old one, which the caller lets go once nothing maps it.
    pub(crate) fn replace(&self, state: &mut ObjectState, page: u64, frame: Pfn) -> Pfn {
        state.pages.insert(page, frame).expect("only a resident page is replaced")
    }

    // ------------------------------------------------------------------------------------------- moving pages

    fn channel(&self) -> Channel {
        Channel(self.at.0.0)
    }

    /// Begins to move `page`; each of these is ended by [`Object::end_moves`].
    pub(crate) fn begin_move(&self, state: &mut ObjectState, page: u64) {
        assert!(state.refs > 0, "only a live object's pages are moved");
        let new = state.busy.insert(page);
        assert!(new, "page {page} is on its way already");
        state.refs += 1;
    }

    /// The moves of `pages` are over: wakes who waits, and gives the mover's references back.
    pub(crate) fn end_moves(
        &self,
        vm: &Vm<M>,
        t: &dyn Threads,
        mut state: ObjectGuard<'_, M>,
        pages: impl Iterator<Item = u64>,
    ) {
        let mut ended = 0;
        for page in pages {
            let was = state.busy.remove(&page);
            assert!(was, "page {page} was not on its way");
            ended += 1;
        }
        if core::mem::take(&mut state.wanted) {
            t.wakeup(self.channel());
        }
        assert!(ended > 0 && state.refs >= ended, "a mover has its references");
        // All but one, whose loss can be the object's end.
        state.refs -= ended - 1;
        drop(state);
        self.drop_ref(vm);
    }

    /// Sleeps until a page on its way has arrived; the caller looks again.
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

impl<M: Machine> Vm<M> {
    /// An object of `len_pages` pages, none of them resident yet. The caller holds the one reference.
    ///
    /// # Errors
    /// [`VmError::Invalid`] for a length of zero; [`VmError::NoMemory`].
    pub fn object(&self, len_pages: u64, backing: Backing) -> Result<Arc<Object<M>>, VmError> {
        if len_pages == 0 {
            return Err(VmError::Invalid);
        }
        self.new_object(len_pages, Store::Memory(backing), Vec::new())
    }

    /// An object whose pages are the blocks `blocks` of the disk, one each, which nobody has written yet: a file of clear
    /// pages. The caller holds the one reference; the blocks stay its own.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub fn file_object(&self, blocks: Vec<u64>) -> Result<Arc<Object<M>>, VmError> {
        let blocks: Vec<Block> = blocks.into_iter().map(|at| Block { at, written: false }).collect();
        self.new_object(blocks.len() as u64, Store::Disk, blocks)
    }

    /// An object whose `len_pages` pages are a device's memory, clear at first: they are always in the same frames, and are
    /// neither taken nor lent. The caller holds the one reference.
    ///
    /// # Errors
    /// [`VmError::Invalid`] for a length of zero; [`VmError::NoMemory`].
    pub fn device_object(&self, len_pages: u64) -> Result<Arc<Object<M>>, VmError> {
        if len_pages == 0 {
            return Err(VmError::Invalid);
        }
        let object = self.new_object(0, Store::Device, Vec::new())?;
        for page in 0..len_pages {
            let owner = Owner::Object(Arc::downgrade(&object), page);
            let frame = match self.frames().alloc(owner) {
                Ok(frame) => frame,
                Err(e) => {
                    object.drop_ref(self);
                    return Err(e);
                }
            };
            self.zero(frame);
            self.frames().publish(frame);
            self.frames().lock().wire(frame);
            let mut state = object.lock();
            state.pages.insert(page, frame);
            state.len_pages = page + 1;
        }
        Ok(object)
    }

    fn new_object(
        &self,
        len_pages: u64,
        store: Store,
        blocks: Vec<Block>,
    ) -> Result<Arc<Object<M>>, VmError> {
        let at = self.structures().alloc(Kind::Object)?;
        self.machine().touch(at, self.sizes().object_bytes, Access::Write);
        let state = ObjectState {
            refs: 1,
            len_pages,
            pages: BTreeMap::new(),
            busy: BTreeSet::new(),
            wanted: false,
            swap: BTreeMap::new(),
            blocks,
        };
        let state = self.machine().new_lock(LockClass::Object, state);
        let object = Arc::new(Object { at, store, state });
        self.structures().register_object(&object);
        Ok(object)
    }

    /// Gives the caller's reference back. Mappings of the object keep it alive.
    pub fn release_object(&self, object: Arc<Object<M>>) {
        object.drop_ref(self);
    }
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backing::Zero => "Zero",
            Backing::Pager(_) => "Pager",
        })
    }
}
