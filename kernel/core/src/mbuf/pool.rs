//! The pool that mbufs and clusters come from.
//!
//! # What it holds
//! Mbufs and clusters are used last in, first out, so that what is used next is warm. Clusters keep their addresses,
//! where the kernel maps pages one by one, for ever; what the pool has taken it gives back in [`Pool::drain`] only,
//! which the page daemon calls where memory is short. A cluster whose page was donated to a process gets another page
//! at the same address. Where there is a direct map it is used instead. Pages that a driver receives into may be
//! `disposable` ones instead (see `receive`), which the pool counts with the clusters and does not keep.
//!
//! # Locks
//! The pool is under a lock of class `Mbuf`, held for one step. The data belongs to the owner of the mbuf.
//!
//! # What can fail
//! Making mbufs and clusters, for want of structures, frames or addresses, and lending. A caller that may sleep passes
//! its thread (`M_WAIT`): then frames that are short are waited for, until the page daemon finds that this does not
//! help. A pool that has as many mbufs or clusters as may be is not waited for.

use super::addresses::Addresses;
use super::area::Areas;
use super::disposable::Disposables;
use super::lending::{Lender, Lenders};
use super::lent::{Lent, Loans};
use super::mbuf::{
    CardPage, Cluster, HEADER_BYTES, MBUF_BYTES, MIN_CLUSTER_BYTES, Mbuf, SMALL_BYTES, Storage,
};
use super::placements::Placements;
use crate::config::{KernelPaths, SocketConfig};
use crate::counter::KernelCounter;
use crate::defect::NetDefect;
use crate::proc::WaitFlag;
use crate::sched::Sched;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use pageferry_abi::Errno;
use pageferry_defects::Planted;
use pageferry_ephemeral::{Ephemeral, KernelAddresses};
use pageferry_hal::arena::ArenaFull;
use pageferry_hal::{
    Access, Flow, FlowStep, Fragment, LockClass, Machine, Means, PAGE_SIZE, Parcel, Pfn, Place, Prot,
    SpinLock, StructArena, StructVa, Threads, Va, VaRange, Zone,
};
use pageferry_pmap::{Reach, TlbFlush};
use pageferry_vm::{AnonLoan, KernelPages, Vm, VmError};

/// Mbufs at a time.
pub const MAX_MBUFS: usize = 4096;

pub(super) struct State {
    pub(super) mbufs: Zone,
    /// Last in, first out.
    free: Vec<Cluster>,
    /// Clusters that exist, and disposable pages.
    pub(super) clusters: usize,
    /// The disposable pages among them.
    pub(super) disposables: usize,
}

/// Where mbufs and clusters come from: last in, first out.
pub struct Pool<M: Machine> {
    pub(super) machine: M,
    pub(super) vm: Arc<Vm<M>>,
    addresses: Addresses<M>,
    pub(super) loans: Loans<M>,
    /// What processes have in their receive areas.
    pub(super) placements: Placements<M>,
    pub(super) disposables: Disposables<M>,
    pub(super) defect: Planted<NetDefect>,
    pub(super) paths: KernelPaths,
    /// Clusters and disposable pages that may exist.
    pub(super) max_clusters: usize,
    /// Disposable pages that may exist.
    pub(super) max_disposables: usize,
    pub(super) state: M::Lock<State>,
}

/// What is left of an mbuf when the page of its cluster was taken out.
struct Emptied {
    at: StructVa,
    /// What it showed of the page.
    bytes: Range<usize>,
    /// The cluster's address.
    mapped_at: Option<Va>,
}

/// A cluster that could not be given away: all is as before.
pub struct NotDonated {
    pub(crate) error: VmError,
    /// The mbufs.
    pub back: Vec<Mbuf>,
}

impl NotDonated {
    /// Why.
    pub fn error(&self) -> Errno {
        self.error.into()
    }
}

impl<M: Machine> Pool<M> {
    /// A pool without clusters.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(
        vm: Arc<Vm<M>>,
        ephemeral: Arc<Ephemeral<M, Vm<M>>>,
        (sched, lenders): (&Arc<Sched<M>>, Arc<Lenders<M>>),
        (config, paths, defect): (&SocketConfig, KernelPaths, Planted<NetDefect>),
        arena: &mut StructArena,
    ) -> Result<Pool<M>, ArenaFull> {
        let machine = vm.machine().clone();
        let mbufs = arena.zone("mbufs", MAX_MBUFS, MBUF_BYTES)?;
        let state = State { mbufs, free: Vec::new(), clusters: 0, disposables: 0 };
        let state = machine.new_lock(LockClass::MBUF, state);
        let disposables = Disposables::new(vm.clone(), ephemeral.clone(), sched, defect);
        Ok(Pool {
            placements: Placements::new(&machine, defect),
            machine,
            addresses: Addresses::new(vm.clone(), ephemeral.flush_policy().at),
            loans: Loans::new(
                vm.clone(),
                ephemeral,
                (sched, lenders),
                Areas::new(vm.clone(), defect),
                (config.lent_mapping, defect),
            ),
            max_disposables: disposables.max_among(config.clusters),
            disposables,
            vm,
            defect,
            paths,
            max_clusters: config.clusters,
            state,
        })
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// For waking those that wait for a mapping, where the calling thread is not known.
    pub(super) fn waker(&self) -> &dyn Threads {
        self.loans.waker()
    }

    /// Where an mbuf's bytes are in memory, for a card, which reaches small mbufs, too.
    pub fn fragments_of(&self, mbuf: &Mbuf) -> Vec<Fragment> {
        let fragment = |(frame, offset, len_bytes)| Fragment { frame, offset, len_bytes };
        match mbuf.fragments() {
            Some(found) => found.into_iter().map(fragment).collect(),
            None if mbuf.len == 0 => Vec::new(),
            None => {
                let at = self.vm.pmaps().arena_pa(StructVa(mbuf.at.0 + HEADER_BYTES + mbuf.offset));
                let (frame, offset) = (at.pfn(), at.0 as usize % PAGE_SIZE);
                alloc::vec![Fragment { frame, offset, len_bytes: mbuf.len }]
            }
        }
    }

    // ------------------------------------------------------------------------------------------- making and freeing

    /// An mbuf over the bytes from `offset` on of `storage`, which is released if there is none.
    pub(super) fn header_at(&self, storage: Storage, offset: usize, len: usize) -> Result<Mbuf, Errno> {
        let made = self.header(storage, len).map_err(|storage| {
            self.release(storage);
            Errno::NoMemory
        });
        made.map(|mbuf| Mbuf { offset, ..mbuf })
    }

    fn header(&self, storage: Storage, len: usize) -> Result<Mbuf, Storage> {
        self.machine.execute(self.paths.mbuf);
        if self.vm.allocation_fails() {
            return Err(storage);
        }
        let Some(at) = self.state.lock().mbufs.alloc() else { return Err(storage) };
        self.machine.touch(at, HEADER_BYTES, Access::Write);
        Ok(Mbuf { at, storage, offset: 0, len })
    }

    /// An mbuf for `len` bytes that are yet to be written: a cluster if they are many and there is one, else a small
    /// one, perhaps shorter.
    ///
    /// # Errors
    /// [`Errno::NoMemory`], at once.
    pub fn alloc(&self, len: usize) -> Result<Mbuf, Errno> {
        self.alloc_for(None, len)
    }

    /// The same; a `sleeper` waits for a cluster's page where frames are short.
    ///
    /// # Locks
    /// May sleep: no spin lock may be held.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn alloc_for(&self, sleeper: Option<&dyn Threads>, len: usize) -> Result<Mbuf, Errno> {
        if len >= MIN_CLUSTER_BYTES
            && let Ok(mbuf) = self.cluster_of(sleeper, self.max_clusters, len.min(PAGE_SIZE))
        {
            return Ok(mbuf);
        }
        self.header(Storage::Small, len.min(SMALL_BYTES)).map_err(|_| Errno::NoMemory)
    }

    /// A cluster with `len` bytes, if there is one. A `sleeper` waits for its page where frames are short.
    ///
    /// # Locks
    /// With a `sleeper`, no spin lock may be held.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn cluster_for(&self, sleeper: Option<&dyn Threads>, len: usize) -> Result<Mbuf, Errno> {
        self.cluster_of(sleeper, self.max_clusters, len)
    }

    /// A cluster to gather bytes in that are taken out of others: there is one more than senders can get. A `sleeper`
    /// waits for its page where frames are short.
    ///
    /// # Locks
    /// May sleep: no spin lock may be held.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn cluster_to_gather(&self, sleeper: Option<&dyn Threads>) -> Result<Mbuf, Errno> {
        self.cluster_of(sleeper, self.max_clusters + 1, PAGE_SIZE)
    }

    fn cluster_of(
        &self,
        sleeper: Option<&dyn Threads>,
        max_clusters: usize,
        len: usize,
    ) -> Result<Mbuf, Errno> {
        assert!(len <= PAGE_SIZE, "a cluster is a page");
        self.machine.execute(self.paths.cluster);
        let (free, grow) = {
            let mut state = self.state.lock();
            let in_use = state.clusters - state.free.len();
            let free = if in_use < max_clusters { state.free.pop() } else { None };
            let grow = free.is_none() && state.clusters < max_clusters;
            state.clusters += usize::from(grow);
            (free, grow)
        };
        let cluster = match free {
            Some(cluster) => cluster,
            None if !grow => return Err(Errno::NoMemory),
            // Others may have freed one while this thread slept for a frame.
            None => self.new_cluster(sleeper).or_else(|e| {
                let mut state = self.state.lock();
                state.clusters -= 1;
                state.free.pop().ok_or(e)
            })?,
        };
        self.machine.count(KernelCounter::Clusters, 1);
        self.header_at(Storage::Cluster(Arc::new(cluster)), 0, len)
    }

    fn new_cluster(&self, sleeper: Option<&dyn Threads>) -> Result<Cluster, Errno> {
        let pages = match sleeper {
            Some(t) => self.vm.kernel_pages_waiting(t, 1)?,
            None => self.vm.kernel_pages(1)?,
        };
        match self.addresses.map(pages.frames(), Prot::RW) {
            Ok(mapped) => Ok(Cluster::new(mapped.map(|range| range.start()), pages)),
            Err(e) => {
                self.vm.free_kernel_pages(pages);
                Err(e.into())
            }
        }
    }

    /// An mbuf over a loan, with all of its bytes. A `sleeper` waits for an address where it may have to.
    ///
    /// # Locks
    /// With a `sleeper`, which then holds no other mapping that it waits with, no spin lock may be held.
    ///
    /// # Errors
    /// [`Errno::NoMemory`], [`Errno::Interrupted`]; the loan has gone back.
    pub fn external(
        &self,
        sleeper: Option<&dyn Threads>,
        lent: Lent,
        lender: Option<Lender>,
    ) -> Result<Mbuf, Errno> {
        let (offset, len) = lent.bytes();
        let external = self.loans.take(sleeper, lent, lender)?;
        self.header_at(Storage::External(Arc::new(external)), offset, len)
    }

    /// A page of a device's memory, for mbufs; the device has it as long as it is not taken back with
    /// [`Pool::forget_card_page`].
    ///
    /// # Errors
    /// [`VmError::NoMemory`]: no addresses are left.
    pub fn card_page(&self, frame: Pfn) -> Result<Arc<CardPage>, VmError> {
        Ok(Arc::new(CardPage { frame, mapped: self.addresses.map(&[frame], Prot::RW)? }))
    }

    /// The device takes its page back. No mbuf shows it any more.
    pub fn forget_card_page(&self, page: Arc<CardPage>) {
        let page = Arc::into_inner(page).expect("no mbuf outlives its device");
        self.addresses.unmap(page.mapped);
    }

    /// An mbuf over a whole page of a device's memory.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn over_card(&self, page: &Arc<CardPage>) -> Result<Mbuf, Errno> {
        self.header(Storage::Card(page.clone()), PAGE_SIZE).map_err(|_| Errno::NoMemory)
    }

    /// A small mbuf without bytes, all of whose room is in front of them: for headers (`MH_ALIGN`).
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn for_headers(&self) -> Result<Mbuf, Errno> {
        let mbuf = self.header(Storage::Small, 0).map_err(|_| Errno::NoMemory)?;
        Ok(Mbuf { offset: SMALL_BYTES, ..mbuf })
    }

    /// Another mbuf over the first `len` bytes; those of a small mbuf are copied.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn share(&self, mbuf: &Mbuf, len: usize) -> Result<Mbuf, Errno> {
        self.share_range(mbuf, 0..len)
    }

    /// Another mbuf over these bytes; those of a small mbuf are copied.
    ///
    /// # Errors
    /// [`Errno::NoMemory`].
    pub fn share_range(&self, mbuf: &Mbuf, bytes: Range<usize>) -> Result<Mbuf, Errno> {
        assert!(bytes.end <= mbuf.len, "{bytes:?} of an mbuf with {} bytes", mbuf.len);
        let (from, len) = (bytes.start, bytes.end - bytes.start);
        let mut other = self.header_at(mbuf.storage.clone(), 0, len)?;
        match mbuf.storage {
            Storage::Small => {
                let copied = self.machine.copy_kernel(self.va(&other, 0), self.va(mbuf, from), len);
                copied.expect("the kernel's own addresses are mapped");
                self.machine.count(KernelCounter::BytesCopied, len as u64);
            }
            _ => other.offset = mbuf.offset + from,
        }
        Ok(other)
    }

    /// Frees an mbuf, and what only it referred to.
    pub fn free(&self, mbuf: Mbuf) {
        self.machine.execute(self.paths.mbuf);
        self.machine.touch(mbuf.at, HEADER_BYTES, Access::Write);
        self.release(mbuf.storage);
        self.state.lock().mbufs.free(mbuf.at);
    }

    fn release(&self, storage: Storage) {
        match storage {
            Storage::Small => {}
            // A page of a card stays its device's.
            Storage::Card(page) => self.machine.trace_flow(Flow::Page(page.frame), FlowStep::Done),
            Storage::Cluster(shared) => {
                self.machine.execute(self.paths.cluster);
                if let Some(cluster) = Arc::into_inner(shared) {
                    // Freeing what showed a page that has become a process's frees no page (page-flip paper,
                    // Approaches: the routines that free skbs accept a fragment without page).
                    if cluster.is_robbed.load(Relaxed) {
                        return cluster.pages.forget();
                    }
                    let done = |&frame| self.machine.trace_flow(Flow::Page(frame), FlowStep::Done);
                    cluster.pages.frames().iter().for_each(done);
                    self.state.lock().free.push(cluster);
                }
            }
            Storage::Disposable(shared) => {
                if let Some(disposable) = Arc::into_inner(shared) {
                    self.machine.execute(self.paths.cluster);
                    self.disposables.end(disposable);
                    self.count_less(1);
                }
            }
            Storage::External(shared) => {
                if let Some(external) = Arc::into_inner(shared) {
                    self.loans.end(external);
                }
            }
        }
    }

    /// So many disposable pages are no longer the pool's.
    pub(super) fn count_less(&self, pages: usize) {
        let mut state = self.state.lock();
        (state.clusters, state.disposables) = (state.clusters - pages, state.disposables - pages);
    }

    // ------------------------------------------------------------------------------------------- addresses

    /// The address of the byte `at` of an mbuf.
    fn va(&self, mbuf: &Mbuf, at: usize) -> Va {
        let at = mbuf.offset + at;
        let direct = |frame: Pfn| self.addresses.direct(frame, Reach::Write) + at % PAGE_SIZE;
        match &mbuf.storage {
            Storage::Small => mbuf.at.0 + HEADER_BYTES + at,
            Storage::Cluster(c) => c.mapped_at.map_or_else(|| direct(c.pages.frames()[0]), |va| va + at),
            Storage::Disposable(d) => self.disposables.va(d) + at,
            Storage::External(_) => panic!("pages on loan are looked at by way of `look`"),
            Storage::Card(page) => page.mapped.map_or_else(|| direct(page.frame), |range| range.start() + at),
        }
    }

    /// The address of the first of `bytes` of an mbuf that is no loan.
    pub fn address(&self, mbuf: &Mbuf, bytes: Range<usize>) -> Va {
        assert!(bytes.end <= mbuf.len, "{bytes:?} of an mbuf with {} bytes", mbuf.len);
        self.va(mbuf, bytes.start)
    }

    /// Calls `look` with an address of the byte `at` of an mbuf, and how many bytes from there on, at most `max`, are
    /// in a row. The address is good until it returns, for the calling thread. Where `waits`, the thread sleeps for it
    /// if it has to.
    ///
    /// # Locks
    /// Where `waits`, no spin lock may be held.
    ///
    /// # Errors
    /// [`Errno::WouldBlock`], or where it waits [`Errno::Interrupted`]; [`Errno::NoMemory`]. Nothing was looked at.
    pub fn look<R>(
        &self,
        waits: (&dyn Threads, WaitFlag),
        mbuf: &Mbuf,
        at: usize,
        max: usize,
        look: impl FnOnce(Va, usize) -> R,
    ) -> Result<R, Errno> {
        match &mbuf.storage {
            Storage::External(external) => self.loans.look(waits, external, mbuf.offset + at, max, look),
            _ => Ok(look(self.address(mbuf, at..at + max), max)),
        }
    }

    /// The address behind the last byte of a small mbuf.
    pub fn end(&self, mbuf: &Mbuf) -> Va {
        assert!(mbuf.trailing_space() > 0, "bytes are appended to small mbufs with space only");
        self.va(mbuf, mbuf.len)
    }

    // ------------------------------------------------------------------------------------------- tracing

    /// The first `len` bytes of an mbuf take a step, by copy, to or from `at`: each page of its storage for itself.
    pub fn trace(&self, mbuf: &Mbuf, len: usize, at: Place, step: fn(Parcel) -> FlowStep) {
        if !self.machine.is_traced() {
            return;
        }
        let pieces = mbuf.fragments().unwrap_or_default();
        let mut done = 0;
        for (frame, _, piece) in pieces {
            let len_bytes = piece.min(len.saturating_sub(done));
            if len_bytes > 0 {
                let parcel = Parcel { by: Means::Copy, at: behind(at, done), len_bytes };
                self.machine.trace_flow(Flow::Page(frame), step(parcel));
            }
            done += len_bytes;
        }
        if matches!(mbuf.storage, Storage::Small) && len > 0 {
            let parcel = Parcel { by: Means::Copy, at, len_bytes: len };
            self.machine.trace_flow(Flow::Buffer(mbuf.at.0), step(parcel));
        }
    }

    // ------------------------------------------------------------------------------------------- giving pages away

    /// True for a cluster or a disposable page that is full, and that no other mbuf refers to: its page may be given
    /// away.
    pub fn is_donatable(&self, mbuf: &Mbuf) -> bool {
        let references = match &mbuf.storage {
            Storage::Cluster(cluster) => Arc::strong_count(cluster),
            Storage::Disposable(disposable) => Arc::strong_count(disposable),
            _ => return false,
        };
        let (offset, end) = (mbuf.offset, mbuf.offset + mbuf.len);
        let begins = offset == 0 || self.defect.is(NetDefect::FlipWithHeaders);
        let whole = begins && end == PAGE_SIZE || offset == 0 && self.defect.is(NetDefect::FlipOfPart);
        let alone = references == 1 || (self.defect.is(NetDefect::FlipOfShared) && !mbuf.is_disposable());
        whole && alone
    }

    /// Takes the pages out of donatable clusters: the kernel maps them no more. Then `give` puts them somewhere, and
    /// the clusters get other pages, those first that `give` has got in exchange; or it gives them back, and the
    /// clusters are as before.
    ///
    /// # Errors
    /// What `give` answered, with the mbufs.
    pub fn donate<R>(
        &self,
        mbufs: Vec<Mbuf>,
        give: impl FnOnce(KernelPages) -> Result<(R, Option<KernelPages>), (VmError, KernelPages)>,
    ) -> Result<R, NotDonated> {
        let mut change = TlbFlush::new();
        let mut pages: Option<KernelPages> = None;
        let mut emptied = Vec::with_capacity(mbufs.len());
        for mbuf in mbufs {
            let Storage::Cluster(shared) = mbuf.storage else { panic!("only clusters are donated") };
            let cluster = match Arc::try_unwrap(shared) {
                Ok(cluster) => cluster,
                Err(shared) => self.taken_from_others(&shared),
            };
            if let Some(va) = cluster.mapped_at {
                change.merge(self.vm.pmaps().kremove(VaRange::pages_from(va, 1)));
                self.vm.kernel_pages_change(VaRange::pages_from(va, 1));
            }
            match &mut pages {
                None => pages = Some(cluster.pages),
                Some(all) => all.append(cluster.pages),
            }
            let bytes = mbuf.offset..mbuf.offset + mbuf.len;
            emptied.push(Emptied { at: mbuf.at, bytes, mapped_at: cluster.mapped_at });
        }
        match self.defect.is(NetDefect::FlippedNotFlushed) {
            true => change.not_cached(self.vm.pmaps()),
            false => _ = change.flush(self.vm.pmaps()),
        }
        let count = emptied.len();
        match give(pages.expect("at least one page is donated")) {
            Ok((given, mut others)) => {
                self.machine.count(KernelCounter::PagesDonated, count as u64);
                for emptied in emptied {
                    let page = match &mut others {
                        Some(pages) if pages.frames().len() > 1 => {
                            Some(pages.split_off(pages.frames().len() - 1))
                        }
                        _ => others.take(),
                    };
                    self.refill(emptied, page);
                }
                Ok(given)
            }
            Err((error, pages)) => Err(self.refused(error, self.put_back(emptied, pages))),
        }
    }

    /// What becomes of mbufs whose pages were refused: they are the caller's again, in their order.
    pub(super) fn refused(&self, error: VmError, mut back: Vec<Mbuf>) -> NotDonated {
        if self.defect.is(NetDefect::FlipRefusedReversed) {
            back.reverse();
        }
        if self.defect.is(NetDefect::FlipRefusedLost) {
            back.drain(..).for_each(|mbuf| self.free(mbuf));
        }
        NotDonated { error, back }
    }

    /// What [`NetDefect::FlipOfShared`] takes: the page of a cluster that others show, who go on doing so.
    fn taken_from_others(&self, shared: &Cluster) -> Cluster {
        assert!(self.defect.is(NetDefect::FlipOfShared), "a cluster with two references is not donated");
        shared.is_robbed.store(true, Relaxed);
        Cluster::new(shared.mapped_at, shared.pages.claimed_again())
    }

    /// Frees an mbuf whose cluster has lost its page, and gives the cluster `page` in its place, or another if there is
    /// one.
    fn refill(&self, Emptied { at, mapped_at, .. }: Emptied, page: Option<KernelPages>) {
        self.machine.execute(self.paths.mbuf);
        if page.is_none() {
            self.machine.execute(self.paths.cluster);
        }
        self.machine.touch(at, HEADER_BYTES, Access::Write);
        let pages = page.or_else(|| self.vm.kernel_pages(1).ok());
        if let (Some(va), Some(pages)) = (mapped_at, &pages) {
            self.vm.kernel_pages_change(VaRange::pages_from(va, 1));
            self.vm.pmaps().kenter(va, pages.frames(), Prot::RW).not_cached(self.vm.pmaps());
        }
        let mut state = self.state.lock();
        state.mbufs.free(at);
        match pages {
            Some(pages) => state.free.push(Cluster::new(mapped_at, pages)),
            None => {
                state.clusters -= 1;
                drop(state);
                mapped_at.iter().for_each(|&va| {
                    KernelAddresses::free(&*self.vm, VaRange::pages_from(va, 1));
                });
            }
        }
    }

    fn put_back(&self, emptied: Vec<Emptied>, mut pages: KernelPages) -> Vec<Mbuf> {
        let mut back = Vec::with_capacity(emptied.len());
        for Emptied { at, bytes, mapped_at } in emptied {
            let rest = pages.split_off(1);
            let pages = core::mem::replace(&mut pages, rest);
            if let Some(va) = mapped_at {
                self.vm.kernel_pages_change(VaRange::pages_from(va, 1));
                self.vm.pmaps().kenter(va, pages.frames(), Prot::RW).not_cached(self.vm.pmaps());
            }
            let storage = Storage::Cluster(Arc::new(Cluster::new(mapped_at, pages)));
            back.push(Mbuf { at, storage, offset: bytes.start, len: bytes.len() });
        }
        back
    }

    /// Lends the first `len_pages` of an external mbuf, which are whole, further.
    ///
    /// # Errors
    /// [`VmError::NoMemory`].
    pub fn lend_on(&self, mbuf: &Mbuf, len_pages: usize) -> Result<AnonLoan<M>, VmError> {
        let Storage::External(external) = &mbuf.storage else { panic!("only what is on loan is lent on") };
        assert!(len_pages <= mbuf.whole_lent_pages(), "whole pages are lent on");
        let first = mbuf.offset / PAGE_SIZE;
        let loan = external.loan().expect("what is pinned has no whole lent pages");
        self.vm.loan_frames_to_anons(loan, first..first + len_pages)
    }

    // ------------------------------------------------------------------------------------------- looking and ending

    /// Where the free clusters are, the next to be used first. For experiments that write what is found there, and for
    /// checks.
    pub fn free_clusters(&self) -> Vec<Va> {
        let state = self.state.lock();
        let direct = |c: &Cluster| self.vm.pmaps().direct_va(c.pages.frames()[0]);
        let va = |c: &Cluster| c.mapped_at.or_else(|| direct(c)).expect("every cluster has an address");
        state.free.iter().rev().map(va).collect()
    }

    /// Mbufs, and clusters, that are in use.
    pub fn in_use(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.mbufs.live(), state.clusters - state.free.len())
    }

    /// Gives back all clusters that are free; answers how many.
    pub fn drain(&self) -> usize {
        let free = {
            let mut state = self.state.lock();
            let free = core::mem::take(&mut state.free);
            state.clusters -= free.len();
            free
        };
        let count = free.len();
        let mut change = TlbFlush::new();
        for va in free.iter().filter_map(|cluster| cluster.mapped_at) {
            let at = VaRange::pages_from(va, 1);
            change.merge(self.vm.pmaps().kremove(at));
            self.vm.kernel_pages_change(at);
        }
        change.flush(self.vm.pmaps());
        for Cluster { mapped_at, pages, .. } in free {
            mapped_at.iter().for_each(|&va| KernelAddresses::free(&*self.vm, VaRange::pages_from(va, 1)));
            self.vm.free_kernel_pages(pages);
        }
        count
    }
}

/// The place `len` bytes on.
fn behind(at: Place, len: usize) -> Place {
    match at {
        Place::User(va) => Place::User(va + len),
        Place::File(from) => Place::File(from + len as u64),
        Place::Device => Place::Device,
    }
}
