//! The cache hierarchies of all packages, the memory behind them, and what they cost.
//!
//! A package has up to four levels, shared by its SMT siblings: set-associative, true LRU, indexed and tagged by physical
//! addresses, one line size throughout. Only the state of lines is held here; the bytes are in the modelled memory, which
//! is always current, since one access is carried out at a time. Everything is counted (`CacheStats`), and
//! [`Caches::check`] asserts the conservation laws between the counts and against the state.
//!
//! Rules:
//! - A read fills every level from the first to the one that had the line, except a second level that is exclusive: that
//!   holds only what the first evicted, and gives a line away when it is read.
//! - Other levels are neither inclusive nor exclusive, as on the Pentium 4: an eviction from the second level leaves the
//!   first one's copy alone.
//! - A store passes write-through levels, which update a line that they have and take in none, and allocates in the first
//!   write-back level. Without one it goes to memory.
//! - Between packages the protocol is MESI: a line that may be written without asking is `UNIQUE`. A read of a line that is
//!   dirty elsewhere moves it at `transfer_cycles`, and memory gets it too; a store moves it and leaves memory as it was.
//!   A store to a shared line takes the copies away from the others at `upgrade_cycles`.
//! - Writing back a victim costs time only in a stream, where it takes bandwidth from it; a single access does not wait for
//!   the write buffer. Streams that take turns at memory pay `row_change_cycles` for each turn. A victim that moves from level to level costs nothing beyond the constants of the levels.

mod fetch;
mod level;

pub use fetch::Fetched;

use fetch::InstructionCache;
use level::{DIRTY, Held, Level, UNIQUE};

use crate::config::{CacheConfig, MachineConfig, Number, WritePolicy};

/// How an access depends on those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The next step waits for it, as in a page table walk or along a list: it pays the latency of the first level that has
    /// the line.
    Latency,
    /// One line of a copy or a fill, overlapped with its neighbours: it pays the stream cost of the level that takes it.
    Stream,
}

/// What happened in one level of one package.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LevelStats {
    /// Look-ups that found the line.
    pub hits: u64,
    /// Look-ups that did not; each is an access of the next level, or of memory.
    pub misses: u64,
    /// Hits of stores that went on to the next level all the same; each is an access there, or of memory.
    pub write_throughs: u64,
    /// Lines that came in.
    pub fills: u64,
    /// Lines that had to leave for others.
    pub evictions: u64,
    /// Evictions of dirty lines.
    pub writebacks: u64,
    /// Lines taken away: by another package's store, by a flush, or by the level above from an exclusive one.
    pub removals: u64,
}

impl LevelStats {
    /// Look-ups on behalf of loads and stores.
    pub fn accesses(&self) -> u64 {
        self.hits + self.misses
    }
}

/// What happened between one package and the rest of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PackageStats {
    /// Loads and stores of the package's CPUs.
    pub accesses: u64,
    /// Lines read from memory.
    pub memory_reads: u64,
    /// Lines that came dirty from another package.
    pub transfers: u64,
    /// Stores that had to ask the other packages for their copies of a line that was here.
    pub upgrades: u64,
    /// Stores that no level takes in: they went to memory.
    pub memory_stores: u64,
    /// Dirty lines written to memory: evicted, flushed, or read by another package.
    pub memory_writebacks: u64,
}

/// Every count, at one moment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CacheStats {
    /// By package, then by level from the CPU outwards.
    pub levels: Vec<Vec<LevelStats>>,
    /// By package.
    pub packages: Vec<PackageStats>,
    /// The instruction caches, by package; empty where there are none.
    pub instruction: Vec<LevelStats>,
}

impl CacheStats {
    /// Lines read from memory by all packages.
    pub fn memory_reads(&self) -> u64 {
        self.packages.iter().map(|p| p.memory_reads).sum()
    }

    /// Lines or stores written to memory by all packages.
    pub fn memory_writes(&self) -> u64 {
        self.packages.iter().map(|p| p.memory_stores + p.memory_writebacks).sum()
    }

    /// Lines that moved dirty between packages.
    pub fn transfers(&self) -> u64 {
        self.packages.iter().map(|p| p.transfers).sum()
    }
}

/// The costs and rules of a level, the same in all packages.
#[derive(Clone, Copy, Debug)]
struct Rules {
    latency_cycles: u32,
    stream_load_cycles: u32,
    stream_store_cycles: u32,
    exclusive: bool,
}

/// The costs of memory and of the other packages.
#[derive(Clone, Copy, Debug)]
struct MemoryCosts {
    latency_cycles: u32,
    stream_load_cycles: u32,
    stream_store_cycles: u32,
    writeback_cycles: u32,
    row_change_cycles: u32,
    transfer_cycles: u32,
    stream_transfer_cycles: u32,
    upgrade_cycles: u32,
    stream_upgrade_cycles: u32,
}

/// What the other packages had of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Elsewhere {
    Absent,
    Clean,
    Dirty,
}

/// The caches of a machine.
#[derive(Clone, Debug)]
pub struct Caches {
    line_shift: u32,
    /// The first line that some level cannot tag.
    line_limit: u64,
    depth: usize,
    packages: usize,
    /// The first write-back level; `depth` where there is none.
    first_back: usize,
    rules: Vec<Rules>,
    memory: MemoryCosts,
    /// The line that memory served last.
    last_memory_line: u64,
    /// `package * depth + level`.
    levels: Vec<Level>,
    /// As `levels`.
    counts: Vec<LevelStats>,
    package_counts: Vec<PackageStats>,
    /// By package; empty where there are none.
    instruction: Vec<InstructionCache>,
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
        let depth = machine.cache.len();
        let array = |c: &CacheConfig| {
            let sets = c.size_bytes.value / (c.ways.value * c.line_bytes.value);
            Level::new(sets as usize, c.ways.value as usize)
        };
        let memory = &machine.memory;
        let outside = |cycles: &Number| machine.outside_cycles(cycles) as u32;
        let back = |c: &CacheConfig| c.write_policy.value == WritePolicy::Back;
        let levels: Vec<Level> = (0..packages).flat_map(|_| machine.cache.iter().map(array)).collect();
        let instruction: Vec<_> =
            (0..packages).flat_map(|_| machine.icache.as_ref().map(InstructionCache::new)).collect();
        let limits = levels.iter().chain(instruction.iter().map(|i| &i.level)).map(Level::line_limit);
        Caches {
            line_limit: limits.min().expect("a machine has caches"),
            line_shift: machine.cache[0].line_bytes.value.trailing_zeros(),
            depth,
            packages,
            first_back: machine.cache.iter().position(back).unwrap_or(depth),
            rules: machine.cache.iter().map(Rules::new).collect(),
            memory: MemoryCosts {
                latency_cycles: machine.memory_latency_cycles() as u32,
                stream_load_cycles: outside(&memory.stream_load_cycles),
                stream_store_cycles: outside(&memory.stream_store_cycles),
                writeback_cycles: outside(&memory.writeback_cycles),
                row_change_cycles: memory.row_change_cycles.as_ref().map_or(0, outside),
                transfer_cycles: outside(&memory.transfer_cycles),
                stream_transfer_cycles: outside(&memory.stream_transfer_cycles),
                upgrade_cycles: outside(&memory.upgrade_cycles),
                stream_upgrade_cycles: outside(&memory.stream_upgrade_cycles),
            },
            last_memory_line: 0,
            levels,
            counts: vec![LevelStats::default(); packages * depth],
            package_counts: vec![PackageStats::default(); packages],
            instruction,
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
    #[inline]
    pub fn access(&mut self, package: usize, pa: u64, write: bool, kind: Kind) -> u32 {
        assert!(package < self.packages, "no package {package} among {}", self.packages);
        let line = pa >> self.line_shift;
        assert!(line < self.line_limit, "physical address {pa:#x} lies beyond what the caches can tag");
        self.package_counts[package].accesses += 1;
        let base = package * self.depth;
        let mut first_hit = None;
        let from = if write { self.store_through(base, line, &mut first_hit) } else { 0 };
        for at in from..self.depth {
            let counts = &mut self.counts[base + at];
            let Some(entry) = self.levels[base + at].touch(line) else {
                counts.misses += 1;
                continue;
            };
            counts.hits += 1;
            let flags = *entry & (DIRTY | UNIQUE);
            let cost = self.hit_cost(at, first_hit.unwrap_or(at), write, kind);
            if at == from && (!write || flags == DIRTY | UNIQUE) {
                return cost;
            }
            return cost + self.bring(package, line, from, at, flags, write, kind);
        }
        self.fetch(package, line, from, write, kind)
    }

    /// Takes the line of `pa` out of every cache; dirty copies are written to memory. Costs nothing: the caller knows why.
    ///
    /// # Panics
    /// When `pa` lies beyond what the caches can tag.
    pub fn flush_line(&mut self, pa: u64) {
        let line = pa >> self.line_shift;
        assert!(line < self.line_limit, "physical address {pa:#x} lies beyond what the caches can tag");
        self.instruction.iter_mut().for_each(|cache| cache.drop_line(line));
        for package in 0..self.packages {
            if self.take_away(package, line) == Elsewhere::Dirty {
                self.package_counts[package].memory_writebacks += 1;
            }
        }
    }

    /// All counts so far.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            levels: self.counts.chunks(self.depth).map(<[LevelStats]>::to_vec).collect(),
            packages: self.package_counts.clone(),
            instruction: self.instruction.iter().map(|i| i.counts).collect(),
        }
    }

    /// Carries a store through the write-through levels; gives the level where it is to be taken in.
    #[inline]
    fn store_through(&mut self, base: usize, line: u64, first_hit: &mut Option<usize>) -> usize {
        for at in 0..self.first_back {
            let counts = &mut self.counts[base + at];
            if self.levels[base + at].touch(line).is_some() {
                counts.hits += 1;
                counts.write_throughs += 1;
                first_hit.get_or_insert(at);
            } else {
                counts.misses += 1;
            }
        }
        self.first_back
    }

    /// The cost of an access that was first found at level `first_hit` and is served by level `at`.
    #[inline]
    fn hit_cost(&self, at: usize, first_hit: usize, write: bool, kind: Kind) -> u32 {
        match (kind, write) {
            (Kind::Latency, _) => self.rules[first_hit].latency_cycles,
            (Kind::Stream, false) => self.rules[at].stream_load_cycles,
            (Kind::Stream, true) => self.rules[at].stream_store_cycles,
        }
    }

    /// What is left of an access to a line that was found at level `at` with `flags`: gets it into level `from`, with leave
    /// to write it if that is wanted. Gives the cost beyond that of a hit at `at`.
    #[allow(clippy::too_many_arguments)]
    fn bring(
        &mut self,
        package: usize,
        line: u64,
        from: usize,
        at: usize,
        flags: u32,
        write: bool,
        kind: Kind,
    ) -> u32 {
        assert!(from <= at && at < self.depth, "a line is brought towards the CPU");
        let base = package * self.depth;
        let must_ask = write && flags & UNIQUE == 0 && self.packages > 1;
        let cost = if must_ask { self.upgrade(package, line, kind) } else { 0 };
        if from == at {
            let entry = self.levels[base + at].touch(line).expect("the line was found at this level");
            *entry |= DIRTY | UNIQUE;
            return cost;
        }
        let flags = if self.rules[at].exclusive {
            self.levels[base + at].remove(line);
            self.counts[base + at].removals += 1;
            flags
        } else {
            // This level goes on knowing what is newer than memory; the copies above are clean until written.
            flags & UNIQUE
        };
        let flags = if write { DIRTY | UNIQUE } else { flags };
        cost + self.fill(package, line, from, at, flags, kind)
    }

    /// Gets a line that no level of `package` has.
    fn fetch(&mut self, package: usize, line: u64, from: usize, write: bool, kind: Kind) -> u32 {
        let elsewhere = if self.packages == 1 { Elsewhere::Absent } else { self.snoop(package, line, write) };
        if from == self.depth {
            assert!(elsewhere != Elsewhere::Dirty, "no level of this machine holds dirty lines");
            self.package_counts[package].memory_stores += 1;
            return match kind {
                Kind::Latency => self.memory.latency_cycles,
                Kind::Stream => self.memory.stream_store_cycles,
            };
        }
        let row_change = if elsewhere == Elsewhere::Dirty {
            self.package_counts[package].transfers += 1;
            0
        } else {
            self.package_counts[package].memory_reads += 1;
            self.row_change(line, kind)
        };
        let flags = match (write, elsewhere) {
            (true, _) => DIRTY | UNIQUE,
            (false, Elsewhere::Absent) => UNIQUE,
            (false, _) => 0,
        };
        row_change
            + self.fetch_cost(elsewhere, write, kind)
            + self.fill(package, line, from, self.depth, flags, kind)
    }

    /// Memory serves `line`: what a stream pays when it comes to another row. A dependent access waits for as long every time,
    /// so its latency has it already.
    #[inline]
    fn row_change(&mut self, line: u64, kind: Kind) -> u32 {
        let follows = line == self.last_memory_line.wrapping_add(1);
        self.last_memory_line = line;
        if follows || kind == Kind::Latency { 0 } else { self.memory.row_change_cycles }
    }

    fn fetch_cost(&self, elsewhere: Elsewhere, write: bool, kind: Kind) -> u32 {
        let memory = &self.memory;
        match (kind, elsewhere, write) {
            (Kind::Latency, Elsewhere::Dirty, _) => memory.transfer_cycles,
            (Kind::Latency, _, _) => memory.latency_cycles,
            (Kind::Stream, Elsewhere::Dirty, _) => memory.stream_transfer_cycles,
            (Kind::Stream, _, false) => memory.stream_load_cycles,
            (Kind::Stream, _, true) => memory.stream_store_cycles,
        }
    }

    /// Puts a line that came from level `at` into the levels before it, down to `from`, which gets `flags`.
    fn fill(&mut self, package: usize, line: u64, from: usize, at: usize, flags: u32, kind: Kind) -> u32 {
        let mut cost = 0;
        for to in (from..at).rev() {
            if to > from && self.rules[to].exclusive {
                continue;
            }
            let flags = if to == from { flags } else { flags & UNIQUE };
            cost += self.put(package, to, Held { line, flags }, kind);
        }
        cost
    }

    /// Puts a line into one level, and what it displaces where that belongs.
    fn put(&mut self, package: usize, level: usize, incoming: Held, kind: Kind) -> u32 {
        let base = package * self.depth;
        let (mut level, mut incoming) = (level, incoming);
        loop {
            self.counts[base + level].fills += 1;
            let left = self.levels[base + level].insert(incoming.line, incoming.flags);
            if left == 0 {
                return 0;
            }
            let victim = self.levels[base + level].held(left, incoming.line);
            let dirty = victim.flags & DIRTY != 0;
            self.counts[base + level].evictions += 1;
            self.counts[base + level].writebacks += u64::from(dirty);
            level += 1;
            if level == self.depth {
                if !dirty {
                    return 0;
                }
                self.package_counts[package].memory_writebacks += 1;
                let row_change = self.row_change(victim.line, kind);
                return if kind == Kind::Stream { self.memory.writeback_cycles + row_change } else { 0 };
            }
            if !self.rules[level].exclusive {
                if !dirty {
                    return 0;
                }
                if let Some(entry) = self.levels[base + level].touch(victim.line) {
                    *entry |= DIRTY | UNIQUE;
                    return 0;
                }
            }
            incoming = victim;
        }
    }

    /// Takes the copies of a line that `package` wants to write away from the other packages.
    fn upgrade(&mut self, package: usize, line: u64, kind: Kind) -> u32 {
        let elsewhere = self.snoop(package, line, true);
        assert!(
            elsewhere != Elsewhere::Dirty,
            "line {line:#x} is dirty in a package while another holds a copy"
        );
        self.package_counts[package].upgrades += 1;
        match kind {
            Kind::Latency => self.memory.upgrade_cycles,
            Kind::Stream => self.memory.stream_upgrade_cycles,
        }
    }

    /// Asks all other packages for a line: for a store they lose it, for a load they keep clean copies.
    fn snoop(&mut self, package: usize, line: u64, write: bool) -> Elsewhere {
        let mut found = Elsewhere::Absent;
        for other in (0..self.packages).filter(|&other| other != package) {
            let state = if write { self.take_away(other, line) } else { self.share(other, line) };
            if state == Elsewhere::Dirty || found == Elsewhere::Absent {
                found = state;
            }
        }
        found
    }

    /// Takes a line out of all levels of `package`.
    fn take_away(&mut self, package: usize, line: u64) -> Elsewhere {
        let mut found = Elsewhere::Absent;
        for level in package * self.depth..(package + 1) * self.depth {
            if let Some(flags) = self.levels[level].remove(line) {
                self.counts[level].removals += 1;
                if flags & DIRTY != 0 {
                    found = Elsewhere::Dirty;
                } else if found == Elsewhere::Absent {
                    found = Elsewhere::Clean;
                }
            }
        }
        found
    }

    /// Makes all copies of a line in `package` clean and shared; memory gets what was dirty.
    fn share(&mut self, package: usize, line: u64) -> Elsewhere {
        let mut found = Elsewhere::Absent;
        for level in package * self.depth..(package + 1) * self.depth {
            if let Some(entry) = self.levels[level].peek(line) {
                if *entry & DIRTY != 0 {
                    found = Elsewhere::Dirty;
                } else if found == Elsewhere::Absent {
                    found = Elsewhere::Clean;
                }
                *entry &= !(DIRTY | UNIQUE);
            }
        }
        if found == Elsewhere::Dirty {
            self.package_counts[package].memory_writebacks += 1;
        }
        found
    }

    /// Asserts the conservation laws between the counts, and the rules of the protocol on the state.
    ///
    /// # Errors
    /// The first law that does not hold.
    pub fn check(&self) -> Result<(), String> {
        for package in 0..self.packages {
            self.check_counts(package)?;
        }
        self.instruction.iter().try_for_each(InstructionCache::check)?;
        for level in 0..self.levels.len() {
            let (package, at) = (level / self.depth, level % self.depth);
            if !self.levels[level].is_sound() {
                return Err(format!("package {package}, level {at}: a set is out of order"));
            }
            for held in self.levels[level].lines() {
                self.check_line(package, at, held)?;
            }
        }
        Ok(())
    }

    fn check_counts(&self, package: usize) -> Result<(), String> {
        let base = package * self.depth;
        let equal = |what: &str, at: usize, left: u64, right: u64| {
            if left == right {
                Ok(())
            } else {
                Err(format!("package {package}, level {at}: {what}: {left} is not {right}"))
            }
        };
        let fetched = self.instruction.get(package).map_or(0, |cache| cache.counts.misses);
        for at in 0..self.depth {
            let c = &self.counts[base + at];
            let asked = if at == 0 {
                self.package_counts[package].accesses
            } else {
                let above = &self.counts[base + at - 1];
                above.misses + above.write_throughs + if at == 1 { fetched } else { 0 }
            };
            equal("hits + misses = what came from above", at, c.accesses(), asked)?;
            let held = self.levels[base + at].len() as u64;
            equal("fills = evictions + removals + held", at, c.fills, c.evictions + c.removals + held)?;
        }
        let last = &self.counts[base + self.depth - 1];
        let p = &self.package_counts[package];
        let behind = p.memory_reads + p.transfers + p.memory_stores;
        let missed = last.misses + last.write_throughs + if self.depth == 1 { fetched } else { 0 };
        let what = "misses + write-throughs = reads, transfers and stores";
        equal(what, self.depth - 1, missed, behind)?;
        Ok(())
    }

    fn check_line(&self, package: usize, at: usize, Held { line, flags }: Held) -> Result<(), String> {
        let says = |what: &str| Err(format!("package {package}, level {at}, line {line:#x}: {what}"));
        if flags & DIRTY != 0 && (flags & UNIQUE == 0 || at < self.first_back) {
            return says("dirty where it must not be");
        }
        let holds = |level: usize| self.levels[level].holds(line);
        if self.rules[at].exclusive && holds(package * self.depth + at - 1) {
            return says("held by an exclusive level and the one above it");
        }
        if flags & UNIQUE != 0 {
            for other in (0..self.packages).filter(|&other| other != package) {
                if (0..self.depth).any(|at| holds(other * self.depth + at)) {
                    return says("called unique, but another package holds it");
                }
            }
        }
        Ok(())
    }
}

impl Rules {
    fn new(config: &CacheConfig) -> Rules {
        Rules {
            latency_cycles: config.latency_cycles.value as u32,
            stream_load_cycles: config.stream_load_cycles.value as u32,
            stream_store_cycles: config.stream_store_cycles.value as u32,
            exclusive: config.exclusive.value,
        }
    }
}
