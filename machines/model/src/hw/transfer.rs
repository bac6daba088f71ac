//! Data on its way: streams, copies, accesses to kernel structures, references of programs; each translated, and then
//! line by line through the caches.

use super::{Hw, lines_of};
use crate::cache::power_on::PoweredOn;
use crate::cache::{Caches, Kind, PageAccess};
use crate::hw::colour;
use crate::mmu::access::{Exception, Found};
use pageferry_hal::{Access, Instructions, Mode, Pa, Pfn, Reference, Va, Width};

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
    fn enter(&mut self, va: Va, pa: Pa) -> Option<PageAccess> {
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
    fn access(&mut self, page: Option<PageAccess>, pa: Pa, write: bool) -> u64 {
        match (&mut self.caches, page) {
            (Some(caches), Some(page)) => u64::from(caches.access_in(page, pa.0, write, Kind::Stream)),
            _ => self.uncached(),
        }
    }

    /// The most that so many lines of a page can cost.
    fn at_most(&self, page: Option<PageAccess>, lines: usize) -> u64 {
        match (&self.caches, page) {
            (Some(caches), Some(page)) => caches.at_most(page, lines),
            _ => lines as u64 * self.uncached(),
        }
    }

    /// The cost of so many lines.
    fn stream(&mut self, page: Option<PageAccess>, pa: Pa, lines: usize, write: bool) -> u64 {
        match (&mut self.caches, page) {
            (Some(caches), Some(page)) => caches.stream_in(page, pa.0, lines, write),
            _ => lines as u64 * self.uncached(),
        }
    }

    /// The cost of so many lines that are copied.
    fn copy(
        &mut self,
        (source, from): (Option<PageAccess>, Pa),
        (target, to): (Option<PageAccess>, Pa),
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

/// Bytes from `pa` to the end of its line. Lines are powers of two, which the compiler does not know: divisions would
/// be felt.
#[inline(always)]
fn left_in_line(pa: Pa, line_bytes: usize) -> usize {
    line_bytes - (pa.0 as usize & (line_bytes - 1))
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
    fn is_left_for(&self, max_cycles: u64) -> bool {
        self.0.is_some_and(|room| max_cycles <= room)
    }
}

impl Hw {
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
    ) -> Result<(Pa, usize), Exception> {
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
    ) -> Result<usize, Exception> {
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
        if let Err(Exception::Miss(_)) = target {
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
        let max = through.at_most(source_page, all_lines) + through.at_most(target_page, all_lines);
        // Where lines begin at the same bytes, one is loaded and one stored, by turns.
        if left_in_line(source) == left_in_line(target) && room.is_left_for(max) {
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
    ) -> Result<(), Exception> {
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

    /// Makes references of a program from the `done`-th on, without passing `deadline` by more than one. Counts `done`
    /// up, so that a refused one can be taken up again, when it has executed its instructions.
    pub(crate) fn refer(
        &mut self,
        cpu: usize,
        references: &mut [Reference],
        done: &mut usize,
        deadline: u64,
    ) -> Result<(), Exception> {
        while let Some(r) = references.get_mut(*done) {
            if r.instructions > 0 {
                if *done > 0 && self.cpus[cpu].clock > deadline {
                    return Ok(());
                }
                self.execute(cpu, Instructions(std::mem::take(&mut r.instructions)));
            }
            if r.access == Access::Fetch {
                self.fetch(cpu, r.at, 1, Mode::User, u64::MAX)?;
            } else {
                self.refer_to_data(cpu, r)?;
            }
            *done += 1;
        }
        Ok(())
    }

    fn refer_to_data(&mut self, cpu: usize, r: &mut Reference) -> Result<(), Exception> {
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
}
