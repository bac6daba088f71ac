//! PowerPC machines: blocks, the hash table, tags that come back, and refills within other things.

use crate::common::*;
use pageferry_hal::isa::hash::{HPTE_H, HPTE_V};
use pageferry_hal::*;
use pageferry_model::{Model, Schedule};
use pageferry_pmap::{HashCensus, PmapCounter, PmapError, Whole};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// All of memory by blocks.
const BLOCKS: [&str; 8] = [
    "ppc603",
    "ppc603+slow+hash",
    "ppc604",
    "ppc604+slow",
    "ppc604-smp",
    "ppc603+bat",
    "ppc604+bat-io",
    "ppc603+bat-process",
];
/// All of memory by pages.
const PAGES: [&str; 4] = ["ppc603+pte", "ppc603+slow+hash+pte", "ppc604+pte", "ppc604+slow+pte"];
const RENEWING: [&str; 4] = ["ppc603+renew", "ppc603+hash+renew", "ppc604+renew", "ppc604+slow+pte+renew"];

const VA: Va = Va(0x40_0000);

/// Loads a byte of every page of memory, at its address in the direct map.
fn load_all_memory(k: &Kernel) {
    for frame in (0..k.m.board().frames as u32).map(Pfn) {
        k.load(Mode::Kernel, k.pmaps.direct_va(frame).expect("a direct map"))
            .expect("all of memory is mapped");
    }
}

#[test]
fn blocks_come_before_pages_take_no_entry_and_never_miss() {
    for machine in BLOCKS {
        run(Shape::new(machine, 1), move |k| {
            let entries = k.m.tlb_entries(CpuId(0));
            let hw = k.counted(|| load_all_memory(k)).hardware;
            let counts = [hw.tlb_lookups, hw.tlb_misses, hw.fetch_lookups, hw.kernel_misses()];
            assert_eq!(counts, [0; 4], "{machine}");
            assert_eq!(k.m.tlb_entries(CpuId(0)), entries, "{machine}");
        });
    }
    for machine in PAGES {
        run(Shape { size_mb: 16, ..Shape::new(machine, 1) }, move |k| {
            let hw = k.counted(|| load_all_memory(k)).hardware;
            assert!(hw.kernel_misses() >= 4096, "{machine}: every page is missed once at least");
        });
    }
}

#[test]
fn devices_have_a_block_where_the_kernel_is_told_so() {
    let mappings = ["", "+pte", "+bat", "+bat-io", "+bat-process"];
    for (machine, mapping) in
        ["ppc603", "ppc604"].into_iter().flat_map(|m| mappings.map(|mapping| (m, mapping)))
    {
        let name: &'static str = format!("{machine}{mapping}").leak();
        run(Shape { devices: true, ..Shape::new(name, 1) }, move |k| {
            let memory = k.m.board().device_memory.expect("the board has devices");
            let hw = k.counted(|| {
                for page in 0..memory.pages() {
                    k.load(Mode::Kernel, k.pmaps.device_va(page).expect("they are mapped"))
                        .expect("for the kernel");
                }
            });
            let (lookups, misses) = (hw.hardware.tlb_lookups, hw.hardware.tlb_misses);
            if mapping.starts_with("+bat-") {
                assert_eq!(lookups, 0, "{name}: blocks come before pages");
            } else {
                assert!(
                    misses as usize >= memory.pages(),
                    "{name}: {misses} misses of {} pages",
                    memory.pages()
                );
            }
        });
    }
}

/// The most entries that the kernel had in its TLBs while a program ran, before and after all was warm.
fn high_water(machine: &'static str) -> (usize, usize) {
    let water = Rc::new(Cell::new((0, 0)));
    let out = water.clone();
    run(Shape { size_mb: 16, ..Shape::new(machine, 1) }, move |k| {
        let space = k.pmaps.create(&k.frames).unwrap();
        let frame = k.frames.data();
        k.pmaps.kenter(k.kva.start(), &[frame; 2], Prot::RW).flush(&k.pmaps);
        k.pmaps.activate(None, Some(&space));
        let program = || {
            for i in 0..600 {
                let va = VA + i % 150 * PAGE_SIZE;
                k.enter(&space, va, frame, Prot::RW);
                k.m.store(Mode::User, va, &[1]).unwrap();
                k.m.copy_in(k.kva.start() + i % 2 * PAGE_SIZE, va + 64, 64).unwrap();
                k.m.execute(Instructions(1000));
            }
            k.m.take_max_kernel_entries()
        };
        let (first, second) = (program(), program());
        out.set((first, second));
        k.pmaps.activate(Some(&space), None);
        k.destroy(space);
    });
    water.get()
}

#[test]
fn under_blocks_the_kernel_has_as_many_entries_as_pages_of_its_own() {
    for machine in ["ppc603", "ppc603+slow+hash", "ppc604", "ppc604+slow"] {
        let (first, second) = high_water(machine);
        assert!(second > 0 && second <= first && first <= 2, "{machine}: {first}, {second}");
    }
    for machine in PAGES {
        let (first, second) = high_water(machine);
        assert!(first > 2 && second > 2, "{machine}: {first}, {second}");
    }
}

#[test]
fn misses_are_counted_by_what_is_missed() {
    for machine in PAGES {
        run(Shape { size_mb: 16, ..Shape::new(machine, 1) }, move |k| {
            let frames = [k.frames.data(), k.frames.data()];
            k.m.set_frame_use(frames[0], MemoryUse::Files);
            k.m.set_frame_use(frames[1], MemoryUse::Programs);
            load_all_memory(k);
            for (frame, what) in frames.into_iter().zip([MemoryUse::Files, MemoryUse::Programs]) {
                let at = k.pmaps.direct_va(frame).expect("a direct map");
                let counted = k.counted(|| assert!(k.load(Mode::Kernel, at).is_ok()));
                assert_eq!(counted.check(), Ok(()), "{machine}");
                assert_eq!(counted.hardware.misses_by_use[what.index()], 1, "{machine}: {what:?}");
                assert_eq!(counted.hardware.misses_by_use[MemoryUse::Users.index()], 0, "{machine}");
                let hash = counted.at_uses(PmapCounter::HashMisses);
                assert_eq!(hash.iter().sum::<u64>(), counted.counter(PmapCounter::HashMisses), "{machine}");
            }
            k.m.load(Mode::Kernel, k.m.board().layout.kernel_base, &mut [0]).expect("mapped");
            let all = k.m.snapshot();
            let data = all.hardware.misses_by_use[MemoryUse::Data.index()];
            assert!(data > 0 && data < all.hardware.kernel_misses(), "{machine}: {data}");
        });
    }
}

// ----------------------------------------------------------------------------------------------- the hash table

/// What is in the hash table, and how many entries of it are in their secondary group.
fn census(k: &Kernel) -> (HashCensus, usize) {
    let secondary = Cell::new(0);
    let frame = RefCell::new((Pfn(u32::MAX), Vec::new()));
    let word = |at: Pa| {
        let mut frame = frame.borrow_mut();
        if frame.0 != at.pfn() {
            *frame = (at.pfn(), k.m.frame_bytes(at.pfn()));
        }
        let at = at.0 as usize % PAGE_SIZE;
        let entry = u64::from_le_bytes(frame.1[at..at + 8].try_into().unwrap());
        secondary.set(secondary.get() + usize::from(entry & HPTE_V != 0 && entry & HPTE_H != 0));
        entry
    };
    let census = k.pmaps.hash_census(&word).expect("there is a hash table");
    (census, secondary.get())
}

/// Pages that have the same two groups in a table of 1024.
fn crowd(page: usize) -> Va {
    Va((page as u64) << 22 | 0x7 << 12)
}

#[test]
fn groups_fill_one_after_the_other_and_what_is_noted_stays() {
    const CROWD: usize = 20;
    for machine in ["ppc603+hash", "ppc603+slow+hash", "ppc604", "ppc604+slow", "ppc604+slow+pte"] {
        run(Shape { size_mb: 16, ..Shape::new(machine, 1) }, move |k| {
            let space = k.pmaps.create(&k.frames).unwrap();
            let frames: Vec<Pfn> = (0..CROWD).map(|_| k.frames.data()).collect();
            frames.iter().enumerate().for_each(|(i, frame)| k.mark(*frame, i as u8));
            frames.iter().enumerate().for_each(|(i, frame)| k.enter(&space, crowd(i), *frame, Prot::RW));
            k.pmaps.activate(None, Some(&space));
            let load = |page: usize| assert_eq!(k.load(Mode::User, crowd(page)), Ok(page as u8));
            let state =
                |page: usize| (k.pmaps.is_referenced(frames[page]), k.pmaps.is_modified(frames[page]));
            let before = census(k).0.valid;
            let evicted = k.counted(|| ()).counter(PmapCounter::HashEvictions);
            for page in 0..CROWD {
                let s = k.counted(|| load(page));
                if machine.contains("pte") {
                    // The kernel's own pages are in these groups too.
                    continue;
                }
                let (census, secondary) = census(k);
                assert_eq!(census.valid - before, (page + 1).min(16), "{machine}");
                assert_eq!(
                    secondary,
                    (page + 1).saturating_sub(8).min(8),
                    "{machine}: the primary group first"
                );
                let evictions = s.counter(PmapCounter::HashEvictions) - evicted;
                assert_eq!(evictions, u64::from(page >= 16), "{machine}, page {page}");
            }
            // Several times around: each page goes and comes back, and is still what it was.
            for _ in 0..3 {
                (0..CROWD).for_each(load);
                assert!((0..CROWD).all(|page| state(page) == (true, false)), "{machine}: loaded");
            }
            for page in (0..CROWD).step_by(2) {
                k.m.store(Mode::User, crowd(page) + 1, &[1]).unwrap();
            }
            for _ in 0..3 {
                (0..CROWD).for_each(load);
                assert!(
                    (0..CROWD).all(|page| state(page) == (true, page % 2 == 0)),
                    "{machine}: every other stored to"
                );
            }
            for page in (0..CROWD).step_by(4) {
                k.pmaps.clear_modified(frames[page]).flush(&k.pmaps);
                k.pmaps.clear_referenced(frames[page]).flush(&k.pmaps);
            }
            (0..CROWD).filter(|page| !page.is_multiple_of(8)).for_each(load);
            let expected = |page: usize| (!page.is_multiple_of(8), page % 4 == 2);
            assert!(
                (0..CROWD).all(|page| state(page) == expected(page)),
                "{machine}: cleared and used again"
            );
            (0..CROWD).step_by(4).for_each(|page| k.m.store(Mode::User, crowd(page) + 1, &[2]).unwrap());
            (0..CROWD).for_each(load);
            assert!(
                (0..CROWD).all(|page| state(page) == (true, page % 2 == 0)),
                "{machine}: stored to again"
            );
            assert!(k.m.snapshot().counter(PmapCounter::HashEvictions) > 20, "{machine}");
            k.pmaps.activate(Some(&space), None);
            k.destroy(space);
            assert!(machine.contains("pte") || census(k).0.valid <= before, "{machine}: nothing is left");
        });
    }
}

// ----------------------------------------------------------------------------------------------- tags

/// Enters eight pages with frames marked `byte`, and uses them.
fn fill(k: &Kernel, space: &pageferry_pmap::Pmap<Model>, frames: &[Pfn], byte: u8) {
    for (va, frame) in VaRange::pages_from(VA, 8).pages().zip(frames) {
        k.mark(*frame, byte);
        k.enter(space, va, *frame, Prot::RW);
        assert_eq!(k.load(Mode::User, va), Ok(byte));
    }
}

#[test]
fn a_tag_given_again_shows_no_page_of_the_space_that_had_it() {
    for machine in RENEWING {
        // Three tags, and each round takes three.
        let m = run(Shape { size_mb: 16, asid_bits: Some(2), ..Shape::new(machine, 1) }, |k| {
            let frames: Vec<Pfn> = (0..8).map(|_| k.frames.data()).collect();
            for round in 0..40 {
                let space = k.pmaps.create(&k.frames).unwrap();
                k.pmaps.activate(None, Some(&space));
                let absent = || VaRange::pages_from(VA, 8).pages().all(|va| k.load(Mode::User, va).is_err());
                assert!(absent(), "round {round}: nothing is mapped there yet");
                fill(k, &space, &frames, round);
                k.pmaps.remove(&space, VaRange::pages_from(VA, 8)).flush(&k.pmaps);
                assert!(absent(), "round {round}: nothing is mapped there any more");
                fill(k, &space, &frames, round + 100);
                let page = VaRange::pages_from(VA, 8);
                k.pmaps.protect(&space, page, Prot::READ).flush(&k.pmaps);
                assert!(page.pages().all(|va| k.m.store(Mode::User, va, &[1]).is_err()), "read-only");
                k.pmaps.activate(Some(&space), None);
                k.destroy(space);
            }
        });
        let renewed = m.snapshot().counter(PmapCounter::ContextsRenewed);
        assert!(renewed >= 20, "{machine}: {renewed} times a space got another tag");
    }
}

#[test]
fn what_renewal_leaves_behind_is_reclaimed_or_purged() {
    for machine in ["ppc603+hash+renew", "ppc604+renew", "ppc604+slow+renew"] {
        run(Shape { size_mb: 16, asid_bits: Some(3), ..Shape::new(machine, 1) }, move |k| {
            let frames: Vec<Pfn> = (0..8).map(|_| k.frames.data()).collect();
            let space = k.pmaps.create(&k.frames).unwrap();
            k.pmaps.activate(None, Some(&space));
            assert_eq!((census(k).0.left_behind, k.pmaps.reclaim(64)), (0, 0), "nothing to do");
            fill(k, &space, &frames, 1);
            k.pmaps.remove(&space, VaRange::pages_from(VA, 8)).flush(&k.pmaps);
            assert_eq!(census(k).0.left_behind, 8, "{machine}");
            fill(k, &space, &frames, 2);
            let valid = census(k).0.valid;
            let mut groups = 0;
            let s = k.counted(|| {
                while groups < 4096 {
                    match k.pmaps.reclaim(64) {
                        0 => break,
                        done => groups += done,
                    }
                }
            });
            assert!(
                (1024..=2048).contains(&groups),
                "{machine}: {groups} groups, and then there is nothing to do"
            );
            assert_eq!(s.counter(PmapCounter::HashReclaimed), 8, "{machine}");
            assert_eq!(
                (census(k).0.left_behind, census(k).0.valid),
                (0, valid - 8),
                "{machine}: no other went"
            );
            let misses =
                k.counted(|| assert_eq!(k.load(Mode::User, VA), Ok(2))).counter(PmapCounter::HashMisses);
            assert_eq!(misses, 0, "{machine}: what is in use stays");
            // Without a CPU that reclaims, all goes before the first of them is given again.
            let mut max_left = 0;
            for round in 0..20 {
                k.pmaps.remove(&space, VaRange::pages_from(VA, 8)).flush(&k.pmaps);
                let left = census(k).0.left_behind;
                max_left = max_left.max(left);
                fill(k, &space, &frames, round);
                if left >= 40 {
                    let other = k.pmaps.create(&k.frames).unwrap();
                    let another = k.pmaps.create(&k.frames);
                    k.pmaps.destroy(&k.frames, other);
                    another.into_iter().for_each(|space| k.pmaps.destroy(&k.frames, space));
                }
            }
            assert!(max_left >= 40 && census(k).0.left_behind < max_left, "{machine}: {max_left}");
            k.pmaps.activate(Some(&space), None);
            k.destroy(space);
        });
    }
}

/// Wherever in the hash table a CPU looks when a tag is left behind: it does not stop before all of it is gone.
#[test]
fn reclaiming_ends_when_nothing_is_left_behind() {
    for machine in ["ppc603+hash+renew", "ppc604+renew"] {
        run(Shape { size_mb: 16, asid_bits: Some(5), ..Shape::new(machine, 1) }, move |k| {
            let frames: Vec<Pfn> = (0..8).map(|_| k.frames.data()).collect();
            let space = k.pmaps.create(&k.frames).unwrap();
            k.pmaps.activate(None, Some(&space));
            let leave = |round: u8| {
                fill(k, &space, &frames, round);
                k.pmaps.remove(&space, VaRange::pages_from(VA, 8)).flush(&k.pmaps);
            };
            for (round, groups) in (0..1024).step_by(97).enumerate() {
                leave(2 * round as u8);
                assert_eq!(k.pmaps.reclaim(groups), groups, "{machine}: a tag is left, and is looked for");
                leave(2 * round as u8 + 1);
                while k.pmaps.reclaim(64) == 64 {}
                assert_eq!(census(k).0.left_behind, 0, "{machine}: {groups} groups into a round");
            }
            k.pmaps.activate(Some(&space), None);
            k.destroy(space);
        });
    }
}

#[test]
fn a_kernel_that_does_not_look_leaves_it_there() {
    for machine in ["ppc603+hash+renew+left", "ppc604+renew+left"] {
        run(Shape { size_mb: 16, asid_bits: Some(3), ..Shape::new(machine, 1) }, move |k| {
            let frames: Vec<Pfn> = (0..8).map(|_| k.frames.data()).collect();
            let space = k.pmaps.create(&k.frames).unwrap();
            k.pmaps.activate(None, Some(&space));
            fill(k, &space, &frames, 1);
            k.pmaps.remove(&space, VaRange::pages_from(VA, 8)).flush(&k.pmaps);
            assert_eq!((k.pmaps.reclaim(64), census(k).0.left_behind), (0, 8), "{machine}");
            k.pmaps.activate(Some(&space), None);
            k.destroy(space);
        });
    }
}

// ----------------------------------------------------------------------------------------------- two CPUs

#[test]
fn one_invalidation_reaches_both_cpus_and_asks_none() {
    let mut raced = 0;
    const BROADCAST: [&str; 4] = ["ppc604-smp", "ppc604-smp+slow+pte", "today-invlpgb", "today-invlpgb+tags"];
    for (machine, seed) in BROADCAST.into_iter().flat_map(|m| (0..12).map(move |s| (m, s))) {
        let shape = Shape { size_mb: 32, schedule: Schedule::Seeded(seed), ..Shape::new(machine, 2) };
        let m = run(shape, |k| {
            const ROUNDS: u8 = 8;
            let space = Rc::new(k.pmaps.create(&k.frames).unwrap());
            let frames: Vec<Pfn> = (0..=ROUNDS).map(|_| k.frames.data()).collect();
            frames.iter().enumerate().for_each(|(i, frame)| k.mark(*frame, i as u8));
            let pages = VaRange::pages_from(VA, 40);
            pages.pages().for_each(|va| k.enter(&space, va, frames[0], Prot::RW));
            // `reached` rises when a flush has returned: no older frame is seen from then on.
            let reached = Rc::new(Cell::new(0));
            let (theirs, seen) = (space.clone(), reached.clone());
            k.start(1, move |k| {
                k.pmaps.activate(None, Some(&theirs));
                while seen.get() < ROUNDS {
                    for va in [VA, VA + 39 * PAGE_SIZE] {
                        let at_least = seen.get();
                        let byte = k.load(Mode::User, va).expect("one frame or the other");
                        assert!(byte >= at_least, "{byte} after {at_least}");
                    }
                }
                k.pmaps.activate(Some(&theirs), None);
            });
            let s = k.counted(|| {
                for round in 1..=ROUNDS {
                    let mut change = pageferry_pmap::TlbFlush::new();
                    for va in pages.pages() {
                        let frame = frames[usize::from(round)];
                        change.merge(k.pmaps.enter(&k.frames, &space, va, frame, Prot::RW, false).unwrap());
                    }
                    change.flush(&k.pmaps);
                    reached.set(round);
                }
            });
            let asked = [PmapCounter::Shootdowns, PmapCounter::ShootdownIpis].map(|c| s.counter(c));
            assert_eq!((asked, s.cause(Cause::ShootdownReceived)), ([0; 2], 0), "nobody is interrupted");
            assert!(s.hardware.page_invalidations >= 40 * u64::from(ROUNDS));
            k.wait();
            k.destroy(Rc::into_inner(space).expect("the job is done"));
        });
        raced += m.snapshot().hardware.stale_uses_in_window;
    }
    assert!(raced > 0, "no use came between a change and its invalidation");
}

// ----------------------------------------------------------------------------------------------- refills within others

/// How deep refills were nested in a run on each machine.
fn depth_in(machine: &'static str, test: fn(&Rc<Kernel>)) -> u32 {
    let depth = Rc::new(Cell::new(0));
    let out = depth.clone();
    run(Shape { size_mb: 16, ..Shape::new(machine, 1) }, move |k| {
        test(k);
        out.set(k.deepest.get());
    });
    depth.get()
}

/// Only a slow handler whose memory is mapped by pages misses in what it does, and then the one within does not.
fn nests_as_it_should(test: fn(&Rc<Kernel>)) {
    for machine in BLOCKS.into_iter().chain(PAGES) {
        let slow_by_pages = machine.contains("slow") && machine.contains("pte");
        assert_eq!(depth_in(machine, test), if slow_by_pages { 2 } else { 1 }, "{machine}");
    }
}

#[test]
fn a_refill_within_a_fault() {
    nests_as_it_should(|k| {
        let space = k.pmaps.create(&k.frames).unwrap();
        k.pmaps.activate(None, Some(&space));
        for i in 0..64 {
            let va = VA + i * 9 * PAGE_SIZE;
            let trap = k.load(Mode::User, va).expect_err("nothing is mapped yet").trap;
            k.m.cross(Crossing::TrapEnter);
            let s = k.counted(|| {
                k.m.tlb_flush(Flush::All);
                k.enter(&space, trap.va, Pfn(2000), Prot::READ);
                k.pmaps.zero_page(Pfn(2000));
            });
            let by_pages = k
                .pmaps
                .kernel_protect(VaRange::page(k.m.board().layout.kernel_base), Prot::RW)
                .is_ok_and(|c| {
                    c.flush(&k.pmaps);
                    true
                });
            assert_eq!(s.hardware.kernel_misses() > 0, by_pages, "the fault itself misses only by pages");
            k.m.cross(Crossing::TrapExit);
            assert_eq!(k.load(Mode::User, va), Ok(0));
        }
        k.pmaps.activate(Some(&space), None);
        k.destroy(space);
    });
}

#[test]
fn a_refill_within_an_interrupt_handler() {
    nests_as_it_should(|k| {
        let space = k.pmaps.create(&k.frames).unwrap();
        let frame = k.frames.data();
        k.mark(frame, 7);
        let window = k.kva.start();
        k.pmaps.kenter(window, &[frame], Prot::RW).flush(&k.pmaps);
        k.pmaps.activate(None, Some(&space));
        (0..40).for_each(|i| k.enter(&space, VA + i * PAGE_SIZE, frame, Prot::RW));
        let fired = Rc::new(Cell::new(0));
        let count = fired.clone();
        *k.on_timer.borrow_mut() = Some(Rc::new(move |k: &Kernel| {
            k.m.tlb_flush(Flush::All);
            let misses =
                k.counted(|| assert_eq!(k.load(Mode::Kernel, window), Ok(7))).hardware.kernel_misses();
            assert!(misses > 0);
            count.set(count.get() + 1);
            k.m.set_timer(Some(Cycles(k.m.now().0 + 2500 + 77 * count.get())));
        }));
        k.m.set_timer(Some(Cycles(k.m.now().0 + 100)));
        for i in 0..2000 {
            assert_eq!(k.load(Mode::User, VA + i % 40 * PAGE_SIZE), Ok(7));
        }
        k.m.set_timer(None);
        assert!(fired.get() > 5, "{}", fired.get());
        k.pmaps.activate(Some(&space), None);
        k.destroy(space);
        *k.on_timer.borrow_mut() = None;
    });
}

/// Both sides of a copy want the same set of a TLB of two ways, and so may what the handler itself uses: for every set.
#[test]
fn a_refill_within_a_copy_ends() {
    nests_as_it_should(|k| {
        const SETS: usize = 64;
        let space = k.pmaps.create(&k.frames).unwrap();
        let (theirs, ours) = (k.frames.data(), k.frames.data());
        k.pmaps.kenter(k.kva.start(), &[ours; 2 * SETS], Prot::RW).flush(&k.pmaps);
        k.pmaps.activate(None, Some(&space));
        (0..2 * SETS).for_each(|i| k.enter(&space, VA + i * PAGE_SIZE, theirs, Prot::RW));
        for set in 0..SETS {
            let user = VA + set * PAGE_SIZE;
            let kernel = k.kva.start() + set * PAGE_SIZE;
            assert_eq!((user.vpn() ^ kernel.vpn()) % SETS as u64, 0, "the same set");
            let byte = [set as u8; 3];
            k.m.tlb_flush(Flush::All);
            k.m.store(Mode::User, user, &byte).unwrap();
            k.m.tlb_flush(Flush::All);
            k.m.copy_in(kernel + 100, user, 3).unwrap();
            // A third page of the set in between, and the fourth: both entries go.
            k.load(Mode::User, user + SETS * PAGE_SIZE).unwrap();
            k.load(Mode::Kernel, kernel + SETS * PAGE_SIZE).unwrap();
            k.m.copy_out(user + 200, kernel + 100, 3).unwrap();
            assert_eq!(&k.m.frame_bytes(theirs)[200..203], &byte);
        }
        k.pmaps.activate(Some(&space), None);
        k.destroy(space);
    });
}

// ----------------------------------------------------------------------------------------------- protection

#[test]
fn what_a_page_maps_is_protected_and_what_a_block_maps_is_not() {
    for machine in PAGES {
        run(Shape { size_mb: 16, ..Shape::new(machine, 1) }, move |k| {
            let frame = k.frames.data();
            let va = k.pmaps.direct_va(frame).unwrap();
            let store = |byte| k.m.store(Mode::Kernel, va, &[byte]).map_err(|e| e.trap.kind);
            let protect = |prot| k.pmaps.kernel_protect(VaRange::page(va), prot).unwrap().flush(&k.pmaps);
            assert_eq!(store(1), Ok(()));
            protect(Prot::READ);
            assert_eq!(store(2), Err(TrapKind::Protection), "{machine}");
            assert_eq!(k.load(Mode::Kernel, va), Ok(1));
            assert_eq!(k.m.store(Mode::Kernel, va + PAGE_SIZE, &[1]), Ok(()), "its neighbour is not");
            protect(Prot::READ);
            protect(Prot::RW);
            assert_eq!((store(3), k.load(Mode::Kernel, va)), (Ok(()), Ok(3)), "{machine}");
        });
    }
    for machine in BLOCKS {
        run(Shape { size_mb: 16, ..Shape::new(machine, 1) }, move |k| {
            let va = k.pmaps.direct_va(k.frames.data()).unwrap();
            let refused =
                k.pmaps.kernel_protect(VaRange::page(va), Prot::READ).map(drop).expect_err("a block");
            let PmapError::MappedWhole { page, by: Whole::Block(block) } = refused else {
                panic!("{refused}")
            };
            assert!(page == va && block.contains(va));
            assert!(
                refused.to_string().ends_with("what a block maps cannot be protected by page"),
                "{refused}"
            );
            assert_eq!(k.m.store(Mode::Kernel, va, &[2]), Ok(()), "and nothing has changed");
        });
    }
    for (machine, by) in [
        ("xeon-up", "a superpage at"),
        ("opteron-mp", "a superpage at"),
        ("ultrasparc-iie", "a superpage at"),
        ("mini-soft", "no entry"),
    ] {
        run(Shape::new(machine, 1), move |k| {
            let first = VaRange::page(k.m.board().layout.kernel_base);
            let refused = k.pmaps.kernel_protect(first, Prot::READ).map(drop).expect_err("no page");
            assert!(refused.to_string().contains(by), "{machine}: {refused}");
        });
    }
}

#[test]
fn a_change_of_kernel_memory_without_a_flush_is_found() {
    for machine in PAGES {
        let (m, result) = try_run(Shape { size_mb: 16, ..Shape::new(machine, 1) }, |k| {
            let va = k.pmaps.direct_va(k.frames.data()).unwrap();
            k.m.store(Mode::Kernel, va, &[1]).unwrap();
            k.pmaps.kernel_protect(VaRange::page(va), Prot::READ).unwrap().not_cached(&k.pmaps);
            let _ = k.m.store(Mode::Kernel, va, &[2]);
        });
        assert_eq!((result, m.stale_uses().len()), (Ok(()), 1), "{machine}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Of however much memory: the first and the last byte of each frame are where they should be, mapped by blocks or
    /// by pages.
    #[test]
    fn all_of_memory_is_mapped(size_mb in 5..70u64, by_pages in any::<bool>()) {
        let machine = if by_pages { "ppc604+pte" } else { "ppc603" };
        run(Shape { size_mb, ..Shape::new(machine, 1) }, |k| {
            load_all_memory(k);
            let frames = k.m.board().frames as u32;
            for frame in [k.first_free, Pfn(frames / 2), Pfn(frames - 1)].into_iter().filter(|f| *f >= k.first_free) {
                let va = k.pmaps.direct_va(frame).unwrap();
                k.m.store(Mode::Kernel, va, b"a").unwrap();
                k.m.store(Mode::Kernel, va + (PAGE_SIZE - 1), b"z").unwrap();
                let bytes = k.m.frame_bytes(frame);
                assert_eq!((bytes[0], bytes[PAGE_SIZE - 1]), (b'a', b'z'));
            }
        });
    }
}
