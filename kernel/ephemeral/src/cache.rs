//! The mapping cache of i386 (sf_buf paper, 4.2): every buffer keeps its address for ever and its frame until the
//! buffer is needed for another one.
//!
//! # What it holds
//! A range of kernel addresses, taken at boot, one page for each buffer; the [`MappingIndex`] that says which frame
//! each maps; and how many threads sleep for a buffer. A frame found mapped costs no page-table work. Giving a mapping
//! back changes nothing but counts: the translation stays, in the page table and in TLBs.
//!
//! # Which CPUs may hold a stale translation
//! A buffer's mask is the set of CPUs that cannot hold a translation older than the present mapping. They have
//! invalidated since it was made, or all earlier translations were gone from their TLBs before. A CPU outside the mask
//! invalidates, by itself or asked by another, before it may use the address. Buffers never used start with all CPUs:
//! nothing can be cached of an address that was never mapped.
//!
//! # Locks
//! One, of class `Ephemeral`, around everything; as in FreeBSD it stays held while other CPUs invalidate. A thread that
//! finds no buffer gives it up in its sleep, and retries the look-up of its frame afterwards: another thread may have
//! mapped it.
//!
//! # What can fail
//! Only a configuration, and an allocation that may not wait.

use crate::config::{
    AccessedRule, AllocError, ConfigError, EphemeralPaths, Flags, FlushPolicy, KernelAddresses,
};
use crate::counter::EphemeralCounter;
use crate::defect::EphemeralDefect;
use crate::flusher::Flusher;
use crate::index::{BufferId, MappingIndex, Trace};
use crate::mapping::{Backing, Request};
use crate::user::MappingUser;
use alloc::string::String;
use alloc::sync::Arc;
use pageferry_hal::{
    Access, Cause, Channel, CpuId, CpuSet, LockClass, Machine, PAGE_SIZE, Pfn, Prot, SpinLock, StructArena,
    StructVa, Threads, Va, VaRange,
};
use pageferry_pmap::Pmaps;

/// `sizeof(struct sf_buf)` on i386: six fields, two of them pairs of pointers (sf_buf paper, Fig. 1).
const BUFFER_BYTES: usize = 32;
/// A head of a hash chain: one pointer.
const HEAD_BYTES: usize = 4;

pub(crate) struct Cache<M: Machine> {
    machine: M,
    pmaps: Arc<Pmaps<M>>,
    addresses: Spaced,
    rule: AccessedRule,
    paths: EphemeralPaths,
    places: Places,
    state: M::Lock<State>,
    pub(crate) flusher: Flusher,
}

/// Where the buffers' addresses are: a page each, so far apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spaced {
    pub(crate) first: Va,
    pub(crate) stride_bytes: usize,
}

/// What the lock protects.
struct State {
    index: MappingIndex,
    /// Threads that sleep for a buffer, or were woken and have not looked yet.
    waiters: usize,
}

/// The modelled addresses of buffers and hash heads.
#[derive(Clone, Copy)]
struct Places {
    buffers: StructVa,
    heads: StructVa,
}

/// Accounts for what the index reads and writes.
struct Toucher<'a, M: Machine> {
    machine: &'a M,
    places: Places,
}

impl<M: Machine> Trace for Toucher<'_, M> {
    fn head(&mut self, chain: usize, access: Access) {
        self.machine.touch(self.places.heads.element(chain, HEAD_BYTES), HEAD_BYTES, access);
    }
    fn buffer(&mut self, buffer: BufferId, access: Access) {
        let at = self.places.buffers.element(buffer.index(), BUFFER_BYTES);
        self.machine.touch(at, BUFFER_BYTES, access);
    }
}

impl<M: Machine> Cache<M> {
    pub(crate) fn new(
        entries: usize,
        rule: AccessedRule,
        paths: EphemeralPaths,
        pmaps: &Arc<Pmaps<M>>,
        addresses: &dyn KernelAddresses,
        arena: &mut StructArena,
    ) -> Result<Cache<M>, ConfigError> {
        if entries == 0 {
            return Err(ConfigError::NoEntries);
        }
        let too_many = ConfigError::TooManyEntries { entries };
        // The index numbers its buffers in 32 bits; their addresses must not wrap.
        if entries >= u32::MAX as usize || entries.checked_mul(PAGE_SIZE).is_none() {
            return Err(too_many);
        }
        let range = addresses.alloc(entries).ok_or(too_many)?;
        assert_eq!(range.len_pages(), entries, "the address allocator gave {range:?}");
        let spaced = Spaced { first: range.start(), stride_bytes: PAGE_SIZE };
        Cache::over(spaced, entries, rule, paths, pmaps, arena).inspect_err(|_| addresses.free(range))
    }

    /// A cache of so many addresses, which the caller has and which nothing maps.
    pub(crate) fn over(
        addresses: Spaced,
        entries: usize,
        rule: AccessedRule,
        paths: EphemeralPaths,
        pmaps: &Arc<Pmaps<M>>,
        arena: &mut StructArena,
    ) -> Result<Cache<M>, ConfigError> {
        let buffers = arena.array("sf_buf structures", entries, BUFFER_BYTES)?;
        let heads = arena.array("sf_buf hash", MappingIndex::chains(entries), HEAD_BYTES)?;
        let places = Places { buffers, heads };
        let machine = pmaps.machine().clone();
        let index = MappingIndex::new(entries, machine.cpus());
        let state = machine.new_lock(LockClass::EPHEMERAL, State { index, waiters: 0 });
        let pmaps = pmaps.clone();
        let flusher = Flusher::new(FlushPolicy::default());
        Ok(Cache { machine, pmaps, addresses, rule, paths, places, state, flusher })
    }

    /// The address of a buffer: never changes.
    pub(crate) fn va(&self, id: BufferId) -> Va {
        self.addresses.first + id.index() * self.addresses.stride_bytes
    }

    /// The addresses of a cache that has taken its own, which follow one another.
    pub(crate) fn range(&self) -> VaRange {
        VaRange::pages_from(self.addresses.first, self.buffers())
    }

    fn toucher(&self) -> Toucher<'_, M> {
        Toucher { machine: &self.machine, places: self.places }
    }

    /// What a sleeper waits on: the structure itself, as BSD kernels do.
    fn channel(&self) -> Channel {
        Channel(self.places.heads.0.0)
    }

    pub(crate) fn alloc(
        &self,
        threads: &dyn Threads,
        request: Request,
        flags: Flags,
    ) -> Result<Backing, AllocError> {
        let m = &self.machine;
        let _c = m.scope(Cause::Ephemeral);
        let private = flags.contains(Flags::PRIVATE);
        let mut slept = false;
        let mut state = self.state.lock();
        let (id, cpu) = loop {
            let cpu = m.cpu();
            if let Some(id) = state.index.find(request.frame, &mut self.toucher()) {
                self.hit(&mut state.index, id, (cpu, request.by), private);
                break (id, cpu);
            }
            if let Some(id) = state.index.victim() {
                self.miss(&mut state.index, id, request, cpu, private);
                break (id, cpu);
            }
            if flags.contains(Flags::NOWAIT) {
                return Err(AllocError::WouldBlock);
            }
            state.waiters += 1;
            m.count(EphemeralCounter::EphemeralSleeps, 1);
            let interruptible = flags.contains(Flags::INTERRUPTIBLE);
            let mut held = Some(state);
            let woken = threads.sleep(self.channel(), "sfbufa", interruptible, &mut || drop(held.take()));
            assert!(held.is_none(), "a sleep returned without releasing the lock of its caller");
            state = self.state.lock();
            state.waiters -= 1;
            slept = true;
            if woken.is_err() {
                self.pass_on(threads, &state);
                return Err(AllocError::Interrupted);
            }
        };
        if slept {
            self.pass_on(threads, &state);
        }
        Ok(Backing::Cached { id, private_on: private.then_some(cpu) })
    }

    /// The frame is mapped by `id`.
    fn hit(&self, index: &mut MappingIndex, id: BufferId, (cpu, by): (CpuId, MappingUser), private: bool) {
        self.machine.execute(self.paths.alloc_hit);
        self.machine.count(EphemeralCounter::EphemeralHits, 1);
        by.mapped(&self.machine, 1);
        self.cohere(index, id, (cpu, by), private);
        index.acquire(id, &mut self.toucher());
    }

    /// Makes the address safe for this CPU, or for all: those outside the mask invalidate and join it.
    fn cohere(&self, index: &mut MappingIndex, id: BufferId, (cpu, by): (CpuId, MappingUser), private: bool) {
        let mut cpus = index.cpus(id);
        if !cpus.contains(cpu) {
            by.invalidated(&self.machine, self.pmaps.invalidate_local(self.va(id)));
            cpus.insert(cpu);
        }
        let missing = self.machine.cpus().difference(cpus);
        if !private && !missing.is_empty() {
            if !self.flusher.planted.is(EphemeralDefect::FlushedHereOnly) {
                by.invalidated(&self.machine, self.pmaps.invalidate_remote(self.va(id), missing));
            }
            cpus = cpus.union(missing);
        }
        index.set_cpus(id, cpus);
    }

    /// The inactive buffer `id` takes a frame over.
    fn miss(
        &self,
        index: &mut MappingIndex,
        id: BufferId,
        Request { frame, by }: Request,
        cpu: CpuId,
        private: bool,
    ) {
        self.machine.execute(self.paths.alloc_miss);
        self.machine.count(EphemeralCounter::EphemeralMisses, 1);
        by.mapped(&self.machine, 1);
        index.rebind(id, frame, &mut self.toucher());
        let flush = self.pmaps.kenter(self.va(id), &[frame], Prot::RW);
        if !flush.old_accessed() {
            // No walker has loaded the old entry, and from now on none can.
            flush.not_cached(&self.pmaps);
            match self.rule {
                AccessedRule::Safe => self.cohere(index, id, (cpu, by), private),
                AccessedRule::AsPrinted => index.set_cpus(id, self.machine.cpus()),
            }
        } else if private {
            by.invalidated(&self.machine, flush.flush_local(&self.pmaps));
            index.set_cpus(id, CpuSet::only(cpu));
        } else {
            self.flusher.flush(flush, by, &self.pmaps);
            index.set_cpus(id, self.machine.cpus());
        }
    }

    /// A woken thread that leaves without an inactive buffer, because its frame was mapped meanwhile or a signal came,
    /// hands its wakeup to the next one: else that one would sleep beside a free buffer.
    fn pass_on(&self, threads: &dyn Threads, state: &State) {
        if state.waiters > 0 && state.index.victim().is_some() {
            threads.wakeup_one(self.channel());
        }
    }

    pub(crate) fn free(&self, threads: &dyn Threads, id: BufferId, frame: Pfn, private_on: Option<CpuId>) {
        let _c = self.machine.scope(Cause::Ephemeral);
        let mut state = self.state.lock();
        let cpu = self.machine.cpu();
        assert!(
            private_on.is_none_or(|own| own == cpu),
            "a private mapping of {private_on:?} is freed on {cpu:?}: its thread was not pinned"
        );
        assert_eq!(state.index.frame(id), Some(frame), "the frame of a mapping in use has changed");
        self.machine.execute(self.paths.free);
        let inactive = state.index.release(id, &mut self.toucher());
        if inactive && self.flusher.planted.is(EphemeralDefect::ReleasedUnlisted) {
            state.index.inactive_remove(id, &mut self.toucher());
        }
        if inactive && state.waiters > 0 {
            threads.wakeup_one(self.channel());
        }
    }

    pub(crate) fn buffers(&self) -> usize {
        self.state.lock().index.entries()
    }

    pub(crate) fn active(&self) -> usize {
        self.state.lock().index.active()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiters
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.state.lock().index.check()
    }
}
