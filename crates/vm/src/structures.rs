//! The zones of this floor's structures, and the registers of address spaces and objects.
//!
//! One leaf lock of class `KernelVa` (zones hand out kernel addresses, if only modelled ones) guards them; it is held for
//! a few instructions and no other lock is taken under it. A zone that is full is [`VmError::NoMemory`]. The registers
//! hold weak references (`S` is an address space, which lies above this file): they serve the check of the conservation laws, and later whoever must find all users of memory.

use crate::check::Failures;
use crate::config::{Kind, Sizes};
use crate::error::VmError;
use crate::object::Object;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use pageferry_hal::{LockClass, Machine, SpinLock, StructArena, StructVa, Topology, Zone};

pub(crate) struct Structures<M: Machine, S: 'static> {
    failures: Arc<Failures>,
    state: M::Lock<State<M, S>>,
}

struct State<M: Machine, S> {
    /// Indexed by [`Kind`].
    zones: [Zone; Kind::ALL.len()],
    spaces: BTreeMap<StructVaKey, Weak<S>>,
    objects: BTreeMap<StructVaKey, Weak<Object<M>>>,
}

/// A structure's address names it as long as it lives.
type StructVaKey = u64;

impl<M: Machine, S> Structures<M, S> {
    pub(crate) fn new(
        machine: &M,
        topology: Topology,
        virtual_pages: usize,
        arena: &mut StructArena,
        failures: Arc<Failures>,
    ) -> Result<Structures<M, S>, VmError> {
        let sizes = Sizes::of(topology.arch);
        let mut zones = Vec::with_capacity(Kind::ALL.len());
        for kind in Kind::ALL {
            zones.push(arena.zone(kind.name(), kind.capacity(virtual_pages), sizes.item_bytes(kind))?);
        }
        let Ok(zones) = zones.try_into() else { unreachable!("as many zones as kinds") };
        let state = State { zones, spaces: BTreeMap::new(), objects: BTreeMap::new() };
        Ok(Structures { failures, state: machine.new_lock(LockClass::KernelVa, state) })
    }

    /// The address of a new structure.
    ///
    /// # Errors
    /// [`VmError::NoMemory`] when the zone is full.
    pub(crate) fn alloc(&self, kind: Kind) -> Result<StructVa, VmError> {
        if self.failures.due() {
            return Err(VmError::NoMemory);
        }
        self.state.lock().zones[kind as usize].alloc().ok_or(VmError::NoMemory)
    }

    pub(crate) fn free(&self, kind: Kind, at: StructVa) {
        self.state.lock().zones[kind as usize].free(at);
    }

    /// Structures of this kind now allocated.
    pub(crate) fn live(&self, kind: Kind) -> usize {
        self.state.lock().zones[kind as usize].live()
    }

    /// Structures of each kind now allocated.
    pub(crate) fn all_live(&self) -> [usize; Kind::ALL.len()] {
        let state = self.state.lock();
        Kind::ALL.map(|kind| state.zones[kind as usize].live())
    }

    pub(crate) fn register_space(&self, at: StructVa, space: &Arc<S>) {
        let old = self.state.lock().spaces.insert(at.0.0, Arc::downgrade(space));
        assert!(old.is_none(), "two address spaces with one structure");
    }

    pub(crate) fn forget_space(&self, at: StructVa) {
        let old = self.state.lock().spaces.remove(&at.0.0);
        assert!(old.is_some(), "an address space that was never registered");
    }

    /// The address space whose structure lies at `at`, if there is one.
    pub(crate) fn space(&self, at: StructVa) -> Option<Arc<S>> {
        self.state.lock().spaces.get(&at.0.0).and_then(Weak::upgrade)
    }

    pub(crate) fn spaces(&self) -> Vec<Arc<S>> {
        self.state.lock().spaces.values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn register_object(&self, object: &Arc<Object<M>>) {
        let old = self.state.lock().objects.insert(object.struct_va().0.0, Arc::downgrade(object));
        assert!(old.is_none(), "two objects with one structure");
    }

    pub(crate) fn forget_object(&self, at: StructVa) {
        let old = self.state.lock().objects.remove(&at.0.0);
        assert!(old.is_some(), "an object that was never registered");
    }

    pub(crate) fn objects(&self) -> Vec<Arc<Object<M>>> {
        self.state.lock().objects.values().filter_map(Weak::upgrade).collect()
    }
}
