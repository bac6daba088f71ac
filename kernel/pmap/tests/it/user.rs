//! User mappings: what is entered is found, what is removed is gone, and the counts are right.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Model;
use pageferry_model::{RunError, Schedule};
use pageferry_pmap::{Pmap, PmapError, TlbFlush};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

const VA: Va = Va(0x40_0000);

fn enter(k: &Kernel, pmap: &Pmap<Model>, va: Va, frame: Pfn, prot: Prot) {
    k.enter(pmap, va, frame, prot);
}

fn destroy(k: &Kernel, pmap: Pmap<Model>) {
    k.destroy(pmap);
}

#[derive(Clone, Debug)]
enum Op {
    Enter { space: usize, page: usize, frame: usize, write: bool, wired: bool },
    Remove { space: usize, page: usize, len: usize },
    Protect { space: usize, page: usize, len: usize, prot: Prot },
    Wire { space: usize, page: usize, wired: bool },
    PageProtect { frame: usize, prot: Prot },
}

/// Addresses in several leaf tables, and near the ends of user space on most machines.
fn address(page: usize) -> Va {
    const BASES: [u64; 4] = [0x1000, 0x7f_e000, 0x4000_0000, 0x7fff_b000];
    Va(BASES[page / 4] + (page % 4 * PAGE_SIZE) as u64)
}
const PAGES: usize = 16;
const FRAMES: usize = 5;

fn op() -> impl Strategy<Value = Op> {
    let (space, page, frame, flag) = (0..2usize, 0..PAGES, 0..FRAMES, any::<bool>());
    let prot = prop_oneof![Just(Prot::empty()), Just(Prot::READ), Just(Prot::RW)];
    let len = 0..PAGES;
    prop_oneof![
        6 => (space.clone(), page.clone(), frame.clone(), flag, any::<bool>())
            .prop_map(|(space, page, frame, write, wired)| Op::Enter { space, page, frame, write, wired }),
        2 => (space.clone(), page.clone(), len.clone()).prop_map(|(space, page, len)| Op::Remove { space, page, len }),
        2 => (space.clone(), page.clone(), len, prot.clone())
            .prop_map(|(space, page, len, prot)| Op::Protect { space, page, len, prot }),
        1 => (space, page, any::<bool>()).prop_map(|(space, page, wired)| Op::Wire { space, page, wired }),
        2 => (frame, prot).prop_map(|(frame, prot)| Op::PageProtect { frame, prot }),
    ]
}

/// What should be mapped: frame, writable, wired.
type Mirror = [BTreeMap<usize, (usize, bool, bool)>; 2];

fn apply(k: &Kernel, spaces: &[Pmap<Model>; 2], frames: &[Pfn], mirror: &mut Mirror, op: &Op) {
    let range = |page: usize, len: usize| {
        let last = (page + len).min(PAGES - 1);
        VaRange::new(address(page), address(last).max(address(page)))
    };
    let change = match *op {
        Op::Enter { space, page, frame, write, wired } => {
            let prot = if write { Prot::RW } else { Prot::READ };
            mirror[space].insert(page, (frame, write, wired));
            k.pmaps.enter(&k.frames, &spaces[space], address(page), frames[frame], prot, wired).unwrap()
        }
        Op::Remove { space, page, len } => {
            let range = range(page, len);
            mirror[space].retain(|&p, _| !range.contains(address(p)));
            k.pmaps.remove(&spaces[space], range)
        }
        Op::Protect { space, page, len, prot } => {
            let range = range(page, len);
            if prot.is_empty() {
                mirror[space].retain(|&p, _| !range.contains(address(p)));
            } else {
                let inside = mirror[space].iter_mut().filter(|(p, _)| range.contains(address(**p)));
                inside.for_each(|(_, m)| m.1 &= prot.contains(Prot::WRITE));
            }
            k.pmaps.protect(&spaces[space], range, prot)
        }
        Op::Wire { space, page, wired } => {
            if let Some(m) = mirror[space].get_mut(&page) {
                m.2 = wired;
                k.pmaps.set_wired(&spaces[space], address(page), wired);
            }
            TlbFlush::new()
        }
        Op::PageProtect { frame, prot } => {
            for map in mirror.iter_mut() {
                if prot.is_empty() {
                    map.retain(|_, m| m.0 != frame);
                }
                map.values_mut().filter(|m| m.0 == frame).for_each(|m| m.1 &= prot.contains(Prot::WRITE));
            }
            k.pmaps.page_protect(frames[frame], prot)
        }
    };
    change.flush(&k.pmaps);
}

fn compare(k: &Kernel, spaces: &[Pmap<Model>; 2], frames: &[Pfn], mirror: &Mirror) {
    for (pmap, map) in spaces.iter().zip(mirror) {
        for page in 0..PAGES {
            let expected =
                map.get(&page).map(|&(f, write, _)| (frames[f], if write { Prot::RW } else { Prot::READ }));
            assert_eq!(k.pmaps.extract(pmap, address(page)), expected, "page {page}");
        }
        assert_eq!(pmap.resident_pages(), map.len());
        assert_eq!(pmap.wired_pages(), map.values().filter(|m| m.2).count());
    }
    for (i, frame) in frames.iter().enumerate() {
        let expected = mirror.iter().flat_map(|m| m.values()).filter(|m| m.0 == i).count();
        assert_eq!(k.pmaps.mappings(*frame), expected, "mappings of frame {i}");
    }
}

/// Reads and writes every page in user mode: the MMU agrees with the mirror, also through what TLBs still hold.
fn use_all(k: &Kernel, pmap: &Pmap<Model>, map: &BTreeMap<usize, (usize, bool, bool)>) {
    k.pmaps.activate(None, Some(pmap));
    for page in 0..PAGES {
        let va = address(page);
        match map.get(&page) {
            None => {
                assert_eq!(k.load(Mode::User, va).unwrap_err().trap.kind, TrapKind::NotPresent);
            }
            Some(&(frame, write, _)) => {
                assert_eq!(usize::from(k.load(Mode::User, va).unwrap()), frame);
                let stored = k.m.store(Mode::User, va + 1, &[1]);
                assert_eq!(
                    stored.map_err(|e| e.trap.kind),
                    if write { Ok(()) } else { Err(TrapKind::Protection) }
                );
            }
        }
    }
    k.pmaps.activate(Some(pmap), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn mappings_are_what_was_asked_for(
        ops in prop::collection::vec(op(), 1..40),
        kind in 0..ALL.len(),
        cpus in 1..3usize,
    ) {
        let machine = ALL[kind];
        run(Shape::new(machine, cpus), move |k| {
            let spaces = [k.pmaps.create(&k.frames).unwrap(), k.pmaps.create(&k.frames).unwrap()];
            let frames: Vec<Pfn> = (0..FRAMES).map(|_| k.frames.data()).collect();
            for (i, frame) in frames.iter().enumerate() {
                k.mark(*frame, i as u8);
            }
            let mut mirror = Mirror::default();
            for op in &ops {
                apply(k, &spaces, &frames, &mut mirror, op);
                compare(k, &spaces, &frames, &mirror);
                for (pmap, map) in spaces.iter().zip(&mirror) {
                    use_all(k, pmap, map);
                }
            }
            spaces.into_iter().for_each(|pmap| destroy(k, pmap));
            assert_eq!(k.frames.out(), FRAMES, "all page tables came back");
            assert!(frames.iter().all(|f| k.pmaps.mappings(*f) == 0));
        });
    }
}

#[test]
fn every_mapping_of_a_frame_is_reached() {
    for shape in shapes() {
        run(shape, |k| {
            let (frame, other) = (k.frames.data(), k.frames.data());
            let pmaps: Vec<_> = (0..6).map(|_| k.pmaps.create(&k.frames).unwrap()).collect();
            for (i, pmap) in pmaps.iter().enumerate() {
                enter(k, pmap, VA + i * 0x10_0000, frame, Prot::RW);
                enter(k, pmap, VA + 0x80_0000, frame, Prot::RW);
                enter(k, pmap, VA, other, Prot::RW);
            }
            // On pmap 0, va and the first of the frame's addresses are the same.
            assert_eq!(k.pmaps.mappings(frame), 11);
            k.pmaps.page_protect(frame, Prot::READ).flush(&k.pmaps);
            for pmap in &pmaps {
                assert_eq!(k.pmaps.extract(pmap, VA + 0x80_0000), Some((frame, Prot::READ)));
                assert_eq!(k.pmaps.extract(pmap, VA), Some((other, Prot::RW)));
            }
            k.pmaps.page_protect(frame, Prot::empty()).flush(&k.pmaps);
            assert_eq!((k.pmaps.mappings(frame), k.pmaps.mappings(other)), (0, 6));
            assert!(pmaps.iter().all(|p| p.resident_pages() == 1));
            pmaps.into_iter().for_each(|p| destroy(k, p));
            assert_eq!(k.frames.out(), 2);
        });
    }
}

#[test]
fn referenced_and_modified_outlive_the_mapping() {
    for shape in shapes() {
        run(shape, |k| {
            let frame = k.frames.data();
            let (a, b) = (k.pmaps.create(&k.frames).unwrap(), k.pmaps.create(&k.frames).unwrap());
            let state = || (k.pmaps.is_referenced(frame), k.pmaps.is_modified(frame));
            enter(k, &a, VA, frame, Prot::RW);
            enter(k, &b, VA + PAGE_SIZE, frame, Prot::RW);
            assert_eq!(state(), (false, false), "no access has used it yet");
            k.pmaps.activate(None, Some(&b));
            k.load(Mode::User, VA + PAGE_SIZE).unwrap();
            assert_eq!(state(), (true, false));
            k.m.store(Mode::User, VA + PAGE_SIZE, &[1]).unwrap();
            assert_eq!(state(), (true, true));

            // Cleared, and set again by the next use, although it was in the TLB.
            k.pmaps.clear_modified(frame).flush(&k.pmaps);
            assert_eq!(state(), (true, false));
            k.m.store(Mode::User, VA + PAGE_SIZE, &[2]).unwrap();
            assert_eq!(state(), (true, true));
            k.pmaps.clear_referenced(frame).flush(&k.pmaps);
            assert_eq!(state(), (false, true));
            k.load(Mode::User, VA + PAGE_SIZE).unwrap();
            assert_eq!(state(), (true, true));

            // What the entry said is kept: when it is write-protected, replaced, and removed.
            k.pmaps.protect(&b, VaRange::page(VA + PAGE_SIZE), Prot::READ).flush(&k.pmaps);
            assert_eq!(state(), (true, true));
            enter(k, &b, VA + PAGE_SIZE, k.frames.data(), Prot::RW);
            assert_eq!(state(), (true, true));
            k.pmaps.page_protect(frame, Prot::empty()).flush(&k.pmaps);
            assert_eq!(state(), (true, true));
            k.pmaps.clear_modified(frame).flush(&k.pmaps);
            k.pmaps.clear_referenced(frame).flush(&k.pmaps);
            assert_eq!(state(), (false, false));
            k.pmaps.activate(Some(&b), None);
            [a, b].into_iter().for_each(|p| destroy(k, p));
        });
    }
}

#[test]
fn a_range_in_sparse_space_is_removed_whole() {
    for machine in ALL {
        run(Shape::new(machine, 1), move |k| {
            let pmap = k.pmaps.create(&k.frames).unwrap();
            let frame = k.frames.data();
            let end = k.m.board().layout.user_end;
            let spots = [0x1000, 0x3f_f000, 0x40_0000, 0x7000_0000, end.0 - PAGE_SIZE as u64];
            for va in spots {
                enter(k, &pmap, Va(va), frame, Prot::READ);
            }
            assert_eq!(pmap.resident_pages(), spots.len());
            let all = VaRange::new(Va(0x1000), end);
            let mut change = k.pmaps.remove(&pmap, VaRange::new(Va(0x2000), Va(0x40_0000)));
            assert_eq!(pmap.resident_pages(), spots.len() - 1);
            change.merge(k.pmaps.remove(&pmap, all));
            change.flush(&k.pmaps);
            assert_eq!((pmap.resident_pages(), k.pmaps.mappings(frame)), (0, 0));
            k.pmaps.destroy(&k.frames, pmap);
            assert_eq!(k.frames.out(), 1);
        });
    }
}

#[test]
fn what_is_entered_again_was_found() {
    for machine in ALL {
        run(Shape::new(machine, 1), move |k| {
            let pmap = k.pmaps.create(&k.frames).unwrap();
            let frames = [k.frames.data(), k.frames.data()];
            let enter = |frame, prot| {
                let change = k.pmaps.enter(&k.frames, &pmap, VA, frame, prot, false).unwrap();
                let found = change.found();
                change.flush(&k.pmaps);
                found
            };
            let (first, other) = (frames[0], frames[1]);
            assert!(!enter(first, Prot::READ), "nothing was there");
            assert!(enter(first, Prot::READ));
            assert!(!enter(first, Prot::RW), "more is permitted");
            k.pmaps.activate(None, Some(&pmap));
            k.m.store(Mode::User, VA, b"x").unwrap();
            assert!(enter(first, Prot::RW), "and it was used");
            k.pmaps.activate(Some(&pmap), None);
            assert!(!enter(first, Prot::READ), "less is");
            assert!(!enter(other, Prot::READ), "another frame");
            destroy(k, pmap);
        });
    }
}

#[test]
fn without_frames_nothing_is_entered() {
    for machine in ALL {
        run(Shape::new(machine, 1), move |k| {
            k.frames.limit.set(0);
            assert!(matches!(k.pmaps.create(&k.frames), Err(PmapError::NoFrame)));
            k.frames.limit.set(1);
            let pmap = k.pmaps.create(&k.frames).unwrap();
            let levels =
                if let Mmu::Radix(format) = k.m.board().mmu { format.levels as usize - 1 } else { 1 };
            for spare in 0..levels {
                k.frames.limit.set(1 + spare);
                let entered = k.pmaps.enter(&k.frames, &pmap, VA, Pfn(9), Prot::READ, false);
                assert!(matches!(entered.map(drop), Err(PmapError::NoFrame)));
                assert_eq!((k.frames.out(), pmap.resident_pages()), (1, 0));
                assert_eq!(k.pmaps.extract(&pmap, VA), None);
            }
            k.frames.limit.set(1 + levels);
            enter(k, &pmap, VA, Pfn(9), Prot::READ);
            destroy(k, pmap);
            assert_eq!(k.frames.out(), 0);
        });
    }
}

#[test]
fn reverse_mappings_are_as_many_as_the_arena_holds() {
    run(Shape::new(I386, 1), |k| {
        let pmap = k.pmaps.create(&k.frames).unwrap();
        let frame = k.frames.data();
        let mut pages = 0;
        let full = loop {
            match k.pmaps.enter(&k.frames, &pmap, VA + pages * PAGE_SIZE, frame, Prot::READ, false) {
                Ok(change) => {
                    change.flush(&k.pmaps);
                }
                Err(e) => break e,
            }
            pages += 1;
        };
        assert_eq!(full, PmapError::NoReverseEntry { capacity: pages });
        // Replacing one still works, and so does entering after a removal.
        enter(k, &pmap, VA, k.frames.data(), Prot::READ);
        k.pmaps.remove(&pmap, VaRange::page(VA)).flush(&k.pmaps);
        enter(k, &pmap, VA + pages * PAGE_SIZE, frame, Prot::READ);
        assert_eq!((pmap.resident_pages(), k.pmaps.mappings(frame)), (pages, pages));
        destroy(k, pmap);
    });
}

#[test]
fn user_changes_concern_only_the_cpus_that_have_the_space() {
    for shape in shapes() {
        run(shape, move |k| {
            let pmap = Rc::new(k.pmaps.create(&k.frames).unwrap());
            let (frame, other) = (k.frames.data(), k.frames.data());
            let counts = |work: &dyn Fn()| invalidations(&k.counted(work));
            assert_eq!(counts(&|| enter(k, &pmap, VA, frame, Prot::RW)), [0; 4], "nothing was there");
            assert_eq!(counts(&|| enter(k, &pmap, VA, frame, Prot::RW)), [0; 4], "the same again");
            assert_eq!(counts(&|| enter(k, &pmap, VA, other, Prot::RW)), [0; 4], "no CPU has it loaded");
            k.pmaps.activate(None, Some(&pmap));
            assert_eq!(counts(&|| enter(k, &pmap, VA, frame, Prot::RW)), [1, 0, 0, 0]);
            let others = k.m.board().cpus as u64 - 1;
            for cpu in 1..=others {
                let theirs = pmap.clone();
                k.on(cpu as usize, move |k| k.pmaps.activate(None, Some(&theirs)));
                let expected = [1, 1, 1, cpu];
                assert_eq!(counts(&|| enter(k, &pmap, VA, other, Prot::READ)), expected);
                assert_eq!(counts(&|| enter(k, &pmap, VA, frame, Prot::RW)), expected);
            }
            k.pmaps.activate(Some(&pmap), None);
            assert_eq!(counts(&|| enter(k, &pmap, VA, other, Prot::RW))[0], 1, "lazily loaded");
            for cpu in 1..=others {
                let pmap = pmap.clone();
                k.on(cpu as usize, move |k| k.pmaps.activate(Some(&pmap), None));
            }
            let pmap = Rc::into_inner(pmap).expect("the jobs are done");
            destroy(k, pmap);
            assert_eq!(k.frames.out(), 2);
        });
    }
}

#[test]
fn large_removals_reload_the_root() {
    for shape in shapes() {
        run(shape, move |k| {
            let pmap = Rc::new(k.pmaps.create(&k.frames).unwrap());
            let pages = CONFIG.full_flush_pages + 1;
            let frame = k.frames.data();
            let fill = || {
                for i in 0..pages {
                    enter(k, &pmap, VA + i * PAGE_SIZE, frame, Prot::RW);
                    k.load(Mode::User, VA + i * PAGE_SIZE).unwrap();
                }
            };
            let cpus = k.m.board().cpus;
            for cpu in (0..cpus).rev() {
                let pmap = pmap.clone();
                k.on(cpu, move |k| k.pmaps.activate(None, Some(&pmap)));
            }
            for len in [pages - 1, pages] {
                fill();
                (1..cpus).for_each(|cpu| k.on(cpu, |k| assert!(k.load(Mode::User, VA).is_ok())));
                let s = k.flushed(|| k.pmaps.remove(&pmap, VaRange::pages_from(VA, len)).flush(&k.pmaps));
                let asked = if cpus == 1 { [0; 3] } else { [len as u64, 1, cpus as u64 - 1] };
                assert_eq!(invalidations(&s), [len as u64, asked[0], asked[1], asked[2]]);
                let one_by_one = if len < pages { len * cpus } else { 0 };
                assert_eq!(s.hardware.page_invalidations, one_by_one as u64);
                assert!(k.load(Mode::User, VA).is_err());
                for cpu in 1..cpus {
                    k.on(cpu, |k| assert!(k.load(Mode::User, VA).is_err()));
                }
                k.pmaps.remove(&pmap, VaRange::pages_from(VA, pages)).flush(&k.pmaps);
            }
            for cpu in 0..cpus {
                let pmap = pmap.clone();
                k.on(cpu, move |k| k.pmaps.activate(Some(&pmap), None));
            }
            destroy(k, Rc::into_inner(pmap).expect("the jobs are done"));
        });
    }
}

#[test]
fn a_kernel_thread_keeps_the_address_space_until_it_is_destroyed() {
    for shape in shapes().filter(|s| s.cpus > 1) {
        run(shape, |k| {
            let pmap = Rc::new(k.pmaps.create(&k.frames).unwrap());
            let frame = k.frames.data();
            enter(k, &pmap, VA, frame, Prot::RW);
            let p = pmap.clone();
            k.on(1, move |k| {
                k.pmaps.activate(None, Some(&p));
                k.load(Mode::User, VA).unwrap();
                k.pmaps.activate(Some(&p), None);
                let s = k.counted(|| {
                    k.pmaps.activate(None, Some(&p));
                    k.load(Mode::User, VA).unwrap();
                    k.pmaps.activate(Some(&p), None);
                });
                assert_eq!(s.hardware.tlb_misses, 0, "the same process came back");
            });
            let pmap = Rc::into_inner(pmap).expect("the job is done");
            k.pmaps.remove(&pmap, VaRange::page(VA)).flush(&k.pmaps);
            let before = k.frames.out();
            k.pmaps.destroy(&k.frames, pmap);
            assert!(k.frames.out() < before);
            // Its root may be anything now; the CPU that had it must run on another.
            (0..8).for_each(|_| k.pmaps.zero_page(k.frames.data()));
            k.on(1, |k| {
                let page = k.kva.start();
                k.pmaps.kenter(page, &[Pfn(7)], Prot::RW).flush(&k.pmaps);
                k.m.store(Mode::Kernel, page, &[1]).unwrap();
            });
        });
    }
}

#[test]
fn an_idle_cpu_answers_one_shootdown() {
    // Where a space has the same tag on all CPUs, its entries stay where it ran.
    for shape in shapes().filter(|s| s.cpus > 1 && s.machine != "mini-hash") {
        run(shape, |k| {
            let pmap = Rc::new(k.pmaps.create(&k.frames).unwrap());
            let pages = VaRange::pages_from(VA, 3);
            pages.pages().for_each(|va| enter(k, &pmap, va, k.frames.data(), Prot::RW));
            let ran = |k: &Kernel| {
                let p = pmap.clone();
                k.on(1, move |k| {
                    k.pmaps.activate(None, Some(&p));
                    let stored = pages
                        .pages()
                        .map(|va| k.m.store(Mode::User, va, &[1]).is_ok())
                        .filter(|ok| *ok)
                        .count();
                    k.pmaps.activate(Some(&p), None);
                    assert_eq!(stored, p.resident_pages());
                });
            };
            ran(k);
            let counts = |page| {
                let va = VA + page * PAGE_SIZE;
                invalidations(&k.flushed(|| k.pmaps.remove(&pmap, VaRange::page(va)).flush(&k.pmaps)))
            };
            assert_eq!(counts(0), [0, 1, 1, 1], "it is idle, but its TLB has the page");
            assert_eq!(counts(1), [0; 4], "it has left, and what its TLB has is out of reach");
            ran(k);
            destroy(k, Rc::into_inner(pmap).expect("the jobs are done"));
        });
    }
}

#[test]
fn permissions_are_added_without_a_shootdown() {
    for shape in shapes().filter(|s| s.cpus > 1 && RADIX.contains(&s.machine)) {
        run(shape, |k| {
            let pmap = Rc::new(k.pmaps.create(&k.frames).unwrap());
            let frame = k.frames.data();
            enter(k, &pmap, VA, frame, Prot::RW);
            let p = pmap.clone();
            k.on(1, move |k| {
                k.pmaps.activate(None, Some(&p));
                k.m.store(Mode::User, VA, &[1]).unwrap();
                k.pmaps.activate(Some(&p), None);
            });
            let counts = |work: &dyn Fn()| invalidations(&k.counted(work));
            let narrow = || {
                k.pmaps.protect(&pmap, VaRange::page(VA), Prot::READ).flush(&k.pmaps);
            };
            assert_eq!(counts(&narrow), [0, 1, 1, 1], "it is idle, but its TLB has the page");
            assert_eq!(counts(&|| enter(k, &pmap, VA, frame, Prot::RW)), [0; 4], "an addition");
            assert_eq!(counts(&narrow), [0; 4], "it has left");
            let p = pmap.clone();
            k.on(1, move |k| {
                k.pmaps.activate(None, Some(&p));
                k.load(Mode::User, VA).unwrap();
            });
            assert_eq!(
                counts(&|| enter(k, &pmap, VA, frame, Prot::RW)),
                [0; 4],
                "an addition, and it runs there"
            );
            let p = pmap.clone();
            k.on(1, move |k| {
                assert!(k.m.store(Mode::User, VA, &[2]).is_err(), "what the TLB knew");
                k.m.store(Mode::User, VA, &[2]).expect("what the table says");
                k.pmaps.activate(Some(&p), None);
            });
            destroy(k, Rc::into_inner(pmap).expect("the jobs are done"));
        });
    }
}

#[test]
fn an_address_space_in_use_is_not_destroyed() {
    let panics = |text: &'static str, test: fn(&Rc<Kernel>)| {
        let (_, result) = try_run(Shape::new(I386, 1), test);
        assert!(matches!(&result, Err(RunError::Panicked(t)) if t.contains(text)), "{result:?}");
    };
    panics("with mappings in it", |k| {
        let pmap = k.pmaps.create(&k.frames).unwrap();
        enter(k, &pmap, VA, Pfn(9), Prot::READ);
        k.pmaps.destroy(&k.frames, pmap);
    });
    panics("runs a process", |k| {
        let pmap = k.pmaps.create(&k.frames).unwrap();
        k.pmaps.activate(None, Some(&pmap));
        k.pmaps.destroy(&k.frames, pmap);
    });
    panics("not in user space", |k| {
        let pmap = k.pmaps.create(&k.frames).unwrap();
        enter(k, &pmap, Va(0xc000_0000), Pfn(9), Prot::READ);
    });
}

/// CPU 0 enters one frame after the other at an address; the others come, read there, and leave for another space.
fn remap_under_visitors(shape: Shape, flush: bool) -> u64 {
    let (m, result) = try_run(shape, move |k| {
        let rounds = 5u8;
        let spaces = Rc::new([k.pmaps.create(&k.frames).unwrap(), k.pmaps.create(&k.frames).unwrap()]);
        let frames: Vec<Pfn> = (0..=rounds).map(|_| k.frames.data()).collect();
        for (i, frame) in frames.iter().enumerate() {
            k.mark(*frame, i as u8);
        }
        enter(k, &spaces[0], VA, frames[0], Prot::READ);
        // `reached` rises when a flush has returned: no reader may see an older frame from then on.
        let reached = Rc::new(Cell::new(0));
        for cpu in 1..shape.cpus {
            let (reached, spaces) = (reached.clone(), spaces.clone());
            k.start(cpu, move |k| {
                let mut from = None;
                while reached.get() < rounds {
                    k.pmaps.activate(from, Some(&spaces[0]));
                    for _ in 0..4 {
                        let at_least = reached.get();
                        let seen = k.load(Mode::User, VA).unwrap();
                        assert!(seen >= at_least || !flush, "{seen} after {at_least}");
                    }
                    k.pmaps.activate(Some(&spaces[0]), Some(&spaces[1]));
                    from = Some(&spaces[1]);
                }
                k.pmaps.activate(from, None);
            });
        }
        for round in 1..=rounds {
            let frame = frames[usize::from(round)];
            let change = k.pmaps.enter(&k.frames, &spaces[0], VA, frame, Prot::READ, false).unwrap();
            if flush {
                change.flush(&k.pmaps);
            } else {
                change.not_cached(&k.pmaps);
            }
            reached.set(round);
            k.m.execute(Instructions(500));
        }
        k.wait();
        let [a, b] = Rc::into_inner(spaces).expect("the jobs are done");
        destroy(k, a);
        destroy(k, b);
        assert_eq!(k.frames.out(), frames.len());
    });
    assert_eq!(result, Ok(()), "{shape:?}");
    m.check().unwrap();
    m.snapshot().hardware.stale_uses
}

#[test]
fn visitors_of_an_address_space_see_no_stale_page() {
    for shape in shapes().filter(|s| s.cpus > 1) {
        for schedule in (0..10).map(Schedule::Seeded).chain([Schedule::Timed]) {
            assert_eq!(remap_under_visitors(Shape { schedule, ..shape }, true), 0);
        }
        let unflushed =
            |seed| remap_under_visitors(Shape { schedule: Schedule::Seeded(seed), ..shape }, false);
        assert!((0..5).map(unflushed).sum::<u64>() > 0, "{shape:?}: a missing flush is found");
    }
}

#[test]
fn several_cpus_change_one_address_space_at_once() {
    for shape in shapes() {
        for schedule in (0..8).map(Schedule::Seeded).chain([Schedule::Timed]) {
            let shape = Shape { schedule, ..shape };
            run(shape, move |k| {
                let pmap = Rc::new(k.pmaps.create(&k.frames).unwrap());
                let shared = k.frames.data();
                let work = |cpu: usize| {
                    let pmap = pmap.clone();
                    move |k: &Kernel| {
                        k.pmaps.activate(None, Some(&pmap));
                        // Neighbours in one leaf table, and one frame in all of them.
                        let own = VA + cpu * PAGE_SIZE;
                        for _ in 0..4 {
                            enter(k, &pmap, own, shared, Prot::RW);
                            let stored = k.m.store(Mode::User, own, &[1]);
                            assert!(
                                stored.is_ok()
                                    || k.pmaps.extract(&pmap, own).is_none_or(|(_, p)| p == Prot::READ)
                            );
                            k.pmaps.page_protect(shared, Prot::READ).flush(&k.pmaps);
                            k.pmaps.remove(&pmap, VaRange::page(own)).flush(&k.pmaps);
                            assert!(k.load(Mode::User, own).is_err(), "own page is gone");
                        }
                        k.pmaps.activate(Some(&pmap), None);
                    }
                };
                (1..shape.cpus).for_each(|cpu| k.start(cpu, work(cpu)));
                work(0)(k);
                k.wait();
                assert_eq!((k.pmaps.mappings(shared), pmap.resident_pages()), (0, 0));
                k.pmaps.destroy(&k.frames, Rc::into_inner(pmap).expect("the jobs are done"));
                assert_eq!(k.frames.out(), 1, "also the tables that two CPUs brought for one place");
            });
        }
    }
}
