//! The mapping cache alone: exact counts of invalidations, victims, sharing, and what sleeps.

use crate::common::*;
use pageferry_ephemeral::*;
use pageferry_hal::*;
use pageferry_model::{RunError, Schedule};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const P: Flags = Flags::PRIVATE;
const S: Flags = Flags::empty();

fn expect(rig: &Rig, what: &str, counts: Counts, work: impl FnOnce()) {
    assert_eq!(rig.counted(work), counts, "{what}");
}

fn hit(local: u64, remote: u64, ipis: u64) -> Counts {
    Counts { local, remote, ipis, hits: 1, misses: 0 }
}
fn miss(local: u64, remote: u64, ipis: u64) -> Counts {
    Counts { local, remote, ipis, hits: 0, misses: 1 }
}

/// Buffers that were never used cost no invalidation, nor do hits on them, private or shared, on any CPU.
#[test]
fn cold_mappings_and_their_hits_cost_nothing() {
    for flags in [P, S] {
        run("xeon-mp-htt", Schedule::Timed, cache(8), move |rig| {
            rig.tag_frames(8);
            for n in 0..8 {
                expect(rig, "cold miss", miss(0, 0, 0), || rig.cycle(n, flags, true));
                expect(rig, "hit", hit(0, 0, 0), || rig.cycle(n, flags, true));
            }
            for cpu in 1..4 {
                expect(rig, "hit elsewhere", hit(0, 0, 0), || {
                    rig.on(cpu, move |rig| rig.cycle(3, flags, true));
                });
            }
        });
    }
}

/// A miss, by accessed bit of the old entry and flags (sf_buf paper, 4.2): on 1, 2 and 4 CPUs.
#[test]
fn a_miss_pays_for_an_accessed_entry_only() {
    for (name, others) in [("xeon-up", 0), ("xeon-htt", 1), ("xeon-mp-htt", 3)] {
        for (touched, flags) in [(true, P), (true, S), (false, P), (false, S)] {
            run(name, Schedule::Timed, cache(1), move |rig| {
                rig.tag_frames(2);
                rig.cycle(0, S, touched);
                let remote = u64::from(others > 0);
                let counts = match (touched, flags == P) {
                    (false, _) => miss(0, 0, 0),
                    (true, true) => miss(1, 0, 0),
                    (true, false) => miss(1, remote, others),
                };
                expect(rig, &format!("{name} {touched} {flags:?}"), counts, || rig.cycle(1, flags, true));
            });
        }
    }
}

/// After a private miss on CPU 0 only that one is in the mask: the others pay at their first hit, once.
#[test]
fn a_hit_pays_for_the_cpus_outside_the_mask() {
    run("xeon-mp-htt", Schedule::Timed, cache(1), |rig| {
        rig.tag_frames(2);
        rig.cycle(0, S, true);
        expect(rig, "private miss", miss(1, 0, 0), || rig.cycle(1, P, true));
        expect(rig, "private hit on the same CPU", hit(0, 0, 0), || rig.cycle(1, P, true));
        let on_2 = |rig: &Rig, flags| rig.on(2, move |rig| rig.cycle(1, flags, true));
        expect(rig, "first private hit on CPU 2", hit(1, 0, 0), || on_2(rig, P));
        expect(rig, "second private hit on CPU 2", hit(0, 0, 0), || on_2(rig, P));
        expect(rig, "shared hit: CPUs 1 and 3 are missing", hit(0, 1, 2), || on_2(rig, S));
        expect(rig, "now all are in", hit(0, 0, 0), || rig.cycle(1, S, true));
    });
}

/// A shared hit by a CPU outside the mask pays locally and remotely.
#[test]
fn a_shared_hit_from_outside_pays_twice() {
    run("xeon-mp-htt", Schedule::Timed, cache(1), |rig| {
        rig.tag_frames(2);
        rig.cycle(0, S, true);
        rig.cycle(1, P, true);
        expect(rig, "shared hit on CPU 3", hit(1, 1, 2), || rig.on(3, |rig| rig.cycle(1, S, true)));
    });
}

/// An untouched mapping in between leaves the mask as it was: what is still missing is asked for.
#[test]
fn the_safe_rule_keeps_the_mask_over_an_untouched_mapping() {
    for (flags, counts) in [(P, miss(0, 0, 0)), (S, miss(0, 1, 3))] {
        run("xeon-mp-htt", Schedule::Timed, cache(1), move |rig| {
            rig.tag_frames(3);
            rig.cycle(0, S, true);
            rig.cycle(1, P, false);
            expect(rig, "the mask is CPU 0", counts, || rig.cycle(2, flags, false));
        });
    }
    let on_1 = |flags| move |rig: &Rig| rig.on(1, move |rig| rig.cycle(2, flags, true));
    for (flags, counts) in [(P, miss(1, 0, 0)), (S, miss(1, 1, 2))] {
        run("xeon-mp-htt", Schedule::Timed, cache(1), move |rig| {
            rig.tag_frames(3);
            rig.cycle(0, S, true);
            rig.cycle(1, P, false);
            expect(rig, "CPU 1 is not in it", counts, || on_1(flags)(rig));
        });
    }
}

/// The case that the printed rule gets wrong, step by step: CPU 1 caches the address for frame 0; CPU 0 takes it over
/// privately for frame 1 and never touches it; CPU 1 takes it over for frame 2 and concludes that nothing can be
/// cached.
fn defect(rule: AccessedRule) -> (usize, [u8; 4]) {
    let seen = Rc::new(Cell::new([0; 4]));
    let result = seen.clone();
    let config = with_scheme(Scheme::Cache { entries: 1, rule });
    let (m, ended) = try_run("xeon-mp", Schedule::Timed, config, move |rig| {
        rig.tag_frames(3);
        rig.on(1, |rig| rig.cycle(0, P, true));
        rig.cycle(1, P, false);
        rig.on(1, move |rig| {
            let mapping = rig.alloc(2, P).unwrap();
            result.set(rig.read(&mapping));
            rig.free(mapping);
        });
    });
    ended.expect("the run itself ends");
    (m.stale_uses().len(), seen.get())
}

#[test]
fn the_printed_rule_reads_a_stale_page() {
    assert_eq!(defect(AccessedRule::AsPrinted), (1, Rig::tag(0)), "CPU 1 reads what frame 0 holds");
    assert_eq!(defect(AccessedRule::Safe), (0, Rig::tag(2)));
}

#[test]
fn without_the_private_option_all_mappings_are_shared() {
    let config = EphemeralConfig { honour_private: false, ..cache(1) };
    run("xeon-mp", Schedule::Timed, config, |rig| {
        rig.tag_frames(2);
        rig.cycle(0, P, true);
        expect(rig, "as if shared", miss(1, 1, 1), || rig.cycle(1, P, true));
    });
}

#[test]
fn one_frame_has_one_mapping() {
    run("xeon-up", Schedule::Timed, cache(4), |rig| {
        rig.tag_frames(2);
        let (a, b) = (rig.alloc(0, S).unwrap(), rig.alloc(0, P).unwrap());
        assert_eq!(rig.eph.kva(&a), rig.eph.kva(&b));
        assert_eq!((rig.eph.page(&a), rig.eph.page(&b)), (rig.frame(0), rig.frame(0)));
        let c = rig.alloc(1, S).unwrap();
        assert_ne!(rig.eph.kva(&a), rig.eph.kva(&c));
        assert_eq!(rig.eph.held(), 2);
        rig.free(a);
        assert_eq!(rig.eph.held(), 2, "b still holds the mapping");
        assert_eq!(rig.read(&b), Rig::tag(0));
        rig.free(b);
        rig.free(c);
        assert_eq!(rig.eph.held(), 0);
    });
}

/// Victims are the least recently freed; a hit takes its buffer out of the order, and its free puts it at the end.
#[test]
fn victims_in_order_of_release() {
    run("xeon-up", Schedule::Timed, cache(3), |rig| {
        rig.tag_frames(8);
        let address = |n| {
            let mapping = rig.alloc(n, S).unwrap();
            let va = rig.eph.kva(&mapping);
            rig.free(mapping);
            va
        };
        let [a, b, c] = [0, 1, 2].map(address);
        assert_eq!(b - a, PAGE_SIZE, "cold buffers in ascending order");
        assert_eq!(c - b, PAGE_SIZE);
        assert_eq!(address(0), a, "a hit, now the most recent");
        assert_eq!(address(3), b, "frame 1 was the least recent");
        assert_eq!(address(2), c, "still mapped");
        assert_eq!(address(4), a, "then frame 0");
        // Freed in another order than allocated: the order of the frees counts.
        let [x, y, z] = [5, 6, 7].map(|n| rig.alloc(n, S).unwrap());
        let (at_y, at_z) = (rig.eph.kva(&y), rig.eph.kva(&z));
        rig.free(z);
        rig.free(x);
        rig.free(y);
        assert_eq!(address(0), at_z);
        rig.cycle(5, S, false);
        assert_eq!(address(1), at_y);
    });
}

#[test]
fn exhaustion_without_waiting_is_an_error() {
    for flags in [Flags::NOWAIT, Flags::NOWAIT | Flags::INTERRUPTIBLE, Flags::NOWAIT | P, Flags::all()] {
        run("xeon-mp", Schedule::Timed, cache(1), move |rig| {
            rig.tag_frames(2);
            rig.threads.signals[0].set(true);
            let held = rig.alloc(0, S).unwrap();
            assert_eq!(rig.alloc(1, flags).unwrap_err(), AllocError::WouldBlock);
            rig.cycle(0, flags, true);
            assert_eq!(rig.threads.slept.get(), 0, "no thread slept");
            rig.free(held);
            rig.cycle(1, flags, true);
        });
    }
}

/// Sleeps until another CPU frees; with and without the flags that do not matter to it.
#[test]
fn exhaustion_sleeps_until_a_free() {
    for flags in [S, P, Flags::INTERRUPTIBLE, Flags::INTERRUPTIBLE | P] {
        run("xeon-mp", Schedule::Timed, cache(1), move |rig| {
            rig.tag_frames(2);
            let held = rig.alloc(0, S).unwrap();
            rig.start_on(1, move |rig| rig.cycle(1, flags, true));
            rig.m.spin_until(&mut || rig.threads.sleepers() == 1);
            assert_eq!(rig.eph.held(), 1);
            rig.free(held);
            rig.join(1);
            assert_eq!(rig.threads.slept.get(), 1);
        });
    }
}

#[test]
fn a_signal_ends_an_interruptible_sleep_only() {
    for (flags, ends) in
        [(S, false), (P, false), (Flags::INTERRUPTIBLE, true), (P | Flags::INTERRUPTIBLE, true)]
    {
        run("xeon-mp", Schedule::Timed, cache(1), move |rig| {
            rig.tag_frames(2);
            let held = rig.alloc(0, S).unwrap();
            let got = Rc::new(RefCell::new(None));
            let result = got.clone();
            rig.start_on(1, move |rig| {
                let r = rig.alloc(1, flags).map(|mapping| rig.free(mapping));
                result.replace(Some(r));
            });
            rig.m.spin_until(&mut || rig.threads.sleepers() == 1);
            rig.threads.signals[1].set(true);
            if ends {
                rig.join(1);
                assert_eq!(*got.borrow(), Some(Err(AllocError::Interrupted)));
                rig.free(held);
            } else {
                (0..50).for_each(|_| rig.m.execute(PATH));
                assert_eq!(*got.borrow(), None, "it still sleeps");
                rig.free(held);
                rig.join(1);
                assert_eq!(*got.borrow(), Some(Ok(())));
            }
        });
    }
}

/// Two wait for one frame and one for another; two buffers come free at once. If the two are woken, the second finds
/// its frame mapped and must pass its wakeup on, or the third sleeps beside a free buffer.
#[test]
fn a_wakeup_that_was_not_needed_is_passed_on() {
    let passed_on = Rc::new(Cell::new(0));
    for seed in 0..200 {
        let passed_on = passed_on.clone();
        run("xeon-mp-htt", Schedule::Seeded(seed), cache(2), move |rig| {
            rig.tag_frames(4);
            let (x, y) = (rig.alloc(0, S).unwrap(), rig.alloc(1, S).unwrap());
            let release = Rc::new(Cell::new(false));
            let done: Rc<[Cell<usize>; 4]> = Rc::default();
            for (cpu, n) in [(1, 2), (2, 2), (3, 3)] {
                let (release, done) = (release.clone(), done.clone());
                rig.start_on(cpu, move |rig| {
                    let mapping = rig.alloc(n, S).unwrap();
                    done[n as usize].set(done[n as usize].get() + 1);
                    rig.m.spin_until(&mut || release.get());
                    rig.free(mapping);
                });
            }
            rig.m.spin_until(&mut || rig.threads.sleepers() == 3);
            rig.free(x);
            rig.free(y);
            // Both frames get a buffer, although no buffer is freed before.
            let mut patience = 100_000;
            rig.m.spin_until(&mut || {
                patience -= 1;
                assert!(patience > 0, "a thread sleeps beside a free buffer");
                done[2].get() > 0 && done[3].get() > 0
            });
            passed_on.set(passed_on.get() + usize::from(done[2].get() == 2));
            release.set(true);
        });
    }
    assert!(passed_on.get() > 0, "the case did not come up");
}

#[test]
fn a_private_mapping_freed_elsewhere_is_a_bug() {
    let (_, result) = try_run("xeon-mp", Schedule::Timed, cache(2), |rig| {
        rig.tag_frames(1);
        let mapping = rig.alloc(0, P).unwrap();
        rig.on(1, move |rig| rig.free(mapping));
    });
    assert!(matches!(result, Err(RunError::Panicked(text)) if text.contains("not pinned")));
}

#[test]
fn a_hit_costs_as_much_in_a_large_cache() {
    if other_kind().is_some() {
        return; // Others have no addresses for so large a cache.
    }
    let cost = |entries: usize| {
        let cycles = Rc::new(Cell::new(0));
        let result = cycles.clone();
        run("xeon-up", Schedule::Timed, cache(entries), move |rig| {
            rig.tag_frames(16);
            (0..entries as u32).for_each(|n| rig.cycle(n % 4096, S, false));
            (0..16).for_each(|n| rig.cycle(n, S, false));
            let before = rig.m.now();
            (0..64).for_each(|n| rig.cycle(n % 16, S, false));
            result.set((rig.m.now() - before).0);
        });
        cycles.get()
    };
    let (small, large) = (cost(1 << 10), cost(1 << 16));
    assert!(
        large < small + small / 10,
        "64 hits cost {small} cycles in a small cache, {large} in a large one"
    );
}

#[test]
fn what_cannot_be_configured() {
    if other_kind().is_some() {
        return; // What fits is said of the machines that are named.
    }
    let entries = 1 << 20;
    assert_eq!(config_error("xeon-up", cache(0)), Some(ConfigError::NoEntries));
    assert_eq!(config_error("xeon-up", cache(entries)), Some(ConfigError::TooManyEntries { entries }));
    assert_eq!(config_error("xeon-up", with_scheme(Scheme::Direct)), Some(ConfigError::NoDirectMap));
    assert!(matches!(config_error("xeon-up", cache(200 << 10)), Some(ConfigError::Arena(_))));
    assert_eq!(config_error("opteron-mp", cache(64 << 10)), None);
    assert_eq!(config_error("opteron-mp", with_scheme(Scheme::Direct)), None);
}
