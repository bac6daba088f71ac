//! Kernel structures of one kind, pipes or socket buffers, and what is in each.
//!
//! # What it holds
//! The modelled addresses, taken and free, and a weak reference to what lives at each address that is taken, for
//! checks.
//!
//! # Locks
//! One of class `Process`, held for a step.
//!
//! # What can fail
//! Taking a structure, when all are in use.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use litemap::LiteMap;
use pageferry_abi::Errno;
use pageferry_hal::{LockClass, Machine, SpinLock, StructVa, Va, Zone};

/// The structures of one kind, pipes or socket buffers, and what lives in each.
pub struct Registry<M: Machine, T: 'static> {
    table: M::Lock<Table<T>>,
}

struct Table<T> {
    structures: Zone,
    live: LiteMap<Va, Weak<T>>,
}

impl<M: Machine, T> Registry<M, T> {
    /// With all of `structures` free.
    pub fn new(m: &M, structures: Zone) -> Registry<M, T> {
        Registry { table: m.new_lock(LockClass::PROCESS, Table { structures, live: LiteMap::new() }) }
    }

    /// A structure; to be used by [`Registry::insert`], or given back by [`Registry::free`].
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn alloc(&self) -> Result<StructVa, Errno> {
        self.table.lock().structures.alloc().ok_or(Errno::NoMemory)
    }

    /// Gives back a structure that nothing was put in.
    pub fn free(&self, at: StructVa) {
        self.table.lock().structures.free(at);
    }

    /// Notes what is in the structure at `at` from now on.
    pub fn insert(&self, at: StructVa, what: &Arc<T>) {
        self.table.lock().live.insert(at.0, Arc::downgrade(what));
    }

    /// Takes a structure, and makes what is in it, in one step.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn make(&self, make: impl FnOnce(StructVa) -> Arc<T>) -> Result<Arc<T>, Errno> {
        let mut table = self.table.lock();
        let at = table.structures.alloc().ok_or(Errno::NoMemory)?;
        let what = make(at);
        table.live.insert(at.0, Arc::downgrade(&what));
        Ok(what)
    }

    /// Gives back a structure, and forgets what was in it.
    pub fn remove(&self, at: StructVa) {
        let mut table = self.table.lock();
        table.live.remove(&at.0).expect("a structure is freed once");
        table.structures.free(at);
    }

    /// What is in the structure at `at`.
    pub fn get(&self, at: StructVa) -> Option<Arc<T>> {
        self.table.lock().live.get(&at.0).and_then(Weak::upgrade)
    }

    /// All that there are.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.table.lock().live.values().filter_map(Weak::upgrade).collect()
    }

    /// How many structures are in use.
    pub fn count(&self) -> usize {
        self.table.lock().structures.live()
    }
}
