//! The conservation laws between the counts, and the rules of the protocol on the state.

use super::Caches;
use super::instruction::InstructionCache;
use super::level::{DIRTY, LineState, UNIQUE};
use super::package::Package;
use super::stats::LevelStats;
use pageferry_hal::PAGE_SHIFT;

impl Caches {
    /// Asserts the conservation laws between the counts, and the rules of the protocol on the state.
    ///
    /// # Errors
    /// The first law that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.instruction.iter().try_for_each(InstructionCache::check)?;
        let mut shared = Vec::new();
        for (number, package) in self.packages.iter().enumerate() {
            let says = |at: usize, what: String| format!("package {number}, level {at}: {what}");
            let mut held = Vec::new();
            for (at, bank) in package.banks[..package.here].iter().enumerate() {
                let check_line = |held: LineState| {
                    self.check_line(number, at, held).map_err(|what| format!("line {:#x}: {what}", held.line))
                };
                held.push(bank.level.check(check_line).map_err(|what| says(at, what))?);
            }
            let fetched = self.instruction.get(number).map_or(0, |cache| cache.counts.misses);
            let depth = package.banks.len();
            let own = if self.complexes.exist() { depth - 1 } else { depth };
            let asked = package.check_counts(own, fetched, &held).map_err(|(at, law)| says(at, law))?;
            let p = &package.counts;
            let behind = p.memory_reads + p.transfers + p.memory_stores;
            if own == depth {
                equal(BEHIND, depth - 1, asked, behind).map_err(|(at, law)| says(at, law))?;
                continue;
            }
            if self.complexes.begins_with(number) {
                shared.push(Shared::default());
            }
            let of = shared.last_mut().expect("the first package begins a complex");
            (of.asked, of.behind) = (of.asked + asked, of.behind + behind);
            if package.here == depth {
                (of.counts, of.held) = (package.banks[own].counts, held[own]);
            }
        }
        let says = |number: usize, (at, law)| format!("complex {number}, level {at}: {law}");
        shared
            .iter()
            .enumerate()
            .try_for_each(|(number, of)| of.check().map_err(|broken| says(number, broken)))
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
        let mut holders = self.holders[(line << self.line_shift >> PAGE_SHIFT) as usize];
        let mut mine = 1 << package;
        if self.complexes.exist() {
            let complex = self.complexes.mask(package);
            let is_shared = at == own.banks.len() - 1;
            if holders & if is_shared { complex } else { mine } == 0 {
                return Err("its package is not among those that may hold the page");
            }
            holders |= self.complexes.sharing(holders);
            // The shared level says only whether another complex has it.
            mine = if is_shared { complex } else { mine };
        } else if holders & mine == 0 {
            return Err("its package is not among those that may hold the page");
        }
        // A package that is not among them holds no line of the page: each of its lines is looked at as this one is.
        let is_other = |other: usize| mine & 1 << other == 0 && holders & 1 << other != 0;
        let holds = |other: usize| {
            let them = &self.packages[other];
            let is_near = self.complexes.exist() && self.complexes.mask(package) & 1 << other != 0;
            if is_near { them.holds_itself(line) } else { them.holds(line) }
        };
        if flags & UNIQUE != 0 && (0..self.packages.len()).any(|other| is_other(other) && holds(other)) {
            return Err("called unique, but another package holds it");
        }
        Ok(())
    }
}

/// What the laws say of the level that a complex shares.
#[derive(Default)]
struct Shared {
    /// What its packages asked of it, and what was asked behind it.
    asked: u64,
    behind: u64,
    counts: LevelStats,
    held: u64,
}

impl Shared {
    fn check(&self) -> Result<(), (usize, String)> {
        let c = &self.counts;
        equal(ABOVE, 0, c.accesses(), self.asked)?;
        equal(FILLS, 0, c.fills, c.evictions + c.removals + self.held)?;
        equal(BEHIND, 0, c.misses, self.behind)
    }
}

const ABOVE: &str = "hits + misses = what came from above";
const FILLS: &str = "fills = evictions + removals + held";
const BEHIND: &str = "misses + write-throughs = reads, transfers and stores";

/// A law at a level.
fn equal(what: &str, at: usize, left: u64, right: u64) -> Result<(), (usize, String)> {
    if left == right { Ok(()) } else { Err((at, format!("{what}: {left} is not {right}"))) }
}

impl Package {
    /// `fetched` lines of instructions were asked of the second level, or of what is behind the first; so many lines
    /// are `held` by each level. Gives what was asked behind the first `depth` levels, of which the laws are checked.
    fn check_counts(&self, depth: usize, fetched: u64, held: &[u64]) -> Result<u64, (usize, String)> {
        let mut asked = self.counts.accesses;
        for (at, bank) in self.banks[..depth].iter().enumerate() {
            let c = &bank.counts;
            asked += if at == 1 { fetched } else { 0 };
            equal(ABOVE, at, c.accesses(), asked)?;
            equal(FILLS, at, c.fills, c.evictions + c.removals + held[at])?;
            asked = c.misses + c.write_throughs;
        }
        Ok(asked + if depth == 1 { fetched } else { 0 })
    }
}
