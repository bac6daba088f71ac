//! The instruction caches: one for each package, beside the first level for data.
//!
//! A hit costs nothing, for `cpi_milli` has it. What misses is looked for in the second level and behind it, as a
//! dependent load would be, and never in the first level for data. An exclusive second level gives its copy and keeps
//! it, and takes no line in on this way. Stores do not reach instruction caches: the bytes are always current, and what
//! a program writes and then executes costs no more than what it was loaded with.

use super::Caches;
use super::access::{Kind, PageAccess};
use super::level::{LineState, UNIQUE};
use super::memory::{Memory, Snoop};
use super::package::Package;

/// Lines of instructions were fetched, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchResult {
    /// So many the instruction cache had, first.
    pub hits: usize,
    /// What the one costs that it did not have, which is the last.
    pub missed: Option<u32>,
}

impl Caches {
    /// Fetches up to so many lines of a page, from that of physical address `pa` on, by addresses from `va` on, for a
    /// CPU of `package`, until one misses; `None` where there is no instruction cache.
    ///
    /// # Panics
    /// When `pa` lies beyond what the caches can tag.
    #[inline]
    pub fn fetch_lines(&mut self, package: usize, pa: u64, va: u64, lines: usize) -> Option<FetchResult> {
        let first = pa >> self.line_shift;
        let cache = self.instruction.get_mut(package)?;
        assert!(first < self.line_limit, "physical address {pa:#x} lies beyond what the caches can tag");
        let known = first + cache.colours.skew(pa, cache.colours.of_address(va));
        let hits =
            (known..known + lines as u64).take_while(|&line| cache.level.touch(line).is_some()).count();
        cache.counts.hits += hits as u64;
        if hits == lines {
            return Some(FetchResult { hits, missed: None });
        }
        cache.counts.misses += 1;
        cache.counts.fills += 1;
        cache.counts.evictions += u64::from(cache.level.insert(known + hits as u64, 0) != 0);
        let page = self.enter(package, pa);
        Some(FetchResult { hits, missed: Some(self.fetch_from_behind(page, first + hits as u64)) })
    }

    /// Gets a line of instructions from the second level or behind it.
    fn fetch_from_behind(&mut self, page: PageAccess, line: u64) -> u32 {
        let package = &mut self.packages[page.package];
        for at in 1..package.banks.len() {
            let bank = &mut package.banks[at];
            let Some(entry) = bank.level.touch(line) else {
                bank.counts.misses += 1;
                continue;
            };
            let flags = *entry & UNIQUE;
            bank.counts.hits += 1;
            let cycles = bank.hit_cost(false, Kind::Latency);
            package.take_in(&mut self.memory, at, LineState { line, flags });
            return cycles;
        }
        let elsewhere = self.snoop(page, line, false);
        let package = &mut self.packages[page.package];
        let cycles = if elsewhere == Snoop::Dirty {
            package.counts.transfers += 1;
            self.memory.fetch_cost(elsewhere, false, Kind::Latency)
        } else {
            package.counts.memory_reads += 1;
            self.memory.read(line, false, Kind::Latency)
        };
        let flags = if elsewhere == Snoop::Absent { UNIQUE } else { 0 };
        package.take_in(&mut self.memory, package.banks.len(), LineState { line, flags });
        cycles
    }
}

impl Package {
    /// Puts a line of instructions into the levels between the first and `behind`.
    fn take_in(&mut self, memory: &mut Memory, behind: usize, held: LineState) {
        for to in (1..behind).rev() {
            if !self.banks[to].exclusive {
                self.put(memory, to, held, Kind::Latency);
            }
        }
    }
}
