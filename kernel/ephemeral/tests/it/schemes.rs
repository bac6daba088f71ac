//! The direct map, the original scheme, and runs of addresses: exact counts.

use crate::common::*;
use crate::traffic::arena_of;
use pageferry_ephemeral::*;
use pageferry_hal::*;
use pageferry_model::{RunError, Schedule};
use pageferry_pmap::PmapCounter;
use std::sync::Arc;

fn all_flags() -> [Flags; 8] {
    std::array::from_fn(|bits| Flags::from_bits_truncate(bits as u8))
}

#[test]
fn the_direct_map_never_invalidates_and_never_fails() {
    if other_kind().is_some() {
        return; // Others may have none, or refill its entries with a lock held.
    }
    let m = run("opteron-mp", Schedule::Timed, with_scheme(Scheme::Direct), |rig| {
        rig.tag_frames(64);
        let before = rig.m.snapshot();
        let counts = rig.counted(|| {
            let mut held = Vec::new();
            for flags in all_flags() {
                for n in 0..64 {
                    held.push(rig.alloc(n, flags).expect("the direct map never fails"));
                }
            }
            for (i, mapping) in held.iter().enumerate() {
                assert_eq!(rig.read(mapping), Rig::tag(i as u32 % 64));
                assert_eq!(rig.eph.page(mapping), rig.frame(i as u32 % 64));
                assert_eq!(Some(rig.eph.kva(mapping)), rig.pmaps.direct_va(rig.eph.page(mapping)));
            }
            held.into_iter().for_each(|mapping| rig.free(mapping));
        });
        assert_eq!(counts, Counts::default(), "there is no cache to hit");
        let after = rig.m.snapshot();
        assert_eq!(
            after.counter(EphemeralCounter::EphemeralDirect)
                - before.counter(EphemeralCounter::EphemeralDirect),
            512,
            "each is counted"
        );
        assert_eq!(after.hardware.page_invalidations, before.hardware.page_invalidations);
        assert_eq!(after.cause(Cause::Lock), before.cause(Cause::Lock), "no lock");
        assert_eq!(after.cause(Cause::AddressAllocation), before.cause(Cause::AddressAllocation));
    });
    assert_eq!(m.snapshot().counter(EphemeralCounter::EphemeralMisses), 0);
}

/// Nothing but the flushes of setting up; `tag_frames` has none when there is nothing to tag.
#[test]
fn the_direct_map_costs_nothing_but_the_access() {
    if other_kind().is_some() {
        return; // Others may have none.
    }
    run("opteron-mp", Schedule::Timed, with_scheme(Scheme::Direct), |rig| {
        let before = rig.m.now();
        let mapping = rig.alloc(1, Flags::empty()).unwrap();
        rig.eph.kva(&mapping);
        rig.free(mapping);
        assert_eq!(rig.m.now(), before);
    });
}

/// One page: an address, a mapping with a flush on all CPUs, another flush when it goes; whatever the flags.
#[test]
fn the_original_scheme_flushes_twice_for_each_use() {
    for (name, others) in [("xeon-up", 0), ("xeon-htt", 1), ("xeon-mp-htt", 3), ("opteron-mp", 1)] {
        for flags in all_flags() {
            run(name, Schedule::Timed, with_scheme(Scheme::Original), move |rig| {
                rig.tag_frames(2);
                let remote = u64::from(others > 0);
                for touch in [true, false] {
                    let counts = rig.counted(|| rig.cycle(1, flags, touch));
                    let expected =
                        Counts { local: 2, remote: 2 * remote, ipis: 2 * others, hits: 0, misses: 1 };
                    assert_eq!(counts, expected, "{name} {flags:?}");
                }
            });
        }
    }
}

#[test]
fn the_original_scheme_maps_a_frame_as_often_as_asked() {
    run("xeon-up", Schedule::Timed, with_scheme(Scheme::Original), |rig| {
        rig.tag_frames(1);
        let (a, b) = (rig.alloc(0, Flags::empty()).unwrap(), rig.alloc(0, Flags::empty()).unwrap());
        assert_ne!(rig.eph.kva(&a), rig.eph.kva(&b));
        assert_eq!((rig.read(&a), rig.read(&b)), (Rig::tag(0), Rig::tag(0)));
        assert_eq!(rig.eph.held(), 2);
        rig.free(a);
        rig.free(b);
        assert_eq!(rig.eph.held(), 0);
    });
}

#[test]
fn the_original_scheme_runs_out_of_addresses() {
    run("xeon-up", Schedule::Timed, with_scheme(Scheme::Original), |rig| {
        let mut held = Vec::new();
        while rig.kva.alloc(16 << 10).is_some() {}
        while let Some(range) = rig.kva.alloc(1) {
            held.push(range);
        }
        for flags in all_flags() {
            assert_eq!(rig.alloc(0, flags).unwrap_err(), AllocError::NoAddresses);
        }
        assert_eq!(rig.eph.kva_run(1, MappingUser::Other).unwrap_err(), AllocError::NoAddresses);
        rig.kva.free(held.pop().expect("there were addresses"));
        rig.cycle(0, Flags::empty(), false);
    });
}

/// A run of pages costs two flushes in all, each with one shootdown; the addresses stay. In every scheme.
#[test]
fn a_run_flushes_once_for_each_change() {
    let schemes = [
        ("xeon-up", Scheme::Original, 0),
        ("xeon-mp-htt", Scheme::Original, 3),
        ("xeon-mp", Scheme::Cache { entries: 4, rule: AccessedRule::Safe }, 1),
        ("opteron-mp", Scheme::Direct, 1),
    ];
    for (name, scheme, others) in schemes {
        run(name, Schedule::Timed, with_scheme(scheme), move |rig| {
            rig.tag_frames(16);
            let start = rig.m.snapshot();
            let mut run = rig.eph.kva_run(17, MappingUser::Physio).unwrap();
            assert_eq!((run.len_pages(), rig.eph.kva_runs()), (17, 1));
            let mut first = None;
            for round in 0..3u32 {
                let frames: Vec<Pfn> = (0..16).map(|n| rig.frame((n + round) % 16)).collect();
                let before = rig.m.snapshot();
                assert_users_account(&start, &before);
                let va = rig.eph.enter_run(&mut run, &frames);
                let stays = *first.get_or_insert(va) == va;
                assert!(stays || rig.pmaps.colours() > 1, "the addresses stay where colours do not matter");
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
                let pages = if others > 0 { 32 } else { 0 };
                let expected = Counts { local: 32, remote: pages, ipis: 2 * others, ..Counts::default() };
                assert_eq!(Counts::between(&before, &after), expected, "{name}");
                let shootdowns =
                    after.counter(PmapCounter::Shootdowns) - before.counter(PmapCounter::Shootdowns);
                assert_eq!(shootdowns, if others > 0 { 2 } else { 0 }, "one for each change");
            }
            rig.eph.release_run(run);
            assert_eq!(rig.eph.kva_runs(), 0);
            let end = rig.m.snapshot();
            assert_users_account(&start, &end);
            let by = |counter: EphemeralCounter| end.counter(counter) - start.counter(counter);
            let remote = if others > 0 { 96 } else { 0 };
            assert_eq!(by(MappingUser::Physio.mappings()), 48);
            assert_eq!(by(MappingUser::Physio.invalidations()), 96 + remote);
            assert_eq!(by(MappingUser::Physio.remote_invalidations()), remote);
        });
    }
}

#[test]
fn runs_are_not_overfilled_nor_released_full() {
    let enter_twice = |rig: &Rig| {
        let mut run = rig.eph.kva_run(2, MappingUser::Other).unwrap();
        rig.eph.enter_run(&mut run, &[rig.frame(0)]);
        rig.eph.enter_run(&mut run, &[rig.frame(1)]);
    };
    let too_long = |rig: &Rig| {
        let mut run = rig.eph.kva_run(1, MappingUser::Other).unwrap();
        rig.eph.enter_run(&mut run, &[rig.frame(0), rig.frame(1)]);
    };
    let release_full = |rig: &Rig| {
        let mut run = rig.eph.kva_run(1, MappingUser::Other).unwrap();
        rig.eph.enter_run(&mut run, &[rig.frame(0)]);
        rig.eph.release_run(run);
    };
    type Case = (fn(&Rig), &'static str);
    let cases: [Case; 3] =
        [(enter_twice, "mapped in this run"), (too_long, "do not fit"), (release_full, "still mapped")];
    for (case, words) in cases {
        let (_, result) = try_run("xeon-up", Schedule::Timed, with_scheme(Scheme::Original), case);
        assert!(
            matches!(&result, Err(RunError::Panicked(text)) if text.contains(words)),
            "{words}: {result:?}"
        );
    }
}

#[test]
fn vmem_saves_addresses_and_no_invalidation() {
    for (name, cpus) in [("xeon-up", 1), ("xeon-mp", 2)] {
        let counts = |scheme| {
            let found = std::rc::Rc::new(std::cell::Cell::new([0; 3]));
            let cell = found.clone();
            run(name, Schedule::Timed, with_scheme(scheme), move |rig| {
                let use_one = || {
                    let mapping = rig.alloc(1, Flags::PRIVATE).expect("there are addresses");
                    assert_eq!(rig.read(&mapping), Rig::tag(1));
                    rig.free(mapping);
                };
                rig.tag_frames(2);
                use_one();
                let of = || {
                    let snapshot = rig.m.snapshot();
                    let remote = snapshot.counter(PmapCounter::TlbInvalidationsRemoteIssued);
                    [
                        snapshot.counter(PmapCounter::TlbInvalidationsLocal),
                        remote,
                        snapshot.cause(Cause::AddressAllocation),
                    ]
                };
                let before = of();
                (0..10).for_each(|_| use_one());
                let after = of();
                cell.set([0, 1, 2].map(|i| after[i] - before[i]));
            });
            found.get()
        };
        let (vmem, original) = (counts(Scheme::Vmem), counts(Scheme::Original));
        assert_eq!((vmem[0], vmem[1]), (20, if cpus > 1 { 20 } else { 0 }), "{name}");
        assert_eq!(vmem[..2], original[..2], "{name}");
        // The rig's own allocator costs nothing: what is there is the magazine's.
        assert!(vmem[2] > 0, "{name}");
    }
}

/// Frames that the cache has by addresses of another colour than their own are reached by such; the others by the
/// direct map. Nothing has to leave the cache for it (sf_buf paper, 4.4).
#[test]
fn the_hybrid_takes_the_direct_map_where_colours_agree() {
    if other_kind().is_some() {
        return; // Others have no colours.
    }
    const FRAMES: u32 = 16;
    let held_at_most = 4;
    let purged = |machine, scheme| {
        let m = run(machine, Schedule::Timed, with_scheme(scheme), move |rig| {
            rig.tag_frames(FRAMES);
            let colours = rig.pmaps.colours();
            assert_eq!(colours, 4);
            let before = rig.m.snapshot().counter(PmapCounter::ColoursPurged);
            for n in (0..FRAMES).flat_map(|n| [n, n]) {
                let frame = rig.frame(n);
                let best = rig.pmaps.best_colour(frame);
                let mapping = rig.alloc(n, Flags::NOWAIT).expect("one at a time");
                let va = rig.eph.kva(&mapping);
                let is_direct = Some(va) == rig.pmaps.direct_va(frame);
                assert_eq!(is_direct, scheme == Scheme::Direct || best == rig.pmaps.own_colour(frame));
                assert!(scheme == Scheme::Direct || rig.pmaps.colour(va) == best);
                assert_eq!(rig.read(&mapping), Rig::tag(n));
                rig.free(mapping);
            }
            let purged = rig.m.snapshot().counter(PmapCounter::ColoursPurged) - before;
            assert_eq!(purged, if scheme == Scheme::Direct { 12 } else { 0 });
            if scheme == Scheme::Direct {
                return;
            }
            // So many of a colour at once, and then no more.
            let others = (0..FRAMES).filter(|&n| {
                let frame = rig.frame(n);
                rig.pmaps.best_colour(frame) != rig.pmaps.own_colour(frame)
            });
            let mut made: Vec<_> = others.map(|n| rig.alloc(n, Flags::NOWAIT)).collect();
            assert!(made.drain(held_at_most..).all(|refused| refused.is_err()));
            made.into_iter().for_each(|mapping| rig.free(mapping.expect("one of the first")));
            rig.eph.check().expect("its invariants hold");
        });
        m.snapshot().counter(EphemeralCounter::EphemeralHits)
    };
    for machine in ["sh7751r", "ultrasparc-iie"] {
        assert_eq!(purged(machine, Scheme::Direct), 0);
        assert!(purged(machine, Scheme::Hybrid { entries: held_at_most }) > 0, "found again");
    }
}

/// A frame that several processes look at is mapped once for each, and found again by each (sf_buf paper, 7).
#[test]
fn a_process_finds_its_own_mappings_and_no_others() {
    let scheme = Scheme::PerProcess { entries: 4, caches: 2 };
    run("xeon-mp", Schedule::Timed, with_scheme(scheme), |rig| {
        rig.tag_frames(8);
        let look = |process: u32, n: u32| {
            rig.threads.process.set(process);
            let counts = rig.counted(|| {
                let mapping = rig.alloc(n, Flags::NOWAIT).expect("one at a time");
                assert_eq!(rig.read(&mapping), Rig::tag(n));
                // Given back on behalf of another process.
                rig.threads.process.set(process + 1);
                rig.free(mapping);
            });
            (counts.hits, counts.misses)
        };
        assert_eq!((look(0, 1), look(1, 1)), ((0, 1), (0, 1)), "each for itself");
        assert_eq!((look(0, 1), look(1, 1)), ((1, 0), (1, 0)));
        assert_eq!(look(2, 1), (1, 0), "more processes than caches share");
        (2..6).for_each(|n| assert_eq!(look(0, n), (0, 1)));
        assert_eq!((look(0, 1), look(1, 1)), ((0, 1), (1, 0)), "one's use takes nothing from the other");
        let held: Vec<_> = (0..4).map(|n| rig.alloc(n, Flags::NOWAIT).expect("room for four")).collect();
        let process = rig.threads.process.get();
        assert!(rig.alloc(7, Flags::NOWAIT).is_err());
        rig.threads.process.set(process + 1);
        rig.free(rig.alloc(7, Flags::NOWAIT).expect("the other has room"));
        assert_eq!(rig.eph.held(), 4);
        held.into_iter().for_each(|mapping| rig.free(mapping));
        rig.eph.check().expect("the invariants of both hold");
    });
}

/// A configuration for which there is no room takes no addresses, whichever part of it had none: of the arena, or of
/// the addresses themselves.
#[test]
#[allow(clippy::arc_with_non_send_sync)]
fn what_is_refused_takes_no_addresses() {
    const ENTRIES: usize = 5;
    let cases = [
        ("xeon-up", Scheme::Cache { entries: ENTRIES, rule: AccessedRule::Safe }),
        ("xeon-up", Scheme::PerProcess { entries: ENTRIES, caches: 3 }),
        ("xeon-up", Scheme::FreeList { entries: ENTRIES }),
        ("sh7751r", Scheme::Hybrid { entries: ENTRIES }),
    ];
    for (name, scheme) in cases {
        if other_kind().is_some() && name != "xeon-up" {
            continue; // Others have no colours.
        }
        run(name, Schedule::Timed, with_scheme(Scheme::Original), move |rig| {
            let mut refused = 0;
            for (arena_bytes, pages) in (0..32).flat_map(|n| [(64 * n, 1 << 10), (1 << 20, n)]) {
                let kva = Arc::new(rig.kva.first_pages(pages));
                let mut room = arena_of(rig, arena_bytes);
                let made = Ephemeral::new(with_scheme(scheme), rig.pmaps.clone(), kva.clone(), &mut room);
                if made.is_err() {
                    refused += 1;
                    assert_eq!(kva.free_pages(), pages, "{scheme:?} with {arena_bytes} bytes, {pages} pages");
                }
            }
            assert!(refused > ENTRIES, "{scheme:?}: {refused} were refused");
        });
    }
}

/// Addresses that are given back are free again, but for those that a magazine keeps: so many, and no more.
#[test]
fn a_magazine_keeps_sixteen_addresses() {
    for (scheme, kept) in [(Scheme::Original, 0), (Scheme::Vmem, 16)] {
        run("xeon-up", Schedule::Timed, with_scheme(scheme), move |rig| {
            let before = rig.kva.free_pages();
            let mut away = 0;
            for count in [15, 16, 17, 40, 3] {
                let held: Vec<_> =
                    (0..count).map(|n| rig.alloc(n, Flags::empty()).expect("room for all")).collect();
                held.into_iter().for_each(|mapping| rig.free(mapping));
                away = kept.min(away.max(count as usize));
                assert_eq!(before - rig.kva.free_pages(), away, "{scheme:?}, {count} at once");
            }
        });
    }
}

/// Runs lie beside each other and not over each other, of whatever colours their first frames are.
#[test]
fn runs_have_their_addresses_for_themselves() {
    const PAGES: u32 = 3;
    const RUNS: u32 = 4;
    for name in ["xeon-up", "sh7751r"] {
        if other_kind().is_some() && name != "xeon-up" {
            continue; // Others have no colours.
        }
        run(name, Schedule::Timed, with_scheme(Scheme::Original), move |rig| {
            let make = |_| rig.eph.kva_run(PAGES as usize, MappingUser::Other).expect("room");
            let mut runs: Vec<KvaRun> = (0..RUNS).map(make).collect();
            // The first frames of neighbours are of all pairs of colours in turn.
            let colours = rig.pmaps.colours();
            for pair in 0..colours * colours {
                let first =
                    move |run: u32| if run.is_multiple_of(2) { pair / colours } else { pair % colours };
                let frames_of = |run: u32| (0..PAGES).map(move |n| 16 * run + first(run) + n);
                let mut shown = Vec::new();
                for (i, run) in (0..).zip(&mut runs) {
                    let frames: Vec<Pfn> = frames_of(i).map(|n| rig.frame(n)).collect();
                    let range = VaRange::pages_from(rig.eph.enter_run(run, &frames), frames.len());
                    let is_over =
                        |other: &VaRange| other.start() < range.end() && range.start() < other.end();
                    assert!(!shown.iter().any(is_over), "{name}: {range:?} beside {shown:?}");
                    for (va, n) in range.pages().zip(frames_of(i)) {
                        rig.m.store(Mode::Kernel, va, &Rig::tag(n)).expect("mapped");
                    }
                    shown.push(range);
                }
                for (i, range) in (0..).zip(&shown) {
                    for (va, n) in range.pages().zip(frames_of(i)) {
                        let mut buf = [0; 4];
                        rig.m.load(Mode::Kernel, va, &mut buf).expect("mapped");
                        assert_eq!(buf, Rig::tag(n), "{name}: run {i}");
                    }
                }
                runs.iter_mut().for_each(|run| rig.eph.remove_run(run));
            }
            runs.into_iter().for_each(|run| rig.eph.release_run(run));
        });
    }
}
