//! The zones of this floor's structures, and the registers of address spaces and objects.
//!
//! One leaf lock of class `KernelVa` (zones hand out kernel addresses, if only modelled ones) guards them; it is held
//! for a few instructions and no other lock is taken under it. A zone that is full is [`VmError::NoMemory`]. The
//! registers hold weak references (`S` is an address space, which lies above this file): they serve the check of the
//! conservation laws.

use crate::config::{Kind, VmConfig};
use crate::error::VmError;
use crate::object::Object;
use crate::probe::{Probes, Register};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::{Board, LockClass, Machine, SpinLock, StructArena, StructVa, Zone};

pub(crate) struct Structures<M: Machine, S: 'static> {
    probes: Probes,
    state: M::Lock<State<M, S>>,
}

struct State<M: Machine, S> {
    /// Indexed by [`Kind`].
    zones: [Zone; Kind::ALL.len()],
    spaces: Register<S>,
    objects: Register<Object<M>>,
}

/// A structure that no one has yet: dropping it gives it back, so a call that fails behind it need not.
#[must_use = "a structure that is not kept goes back at once"]
pub(crate) struct Reserved<'a, M: Machine, S: 'static> {
    from: &'a Structures<M, S>,
    kind: Kind,
    at: StructVa,
}

impl<M: Machine, S> Reserved<'_, M, S> {
    /// Its address.
    pub(crate) fn va(&self) -> StructVa {
        self.at
    }

    /// The same, and [`Structures::free`] gives it back from now on.
    pub(crate) fn keep(self) -> StructVa {
        core::mem::ManuallyDrop::new(self).at
    }
}

impl<M: Machine, S> Drop for Reserved<'_, M, S> {
    fn drop(&mut self) {
        self.from.free(self.kind, self.at);
    }
}

impl<M: Machine, S> Structures<M, S> {
    pub(crate) fn new(
        machine: &M,
        board: Board,
        (virtual_pages, config): (usize, &VmConfig),
        arena: &mut StructArena,
        probes: Probes,
    ) -> Result<Structures<M, S>, VmError> {
        let sizes = config.sizes_on(board);
        let mut zones = Vec::with_capacity(Kind::ALL.len());
        for kind in Kind::ALL {
            let asked = if kind == Kind::Object { config.objects } else { 0 };
            let capacity = kind.capacity_of(virtual_pages, &config.anonymous).max(asked);
            zones.push(arena.zone(kind.name(), capacity, sizes.item_bytes(kind))?);
        }
        let Ok(zones) = zones.try_into() else { unreachable!("as many zones as kinds") };
        let state = State { zones, spaces: Register::default(), objects: Register::default() };
        Ok(Structures { probes, state: machine.new_lock(LockClass::KERNEL_VA, state) })
    }

    /// A new structure, which goes back if it is not kept.
    ///
    /// # Errors
    /// [`VmError::NoMemory`] when the zone is full.
    pub(crate) fn alloc(&self, kind: Kind) -> Result<Reserved<'_, M, S>, VmError> {
        if self.probes.failures.due() {
            return Err(VmError::NoMemory);
        }
        let at = self.state.lock().zones[kind as usize].alloc().ok_or(VmError::NoMemory)?;
        Ok(Reserved { from: self, kind, at })
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

    /// A new address space.
    pub(crate) fn register_space(&self, at: StructVa, space: &Arc<S>) {
        self.state.lock().spaces.add(at, space);
    }

    pub(crate) fn forget_space(&self, at: StructVa) {
        self.state.lock().spaces.remove(at);
    }

    /// A new object.
    pub(crate) fn register_object(&self, object: &Arc<Object<M>>) {
        self.state.lock().objects.add(object.struct_va(), object);
    }

    pub(crate) fn forget_object(&self, at: StructVa) {
        self.state.lock().objects.remove(at);
    }
}

#[cfg(feature = "verify")]
impl<M: Machine, S> Structures<M, S> {
    /// The address space whose structure lies at `at`, if there is one.
    pub(crate) fn space(&self, at: StructVa) -> Option<Arc<S>> {
        self.state.lock().spaces.get(at)
    }

    pub(crate) fn spaces(&self) -> Vec<Arc<S>> {
        self.state.lock().spaces.all()
    }

    pub(crate) fn objects(&self) -> Vec<Arc<Object<M>>> {
        self.state.lock().objects.all()
    }
}
