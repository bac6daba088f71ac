//! The object: the lower layer of a mapping (UVM paper, 3.1). A file, or a zero-fill area that is shared as a whole.
//!
//! An object is an array of pages, each resident in a frame that the object owns, or still to be had from the pager. It is
//! referenced by map entries and by those who hold it as kernel objects (open files); with the last reference its frames
//! are let go. Private mappings see an object's pages read-only, and writing promotes a page to an anon; shared mappings
//! write the object's frames.
//!
//! Each object has its own lock of class `Object`; whoever maps one of its frames holds it. A page can be lacking because
//! no frame is free, or because the pager cannot supply it.

use crate::config::Kind;
use crate::error::VmError;
use crate::frame::Owner;
use crate::vm::Vm;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use pageferry_hal::{Access, LockClass, Machine, PAGE_SIZE, Pfn, SpinLock, StructVa};

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

/// Where an object's pages come from when they are first wanted.
#[derive(Clone)]
pub enum Backing {
    /// They are clear.
    Zero,
    /// A pager supplies them.
    Pager(Arc<dyn Pager>),
}

/// A `uvm_object`. Made by [`Vm::object`]; every holder gives its reference back with [`Vm::release_object`].
pub struct Object<M: Machine> {
    at: StructVa,
    len_pages: u64,
    backing: Backing,
    state: M::Lock<ObjectState>,
}

pub(crate) struct ObjectState {
    /// Map entries and holders.
    refs: u32,
    pages: BTreeMap<u64, Pfn>,
}

pub(crate) type ObjectGuard<'a, M> = <<M as Machine>::Lock<ObjectState> as SpinLock<ObjectState>>::Guard<'a>;

impl ObjectState {
    pub(crate) fn refs(&self) -> u32 {
        self.refs
    }

    /// The resident pages, in order.
    pub(crate) fn pages(&self) -> &BTreeMap<u64, Pfn> {
        &self.pages
    }
}

impl<M: Machine> Object<M> {
    /// Length in pages.
    pub fn len_pages(&self) -> u64 {
        self.len_pages
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
            let pages = core::mem::take(&mut state.pages);
            for frame in pages.into_values() {
                vm.frames().disown(frame);
            }
            drop(state);
            vm.structures().forget_object(self.at);
            vm.structures().free(Kind::Object, self.at);
        }
    }

    /// The frame of page `page`, filled if it was not resident.
    ///
    /// # Errors
    /// [`VmError::NoMemory`]; [`VmError::Fault`] (of address 0: the caller knows the address) when the pager fails.
    pub(crate) fn page(
        self: &Arc<Self>,
        vm: &Vm<M>,
        state: &mut ObjectState,
        page: u64,
    ) -> Result<Pfn, ObjectPageError> {
        assert!(page < self.len_pages, "page {page} of an object of {}", self.len_pages);
        vm.machine().touch(self.at, vm.sizes().object_bytes, Access::Read);
        if let Some(&frame) = state.pages.get(&page) {
            return Ok(frame);
        }
        let owner = Owner::Object(Arc::downgrade(self), page);
        let frame = vm.frames().alloc(owner).map_err(|_| ObjectPageError::NoMemory)?;
        if let Err(e) = self.fill(vm, frame, page) {
            vm.frames().disown(frame);
            return Err(e);
        }
        let old = state.pages.insert(page, frame);
        assert!(old.is_none(), "page {page} became resident twice");
        Ok(frame)
    }

    fn fill(&self, vm: &Vm<M>, frame: Pfn, page: u64) -> Result<(), ObjectPageError> {
        match &self.backing {
            Backing::Zero => {
                vm.zero(frame);
                Ok(())
            }
            Backing::Pager(pager) => {
                let mut bytes = vec![0; PAGE_SIZE];
                pager.get(page, &mut bytes).map_err(ObjectPageError::Pager)?;
                vm.store_frame(frame, &bytes).map_err(|_| ObjectPageError::NoMemory)
            }
        }
    }

    /// Gives page `page` another frame; returns the old one, which the caller lets go once nothing maps it.
    pub(crate) fn replace(&self, state: &mut ObjectState, page: u64, frame: Pfn) -> Pfn {
        state.pages.insert(page, frame).expect("only a resident page is replaced")
    }
}

/// Why a page of an object cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ObjectPageError {
    NoMemory,
    Pager(PagerError),
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
        let at = self.structures().alloc(Kind::Object)?;
        self.machine().touch(at, self.sizes().object_bytes, Access::Write);
        let state = ObjectState { refs: 1, pages: BTreeMap::new() };
        let state = self.machine().new_lock(LockClass::Object, state);
        let object = Arc::new(Object { at, len_pages, backing, state });
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
