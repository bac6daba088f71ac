//! An object's life: making it, referring to it, having its pages filled, and its end.
//!
//! References are counted under the object's lock; with the last one its frames and slots are given back. A page that
//! takes no waiting is filled under the lock as well; what must come from the disk is the pager's. Making an object
//! fails for want of a structure, and a device also for want of frames; nothing is left of it then.

use super::object::{Backing, Block, Object, ObjectGuard, ObjectPageError, ObjectState, Store, VnodePager};
use crate::config::Kind;
use crate::error::VmError;
use crate::page::{Owner, SwapSlot, WantedFrame};
use crate::vm::Vm;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use pageferry_hal::{Access, LockClass, Machine, PAGE_SIZE, Pfn, Threads};

/// The pages of an object, and its slots of the swap area.
pub(crate) type Contents = (BTreeMap<u64, Pfn>, BTreeMap<u64, SwapSlot>);

impl<M: Machine> Object<M> {
    /// A frame for a page of the object, of its colour where pages have colours.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn frame_for(
        self: &Arc<Self>,
        vm: &Vm<M>,
        page: u64,
        wanted: fn(Option<u32>) -> WantedFrame,
    ) -> Result<Pfn, VmError> {
        let colour = vm.frames().colour_of_page(self.first_colour, page);
        vm.frames().alloc(Owner::Object(Arc::downgrade(self), page), wanted(colour))
    }

    pub(crate) fn add_ref(&self, vm: &Vm<M>) {
        let mut state = self.lock();
        vm.machine().touch(self.at, vm.sizes().object_bytes, Access::Write);
        assert!(state.refs > 0, "a dead object gets no reference");
        state.refs = state.refs.checked_add(1).expect("object reference count overflows");
    }

    /// The caller has removed its mappings, and flushed. With the last reference goes that on the object behind, one
    /// after the other, however long the chain.
    pub(crate) fn drop_ref(&self, vm: &Vm<M>) {
        let mut behind = self.drop_one(vm);
        while let Some(object) = behind {
            behind = object.drop_one(vm);
        }
    }

    /// Drops one reference; the last one gives the object's on the object behind it to the caller.
    fn drop_one(&self, vm: &Vm<M>) -> Option<Arc<Object<M>>> {
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
            if matches!(self.store, Store::Device | Store::Window) {
                let mut table = vm.frames().lock();
                pages.values().for_each(|&frame| table.unwire(frame));
            }
            for frame in pages.into_values() {
                vm.frames().disown(frame);
            }
            drop(state);
            let behind = if self.is_internal() { vm.chains().remove(self) } else { None };
            vm.structures().forget_object(self.at);
            vm.structures().free(Kind::Object, self.at);
            return behind.map(|behind| behind.object);
        }
        None
    }

    /// The frame of page `page` if the object has it, or fills it itself; none if only an object behind can have it.
    ///
    /// # Errors
    /// [`ObjectPageError`].
    pub(crate) fn page_in_chain(
        self: &Arc<Self>,
        vm: &Vm<M>,
        state: &mut ObjectState,
        page: u64,
    ) -> Result<Option<Pfn>, ObjectPageError> {
        let has = !self.is_internal() || self.has_page(state, page);
        if !has {
            vm.machine().touch(self.at, vm.sizes().object_bytes, Access::Read);
            return Ok(None);
        }
        self.page(vm, state, page).map(Some)
    }

    /// True when the object has contents for `page`, wherever they are.
    pub(crate) fn has_page(&self, state: &ObjectState, page: u64) -> bool {
        state.pages.contains_key(&page) || state.swap.contains_key(&page) || state.busy.contains(&page)
    }

    /// Another reference, if there is one.
    pub(crate) fn add_ref_if_alive(&self) -> bool {
        let mut state = self.lock();
        state.refs += u32::from(state.refs > 0);
        state.refs > 0
    }

    /// One of two objects has become the other: takes all that it has, and its last reference. Its structure is still
    /// to be given back, with [`Object::bury`].
    pub(crate) fn take_all(&self, state: &mut ObjectState) -> Contents {
        assert!(state.refs == 1 && state.busy.is_empty(), "only what nobody else knows is taken");
        state.refs = 0;
        (core::mem::take(&mut state.pages), core::mem::take(&mut state.swap))
    }

    /// Gives back the structure of an object of which nothing is left.
    pub(crate) fn bury(&self, vm: &Vm<M>) {
        vm.structures().forget_object(self.at);
        vm.structures().free(Kind::Object, self.at);
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
        let found = state.pages.get(&page).copied();
        vm.frames().look_up(self, page, found);
        if let Some(frame) = found {
            return Ok(frame);
        }
        if self.is_on_disk(state, page) {
            return Err(ObjectPageError::NotResident);
        }
        if self.is_window() {
            return Err(ObjectPageError::BehindEnd);
        }
        let wanted = match self.store {
            Store::Memory(Backing::Zero) => WantedFrame::clear,
            _ => WantedFrame::of,
        };
        let frame = self.frame_for(vm, page, wanted).map_err(|_| ObjectPageError::NoMemory)?;
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
            Store::Memory(Backing::Zero) | Store::Disk | Store::Internal => {
                vm.zero(frame);
                Ok(())
            }
            Store::Memory(Backing::Pager(pager)) => {
                let mut bytes = vec![0; PAGE_SIZE];
                pager.get(page, &mut bytes).map_err(ObjectPageError::Pager)?;
                vm.store_frame(frame, &bytes).map_err(|_| ObjectPageError::NoMemory)
            }
            Store::Vnode(_) => panic!("page {page} of a file is to be fetched"),
            Store::Device => panic!("page {page} of a device is gone"),
            Store::Window => panic!("page {page} of a window is the kernel's to give"),
        }
    }

    /// The moves of `pages` are over: wakes the threads that wait, and gives the mover's references back.
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

    /// An object whose pages are the blocks `blocks` of the disk, one each, which are not written yet: a file of clear
    /// pages. The caller holds the one reference; the blocks stay its own.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub fn file_object(&self, blocks: Vec<u64>) -> Result<Arc<Object<M>>, VmError> {
        let blocks: Vec<Block> = blocks.into_iter().map(|at| Block { at, written: false }).collect();
        self.new_object(blocks.len() as u64, Store::Disk, blocks)
    }

    /// An object whose pages are those of a file of a file system, which `pager` moves. The caller holds the one
    /// reference, and gives it back with [`Vm::end_vnode`].
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub fn vnode_object(
        &self,
        len_pages: u64,
        pager: Arc<dyn VnodePager>,
    ) -> Result<Arc<Object<M>>, VmError> {
        self.new_object(len_pages, Store::Vnode(pager), Vec::new())
    }

    /// An object whose `len_pages` pages are a device's memory, clear at first: they are always in the same frames, and
    /// are neither taken nor lent. The caller holds the one reference.
    ///
    /// # Errors
    /// [`VmError::Invalid`] for a length of zero; [`VmError::NoMemory`].
    pub fn device_object(&self, len_pages: u64) -> Result<Arc<Object<M>>, VmError> {
        if len_pages == 0 {
            return Err(VmError::Invalid);
        }
        let first_colour = self.frames().next_first_colour(len_pages);
        let object = self.object_of_colour(first_colour, 0, Store::Device, Vec::new())?;
        for page in 0..len_pages {
            let frame = match object.frame_for(self, page, WantedFrame::clear) {
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

    /// A window of `len_pages` pages, none of which is shown yet. The caller holds the one reference.
    ///
    /// # Errors
    /// [`VmError::Invalid`] for a length of zero; [`VmError::NoMemory`].
    pub(crate) fn window_object(&self, len_pages: u64) -> Result<Arc<Object<M>>, VmError> {
        if len_pages == 0 {
            return Err(VmError::Invalid);
        }
        self.new_object(len_pages, Store::Window, Vec::new())
    }

    /// An object of `len_pages` pages that are in none of its frames yet, for a copy-on-write mapping. The first one
    /// has this colour. The caller holds the one reference, and puts it in the chains.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub(crate) fn internal_object(
        &self,
        len_pages: u64,
        first_colour: u32,
    ) -> Result<Arc<Object<M>>, VmError> {
        self.object_of_colour(first_colour, len_pages, Store::Internal, Vec::new())
    }

    fn new_object(
        &self,
        len_pages: u64,
        store: Store,
        blocks: Vec<Block>,
    ) -> Result<Arc<Object<M>>, VmError> {
        self.object_of_colour(self.frames().next_first_colour(len_pages), len_pages, store, blocks)
    }

    /// An object whose first page has this colour.
    fn object_of_colour(
        &self,
        first_colour: u32,
        len_pages: u64,
        store: Store,
        blocks: Vec<Block>,
    ) -> Result<Arc<Object<M>>, VmError> {
        let at = self.structures().alloc(Kind::Object)?.keep();
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
        let state = self.machine().new_lock(LockClass::OBJECT, state);
        let object = Arc::new(Object { at, store, first_colour, state });
        self.structures().register_object(&object);
        Ok(object)
    }

    /// Another reference to an object, for a caller that knows somebody who has one and keeps it meanwhile; to be given
    /// back with [`Vm::release_object`].
    pub fn reference_object(&self, object: &Object<M>) {
        object.add_ref(self);
    }

    /// Somebody but the caller has a reference to an object: a mapping of it, or a page on its way.
    pub fn is_shared(&self, object: &Object<M>) -> bool {
        object.lock().refs() > 1
    }

    /// Gives the caller's reference back. Mappings of the object keep it alive.
    pub fn release_object(&self, object: Arc<Object<M>>) {
        object.drop_ref(self);
    }
}
