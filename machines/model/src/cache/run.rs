//! Streams: consecutive lines of a page, taken level by level and not line by line.
//!
//! The lines of a run lie in one aligned block of as many lines as the smallest level has sets. So no two of them share
//! a set of any level, nor does one share a set with what another displaces, at any depth: a victim has the place in
//! its block that the line has for which it left. What happens to one line of a run therefore does not depend on the
//! others, and a level can look for all of them before the next one does. For the same reason a level can take a line
//! in as soon as it is known not to be there: what happens further down does not depend on it.
//!
//! Only memory sees lines come one after the other. Where that matters, what it serves is noted down by line and gone
//! through in the order of a stream.
//!
//! Where other packages may hold lines of the page, they are asked for all of a run before it, those too that the
//! package has itself: that changes nothing, as nobody else has newer ones of these, or any if they may be stored to.

use super::access::Kind;
use super::level::{DIRTY, SnoopMask, UNIQUE};
use super::memory::{Memory, Snoop};
use super::package::{MAX_LEVELS, Package, known_as};

/// The highest number of lines in a run: a bit each.
pub(super) const MAX_LINES: usize = u64::BITS as usize;

/// What is noted down in a run. It is kept to be used again: that saves making it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// By level and line, the entry that left for it, and a line of the set that it was in.
    left: [[(u32, u64); MAX_LINES]; MAX_LEVELS],
    /// The lines that memory was read for, a bit each.
    read: u64,
    /// By level, the lines that were found there, a bit each, and what each cost.
    found: [(u64, u32); MAX_LEVELS],
    /// The run stores.
    write: bool,
    /// By line, what was written back to memory for it: so many lines, in this order.
    backs: [(usize, [u64; MAX_LEVELS]); MAX_LINES],
}

impl Default for Run {
    fn default() -> Run {
        Run {
            left: [[(0, 0); MAX_LINES]; MAX_LEVELS],
            read: 0,
            found: [(0, 0); MAX_LEVELS],
            write: false,
            backs: [(0, [0; MAX_LEVELS]); MAX_LINES],
        }
    }
}

/// A bit for each of the first `count` lines.
pub(super) fn all_of(count: usize) -> u64 {
    u64::MAX >> (MAX_LINES - count)
}

impl Package {
    /// The most that a line of a run can cost.
    pub(super) fn max_cycles(&self, memory: &Memory) -> u64 {
        let hit = |write| self.banks.iter().map(move |bank| bank.hit_cost(write, Kind::Stream)).max();
        let hits = hit(true).max(hit(false)).unwrap_or(0);
        u64::from(hits) + memory.max_cycles(self.banks.len() as u64)
    }

    /// Another package wants lines of a run: see [`Level::give`](super::level::Level::give). No colours: these are for
    /// one package.
    pub(super) fn give(&mut self, line: u64, lines: u64, write: bool) -> SnoopMask {
        let mut had = SnoopMask::default();
        for bank in &mut self.banks[..self.here] {
            let SnoopMask { any, dirty } = bank.level.give(line, lines, write);
            bank.counts.removals += if write { u64::from(any.count_ones()) } else { 0 };
            had = SnoopMask { any: had.any | any, dirty: had.dirty | dirty };
        }
        self.counts.memory_writebacks += if write { 0 } else { u64::from(had.dirty.count_ones()) };
        had
    }

    /// Accesses `count` lines from `line` on, of which other packages had some. Gives what that costs, but for what a
    /// [`Dram`](super::dram::Dram) makes of it: see [`Memory::serve`].
    pub(super) fn run(
        &mut self,
        memory: &Memory,
        run: &mut Run,
        (line, skew): (u64, u64),
        count: usize,
        (write, elsewhere): (bool, SnoopMask),
    ) -> u64 {
        let lines = all_of(count);
        self.counts.accesses += count as u64;
        (run.read, run.write, run.found) = (0, write, [(0, 0); MAX_LEVELS]);
        let from = if write { self.first_back } else { 0 };
        if from > 0 {
            self.run_through((line, skew), lines, from);
            if from == self.banks.len() {
                run.backs[..count].iter_mut().for_each(|backs| backs.0 = 0);
                self.counts.memory_stores += count as u64;
                return u64::from(memory.store_cost(Kind::Stream)) * count as u64;
            }
        }
        // A store owns the line, and so does a load, unless another package has it; further down it is not newer than
        // memory.
        let first_flags = if write { DIRTY | UNIQUE } else { UNIQUE };
        let (mut wanted, mut cycles, mut leaving) = (lines, 0, [(0, 0); MAX_LEVELS]);
        for (at, leaving) in leaving.iter_mut().enumerate().take(self.banks.len()).skip(from) {
            if wanted == 0 {
                break;
            }
            let (hits, shared) = if at > from && self.banks[at].exclusive {
                self.run_out_of(at, from, line, wanted)
            } else {
                // What other packages have as well is taken in as such. Where it is here, it is so known already.
                let with_others = if write { 0 } else { elsewhere.any };
                let flags = if at == from { first_flags } else { UNIQUE };
                let stored = if at == from && write { DIRTY } else { 0 };
                let bank = &mut self.banks[at];
                let known = known_as(line, skew, at);
                let done = bank.level.touch_or_insert(
                    known,
                    (wanted, with_others),
                    (flags, stored),
                    &mut run.left[at],
                );
                bank.counts.fills += u64::from((wanted & !done.hits).count_ones());
                bank.counts.evictions += u64::from(done.left.count_ones());
                *leaving = (if bank.gives_all { done.left } else { done.left_dirty }, done.left_dirty);
                let all_unique = done.flags & UNIQUE != 0;
                (done.hits, if all_unique { 0 } else { bank.level.shared(known, done.hits) })
            };
            if shared != 0 && write {
                assert!(
                    shared & elsewhere.dirty == 0,
                    "a line is dirty in a package while another holds a copy"
                );
                let count = u64::from(shared.count_ones());
                self.counts.upgrades += count;
                cycles += count * u64::from(memory.upgrade_cost(Kind::Stream));
                if at == from {
                    self.banks[at].level.flag(line, shared, (UNIQUE, 0));
                }
            }
            // It is held by other packages, too: the levels that have just taken it in do not have it for their own.
            let to_tell = shared & !elsewhere.any;
            if to_tell != 0 && !write {
                self.banks[from..at]
                    .iter_mut()
                    .for_each(|bank| _ = bank.level.flag(line, to_tell, (0, UNIQUE)));
            }
            let bank = &mut self.banks[at];
            let found = u64::from(hits.count_ones());
            bank.counts.hits += found;
            wanted &= !hits;
            bank.counts.misses += u64::from(wanted.count_ones());
            cycles += found * u64::from(bank.hit_cost(write, Kind::Stream));
            run.found[at] = (hits, bank.hit_cost(write, Kind::Stream));
        }
        let transferred = wanted & elsewhere.dirty;
        run.read = wanted & !transferred;
        for (lines, from) in [(run.read, Snoop::Absent), (transferred, Snoop::Dirty)] {
            let count = u64::from(lines.count_ones());
            let counted = match from {
                Snoop::Dirty => &mut self.counts.transfers,
                _ => &mut self.counts.memory_reads,
            };
            *counted += count;
            cycles += count * u64::from(memory.fetch_cost(from, write, Kind::Stream));
        }
        cycles + self.run_settles(run, count, &leaving) * memory.write_back_cost()
    }

    /// Stores go through the levels before `from`, which take nothing in.
    fn run_through(&mut self, (line, skew): (u64, u64), lines: u64, from: usize) {
        for (at, bank) in self.banks[..from].iter_mut().enumerate() {
            let known = known_as(line, skew, at);
            let hits =
                in_bits(lines).filter(|&i| bank.level.touch(known + i as u64).is_some()).count() as u64;
            bank.counts.hits += hits;
            bank.counts.write_throughs += hits;
            bank.counts.misses += u64::from(lines.count_ones()) - hits;
        }
    }

    /// Takes those of the `wanted` lines that it has out of an exclusive level; level `from` has them now, as new as
    /// they were. Gives which, and which of them other packages may hold, too.
    fn run_out_of(&mut self, at: usize, from: usize, line: u64, wanted: u64) -> (u64, u64) {
        let (SnoopMask { any: hits, dirty }, shared) = self.banks[at].level.take_out(line, wanted);
        let newer = self.banks[from].level.flag(line, dirty, (DIRTY, 0));
        assert_eq!(newer, dirty, "level {from} has taken them in");
        self.banks[at].counts.removals += u64::from(hits.count_ones());
        (hits, shared)
    }

    /// What left the levels goes on, the deepest level's first. `leaving` says for each what has somewhere to go, and
    /// what of it is dirty. Gives how many lines were written back to memory.
    fn run_settles(&mut self, run: &mut Run, count: usize, leaving: &[(u64, u64); MAX_LEVELS]) -> u64 {
        run.backs[..count].iter_mut().for_each(|backs| backs.0 = 0);
        let mut written = 0;
        for (from, &(mut victims, mut dirty)) in leaving.iter().enumerate().rev() {
            let left = &mut run.left[from];
            let mut at = from;
            while victims != 0 {
                let above = &mut self.banks[at];
                above.counts.writebacks += u64::from(dirty.count_ones());
                let set_bits = above.level.set_bits();
                at += 1;
                let Some(bank) = self.banks.get_mut(at) else {
                    let above = &self.banks[at - 1];
                    for i in in_bits(dirty) {
                        let (noted, backs) = &mut run.backs[i];
                        backs[*noted] =
                            self.colours.real(above.level.held(left[i].0, left[i].1).line, at - 1);
                        *noted += 1;
                    }
                    written += u64::from(dirty.count_ones());
                    break;
                };
                if !bank.exclusive {
                    victims = dirty;
                }
                let done = bank.level.take_back(set_bits, victims, left, bank.exclusive);
                bank.counts.fills += u64::from((victims & !done.hits).count_ones());
                bank.counts.evictions += u64::from(done.left.count_ones());
                (victims, dirty) = (done.left, done.left_dirty);
            }
        }
        self.counts.memory_writebacks += written;
        written
    }
}

impl Memory {
    /// Serves what runs of `count` lines, that go side by side from these lines on, have read and written back. Gives
    /// how long the CPU waits where that hangs on the order of it.
    #[inline]
    pub(super) fn serve(&mut self, runs: &[(&Run, u64)], count: usize) -> u64 {
        let Some(dram) = self.dram() else { return 0 };
        let mut cycles = 0;
        for i in 0..count {
            for (run, line) in runs {
                if run.read >> i & 1 != 0 {
                    cycles += u64::from(dram.miss(line + i as u64, run.write));
                } else if let Some((_, each)) = run.found.iter().find(|(found, _)| found >> i & 1 != 0) {
                    dram.passes(*each);
                }
                let (noted, backs) = &run.backs[i];
                cycles += backs[..*noted]
                    .iter()
                    .map(|&back| u64::from(dram.write_back(back, Kind::Stream)))
                    .sum::<u64>();
            }
        }
        cycles
    }
}

/// The numbers of the bits that are set.
#[inline(always)]
pub(super) fn in_bits(bits: u64) -> impl Iterator<Item = usize> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let at = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (at < MAX_LINES).then_some(at)
    })
}
