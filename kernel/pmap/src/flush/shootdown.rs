//! Shootdowns: making other CPUs invalidate.
//!
//! One is in flight at a time, under the lock of class `Shootdown` (FreeBSD 5: `smp_ipi_mtx`). The initiator writes the
//! request, names the CPUs that must answer, interrupts exactly those, and spins until each has taken its name off. The
//! request fits a cache line; it is read without a lock, because it stays as it is while a name is on it. Waiting for
//! the lock and for the answers leaves interrupts enabled, so two initiators cannot wait for each other for ever.
//!
//! On a uniprocessor there is no lock, and no CPU to ask. Where one CPU can invalidate pages for all, it does so, page
//! by page, and waits once until the others have; the lock keeps its thread there meanwhile.

use super::invalidations::Invalidations;
use super::part::Part;
use crate::counter::PmapCounter;
use crate::defect::PmapDefect;
use crate::pmap::Pmaps;
use crate::tables::space::Shared;
use crate::tlb::asid::{Tagging, Tags};
use crate::tlb::request::{IpiOp, MAX_RANGES, REQUEST_BYTES};
use core::sync::atomic::Ordering;
use pageferry_hal::{
    Access, Asid, Cause, CpuId, CpuSet, Flush, Interrupt, Machine, PAGE_SIZE, SpaceId, Va, VaRange,
};

/// A request in the making: pages of one address space, or of several where entries carry no tags.
struct Batch {
    space: SpaceId,
    asid: Option<Asid>,
    to: CpuSet,
    ranges: [VaRange; MAX_RANGES],
    used: usize,
}

impl Batch {
    fn new() -> Batch {
        let (space, asid) = (SpaceId::KERNEL, None);
        Batch { space, asid, to: CpuSet::EMPTY, ranges: [VaRange::pages_from(Va(0), 0); MAX_RANGES], used: 0 }
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

impl<M: Machine> Pmaps<M> {
    /// The handler for [`Interrupt::Shootdown`]. Takes no lock; does nothing if no initiator waits for this CPU.
    pub fn handle_shootdown(&self) {
        let (m, request) = (&self.machine, &self.shootdown);
        let me = m.cpu();
        let _c = m.scope(Cause::ShootdownReceived);
        m.execute(self.config.paths.shootdown_handle);
        m.touch(request.at, REQUEST_BYTES, Access::Read);
        if !CpuSet::from_bits(request.pending.load(Ordering::Acquire)).contains(me) {
            return;
        }
        let space = SpaceId(request.space.load(Ordering::Relaxed));
        let asid = (self.tagging == Tagging::Shared).then(|| Asid(request.asid.load(Ordering::Relaxed)));
        match IpiOp::ALL[request.op.load(Ordering::Relaxed) as usize] {
            IpiOp::Pages => {
                let mut lazily = false;
                for i in 0..request.ranges.load(Ordering::Relaxed) as usize {
                    let (start, end) = (&request.starts[i], &request.ends[i]);
                    let range =
                        VaRange::new(Va(start.load(Ordering::Relaxed)), Va(end.load(Ordering::Relaxed)));
                    if range.start() >= self.kernel.layout.user_end {
                        self.flush_pages(me, SpaceId::KERNEL, asid, range);
                        continue;
                    }
                    match self.tagging {
                        Tagging::None if self.leave_lazily(me) => {}
                        Tagging::None | Tagging::Shared => self.flush_pages(me, space, asid, range),
                        Tagging::PerCpu => {
                            self.flush_pages(me, space, asid, range);
                            lazily = true;
                        }
                    }
                }
                // Only now: the tag of what is to be invalidated goes with the space.
                if lazily {
                    self.leave_lazily(me);
                }
            }
            IpiOp::Space => {
                if self.tagging != Tagging::None || !self.leave_lazily(me) {
                    self.flush_space(me, space, asid);
                }
            }
            IpiOp::Leave => self.leave(me, space),
            IpiOp::All => self.flush_own(Flush::All),
        }
        m.touch(request.at, size_of::<u64>(), Access::Write);
        request.pending.fetch_and(!CpuSet::only(me).bits(), Ordering::AcqRel);
    }

    /// Invalidates pages of `space` in the own TLB, one by one. `asid` is the space's tag where that is the same on all
    /// CPUs.
    fn flush_pages(&self, me: CpuId, space: SpaceId, asid: Option<Asid>, range: VaRange) {
        if self.config.defect.is(PmapDefect::MissingFlush) {
            return;
        }
        let tag = match self.tagging {
            _ if space == SpaceId::KERNEL => Some(Asid::KERNEL),
            Tagging::None => Some(Asid::KERNEL),
            Tagging::Shared => asid,
            Tagging::PerCpu => self.tag_here(me, space),
        };
        match tag {
            Some(asid) => range.pages().for_each(|va| self.flush_own(Flush::Page(asid, va))),
            // In the middle of a switch: nothing says under which tag they are.
            None => self.flush_own(Flush::All),
        }
    }

    /// Invalidates one kernel page in the own TLB, counts it, and answers what was issued.
    ///
    /// # Locks
    /// Takes none. The caller is pinned or holds a spin lock.
    pub fn invalidate_local(&self, va: Va) -> Invalidations {
        let _c = self.machine.scope(Cause::InvalidateLocal);
        self.flush_own(Flush::Page(Asid::KERNEL, va.page()));
        self.machine.count(PmapCounter::TlbInvalidationsLocal, 1);
        Invalidations { local: 1, remote: 0 }
    }

    /// Makes `cpus` (itself excluded) invalidate one kernel page, waits, counts it, and answers what was issued.
    ///
    /// # Locks
    /// Takes the shootdown lock. The caller is pinned or holds a spin lock of a lower class.
    pub fn invalidate_remote(&self, va: Va, cpus: CpuSet) -> Invalidations {
        assert!(self.machine.cpus().covers(cpus), "{cpus:?} are more CPUs than there are");
        let others =
            |me| cpus.difference(CpuSet::only(me)).intersection(self.active_cpus(SpaceId::KERNEL, None));
        if others(self.machine.cpu()).is_empty() {
            return Invalidations::NONE;
        }
        let issued = Invalidations { local: 0, remote: 1 };
        if self.broadcasts() {
            let _c = self.machine.scope(Cause::ShootdownSent);
            self.broadcast_pages(Asid::KERNEL, VaRange::page(va));
            self.synchronise();
            self.machine.count(PmapCounter::TlbInvalidationsRemoteIssued, issued.remote);
            return issued;
        }
        let _ipi = self.ipi_lock();
        let mut batch = Batch::new();
        batch.add(VaRange::page(va), others(self.machine.cpu()));
        self.send_pages(&mut batch);
        issued
    }

    /// Invalidates `parts` wherever they may be cached: here, then on the other CPUs.
    ///
    /// The thread keeps its CPU because it holds the shootdown lock, or because there is only one.
    pub(crate) fn invalidate_everywhere<'a, I>(&self, parts: impl Fn() -> I) -> Invalidations
    where
        I: Iterator<Item = &'a Part>,
    {
        let _ipi = self.ipi_lock();
        let me = self.machine.cpu();
        if self.broadcasts() {
            return self.broadcast(me, parts);
        }
        let local = self.invalidate_here(me, &parts);
        let remote = if self.active.len() > 1 { self.invalidate_others(me, parts) } else { 0 };
        Invalidations { local, remote }
    }

    /// Invalidates `parts` in the TLBs of all CPUs, page by page, and waits for that once. It counts as what interrupts
    /// would have done.
    fn broadcast<'a, I>(&self, me: CpuId, parts: impl Fn() -> I) -> Invalidations
    where
        I: Iterator<Item = &'a Part>,
    {
        let m = &self.machine;
        let _c = m.scope(Cause::InvalidateLocal);
        let mut begun = false;
        let mut issued = Invalidations::NONE;
        for part in parts() {
            let tags = part.tags.as_deref();
            let holders = self.active_cpus(part.space, tags);
            let wrong = self.config.defect.is(PmapDefect::OwnSpaceOnly);
            if holders.is_empty() || wrong && !holders.contains(me) {
                continue;
            }
            let pages = part.range.len_pages() as u64;
            let others = !holders.difference(CpuSet::only(me)).is_empty();
            let local = if holders.contains(me) { pages } else { 0 };
            let these = Invalidations { local, remote: if others { pages } else { 0 } };
            m.count(PmapCounter::TlbInvalidationsLocal, these.local);
            m.count(PmapCounter::TlbInvalidationsRemoteIssued, these.remote);
            issued += these;
            self.broadcast_pages(tags.and_then(Tags::shared).unwrap_or(Asid::KERNEL), part.range);
            begun = true;
        }
        if begun {
            self.synchronise();
        }
        issued
    }

    /// Begins to invalidate pages in the TLBs of all CPUs: [`Pmaps::synchronise`] has to follow.
    fn broadcast_pages(&self, asid: Asid, range: VaRange) {
        if !self.config.defect.is(PmapDefect::MissingFlush) {
            range.pages().for_each(|va| self.flush_own(Flush::Broadcast(asid, va)));
        }
    }

    fn synchronise(&self) {
        if !self.config.defect.is(PmapDefect::BroadcastNotAwaited) {
            self.flush_own(Flush::Synchronise);
        }
    }

    /// Invalidates in the own TLB those of `parts` that it may hold: so many pages.
    pub(crate) fn invalidate_here<'a, I>(&self, me: CpuId, parts: impl Fn() -> I) -> u64
    where
        I: Iterator<Item = &'a Part>,
    {
        let m = &self.machine;
        let _c = m.scope(Cause::InvalidateLocal);
        let full = self.is_full_flush(parts());
        // The address space that is to be invalidated whole; where entries carry no tags, the one that runs, whichever
        // it is.
        let mut whole: Option<(SpaceId, Option<Asid>)> = None;
        let mut issued = 0;
        for part in parts() {
            let tags = part.tags.as_deref();
            let holders = self.active_cpus(part.space, tags);
            if !holders.contains(me) {
                continue;
            }
            m.count(PmapCounter::TlbInvalidationsLocal, part.range.len_pages() as u64);
            issued += part.range.len_pages() as u64;
            let asid = tags.and_then(Tags::shared);
            if !full || part.space == SpaceId::KERNEL {
                self.flush_pages(me, part.space, asid, part.range);
                continue;
            }
            let other = whole.replace((part.space, asid)).filter(|(space, _)| *space != part.space);
            if let (Some((space, asid)), true) = (other, self.tagging != Tagging::None) {
                self.flush_space(me, space, asid);
            }
        }
        if let Some((space, asid)) = whole {
            self.flush_space(me, space, asid);
        }
        issued
    }

    /// The user pages among `parts` are too many to be invalidated one by one.
    fn is_full_flush<'a>(&self, parts: impl Iterator<Item = &'a Part>) -> bool {
        let user = parts.filter(|p| p.space != SpaceId::KERNEL);
        user.map(|p| p.range.len_bytes() / PAGE_SIZE).sum::<usize>() > self.config.full_flush_pages
    }

    /// One CPU can invalidate pages for all: nothing has to be asked of them.
    fn broadcasts(&self) -> bool {
        self.machine.board().broadcasts_flushes
    }

    /// Makes the other CPUs that may hold `parts` invalidate them: so many pages.
    fn invalidate_others<'a, I>(&self, me: CpuId, parts: impl Fn() -> I) -> u64
    where
        I: Iterator<Item = &'a Part>,
    {
        let full = self.is_full_flush(parts());
        let tagged = self.tagging != Tagging::None;
        let mut batch = Batch::new();
        // What is to be invalidated whole: see `invalidate_here`.
        let mut whole = Batch::new();
        let mut whole_pages = 0;
        let mut issued = 0;
        for part in parts() {
            let tags = part.tags.as_deref();
            let to = self.active_cpus(part.space, tags).difference(CpuSet::only(me));
            if to.is_empty() {
                continue;
            }
            issued += part.range.len_pages() as u64;
            let user = part.space != SpaceId::KERNEL;
            let asid = tags.and_then(Tags::shared);
            if full && user {
                if tagged && !whole.to.is_empty() && whole.space != part.space {
                    self.send_whole(&mut whole, &mut whole_pages);
                }
                (whole.space, whole.asid) = (part.space, asid);
                whole.to = whole.to.union(to);
                whole_pages += part.range.len_pages();
                continue;
            }
            if tagged && batch.used > 0 && batch.space != part.space {
                self.send_pages(&mut batch);
            }
            (batch.space, batch.asid) = (part.space, asid);
            if self.config.ranged_shootdown {
                batch.add(part.range, to);
                if batch.used == MAX_RANGES {
                    self.send_pages(&mut batch);
                }
            } else {
                for va in part.range.pages() {
                    (batch.space, batch.asid) = (part.space, asid);
                    batch.add(VaRange::page(va), to);
                    self.send_pages(&mut batch);
                }
            }
        }
        if batch.used > 0 {
            self.send_pages(&mut batch);
        }
        if !whole.to.is_empty() {
            self.send_whole(&mut whole, &mut whole_pages);
        }
        issued
    }

    /// Has a whole address space invalidated, for the sake of so many pages.
    fn send_whole(&self, whole: &mut Batch, pages: &mut usize) {
        self.count_shootdown(whole.to, core::mem::take(pages));
        self.send_and_wait(IpiOp::Space, whole.space, whole.asid, whole.to);
        *whole = Batch::new();
    }

    /// Makes every other CPU that lazily runs on the space leave it; the own one too.
    pub(crate) fn leave_everywhere(&self, shared: &Shared<M>) {
        let _ipi = self.ipi_lock();
        let me = self.machine.cpu();
        self.leave(me, shared.id);
        let others = self.active_cpus(shared.id, None).difference(CpuSet::only(me));
        if !others.is_empty() {
            self.send_and_wait(IpiOp::Leave, shared.id, None, others);
        }
    }

    /// Makes every other CPU that lazily runs on the space leave it.
    pub(crate) fn leave_everywhere_else(&self, shared: &Shared<M>) {
        let _ipi = self.ipi_lock();
        let others = self.active_cpus(shared.id, None).difference(CpuSet::only(self.machine.cpu()));
        if !others.is_empty() {
            self.send_and_wait(IpiOp::Leave, shared.id, None, others);
        }
    }

    /// Empties the TLBs of all CPUs.
    ///
    /// # Locks
    /// Takes the shootdown lock.
    pub(crate) fn empty_everywhere(&self) {
        let _ipi = self.ipi_lock();
        let me = self.machine.cpu();
        self.flush_own(Flush::All);
        let others = self.active_cpus(SpaceId::KERNEL, None).difference(CpuSet::only(me));
        if !others.is_empty() {
            self.send_and_wait(IpiOp::All, SpaceId::KERNEL, None, others);
        }
    }

    fn send_pages(&self, batch: &mut Batch) {
        assert!(batch.used > 0 && !batch.to.is_empty(), "a shootdown needs pages and CPUs");
        for (i, range) in batch.ranges[..batch.used].iter().enumerate() {
            self.shootdown.starts[i].store(range.start().0, Ordering::Relaxed);
            self.shootdown.ends[i].store(range.end().0, Ordering::Relaxed);
        }
        self.shootdown.ranges.store(batch.used as u32, Ordering::Relaxed);
        self.count_shootdown(batch.to, batch.len_pages());
        self.send_and_wait(IpiOp::Pages, batch.space, batch.asid, batch.to);
        *batch = Batch::new();
    }

    fn count_shootdown(&self, to: CpuSet, pages: usize) {
        self.machine.count(PmapCounter::Shootdowns, 1);
        self.machine.count(PmapCounter::ShootdownIpis, to.len() as u64);
        self.machine.count(PmapCounter::TlbInvalidationsRemoteIssued, pages as u64);
    }

    /// Interrupts `to` for the request that is written, and waits for them. The caller holds the lock of shootdowns.
    fn send_and_wait(&self, op: IpiOp, space: SpaceId, asid: Option<Asid>, to: CpuSet) {
        let (m, request) = (&self.machine, &self.shootdown);
        let _c = m.scope(Cause::ShootdownSent);
        assert!(!to.contains(m.cpu()), "a CPU that interrupts itself would wait for ever");
        assert_eq!(request.pending.load(Ordering::Relaxed), 0, "two shootdowns in flight");
        m.execute(self.config.paths.shootdown_send);
        m.touch(request.at, REQUEST_BYTES, Access::Write);
        request.op.store(op as u32, Ordering::Relaxed);
        request.space.store(space.0, Ordering::Relaxed);
        request.asid.store(asid.unwrap_or_default().0, Ordering::Relaxed);
        request.pending.store(to.bits(), Ordering::Release);
        m.send_ipi(to, Interrupt::Shootdown);
        m.spin_until(&mut || request.pending.load(Ordering::Acquire) == 0);
    }
}
