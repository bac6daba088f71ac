//! Anonymous memory that is made by rows of pages, in frames in a row, which an SH-4 maps by one entry of its TLB.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_pmap::PmapCounter;
use pageferry_soak::rig::{Site, run};
use pageferry_vm::*;
use std::collections::BTreeSet;

const PAGE: usize = PAGE_SIZE;
const ROW: usize = 16;

fn with_rows(body: impl FnOnce(&Rig) + 'static) {
    let site = Site {
        machine: "sh7751r+unused+rows",
        memory_mb: 24,
        schedule: Schedule::Timed,
        paging: None,
        flat: false,
    };
    run(site, body).unwrap_or_else(|e| panic!("{e}"));
}

/// Memory from a page on that is aligned as a row is, or so many behind one.
fn map(rig: &Rig, space: &AddressSpace, behind: usize, pages: usize) -> Va {
    let at = Va(0x40_0000) + behind * PAGE;
    space.map(rig.t(), Some(at), pages * PAGE, Prot::RW, Inherit::Copy).expect("there is room")
}

fn frames(rig: &Rig, space: &AddressSpace, at: Va, pages: usize) -> Vec<Option<Pfn>> {
    let found = |page: usize| rig.vm.pmaps().extract(space.pmap(), at + page * PAGE).map(|(frame, _)| frame);
    (0..pages).map(found).collect()
}

/// What a store to one page makes of the others: how many are there now.
fn made_by(rig: &Rig, space: &AddressSpace, at: Va, pages: usize, page: usize) -> usize {
    let before = rig.counter(VmCounter::ZeroFills);
    rig.store(space, at + page * PAGE, &[page as u8 + 1; 8]).unwrap();
    let made = (rig.counter(VmCounter::ZeroFills) - before) as usize;
    let mapped = frames(rig, space, at, pages).iter().flatten().count();
    assert!(mapped >= made);
    made
}

#[test]
fn the_first_use_of_a_page_brings_its_row() {
    with_rows(|rig| {
        let s = rig.vm.space().unwrap();
        // Three pages that begin no row, two whole ones, and three that end none.
        let at = map(rig, &s, ROW - 3, 3 + 2 * ROW + 3);
        let pages = 3 + 2 * ROW + 3;
        assert_eq!(made_by(rig, &s, at, pages, 1), 1, "its row is not all in the entry");
        assert_eq!(made_by(rig, &s, at, pages, 3 + 5), ROW);
        let row = frames(rig, &s, at + 3 * PAGE, ROW);
        let first = row[0].expect("mapped").0;
        assert_eq!(first as usize % ROW, 0);
        let expected: Vec<Option<Pfn>> = (0..ROW as u32).map(|page| Some(Pfn(first + page))).collect();
        assert_eq!(row, expected);
        // What came along is clear, and there.
        for page in (0..ROW).filter(|page| *page != 5) {
            assert_eq!(rig.load(&s, at + (3 + page) * PAGE, PAGE).unwrap(), vec![0; PAGE]);
        }
        // A row of which a page is there already is filled page by page.
        s.unmap(rig.t(), at + (3 + ROW + 15) * PAGE, PAGE).unwrap();
        assert_eq!(made_by(rig, &s, at, pages, 3 + ROW + 2), 1);
        assert_eq!(made_by(rig, &s, at, pages, pages - 1), 1);
        rig.check();
        let loads = rig.counter(PmapCounter::RowLoads);
        assert!(loads > 0, "{loads}");
        rig.exit(s);
    });
}

/// A page that a child copies leaves its row, and the row is its parent's as before.
#[test]
fn a_row_is_copied_page_by_page() {
    with_rows(|rig| {
        let s = rig.vm.space().unwrap();
        let at = map(rig, &s, 0, 2 * ROW);
        rig.store(&s, at, &pattern(1, 2 * ROW * PAGE)).unwrap();
        let child = s.fork(rig.t()).unwrap();
        rig.store(&child, at + 20 * PAGE, &[9; 8]).unwrap();
        assert_eq!(rig.load(&s, at, 2 * ROW * PAGE).unwrap(), pattern(1, 2 * ROW * PAGE));
        let mut copied = pattern(1, 2 * ROW * PAGE);
        copied[20 * PAGE..][..8].fill(9);
        assert_eq!(rig.load(&child, at, 2 * ROW * PAGE).unwrap(), copied);
        rig.check();
        rig.exit(s);
        assert_eq!(rig.load(&child, at, 2 * ROW * PAGE).unwrap(), copied);
        rig.check();
        rig.exit(child);
    });
}

/// Frames that are free, and none in a row: memory is made page by page, and all of it can be used.
#[test]
fn where_no_row_is_free_a_page_is_a_page() {
    with_rows(|rig| {
        let hoard = rig.hoard(512);
        let free = rig.vm.free_frames();
        let s = rig.vm.space().unwrap();
        // Every other page of what is left of memory, so that those between are free alone.
        let all = free - 64;
        let at = map(rig, &s, 1, all);
        for page in 0..all {
            rig.store(&s, at + page * PAGE, &[1]).unwrap();
        }
        let mut taken: Vec<Pfn> = frames(rig, &s, at, all).into_iter().flatten().collect();
        taken.sort_unstable();
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), all);
        for page in 0..all {
            let frame = frames(rig, &s, at + page * PAGE, 1)[0].expect("mapped");
            if frame.index() % 2 == 1 {
                s.unmap(rig.t(), at + page * PAGE, PAGE).unwrap();
            }
        }
        let other = rig.vm.space().unwrap();
        let there = map(rig, &other, 0, 4 * ROW);
        let made: Vec<usize> = (0..4).map(|row| made_by(rig, &other, there, 4 * ROW, row * ROW)).collect();
        assert!(made.contains(&1), "{made:?}");
        for page in 0..4 * ROW {
            rig.store(&other, there + page * PAGE, &[2]).unwrap();
        }
        rig.check();
        rig.exit(other);
        rig.exit(s);
        assert_eq!(rig.vm.free_frames(), free);
        rig.vm.free_kernel_pages(hoard);
    });
}

/// Each allocation fails in turn, and nothing is lost.
#[test]
fn a_row_that_is_made_in_part_is_whole_page_by_page() {
    for fails_at in 0..40 {
        with_rows(move |rig| {
            let free = rig.vm.free_frames();
            let s = rig.vm.space().unwrap();
            let at = map(rig, &s, 0, ROW);
            rig.vm.fail_after(Some(fails_at));
            let stored = rig.store(&s, at + 7 * PAGE, &[7; 8]);
            rig.vm.fail_after(None);
            rig.check();
            if stored.is_err() {
                rig.store(&s, at + 7 * PAGE, &[7; 8]).unwrap();
            }
            for page in 0..ROW {
                let expected = if page == 7 { 7 } else { 0 };
                assert_eq!(rig.load(&s, at + page * PAGE, 1).unwrap(), [expected], "page {page}");
            }
            rig.check();
            rig.exit(s);
            assert_eq!(rig.vm.free_frames(), free, "allocation {fails_at}");
        });
    }
}
