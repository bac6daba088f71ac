//! The hardware state of one machine, and what one CPU does to it in one step.
//!
//! Nothing here suspends or calls kernel code: a step happens at one CPU's time, charges that CPU, and is over.
//! Interleaving, interrupts and contexts are the business of [`crate::machine`].
//!
//! Here is the state, and what every step is made of: charges, lines of memory, interrupts. [`crate::mmu`] translates.
//! Above that, `transfer` moves data and `devices` serves devices.

mod delays;
mod devices;
pub(crate) mod priced;
mod transfer;

use crate::account::{Hardware as Counts, LockUse, Snapshot, UseCounts};
use crate::cache::aliases::Aliases;
use crate::cache::power_on::PoweredOn;
use crate::dev::audio::Audio;
use crate::dev::disk::Disk;
use crate::machine::{LateSleep, Options};
use crate::memory::Memory;
use crate::mmu::oracle::{Oracle, StaleUse, Staleness};
use crate::mmu::tlb::Tlb;
use crate::mmu::uses::Uses;
use crate::outside::Outside;
use crate::params::{Params, lowest};
use crate::trace::Recorder;
use crate::turns::{NEVER, Turns};
use crate::watch::{Action, Observation, Spent, Watch};
use delays::Delays;
use pageferry_hal::{
    Access, Asid, Block, Cause, Context, CpuId, Cycles, HashTable, Instructions, Interrupt, LockCosts,
    Metric, Mmu, Pa, Va, Width,
};
use priced::{Priced, Work};
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
    /// Nested reasons to take no interrupts: locks that handlers take, and refills.
    pub(crate) masked: u32,
    /// How many of the kernel's refill handlers are at work, each within the other.
    pub(crate) refills: u32,
    /// The kernel's refill handler is at work, with physical addresses: nothing of its own goes through a TLB.
    pub(crate) untranslated: bool,
    /// Pages that it has broadcast the invalidation of, and not yet waited for.
    pub(crate) broadcast: Vec<(Asid, Va)>,
    /// Interrupts on their way or waiting, by time of arrival.
    pub(crate) pending: VecDeque<(u64, Interrupt)>,
    /// What it translates by.
    pub(crate) translates_by: Option<Context>,
    /// Block registers: for data, and for instructions too where these have none of their own.
    pub(crate) blocks: Vec<Option<Block>>,
    /// Block registers for instructions.
    pub(crate) instruction_blocks: Vec<Option<Block>>,
    /// The lowest address that a block or a fixed area of the machine maps.
    pub(crate) blocks_from: Va,
    /// When its TLBs are sampled next.
    pub(crate) sample_at: u64,
    /// Thousandths of a cycle that the last instructions left over.
    milli: u64,
}

/// The colour of an address, where there are so many.
#[inline(always)]
fn colour(va: Va, colours: u32) -> u32 {
    (va.0 >> pageferry_hal::PAGE_SHIFT) as u32 & (colours - 1)
}

/// Lines that `len_bytes` from `pa` on are in.
#[inline(always)]
fn lines_of(pa: Pa, len_bytes: usize, line_bytes: usize) -> usize {
    ((pa.0 as usize & (line_bytes - 1)) + len_bytes + line_bytes - 1) >> line_bytes.trailing_zeros()
}

pub(crate) struct Hw {
    pub(crate) params: Params,
    pub(crate) memory: Memory,
    /// Without, every access to memory takes one cycle.
    pub(crate) caches: Option<PoweredOn>,
    /// Finds stale lines, where pages have colours.
    pub(crate) aliases: Option<Box<Aliases>>,
    pub(crate) tlbs: Vec<Tlb>,
    /// Empty where fetches look into none.
    pub(crate) instruction_tlbs: Vec<Tlb>,
    /// Where the hash table of translations lies, if hardware looks into one.
    pub(crate) hash_table: Option<HashTable>,
    pub(crate) cpus: Vec<Cpu>,
    /// When those that do not run just now can go on.
    pub(crate) turns: Turns,
    pub(crate) oracle: Oracle,
    /// What kernel addresses are for.
    pub(crate) uses: Uses,
    /// Of the events that the kernel counts by address, how many were at what: by counter, in the order of the first.
    pub(crate) counted_by_use: Vec<(Metric, UseCounts)>,
    pub(crate) counters: [u64; Metric::MAX],
    pub(crate) counts: Counts,
    priced: Priced,
    /// By class.
    pub(crate) locks: Vec<LockUse>,
    /// The most entries that the kernel's addresses had in the TLBs of one CPU, in a sample since this was last set to
    /// 0.
    pub(crate) max_kernel_entries: usize,
    /// When the last interrupt handler finished: what it wrote cannot be seen earlier by a CPU that spins.
    pub(crate) handled_at: u64,
    /// What interrupts take longer than they must, if that differs.
    pub(crate) delays: Option<Delays>,
    /// How long CPUs stand still before they read their clocks.
    stalls: Option<Delays>,
    late_sleep: Option<LateSleep>,
    walks_again: bool,
    /// Sleeps that were begun.
    sleeps: u64,
    /// Records where the time goes, if that is asked for.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// Watches what is done about misses, if that is asked for.
    pub(crate) watch: Option<Box<Watch>>,
    pub(crate) disk: Disk,
    pub(crate) audio: Audio,
    /// The network card, and what is beyond it.
    pub(crate) outside: Option<Box<Outside>>,
    /// When the next event outside of the CPUs is due, and whether something is there that can wait for the world.
    pub(crate) outside_at: u64,
    pub(crate) has_far_end: bool,
}

impl Hw {
    pub(crate) fn new(params: Params, caches: Option<PoweredOn>, options: &Options) -> Hw {
        let cores = if params.tlb_shared { params.packages } else { params.cpus };
        let registers = params.blocks.map_or(0, |b| b.count);
        let instruction_registers = params.blocks.map_or(0, |b| b.instruction_count);
        let cpu = |i: usize| Cpu {
            clock: 0,
            cause: Cause::Boot,
            context: 0,
            causes: [0; Cause::COUNT],
            package: i / params.threads_per_package,
            state: CpuState::Off,
            spinning: false,
            in_handler: false,
            masked: 0,
            refills: 0,
            untranslated: false,
            broadcast: Vec::new(),
            pending: VecDeque::new(),
            translates_by: None,
            blocks: vec![None; registers],
            instruction_blocks: vec![None; instruction_registers],
            blocks_from: lowest(&params.fixed),
            sample_at: 0,
            milli: 0,
        };
        Hw {
            memory: Memory::new(params.frames + params.device_pages),
            caches,
            aliases: Aliases::new(params.colours, params.line_bytes, params.writes_through).map(Box::new),
            tlbs: (0..cores).map(|_| Tlb::new(params.tlb)).collect(),
            instruction_tlbs: (params.instruction_tlb.into_iter())
                .flat_map(|shape| (0..cores).map(move |_| shape))
                .map(Tlb::new)
                .collect(),
            hash_table: None,
            cpus: (0..params.cpus).map(cpu).collect(),
            turns: Turns::new(params.cpus),
            uses: Uses::default(),
            counted_by_use: Vec::new(),
            oracle: Oracle::new(!matches!(params.mmu, Mmu::Radix(_)), options.tolerate_stale),
            counters: [0; Metric::MAX],
            counts: Counts::default(),
            priced: Priced::default(),
            locks: Vec::new(),
            max_kernel_entries: 0,
            handled_at: 0,
            delays: options.jitter.map(Delays::new),
            stalls: options.stalls.map(Delays::new),
            late_sleep: options.late_sleep,
            walks_again: options.walks_again,
            sleeps: 0,
            recorder: None,
            watch: None,
            disk: Disk::default(),
            audio: Audio::default(),
            outside: params.nic.map(|nic| Box::new(Outside::new(nic))),
            outside_at: NEVER,
            has_far_end: false,
            params,
        }
    }

    /// Page tables are looked at again before an access is refused for what the TLB says.
    pub(crate) fn walks_again(&self) -> bool {
        self.walks_again && matches!(self.params.mmu, Mmu::Radix(_))
    }

    // ------------------------------------------------------------------------------------------------- accounts

    #[inline]
    pub(crate) fn charge_to(&mut self, cpu: usize, cause: Cause, cycles: u64) {
        if self.recorder.is_some() {
            self.record_spent(cpu, cause, cycles);
        }
        let c = &mut self.cpus[cpu];
        if cause == Cause::Idle {
            let ticks = |clock: u64| clock / self.params.tick_cycles;
            self.counts.idle_ticks += ticks(c.clock + cycles) - ticks(c.clock);
        }
        c.clock += cycles;
        c.causes[cause.index()] += cycles;
    }

    #[cold]
    fn record_spent(&mut self, cpu: usize, cause: Cause, cycles: u64) {
        let c = &self.cpus[cpu];
        if let Some(recorder) = &mut self.recorder {
            recorder.spend(cpu, c.clock, cycles, cause, c.context);
        }
    }

    #[inline]
    pub(crate) fn charge(&mut self, cpu: usize, cycles: u64) {
        self.charge_to(cpu, self.cpus[cpu].cause, cycles);
    }

    /// Charges work that has a price.
    #[inline]
    pub(crate) fn charge_work(&mut self, cpu: usize, work: Work, cycles: u64) {
        self.priced.add(work, cycles);
        self.charge(cpu, cycles);
    }

    /// As [`Hw::charge_work`], of what looks for a translation.
    #[inline]
    pub(crate) fn charge_walk(&mut self, cpu: usize, cycles: u64) {
        self.priced.add(Work::Walks, cycles);
        self.charge_to(cpu, Cause::TlbMiss, cycles);
    }

    /// Has a CPU stand still for a while.
    pub(crate) fn stall(&mut self, cpu: usize) {
        let stall = self.stalls.as_mut().map_or(0, Delays::next);
        self.charge(cpu, stall);
    }

    /// A thread sleeps next, at once or late.
    pub(crate) fn sleeps_next(&mut self, cpu: usize) {
        let late = self.late_sleep.filter(|late| late.sleep == self.sleeps);
        self.sleeps += 1;
        late.into_iter().for_each(|late| self.charge(cpu, late.by.0));
    }

    /// Instructions take longer while a sibling competes for the execution units.
    pub(crate) fn execute(&mut self, cpu: usize, path: Instructions) {
        self.counts.instructions += u64::from(path.0);
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
        self.charge_work(cpu, Work::Instructions, milli / 1000);
    }

    /// Locked instructions take their time where there are several CPUs, and are as others where there is one.
    pub(crate) fn execute_locked(&mut self, cpu: usize, count: u32) {
        if self.params.cpus > 1 && count > 0 {
            self.counts.locked_instructions += u64::from(count);
            let cycles = u64::from(count) * self.params.atomic;
            self.priced.add(Work::Locked, cycles);
            self.charge_to(cpu, Cause::Lock, cycles);
        }
    }

    /// The kernel's locks are made like this.
    pub(crate) fn locks_are(&mut self, costs: LockCosts) {
        let LockCosts { on_one_cpu, release_is_locked, absent } = costs;
        if self.params.cpus == 1 && !on_one_cpu {
            self.params.lock_instructions = Instructions(0);
        }
        self.params.release_is_locked = release_is_locked;
        self.params.absent_locks = absent;
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
            counted_by_use: self.counted_by_use.clone(),
            hardware: Counts {
                stale_uses: self.oracle.stale_uses,
                ticks: self.cpus.iter().map(|c| c.clock / self.params.tick_cycles).sum(),
                stale_uses_in_window: self.oracle.uses_in_window,
                ..self.counts
            },
            locks: self.locks.clone(),
        }
    }

    /// The laws inside the machine that a snapshot cannot show.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.snapshot().check()?;
        let left_milli = self.cpus.iter().map(|cpu| cpu.milli).sum();
        let in_handlers = self.cpus.iter().filter(|cpu| cpu.in_handler).count();
        self.priced.check(&self.counts, &self.params, left_milli, in_handlers as u64)?;
        self.caches.as_ref().map_or(Ok(()), PoweredOn::check)
    }

    // ------------------------------------------------------------------------------------------------- a watch

    /// Something was done: a step, if that is watched.
    #[inline(always)]
    pub(crate) fn did(&mut self, cpu: usize, doing: Action) {
        if self.watch.as_ref().is_some_and(|watch| watch.cpu == cpu) {
            self.note_step(doing);
        }
    }

    #[cold]
    pub(crate) fn note_step(&mut self, doing: Action) {
        let Some(mut watch) = self.watch.take() else { return };
        let now = self.spent(watch.cpu);
        let depth = self.cpus[watch.cpu].refills;
        watch.steps.push(Observation { doing, depth, spent: now.since(&watch.since) });
        watch.since = now;
        self.watch = Some(watch);
    }

    pub(crate) fn spent(&mut self, cpu: usize) -> Spent {
        let package = self.cpus[cpu].package;
        let stats = self.caches.as_mut().map(|caches| caches.live().stats()).unwrap_or_default();
        let data = stats.levels.get(package).and_then(|levels| levels.first());
        Spent {
            cycles: self.snapshot().cycles[cpu],
            instructions: self.counts.instructions,
            accesses: self.counts.accesses,
            data_lines: data.map_or(0, |level| level.fills),
            instruction_lines: stats.instruction.get(package).map_or(0, |cache| cache.fills),
            memory_lines: stats.packages.get(package).map_or(0, |p| p.memory_reads),
        }
    }

    // ------------------------------------------------------------------------------------------------- lines

    /// A dependent access to one line, without translation; its cost.
    #[inline(always)]
    pub(crate) fn line(&mut self, cpu: usize, pa: Pa, write: bool) -> u64 {
        self.line_by(cpu, Va(pa.0), pa, write)
    }

    /// A dependent access to one line, by the address `va`; its cost.
    #[inline(always)]
    pub(crate) fn line_by(&mut self, cpu: usize, va: Va, pa: Pa, write: bool) -> u64 {
        if self.params.colours > 1 {
            return self.line_of_colour(cpu, va, pa, write);
        }
        self.counts.accesses += 1;
        match &mut self.caches {
            None => 1,
            Some(_) if pa.pfn().index() >= self.params.frames => self.params.frame_buffer_line,
            Some(caches) => caches.access(self.cpus[cpu].package, pa.0, write),
        }
    }

    #[inline(never)]
    fn line_of_colour(&mut self, cpu: usize, va: Va, pa: Pa, write: bool) -> u64 {
        self.counts.accesses += 1;
        self.judge_lines(cpu, va, pa, 1, write);
        let colour = colour(va, self.params.colours);
        match &mut self.caches {
            None => 1,
            Some(_) if pa.pfn().index() >= self.params.frames => self.params.frame_buffer_line,
            Some(caches) => caches.access_by(self.cpus[cpu].package, pa.0, colour, write),
        }
    }

    /// So many lines of one frame, from that of `pa` on, are accessed by the address `va`: reports it if one of them is
    /// stale.
    #[inline(never)]
    fn judge_lines(&mut self, cpu: usize, va: Va, pa: Pa, lines: usize, write: bool) {
        let Some(aliases) = &mut self.aliases else { return };
        if pa.pfn().index() >= self.params.frames {
            return;
        }
        let at = Cycles(self.cpus[cpu].clock);
        if let Err(written) = aliases.access((va, pa), lines, write, at) {
            let access = if write { Access::Write } else { Access::Read };
            let why = Staleness::OtherColour { written_by: written.by, at: written.at };
            let stale = StaleUse { cpu: CpuId(cpu as u8), at, va, access, mapped_by: None, why };
            self.oracle.report(stale);
        }
    }

    /// As [`Hw::judge_lines`], for those that so many bytes are in.
    fn judge_bytes(&mut self, cpu: usize, (va, pa): (Va, Pa), len_bytes: usize, write: bool) {
        if self.aliases.is_some() && len_bytes > 0 {
            self.judge_lines(cpu, va, pa, lines_of(pa, len_bytes, self.params.line_bytes), write);
        }
    }

    /// Writes back and drops what the cache holds of the frame at `at` under a colour: line by line.
    pub(crate) fn purge(&mut self, cpu: usize, at: Pa, colour: u32) {
        assert!(colour < self.params.colours, "there is no colour {colour}");
        let lines = (pageferry_hal::PAGE_SIZE / self.params.line_bytes) as u64;
        let package = self.cpus[cpu].package;
        let dirty = self.caches.as_mut().map_or(0, |caches| caches.live().purge(package, at.0, colour));
        self.charge(cpu, lines * self.params.purge_line + dirty * self.params.write_back_line);
        self.counts.lines_purged += lines;
        if let Some(aliases) = &mut self.aliases {
            aliases.purge(at, colour);
        }
    }

    /// So many lines of a stream were accessed.
    fn streamed(&mut self, cpu: usize, lines: u64, cycles: u64) {
        self.counts.accesses += lines;
        self.counts.lines_streamed += lines;
        self.charge(cpu, cycles);
    }

    // ------------------------------------------------------------------------------------------------- page tables

    pub(crate) fn pt_load(&mut self, cpu: usize, at: Pa, width: Width) -> u64 {
        let cost = self.line(cpu, at, false);
        self.charge(cpu, cost);
        self.did(cpu, Action::Reads(at));
        self.memory.load_word(at, width)
    }

    pub(crate) fn pt_store(&mut self, cpu: usize, at: Pa, width: Width, value: u64) {
        let cost = self.line(cpu, at, true);
        self.charge(cpu, cost);
        self.did(cpu, Action::Writes(at));
        self.memory.store_word(at, width, value);
    }

    pub(crate) fn clear_frame(&mut self, cpu: usize, at: Pa) {
        let lines = (pageferry_hal::PAGE_SIZE / self.params.line_bytes) as u64;
        let package = self.cpus[cpu].package;
        let cycles = self.caches.as_mut().map_or(lines, |caches| caches.clear_page(package, at.0));
        self.streamed(cpu, lines, cycles);
        self.judge_bytes(cpu, (Va(at.0), at), pageferry_hal::PAGE_SIZE, true);
        self.memory.clear_frame(at.pfn());
    }

    pub(crate) fn flush_line(&mut self, at: Pa) {
        if let Some(caches) = &mut self.caches {
            caches.live().flush_line(at.0);
        }
        if let Some(aliases) = &mut self.aliases {
            aliases.forget(at, 1);
        }
    }

    /// Gives a CPU its place among those that can go on: after it has run, and when something changes for one that does
    /// not run.
    pub(crate) fn take_turn(&mut self, cpu: usize) {
        let c = &self.cpus[cpu];
        let ready_at = match c.state {
            CpuState::Off => NEVER,
            CpuState::Running => c.clock,
            CpuState::Halted => c.pending.front().map_or(NEVER, |&(at, _)| at.max(c.clock)),
        };
        self.turns.set(cpu, ready_at);
    }

    /// When an interrupt arrives that could be there at `at`.
    pub(crate) fn delayed(&mut self, at: u64) -> u64 {
        at + self.delays.as_mut().map_or(0, Delays::next)
    }

    /// An interrupt will arrive at `cpu` at `at`.
    pub(crate) fn interrupt_at(&mut self, cpu: usize, at: u64, interrupt: Interrupt) {
        let pending = &mut self.cpus[cpu].pending;
        let position = pending.partition_point(|&(other, _)| other <= at);
        pending.insert(position, (at, interrupt));
        if self.cpus[cpu].state == CpuState::Halted {
            self.take_turn(cpu);
        }
    }

    /// Sets or stops a CPU's timer.
    pub(crate) fn set_timer(&mut self, cpu: usize, at: Option<u64>) {
        self.cpus[cpu].pending.retain(|&(_, interrupt)| interrupt != Interrupt::Timer);
        if let Some(at) = at {
            self.interrupt_at(cpu, at, Interrupt::Timer);
        }
    }

    // --------------------------------------------------------------------------------------------- outside of the CPUs
}
