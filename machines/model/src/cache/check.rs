//! The conservation laws between the counts, and the rules of the protocol on the state.

use super::Caches;
use super::instruction::InstructionCache;
use super::level::{DIRTY, LineState, UNIQUE};
use super::package::Package;
use pageferry_hal::PAGE_SHIFT;

impl Caches {
    /// Asserts the conservation laws between the counts, and the rules of the protocol on the state.
    ///
    /// # Errors
    /// The first law that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.instruction.iter().try_for_each(InstructionCache::check)?;
        for (number, package) in self.packages.iter().enumerate() {
            let says = |at: usize, what: String| format!("package {number}, level {at}: {what}");
            let mut held = Vec::new();
            for (at, bank) in package.banks.iter().enumerate() {
                let check_line = |held: LineState| {
                    self.check_line(number, at, held).map_err(|what| format!("line {:#x}: {what}", held.line))
                };
                held.push(bank.level.check(check_line).map_err(|what| says(at, what))?);
            }
            let fetched = self.instruction.get(number).map_or(0, |cache| cache.counts.misses);
            package.check_counts(fetched, &held).map_err(|(at, law)| says(at, law))?;
        }
        Ok(())
    }

    fn check_line(
        &self,
        package: usize,
        at: usize,
        LineState { line, flags }: LineState,
    ) -> Result<(), &'static str> {
        let own = &self.packages[package];
        if flags & DIRTY != 0 && (flags & UNIQUE == 0 || at < own.first_back) {
            return Err("dirty where it must not be");
        }
        if own.banks[at].exclusive && own.banks[at - 1].level.holds(line) {
            return Err("held by an exclusive level and the one above it");
        }
        if self.packages.len() == 1 {
            return Ok(());
        }
        let holders = self.holders[(line << self.line_shift >> PAGE_SHIFT) as usize];
        if holders & 1 << package == 0 {
            return Err("its package is not among those that may hold the page");
        }
        // A package that is not among them holds no line of the page: each of its lines is looked at as this one is.
        let is_other = |other: usize| other != package && holders & 1 << other != 0;
        if flags & UNIQUE != 0
            && (0..self.packages.len()).any(|other| is_other(other) && self.packages[other].holds(line))
        {
            return Err("called unique, but another package holds it");
        }
        Ok(())
    }
}

impl Package {
    /// `fetched` lines of instructions were asked of the second level, or of what is behind the first; so many lines
    /// are `held` by each level.
    fn check_counts(&self, fetched: u64, held: &[u64]) -> Result<(), (usize, String)> {
        let equal = |what: &str, at: usize, left: u64, right: u64| {
            if left == right { Ok(()) } else { Err((at, format!("{what}: {left} is not {right}"))) }
        };
        let mut asked = self.counts.accesses;
        for (at, bank) in self.banks.iter().enumerate() {
            let c = &bank.counts;
            asked += if at == 1 { fetched } else { 0 };
            equal("hits + misses = what came from above", at, c.accesses(), asked)?;
            let gone = c.evictions + c.removals;
            equal("fills = evictions + removals + held", at, c.fills, gone + held[at])?;
            asked = c.misses + c.write_throughs;
        }
        let depth = self.banks.len();
        asked += if depth == 1 { fetched } else { 0 };
        let p = &self.counts;
        let behind = p.memory_reads + p.transfers + p.memory_stores;
        equal("misses + write-throughs = reads, transfers and stores", depth - 1, asked, behind)
    }
}
