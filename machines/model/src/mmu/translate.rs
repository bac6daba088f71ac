//! How one access finds its frame: what hardware maps without entries, then the TLB, then whatever fills it.
//!
//! A step on the hardware: nothing here calls kernel code. Where the kernel has to fill the TLB, the access is refused
//! with a [`Miss`]; the machine asks the refill handler, outside of any borrow, and makes the access again.

use crate::account::SAMPLE_CYCLES;
use crate::hw::Hw;
use crate::hw::priced::Work;
use crate::mmu::access::{Exception, Found, Site};
use crate::mmu::oracle::{StaleUse, Staleness};
use crate::mmu::size::PageSize;
use crate::mmu::tlb::{Entry, Level, LoadAt, Tlb};
use crate::params::{BroadcastCycles, lowest};
use crate::watch::Action;
use pageferry_hal::{
    Access, Asid, Attr, Block, BlockRegister, Cause, Context, CpuId, Cycles, Flush, MemoryUse, Metric, Miss,
    MissKind, Mmu, Mode, Pa, Slot, SpaceId, TrapKind, Tte, Va,
};

impl Hw {
    /// Translates one access, through the TLB or by a walk, and charges for it.
    pub(crate) fn translate(
        &mut self,
        cpu: usize,
        va: Va,
        mode: Mode,
        access: Access,
    ) -> Result<Found, Exception> {
        if let Some((pa, attr)) = self.found_before_pages(cpu, va, access) {
            let write = access == Access::Write;
            let user = mode == Mode::User;
            if (user && !attr.contains(Attr::USER)) || (write && !attr.contains(Attr::WRITE)) {
                return Err(Hw::trap(va, access, mode, TrapKind::Protection));
            }
            return Ok(Found { pa, by_tlb: false });
        }
        self.counts.tlb_lookups += 1;
        let id = CpuId(cpu as u8);
        let core = self.core(cpu);
        let write = access == Access::Write;
        let asid = self.asid_for(cpu, va);
        let found = self.tlbs[core].lookup(id, asid, va);
        let Some((level, entry)) = found else {
            self.counts.tlb_misses += 1;
            self.missed(va);
            return self.fill(cpu, va, mode, access);
        };
        let entry = *entry;
        self.counts.tlb_hits += 1;
        if level == Level::Second {
            self.counts.tlb_second_level_hits += 1;
            self.charge_to(cpu, Cause::TlbMiss, self.params.tlb_second_cycles);
        }
        self.judge_use(cpu, va, access, &entry);
        if (mode == Mode::User && !entry.user) || (write && !entry.writable) {
            let refused = self.refused(cpu, va, mode, access);
            return if self.walks_again() { self.fill(cpu, va, mode, access) } else { Err(refused) };
        }
        if write && !entry.dirty {
            return self.first_store(cpu, va, mode);
        }
        Ok(Found { pa: self.physical(&entry, va), by_tlb: true })
    }

    /// An entry is being used: reports one that no longer stands, or that is another address space's.
    #[inline(always)]
    pub(super) fn judge_use(&mut self, cpu: usize, va: Va, access: Access, entry: &Entry) {
        let id = CpuId(cpu as u8);
        if entry.stale != 0 {
            self.oracle.used(entry.stale, id, Cycles(self.cpus[cpu].clock), va, access);
        }
        if entry.space != self.space_for(cpu, va) {
            let why = Staleness::OtherSpace(entry.space);
            let at = Cycles(self.cpus[cpu].clock);
            self.oracle.report(StaleUse { cpu: id, at, va, access, mapped_by: None, why });
        }
    }

    /// Where `va` leads before any page is looked at, and what that permits: through a block, or as a refill handler
    /// reaches the kernel's memory that works with physical addresses.
    #[inline(always)]
    pub(super) fn found_before_pages(&self, cpu: usize, va: Va, access: Access) -> Option<(Pa, Attr)> {
        let c = &self.cpus[cpu];
        // Hardly ever is a block below the kernel, and most accesses are.
        if va < c.blocks_from && !c.untranslated { None } else { self.look_before_pages(cpu, va, access) }
    }

    fn look_before_pages(&self, cpu: usize, va: Va, access: Access) -> Option<(Pa, Attr)> {
        if let Some(block) = self.block_at(cpu, va, access) {
            return Some((block.translate(va), block.attr));
        }
        if self.cpus[cpu].untranslated { self.declared(cpu, va) } else { None }
    }

    /// The block that maps `va`: a fixed area of the machine, or a block register of the CPU.
    pub(super) fn block_at(&self, cpu: usize, va: Va, access: Access) -> Option<&Block> {
        let c = &self.cpus[cpu];
        let apart = access == Access::Fetch && !c.instruction_blocks.is_empty();
        let registers = if apart { &c.instruction_blocks } else { &c.blocks };
        self.params.fixed.iter().chain(registers.iter().flatten()).find(|block| block.contains(va))
    }

    /// An entry of the TLB does not permit the access.
    pub(super) fn refused(&mut self, cpu: usize, va: Va, mode: Mode, access: Access) -> Exception {
        match self.params.mmu {
            Mmu::Radix(_) => {
                // Processors that walk page tables drop the entry: the retry walks.
                let (core, asid) = (self.core(cpu), self.asid_for(cpu, va));
                self.tlb_of(core, access).invalidate_page(CpuId(cpu as u8), asid, va);
                Hw::trap(va, access, mode, TrapKind::Protection)
            }
            Mmu::Hash | Mmu::Soft { .. } => {
                Exception::Miss(Miss { va, access, mode, kind: MissKind::Refused })
            }
        }
    }

    /// A store finds an entry that has noted none yet.
    fn first_store(&mut self, cpu: usize, va: Va, mode: Mode) -> Result<Found, Exception> {
        match self.params.mmu {
            Mmu::Radix(_) | Mmu::Hash => {
                // The dirty bit is set by a walk of its own, which sees the table as it is now.
                let (core, asid) = (self.core(cpu), self.asid_for(cpu, va));
                self.tlbs[core].invalidate_page(CpuId(cpu as u8), asid, va);
                self.fill(cpu, va, mode, Access::Write)
            }
            Mmu::Soft { .. } => {
                Err(Exception::Miss(Miss { va, access: Access::Write, mode, kind: MissKind::Clean }))
            }
        }
    }

    /// Nothing in the TLB: hardware looks further, or the kernel does.
    pub(super) fn fill(
        &mut self,
        cpu: usize,
        va: Va,
        mode: Mode,
        access: Access,
    ) -> Result<Found, Exception> {
        match self.params.mmu {
            Mmu::Radix(format) => {
                let walked = self.walk_radix(format, cpu, va, mode, access);
                let entry = walked.map_err(|kind| Hw::trap(va, access, mode, kind))?;
                Ok(self.fill_tlb(cpu, va, access, entry))
            }
            Mmu::Hash => {
                let walked = self.walk_hash(cpu, va, mode, access);
                let entry = walked.map_err(|kind| Exception::Miss(Miss { va, access, mode, kind }))?;
                Ok(self.fill_tlb(cpu, va, access, entry))
            }
            Mmu::Soft { .. } => Err(Exception::Miss(Miss { va, access, mode, kind: MissKind::Absent })),
        }
    }

    /// What an address is for.
    pub(crate) fn use_of(&self, va: Va) -> MemoryUse {
        if va < self.params.layout.user_end { MemoryUse::Users } else { self.uses.of(va) }
    }

    /// Counts so many of a counter's events by what their address is for.
    pub(crate) fn count_by_use(&mut self, counter: Metric, at: Va, n: u64) {
        let of = self.use_of(at).index();
        let known = self.counted_by_use.iter().position(|(other, _)| *other == counter);
        let place = known.unwrap_or_else(|| {
            self.counted_by_use.push((counter, [0; MemoryUse::COUNT]));
            self.counted_by_use.len() - 1
        });
        self.counted_by_use[place].1[of] += n;
    }

    /// Counts a miss of a TLB by what is missed.
    pub(super) fn missed(&mut self, va: Va) {
        self.counts.misses_by_use[self.use_of(va).index()] += 1;
    }

    pub(crate) fn physical(&self, entry: &Entry, va: Va) -> Pa {
        entry.base + self.params.shifts.offset(va, entry.size)
    }

    /// The TLB that such an access looks into.
    fn tlb_of(&mut self, core: usize, access: Access) -> &mut Tlb {
        if access == Access::Fetch { &mut self.instruction_tlbs[core] } else { &mut self.tlbs[core] }
    }

    /// Judges an entry that a walk has made, and puts it into the TLB.
    fn fill_tlb(&mut self, cpu: usize, va: Va, access: Access, mut entry: Entry) -> Found {
        entry.asid = self.asid_for(cpu, va);
        entry.space = self.space_for(cpu, va);
        entry.stale = self.oracle.judge(&entry, va, self.params.shifts);
        if entry.stale != 0 {
            self.oracle.used(entry.stale, entry.cpu, Cycles(self.cpus[cpu].clock), va, access);
        }
        self.sample_tlbs(cpu);
        let core = self.core(cpu);
        self.tlb_of(core, access).fill(entry);
        Found { pa: self.physical(&entry, va), by_tlb: true }
    }

    /// Takes the samples that are due, before the CPU's TLBs change: between two changes they are what they were.
    fn sample_tlbs(&mut self, cpu: usize) {
        let now = self.cpus[cpu].clock;
        if now < self.cpus[cpu].sample_at || matches!(self.params.mmu, Mmu::Radix(_)) {
            return;
        }
        let (mut live, mut kernels) = (0, 0);
        let (mut by_use, shifts, core) = ([0; MemoryUse::COUNT], self.params.shifts, self.core(cpu));
        for tlb in self.tlbs.get(core).into_iter().chain(self.instruction_tlbs.get(core)) {
            for entry in tlb.in_use() {
                live += 1;
                kernels += usize::from(entry.space == SpaceId::KERNEL);
                by_use[self.use_of(Va(entry.page << shifts.of(entry.size))).index()] += 1;
            }
        }
        let samples = (now - self.cpus[cpu].sample_at) / SAMPLE_CYCLES + 1;
        self.cpus[cpu].sample_at += samples * SAMPLE_CYCLES;
        self.counts.sampled_entries += samples * live as u64;
        self.counts.sampled_kernel_entries += samples * kernels as u64;
        for (sampled, entries) in self.counts.sampled_by_use.iter_mut().zip(by_use) {
            *sampled += samples * entries;
        }
        self.max_kernel_entries = self.max_kernel_entries.max(kernels);
    }

    /// Where `va` leads in the CPU's address space, without any effect: by what was declared.
    pub(crate) fn peek(&self, cpu: usize, va: Va) -> Option<Pa> {
        self.cpus[cpu].translates_by?;
        if let Some(block) = self.block_at(cpu, va, Access::Read) {
            return Some(block.translate(va));
        }
        self.declared(cpu, va).map(|(pa, _)| pa)
    }

    /// Where `va` leads by the mapping last declared, and what that permits; blocks apart.
    pub(super) fn declared(&self, cpu: usize, va: Va) -> Option<(Pa, Attr)> {
        let space = self.space_for(cpu, va);
        let shifts = self.params.shifts;
        shifts.sizes().find_map(|size| {
            let tte = self.oracle.declared_as(space, va, shifts.of(size) as u8)?;
            Some((shifts.base(tte.frame, va, size) + shifts.offset(va, size), tte.attr))
        })
    }

    // ------------------------------------------------------------------------------------------- what is declared

    /// Notes what a mapping is now, and marks what TLBs hold of the old one.
    pub(crate) fn mapping_changed(
        &mut self,
        cpu: usize,
        (space, va): (SpaceId, Va),
        old: Option<Tte>,
        new: Option<Tte>,
        window: Option<u32>,
        by: Site,
    ) {
        let shifts = self.params.shifts;
        let size_of = |tte: Tte| {
            let size = shifts.size(u32::from(tte.shift));
            size.unwrap_or_else(|| panic!("{by}: this machine has no pages of {} bytes", 1u64 << tte.shift))
        };
        new.into_iter().for_each(|new| _ = size_of(new));
        let Some(old) = old else {
            return new.into_iter().for_each(|new| self.oracle.made(space, va, new, by));
        };
        let Some(mapped_by) = self.oracle.changed(space, va, old, new, by) else { return };
        let window = window.unwrap_or_else(|| {
            panic!(
                "{by}: {va:?} of {space:?}, {old:?}, becomes {new:?} without a window: TLBs may hold what was made \
                 from it, so the change belongs between `open_flush_window` and `close_flush_window`"
            )
        });
        // What software loads for pages in a row is made of each of them.
        let size = size_of(old);
        let loads_rows = matches!(self.params.mmu, Mmu::Soft { .. }) && size == PageSize::Base;
        let in_rows = [PageSize::Super, PageSize::Huge].map(|larger| {
            let exists = loads_rows && shifts.sizes().any(|size| size == larger);
            let undeclared = exists && self.oracle.declared_as(space, va, shifts.of(larger) as u8).is_none();
            undeclared.then_some(larger)
        });
        let sizes = std::iter::once(size).chain(in_rows.into_iter().flatten());
        let at = Cycles(self.cpus[cpu].clock);
        let on = CpuId(cpu as u8);
        let (oracle, mut mark) = (&mut self.oracle, 0);
        if oracle.marks_all() {
            mark = oracle.mark((space, va), window, mapped_by, by, on, at);
        }
        let mut visit = |entry: &mut Entry| {
            if entry.space != space {
                return;
            }
            if mark == 0 {
                mark = oracle.mark((space, va), window, mapped_by, by, on, at);
            }
            oracle.held(mark, entry.cpu);
            entry.stale = if entry.stale == 0 { mark } else { oracle.marked_again(entry.stale, mark) };
        };
        if self.params.asids > 0 {
            let tlbs = self.tlbs.iter_mut().chain(&mut self.instruction_tlbs);
            tlbs.for_each(|tlb| sizes.clone().for_each(|size| tlb.for_page_of_any(va, size, &mut visit)));
            return;
        }
        for holder in 0..self.cpus.len() {
            let core = if self.params.tlb_shared { self.cpus[holder].package } else { holder };
            let tlbs = self.tlbs.get_mut(core).into_iter().chain(self.instruction_tlbs.get_mut(core));
            let id = CpuId(holder as u8);
            tlbs.for_each(|tlb| {
                sizes.clone().for_each(|size| tlb.for_page(id, Asid::KERNEL, va, size, &mut visit));
            });
        }
    }

    // ------------------------------------------------------------------------------------------- TLB control

    pub(crate) fn activate(&mut self, cpu: usize, context: Context) {
        assert!(
            context.asid.0 < self.params.asids.max(1),
            "{context:?}: this machine has {} tags",
            self.params.asids
        );
        self.charge(cpu, self.params.load_root);
        self.cpus[cpu].translates_by = Some(context);
        let stays = match self.params.mmu {
            _ if self.params.asids == 0 => false,
            Mmu::Radix(_) => context.keep,
            Mmu::Hash | Mmu::Soft { .. } => true,
        };
        if !stays {
            self.own_tlbs(cpu).for_each(|tlb| tlb.invalidate_context(CpuId(cpu as u8), context.asid));
        }
    }

    /// Hardware that walks page tables and tags its entries reaches those of another tag by an instruction of its own.
    fn is_other_tag(&self, cpu: usize, asid: Asid) -> bool {
        let own = self.cpus[cpu].translates_by.map_or(Asid::KERNEL, |context| context.asid);
        matches!(self.params.mmu, Mmu::Radix(_)) && asid != own
    }

    /// The TLBs of the CPU's core: for data, and for instructions where there is one.
    fn own_tlbs(&mut self, cpu: usize) -> impl Iterator<Item = &mut Tlb> {
        let core = self.core(cpu);
        self.tlbs.get_mut(core).into_iter().chain(self.instruction_tlbs.get_mut(core))
    }

    /// The tag by which the TLB may hold a page.
    fn asid_of(&self, asid: Asid, va: Va) -> Asid {
        if self.params.asids == 0 || va >= self.params.layout.user_end { Asid::KERNEL } else { asid }
    }

    /// Drops a page in the TLBs of one CPU.
    fn drop_page(&mut self, cpu: usize, asid: Asid, va: Va) {
        let (id, class) = (CpuId(cpu as u8), self.params.invalidates_class);
        for tlb in self.own_tlbs(cpu) {
            if class {
                tlb.invalidate_class(id, va);
            } else {
                tlb.invalidate_page(id, asid, va);
            }
        }
    }

    /// # Panics
    /// When this machine broadcasts nothing.
    fn broadcast(&self) -> BroadcastCycles {
        self.params.broadcast.expect("one CPU of this machine invalidates nothing for others")
    }

    pub(crate) fn tlb_flush(&mut self, cpu: usize, what: Flush) {
        let id = CpuId(cpu as u8);
        match what {
            Flush::Page(asid, va) => {
                self.counts.page_invalidations += 1;
                let asid = self.asid_of(asid, va);
                // A hash table's processors know no invalidation that stays with one of them.
                let all = self.params.broadcast.is_some() && matches!(self.params.mmu, Mmu::Hash);
                let cpus = if all { 0..self.cpus.len() } else { cpu..cpu + 1 };
                cpus.for_each(|holder| self.drop_page(holder, asid, va));
                let other = va < self.params.layout.user_end && self.is_other_tag(cpu, asid);
                let cycles = if other { self.params.invalidate_other } else { self.params.invalidate_page };
                self.charge_work(cpu, Work::Invalidations, cycles);
                self.did(cpu, Action::Flushes(what));
            }
            Flush::Broadcast(asid, va) => {
                self.counts.page_invalidations += 1;
                let asid = self.asid_of(asid, va);
                self.charge_work(cpu, Work::Invalidations, self.broadcast().page);
                self.drop_page(cpu, asid, va);
                self.cpus[cpu].broadcast.push((asid, va));
                self.did(cpu, Action::Flushes(what));
            }
            Flush::Synchronise => {
                self.charge(cpu, self.broadcast().sync);
                for (asid, va) in std::mem::take(&mut self.cpus[cpu].broadcast) {
                    (0..self.cpus.len()).for_each(|holder| self.drop_page(holder, asid, va));
                }
                self.did(cpu, Action::Flushes(what));
            }
            Flush::Context(asid) => {
                // Hardware that walks page tables does it with a load of the root; software has to look at every entry.
                let (asid, cycles) = match self.params.mmu {
                    _ if self.params.asids == 0 => (Asid::KERNEL, self.params.load_root),
                    Mmu::Radix(_) if self.is_other_tag(cpu, asid) => (asid, self.params.invalidate_other),
                    Mmu::Radix(_) => (asid, self.params.load_root),
                    Mmu::Hash | Mmu::Soft { .. } => (asid, self.params.invalidate_all),
                };
                self.charge(cpu, cycles);
                self.own_tlbs(cpu).for_each(|tlb| tlb.invalidate_context(id, asid));
            }
            Flush::All => {
                self.charge(cpu, self.params.invalidate_all);
                self.own_tlbs(cpu).for_each(|tlb| tlb.invalidate_all(id));
            }
            Flush::Everything => {
                self.charge(cpu, self.params.load_root);
                self.own_tlbs(cpu).for_each(|tlb| tlb.invalidate_everything(id));
            }
        }
    }

    /// # Panics
    /// When the entry is tagged for an address space that is not active: nothing says whose it would be.
    pub(crate) fn tlb_load(&mut self, cpu: usize, slot: Slot, asid: Asid, va: Va, tte: Tte, by: Site) {
        assert!(
            matches!(self.params.mmu, Mmu::Soft { .. }),
            "the kernel does not load the TLB of this machine"
        );
        let cycles = match slot {
            Slot::Reserved(_) => self.params.reserved_load,
            Slot::Chosen(_) | Slot::Instruction | Slot::Replace => self.params.tlb_load,
        };
        self.charge(cpu, cycles);
        let global = tte.attr.contains(Attr::GLOBAL);
        assert_eq!(
            global,
            va >= self.params.layout.user_end,
            "{va:?}: what is the same in all address spaces is the kernel's"
        );
        let context = self.context(cpu);
        assert!(global || asid == context.asid, "an entry for {va:?} is tagged {asid:?} in {context:?}");
        let size = self.params.shifts.size(u32::from(tte.shift));
        let size = size.unwrap_or_else(|| panic!("this machine has no pages of {} bytes", 1u64 << tte.shift));
        let mut entry = Entry::new(va, self.params.shifts, size, CpuId(cpu as u8));
        entry.base = self.params.shifts.base(tte.frame, va, size);
        (entry.writable, entry.user) = (tte.attr.contains(Attr::WRITE), tte.attr.contains(Attr::USER));
        (entry.dirty, entry.global) = (tte.attr.contains(Attr::MODIFIED), global);
        entry.asid = self.asid_for(cpu, va);
        entry.space = self.space_for(cpu, va);
        entry.stale = self.oracle.judge(&entry, va, self.params.shifts);
        entry.loaded_by = Some(by);
        self.sample_tlbs(cpu);
        let core = self.core(cpu);
        match slot {
            Slot::Reserved(slot) => self.tlbs[core].load(entry, LoadAt::Reserved(slot)),
            Slot::Chosen(slot) => self.tlbs[core].load(entry, LoadAt::Chosen(slot)),
            Slot::Instruction if self.params.data_hit.is_none() => {
                let tlb = self.instruction_tlbs.get_mut(core);
                tlb.expect("this machine has no instruction TLB").load(entry, LoadAt::Any);
            }
            Slot::Replace | Slot::Instruction => self.tlbs[core].load(entry, LoadAt::Any),
        }
        self.did(cpu, Action::LoadsTlb(va));
    }

    /// # Panics
    /// See [`pageferry_hal::Tlb::tlb_random`].
    pub(crate) fn tlb_random(&self, cpu: usize) -> usize {
        self.tlbs[self.core(cpu)].random()
    }

    /// # Panics
    /// See [`pageferry_hal::Tlb::tlb_search`].
    pub(crate) fn tlb_search(&mut self, cpu: usize, asid: Asid, va: Va) -> Option<usize> {
        let each = self.params.search.expect("software cannot read the TLB of this machine");
        let asid = if va >= self.params.layout.user_end { Asid::KERNEL } else { asid };
        let tlb = &self.tlbs[self.core(cpu)];
        let found = tlb.search(CpuId(cpu as u8), asid, va);
        let entries = tlb.entries() as u64;
        self.charge(cpu, each * entries);
        found
    }

    /// Entries that the CPU's core has in its TLBs, and those of them that are the kernel's.
    pub(crate) fn live_and_kernels(&mut self, cpu: usize) -> (usize, usize) {
        self.own_tlbs(cpu).map(|tlb| tlb.live_and_kernels()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    pub(crate) fn tlb_reserve(&mut self, cpu: usize, entries: usize) {
        assert!(
            matches!(self.params.mmu, Mmu::Soft { .. }),
            "the kernel does not load the TLB of this machine"
        );
        let core = self.core(cpu);
        self.tlbs[core].reserve(entries);
    }

    /// # Panics
    /// See [`pageferry_hal::Tlb::block_set`].
    pub(crate) fn block_set(&mut self, cpu: usize, register: BlockRegister, block: Option<Block>) {
        let limits = self.params.blocks.expect("this machine has no block registers");
        self.charge(cpu, self.params.block_set);
        let c = &mut self.cpus[cpu];
        let (registers, number) = match register {
            BlockRegister::Data(number) => (&mut c.blocks, number),
            BlockRegister::Instruction(number) => (&mut c.instruction_blocks, number),
        };
        assert!(number < registers.len(), "block register {number} of {}", registers.len());
        registers[number] = None;
        if let Some(block) = block {
            let mask = block.len_bytes() - 1;
            assert!(
                (limits.min_shift..=limits.max_shift).contains(&block.shift)
                    && (block.va.0 | block.pa.0) & mask == 0,
                "no register holds {block:?}"
            );
            let other =
                self.params.fixed.iter().chain(registers.iter().flatten()).find(|b| b.overlaps(&block));
            assert!(other.is_none(), "{block:?} overlaps {other:?}");
            registers[number] = Some(block);
        }
        let registers = c.blocks.iter().chain(&c.instruction_blocks).flatten();
        c.blocks_from = lowest(self.params.fixed.iter().chain(registers));
    }

    /// Entries that the CPU's core has in its TLB.
    pub(crate) fn tlb_live(&self, cpu: usize) -> usize {
        self.tlbs[self.core(cpu)].live()
    }
}
