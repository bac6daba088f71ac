//! Memory of shadow objects: how chains grow and get shorter, what they keep that nobody can reach, how pages go to the
//! swap area, and what such a system refuses. That it holds the right bytes, random programs show (`pageferry-soak`).

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_soak::rig::{Site, run};
use pageferry_vm::*;

const PAGE: usize = PAGE_SIZE;

fn each(body: impl Fn(&Rig) + Clone + 'static) {
    for machine in ["xeon-up", "opteron-mp", "mini-soft"] {
        let (body, machine) = (body.clone(), format!("{machine}+shadows"));
        let site = Site {
            machine: &machine,
            memory_mb: 24,
            schedule: Schedule::Timed,
            paging: Some(PAGING),
            flat: true,
        };
        run(site, move |rig| body(rig)).unwrap_or_else(|e| panic!("{machine}: {e}"));
    }
}

/// Space with `pages` pages of pattern 1.
fn filled(rig: &Rig, pages: usize) -> (AddressSpace, Va) {
    let space = rig.vm.space().unwrap();
    let va = space.map(rig.t(), None, pages * PAGE, Prot::RW, Inherit::Copy).unwrap();
    rig.store(&space, va, &pattern(1, pages * PAGE)).unwrap();
    (space, va)
}

fn store(rig: &Rig, space: &AddressSpace, va: Va, page: usize) {
    rig.store(space, va + page * PAGE, &[page as u8]).unwrap();
}

/// Objects, pages in frames, and those of them that nobody reaches.
fn seen(rig: &Rig) -> [usize; 3] {
    rig.check();
    let census = rig.vm.shadow_census();
    assert!(census.longest_chain <= census.objects);
    [census.objects, census.resident, census.resident_lost]
}

/// Takes what can be taken.
fn reclaim(rig: &Rig) {
    let (before, reclaimed) = (rig.vm.free_frames(), rig.vm.reclaim(rig.t()));
    assert_eq!(rig.vm.free_frames(), before + reclaimed, "what counts as reclaimed is free");
}

#[test]
fn a_chain_grows_by_a_fork_and_collapses_at_the_next_copy() {
    each(|rig| {
        let (parent, va) = filled(rig, 8);
        assert_eq!(seen(rig), [1, 8, 0]);
        let child = parent.fork(rig.t()).unwrap();
        assert_eq!(seen(rig), [1, 8, 0], "a fork makes no object");
        store(rig, &parent, va, 0);
        store(rig, &child, va, 1);
        assert_eq!(seen(rig), [3, 10, 0], "each has one of its own now");
        rig.exit(child);
        // Page 0 of the object behind is what nobody can reach any more.
        assert_eq!(seen(rig), [2, 9, 1]);
        store(rig, &parent, va, 5);
        assert_eq!(seen(rig), [1, 8, 0], "the next copy has it collapsed");
        assert_eq!(rig.vm.shadow_census().collapses, 1);
        rig.exit(parent);
        assert_eq!(seen(rig), [0, 0, 0]);
    });
}

#[test]
fn an_object_that_is_needed_no_more_is_gone_past() {
    each(|rig| {
        let (parent, va) = filled(rig, 4);
        let child = parent.fork(rig.t()).unwrap();
        for page in 0..4 {
            store(rig, &parent, va, page);
        }
        let census = rig.vm.shadow_census();
        assert_eq!((census.bypasses, census.longest_chain), (1, 1), "all pages are the parent's own");
        assert_eq!(seen(rig), [2, 8, 0]);
        rig.exit(parent);
        rig.exit(child);
    });
}

#[test]
fn what_is_unmapped_in_part_is_kept_until_all_is() {
    each(|rig| {
        let (space, va) = filled(rig, 8);
        space.unmap(rig.t(), va + 2 * PAGE, 5 * PAGE).unwrap();
        assert_eq!(seen(rig), [1, 8, 5], "five pages are lost");
        reclaim(rig);
        let census = rig.vm.shadow_census();
        assert_eq!((census.slots, census.slots_lost), (8, 5), "and so are their slots");
        space.unmap(rig.t(), va, 8 * PAGE).unwrap();
        assert_eq!(seen(rig), [0, 0, 0]);
        assert_eq!(rig.vm.swap_census().free, 512);
        rig.exit(space);
    });
}

#[test]
fn what_has_been_to_the_swap_area_collapses_no_more() {
    each(|rig| {
        let (parent, va) = filled(rig, 8);
        for round in 0..4 {
            let child = parent.fork(rig.t()).unwrap();
            store(rig, &parent, va, 0);
            reclaim(rig);
            rig.exit(child);
            rig.check();
            let census = rig.vm.shadow_census();
            assert_eq!((census.objects, census.longest_chain), (round + 2, round + 2));
            assert_eq!((census.slots, census.slots_lost), (9 + round, 1 + round), "page 0, in each of them");
        }
        let mut expected = pattern(1, 8 * PAGE);
        expected[0] = 0;
        assert_eq!(rig.load(&parent, va, 8 * PAGE).unwrap(), expected);
        rig.exit(parent);
        assert_eq!(rig.vm.swap_census().free, 512);
    });
}

#[test]
fn a_page_keeps_its_slot_and_goes_with_its_neighbours_only() {
    each(|rig| {
        let (space, va) = filled(rig, 7);
        let count = || [VmCounter::PageOuts, VmCounter::DiskRequests].map(|c| rig.counter(c));
        let start = count();
        reclaim(rig);
        let out = count();
        assert_eq!(out[0] - start[0], 7);
        assert!(out[1] - start[1] >= 3, "three pages a request at most");
        let slots = rig.vm.swap_census();
        for page in [1, 4] {
            store(rig, &space, va, page);
        }
        let start = count();
        reclaim(rig);
        let out = count();
        assert_eq!([out[0] - start[0], out[1] - start[1]], [2, 2], "no neighbours, no common request");
        assert_eq!(rig.vm.swap_census(), slots, "each went where it had been");
        rig.exit(space);
    });
}

#[test]
fn a_copy_of_shared_memory_has_an_object_put_behind_it() {
    each(|rig| {
        let (a, va) = filled(rig, 4);
        a.inherit(rig.t(), va, 4 * PAGE, Inherit::Share).unwrap();
        let b = a.fork(rig.t()).unwrap();
        a.inherit(rig.t(), va, 4 * PAGE, Inherit::Copy).unwrap();
        let c = a.fork(rig.t()).unwrap();
        assert_eq!(seen(rig), [2, 4, 0], "what both share is empty, and stands before what all three have");
        store(rig, &a, va, 3);
        assert_eq!(rig.load(&b, va + 3 * PAGE, 1).unwrap(), [3], "they still share");
        assert_eq!(rig.load(&c, va, 4 * PAGE).unwrap(), pattern(1, 4 * PAGE), "the copy is as it was");
        for space in [a, b, c] {
            rig.exit(space);
        }
    });
}

#[test]
fn a_long_chain_goes_at_once() {
    each(|rig| {
        let (mut space, va) = filled(rig, 1);
        // What each generation has goes to the swap area while the one before it lives, so that nothing collapses.
        for generation in 0..40 {
            let child = space.fork(rig.t()).unwrap();
            rig.store(&child, va, &[generation]).unwrap();
            reclaim(rig);
            rig.exit(space);
            space = child;
        }
        assert!(rig.vm.shadow_census().longest_chain > 30);
        assert_eq!(rig.load(&space, va, 1).unwrap(), [39]);
        rig.exit(space);
        assert_eq!(seen(rig), [0, 0, 0]);
    });
}

#[test]
fn nothing_is_lent_or_transferred() {
    each(|rig| {
        let (space, va) = filled(rig, 1);
        let t = rig.t();
        let no = VmError::Unsupported;
        assert_eq!(space.loan_to_kernel(t, va, PAGE).err(), Some(no));
        assert_eq!(space.loan_to_anons(t, va, PAGE).map(drop), Err(no));
        assert_eq!(space.anflush(t, va, PAGE), Err(no));
        let pages = rig.vm.kernel_pages(1).unwrap();
        let Err(Refused { error, back }) = space.transfer_pages(t, Some(va), pages) else {
            panic!("it is refused")
        };
        assert_eq!(error, no);
        rig.vm.free_kernel_pages(back);
        let object = rig.vm.object(1, Backing::Zero).unwrap();
        assert_eq!(rig.vm.loan_object_to_kernel(t, &object, 0, 1).err(), Some(no));
        assert_eq!(space.push_down(t, va, PAGE, &object, PushDown::Give), Err(no));
        rig.vm.release_object(object);
        rig.exit(space);
    });
}
