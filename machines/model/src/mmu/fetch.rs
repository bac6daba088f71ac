//! How instructions are fetched: translated by blocks, then by the instruction TLB, then by what fills that; their
//! lines through the instruction cache. What the machine does not describe is not looked at.
//!
//! An entry of the instruction TLB is like any other: marked when its mapping changes, judged when it is made and when
//! it is used. None of the modelled MMUs can forbid to execute what may be loaded; that a mapping does is seen when its
//! page is first made present.

use crate::cache::FetchResult;
use crate::hw::Hw;
use crate::mmu::access::Exception;
use pageferry_hal::{Access, Attr, Cause, CpuId, Mode, PAGE_SIZE, Pa, TrapKind, Va};

impl Hw {
    /// Fetches up to `len_bytes` at `va` without leaving the page or passing `deadline`; how many bytes it was.
    pub(crate) fn fetch(
        &mut self,
        cpu: usize,
        va: Va,
        len_bytes: usize,
        mode: Mode,
        deadline: u64,
    ) -> Result<usize, Exception> {
        let pa = self.translate_fetch(cpu, va, mode)?;
        let len = len_bytes.min(PAGE_SIZE - va.offset());
        let shift = self.params.line_bytes.trailing_zeros();
        let line_of = |done: usize| (pa.0 + done as u64) >> shift;
        let mut done = 0;
        while done < len {
            // Hits take no time. If there is none left, it ends with the next line, whatever that is.
            let in_time = self.cpus[cpu].clock <= deadline;
            let lines = if in_time { (line_of(len - 1) - line_of(done) + 1) as usize } else { 1 };
            let package = self.cpus[cpu].package;
            let Some(caches) = &mut self.caches else { return Ok(len) };
            let fetched = caches.live().fetch_lines(package, pa.0 + done as u64, va.0 + done as u64, lines);
            let Some(FetchResult { hits, missed }) = fetched else { return Ok(len) };
            let through = hits + usize::from(missed.is_some());
            self.counts.icache_lookups += through as u64;
            self.counts.icache_hits += hits as u64;
            if let Some(cycles) = missed {
                self.counts.icache_misses += 1;
                self.charge(cpu, u64::from(cycles));
            }
            let next = (line_of(done) + through as u64) << shift;
            done = ((next - pa.0) as usize).min(len);
            if self.cpus[cpu].clock > deadline {
                break;
            }
        }
        Ok(done)
    }

    fn translate_fetch(&mut self, cpu: usize, va: Va, mode: Mode) -> Result<Pa, Exception> {
        let access = Access::Fetch;
        let refuse = |kind| Hw::trap(va, access, mode, kind);
        let closed = |attr: Attr| mode == Mode::User && !attr.contains(Attr::USER);
        if let Some((pa, attr)) = self.found_before_pages(cpu, va, access) {
            return if closed(attr) { Err(refuse(TrapKind::Protection)) } else { Ok(pa) };
        }
        if self.instruction_tlbs.is_empty() {
            let (pa, attr) = self.declared(cpu, va).ok_or(refuse(TrapKind::NotPresent))?;
            return if closed(attr) { Err(refuse(TrapKind::Protection)) } else { Ok(pa) };
        }
        self.counts.fetch_lookups += 1;
        let (core, id, asid) = (self.core(cpu), CpuId(cpu as u8), self.asid_for(cpu, va));
        let mut found = self.instruction_tlbs[core].lookup(id, asid, va).map(|(_, entry)| *entry);
        if let (None, Some(cycles)) = (found, self.params.data_hit) {
            found = self.tlbs[core].lookup(id, asid, va).map(|(_, entry)| *entry);
            if let Some(entry) = found {
                self.charge_to(cpu, Cause::TlbMiss, cycles);
                self.instruction_tlbs[core].fill(entry);
            }
        }
        let Some(entry) = found else {
            self.counts.fetch_misses += 1;
            self.counts.kernel_fetch_misses += u64::from(va >= self.params.layout.user_end);
            self.missed(va);
            return self.fill(cpu, va, mode, access).map(|found| found.pa);
        };
        self.counts.fetch_hits += 1;
        self.judge_use(cpu, va, access, &entry);
        if mode == Mode::User && !entry.user {
            return Err(self.refused(cpu, va, mode, access));
        }
        Ok(self.physical(&entry, va))
    }
}
