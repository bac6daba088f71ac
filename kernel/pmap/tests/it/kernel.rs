//! Kernel mappings: bootstrap, exact counts of invalidations, races, and forgotten flushes.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::{RunError, Schedule};
use pageferry_pmap::{EntryChoice, KernelMapping, PmapConfig, PmapCounter, PmapError, Reach};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn all_kernel_memory_is_mapped_at_boot() {
    for machine in ALL.into_iter().chain(["ultrasparc-iie", "alpha-21264", "itanium2"]) {
        run(Shape::new(machine, 2), move |k| {
            let board = k.m.board();
            let layout = board.layout;
            assert_eq!(k.kva.end(), layout.kernel_end);
            let temporary = if layout.direct_map.is_none() { 4 * PAGE_SIZE } else { 0 };
            if let Mmu::Radix(format) = board.mmu {
                let superpage = format.superpage_bytes();
                assert_eq!(k.kva.start(), layout.kernel_base + superpage + temporary);
                let tables = if machine == I386 { 1 + 254 } else { 1 + 1 + 8 + 1 + 1 + 4093 };
                assert_eq!(k.first_free.index(), superpage / PAGE_SIZE + tables);
            }

            // The arena lies on the lowest memory.
            k.m.store(Mode::Kernel, layout.kernel_base + 0x1234, b"arena").unwrap();
            assert_eq!(&k.m.frame_bytes(Pfn(1))[0x234..0x239], b"arena");
            for frame in [0, 1, board.frames / 2, board.frames - 1].map(|f| Pfn(f as u32)) {
                assert_eq!(k.pmaps.direct_va(frame).is_some(), layout.direct_map.is_some());
                if let Some(va) = k.pmaps.direct_va(frame) {
                    k.m.store(Mode::Kernel, va + 4095, &[frame.0 as u8]).unwrap();
                    assert_eq!(k.m.frame_bytes(frame)[4095], frame.0 as u8);
                }
            }
            // Every page of the paged addresses can be mapped; none is yet.
            for va in [k.kva.start(), Va(k.kva.end().0 - PAGE_SIZE as u64)] {
                assert_eq!(k.load(Mode::Kernel, va).unwrap_err().trap.kind, TrapKind::NotPresent);
                k.pmaps.kenter(va, &[Pfn(1)], Prot::READ).flush(&k.pmaps);
                assert!(k.load(Mode::Kernel, va).is_ok());
                assert!(k.m.store(Mode::Kernel, va, &[1]).is_err(), "read-only");
                assert_eq!(k.load(Mode::User, va).unwrap_err().trap.kind, TrapKind::Protection);
            }
        });
    }
}

/// Every way in which page tables map what is mapped for ever, with machines and memory that it goes with.
fn by_tables() -> impl Iterator<Item = Shape> {
    let sizes = [KernelMapping::Superpages, KernelMapping::Pages];
    let split = [0, 1, 25, 50, 99, 100].map(|percent| KernelMapping::Fragmented { percent });
    let both = sizes.into_iter().chain(split);
    let small = both.flat_map(|mapping| RADIX.map(|machine| Shape { mapping, ..Shape::new(machine, 2) }));
    // The last of these sizes leaves superpages behind whole huge pages.
    let huge = [1024, 1026].map(|size_mb| Shape { size_mb, ..Shape::new("today", 2) });
    let huge = huge.map(|shape| Shape { mapping: KernelMapping::Huge, ..shape });
    small.chain(huge).chain([Shape { mapping: KernelMapping::Pages, size_mb: 63, ..Shape::new("today", 1) }])
}

#[test]
fn every_frame_is_where_the_direct_map_says_whatever_maps_it() {
    for shape in by_tables() {
        run(shape, move |k| {
            let board = k.m.board();
            let layout = board.layout;
            let Mmu::Radix(format) = board.mmu else { unreachable!("hardware walks tables") };
            // Of a large memory, the frames around borders of superpages, and some between.
            let near =
                |f: &usize| board.frames <= 1 << 15 || matches!(f % 512, 0 | 1 | 511) || f.is_multiple_of(97);
            for frame in (0..board.frames).filter(near).map(|f| Pfn(f as u32)) {
                let Some(va) = k.pmaps.direct_va(frame) else { continue };
                let mut old = [0; 8];
                k.m.load(Mode::Kernel, va + 8, &mut old).unwrap();
                assert_eq!(k.m.frame_bytes(frame)[8..16], old, "{shape:?}: {frame:?}");
                let kind = k.load(Mode::User, va).unwrap_err().trap.kind;
                assert_eq!(kind, TrapKind::Protection, "{shape:?}: {frame:?}");
                if frame >= k.first_free {
                    k.m.store(Mode::Kernel, va + 8, &frame.0.to_le_bytes()).unwrap();
                    assert_eq!(k.m.frame_bytes(frame)[8..12], frame.0.to_le_bytes());
                }
            }
            let arena_frames = format.superpage_bytes() >> PAGE_SHIFT;
            for page in VaRange::pages_from(layout.kernel_base, arena_frames).pages() {
                k.m.store(Mode::Kernel, page + 16, &page.0.to_le_bytes()).unwrap();
                let frame = Pa((page - layout.kernel_base) as u64).pfn();
                assert_eq!(k.m.frame_bytes(frame)[16..24], page.0.to_le_bytes(), "{shape:?}: {frame:?}");
            }
            k.m.tlb_flush(Flush::All);
            let arena = VaRange::pages_from(layout.kernel_base, arena_frames);
            let s = k.counted(|| arena.pages().for_each(|page| _ = k.load(Mode::Kernel, page).unwrap()));
            let entries = match shape.mapping {
                KernelMapping::Pages | KernelMapping::Fragmented { percent: 100 } => arena_frames as u64,
                _ => 1,
            };
            assert_eq!(s.hardware.tlb_misses, entries, "{shape:?}");
            // What lies behind is for pages, none of which is mapped, and the first of them can be.
            let va = k.kva.start();
            assert_eq!(k.load(Mode::Kernel, va).unwrap_err().trap.kind, TrapKind::NotPresent);
            k.pmaps.kenter(va, &[Pfn(1)], Prot::READ).flush(&k.pmaps);
            assert!(k.load(Mode::Kernel, va).is_ok());
        });
    }
}

#[test]
fn a_fragmented_kernel_takes_a_leaf_table_for_each_superpage_that_is_split() {
    let first_free = |mapping| {
        let found = Rc::new(Cell::new(0));
        let out = found.clone();
        run(Shape { mapping, ..Shape::new(RADIX[1], 1) }, move |k| out.set(k.first_free.index()));
        found.get()
    };
    let whole = first_free(KernelMapping::Board);
    assert_eq!(first_free(KernelMapping::Superpages), whole);
    // 32 superpages of the direct map, and one of the arena.
    for (percent, split) in [(0, 0), (25, 8), (50, 16), (100, 33)] {
        assert_eq!(first_free(KernelMapping::Fragmented { percent }), whole + split, "{percent} %");
    }
    assert_eq!(first_free(KernelMapping::Pages), whole + 33);
}

#[test]
fn pages_that_a_board_does_not_have_are_refused() {
    let boot = |name, size_mb, mapping| {
        refused(Shape { size_mb, ..Shape::new(name, 1) }, PmapConfig { mapping, ..CONFIG })
    };
    let huge = KernelMapping::Huge;
    for (machine, size_mb) in [("opteron-mp", 1024), ("xeon-up", 1024), ("today", 1022), ("mini-soft", 64)] {
        let error = boot(machine, size_mb, huge);
        assert_eq!(error, Some(PmapError::NoSuchPages(huge)), "{machine}");
    }
    for mapping in [KernelMapping::Superpages, KernelMapping::Fragmented { percent: 10 }] {
        for machine in ["mini-soft", "mini-hash", "mini-blocks"] {
            assert_eq!(boot(machine, 64, mapping), Some(PmapError::NoSuchPages(mapping)), "{machine}");
        }
    }
    assert_eq!(boot("today", 64, KernelMapping::Blocks), Some(PmapError::NoBlocks(KernelMapping::Blocks)));
    // 17 MB hold the tables of all kernel addresses, but not a table for each superpage besides.
    assert_eq!(boot("today", 19, KernelMapping::Board), None);
    let error = boot("today", 18, KernelMapping::Pages);
    assert!(matches!(error, Some(PmapError::MemoryTooSmall { .. })), "{error:?}");
}

#[test]
fn entries_are_chosen_only_where_any_may_hold_any_page() {
    let config = PmapConfig { choice: EntryChoice::UnusedFirst, ..CONFIG };
    let boot = |name| refused(Shape::new(name, 1), config);
    for machine in ["xeon-up", "mini-hash", "mini-blocks", "ppc603", "ultrasparc-iie", "alpha-21264"] {
        assert_eq!(boot(machine), Some(PmapError::NoChoice), "{machine}");
    }
    assert_eq!(boot("sh7751r"), None);
}

#[test]
fn a_kernel_that_does_not_fit_is_refused() {
    let boot = |name, size_mb, arena_bytes| {
        refused(Shape { size_mb, ..Shape::new(name, 1) }, PmapConfig { arena_bytes, ..CONFIG })
    };
    // 4 MB of arena and 255 tables; 2 MB of arena, 4105 tables.
    let wanted = [1024 + 255 + 1, 512 + 4105 + 1];
    for (machine, wanted) in RADIX.into_iter().zip(wanted) {
        let frames = 4 << 20 >> PAGE_SHIFT;
        assert_eq!(boot(machine, 4, 1), Some(PmapError::MemoryTooSmall { frames, wanted }));
        assert_eq!(boot(machine, 64, 1), None);
        let e = boot(machine, 64, 8 << 30).expect("too large");
        assert!(matches!(e, PmapError::ArenaTooLarge { arena_bytes, .. } if arena_bytes == 8 << 30), "{e}");
        assert!(matches!(boot(machine, 64, usize::MAX), Some(PmapError::ArenaTooLarge { .. })));
    }
}

#[test]
fn invalidations_are_counted_exactly() {
    for shape in shapes().flat_map(|s| [s, Shape { ranged: false, ..s }]) {
        run(shape, move |k| {
            let others = shape.cpus as u64 - 1;
            let asked = |pages: u64| {
                let shootdowns = if shape.ranged { 1 } else { pages };
                if others == 0 { [0; 3] } else { [pages, shootdowns, shootdowns * others] }
            };
            let va = k.kva.start();
            for pages in [1, 4, 17] {
                let frames: Vec<Pfn> = (0..pages as u32).map(|i| Pfn(2000 + i)).collect();
                let [issued, shootdowns, ipis] = asked(pages);
                let expected = [pages, issued, shootdowns, ipis];
                // Over entries that were never valid, over valid ones, and their removal: always.
                for step in 0..4 {
                    let s = k.flushed(|| match step {
                        0..3 => k.pmaps.kenter(va, &frames, Prot::RW).flush(&k.pmaps),
                        _ => k.pmaps.kremove(VaRange::pages_from(va, frames.len())).flush(&k.pmaps),
                    });
                    assert_eq!(invalidations(&s), expected, "{shape:?}, {pages} pages, step {step}");
                    let invlpgs = pages * shape.cpus as u64;
                    assert_eq!((s.hardware.page_invalidations, s.hardware.ipis_sent), (invlpgs, ipis));
                    assert_eq!(s.hardware.interrupts, ipis, "all were taken before the flush returned");
                    assert_eq!(s.cause(Cause::ShootdownSent) > 0, others > 0);
                    assert_eq!(s.cause(Cause::ShootdownReceived) > 0, others > 0);
                    assert!(s.cause(Cause::InvalidateLocal) > 0 && s.cause(Cause::PteWork) > 0);
                }
                let s = k.flushed(|| k.pmaps.kenter(va, &frames, Prot::RW).flush_local(&k.pmaps));
                assert_eq!(invalidations(&s), [pages, 0, 0, 0]);
                let range = VaRange::pages_from(va, frames.len());
                let s = k.counted(|| k.pmaps.kremove(range).not_cached(&k.pmaps));
                assert_eq!(invalidations(&s), [0; 4]);
            }
            // The mapping cache's own invalidations.
            let s = k.flushed(|| k.pmaps.invalidate_local(va));
            assert_eq!(invalidations(&s), [1, 0, 0, 0]);
            let s = k.flushed(|| k.pmaps.invalidate_remote(va, k.m.cpus()));
            let [issued, shootdowns, ipis] = asked(1);
            assert_eq!(invalidations(&s), [0, issued, shootdowns, ipis]);
            let s = k.flushed(|| k.pmaps.invalidate_remote(va, CpuSet::only(CpuId(0))));
            assert_eq!(invalidations(&s), [0; 4], "itself excluded");
            if others > 0 {
                let s = k.flushed(|| k.pmaps.invalidate_remote(va, CpuSet::only(CpuId(1))));
                assert_eq!(invalidations(&s), [0, 1, 1, 1]);
            }
        });
    }
}

#[test]
fn merged_changes_take_one_shootdown() {
    run(Shape::new(I386, 3), |k| {
        let va = k.kva.start();
        let s = k.flushed(|| {
            let mut change = k.pmaps.kenter(va, &[Pfn(2000)], Prot::RW);
            change.merge(k.pmaps.kenter(va + 8 * PAGE_SIZE, &[Pfn(2001); 2], Prot::RW));
            change.flush(&k.pmaps)
        });
        assert_eq!(invalidations(&s), [3, 3, 1, 2]);
        // More ranges than one request holds: as few requests as need be.
        let s = k.flushed(|| {
            let enter = |i: usize| k.pmaps.kenter(va + 2 * i * PAGE_SIZE, &[Pfn(2000)], Prot::RW);
            let mut change = enter(0);
            (1..7).for_each(|i| change.merge(enter(i)));
            change.flush(&k.pmaps)
        });
        assert_eq!(invalidations(&s), [7, 7, 3, 6]);
    });
}

#[test]
fn old_accessed_tells_whether_the_entry_was_used() {
    for machine in ALL {
        run(Shape::new(machine, 1), |k| {
            let va = k.kva.start();
            let enter = |frame| {
                let change = k.pmaps.kenter(va, &[frame], Prot::RW);
                let accessed = change.old_accessed();
                change.flush(&k.pmaps);
                accessed
            };
            assert!(!enter(Pfn(2000)), "nothing was there");
            assert!(!enter(Pfn(2001)), "it was not used");
            k.load(Mode::Kernel, va).unwrap();
            assert!(enter(Pfn(2002)));
            assert!(!enter(Pfn(2003)));
            k.m.store(Mode::Kernel, va, &[1]).unwrap();
            let change = k.pmaps.kremove(VaRange::page(va));
            assert!(change.old_accessed());
            change.flush(&k.pmaps);
        });
    }
}

/// What was merged says it of all of them, whichever came first.
#[test]
fn merging_keeps_that_an_entry_was_used() {
    for (machine, used, first) in ALL.into_iter().flat_map(|m| (0..4).map(move |n| (m, n & 1, n / 2))) {
        run(Shape::new(machine, 1), move |k| {
            let [a, b] = [0, 1].map(|page| k.kva.start() + page * PAGE_SIZE);
            k.pmaps.kenter(a, &[Pfn(2000); 2], Prot::RW).flush(&k.pmaps);
            k.load(Mode::Kernel, [a, b][used]).unwrap();
            let [mut change, other] = [first, 1 - first].map(|n| k.pmaps.kremove(VaRange::page([a, b][n])));
            assert_eq!([change.old_accessed(), other.old_accessed()], [used == first, used != first]);
            change.merge(other);
            assert!(change.old_accessed(), "{machine}");
            change.flush(&k.pmaps);
        });
    }
}

/// All CPUs read one kernel page while CPU 0 maps one frame after the other there.
fn remap_under_readers(
    shape: Shape,
    discharge: fn(pageferry_pmap::TlbFlush<pageferry_model::Model>, &Kernel),
) -> u64 {
    let (m, result) = try_run(shape, move |k| {
        let (va, rounds) = (k.kva.start(), 6u8);
        let frames: Vec<Pfn> = (0..=rounds).map(|_| k.frames.data()).collect();
        for (i, frame) in frames.iter().enumerate() {
            k.mark(*frame, i as u8);
        }
        k.pmaps.kenter(va, &frames[..1], Prot::READ).flush(&k.pmaps);
        // `reached` rises when a flush has returned: no reader may see an older frame from then on.
        let reached = Rc::new(Cell::new(0));
        for cpu in 1..shape.cpus {
            let reached = reached.clone();
            k.start(cpu, move |k| {
                while reached.get() < rounds {
                    let at_least = reached.get();
                    let seen = k.load(Mode::Kernel, va).unwrap();
                    // Under a planted fault the oracle speaks, not this.
                    assert!(seen >= at_least || !k.m.stale_uses().is_empty(), "{seen} after {at_least}");
                }
            });
        }
        for round in 1..=rounds {
            let change = k.pmaps.kenter(va, &frames[usize::from(round)..][..1], Prot::READ);
            discharge(change, k);
            reached.set(round);
            k.m.execute(Instructions(500));
        }
        k.wait();
    });
    assert_eq!(result, Ok(()), "{shape:?}");
    m.check().unwrap();
    m.snapshot().hardware.stale_uses
}

#[test]
fn after_a_flush_nothing_stale_is_used() {
    for shape in shapes() {
        for schedule in (0..16).map(Schedule::Seeded).chain([Schedule::Timed]) {
            assert_eq!(
                remap_under_readers(Shape { schedule, ..shape }, |c, k| {
                    c.flush(&k.pmaps);
                }),
                0
            );
        }
    }
}

#[test]
fn a_forgotten_flush_is_found() {
    for shape in shapes().filter(|s| s.cpus > 1) {
        let found = |discharge| {
            let seeds = (0..5).map(Schedule::Seeded);
            seeds.map(|schedule| remap_under_readers(Shape { schedule, ..shape }, discharge)).sum::<u64>()
        };
        assert!(
            found(|c, k| {
                c.flush_local(&k.pmaps);
            }) > 0,
            "{shape:?}: local only"
        );
        assert!(found(|c, k| c.not_cached(&k.pmaps)) > 0, "{shape:?}: none");
    }
}

#[test]
fn a_dropped_flush_is_loud() {
    let enter = |k: &Rc<Kernel>| drop(k.pmaps.kenter(k.kva.start(), &[Pfn(2000)], Prot::RW));
    let remove = |k: &Rc<Kernel>| drop(k.pmaps.kremove(VaRange::page(k.kva.start())));
    for work in [enter as fn(&Rc<Kernel>), remove] {
        let (_, result) = try_run(Shape::new(I386, 1), work);
        let text = "dropped without a flush";
        assert!(matches!(&result, Err(RunError::Panicked(t)) if t.contains(text)), "{result:?}");
    }
}

#[test]
fn initiators_do_not_wait_for_each_other_for_ever() {
    for shape in shapes() {
        for schedule in (0..10).map(Schedule::Seeded).chain([Schedule::Timed]) {
            let shape = Shape { schedule, ..shape };
            let m = run(shape, move |k| {
                let work = |cpu: usize| {
                    move |k: &Kernel| {
                        let va = k.kva.start() + 16 * cpu * PAGE_SIZE;
                        for i in 0..8 {
                            k.pmaps.kenter(va, &[Pfn(2000 + i); 5], Prot::RW).flush(&k.pmaps);
                            k.m.store(Mode::Kernel, va, &[cpu as u8]).unwrap();
                            k.pmaps.kremove(VaRange::pages_from(va, 5)).flush(&k.pmaps);
                        }
                    }
                };
                (1..shape.cpus).for_each(|cpu| k.start(cpu, work(cpu)));
                work(0)(k);
                k.wait();
            });
            let (cpus, changes) = (shape.cpus as u64, 16 * shape.cpus as u64);
            let asked = if cpus == 1 { [0; 3] } else { [5 * changes, changes, changes * (cpus - 1)] };
            let [issued, shootdowns, ipis] = asked;
            assert_eq!(invalidations(&m.snapshot()), [5 * changes, issued, shootdowns, ipis]);
        }
    }
}

#[test]
fn a_retired_cpu_is_not_waited_for() {
    for shape in shapes().filter(|s| s.cpus > 1) {
        run(shape, move |k| {
            k.on(1, |k| {
                k.pmaps.retire_cpu();
                // It may run on for a while, and comes back in order to retire again at the end of the test.
            });
            let s = k.flushed(|| k.pmaps.kenter(k.kva.start(), &[Pfn(2000)], Prot::RW).flush(&k.pmaps));
            let asked = shape.cpus as u64 - 2;
            assert_eq!(invalidations(&s), if asked == 0 { [1, 0, 0, 0] } else { [1, 1, 1, asked] });
            k.on(1, |k| k.pmaps.init_cpu());
        });
    }
}

#[test]
fn frames_are_cleared_and_copied_on_every_cpu_at_once() {
    for shape in shapes() {
        for schedule in (0..4).map(Schedule::Seeded).chain([Schedule::Timed]) {
            let shape = Shape { schedule, ..shape };
            run(shape, move |k| {
                let work = |cpu: usize| {
                    move |k: &Kernel| {
                        let (from, to, clear) = (k.frames.data(), k.frames.data(), k.frames.data());
                        for round in 0..3 {
                            let byte = (16 * cpu + round) as u8;
                            k.mark(from, byte);
                            k.mark(clear, 0xff);
                            k.pmaps.copy_page(from, to);
                            k.pmaps.zero_page(clear);
                            assert_eq!(k.m.frame_bytes(to), k.m.frame_bytes(from));
                            assert_eq!(k.m.frame_bytes(to)[0], byte);
                            assert_eq!(k.m.frame_bytes(clear), [0; PAGE_SIZE]);
                        }
                    }
                };
                (1..shape.cpus).for_each(|cpu| k.start(cpu, work(cpu)));
                work(0)(k);
                k.wait();
                let s = k.counted(|| {
                    k.pmaps.zero_page(Pfn(3000));
                    k.pmaps.copy_page(Pfn(3000), Pfn(3001));
                });
                let local = if k.m.board().layout.direct_map.is_none() { 3 } else { 0 };
                assert_eq!(invalidations(&s), [local, 0, 0, 0]);
                assert!(s.cause(Cause::Zero) > 0 && s.cause(Cause::Copy) > 0);
            });
        }
    }
}

#[test]
fn equal_runs_are_equal() {
    let once = |schedule| {
        let shape = Shape { schedule, ..Shape::new(I386, 4) };
        let (m, result) = try_run(shape, |k| {
            for cpu in 1..4 {
                k.start(cpu, |k| k.pmaps.zero_page(k.frames.data()));
            }
            k.pmaps.kenter(k.kva.start(), &[Pfn(2000); 3], Prot::RW).flush(&k.pmaps);
            k.wait();
        });
        result.unwrap();
        m.snapshot()
    };
    for schedule in [Schedule::Timed, Schedule::Seeded(3)] {
        assert_eq!(once(schedule), once(schedule));
    }
}

/// A cache that writes back has to before another colour reads; one that writes through has only to forget before
/// another stores.
#[test]
fn what_is_stored_by_one_colour_is_read_by_another() {
    for (machine, purged) in [("sh7751r", [1, 1, 1]), ("ultrasparc-iie", [0, 1, 0])] {
        run(Shape::new(machine, 1), move |k| {
            let frame = k.frames.data();
            let (one, other) = (k.kva.start(), k.kva.start() + PAGE_SIZE);
            k.pmaps.kenter(one, &[frame], Prot::RW).flush(&k.pmaps);
            assert_ne!(k.pmaps.colour(one), k.pmaps.colour(other));
            k.m.store(Mode::Kernel, one, &[1]).unwrap();
            let count = || k.m.snapshot().counter(PmapCounter::ColoursPurged);
            let before = count();
            k.pmaps.kenter(other, &[frame], Prot::READ).flush(&k.pmaps);
            assert_eq!(k.load(Mode::Kernel, other).unwrap(), 1);
            let read = count();
            k.pmaps.claim(frame, one, Reach::Write);
            k.m.store(Mode::Kernel, one, &[2]).unwrap();
            let stored = count();
            k.pmaps.claim(frame, other, Reach::Read);
            assert_eq!(k.load(Mode::Kernel, other).unwrap(), 2);
            assert_eq!([read - before, stored - read, count() - stored], purged, "{machine}");
        });
    }
}

/// What no memory lies behind is not mapped, and none of it is a process's.
#[test]
fn a_direct_map_that_is_in_no_table_ends_with_memory() {
    // Memory that ends where one of its entries does: of 4 MB, and of 256 MB.
    direct_map_ends_with_memory(Shape::new("ultrasparc-iie", 1));
    direct_map_ends_with_memory(Shape { size_mb: 512, ..Shape::new("itanium2", 1) });
}

fn direct_map_ends_with_memory(shape: Shape) {
    run(shape, |k| {
        let end = Pfn(k.m.board().frames as u32);
        let last = k.pmaps.direct_va(Pfn(end.0 - 1)).expect("there is a direct map");
        assert!(k.load(Mode::Kernel, last).is_ok());
        let kind = |mode, va| k.load(mode, va).unwrap_err().trap.kind;
        assert_eq!(kind(Mode::Kernel, last + PAGE_SIZE), TrapKind::NotPresent);
        assert_eq!(kind(Mode::User, last), TrapKind::Protection);
        let misses =
            k.counted(|| (0..8).for_each(|i| _ = k.load(Mode::Kernel, Va(last.0 - (i * PAGE_SIZE) as u64))));
        assert_eq!(misses.hardware.tlb_misses, 0, "one entry maps 4 MB or more");
    });
}

#[test]
fn memory_is_missed_once_for_each_piece_that_maps_it() {
    let misses = |machine: &'static str| {
        let missed = Rc::new(Cell::new(0));
        let out = missed.clone();
        run(Shape { size_mb: 1024, ..Shape::new(machine, 1) }, move |k| {
            let load_one = |frame: u32| {
                let at = k.pmaps.direct_va(Pfn(frame)).expect("a direct map");
                k.load(Mode::Kernel, at).expect("all of memory is mapped");
            };
            let frames = k.m.board().frames as u32;
            // Eight a superpage: enough to tell pieces of each size.
            let hw = k.counted(|| (0..frames).step_by(64).for_each(load_one)).hardware;
            out.set(hw.tlb_misses);
        });
        missed.get()
    };
    let (loads, superpages) = (4096, 512);
    assert_eq!(misses("today+pte"), loads);
    assert_eq!(misses("today+2m"), superpages);
    assert_eq!(misses("today+1g"), 1);
    let split = superpages * 34 / 100;
    assert_eq!(misses("today+fragmented"), split * 8 + superpages - split);
}

#[test]
fn low_memory_lies_at_the_kernels_base_where_the_board_leaves_that_open() {
    run(Shape::new(I386, 1), |k| assert_eq!(k.pmaps.direct_va(k.first_free), None));
    run(Shape::new("xeon-up+low", 1), |k| {
        let board = k.m.board();
        for frame in (0..board.frames as u32).map(Pfn) {
            let at = board.layout.kernel_base + frame.pa().0 as usize;
            assert_eq!(k.pmaps.direct_va(frame), Some(at));
            k.load(Mode::Kernel, at).expect("all of memory is mapped");
        }
        assert!(k.kva.start() >= board.layout.kernel_base + board.frames * PAGE_SIZE, "{:?}", k.kva);
    });
    // The kernel has a gigabyte of addresses on i386, and some are for what it maps page by page.
    let low = PmapConfig { low_memory: true, ..CONFIG };
    let refused_with = |size_mb| refused(Shape { size_mb, ..Shape::new(I386, 1) }, low);
    assert_eq!(refused_with(896), None);
    assert_eq!(refused_with(1024), Some(PmapError::MemoryTooLarge { frames: 1024 << 8 }));
    // Elsewhere the board says where memory is.
    let direct = |machine| {
        let first = Rc::new(Cell::new(None));
        let out = first.clone();
        run(Shape::new(machine, 1), move |k| out.set(k.pmaps.direct_va(Pfn(0))));
        first.get()
    };
    assert_eq!(direct("today+low"), direct("today"));
}
