//! The levels of one package: where a line is found, and what makes room for it.

use super::access::Kind;
use super::colour::Colours;
use super::level::{DIRTY, Level, LineState, STATE, UNIQUE};
use super::memory::{Memory, Snoop};
use super::stats::{LevelStats, PackageStats};
use crate::config::{CacheConfig, MachineConfig, WritePolicy};

/// The highest number of levels.
pub(super) const MAX_LEVELS: usize = 4;

/// One level: its lines, its costs, and what happened in it.
#[derive(Clone, Debug)]
pub(super) struct Bank {
    pub(super) level: Level,
    pub(super) counts: LevelStats,
    pub(super) exclusive: bool,
    /// The next level is exclusive: it takes all that has to leave here, not only what is dirty.
    pub(super) gives_all: bool,
    latency_cycles: u32,
    stream_load_cycles: u32,
    stream_store_cycles: u32,
}

/// The caches of one package, from the CPU outwards.
///
/// The first level may know lines by other numbers than the rest: theirs plus a *skew* ([`super::colour`]).
#[derive(Clone, Debug)]
pub(super) struct Package {
    pub(super) banks: Box<[Bank]>,
    /// So many of them are here: all, but where packages share the last one and another has it at hand
    /// ([`super::complex`]).
    pub(super) here: usize,
    pub(super) colours: Colours,
    /// The first write-back level; their number where there is none.
    pub(super) first_back: usize,
    pub(super) counts: PackageStats,
}

/// Where a look-up ended.
pub(super) enum Lookup {
    /// The first level that takes such an access had the line, as it is wanted.
    Done { cycles: u32 },
    /// Level `at` had it with `flags`; `cycles` is what a hit there costs.
    At { at: usize, flags: u32, cycles: u32 },
    /// No level had it.
    Nowhere,
}

impl Bank {
    fn new(config: &CacheConfig, next: Option<&CacheConfig>) -> Bank {
        let sets = config.size_bytes.value / (config.ways.value * config.line_bytes.value);
        Bank::of(Level::new(sets as usize, config.ways.value as usize), config, next)
    }

    fn of(level: Level, config: &CacheConfig, next: Option<&CacheConfig>) -> Bank {
        Bank {
            level,
            counts: LevelStats::default(),
            exclusive: config.exclusive.value,
            gives_all: next.is_some_and(|next| next.exclusive.value),
            latency_cycles: config.latency_cycles.value as u32,
            stream_load_cycles: config.stream_load_cycles.value as u32,
            stream_store_cycles: config.stream_store_cycles.value as u32,
        }
    }

    /// What a hit costs here.
    #[inline(always)]
    pub(super) fn hit_cost(&self, write: bool, kind: Kind) -> u32 {
        match (kind, write) {
            (Kind::Latency, _) => self.latency_cycles,
            (Kind::Stream, false) => self.stream_load_cycles,
            (Kind::Stream, true) => self.stream_store_cycles,
        }
    }
}

impl Package {
    pub(super) fn new(machine: &MachineConfig) -> Package {
        let back = |c: &CacheConfig| c.write_policy.value == WritePolicy::Back;
        let levels = machine.cache.iter().enumerate();
        Package {
            colours: Colours::of(machine),
            here: machine.cache.len(),
            banks: levels.map(|(i, level)| Bank::new(level, machine.cache.get(i + 1))).collect(),
            first_back: machine.cache.iter().position(back).unwrap_or(machine.cache.len()),
            counts: PackageStats::default(),
        }
    }

    /// As this one, but for the last level, which another package has at hand.
    pub(super) fn without_last(&self, machine: &MachineConfig) -> Package {
        let mut package = self.clone();
        let (config, bank) = machine.cache.last().zip(package.banks.last_mut()).expect("there are caches");
        *bank = Bank::of(Level::new(1, 1), config, None);
        package.here -= 1;
        package
    }

    /// Looks for a line, level by level. A store goes through the write-through levels, which take nothing in.
    #[inline(always)]
    pub(super) fn find(&mut self, line: u64, skew: u64, write: bool, kind: Kind) -> Lookup {
        let mut waits_for = None;
        let from = if write { self.first_back } else { 0 };
        let mut known = line.wrapping_add(skew);
        if write {
            for bank in &mut self.banks[..from] {
                let found = bank.level.touch(known).is_some();
                known = line;
                if found {
                    bank.counts.hits += 1;
                    bank.counts.write_throughs += 1;
                    waits_for.get_or_insert(bank.latency_cycles);
                } else {
                    bank.counts.misses += 1;
                }
            }
        }
        for (i, bank) in self.banks[from..].iter_mut().enumerate() {
            let found = bank.level.touch(known);
            known = line;
            let Some(entry) = found else {
                bank.counts.misses += 1;
                continue;
            };
            let flags = *entry & STATE;
            bank.counts.hits += 1;
            let cycles = match waits_for {
                Some(latency) if kind == Kind::Latency => latency,
                _ => bank.hit_cost(write, kind),
            };
            if i == 0 && (!write || flags == DIRTY | UNIQUE) {
                return Lookup::Done { cycles };
            }
            return Lookup::At { at: from + i, flags, cycles };
        }
        Lookup::Nowhere
    }

    /// Gets a line that level `at` has with `flags` into the first level that takes such an access, with leave to write
    /// it if that is wanted. Gives the cost beyond that of the hit.
    pub(super) fn bring(
        &mut self,
        memory: &mut Memory,
        (line, skew): (u64, u64),
        (at, flags): (usize, u32),
        write: bool,
        kind: Kind,
    ) -> u32 {
        let from = if write { self.first_back } else { 0 };
        assert!(from <= at && at < self.banks.len(), "a line is brought towards the CPU");
        if from == at {
            let known = known_as(line, skew, at);
            let entry = self.banks[at].level.touch(known).expect("the line was found at this level");
            *entry |= DIRTY | UNIQUE;
            return 0;
        }
        let flags = if self.banks[at].exclusive {
            self.banks[at].level.remove(line);
            self.banks[at].counts.removals += 1;
            flags
        } else {
            // This level goes on knowing what is newer than memory; the copies above are clean until written.
            flags & UNIQUE
        };
        let flags = if write { DIRTY | UNIQUE } else { flags };
        self.fill(memory, (line, skew), (from, at), flags, kind)
    }

    /// Puts a line that came from level `at` into the levels before it, down to `from`, which gets `flags`.
    #[inline(always)]
    pub(super) fn fill(
        &mut self,
        memory: &mut Memory,
        (line, skew): (u64, u64),
        (from, at): (usize, usize),
        flags: u32,
        kind: Kind,
    ) -> u32 {
        let mut cycles = 0;
        for to in (from + 1..at).rev() {
            if !self.banks[to].exclusive {
                cycles += self.put(memory, to, LineState { line, flags: flags & UNIQUE }, kind);
            }
        }
        cycles + self.put(memory, from, LineState { line: known_as(line, skew, from), flags }, kind)
    }

    /// Puts a line, by the number by which that knows it, into one level, and what it displaces where that belongs.
    #[inline(always)]
    pub(super) fn put(&mut self, memory: &mut Memory, to: usize, incoming: LineState, kind: Kind) -> u32 {
        let bank = &mut self.banks[to];
        bank.counts.fills += 1;
        let left = bank.level.insert(incoming.line, incoming.flags);
        if left == 0 {
            return 0;
        }
        bank.counts.evictions += 1;
        // Most victims are clean, and of no interest to a level that is not exclusive.
        if left & DIRTY == 0 && !bank.gives_all {
            return 0;
        }
        let mut victim = bank.level.held(left, incoming.line);
        victim.line = self.colours.real(victim.line, to);
        self.displace(to, victim).map_or(0, |line| memory.write_back(line, kind))
    }

    /// A line had to leave level `from`. Gives the line that is written back to memory in consequence.
    pub(super) fn displace(&mut self, from: usize, victim: LineState) -> Option<u64> {
        let (mut from, mut victim) = (from, victim);
        loop {
            let dirty = victim.flags & DIRTY != 0;
            self.banks[from].counts.writebacks += u64::from(dirty);
            from += 1;
            let Some(bank) = self.banks.get_mut(from) else {
                self.counts.memory_writebacks += u64::from(dirty);
                return dirty.then_some(victim.line);
            };
            if !bank.exclusive {
                if !dirty {
                    return None;
                }
                if let Some(entry) = bank.level.touch(victim.line) {
                    *entry |= DIRTY | UNIQUE;
                    return None;
                }
            }
            bank.counts.fills += 1;
            let left = bank.level.insert(victim.line, victim.flags);
            if left == 0 {
                return None;
            }
            bank.counts.evictions += 1;
            victim = bank.level.held(left, victim.line);
        }
    }

    /// Takes a line out of all levels.
    pub(super) fn take_away(&mut self, line: u64) -> Snoop {
        let mut found = Snoop::Absent;
        let own = self.colours.own_skew(line);
        for (at, bank) in self.banks[..self.here].iter_mut().enumerate() {
            if let Some(flags) = bank.level.remove(known_as(line, own, at)) {
                bank.counts.removals += 1;
                found = worse(found, flags);
            }
        }
        found
    }

    /// Takes a line out of the first level that knows it by another number.
    pub(super) fn take_alias(&mut self, line: u64, skew: u64) -> Snoop {
        let bank = &mut self.banks[0];
        let Some(flags) = bank.level.remove(line.wrapping_add(skew)) else { return Snoop::Absent };
        bank.counts.removals += 1;
        worse(Snoop::Absent, flags)
    }

    /// Makes all copies of a line clean and shared; memory gets what was dirty.
    pub(super) fn share(&mut self, line: u64) -> Snoop {
        let found = self.share_near(line);
        self.counts.memory_writebacks += u64::from(found == Snoop::Dirty);
        found
    }

    /// As [`Package::share`], where a level gets what was dirty that this package shares with the one that asks.
    #[inline]
    pub(super) fn share_near(&mut self, line: u64) -> Snoop {
        let mut found = Snoop::Absent;
        for bank in &mut self.banks[..self.here] {
            if let Some(entry) = bank.level.peek(line) {
                found = worse(found, *entry);
                *entry &= !STATE;
            }
        }
        found
    }

    /// True when some level has the line that no other package shares, where packages share the last one.
    pub(super) fn holds_itself(&self, line: u64) -> bool {
        self.banks.split_last().is_some_and(|(_, own)| own.iter().any(|bank| bank.level.holds(line)))
    }

    /// True when some level has the line.
    pub(super) fn holds(&self, line: u64) -> bool {
        self.banks[..self.here].iter().any(|bank| bank.level.holds(line))
    }
}

/// The number by which level `at` knows a line.
#[inline(always)]
pub(super) fn known_as(line: u64, skew: u64, at: usize) -> u64 {
    if at == 0 { line.wrapping_add(skew) } else { line }
}

/// What a package has of a line, of which one more copy with `flags` was found.
fn worse(so_far: Snoop, flags: u32) -> Snoop {
    match so_far {
        _ if flags & DIRTY != 0 => Snoop::Dirty,
        Snoop::Absent => Snoop::Clean,
        found => found,
    }
}
