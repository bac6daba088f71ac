//! The cache hierarchies: single rules by hand, and everything at once against a naive model.

use pageferry_model::Sourced;
use pageferry_model::cache::{Caches, Kind};
use pageferry_model::config::{CacheConfig, DramConfig, MachineConfig, WritePolicy};
use proptest::prelude::*;

pub(crate) const LINE: u64 = 64;

pub(crate) fn assumed<T>(value: T) -> Sourced<T> {
    Sourced::assumed(value, "for the test")
}

pub(crate) fn level(sets: u64, ways: u64, write_policy: WritePolicy, exclusive: bool) -> CacheConfig {
    CacheConfig {
        name: String::new(),
        size_bytes: assumed(sets * ways * LINE),
        ways: assumed(ways),
        line_bytes: assumed(LINE),
        latency_cycles: assumed(0),
        stream_load_cycles: assumed(0),
        stream_store_cycles: assumed(0),
        write_policy: assumed(write_policy),
        exclusive: assumed(exclusive),
        virtual_index: None,
        purge_line_cycles: None,
    }
}

/// A machine in which every cost is a power of ten of its own, so that a sum tells its parts.
pub(crate) fn machine(packages: u64, levels: Vec<CacheConfig>) -> MachineConfig {
    let mut machine = MachineConfig::named("xeon-up").expect("it is built in");
    machine.cpu.packages = assumed(packages);
    machine.cache = levels;
    for (i, level) in machine.cache.iter_mut().enumerate() {
        level.name = format!("L{}", i + 1);
        level.latency_cycles = assumed(1 + i as u64);
        level.stream_load_cycles = assumed(10 * (1 + i as u64));
        level.stream_store_cycles = assumed(50 + 10 * (1 + i as u64));
    }
    machine.memory.latency_cycles = Some(assumed(100));
    machine.memory.stream_load_cycles = Some(assumed(300));
    machine.memory.stream_store_cycles = Some(assumed(500));
    machine.memory.writeback_cycles = Some(assumed(1_000));
    machine.memory.transfer_cycles = assumed(10_000);
    machine.memory.stream_transfer_cycles = assumed(20_000);
    machine.memory.upgrade_cycles = assumed(100_000);
    machine.memory.stream_upgrade_cycles = assumed(200_000);
    machine
}

fn caches(packages: u64, levels: Vec<CacheConfig>) -> Caches {
    Caches::new(&machine(packages, levels))
}

use WritePolicy::{Back, Through};

pub(crate) fn load(caches: &mut Caches, package: usize, line: u64) -> u32 {
    let cost = caches.access(package, line * LINE + 8, false, Kind::Latency);
    caches.check().expect("the laws hold");
    cost
}

pub(crate) fn store(caches: &mut Caches, package: usize, line: u64) -> u32 {
    let cost = caches.access(package, line * LINE + 60, true, Kind::Latency);
    caches.check().expect("the laws hold");
    cost
}

#[test]
fn a_line_is_read_from_memory_once() {
    let mut c = caches(1, vec![level(2, 2, Back, false), level(4, 4, Back, false)]);
    assert_eq!(c.line_bytes(), 64);
    assert_eq!(load(&mut c, 0, 5), 100);
    assert_eq!(load(&mut c, 0, 5), 1);
    assert_eq!(c.stats().memory_reads(), 1);
    assert_eq!(c.access(0, 5 * LINE, false, Kind::Stream), 10);
    assert_eq!(c.access(0, 5 * LINE, true, Kind::Stream), 60);
    assert_eq!(c.access(0, 6 * LINE, false, Kind::Stream), 300);
    assert_eq!(c.access(0, 7 * LINE, true, Kind::Stream), 500);
}

#[test]
fn lines_of_one_set_displace_each_other_and_no_others() {
    // Two sets of two ways: even lines compete, odd lines do not care.
    let mut c = caches(1, vec![level(2, 2, Back, false)]);
    for line in [0, 2, 1] {
        assert_eq!(load(&mut c, 0, line), 100);
    }
    assert_eq!(load(&mut c, 0, 0), 1, "0 is now younger than 2");
    assert_eq!(load(&mut c, 0, 4), 100);
    assert_eq!(load(&mut c, 0, 0), 1, "the younger one stayed");
    assert_eq!(load(&mut c, 0, 1), 1, "the other set was left alone");
    assert_eq!(load(&mut c, 0, 2), 100, "the older one left");
    assert_eq!(c.stats().levels[0][0].evictions, 2);
}

#[test]
fn only_dirty_victims_are_written_back() {
    let mut c = caches(1, vec![level(1, 2, Back, false)]);
    store(&mut c, 0, 0);
    load(&mut c, 0, 1);
    assert_eq!(c.stats().memory_writes(), 0);
    // A stream pays for the bandwidth of the write-back, a single access does not wait for it.
    assert_eq!(c.access(0, 2 * LINE, false, Kind::Stream), 1_300);
    assert_eq!(c.access(0, 3 * LINE, false, Kind::Stream), 300);
    store(&mut c, 0, 3);
    load(&mut c, 0, 4);
    assert_eq!(load(&mut c, 0, 5), 100);
    let stats = c.stats();
    assert_eq!(stats.memory_writes(), 2);
    assert_eq!(stats.levels[0][0].writebacks, 2);
    assert_eq!(stats.levels[0][0].evictions, 4);
}

#[test]
fn a_dirty_victim_of_the_first_level_is_kept_by_the_second() {
    let mut c = caches(1, vec![level(1, 1, Back, false), level(1, 4, Back, false)]);
    store(&mut c, 0, 0);
    load(&mut c, 0, 1);
    assert_eq!(c.stats().memory_writes(), 0);
    assert_eq!(load(&mut c, 0, 0), 2);
    for line in 2..6 {
        load(&mut c, 0, line);
    }
    assert_eq!(c.stats().memory_writes(), 1, "it was still dirty when it left the second level");
}

#[test]
fn a_write_through_level_takes_no_line_in_for_a_store() {
    let mut c = caches(1, vec![level(1, 2, Through, false), level(1, 4, Back, false)]);
    assert_eq!(store(&mut c, 0, 0), 100);
    assert_eq!(load(&mut c, 0, 0), 2, "only the second level has it");
    assert_eq!(load(&mut c, 0, 0), 1);
    assert_eq!(store(&mut c, 0, 0), 1, "the store is buffered behind the first level");
    assert_eq!(
        c.access(0, 0, true, Kind::Stream),
        70,
        "a stream of stores runs at the speed of the second level"
    );
    let stats = c.stats();
    assert_eq!(stats.levels[0][0].write_throughs, 2);
    assert_eq!(stats.levels[0][1].accesses(), 4);
    assert_eq!(stats.memory_writes(), 0);
}

#[test]
fn without_a_write_back_level_stores_go_to_memory() {
    let mut c = caches(2, vec![level(1, 2, Through, false)]);
    load(&mut c, 0, 0);
    load(&mut c, 1, 0);
    assert_eq!(store(&mut c, 0, 0), 100);
    assert_eq!(c.access(0, 0, true, Kind::Stream), 500);
    assert_eq!(c.stats().memory_writes(), 2);
    assert_eq!(load(&mut c, 0, 0), 1);
    assert_eq!(load(&mut c, 1, 0), 100, "the other package lost its copy");
}

#[test]
fn an_exclusive_level_holds_only_victims() {
    let mut c = caches(1, vec![level(1, 1, Back, false), level(1, 2, Back, true)]);
    store(&mut c, 0, 0);
    assert_eq!(c.stats().levels[0][1].fills, 0);
    load(&mut c, 0, 1);
    load(&mut c, 0, 2);
    assert_eq!(load(&mut c, 0, 0), 2, "three lines fit in one and two");
    assert_eq!(load(&mut c, 0, 1), 2);
    assert_eq!(load(&mut c, 0, 2), 2);
    assert_eq!(c.stats().memory_writes(), 0);
    for line in 3..6 {
        load(&mut c, 0, line);
    }
    assert_eq!(c.stats().memory_writes(), 1, "the line stayed dirty on its way up and down");
}

#[test]
fn a_line_written_in_one_package_and_read_in_another_is_transferred() {
    for levels in [
        vec![level(1, 2, Through, false), level(1, 4, Back, false)],
        vec![level(1, 2, Back, false), level(1, 4, Back, false)],
        vec![level(1, 2, Back, false), level(1, 4, Back, true)],
    ] {
        let through = levels[0].write_policy.value == Through;
        let mut c = caches(2, levels);
        store(&mut c, 0, 0);
        assert_eq!(load(&mut c, 1, 0), 10_000);
        assert_eq!((c.stats().transfers(), c.stats().memory_writes()), (1, 1));
        assert_eq!(load(&mut c, 0, 0), if through { 2 } else { 1 }, "the writer keeps a clean copy");
        // Both have it now: a store must take the other's copy away, and then owns the line.
        assert_eq!(store(&mut c, 1, 0), 100_001);
        assert_eq!(store(&mut c, 1, 0), 1);
        assert_eq!(c.access(0, 0, true, Kind::Stream), 20_000, "the store moves the dirty line");
        let stats = c.stats();
        assert_eq!((stats.packages[1].upgrades, stats.transfers(), stats.memory_writes()), (1, 2, 1));
    }
}

#[test]
fn a_line_read_by_all_is_clean_and_comes_from_memory() {
    let mut c = caches(3, vec![level(1, 2, Back, false)]);
    for package in 0..3 {
        assert_eq!(load(&mut c, package, 0), 100);
    }
    assert_eq!(c.access(2, 0, true, Kind::Stream), 200_060);
    assert_eq!(load(&mut c, 0, 0), 10_000);
    assert_eq!(load(&mut c, 1, 0), 100, "memory has it since the last transfer");
}

#[test]
fn a_line_alone_in_its_package_is_written_without_asking() {
    let mut c = caches(2, vec![level(1, 2, Back, false), level(1, 4, Back, false)]);
    load(&mut c, 0, 0);
    assert_eq!(store(&mut c, 0, 0), 1);
    assert_eq!(c.stats().packages[0].upgrades, 0);
}

#[test]
fn a_flushed_line_is_nowhere() {
    let mut c = caches(2, vec![level(1, 2, Back, false), level(1, 4, Back, false)]);
    store(&mut c, 0, 0);
    load(&mut c, 0, 1);
    load(&mut c, 1, 1);
    c.flush_line(5);
    c.flush_line(LINE);
    c.check().expect("the laws hold");
    assert_eq!(c.stats().memory_writes(), 1, "one of the two was dirty");
    assert_eq!((load(&mut c, 0, 0), load(&mut c, 0, 1), load(&mut c, 1, 1)), (100, 100, 100));
}

#[test]
#[should_panic(expected = "no package 1")]
fn a_package_that_is_not_there_is_refused() {
    caches(1, vec![level(1, 2, Back, false)]).access(1, 0, false, Kind::Latency);
}

#[test]
#[should_panic(expected = "beyond what the caches can tag")]
fn an_address_that_has_no_tag_is_not_mistaken_for_another() {
    caches(1, vec![level(1, 2, Back, false)]).access(0, LINE << 29, false, Kind::Latency);
}

/// One copy of a line somewhere.
#[derive(Clone, Copy, Debug)]
struct Copy {
    package: usize,
    level: usize,
    line: u64,
    dirty: bool,
    unique: bool,
    used: u64,
}

/// The rules once more, as a list of copies with the times of their last use.
struct Naive {
    config: MachineConfig,
    copies: Vec<Copy>,
    now: u64,
    memory_reads: u64,
    memory_writes: u64,
    transfers: u64,
}

impl Naive {
    fn find(&self, package: usize, level: usize, line: u64) -> Option<usize> {
        self.copies.iter().position(|c| (c.package, c.level, c.line) == (package, level, line))
    }

    fn use_of(&mut self, package: usize, level: usize, line: u64) -> Option<usize> {
        let at = self.find(package, level, line)?;
        self.now += 1;
        self.copies[at].used = self.now;
        Some(at)
    }

    fn through(&self, level: usize) -> bool {
        self.config.cache[level].write_policy.value == Through
    }

    fn exclusive(&self, level: usize) -> bool {
        self.config.cache.get(level).is_some_and(|c| c.exclusive.value)
    }

    fn add(&mut self, package: usize, level: usize, line: u64, dirty: bool, unique: bool) -> u64 {
        self.now += 1;
        let config = &self.config.cache[level];
        let ways = config.ways.value as usize;
        let sets = config.size_bytes.value / LINE / config.ways.value;
        self.copies.push(Copy { package, level, line, dirty, unique, used: self.now });
        let same_set = |c: &Copy| c.package == package && c.level == level && c.line % sets == line % sets;
        if self.copies.iter().filter(|c| same_set(c)).count() <= ways {
            return 0;
        }
        let oldest = self.copies.iter().filter(|c| same_set(c)).min_by_key(|c| c.used).expect("some").line;
        let victim = self.copies.remove(self.find(package, level, oldest).expect("there"));
        if self.exclusive(level + 1) {
            return self.add(package, level + 1, victim.line, victim.dirty, victim.unique);
        }
        if !victim.dirty {
            return 0;
        }
        if level + 1 == self.config.cache.len() {
            self.memory_writes += 1;
            return self.config.write_back_cycles();
        }
        match self.use_of(package, level + 1, victim.line) {
            Some(at) => {
                self.copies[at].dirty = true;
                self.copies[at].unique = true;
                0
            }
            None => self.add(package, level + 1, victim.line, true, true),
        }
    }

    fn access(&mut self, package: usize, line: u64, write: bool, kind: Kind) -> u64 {
        let depth = self.config.cache.len();
        let stream = kind == Kind::Stream;
        let top = if write { (0..depth).find(|&l| !self.through(l)).unwrap_or(depth) } else { 0 };
        let mut seen = None;
        for level in 0..top {
            if self.use_of(package, level, line).is_some() {
                seen.get_or_insert(level);
            }
        }
        let found = (top..depth).find(|&level| self.find(package, level, line).is_some());
        let others = |c: &Copy| c.package != package && c.line == line;
        let dirty_elsewhere = self.copies.iter().any(|c| others(c) && c.dirty);
        let elsewhere = self.copies.iter().any(others);
        let memory = self.config.memory.clone();
        let told = |cycles: &Option<Sourced<u64>>| cycles.as_ref().expect("it is told").value;
        let mut cost = 0;
        let (mut dirty, mut unique);
        match found {
            Some(level) => {
                let at = self.use_of(package, level, line).expect("found");
                let config = &self.config.cache[level];
                cost += match (stream, write) {
                    (false, _) => self.config.cache[seen.unwrap_or(level)].latency_cycles.value,
                    (true, false) => config.stream_load_cycles.value,
                    (true, true) => config.stream_store_cycles.value,
                };
                unique = self.copies[at].unique;
                dirty = self.copies[at].dirty && self.exclusive(level);
                if write && !unique && self.config.cpu.packages.value > 1 {
                    cost +=
                        if stream { memory.stream_upgrade_cycles.value } else { memory.upgrade_cycles.value };
                    self.copies.retain(|c| !others(c));
                }
            }
            None if top == depth => {
                self.copies.retain(|c| !others(c));
                self.memory_writes += 1;
                let latency = self.config.memory_latency_cycles();
                return if stream { told(&memory.stream_store_cycles) } else { latency };
            }
            None => {
                unique = !elsewhere;
                dirty = false;
                if dirty_elsewhere {
                    self.transfers += 1;
                    cost += if stream {
                        memory.stream_transfer_cycles.value
                    } else {
                        memory.transfer_cycles.value
                    };
                } else {
                    self.memory_reads += 1;
                    cost += match (stream, write) {
                        (false, _) => self.config.memory_latency_cycles(),
                        (true, false) => told(&memory.stream_load_cycles),
                        (true, true) => told(&memory.stream_store_cycles),
                    };
                }
                if write {
                    self.copies.retain(|c| !others(c));
                } else {
                    self.memory_writes += u64::from(dirty_elsewhere);
                    for copy in self.copies.iter_mut().filter(|c| others(c)) {
                        copy.dirty = false;
                        copy.unique = false;
                    }
                }
            }
        }
        if write {
            (dirty, unique) = (true, true);
        }
        let from = found.unwrap_or(depth);
        if from == top {
            if write {
                let at = self.find(package, top, line).expect("found");
                (self.copies[at].dirty, self.copies[at].unique) = (true, true);
            }
            return cost;
        }
        if self.exclusive(from) {
            self.copies.remove(self.find(package, from, line).expect("found"));
        }
        let mut writeback = 0;
        for level in (top..from).rev() {
            if level > top && self.exclusive(level) {
                continue;
            }
            writeback += self.add(package, level, line, level == top && dirty, unique);
        }
        cost + if stream { writeback } else { 0 }
    }
}

fn shapes() -> impl Strategy<Value = Vec<CacheConfig>> {
    prop_oneof![
        Just(vec![level(2, 2, Back, false)]),
        Just(vec![level(2, 2, Through, false)]),
        Just(vec![level(2, 2, Through, false), level(2, 4, Back, false)]),
        Just(vec![level(1, 4, Through, false), level(4, 1, Through, false)]),
        Just(vec![level(2, 2, Back, false), level(2, 4, Back, false)]),
        Just(vec![level(4, 1, Back, false), level(1, 3, Back, false)]),
        Just(vec![level(2, 2, Back, false), level(1, 8, Back, true)]),
        Just(vec![level(1, 2, Back, false), level(2, 2, Back, true), level(1, 16, Back, false)]),
        Just(vec![level(2, 1, Through, false), level(2, 2, Back, false), level(4, 2, Back, false)]),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access { package: usize, line: u64, write: bool, kind: Kind },
    Flush { line: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![Just(Kind::Latency), Just(Kind::Stream)];
    // Three pages: of one that a package has never had a line of, it is not asked.
    let line = || (0..24u64).prop_map(|i| i / 8 * 64 + i % 8);
    let access = (0..3usize, line(), any::<bool>(), kind)
        .prop_map(|(package, line, write, kind)| Step::Access { package, line, write, kind });
    let step = prop_oneof![40 => access, 1 => line().prop_map(|line| Step::Flush { line })];
    proptest::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_caches_do_what_the_naive_model_does(levels in shapes(), packages in 1..4u64, steps in steps()) {
        let config = machine(packages, levels);
        let mut caches = Caches::new(&config);
        let mut naive =
            Naive { config, copies: Vec::new(), now: 0, memory_reads: 0, memory_writes: 0, transfers: 0 };
        for (i, &step) in steps.iter().enumerate() {
            match step {
                Step::Access { package, line, write, kind } => {
                    let package = package % packages as usize;
                    let cost = caches.access(package, line * LINE, write, kind);
                    let plain = naive.access(package, line, write, kind);
                    prop_assert_eq!(u64::from(cost), plain, "step {}: {:?}", i, step);
                }
                Step::Flush { line } => {
                    caches.flush_line(line * LINE);
                    let dirty_packages = (0..packages as usize)
                        .filter(|&p| naive.copies.iter().any(|c| c.package == p && c.line == line && c.dirty))
                        .count();
                    naive.memory_writes += dirty_packages as u64;
                    naive.copies.retain(|c| c.line != line);
                }
            }
            if let Err(law) = caches.check() {
                prop_assert!(false, "step {}: {:?}: {}", i, step, law);
            }
        }
        let stats = caches.stats();
        prop_assert_eq!(stats.memory_reads(), naive.memory_reads);
        prop_assert_eq!(stats.memory_writes(), naive.memory_writes);
        prop_assert_eq!(stats.transfers(), naive.transfers);
        let accesses = steps.iter().filter(|s| matches!(s, Step::Access { .. })).count() as u64;
        prop_assert_eq!(stats.levels.iter().map(|l| l[0].accesses()).sum::<u64>(), accesses);
    }
}

/// A machine of one level of two lines, 64 bytes each, beside memory that takes 20 cycles for a line of an open row and
/// 50 for another; a miss is 60 on its way.
fn with_dram(max_load_misses: u64, max_store_misses: u64, max_write_backs: u64) -> MachineConfig {
    let mut machine = machine(1, vec![level(1, 2, Back, false)]);
    let memory = &mut machine.memory;
    (memory.stream_load_cycles, memory.stream_store_cycles, memory.writeback_cycles) = (None, None, None);
    memory.latency_cycles = Some(assumed(94));
    memory.dram = Some(DramConfig {
        clock_cycles: assumed(2),
        beat_bytes: assumed(LINE / 4),
        beat_clocks: assumed(2),
        gap_clocks: assumed(2),
        row_close_clocks: assumed(10),
        row_open_clocks: assumed(5),
        max_load_misses: assumed(max_load_misses),
        max_store_misses: assumed(max_store_misses),
        max_write_backs: assumed(max_write_backs),
    });
    machine.validate().expect("a good machine");
    machine
}

#[test]
fn loads_that_overlap_take_what_memory_takes_and_stores_in_order_wait_for_all_of_it() {
    let mut c = Caches::new(&with_dram(4, 1, 2));
    let mut stream = |line: u64, write| c.access(0, line * LINE, write, Kind::Stream);
    // The way of 60 and the 50 of another row, by four; then what is left of it, and of the line before.
    assert_eq!([100, 101, 102].map(|line| stream(line, false)), [28, 22, 20]);
    assert_eq!(stream(103, true), 80, "its own way, which takes longer than the load before it");
    assert_eq!(stream(104, true), 80, "the line before it was waited for");
    // 103 goes back, which is another row; so is what comes after it. The way is over by then.
    assert_eq!(stream(105, true), 80);
    assert_eq!(stream(106, true), 110, "60 of the way, in which the 50 of 103 are hidden, and another row");
    c.check().expect("the laws hold");
}

#[test]
fn memory_that_is_busy_hides_the_way_of_a_store_and_is_waited_for_where_it_has_too_much_to_do() {
    let mut one = Caches::new(&with_dram(1, 1, 2));
    assert_eq!(one.access(0, 100 * LINE, false, Kind::Stream), 110, "the way and another row");
    assert_eq!(one.access(0, 101 * LINE, false, Kind::Stream), 80, "nothing overlaps");
    let mut c = Caches::new(&with_dram(4, 2, 1));
    for line in [10, 20] {
        c.access(0, line * LINE, true, Kind::Latency);
    }
    let mut stream = |line: u64, write| c.access(0, line * LINE, write, Kind::Stream);
    // Each misses another row and displaces a dirty line of another: 55 by two at a time, and 50 is what may wait.
    assert_eq!([30, 40, 50].map(|line| stream(line, true)), [55, 55 + 45, 55 + 45]);
    assert_eq!(stream(50, false), 10, "a hit, in which memory gets on with it");
    assert_eq!(c.access(0, 70 * LINE, false, Kind::Latency), 94, "a latency has all of it already");
    assert_eq!(c.access(0, 80 * LINE, false, Kind::Stream), 28 + 22, "and memory has nothing left to do");
    c.check().expect("the laws hold");
}

#[test]
fn what_streams_cost_is_told_once() {
    let fault = |change: &dyn Fn(&mut MachineConfig)| {
        let mut machine = with_dram(4, 1, 2);
        change(&mut machine);
        machine.validate().expect_err("a bad machine").key
    };
    let dram = |machine: &mut MachineConfig| machine.memory.dram.clone().expect("it has one");
    assert_eq!(fault(&|m| m.memory.dram = None), "memory.stream_load_cycles");
    assert_eq!(fault(&|m| m.memory.writeback_cycles = Some(assumed(1))), "memory.writeback_cycles");
    assert_eq!(fault(&|m| m.cache[0].write_policy.value = Through), "memory.dram");
    let with = |change: fn(&mut DramConfig)| {
        fault(&|m| {
            let mut parts = dram(m);
            change(&mut parts);
            m.memory.dram = Some(parts);
        })
    };
    assert_eq!(with(|d| d.beat_bytes = assumed(LINE + 1)), "memory.dram.beat_bytes");
    assert_eq!(with(|d| (d.beat_clocks, d.gap_clocks) = (assumed(0), assumed(0))), "memory.dram.beat_clocks");
    let slow = |d: &mut DramConfig| {
        (d.clock_cycles, d.beat_bytes, d.beat_clocks) = (assumed(1000), assumed(1), assumed(100))
    };
    assert_eq!(with(slow), "memory.dram");
}
