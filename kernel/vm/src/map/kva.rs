//! The kernel map: the general-purpose allocator of kernel addresses.
//!
//! Addresses come first fit, lowest first. As in FreeBSD's `vm_map`, ranges that touch become one map entry, and
//! allocating walks the entries from the bottom until a gap is long enough, touching each; so the walk grows with the
//! fragmentation of the kernel map. This is what the original kernel pays for each ephemeral mapping and what `sf_buf`
//! saves (sf_buf paper, 6.2).
//!
//! One lock of class `KernelVa`; no lock is taken under it. An allocation fails when no gap is long enough or no entry
//! is left; giving back cannot fail. Addresses say nothing of mappings: the caller that maps them unmaps them, and
//! flushes, before it gives them back.

use crate::config::{VmConfig, VmPaths, kernel_entries};
use crate::counter::VmCounter;
use crate::error::VmError;
use crate::probe::Probes;
use alloc::collections::BTreeMap;
use pageferry_hal::{
    Access, Board, Cause, LockClass, Machine, PAGE_SIZE, SpinLock, StructArena, StructVa, Va, VaRange, Zone,
};

pub(crate) struct KernelMap<M: Machine> {
    machine: M,
    paths: VmPaths,
    entry_bytes: usize,
    probes: Probes,
    state: M::Lock<State>,
}

struct State {
    bounds: VaRange,
    /// Allocated addresses, by start. No two entries touch.
    used: BTreeMap<Va, KvaEntry>,
    /// Ranges handed out and not given back. Each lies in one entry, each entry holds at least one: so there are never
    /// more entries than ranges, and giving back cannot want for an entry.
    live: usize,
    capacity: usize,
    zone: Zone,
}

#[derive(Clone, Copy, Debug)]
struct KvaEntry {
    end: Va,
    at: StructVa,
}

impl<M: Machine> KernelMap<M> {
    pub(crate) fn new(
        machine: M,
        config: &VmConfig,
        board: Board,
        arena: &mut StructArena,
        bounds: VaRange,
        probes: Probes,
    ) -> Result<KernelMap<M>, VmError> {
        let (paths, entry_bytes) = (config.paths, config.sizes_on(board).entry_bytes);
        let capacity = kernel_entries(board.frames);
        let zone = arena.zone("kernel map entries", capacity, entry_bytes)?;
        let state = State { bounds, used: BTreeMap::new(), live: 0, capacity, zone };
        let state = machine.new_lock(LockClass::KERNEL_VA, state);
        Ok(KernelMap { machine, paths, entry_bytes, probes, state })
    }

    fn touch(&self, at: StructVa, access: Access) {
        self.machine.touch(at, self.entry_bytes, access);
    }

    /// The lowest `len_pages` free pages.
    pub(crate) fn alloc(&self, len_pages: usize) -> Option<VaRange> {
        assert!(len_pages > 0, "kernel addresses are allocated in whole pages, at least one");
        let _c = self.machine.scope(Cause::AddressAllocation);
        self.machine.execute(self.paths.kva_alloc);
        if self.probes.failures.due() {
            return None;
        }
        let mut state = self.state.lock();
        if state.live == state.capacity {
            return None;
        }
        let start = self.find(&state, len_pages.checked_mul(PAGE_SIZE)?)?;
        let range = VaRange::pages_from(start, len_pages);
        state.live += 1;
        self.mark_used(&mut state, range);
        self.machine.count(VmCounter::KvaAllocations, 1);
        Some(range)
    }

    /// First fit.
    fn find(&self, state: &State, len_bytes: usize) -> Option<Va> {
        let mut at = state.bounds.start();
        for (&start, used) in &state.used {
            self.touch(used.at, Access::Read);
            if start - at >= len_bytes {
                return Some(at);
            }
            at = used.end;
        }
        (state.bounds.end() - at >= len_bytes).then_some(at)
    }

    /// Lets the entries cover `range`: the one below grows, or the one above, or both become one, or a new one is made.
    fn mark_used(&self, state: &mut State, range: VaRange) {
        let above = state.used.remove(&range.end());
        let end = above.map_or(range.end(), |a| a.end);
        let below = state.used.range_mut(..range.start()).next_back().map(|(_, u)| u);
        if let Some(below) = below.filter(|b| b.end == range.start()) {
            below.end = end;
            self.touch(below.at, Access::Write);
            if let Some(above) = above {
                state.zone.free(above.at);
            }
            return;
        }
        let at = match above {
            Some(above) => above.at,
            None => state.zone.alloc().expect("fewer entries than live ranges"),
        };
        self.touch(at, Access::Write);
        state.used.insert(range.start(), KvaEntry { end, at });
    }

    /// Takes `range` back.
    pub(crate) fn free(&self, range: VaRange) {
        let _c = self.machine.scope(Cause::AddressAllocation);
        self.machine.execute(self.paths.kva_free);
        let mut state = self.state.lock();
        let (start, used) = match state.used.range(..=range.start()).next_back() {
            Some((&start, &used)) if !range.is_empty() && range.end() <= used.end => (start, used),
            _ => panic!("kernel addresses {range:?} are given back but not allocated"),
        };
        self.touch(used.at, Access::Write);
        assert!(state.live > 0, "more kernel address ranges are given back than were allocated");
        state.live -= 1;
        state.used.remove(&start);
        let mut at = Some(used.at);
        for rest in [VaRange::new(start, range.start()), VaRange::new(range.end(), used.end)] {
            if rest.is_empty() {
                continue;
            }
            let at = at.take().or_else(|| state.zone.alloc()).expect("fewer entries than live ranges");
            self.touch(at, Access::Write);
            state.used.insert(rest.start(), KvaEntry { end: rest.end(), at });
        }
        if let Some(at) = at {
            state.zone.free(at);
        }
        self.machine.count(VmCounter::KvaFrees, 1);
    }

    /// Pages now allocated, and the entries they take.
    pub(crate) fn census(&self) -> (usize, usize) {
        let state = self.state.lock();
        let pages = state.used.iter().map(|(&s, u)| VaRange::new(s, u.end).len_pages()).sum();
        (pages, state.used.len())
    }

    /// Says what is wrong with the entries.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let state = self.state.lock();
        let mut end = None;
        for (&start, used) in &state.used {
            if start >= used.end || end.is_some_and(|end| start <= end) {
                return Err("entries of the kernel map are empty, overlap or touch");
            }
            if !state.bounds.covers(&VaRange::new(start, used.end)) {
                return Err("an entry of the kernel map lies outside of it");
            }
            end = Some(used.end);
        }
        if state.used.len() > state.live || state.zone.live() != state.used.len() {
            return Err("entries of the kernel map are counted wrongly");
        }
        Ok(())
    }
}
