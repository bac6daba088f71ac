//! Policies of flushing where every use makes a mapping: at which of the two changes, how much at once, and addresses
//! from a list. Each policy is sound under random traffic, and a flush that it leaves out is found.

use crate::common::*;
use crate::traffic::{FRAMES, Findings, Mix, arena, storm, traffic};
use pageferry_ephemeral::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_pmap::PmapCounter;
use std::rc::Rc;

const ALL_AT: [FlushAt; 3] = [FlushAt::Map, FlushAt::Unmap, FlushAt::Both];
const LIST: Scheme = Scheme::FreeList { entries: 3 };

fn changes(at: FlushAt) -> u64 {
    u64::from(at.maps()) + u64::from(at.unmaps())
}

/// One page: as many flushes as the policy has, on all CPUs, whatever the flags.
#[test]
fn each_use_flushes_as_often_as_the_policy_says() {
    for (name, others) in [("xeon-up", 0), ("xeon-htt", 1), ("xeon-mp-htt", 3), ("opteron-mp", 1)] {
        for (at, scheme) in ALL_AT.into_iter().flat_map(|at| [(at, Scheme::Original), (at, LIST)]) {
            run(name, Schedule::Timed, flushing(scheme, at, FlushBy::User), move |rig| {
                rig.tag_frames(2);
                for flags in [Flags::empty(), Flags::PRIVATE, Flags::NOWAIT] {
                    let counts = rig.counted(|| rig.cycle(1, flags, true));
                    let each = changes(at);
                    let remote = if others > 0 { each } else { 0 };
                    let expected = Counts { local: each, remote, ipis: each * others, hits: 0, misses: 1 };
                    assert_eq!(counts, expected, "{name} {at:?} {scheme:?} {flags:?}");
                }
            });
        }
    }
}

/// A run of pages: one shootdown at each change that is flushed, or one a page.
#[test]
fn a_run_is_flushed_as_a_range_or_page_by_page() {
    for (at, by) in
        ALL_AT.into_iter().flat_map(|at| [FlushBy::User, FlushBy::Page, FlushBy::Range].map(|by| (at, by)))
    {
        run("xeon-mp-htt", Schedule::Timed, flushing(Scheme::Original, at, by), move |rig| {
            rig.tag_frames(16);
            let mut run = rig.eph.kva_run(16, MappingUser::Pipe).unwrap();
            for round in 0..3u32 {
                let frames: Vec<Pfn> = (0..16).map(|n| rig.frame((n + round) % 16)).collect();
                let before = rig.m.snapshot();
                let va = rig.eph.enter_run(&mut run, &frames);
                let look = move |rig: &Rig| {
                    for n in 0..16 {
                        let mut buf = [0; 4];
                        rig.m.load(Mode::Kernel, va + n * PAGE_SIZE, &mut buf).unwrap();
                        assert_eq!(buf, Rig::tag((n as u32 + round) % 16));
                    }
                };
                look(rig);
                rig.on(rig.m.board().cpus as u8 - 1, look);
                rig.eph.remove_run(&mut run);
                let after = rig.m.snapshot();
                let shootdowns =
                    after.counter(PmapCounter::Shootdowns) - before.counter(PmapCounter::Shootdowns);
                let each = if by == FlushBy::Page { 16 } else { 1 };
                assert_eq!(shootdowns, changes(at) * each, "{at:?} {by:?}");
                assert_eq!(Counts::between(&before, &after).local, changes(at) * 16);
                assert_users_account(&before, &after);
            }
            rig.eph.release_run(run);
        });
    }
}

/// The last address that was given back is taken first; when none is left, the flags say what to do.
#[test]
fn the_list_gives_out_what_came_back_last_and_waits_as_the_flags_say() {
    run("xeon-mp", Schedule::Timed, with_scheme(Scheme::FreeList { entries: 2 }), |rig| {
        rig.tag_frames(4);
        assert_eq!(rig.eph.buffers(), Some(2));
        let (a, b) = (rig.alloc(0, Flags::empty()).unwrap(), rig.alloc(0, Flags::NOWAIT).unwrap());
        let (first, second) = (rig.eph.kva(&a), rig.eph.kva(&b));
        assert_ne!(first, second, "nothing is shared");
        assert_eq!(rig.alloc(1, Flags::NOWAIT).unwrap_err(), AllocError::WouldBlock);
        // An interrupted sleep.
        rig.threads.signals[0].set(true);
        assert_eq!(rig.alloc(1, Flags::INTERRUPTIBLE).unwrap_err(), AllocError::Interrupted);
        // A sleep that ends with an address.
        rig.start_on(1, |rig| {
            let mapping = rig.alloc(2, Flags::empty()).expect("it waits");
            assert_eq!(rig.read(&mapping), Rig::tag(2));
            rig.free(mapping);
        });
        rig.m.spin_until(&mut || rig.threads.sleepers() == 1);
        rig.free(a);
        rig.join(1);
        assert_eq!(rig.threads.slept.get(), 2);
        rig.free(b);
        assert_eq!((rig.eph.held(), rig.threads.sleepers()), (0, 0));
        let again = rig.alloc(3, Flags::empty()).unwrap();
        assert_eq!((rig.eph.kva(&again), rig.read(&again)), (second, Rig::tag(3)));
        rig.free(again);
    });
}

#[test]
fn a_list_needs_addresses() {
    run("xeon-up", Schedule::Timed, with_scheme(Scheme::Original), |rig| {
        let with = |entries| {
            let config = with_scheme(Scheme::FreeList { entries });
            Ephemeral::new(config, rig.pmaps.clone(), rig.kva.clone(), &mut arena(rig)).err()
        };
        assert_eq!(with(0), Some(ConfigError::NoEntries));
        assert_eq!(with(1), None);
    });
}

/// All policies under random traffic: what is read is what the frame holds, and nothing stale is used.
#[test]
fn no_policy_lets_a_stale_page_be_read() {
    for seed in 0..120 {
        let name = ["xeon-up", "xeon-htt", "xeon-mp", "xeon-mp-htt", "opteron-mp"][seed as usize % 5];
        let scheme = [Scheme::Original, LIST, Scheme::Vmem][seed as usize % 3];
        for at in ALL_AT {
            let found = storm(name, seed, flushing(scheme, at, FlushBy::User), Mix::Both, 16);
            assert_eq!(found, (0, 0), "{name}, seed {seed}, {scheme:?}, {at:?}");
        }
    }
}

/// Seeds, of so many, in which a planted defect shows: by the oracle, or by a wrong or a failed read.
fn caught(config: EphemeralConfig, defect: EphemeralDefect, seeds: u64) -> (usize, usize) {
    let (mut by_oracle, mut otherwise) = (0, 0);
    for seed in 0..seeds {
        let findings = Rc::new(Findings::default());
        let wrong = findings.clone();
        let (m, result) = try_run("xeon-mp", Schedule::Seeded(seed), config, move |rig| {
            let mut rig = rig.clone();
            let eph = Ephemeral::new(config, rig.pmaps.clone(), rig.kva.clone(), &mut arena(&rig));
            let mut eph = eph.unwrap_or_else(|e| panic!("{e}"));
            eph.plant(defect);
            rig.eph = Rc::new(eph);
            rig.tag_frames(FRAMES);
            let (other, findings_1) = (rig.clone(), findings.clone());
            rig.start_on(1, move |_| traffic(&other, seed, Mix::Both, 24, &findings_1));
            traffic(&rig, seed, Mix::Both, 24, &findings);
            rig.join(1);
        });
        by_oracle += usize::from(!m.stale_uses().is_empty());
        otherwise += usize::from(result.is_err() || wrong.wrong_reads.get() > 0);
    }
    (by_oracle, otherwise)
}

/// Whichever change a policy flushes, it has to, and on every CPU.
#[test]
fn a_flush_that_a_policy_leaves_out_is_found() {
    if other_kind().is_some() {
        return; // In a small TLB that maps the kernel by pages, too, what is stale rarely lasts until it is used.
    }
    for at in ALL_AT {
        for scheme in [Scheme::Original, LIST, Scheme::Vmem] {
            let config = flushing(scheme, at, FlushBy::User);
            let (by_oracle, _) = caught(config, EphemeralDefect::FlushLeftOut, 20);
            assert!(by_oracle > 0, "{scheme:?}, {at:?}: not found in 20 seeds");
            // Another CPU has used the address, and is shown another frame there.
            let defects = [EphemeralDefect::FlushLeftOut, EphemeralDefect::FlushedHereOnly].map(Some);
            for defect in [None].into_iter().chain(defects) {
                let (m, result) = try_run("xeon-mp", Schedule::Timed, config, move |rig| {
                    let eph = Ephemeral::new(config, rig.pmaps.clone(), rig.kva.clone(), &mut arena(rig));
                    let mut eph = eph.unwrap_or_else(|e| panic!("{e}"));
                    defect.into_iter().for_each(|defect| eph.plant(defect));
                    rig.tag_frames(2);
                    let mut first = None;
                    for n in 0..2 {
                        let mapping = eph
                            .alloc(&rig.threads, rig.frame(n), MappingUser::Other, Flags::empty())
                            .unwrap();
                        let va = eph.kva(&mapping);
                        assert_eq!(*first.get_or_insert(va), va, "the address is used again");
                        rig.on(1, move |rig| {
                            let mut buf = [0; 4];
                            rig.m.load(Mode::Kernel, va, &mut buf).expect("mapped");
                            assert_eq!(buf == Rig::tag(n), n == 0 || defect.is_none(), "{scheme:?} {at:?}");
                        });
                        eph.free(&rig.threads, mapping);
                    }
                });
                result.unwrap_or_else(|e| panic!("{scheme:?} {at:?} {defect:?}: {e}"));
                assert_eq!(m.stale_uses().is_empty(), defect.is_none(), "{scheme:?} {at:?} {defect:?}");
            }
        }
    }
}

/// Two users of an address: one takes the mapping from under the other. Where unmapping flushes only, the oracle sees
/// it; everywhere the bytes do, or the address is not mapped any more.
#[test]
fn an_address_that_is_given_out_twice_is_found() {
    for at in ALL_AT {
        let config = flushing(LIST, at, FlushBy::User);
        let (by_oracle, otherwise) = caught(config, EphemeralDefect::AddressTwice, 20);
        assert!(otherwise > 0, "{at:?}: not found in 20 seeds");
        let lasting = at == FlushAt::Unmap && other_kind().is_none();
        assert!(by_oracle > 0 || !lasting, "{at:?}: the oracle has not seen it in 20 seeds");
    }
}

/// A run whose flush is left out, under every policy.
#[test]
fn a_run_that_is_not_flushed_is_found() {
    if other_kind().is_some() {
        return; // As above.
    }
    for (at, by) in ALL_AT.into_iter().flat_map(|at| [FlushBy::User, FlushBy::Page].map(|by| (at, by))) {
        for (defect, stale) in [(None, false), (Some(EphemeralDefect::FlushLeftOut), true)] {
            let config = flushing(Scheme::Original, at, by);
            let (m, result) = try_run("xeon-mp", Schedule::Timed, config, move |rig| {
                let eph = Ephemeral::new(config, rig.pmaps.clone(), rig.kva.clone(), &mut arena(rig));
                let mut eph = eph.unwrap_or_else(|e| panic!("{e}"));
                defect.into_iter().for_each(|defect| eph.plant(defect));
                rig.tag_frames(4);
                let mut run = eph.kva_run(2, MappingUser::Pipe).unwrap();
                for round in 0..2 {
                    let va = eph.enter_run(&mut run, &[rig.frame(round), rig.frame(round + 1)]);
                    rig.on(1, move |rig| {
                        let mut buf = [0; 4];
                        rig.m.load(Mode::Kernel, va, &mut buf).expect("mapped");
                        assert!(stale || buf == Rig::tag(round), "{at:?} {by:?}");
                    });
                    eph.remove_run(&mut run);
                }
                eph.release_run(run);
            });
            result.unwrap_or_else(|e| panic!("{at:?} {by:?}: {e}"));
            assert_eq!(!m.stale_uses().is_empty(), stale, "{at:?} {by:?} {defect:?}");
        }
    }
}
