//! Kernel structures of one kind, pipes or sockets, and what is in each.
//!
//! # What it holds
//! The modelled addresses, taken and free, and a weak reference to what lives at each address that is taken, for
//! checks. The table of processes owns one for each kind, under its lock.
//!
//! # What can fail
//! Taking a structure, when all are in use.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_hal::{StructVa, Va, Zone};

/// The structures of one kind. See the [module](self).
pub(crate) struct Registry<T> {
    structures: Zone,
    live: LiteMap<Va, Weak<T>>,
}

impl<T> Registry<T> {
    pub(super) fn new(structures: Zone) -> Registry<T> {
        Registry { structures, live: LiteMap::new() }
    }

    /// A structure, if there is one left; to be used by [`Registry::insert`], or given back by [`Registry::free`].
    pub(crate) fn alloc(&mut self) -> Option<StructVa> {
        self.structures.alloc()
    }

    /// Gives back a structure that nothing was put in.
    pub(crate) fn free(&mut self, at: StructVa) {
        self.structures.free(at);
    }

    /// Notes what is in the structure at `at` from now on.
    pub(crate) fn insert(&mut self, at: StructVa, what: &Arc<T>) {
        self.live.insert(at.0, Arc::downgrade(what));
    }

    /// Gives back a structure, and forgets what was in it.
    pub(crate) fn remove(&mut self, at: StructVa) {
        self.live.remove(&at.0).expect("a structure is freed once");
        self.structures.free(at);
    }

    /// All that there are.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.live.values().filter_map(Weak::upgrade).collect()
    }

    /// How many structures are in use.
    pub(crate) fn len(&self) -> usize {
        self.structures.live()
    }
}
