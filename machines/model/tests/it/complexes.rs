//! Packages that share the last level of their caches.

use crate::cache::{LINE, assumed, level, load, machine, store};
use pageferry_model::cache::{Caches, Kind};
use pageferry_model::config::WritePolicy::{Back, Through};
use pageferry_model::config::{CacheConfig, ComplexConfig, MachineConfig};
use proptest::prelude::*;

/// So many packages, so many of which share the last level. Hits cost 1, 2 and 3 cycles, memory 100, another complex
/// 10,000 and 100,000; each cost inside of a complex is a number of its own.
fn shared(packages: u64, size: u64, levels: Vec<CacheConfig>) -> MachineConfig {
    let mut machine = machine(packages, levels);
    machine.complex = Some(ComplexConfig {
        packages: assumed(size),
        transfer_cycles: assumed(20),
        stream_transfer_cycles: assumed(40),
        upgrade_cycles: assumed(30),
        stream_upgrade_cycles: assumed(60),
    });
    machine
}

fn three() -> Vec<CacheConfig> {
    vec![level(2, 2, Back, false), level(2, 4, Back, false), level(4, 8, Back, false)]
}

#[test]
fn what_one_package_read_another_finds_in_the_shared_level() {
    let mut c = Caches::new(&shared(4, 2, three()));
    assert_eq!(load(&mut c, 0, 5), 100, "from memory");
    assert_eq!(load(&mut c, 1, 5), 3, "from the shared level");
    assert_eq!(load(&mut c, 1, 5), 1, "and now from the own one");
    assert_eq!(load(&mut c, 2, 5), 100, "not for another complex");
    assert_eq!(load(&mut c, 3, 5), 3, "which has its own");
    assert_eq!(c.stats().memory_reads(), 2);
}

#[test]
fn what_one_package_wrote_comes_from_it_to_another_of_the_complex() {
    let mut c = Caches::new(&shared(4, 2, three()));
    store(&mut c, 0, 5);
    assert_eq!(load(&mut c, 1, 5), 20, "from the package that wrote it");
    assert_eq!(load(&mut c, 0, 5), 1, "which keeps a copy");
    assert_eq!(store(&mut c, 0, 5), 1 + 30, "that it may not write without asking");
    assert_eq!(store(&mut c, 1, 5), 20);
    assert_eq!(load(&mut c, 2, 5), 10_000, "to another complex it is as far as ever");
    assert_eq!(c.stats().memory_reads(), 1, "memory was not asked again");
}

#[test]
fn a_line_that_only_the_complex_has_is_written_without_asking_the_others() {
    let mut c = Caches::new(&shared(4, 2, three()));
    load(&mut c, 0, 5);
    load(&mut c, 1, 5);
    assert_eq!(store(&mut c, 1, 5), 1 + 30, "the other one of the complex");
    let mut c = Caches::new(&shared(4, 2, three()));
    load(&mut c, 0, 5);
    load(&mut c, 1, 5);
    load(&mut c, 2, 5);
    assert_eq!(store(&mut c, 1, 5), 1 + 100_000, "all of them");
    assert_eq!(load(&mut c, 0, 5), 20);
}

#[test]
fn what_a_package_evicts_is_in_the_shared_level_for_all_of_the_complex() {
    let levels = vec![level(1, 1, Back, false), level(1, 1, Back, false), level(1, 8, Back, false)];
    let mut c = Caches::new(&shared(2, 2, levels));
    store(&mut c, 0, 0);
    store(&mut c, 0, 1);
    store(&mut c, 0, 2);
    assert_eq!(load(&mut c, 1, 0), 3, "it was written back that far");
    assert_eq!(c.stats().memory_writes(), 0);
    assert_eq!(c.stats().packages[1].near_transfers, 0);
}

#[test]
fn complexes_that_no_machine_has_are_refused() {
    let refused = |machine: MachineConfig| machine.validate().expect_err("no machine is so").to_string();
    let own = vec![level(2, 2, Through, false), level(2, 4, Back, false)];
    assert!(refused(shared(2, 2, own)).contains("complex.packages"));
    let exclusive = vec![level(2, 2, Back, false), level(2, 4, Back, true)];
    assert!(refused(shared(2, 2, exclusive)).contains("complex.packages"));
    assert!(shared(2, 65, three()).validate().is_err());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access { package: usize, line: u64, write: bool, kind: Kind },
    Stream { package: usize, line: u64, lines: usize, write: bool },
    Copy { package: usize, from: u64, to: u64, lines: usize },
    Flush { line: u64 },
}

impl Step {
    /// Makes the step, a stream line by line or at once; its cost.
    fn make(self, caches: &mut Caches, at_once: bool) -> u64 {
        match self {
            Step::Access { package, line, write, kind } => {
                u64::from(caches.access(package, line * LINE, write, kind))
            }
            Step::Stream { package, line, lines, write } => {
                let page = caches.enter(package, line * LINE);
                let lines = lines.min(64 - (line % 64) as usize);
                if at_once {
                    let max = caches.at_most(page, lines);
                    let cost = caches.stream_in(page, line * LINE, lines, write);
                    assert!(cost <= max, "{cost} is more than {max}");
                    return cost;
                }
                let one = |i| caches.access_in(page, (line + i as u64) * LINE, write, Kind::Stream);
                (0..lines).map(one).map(u64::from).sum()
            }
            Step::Copy { package, from, to, lines } => {
                let source = caches.enter(package, from * LINE);
                let target = caches.enter(package, to * LINE);
                let lines = lines.min(64 - (from % 64).max(to % 64) as usize);
                if at_once {
                    return caches.copy_in((source, from * LINE), (target, to * LINE), lines);
                }
                let one = |i: usize| {
                    let load = caches.access_in(source, (from + i as u64) * LINE, false, Kind::Stream);
                    let store = caches.access_in(target, (to + i as u64) * LINE, true, Kind::Stream);
                    u64::from(load) + u64::from(store)
                };
                (0..lines).map(one).sum()
            }
            Step::Flush { line } => {
                caches.flush_line(line * LINE);
                0
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![Just(Kind::Latency), Just(Kind::Stream)];
    // Five pages: some come to be used by one package alone, by one complex, and by all.
    let line = || (0..40u64).prop_map(|i| i / 8 * 64 + i % 8);
    let package = || prop_oneof![3 => 0..2usize, 2 => 2..6usize];
    let access = (package(), line(), any::<bool>(), kind)
        .prop_map(|(package, line, write, kind)| Step::Access { package, line, write, kind });
    let stream = (package(), line(), 1..12usize, any::<bool>())
        .prop_map(|(package, line, lines, write)| Step::Stream { package, line, lines, write });
    let copy = (package(), line(), line(), 1..12usize).prop_map(|(package, from, to, lines)| Step::Copy {
        package,
        from,
        to,
        lines,
    });
    let flush = line().prop_map(|line| Step::Flush { line });
    proptest::collection::vec(prop_oneof![30 => access, 5 => stream, 5 => copy, 1 => flush], 1..250)
}

fn shapes() -> impl Strategy<Value = Vec<CacheConfig>> {
    prop_oneof![
        Just(three()),
        Just(vec![level(2, 2, Back, false), level(4, 4, Back, false)]),
        Just(vec![level(2, 1, Back, false), level(1, 1, Back, false), level(2, 1, Back, false)]),
        Just(vec![level(2, 2, Through, false), level(2, 2, Back, false), level(4, 4, Back, false)]),
        Just(vec![level(1, 2, Back, false), level(2, 2, Back, true), level(1, 16, Back, false)]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn complexes_keep_the_laws_and_streams_do_what_their_lines_do(
        levels in shapes(), size in 1..5u64, steps in steps(),
    ) {
        let config = shared(6, size, levels);
        let (mut lines, mut runs) = (Caches::new(&config), Caches::new(&config));
        for (i, &step) in steps.iter().enumerate() {
            prop_assert_eq!(step.make(&mut lines, false), step.make(&mut runs, true), "step {}: {:?}", i, step);
            prop_assert_eq!(runs.check(), Ok(()), "step {}: {:?}", i, step);
        }
        prop_assert_eq!(lines.stats(), runs.stats());
    }

    #[test]
    fn a_complex_of_one_package_is_a_package(levels in shapes(), steps in steps()) {
        let (mut own, mut complexes) =
            (Caches::new(&machine(6, levels.clone())), Caches::new(&shared(6, 1, levels)));
        for (i, &step) in steps.iter().enumerate() {
            prop_assert_eq!(step.make(&mut own, true), step.make(&mut complexes, true), "step {}: {:?}", i, step);
        }
        prop_assert_eq!(own.stats(), complexes.stats());
    }
}
