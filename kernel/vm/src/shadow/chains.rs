//! Which object stands behind which.
//!
//! A *shadow object* holds the pages that a copy-on-write mapping has of its own. What it does not have is in the
//! object behind it, from a page of that on; this may be another shadow object, or the file at the end of the chain. A
//! page that no object of a chain has is clear. An internal object is referenced by map entries and by the objects
//! before it, and by nothing else.
//!
//! Two laws make it copy on write. What stands behind another object is never written, as far as that object reaches.
//! And the entries that map the same page of an internal object either all have the needs-copy flag (then none writes
//! to it, and the first that wants to puts a new object before it), or none has it (then they share what they write).
//!
//! # Locks
//! One lock of the class of amaps guards all chains: a fault, a fork and a collapse hold it throughout, and lock one
//! object after the other under it. 4.4BSD has no more: its kernel runs on one CPU at a time. The page daemon takes a
//! page from its object without it. An object is out of all chains before its structure goes.

use crate::object::Object;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use pageferry_hal::{Machine, SpinLock};

/// The object behind another, with its reference, and the page of it that is the other's first.
pub(crate) struct Behind<M: Machine> {
    pub(crate) object: Arc<Object<M>>,
    pub(crate) page: u64,
}

struct Node<M: Machine> {
    behind: Option<Behind<M>>,
    /// Entries share what they write here. BSD VM has a share map for that; once made, it stays.
    shared: bool,
}

/// All chains: a node for each internal object, by the address of its structure.
pub(crate) struct Chains<M: Machine> {
    nodes: BTreeMap<u64, Node<M>>,
    /// Objects that were made one with the object before them, so far.
    pub(super) collapses: u64,
    /// Objects that the object before them has gone past, so far.
    pub(super) bypasses: u64,
}

pub(crate) type ChainsGuard<'a, M> = <<M as Machine>::Lock<Chains<M>> as SpinLock<Chains<M>>>::Guard<'a>;

impl<M: Machine> Default for Chains<M> {
    fn default() -> Chains<M> {
        Chains { nodes: BTreeMap::new(), collapses: 0, bypasses: 0 }
    }
}

impl<M: Machine> Chains<M> {
    /// A new internal object.
    pub(crate) fn insert(&mut self, object: &Object<M>, behind: Option<Behind<M>>) {
        let old = self.nodes.insert(object.struct_va().0.0, Node { behind, shared: false });
        assert!(old.is_none(), "two objects have one structure");
    }

    /// An internal object goes; what stood behind it is the caller's.
    pub(crate) fn remove(&mut self, object: &Object<M>) -> Option<Behind<M>> {
        // One that was made and never used is in no chain.
        self.nodes.remove(&object.struct_va().0.0)?.behind
    }

    /// What stands behind `object`.
    pub(crate) fn behind(&self, object: &Object<M>) -> Option<&Behind<M>> {
        self.nodes.get(&object.struct_va().0.0)?.behind.as_ref()
    }

    /// Puts another object behind `object`, and returns the one that stood there.
    pub(super) fn replace(&mut self, object: &Object<M>, behind: Option<Behind<M>>) -> Option<Behind<M>> {
        let node = self.nodes.get_mut(&object.struct_va().0.0).expect("an internal object is in the chains");
        core::mem::replace(&mut node.behind, behind)
    }

    /// Entries share what they write to `object` from now on.
    pub(crate) fn share(&mut self, object: &Object<M>) {
        if let Some(node) = self.nodes.get_mut(&object.struct_va().0.0) {
            node.shared = true;
        }
    }

    /// True when entries have shared what they write to `object`.
    pub(crate) fn is_shared(&self, object: &Object<M>) -> bool {
        self.nodes.get(&object.struct_va().0.0).is_some_and(|node| node.shared)
    }

    /// The first object of a chain that has contents for page `page` of `top`, wherever they are: how many stand before
    /// it, and which page it is there. The object is not locked any more.
    pub(crate) fn holder<'a>(
        &'a self,
        top: &'a Arc<Object<M>>,
        page: u64,
    ) -> Option<(usize, &'a Arc<Object<M>>, u64)> {
        let chain = self.walk(top, page).enumerate();
        let mut found = chain.map(|(depth, (object, page))| (depth, object, page));
        found.find(|(_, object, page)| object.has_page(&object.lock(), *page))
    }

    /// How many internal objects there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The objects in which page `page` of `top` may be, in the order in which they are looked through, and which page
    /// it is of each.
    pub(crate) fn walk<'a>(
        &'a self,
        top: &'a Arc<Object<M>>,
        page: u64,
    ) -> impl Iterator<Item = (&'a Arc<Object<M>>, u64)> {
        core::iter::successors(Some((top, page)), |&(object, page)| {
            let behind = self.behind(object)?;
            Some((&behind.object, behind.page + page))
        })
    }
}
