//! Lists of free frames by colours that the kernel gives pages, and where clear pages come from.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_soak::rig::AddressSpace;
use pageferry_vm::*;
use std::collections::BTreeSet;

const PAGE: usize = PAGE_SIZE;
/// What the word `coloured` chooses.
const COLOURS: u32 = 8;
const MAX_STEP: u32 = 5;

/// On each machine whose pages have no colours by their addresses.
fn coloured(body: impl Fn(&Rig) + Clone + 'static) {
    for machine in MACHINES {
        let body = body.clone();
        with_choice(machine, "coloured", 24, move |rig| {
            if rig.vm.pmaps().colours() == 1 {
                body(rig);
            }
        });
    }
}

fn frame(rig: &Rig, space: &AddressSpace, at: Va) -> u32 {
    rig.vm.pmaps().extract(space.pmap(), at).expect("it is mapped").0.0
}

/// The colours of the pages from `at` on.
fn colours(rig: &Rig, space: &AddressSpace, at: Va, pages: usize) -> Vec<u32> {
    (0..pages).map(|page| frame(rig, space, at + page * PAGE) % COLOURS).collect()
}

fn in_turn(first: u32, pages: u32) -> Vec<u32> {
    (0..pages).map(|page| (first + page) % COLOURS).collect()
}

/// Stores to these pages, the last one first.
fn fill(rig: &Rig, space: &AddressSpace, at: Va, pages: usize) {
    for page in (0..pages).rev() {
        rig.store(space, at + page * PAGE, &[page as u8 + 1]).expect("it is mapped");
    }
}

fn area(rig: &Rig, space: &AddressSpace, pages: usize) -> Va {
    space.map(rig.t(), None, pages * PAGE, Prot::RW, Inherit::Copy).expect("there is room")
}

#[test]
fn the_pages_of_an_area_have_colours_one_after_the_other() {
    coloured(|rig| {
        let s = rig.vm.space().unwrap();
        let long = area(rig, &s, 12);
        fill(rig, &s, long, 12);
        let first = colours(rig, &s, long, 1)[0];
        assert_eq!(colours(rig, &s, long, 12), in_turn(first, 12));
        let child = s.fork(rig.t()).unwrap();
        fill(rig, &child, long, 12);
        assert_eq!(colours(rig, &child, long, 12), in_turn(first, 12), "copies have those of what is copied");
        rig.check();
        rig.exit(child);
        // A part that is copied has its own pages' colours, not those of the whole.
        s.unmap(rig.t(), long, 3 * PAGE).unwrap();
        let child = s.fork(rig.t()).unwrap();
        fill(rig, &child, long + 3 * PAGE, 9);
        assert_eq!(colours(rig, &child, long + 3 * PAGE, 9), in_turn(first + 3, 9));
        rig.exit(child);
        rig.exit(s);
    });
}

/// Where the board gives pages colours by their addresses, too.
#[test]
fn a_page_comes_back_from_the_disk_in_its_colour() {
    for machine in MACHINES.into_iter().chain(["sh7751r"]) {
        with_paging_and_choice((machine, "coloured"), 24, Schedule::Timed, Some(PAGING), |rig| {
            let s = rig.vm.space().unwrap();
            let at = area(rig, &s, 12);
            fill(rig, &s, at, 12);
            let of = |page| frame(rig, &s, at + page * PAGE) % rig.vm.page_colours();
            let before: Vec<u32> = (0..12).map(of).collect();
            assert_eq!(rig.vm.reclaim(rig.t()), 12);
            for page in [7, 3, 11, 10, 2, 9, 0, 8, 4, 6, 1, 5] {
                assert_eq!(rig.load(&s, at + page * PAGE, 1).unwrap(), [page as u8 + 1]);
            }
            assert_eq!((0..12).map(of).collect::<Vec<u32>>(), before);
            rig.check();
            rig.exit(s);
        });
    }
}

#[test]
fn an_object_begins_behind_the_one_before_it() {
    coloured(|rig| {
        let s = rig.vm.space().unwrap();
        let mut firsts = Vec::new();
        for pages in [12, 2, 3] {
            let object = rig.vm.object(pages as u64, Backing::Zero).unwrap();
            let mapped = Mapped { object: object.clone(), first_page: 0, copy_on_write: false };
            let at = s.map_object(rig.t(), None, pages * PAGE, Prot::RW, Inherit::Share, mapped).unwrap();
            fill(rig, &s, at, pages);
            let first = colours(rig, &s, at, 1)[0];
            assert_eq!(colours(rig, &s, at, pages), in_turn(first, pages as u32));
            firsts.push(first);
            rig.vm.release_object(object);
        }
        let steps: Vec<u32> = firsts.windows(2).map(|two| (two[1] + COLOURS - two[0]) % COLOURS).collect();
        assert_eq!(steps, [MAX_STEP, 2]);
        rig.check();
        rig.exit(s);
    });
}

#[test]
fn what_is_written_of_a_private_mapping_has_the_colour_of_what_it_hides() {
    coloured(|rig| {
        let s = rig.vm.space().unwrap();
        let object = rig.vm.object(12, Backing::Zero).unwrap();
        let map = |first_page: usize, copy_on_write| {
            let mapped = Mapped { object: object.clone(), first_page: first_page as u64, copy_on_write };
            let len = (12 - first_page) * PAGE;
            s.map_object(rig.t(), None, len, Prot::RW, Inherit::Copy, mapped).unwrap()
        };
        let shared = map(0, false);
        fill(rig, &s, shared, 12);
        for first_page in [0, 3, 7] {
            let private = map(first_page, true);
            fill(rig, &s, private, 12 - first_page);
            let of = (colours(rig, &s, private, 12 - first_page), colours(rig, &s, shared, 12));
            assert_eq!(of.0, of.1[first_page..], "from page {first_page} on");
            assert_ne!(frame(rig, &s, private), frame(rig, &s, shared + first_page * PAGE));
        }
        rig.vm.release_object(object);
        rig.check();
        rig.exit(s);
    });
}

#[test]
fn clear_pages_take_what_was_never_used_and_others_what_was_used_last() {
    coloured(|rig| {
        let s = rig.vm.space().unwrap();
        let at = area(rig, &s, 8);
        fill(rig, &s, at, 8);
        let old: BTreeSet<u32> = (0..8).map(|page| frame(rig, &s, at + page * PAGE)).collect();
        s.unmap(rig.t(), at, 8 * PAGE).unwrap();
        let kernel = rig.vm.kernel_alloc(8).unwrap();
        let again = kernel.frames().iter().filter(|frame| old.contains(&frame.0)).count();
        assert_eq!(again, 8, "the kernel has what was used last, of each colour");
        rig.vm.kernel_free(kernel);
        // Clear ones are others, until there are no others.
        let free = rig.vm.free_frames();
        let at = area(rig, &s, free);
        let mut taken = 0;
        while rig.store(&s, at + taken * PAGE, &[1]).is_ok() {
            let used = old.contains(&frame(rig, &s, at + taken * PAGE));
            assert!(!used || rig.vm.free_frames() < 8 * COLOURS as usize, "after {taken} of {free}");
            taken += 1;
        }
        assert!(taken + 64 > free, "{taken} of {free}");
        rig.check();
        rig.exit(s);
    });
}

#[test]
fn a_colour_that_has_none_left_takes_the_one_furthest_from_it() {
    coloured(|rig| {
        let s = rig.vm.space().unwrap();
        let free = rig.vm.free_frames();
        // More than two lists have are wanted of one colour.
        let pages = 3 * free;
        let at = area(rig, &s, pages);
        rig.store(&s, at, &[1]).unwrap();
        let own = frame(rig, &s, at) % COLOURS;
        let mut seen = vec![0];
        for page in (COLOURS as usize..pages).step_by(COLOURS as usize) {
            rig.store(&s, at + page * PAGE, &[1]).expect("there are frames of other colours");
            let ahead = (frame(rig, &s, at + page * PAGE) + COLOURS - own) % COLOURS;
            if seen.last() != Some(&ahead) {
                seen.push(ahead);
            }
        }
        assert!(seen.starts_with(&[0, 4, 3]), "{seen:?}");
        rig.check();
        rig.exit(s);
    });
}
