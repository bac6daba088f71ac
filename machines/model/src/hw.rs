//! The hardware state of one machine, and what one CPU does to it in one step.
//!
//! Nothing here suspends or calls kernel code: a step happens at one CPU's time, charges that CPU, and is over.
//! Interleaving, interrupts and contexts are the business of [`crate::machine`].

use crate::account::{Hardware as Counts, Snapshot};
use crate::cache::aliases::Aliases;
use crate::cache::power_on::PoweredOn;
use crate::cache::{Caches, Entered, Kind};
use crate::dev::audio::Audio;
use crate::dev::disk::Disk;
use crate::dev::nic::Card;
use crate::dev::{AUDIO, DISK, NIC};
use crate::machine::turns::{NEVER, Turns};
use crate::machine::watched::{Doing, Watch};
use crate::memory::Memory;
use crate::mmu::access::{Found, Refused};
use crate::mmu::oracle::{Oracle, StaleUse, Staleness};
use crate::mmu::tlb::Tlb;
use crate::mmu::translate::lowest;
use crate::outside::{Agenda, Dma, Outside};
use crate::params::Params;
use crate::trace::Recorder;
use pageferry_hal::{
    Access, AudioRequest, Block, Cause, Context, Counter, CpuId, Cycles, DeviceId, DiskRequest, HashTable,
    Instructions, Interrupt, Mmu, Mode, Pa, Pfn, Reference, Transfer, Va, Width,
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
    /// Nested reasons to take no interrupts: locks that handlers take, and refills.
    pub(crate) masked: u32,
    /// How many of the kernel's refill handlers are at work, each within the other.
    pub(crate) refills: u32,
    /// The kernel's refill handler is at work, with physical addresses: nothing of its own goes through a TLB.
    pub(crate) untranslated: bool,
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

/// What a stream goes through: the caches, or nothing, where every line takes one cycle.
struct Lines<'a> {
    caches: Option<&'a mut Caches>,
    package: usize,
    /// Where memory of devices begins, which no cache holds, and what a line of it costs.
    devices: (Pa, u64),
    colours: u32,
}

impl Lines<'_> {
    /// The lines of the page of `pa` come next, by the address `va`.
    fn enter(&mut self, va: Va, pa: Pa) -> Option<Entered> {
        let caches = self.caches.as_mut().filter(|_| pa < self.devices.0);
        caches.map(|caches| caches.enter_by(self.package, pa.0, colour(va, self.colours)))
    }

    /// What a line costs that goes through no cache.
    fn uncached(&self) -> u64 {
        if self.caches.is_some() { self.devices.1 } else { 1 }
    }

    /// The cost of one line.
    fn one(&mut self, va: Va, pa: Pa, write: bool) -> u64 {
        let page = self.enter(va, pa);
        self.access(page, pa, write)
    }

    /// The cost of a line of a page that was entered.
    #[inline(always)]
    fn access(&mut self, page: Option<Entered>, pa: Pa, write: bool) -> u64 {
        match (&mut self.caches, page) {
            (Some(caches), Some(page)) => u64::from(caches.access_in(page, pa.0, write, Kind::Stream)),
            _ => self.uncached(),
        }
    }

    /// The most that so many lines of a page can cost.
    fn at_most(&self, page: Option<Entered>, lines: usize) -> u64 {
        match (&self.caches, page) {
            (Some(caches), Some(page)) => caches.at_most(page, lines),
            _ => lines as u64 * self.uncached(),
        }
    }

    /// The cost of so many lines.
    fn stream(&mut self, page: Option<Entered>, pa: Pa, lines: usize, write: bool) -> u64 {
        match (&mut self.caches, page) {
            (Some(caches), Some(page)) => caches.stream_in(page, pa.0, lines, write),
            _ => lines as u64 * self.uncached(),
        }
    }

    /// The cost of so many lines that are copied.
    fn copy(
        &mut self,
        (source, from): (Option<Entered>, Pa),
        (target, to): (Option<Entered>, Pa),
        lines: usize,
    ) -> u64 {
        match (&mut self.caches, source, target) {
            (Some(caches), Some(source), Some(target)) => {
                caches.copy_in((source, from.0), (target, to.0), lines)
            }
            _ => self.stream(source, from, lines, false) + self.stream(target, to, lines, true),
        }
    }
}

/// The colour of an address, where there are so many.
#[inline(always)]
fn colour(va: Va, colours: u32) -> u32 {
    (va.0 >> pageferry_hal::PAGE_SHIFT) as u32 & (colours - 1)
}

/// Bytes from `pa` to the end of its line. Lines are powers of two, which the compiler does not know: divisions would
/// be felt.
#[inline(always)]
fn left_in_line(pa: Pa, line_bytes: usize) -> usize {
    line_bytes - (pa.0 as usize & (line_bytes - 1))
}

/// Lines that `len_bytes` from `pa` on are in.
#[inline(always)]
fn lines_of(pa: Pa, len_bytes: usize, line_bytes: usize) -> usize {
    ((pa.0 as usize & (line_bytes - 1)) + len_bytes + line_bytes - 1) >> line_bytes.trailing_zeros()
}

/// How long a stream may go on: to the line with which the CPU's clock passes a deadline.
struct Room(Option<u64>);

impl Room {
    fn until(deadline: u64, clock: u64) -> Room {
        Room(deadline.checked_sub(clock))
    }

    /// True before the first line, and as long as the deadline is not passed after `cycles`.
    #[inline(always)]
    fn is_left(&self, lines: u64, cycles: u64) -> bool {
        lines == 0 || self.0.is_some_and(|room| cycles <= room)
    }

    /// True when lines that cost no more than this do not pass the deadline: then they need not be looked at one by
    /// one.
    fn is_left_for(&self, most_cycles: u64) -> bool {
        self.0.is_some_and(|room| most_cycles <= room)
    }
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
    pub(crate) counters: [u64; Counter::COUNT],
    pub(crate) counts: Counts,
    /// The most entries that the kernel's addresses had in the TLBs of one CPU, in a sample since this was last set to
    /// 0.
    pub(crate) most_kernel_entries: usize,
    /// When the last interrupt handler finished: what it wrote cannot be seen earlier by a CPU that spins.
    pub(crate) handled_at: u64,
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
    /// When a CPU last rang the card's doorbell for sending.
    pub(crate) transmit_started_at: u64,
}

impl Hw {
    pub(crate) fn new(params: Params, caches: Option<PoweredOn>, tolerates_stale: bool) -> Hw {
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
            oracle: Oracle::new(!matches!(params.mmu, Mmu::Radix(_)), tolerates_stale),
            counters: [0; Counter::COUNT],
            counts: Counts::default(),
            most_kernel_entries: 0,
            handled_at: 0,
            recorder: None,
            watch: None,
            disk: Disk::default(),
            audio: Audio::default(),
            outside: params.nic.map(|nic| Box::new(Outside::new(nic))),
            outside_at: NEVER,
            has_far_end: false,
            transmit_started_at: 0,
            params,
        }
    }

    // ------------------------------------------------------------------------------------------------- accounts

    #[inline]
    pub(crate) fn charge_to(&mut self, cpu: usize, cause: Cause, cycles: u64) {
        if self.recorder.is_some() {
            self.record_spent(cpu, cause, cycles);
        }
        let c = &mut self.cpus[cpu];
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
        self.caches.as_ref().map_or(Ok(()), PoweredOn::check)
    }

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

    // ------------------------------------------------------------------------------------------------- data

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
    ) -> Result<(Pa, usize), Refused> {
        let Found { pa, by_tlb } = self.translate(cpu, va, mode, access)?;
        let len = len_bytes.min(pageferry_hal::PAGE_SIZE - va.offset());
        let line_bytes = self.params.line_bytes;
        let room = Room::until(deadline, self.cpus[cpu].clock);
        let mut through = self.lines(cpu);
        let page = through.enter(va, pa);
        let all_lines = lines_of(pa, len, line_bytes);
        let (mut done, mut lines, mut cycles) = (0, 0, 0);
        if room.is_left_for(through.at_most(page, all_lines)) {
            cycles = through.stream(page, pa, all_lines, access == Access::Write);
            (done, lines) = (len, all_lines as u64);
        }
        while done < len && room.is_left(lines, cycles) {
            let at = pa + done;
            cycles += through.access(page, at, access == Access::Write);
            lines += 1;
            done = (done + left_in_line(at, line_bytes)).min(len);
        }
        self.streamed(cpu, lines, cycles);
        self.judge_bytes(cpu, (va, pa), done, access == Access::Write);
        self.hit_again(by_tlb, lines);
        Ok((pa, done))
    }

    /// What a stream of this CPU goes through.
    fn lines(&mut self, cpu: usize) -> Lines<'_> {
        let devices = (Pfn(self.params.frames as u32).pa(), self.params.frame_buffer_line);
        let caches = self.caches.as_mut().map(PoweredOn::live);
        Lines { caches, package: self.cpus[cpu].package, devices, colours: self.params.colours }
    }

    /// So many lines of a stream were accessed.
    fn streamed(&mut self, cpu: usize, lines: u64, cycles: u64) {
        self.counts.accesses += lines;
        self.counts.lines_streamed += lines;
        self.charge(cpu, cycles);
    }

    /// Of the lines of a page, all but the first found the translation that was just used.
    fn hit_again(&mut self, by_tlb: bool, lines: u64) {
        let again = if by_tlb { lines.saturating_sub(1) } else { 0 };
        self.counts.tlb_lookups += again;
        self.counts.tlb_hits += again;
    }

    /// Copies up to `len_bytes` without leaving either page or passing `deadline`; how many bytes it was. A miss at
    /// `to` leaves what was loaded before in `registers`: to store that, `from` need not be translated once more, and
    /// so a copy comes on even if each refill drops the translation of the other side.
    pub(crate) fn copy(
        &mut self,
        cpu: usize,
        (to, from): (Va, Va),
        len_bytes: usize,
        deadline: u64,
        registers: &mut Vec<u8>,
    ) -> Result<usize, Refused> {
        if !registers.is_empty() {
            let target = self.translate(cpu, to, Mode::Kernel, Access::Write)?.pa;
            let bytes = std::mem::take(registers);
            let cycles = self.lines(cpu).one(to, target, true);
            self.streamed(cpu, 1, cycles);
            self.judge_bytes(cpu, (to, target), bytes.len(), true);
            self.memory.bytes_mut(target, bytes.len()).copy_from_slice(&bytes);
            self.counts.bytes_copied += bytes.len() as u64;
            return Ok(bytes.len());
        }
        let Found { pa: source, by_tlb: source_by_tlb } =
            self.translate(cpu, from, Mode::Kernel, Access::Read)?;
        let target = self.translate(cpu, to, Mode::Kernel, Access::Write);
        if let Err(Refused::Miss(_)) = target {
            let line_bytes = self.params.line_bytes;
            let left_in_line = |at: u64| line_bytes - (at as usize & (line_bytes - 1));
            registers.resize(len_bytes.min(left_in_line(source.0)).min(left_in_line(to.0)), 0);
            let cycles = self.lines(cpu).one(from, source, false);
            self.streamed(cpu, 1, cycles);
            self.judge_bytes(cpu, (from, source), registers.len(), false);
            self.memory.read(source, registers);
        }
        let Found { pa: target, by_tlb: target_by_tlb } = target?;
        let page = pageferry_hal::PAGE_SIZE;
        let len = len_bytes.min(page - from.offset()).min(page - to.offset());
        let line_bytes = self.params.line_bytes;
        let left_in_line = |pa: Pa| left_in_line(pa, line_bytes);
        let room = Room::until(deadline, self.cpus[cpu].clock);
        let mut through = self.lines(cpu);
        let (source_page, target_page) = (through.enter(from, source), through.enter(to, target));
        let (mut done, mut next_load, mut next_store) = (0, 0, 0);
        let (mut loads, mut stores, mut cycles) = (0, 0, 0);
        let all_lines = lines_of(source, len, line_bytes);
        let most = through.at_most(source_page, all_lines) + through.at_most(target_page, all_lines);
        // Where lines begin at the same bytes, one is loaded and one stored, by turns.
        if left_in_line(source) == left_in_line(target) && room.is_left_for(most) {
            cycles = through.copy((source_page, source), (target_page, target), all_lines);
            (done, loads, stores) = (len, all_lines as u64, all_lines as u64);
        }
        while done < len && room.is_left(loads, cycles) {
            if done == next_load {
                cycles += through.access(source_page, source + done, false);
                loads += 1;
                next_load += left_in_line(source + done);
            }
            if done == next_store {
                cycles += through.access(target_page, target + done, true);
                stores += 1;
                next_store += left_in_line(target + done);
            }
            done = next_load.min(next_store).min(len);
        }
        self.streamed(cpu, loads + stores, cycles);
        self.judge_bytes(cpu, (from, source), done, false);
        self.judge_bytes(cpu, (to, target), done, true);
        self.hit_again(source_by_tlb, loads);
        self.hit_again(target_by_tlb, stores);
        self.memory.copy(target, source, done);
        self.counts.bytes_copied += done as u64;
        Ok(done)
    }

    /// Accesses a kernel structure, from its `done`-th cache line on: dependent loads or stores, charged with their
    /// latency. Counts `done` up, so that a refused access can be taken up again.
    pub(crate) fn touch(
        &mut self,
        cpu: usize,
        va: Va,
        len_bytes: usize,
        access: Access,
        done: &mut u64,
    ) -> Result<(), Refused> {
        assert!(len_bytes > 0, "an access of no bytes");
        // Lines are powers of two, which the compiler does not know: a division would be felt.
        let shift = self.params.line_bytes.trailing_zeros();
        let (first, last) = (va.0 >> shift, (va.0 + len_bytes as u64 - 1) >> shift);
        while first + *done <= last {
            let at = Va(((first + *done) << shift).max(va.0));
            let found = self.translate(cpu, at, Mode::Kernel, access)?;
            let cost = self.line_by(cpu, at, found.pa, access == Access::Write);
            self.charge(cpu, cost);
            *done += 1;
        }
        Ok(())
    }

    /// Makes references of a program, without passing `deadline` by more than one; how many. A refused one that is the
    /// first has executed its instructions.
    pub(crate) fn refer(
        &mut self,
        cpu: usize,
        references: &mut [Reference],
        deadline: u64,
    ) -> Result<usize, Refused> {
        let len = references.len();
        for (done, r) in references.iter_mut().enumerate() {
            if r.instructions > 0 {
                if done > 0 && self.cpus[cpu].clock > deadline {
                    return Ok(done);
                }
                self.execute(cpu, Instructions(std::mem::take(&mut r.instructions)));
            }
            let made = if r.access == Access::Fetch {
                self.fetch(cpu, r.at, 1, Mode::User, u64::MAX).map(|_| ())
            } else {
                self.refer_to_data(cpu, r)
            };
            match made {
                Err(refused) if done == 0 => return Err(refused),
                Err(_) => return Ok(done),
                Ok(()) => {}
            }
        }
        Ok(len)
    }

    fn refer_to_data(&mut self, cpu: usize, r: &mut Reference) -> Result<(), Refused> {
        let pa = self.translate(cpu, r.at, Mode::User, r.access)?.pa;
        let write = r.access == Access::Write;
        let cost = self.line_by(cpu, r.at, pa, write).saturating_sub(self.params.first_level);
        self.charge(cpu, cost);
        if write {
            self.memory.store_word(pa, Width::Four, u64::from(r.word));
        } else {
            r.word = self.memory.load_word(pa, Width::Four) as u32;
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------------- page tables

    pub(crate) fn pt_load(&mut self, cpu: usize, at: Pa, width: Width) -> u64 {
        let cost = self.line(cpu, at, false);
        self.charge(cpu, cost);
        self.did(cpu, Doing::Reads(at));
        self.memory.load_word(at, width)
    }

    pub(crate) fn pt_store(&mut self, cpu: usize, at: Pa, width: Width, value: u64) {
        let cost = self.line(cpu, at, true);
        self.charge(cpu, cost);
        self.did(cpu, Doing::Writes(at));
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

    /// Takes in a request to the disk; its interrupt is on its way to CPU 0 from here on. Answers when it arrives.
    pub(crate) fn disk_submit(&mut self, cpu: usize, request: DiskRequest) -> u64 {
        let params = self.params.disk.expect("there is no disk");
        let at = self.disk.submit(params, self.cpus[cpu].clock, request);
        self.interrupt_at(0, at, Interrupt::Device(DISK));
        at
    }

    /// As [`Hw::disk_submit`], for a fragment of sound.
    pub(crate) fn audio_submit(&mut self, cpu: usize, request: AudioRequest) -> u64 {
        let params = self.params.audio.expect("there is no sound device");
        let at = self.audio.submit(params, self.cpus[cpu].clock, request);
        self.interrupt_at(0, at, Interrupt::Device(AUDIO));
        at
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

    /// A device's interrupt has arrived: the bytes are where they belong.
    pub(crate) fn device_arrived(&mut self, device: DeviceId) {
        match device {
            DISK => {
                let DiskRequest { frames, transfer, .. } = self.disk.complete(&mut self.memory);
                frames.into_iter().for_each(|f| self.snoop(f.pa(), pageferry_hal::PAGE_SIZE, transfer));
            }
            AUDIO => {
                let request = self.audio.complete(&mut self.memory);
                self.snoop(request.frame.pa() + request.offset, request.len_bytes, request.transfer);
            }
            // Its bytes have moved already.
            NIC => {}
            _ => unreachable!("{device:?} is no device of this board"),
        }
    }

    /// What a device has written is in no cache. What it has read may stay there.
    fn snoop(&mut self, at: Pa, len_bytes: usize, transfer: Transfer) {
        if transfer == Transfer::Read {
            self.dma().drop_lines(at, len_bytes);
        }
    }

    // --------------------------------------------------------------------------------------------- outside of the CPUs

    fn dma(&mut self) -> Dma<'_> {
        let Hw { memory, caches, aliases, params, .. } = self;
        Dma {
            memory,
            caches: caches.as_mut(),
            aliases: aliases.as_deref_mut(),
            line_bytes: params.line_bytes,
        }
    }

    /// The next event outside of the CPUs takes place.
    pub(crate) fn outside_happens(&mut self) {
        let mut outside = self.outside.take().expect("without a card nothing is due");
        let at = outside.next_at();
        let mut dma = self.dma();
        let interrupts = outside.happen(&mut dma);
        self.outside_at = outside.next_at();
        self.outside = Some(outside);
        if interrupts {
            self.interrupt_at(0, at, Interrupt::Device(NIC));
        }
    }

    /// A CPU does something to the network card.
    pub(crate) fn at_card<R>(&mut self, cpu: usize, act: impl FnOnce(&mut Card, u64, &mut Agenda) -> R) -> R {
        let clock = self.cpus[cpu].clock;
        self.at_outside(|outside| outside.at(clock, act))
    }

    /// Something is done to what is outside of the CPUs.
    ///
    /// # Panics
    /// When there is no card.
    pub(crate) fn at_outside<R>(&mut self, act: impl FnOnce(&mut Outside) -> R) -> R {
        let outside = self.outside.as_mut().expect("there is no network card on this machine");
        let done = act(outside);
        (self.outside_at, self.has_far_end) = (outside.next_at(), outside.has_far_end());
        done
    }
}
