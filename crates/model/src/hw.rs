//! The hardware state of one machine, and what one CPU does to it in one step.
//!
//! Nothing here suspends or calls kernel code: a step happens at one CPU's time, charges that CPU, and is over.
//! Interleaving, interrupts and contexts are the business of [`crate::machine`].

use crate::account::{Hardware as Counts, Snapshot};
use crate::audio::Audio;
use crate::cache::{Caches, Kind};
use crate::disk::Disk;
use crate::memory::Memory;
use crate::oracle::{Effect, Oracle, Site, effect};
use crate::params::Params;
use crate::tlb::{Entry, Level, NO_PTE, Tlb};
use crate::trace::Recorder;
use pageferry_hal::x86::{Format, PTE_A, PTE_D, PTE_G, PTE_P, PTE_PS, PTE_U, PTE_W};
use pageferry_hal::{
    Access, AudioRequest, Cause, Counter, CpuId, Cycles, DiskRequest, Instructions, Interrupt, Mode, Pa,
    PteWidth, Transfer, Trap, TrapKind, Va,
};
use std::collections::VecDeque;

/// What a CPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuState {
    /// Not started, or stopped for good.
    Off,
    Running,
    /// In a halt, until an interrupt.
    Halted,
}

pub(crate) struct Cpu {
    pub(crate) clock: u64,
    /// The cause in force.
    pub(crate) cause: Cause,
    /// The context in force.
    pub(crate) context: usize,
    causes: [u64; Cause::COUNT],
    pub(crate) package: usize,
    pub(crate) state: CpuState,
    /// Waits in a loop that leaves the execution units to the sibling.
    pub(crate) spinning: bool,
    pub(crate) in_handler: bool,
    /// Interrupts on their way or waiting, by time of arrival.
    pub(crate) pending: VecDeque<(u64, Interrupt)>,
    root: Option<Pa>,
    /// Thousandths of a cycle that the last instructions left over.
    milli: u64,
}

pub(crate) struct Hw {
    pub(crate) params: Params,
    pub(crate) format: Format,
    pub(crate) memory: Memory,
    /// Without, every access to memory takes one cycle.
    caches: Option<Caches>,
    tlbs: Vec<Tlb>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) oracle: Oracle,
    pub(crate) counters: [u64; Counter::COUNT],
    pub(crate) counts: Counts,
    /// When the last interrupt handler finished: what it wrote cannot be seen earlier by a CPU that spins.
    pub(crate) handled_at: u64,
    /// Records where the time goes, if that is asked for.
    pub(crate) recorder: Option<Box<Recorder>>,
    pub(crate) disk: Disk,
    pub(crate) audio: Audio,
}

impl Hw {
    pub(crate) fn new(params: Params, caches: Option<Caches>) -> Hw {
        let format = Format::of(params.arch);
        let cores = if params.tlb_shared { params.packages } else { params.cpus };
        let tlb = || {
            Tlb::new(
                params.tlb,
                params.tlb_superpages,
                params.tlb_second,
                format.superpage_shift(),
                params.cpus,
            )
        };
        let cpu = |i: usize| Cpu {
            clock: 0,
            cause: Cause::Boot,
            context: 0,
            causes: [0; Cause::COUNT],
            package: i / params.threads_per_package,
            state: CpuState::Off,
            spinning: false,
            in_handler: false,
            pending: VecDeque::new(),
            root: None,
            milli: 0,
        };
        Hw {
            format,
            memory: Memory::new(params.frames),
            caches,
            tlbs: (0..cores).map(|_| tlb()).collect(),
            cpus: (0..params.cpus).map(cpu).collect(),
            oracle: Oracle::new(params.frames),
            counters: [0; Counter::COUNT],
            counts: Counts::default(),
            handled_at: 0,
            recorder: None,
            disk: Disk::default(),
            audio: Audio::default(),
            params,
        }
    }

    // ------------------------------------------------------------------------------------------------- accounts

    pub(crate) fn charge_to(&mut self, cpu: usize, cause: Cause, cycles: u64) {
        let c = &mut self.cpus[cpu];
        if let Some(recorder) = &mut self.recorder {
            recorder.spend(cpu, c.clock, cycles, cause, c.context);
        }
        c.clock += cycles;
        c.causes[cause.index()] += cycles;
    }

    pub(crate) fn charge(&mut self, cpu: usize, cycles: u64) {
        self.charge_to(cpu, self.cpus[cpu].cause, cycles);
    }

    /// Instructions take longer while a sibling competes for the execution units.
    pub(crate) fn execute(&mut self, cpu: usize, path: Instructions) {
        let p = &self.params;
        let mut milli = u64::from(path.0) * p.cpi_milli;
        if p.threads_per_package > 1 {
            let first = self.cpus[cpu].package * p.threads_per_package;
            let busy = (first..first + p.threads_per_package)
                .any(|c| c != cpu && self.cpus[c].state == CpuState::Running && !self.cpus[c].spinning);
            if busy {
                milli = milli * p.smt_slowdown_milli / 1000;
            }
        }
        milli += self.cpus[cpu].milli;
        self.cpus[cpu].milli = milli % 1000;
        self.charge(cpu, milli / 1000);
    }

    /// Lets a CPU's clock catch up with `until`, for nothing.
    pub(crate) fn idle_to(&mut self, cpu: usize, until: u64) {
        let behind = until.saturating_sub(self.cpus[cpu].clock);
        self.charge_to(cpu, Cause::Idle, behind);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            clocks: self.cpus.iter().map(|c| c.clock).collect(),
            cycles: self.cpus.iter().map(|c| c.causes).collect(),
            counters: self.counters,
            hardware: Counts {
                stale_uses: self.oracle.stale_uses,
                stale_uses_in_window: self.oracle.uses_in_window,
                ..self.counts
            },
        }
    }

    /// The laws inside the machine that a snapshot cannot show.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.snapshot().check()?;
        self.caches.as_ref().map_or(Ok(()), Caches::check)
    }

    // ------------------------------------------------------------------------------------------------- translation

    fn core(&self, cpu: usize) -> usize {
        if self.params.tlb_shared { self.cpus[cpu].package } else { cpu }
    }

    #[inline(always)]
    fn line(&mut self, cpu: usize, pa: Pa, write: bool, kind: Kind) -> u64 {
        self.counts.accesses += 1;
        match &mut self.caches {
            None => 1,
            Some(caches) => u64::from(caches.access(self.cpus[cpu].package, pa.0, write, kind)),
        }
    }

    /// Translates one access, through the TLB or by a walk, and charges for it.
    pub(crate) fn translate(
        &mut self,
        cpu: usize,
        va: Va,
        mode: Mode,
        access: Access,
    ) -> Result<Pa, TrapKind> {
        self.counts.tlb_lookups += 1;
        let id = CpuId(cpu as u8);
        let core = self.core(cpu);
        let write = access == Access::Write;
        let oracle = &mut self.oracle;
        let found = self.tlbs[core].lookup(id, va, &mut |e| oracle.entry_gone(&e.path));
        let Some((level, entry)) = found else {
            self.counts.tlb_misses += 1;
            return self.walk(cpu, va, mode, write);
        };
        let entry = *entry;
        self.counts.tlb_hits += 1;
        if level == Level::Second {
            self.counts.tlb_second_level_hits += 1;
            self.charge_to(cpu, Cause::TlbMiss, self.params.tlb_second_cycles);
        }
        if entry.stale != 0 {
            self.oracle.used(entry.stale, id, Cycles(self.cpus[cpu].clock), va, access);
        }
        if (mode == Mode::User && !entry.user) || (write && !entry.writable) {
            // A refused access drops the entry, as x86 processors do: the retry walks.
            self.drop_page(cpu, va);
            return Err(TrapKind::Protection);
        }
        if write && !entry.dirty {
            // The dirty bit is set by a walk of its own, which sees the table as it is now.
            self.drop_page(cpu, va);
            return self.walk(cpu, va, mode, write);
        }
        Ok(self.physical(&entry, va))
    }

    fn physical(&self, entry: &Entry, va: Va) -> Pa {
        let shift = if entry.superpage { self.format.superpage_shift() } else { pageferry_hal::PAGE_SHIFT };
        entry.base + (va.0 & ((1 << shift) - 1)) as usize
    }

    /// Drops the CPU's entry for `va`; true when there was one.
    fn drop_page(&mut self, cpu: usize, va: Va) -> bool {
        let core = self.core(cpu);
        let oracle = &mut self.oracle;
        let mut live = false;
        self.tlbs[core].invalidate_page(CpuId(cpu as u8), va, &mut |e| {
            live = true;
            oracle.entry_gone(&e.path);
        });
        live
    }

    /// Walks the tables, sets accessed and dirty bits, fills the TLB.
    fn walk(&mut self, cpu: usize, va: Va, mode: Mode, write: bool) -> Result<Pa, TrapKind> {
        self.counts.walks += 1;
        self.charge_to(cpu, Cause::TlbMiss, self.params.walk_overhead);
        if !self.format.is_canonical(va) {
            return Err(TrapKind::NotPresent);
        }
        let (format, width) = (self.format, self.format.width);
        let mut table = self.cpus[cpu].root.expect("an access before a page table was loaded");
        let mut path = [NO_PTE; 4];
        let (mut writable, mut user) = (true, true);
        for level in (0..format.levels).rev() {
            let slot = format.slot(table, va, level);
            let cost = self.line(cpu, slot, false, Kind::Latency);
            self.charge_to(cpu, Cause::TlbMiss, cost);
            let pte = self.memory.load_pte(slot, width);
            if pte & PTE_P == 0 {
                return Err(TrapKind::NotPresent);
            }
            // Leaf first: shift what is there already.
            path.rotate_right(1);
            path[0] = slot;
            writable &= pte & PTE_W != 0;
            user &= pte & PTE_U != 0;
            let superpage = level == 1 && pte & PTE_PS != 0;
            if level > 0 && !superpage {
                self.set_bits(cpu, slot, pte, PTE_A);
                table = format.frame(pte).pa();
                continue;
            }
            if (mode == Mode::User && !user) || (write && !writable) {
                return Err(TrapKind::Protection);
            }
            self.set_bits(cpu, slot, pte, if write { PTE_A | PTE_D } else { PTE_A });
            let mut entry = Entry::new(va, format.superpage_shift(), superpage, CpuId(cpu as u8));
            entry.base = format.frame(pte).pa();
            (entry.writable, entry.user) = (writable, user);
            entry.dirty = write || pte & PTE_D != 0;
            entry.global = pte & PTE_G != 0;
            entry.path = path;
            self.oracle.entry_made(&path);
            let core = self.core(cpu);
            let oracle = &mut self.oracle;
            self.tlbs[core].fill(entry, &mut |e| oracle.entry_gone(&e.path));
            return Ok(self.physical(&entry, va));
        }
        unreachable!("the last level is a leaf");
    }

    fn set_bits(&mut self, cpu: usize, slot: Pa, pte: u64, bits: u64) {
        if pte & bits != bits {
            self.memory.store_pte(slot, self.format.width, pte | bits);
            let cost = self.line(cpu, slot, true, Kind::Latency);
            self.charge_to(cpu, Cause::TlbMiss, cost);
        }
    }

    // ------------------------------------------------------------------------------------------------- data

    fn trap(va: Va, access: Access, mode: Mode, kind: TrapKind) -> Trap {
        Trap { va, access, mode, kind }
    }

    /// Accesses up to `len_bytes` at `va` without leaving the page or passing `deadline`, line by line; the physical
    /// address and how many bytes it was.
    pub(crate) fn stream(
        &mut self,
        cpu: usize,
        va: Va,
        len_bytes: usize,
        access: Access,
        mode: Mode,
        deadline: u64,
    ) -> Result<(Pa, usize), Trap> {
        let pa = self.translate(cpu, va, mode, access).map_err(|k| Self::trap(va, access, mode, k))?;
        let len = len_bytes.min(pageferry_hal::PAGE_SIZE - va.offset());
        let line_bytes = self.params.line_bytes;
        let mut done = 0;
        while done < len {
            let at = pa + done;
            let cost = self.line(cpu, at, access == Access::Write, Kind::Stream);
            self.charge(cpu, cost);
            if done > 0 {
                self.hit_again();
            }
            done = (done + line_bytes - at.0 as usize % line_bytes).min(len);
            if self.cpus[cpu].clock > deadline {
                break;
            }
        }
        Ok((pa, done))
    }

    /// A further line of a page whose translation was just used.
    fn hit_again(&mut self) {
        self.counts.tlb_lookups += 1;
        self.counts.tlb_hits += 1;
    }

    /// Copies up to `len_bytes` without leaving either page or passing `deadline`; how many bytes it was.
    pub(crate) fn copy(
        &mut self,
        cpu: usize,
        to: Va,
        from: Va,
        len_bytes: usize,
        deadline: u64,
    ) -> Result<usize, Trap> {
        let translate = |hw: &mut Hw, va, access| {
            hw.translate(cpu, va, Mode::Kernel, access).map_err(|k| Self::trap(va, access, Mode::Kernel, k))
        };
        let source = translate(self, from, Access::Read)?;
        let target = translate(self, to, Access::Write)?;
        let page = pageferry_hal::PAGE_SIZE;
        let len = len_bytes.min(page - from.offset()).min(page - to.offset());
        let line_bytes = self.params.line_bytes;
        let left_in_line = |pa: Pa| line_bytes - pa.0 as usize % line_bytes;
        let (mut done, mut next_load, mut next_store) = (0, 0, 0);
        while done < len {
            if done == next_load {
                let cost = self.line(cpu, source + done, false, Kind::Stream);
                self.charge(cpu, cost);
                next_load += left_in_line(source + done);
                if done > 0 {
                    self.hit_again();
                }
            }
            if done == next_store {
                let cost = self.line(cpu, target + done, true, Kind::Stream);
                self.charge(cpu, cost);
                next_store += left_in_line(target + done);
                if done > 0 {
                    self.hit_again();
                }
            }
            done = next_load.min(next_store).min(len);
            if self.cpus[cpu].clock > deadline {
                break;
            }
        }
        self.memory.copy(target, source, done);
        self.counts.bytes_copied += done as u64;
        Ok(done)
    }

    /// Accesses a kernel structure: dependent loads or stores, charged with their latency.
    pub(crate) fn touch(&mut self, cpu: usize, va: Va, len_bytes: usize, access: Access) {
        assert!(len_bytes > 0, "an access of no bytes");
        let line_bytes = self.params.line_bytes as u64;
        let (first, last) = (va.0 / line_bytes, (va.0 + len_bytes as u64 - 1) / line_bytes);
        for line in first..=last {
            let at = Va((line * line_bytes).max(va.0));
            let pa = self
                .translate(cpu, at, Mode::Kernel, access)
                .unwrap_or_else(|k| panic!("kernel structure at {at:?} is not mapped: {k:?}"));
            let cost = self.line(cpu, pa, access == Access::Write, Kind::Latency);
            self.charge(cpu, cost);
        }
    }

    /// Where `va` leads in the CPU's address space, without any effect.
    pub(crate) fn peek(&self, cpu: usize, va: Va) -> Option<Pa> {
        let mut table = self.cpus[cpu].root?;
        for level in (0..self.format.levels).rev() {
            let pte = self.memory.load_pte(self.format.slot(table, va, level), self.format.width);
            if pte & PTE_P == 0 {
                return None;
            }
            let superpage = level == 1 && pte & PTE_PS != 0;
            if level == 0 || superpage {
                let shift = self.format.shift(level);
                return Some(self.format.frame(pte).pa() + (va.0 & ((1 << shift) - 1)) as usize);
            }
            table = self.format.frame(pte).pa();
        }
        None
    }

    // ------------------------------------------------------------------------------------------------- page tables

    pub(crate) fn pte_load(&mut self, cpu: usize, at: Pa, width: PteWidth) -> u64 {
        let cost = self.line(cpu, at, false, Kind::Latency);
        self.charge(cpu, cost);
        self.memory.load_pte(at, width)
    }

    fn pte_store(&mut self, cpu: usize, at: Pa, width: PteWidth, value: u64, by: Site) {
        let cost = self.line(cpu, at, true, Kind::Latency);
        self.charge(cpu, cost);
        self.memory.store_pte(at, width, value);
        self.oracle.note_mapping(at, value, by);
    }

    pub(crate) fn pte_fill(&mut self, cpu: usize, at: Pa, width: PteWidth, value: u64, by: Site) {
        let old = self.memory.load_pte(at, width);
        assert!(old & PTE_P == 0, "{by}: the entry at {at:?} is valid ({old:#x}): a change, not a fill");
        self.pte_store(cpu, at, width, value, by);
    }

    pub(crate) fn pte_change(
        &mut self,
        cpu: usize,
        at: Pa,
        width: PteWidth,
        value: u64,
        window: u32,
        by: Site,
    ) -> u64 {
        let old = self.pte_load(cpu, at, width);
        if effect(self.format, old, value) == Effect::Stale && self.oracle.is_cached(at) {
            let id = CpuId(cpu as u8);
            let change = self.oracle.changed(at, window, by, id, Cycles(self.cpus[cpu].clock));
            let oracle = &mut self.oracle;
            for tlb in &mut self.tlbs {
                tlb.for_each_made_from(at, &mut |entry| {
                    // What ought to be gone already stays so, whatever window is opened over it.
                    if !oracle.is_overdue(entry.stale) {
                        entry.stale = change;
                    }
                    oracle.held(change, entry.cpu);
                });
            }
        }
        self.pte_store(cpu, at, width, value, by);
        old
    }

    pub(crate) fn clear_frame(&mut self, cpu: usize, at: Pa) {
        for offset in (0..pageferry_hal::PAGE_SIZE).step_by(self.params.line_bytes) {
            let cost = self.line(cpu, at + offset, true, Kind::Stream);
            self.charge(cpu, cost);
        }
        self.memory.clear_frame(at.pfn());
        // The frame begins a new life. Global translations that a walk through its last one has made (it was the root
        // of an address space that is gone) still stand in the other roots: they have nothing to do with what comes.
        if !self.oracle.is_frame_cached(at.pfn()) {
            return;
        }
        let oracle = &mut self.oracle;
        for tlb in &mut self.tlbs {
            tlb.for_each(&mut |entry| {
                for pte in entry.path.iter_mut().filter(|p| **p != NO_PTE && p.pfn() == at.pfn()) {
                    oracle.entry_gone(&[*pte, NO_PTE, NO_PTE, NO_PTE]);
                    *pte = NO_PTE;
                }
            });
        }
    }

    pub(crate) fn flush_line(&mut self, at: Pa) {
        if let Some(caches) = &mut self.caches {
            caches.flush_line(at.0);
        }
    }

    /// Takes in a request to the disk; its interrupt is on its way to CPU 0 from here on. Answers when it arrives.
    pub(crate) fn disk_submit(&mut self, cpu: usize, request: DiskRequest) -> u64 {
        let params = self.params.disk.expect("there is no disk");
        let at = self.disk.submit(params, self.cpus[cpu].clock, request);
        self.interrupt_later(at, Interrupt::Disk);
        at
    }

    /// As [`Hw::disk_submit`], for a fragment of sound.
    pub(crate) fn audio_submit(&mut self, cpu: usize, request: AudioRequest) -> u64 {
        let params = self.params.audio.expect("there is no sound device");
        let at = self.audio.submit(params, self.cpus[cpu].clock, request);
        self.interrupt_later(at, Interrupt::Audio);
        at
    }

    /// A device will interrupt CPU 0 at `at`.
    fn interrupt_later(&mut self, at: u64, interrupt: Interrupt) {
        let pending = &mut self.cpus[0].pending;
        let position = pending.partition_point(|&(other, _)| other <= at);
        pending.insert(position, (at, interrupt));
    }

    /// A device's interrupt has arrived: the bytes are where they belong.
    pub(crate) fn device_arrived(&mut self, interrupt: Interrupt) {
        match interrupt {
            Interrupt::Shootdown | Interrupt::Reschedule => {}
            Interrupt::Disk => {
                let DiskRequest { frames, transfer, .. } = self.disk.complete(&mut self.memory);
                frames.into_iter().for_each(|f| self.snoop(f.pa(), pageferry_hal::PAGE_SIZE, transfer));
            }
            Interrupt::Audio => {
                let request = self.audio.complete(&mut self.memory);
                self.snoop(request.frame.pa() + request.offset, request.len_bytes, request.transfer);
            }
        }
    }

    /// What a device has written is in no cache. What it has read may stay there.
    fn snoop(&mut self, at: Pa, len_bytes: usize, transfer: Transfer) {
        if transfer == Transfer::Write {
            return;
        }
        let line_bytes = self.params.line_bytes;
        let first = at.0 as usize % line_bytes;
        for offset in (0..first + len_bytes).step_by(line_bytes) {
            self.flush_line(Pa(at.0 - first as u64 + offset as u64));
        }
    }

    // ------------------------------------------------------------------------------------------------- TLB control

    pub(crate) fn invalidate_page(&mut self, cpu: usize, va: Va) {
        self.counts.page_invalidations += 1;
        let live = self.drop_page(cpu, va);
        let more = if live { self.params.invalidate_live } else { 0 };
        self.charge(cpu, self.params.invalidate_page + more);
    }

    pub(crate) fn invalidate_all(&mut self, cpu: usize, global_too: bool) {
        let core = self.core(cpu);
        let oracle = &mut self.oracle;
        self.tlbs[core].invalidate_all(CpuId(cpu as u8), global_too, &mut |e| oracle.entry_gone(&e.path));
    }

    pub(crate) fn load_root(&mut self, cpu: usize, root: Pa) {
        self.cpus[cpu].root = Some(root);
        self.invalidate_all(cpu, false);
    }

    /// Entries that the CPU's core has in its TLB.
    pub(crate) fn tlb_live(&self, cpu: usize) -> usize {
        self.tlbs[self.core(cpu)].live()
    }
}
