//! How instructions are fetched: translated by blocks, then by the instruction TLB, then by what fills that; their lines through
//! the instruction cache. What the machine does not describe is not looked at.
//!
//! An entry of the instruction TLB is like any other: marked when its mapping changes, judged when it is made and when it is
//! used. None of the modelled MMUs can forbid to execute what may be loaded; that a mapping does is seen when its page is
//! first made present.

use crate::hw::Hw;
use crate::mmu::access::Refused;
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
    ) -> Result<usize, Refused> {
        let pa = self.translate_fetch(cpu, va, mode)?;
        let len = len_bytes.min(PAGE_SIZE - va.offset());
        let line_bytes = self.params.line_bytes;
        let mut done = 0;
        while done < len {
            let at = pa + done;
            let package = self.cpus[cpu].package;
            let Some(fetched) = self
                .caches
                .as_mut()
                .and_then(|caches| caches.live().fetch_line(package, at.0, va.0 + done as u64))
            else {
                return Ok(len);
            };
            self.counts.icache_lookups += 1;
            if fetched.hit {
                self.counts.icache_hits += 1;
            } else {
                self.counts.icache_misses += 1;
                self.charge(cpu, u64::from(fetched.cycles));
            }
            done = (done + line_bytes - (at.0 as usize & (line_bytes - 1))).min(len);
            if self.cpus[cpu].clock > deadline {
                break;
            }
        }
        Ok(done)
    }

    fn translate_fetch(&mut self, cpu: usize, va: Va, mode: Mode) -> Result<Pa, Refused> {
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
            self.counts.kernel_misses += u64::from(va >= self.params.layout.user_end);
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
