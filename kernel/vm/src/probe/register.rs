//! The register of what a walk over everything starts from.
//!
//! Names each thing by the address of its structure, as long as it lives, and holds a weak reference to it. Part of
//! `structures`, under its lock.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use pageferry_hal::StructVa;

pub(crate) struct Register<T>(BTreeMap<u64, Weak<T>>);

impl<T> Default for Register<T> {
    fn default() -> Register<T> {
        Register(BTreeMap::new())
    }
}

impl<T> Register<T> {
    pub(crate) fn add(&mut self, at: StructVa, thing: &Arc<T>) {
        let old = self.0.insert(at.0.0, Arc::downgrade(thing));
        assert!(old.is_none(), "two things are registered with one structure");
    }

    pub(crate) fn remove(&mut self, at: StructVa) {
        let old = self.0.remove(&at.0.0);
        assert!(old.is_some(), "what goes was never registered");
    }

    /// What has its structure at `at`, if there is such a thing.
    pub(crate) fn get(&self, at: StructVa) -> Option<Arc<T>> {
        self.0.get(&at.0.0).and_then(Weak::upgrade)
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.values().filter_map(Weak::upgrade).collect()
    }
}
