//! Shootdowns: making other CPUs invalidate.
//!
//! One is in flight at a time, under the lock of class `Shootdown` (FreeBSD 5: `smp_ipi_mtx`). The initiator writes the
//! request, names the CPUs that must answer, interrupts exactly those, and spins until each has taken its name off. The
//! request fits a cache line; it is read without a lock, because it stays as it is while a name is on it. Waiting for
//! the lock and for the answers leaves interrupts enabled, so two initiators cannot wait for each other for ever.
//!
//! On a uniprocessor there is no lock, and nobody to ask.

use crate::change::Part;
use crate::pmap::{PmapId, Pmaps};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pageferry_hal::{
    Access, Cause, Counter, CpuId, CpuSet, Interrupt, LockClass, Machine, PAGE_SIZE, StructVa, Va, VaRange,
};

/// Up to this many user pages are invalidated one by one; beyond it, the page-table root is loaded again, which spares
/// the kernel's global entries. About what the larger data TLBs of the machines hold, halved: refilling costs too.
pub const FULL_FLUSH_PAGES: usize = 32;

/// Ranges in one request: it fills a cache line of 64 bytes.
const MAX_RANGES: usize = 3;
/// Bytes of the request.
const REQUEST_BYTES: usize = 64;

/// What the asked CPUs shall do.
#[derive(Clone, Copy)]
enum Task {
    /// Invalidate the pages of the request's ranges.
    Pages = 0,
    /// Load the page-table root again.
    Root = 1,
    /// Leave the address space whose number is where the first range would begin.
    Leave = 2,
}

impl Task {
    const ALL: [Task; 3] = [Task::Pages, Task::Root, Task::Leave];
}

/// The request in flight.
pub(crate) struct Shootdown<M: Machine> {
    /// Held by the initiator until all have answered.
    pub(crate) turn: M::Lock<()>,
    task: AtomicU32,
    ranges: AtomicU32,
    starts: [AtomicU64; MAX_RANGES],
    ends: [AtomicU64; MAX_RANGES],
    /// The CPUs that have not answered yet.
    pending: AtomicU64,
    /// The modelled address of all this.
    at: StructVa,
}

/// A request in the making.
struct Batch {
    to: CpuSet,
    ranges: [VaRange; MAX_RANGES],
    used: usize,
}

impl Batch {
    fn new() -> Batch {
        Batch { to: CpuSet::EMPTY, ranges: [VaRange::pages_from(Va(0), 0); MAX_RANGES], used: 0 }
    }
    fn add(&mut self, range: VaRange, to: CpuSet) {
        self.ranges[self.used] = range;
        self.used += 1;
        self.to = self.to.union(to);
    }
    fn len_pages(&self) -> usize {
        self.ranges[..self.used].iter().map(VaRange::len_pages).sum()
    }
}

impl<M: Machine> Shootdown<M> {
    pub(crate) const BYTES: usize = REQUEST_BYTES;

    pub(crate) fn new(machine: &M, at: StructVa) -> Shootdown<M> {
        Shootdown {
            turn: machine.new_lock(LockClass::Shootdown, ()),
            task: AtomicU32::new(0),
            ranges: AtomicU32::new(0),
            starts: Default::default(),
            ends: Default::default(),
            pending: AtomicU64::new(0),
            at,
        }
    }
}

impl<M: Machine> Pmaps<M> {
    /// The handler for [`Interrupt::Shootdown`]. Takes no lock; does nothing if nobody waits for this CPU.
    pub fn handle_shootdown(&self) {
        let (m, request) = (&self.machine, &self.shootdown);
        let me = m.cpu();
        let _c = m.scope(Cause::ShootdownReceived);
        m.execute(self.config.paths.shootdown_handle);
        m.touch(request.at, REQUEST_BYTES, Access::Read);
        if !CpuSet::from_bits(request.pending.load(Ordering::Acquire)).contains(me) {
            return;
        }
        match Task::ALL[request.task.load(Ordering::Relaxed) as usize] {
            Task::Pages => {
                for i in 0..request.ranges.load(Ordering::Relaxed) as usize {
                    let (start, end) = (&request.starts[i], &request.ends[i]);
                    let range =
                        VaRange::new(Va(start.load(Ordering::Relaxed)), Va(end.load(Ordering::Relaxed)));
                    if range.start() >= self.kernel.layout.user_end || !self.leave_lazily(me) {
                        range.pages().for_each(|va| m.invalidate_page(va));
                    }
                }
            }
            Task::Root => {
                if !self.leave_lazily(me) {
                    self.reload_root(me);
                }
            }
            Task::Leave => self.leave(me, PmapId(request.starts[0].load(Ordering::Relaxed) as u32)),
        }
        m.touch(request.at, size_of::<u64>(), Access::Write);
        request.pending.fetch_and(!CpuSet::only(me).bits(), Ordering::AcqRel);
    }

    /// Invalidates one kernel page in the own TLB, and counts it.
    ///
    /// # Locks
    /// Takes none. The caller is pinned or holds a spin lock.
    pub fn invalidate_local(&self, va: Va) {
        let _c = self.machine.scope(Cause::InvalidateLocal);
        self.machine.invalidate_page(va.page());
        self.machine.count(Counter::TlbInvalidationsLocal, 1);
    }

    /// Makes `cpus` (itself excluded) invalidate one kernel page, waits, and counts it.
    ///
    /// # Locks
    /// Takes the shootdown lock. The caller is pinned or holds a spin lock of a lower class.
    pub fn invalidate_remote(&self, va: Va, cpus: CpuSet) {
        assert!(self.machine.cpus().covers(cpus), "{cpus:?} are more CPUs than there are");
        let others = |me| cpus.difference(CpuSet::only(me)).intersection(self.holders(PmapId::KERNEL));
        if others(self.machine.cpu()).is_empty() {
            return;
        }
        let _turn = self.shootdown_turn();
        let mut batch = Batch::new();
        batch.add(VaRange::page(va), others(self.machine.cpu()));
        self.ask_pages(&mut batch);
    }

    /// Invalidates `parts` wherever they may be cached: here, then on the other CPUs.
    ///
    /// The thread keeps its CPU because it holds the shootdown lock, or because there is only one.
    pub(crate) fn invalidate_everywhere<'a, I>(&self, parts: impl Fn() -> I)
    where
        I: Iterator<Item = &'a Part>,
    {
        let _turn = self.shootdown_turn();
        let me = self.machine.cpu();
        self.invalidate_here(me, &parts);
        if self.loaded.len() > 1 {
            self.invalidate_others(me, parts);
        }
    }

    /// Invalidates in the own TLB those of `parts` that it may hold.
    pub(crate) fn invalidate_here<'a, I>(&self, me: CpuId, parts: impl Fn() -> I)
    where
        I: Iterator<Item = &'a Part>,
    {
        let m = &self.machine;
        let _c = m.scope(Cause::InvalidateLocal);
        let full = is_full_flush(parts());
        let mut reload = false;
        for part in parts().filter(|p| self.holders(p.space).contains(me)) {
            m.count(Counter::TlbInvalidationsLocal, part.range.len_pages() as u64);
            if full && part.space != PmapId::KERNEL {
                reload = true;
            } else {
                part.range.pages().for_each(|va| m.invalidate_page(va));
            }
        }
        if reload {
            self.reload_root(me);
        }
    }

    fn invalidate_others<'a, I>(&self, me: CpuId, parts: impl Fn() -> I)
    where
        I: Iterator<Item = &'a Part>,
    {
        let full = is_full_flush(parts());
        let mut batch = Batch::new();
        let (mut reload, mut reload_pages) = (CpuSet::EMPTY, 0);
        for part in parts() {
            let to = self.holders(part.space).difference(CpuSet::only(me));
            if to.is_empty() {
                continue;
            }
            if full && part.space != PmapId::KERNEL {
                reload = reload.union(to);
                reload_pages += part.range.len_pages();
            } else if self.config.ranged_shootdown {
                batch.add(part.range, to);
                if batch.used == MAX_RANGES {
                    self.ask_pages(&mut batch);
                }
            } else {
                for va in part.range.pages() {
                    batch.add(VaRange::page(va), to);
                    self.ask_pages(&mut batch);
                }
            }
        }
        if batch.used > 0 {
            self.ask_pages(&mut batch);
        }
        if !reload.is_empty() {
            self.count_shootdown(reload, reload_pages);
            self.ask(Task::Root, reload);
        }
    }

    /// Makes every other CPU that lazily runs on `space` leave it; the own one too.
    pub(crate) fn leave_everywhere(&self, space: PmapId) {
        let _turn = self.shootdown_turn();
        let me = self.machine.cpu();
        self.leave(me, space);
        let others = self.holders(space).difference(CpuSet::only(me));
        if !others.is_empty() {
            self.shootdown.starts[0].store(u64::from(space.0), Ordering::Relaxed);
            self.ask(Task::Leave, others);
        }
    }

    fn ask_pages(&self, batch: &mut Batch) {
        assert!(batch.used > 0 && !batch.to.is_empty(), "a shootdown needs pages and CPUs");
        for (i, range) in batch.ranges[..batch.used].iter().enumerate() {
            self.shootdown.starts[i].store(range.start().0, Ordering::Relaxed);
            self.shootdown.ends[i].store(range.end().0, Ordering::Relaxed);
        }
        self.shootdown.ranges.store(batch.used as u32, Ordering::Relaxed);
        self.count_shootdown(batch.to, batch.len_pages());
        self.ask(Task::Pages, batch.to);
        *batch = Batch::new();
    }

    fn count_shootdown(&self, to: CpuSet, pages: usize) {
        self.machine.count(Counter::Shootdowns, 1);
        self.machine.count(Counter::ShootdownIpis, to.len() as u64);
        self.machine.count(Counter::TlbInvalidationsRemoteIssued, pages as u64);
    }

    /// Interrupts `to` for the request that is written, and waits for them. The caller holds the turn.
    fn ask(&self, task: Task, to: CpuSet) {
        let (m, request) = (&self.machine, &self.shootdown);
        let _c = m.scope(Cause::ShootdownSent);
        assert!(!to.contains(m.cpu()), "a CPU that interrupts itself would wait for ever");
        assert_eq!(request.pending.load(Ordering::Relaxed), 0, "two shootdowns in flight");
        m.execute(self.config.paths.shootdown_send);
        m.touch(request.at, REQUEST_BYTES, Access::Write);
        request.task.store(task as u32, Ordering::Relaxed);
        request.pending.store(to.bits(), Ordering::Release);
        m.send_ipi(to, Interrupt::Shootdown);
        m.spin_until(&mut || request.pending.load(Ordering::Acquire) == 0);
    }
}

/// True when the user pages among `parts` are too many to be invalidated one by one.
fn is_full_flush<'a>(parts: impl Iterator<Item = &'a Part>) -> bool {
    let user = parts.filter(|p| p.space != PmapId::KERNEL);
    user.map(|p| p.range.len_bytes() / PAGE_SIZE).sum::<usize>() > FULL_FLUSH_PAGES
}
