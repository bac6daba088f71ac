//! The laws of chains of shadow objects.

use super::laws::law;
use crate::object::Object;
use crate::shadow::{Reached, reach};
use crate::vm::{Space, Vm};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pageferry_hal::Machine;

/// Pages of an internal object that something sees: an entry, or the object before it.
struct Sight {
    start: u64,
    end: u64,
    /// It writes there.
    writes: bool,
}

/// Every internal object is in the chains, is referenced by what points at it and by nothing else, and an entry leads
/// to it; chains end; nothing is written that somebody sees as it was.
pub(super) fn check_chains<M: Machine>(
    vm: &Vm<M>,
    spaces: &[Arc<Space<M>>],
    objects: &[Arc<Object<M>>],
) -> Result<(), String> {
    let internal: Vec<_> = objects.iter().filter(|object| object.is_internal()).collect();
    let at = |object: &Arc<Object<M>>| object.struct_va().0.0;
    let mut sights: BTreeMap<u64, Vec<Sight>> = BTreeMap::new();
    let mut reached = Reached::default();
    for space in spaces {
        let map = space.locked_map().peek().ok_or("a map became locked")?;
        let chains = vm.chains();
        for entry in map.entries() {
            if let Some(o) = &entry.object {
                let (start, end, writes) = (o.page, o.page + entry.len_pages(), !entry.attributes.needs_copy);
                sights.entry(at(&o.object)).or_default().push(Sight { start, end, writes });
            }
            reach(&chains, entry, &mut reached);
        }
    }
    let chains = vm.chains();
    law!(
        chains.len() == internal.len(),
        "{} objects are in chains, {} are internal",
        chains.len(),
        internal.len()
    );
    for object in &internal {
        let len = chains.walk(object, 0).take(internal.len() + 2).count();
        law!(len <= internal.len() + 1, "a chain of shadow objects never ends");
        let Some(behind) = chains.behind(object) else { continue };
        let (start, end) = (behind.page, behind.page + object.len_pages());
        law!(
            !behind.object.is_internal() || end <= behind.object.len_pages(),
            "an object reaches page {end} of the one behind it, which has {}",
            behind.object.len_pages()
        );
        sights.entry(at(&behind.object)).or_default().push(Sight { start, end, writes: false });
    }
    for object in internal {
        let none = Vec::new();
        let seen = sights.get(&at(object)).unwrap_or(&none);
        let (refs, points) = (object.lock().refs() as usize, seen.len());
        law!(refs == points, "an internal object counts {refs} references, {points} point at it");
        law!(reached.0.contains(&at(object)), "no entry leads to an internal object");
        for writer in seen.iter().filter(|sight| sight.writes) {
            let still = seen.iter().find(|s| !s.writes && s.start < writer.end && writer.start < s.end);
            law!(
                still.is_none(),
                "pages from {} of an object are written, and seen as they were",
                writer.start
            );
        }
    }
    Ok(())
}
