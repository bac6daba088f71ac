//! The cache hierarchies of all packages, the memory behind them, and what they cost.
//!
//! A package has up to four levels, shared by its SMT siblings; the last one may be shared by several packages, which
//! are a complex (`cache::complex`). A level is set-associative, true LRU, indexed and tagged by physical addresses,
//! one line size throughout. The first level of a machine with one package may be indexed by virtual addresses: then it
//! has a line of memory once for each *colour* by which it was accessed, as if these were different lines
//! (`cache::colour`). Only the state of lines is held here; the bytes are in the modelled memory, which is always
//! current, since one access is carried out at a time. Everything is counted (`CacheStats`), and [`Caches::check`]
//! asserts the conservation laws between the counts and against the state.
//!
//! Rules:
//! - A read fills every level from the first to the one that had the line, except a second level that is exclusive:
//!   that holds only what the first evicted, and gives a line away when it is read.
//! - Other levels are neither inclusive nor exclusive, as on the Pentium 4: an eviction from the second level leaves
//!   the first one's copy alone.
//! - A store passes write-through levels, which update a line that they have and take in none, and allocates in the
//!   first write-back level. Without one it goes to memory.
//! - Between packages the protocol is MESI: a line that may be written without asking is `UNIQUE`. A read of a line
//!   that is dirty elsewhere moves it at `transfer_cycles`, and memory gets it too; a store moves it and leaves memory
//!   as it was. A store to a shared line takes the copies away from the others at `upgrade_cycles`.
//! - Writing back a victim costs time only in a stream, where it takes bandwidth from it; a single access does not wait
//!   for the write buffer. Where a machine's file has the parts of it, streams wait for memory's chips and the rows of
//!   these (`cache::dram`). A victim that moves from level to level costs nothing beyond the constants of the levels.

mod access;
pub(crate) mod aliases;
mod check;
mod colour;
mod complex;
mod dram;
mod fetch;
mod instruction;
mod level;
mod memory;
mod near;
mod package;
pub(crate) mod power_on;
mod run;
mod stats;
mod stream;

pub use access::{Kind, PageAccess};
pub use fetch::FetchResult;
pub use stats::{CacheStats, LevelStats, PackageStats};

use crate::config::MachineConfig;
use colour::Colours;
use complex::Complexes;
use instruction::InstructionCache;
use level::{DIRTY, UNIQUE};
use memory::{Memory, Snoop};
use package::{Lookup, Package};
use pageferry_hal::{PAGE_SHIFT, PAGE_SIZE};
use run::{MAX_LINES, Run};

/// The caches of a machine.
#[derive(Clone, Default, Debug)]
pub struct Caches {
    line_shift: u32,
    /// The first line that some level cannot tag.
    line_limit: u64,
    packages: Vec<Package>,
    /// For each page of memory, the packages that may hold lines of it, a bit each: the others need not be asked. A bit
    /// stays when the last line has left.
    holders: Vec<u64>,
    memory: Memory,
    complexes: Complexes,
    /// A run has no more lines than this, a power of two, and lies in a block of so many.
    run_lines: usize,
    /// The most that a line of a run can cost.
    max_cycles: u64,
    /// For the loads and the stores of a copy; other streams use the first.
    runs: Box<[Run; 2]>,
    /// By package; empty where there are none.
    instruction: Vec<InstructionCache>,
    colours: Colours,
}

impl Caches {
    /// The empty caches of a validated machine.
    ///
    /// # Panics
    /// When the configuration is not valid: see [`MachineConfig::validate`].
    pub fn new(machine: &MachineConfig) -> Caches {
        machine.validate().expect("the caches of a valid machine");
        Caches::of_valid(machine)
    }

    /// As [`Caches::new`], for a machine that was found to be valid just now.
    pub(crate) fn of_valid(machine: &MachineConfig) -> Caches {
        let packages = machine.cpu.packages.value as usize;
        assert!(packages <= u64::BITS as usize, "{packages} packages have no bit each");
        let package = Package::new(machine);
        let memory = Memory::new(machine);
        let instruction: Vec<_> =
            (0..packages).flat_map(|_| machine.icache.as_ref().map(InstructionCache::new)).collect();
        let colours = Colours::of(machine);
        // The first level's numbers are larger by a colour.
        let data = package.banks.iter().map(|bank| bank.level.line_limit() / u64::from(colours.count()));
        let limits = data.chain(instruction.iter().map(InstructionCache::line_limit));
        let fewest_sets = package.banks.iter().map(|bank| bank.level.sets()).min();
        let complexes = Complexes::of(machine);
        Caches {
            run_lines: fewest_sets.expect("a machine has caches").min(MAX_LINES),
            max_cycles: package.max_cycles(&memory),
            runs: Box::default(),
            line_limit: limits.min().expect("a machine has caches"),
            line_shift: machine.cache[0].line_bytes.value.trailing_zeros(),
            packages: Caches::empty_packages(machine, &complexes, package),
            holders: vec![0; (machine.memory_bytes() >> PAGE_SHIFT) as usize],
            memory,
            complexes,
            instruction,
            colours,
        }
    }

    /// Bytes in a line, at all levels.
    pub fn line_bytes(&self) -> usize {
        1 << self.line_shift
    }

    /// One access of a CPU of `package` to the line that holds physical address `pa`. Gives its cost in cycles.
    ///
    /// # Panics
    /// When there is no such package, or `pa` lies beyond what the caches can tag.
    #[inline(always)]
    pub fn access(&mut self, package: usize, pa: u64, write: bool, kind: Kind) -> u32 {
        if self.colours.count() > 1 {
            return self.access_by(package, pa, self.colours.own(pa), write, kind);
        }
        let page = self.enter_page(package, pa, 0);
        self.access_in(page, pa, write, kind)
    }

    /// As [`Caches::access`], by an address of a colour.
    #[inline(never)]
    pub fn access_by(&mut self, package: usize, pa: u64, colour: u32, write: bool, kind: Kind) -> u32 {
        let page = self.enter_by(package, pa, colour);
        self.access_in(page, pa, write, kind)
    }

    /// A CPU of `package` is about to access lines of the page of `pa`, one by one and with nothing between them.
    ///
    /// # Panics
    /// As [`Caches::access`].
    #[inline]
    pub fn enter(&mut self, package: usize, pa: u64) -> PageAccess {
        self.enter_by(package, pa, self.colours.own(pa))
    }

    /// As [`Caches::enter`], by an address of a colour.
    #[inline]
    pub fn enter_by(&mut self, package: usize, pa: u64, colour: u32) -> PageAccess {
        self.enter_page(package, pa, self.colours.skew(pa, colour))
    }

    #[inline(always)]
    fn enter_page(&mut self, package: usize, pa: u64, skew: u64) -> PageAccess {
        let count = self.packages.len();
        assert!(package < count, "no package {package} among {count}");
        let line = pa >> self.line_shift;
        assert!(line < self.line_limit, "physical address {pa:#x} lies beyond what the caches can tag");
        if count == 1 {
            return PageAccess { package, others: 0, near: 0, skew };
        }
        let page = (pa >> PAGE_SHIFT) as usize;
        if page >= self.holders.len() {
            self.holders.resize(page + 1, 0);
        }
        let holders = &mut self.holders[page];
        let mine = 1 << package;
        let others = *holders & !mine;
        *holders |= mine;
        if self.complexes.exist() {
            return self.enter_complex(package, others, skew);
        }
        PageAccess { package, others, near: 0, skew }
    }

    /// As [`Caches::access`], to a line of a page that was entered.
    #[inline(always)]
    pub fn access_in(&mut self, page: PageAccess, pa: u64, write: bool, kind: Kind) -> u32 {
        let line = pa >> self.line_shift;
        let package = &mut self.packages[page.package];
        package.counts.accesses += 1;
        match package.find(line, page.skew, write, kind) {
            Lookup::Done { cycles } => {
                self.memory.passes(cycles);
                cycles
            }
            Lookup::At { at, flags, cycles } if self.complexes.exist() => {
                self.memory.passes(cycles);
                cycles + self.bring_in_complex(page, line, ((at, flags), cycles), write, kind)
            }
            Lookup::At { at, flags, cycles } => {
                self.memory.passes(cycles);
                cycles + self.bring(page, line, (at, flags), write, kind)
            }
            Lookup::Nowhere => self.fetch(page, line, write, kind),
        }
    }

    /// Takes the line of `pa` out of every cache; dirty copies are written to memory. Costs nothing: the caller knows
    /// why.
    ///
    /// # Panics
    /// When `pa` lies beyond what the caches can tag.
    pub fn flush_line(&mut self, pa: u64) {
        let line = pa >> self.line_shift;
        assert!(line < self.line_limit, "physical address {pa:#x} lies beyond what the caches can tag");
        self.instruction.iter_mut().for_each(|cache| cache.drop_line(line, pa));
        for package in &mut self.packages {
            let mut is_dirty = package.take_away(line) == Snoop::Dirty;
            for skew in self.colours.others(pa) {
                is_dirty |= package.take_alias(line, skew) == Snoop::Dirty;
            }
            if is_dirty {
                package.counts.memory_writebacks += 1;
            }
        }
    }

    /// Writes back what a package has newer than memory of the line of `pa`, under whatever colour, and keeps it. True
    /// if there was anything.
    ///
    /// # Panics
    /// When `pa` lies beyond what the caches can tag.
    pub fn write_back_line(&mut self, package: usize, pa: u64) -> bool {
        let line = pa >> self.line_shift;
        assert!(line < self.line_limit, "physical address {pa:#x} lies beyond what the caches can tag");
        let own = self.colours.skew(pa, self.colours.own(pa));
        let skews: Vec<u64> = self.colours.others(pa).chain([own]).collect();
        let package = &mut self.packages[package];
        let mut was_dirty = false;
        let mut clean = |entry: Option<&mut u32>| {
            if let Some(entry) = entry {
                was_dirty |= *entry & DIRTY != 0;
                *entry &= !DIRTY;
            }
        };
        package.banks[1..].iter_mut().for_each(|bank| clean(bank.level.peek(line)));
        skews.iter().for_each(|skew| clean(package.banks[0].level.peek(line.wrapping_add(*skew))));
        package.counts.memory_writebacks += u64::from(was_dirty);
        was_dirty
    }

    /// Writes back and drops what the first level holds of the page of `pa` under a colour. Gives how many of its lines
    /// were dirty.
    ///
    /// # Panics
    /// When the first level is not indexed by virtual addresses, or `pa` lies beyond what the caches can tag.
    pub fn purge(&mut self, package: usize, pa: u64, colour: u32) -> u64 {
        assert!(self.colours.count() > 1, "no colour is known to these caches");
        let page = pa & !(PAGE_SIZE as u64 - 1);
        let skew = self.enter_by(package, page, colour).skew;
        let package = &mut self.packages[package];
        let first = page >> self.line_shift;
        let dirty = (first..first + (PAGE_SIZE as u64 >> self.line_shift))
            .filter(|&line| package.take_alias(line, skew) == Snoop::Dirty)
            .count() as u64;
        package.counts.memory_writebacks += dirty;
        dirty
    }

    /// All counts so far.
    pub fn stats(&self) -> CacheStats {
        let levels = |p: &Package| p.banks.iter().map(|bank| bank.counts).collect();
        CacheStats {
            levels: self.packages.iter().map(levels).collect(),
            packages: self.packages.iter().map(|p| p.counts).collect(),
            instruction: self.instruction.iter().map(|i| i.counts).collect(),
        }
    }

    /// What is left of an access to a line that was found at a level with flags. Gives the cost beyond that of a hit
    /// there.
    #[inline(never)]
    fn bring(&mut self, page: PageAccess, line: u64, found: (usize, u32), write: bool, kind: Kind) -> u32 {
        let must_ask = write && found.1 & UNIQUE == 0 && self.packages.len() > 1;
        let asked = if must_ask { self.upgrade(page, line, kind) } else { 0 };
        asked + self.packages[page.package].bring(&mut self.memory, (line, page.skew), found, write, kind)
    }

    /// Gets a line that no level of the package has.
    #[inline]
    fn fetch(&mut self, page: PageAccess, line: u64, write: bool, kind: Kind) -> u32 {
        if page.near != 0
            && let Some(cycles) = self.fetch_near(page, line, write, kind)
        {
            return cycles;
        }
        let elsewhere = self.snoop(page, line, write);
        let package = &mut self.packages[page.package];
        let from = if write { package.first_back } else { 0 };
        if from == package.banks.len() {
            assert!(elsewhere != Snoop::Dirty, "no level of this machine holds dirty lines");
            package.counts.memory_stores += 1;
            return self.memory.store_cost(kind);
        }
        let fetched = if elsewhere == Snoop::Dirty {
            package.counts.transfers += 1;
            self.memory.fetch_cost(elsewhere, write, kind)
        } else {
            package.counts.memory_reads += 1;
            self.memory.read(line, write, kind)
        };
        let flags = match (write, elsewhere) {
            (true, _) => DIRTY | UNIQUE,
            (false, Snoop::Absent) => UNIQUE,
            (false, _) => 0,
        };
        let depth = package.banks.len();
        fetched + package.fill(&mut self.memory, (line, page.skew), (from, depth), flags, kind)
    }

    /// Takes the copies of a line that a package wants to write away from the other packages.
    fn upgrade(&mut self, page: PageAccess, line: u64, kind: Kind) -> u32 {
        let elsewhere = self.snoop(page, line, true);
        assert!(elsewhere != Snoop::Dirty, "line {line:#x} is dirty in a package while another holds a copy");
        self.packages[page.package].counts.upgrades += 1;
        self.memory.upgrade_cost(kind)
    }

    /// Asks all other packages for a line: for a store they lose it, for a load they keep clean copies.
    #[inline(always)]
    fn snoop(&mut self, page: PageAccess, line: u64, write: bool) -> Snoop {
        match (page.others, write) {
            (0, _) => Snoop::Absent,
            (others, true) => self.ask(others, |other| other.take_away(line)),
            (others, false) => self.ask(others, |other| other.share(line)),
        }
    }

    /// Asks each of `others`, a bit for each package: dirty in one is dirty, else what the first that has it says.
    #[inline(never)]
    fn ask(&mut self, others: u64, ask: impl Fn(&mut Package) -> Snoop) -> Snoop {
        let mut found = Snoop::Absent;
        let mut left = others;
        while left != 0 {
            let other = &mut self.packages[left.trailing_zeros() as usize];
            left &= left - 1;
            let state = ask(other);
            if state == Snoop::Dirty || found == Snoop::Absent {
                found = state;
            }
        }
        found
    }
}
