//! What a refill loads beside what was missed.

use crate::common::*;
use pageferry_hal::*;
use pageferry_pmap::{PmapConfig, PmapCounter, PmapError, Preload, RefillConfig};
use std::cell::Cell;
use std::rc::Rc;

const BASE: Va = Va(0x40_0000);

/// Misses, and entries loaded ahead, of so many rounds over so many pages, in order.
fn rounds(machine: &'static str, pages: usize, count: usize) -> (u64, u64) {
    let found = Rc::new(Cell::new((0, 0)));
    let out = found.clone();
    run(Shape::new(machine, 1), move |k| {
        let space = k.pmaps.create(&k.frames).unwrap();
        let frames: Vec<Pfn> = (0..pages).map(|_| k.frames.data()).collect();
        let va = |page: usize| BASE + page * PAGE_SIZE;
        for (page, frame) in frames.iter().enumerate() {
            k.mark(*frame, page as u8);
            k.enter(&space, va(page), *frame, Prot::READ);
        }
        k.pmaps.activate(None, Some(&space));
        let round = || (0..pages).for_each(|page| assert_eq!(k.load(Mode::User, va(page)), Ok(page as u8)));
        // What is not noted as used is not loaded ahead; and what never left is on no stack.
        (0..2).for_each(|_| round());
        let counted = k.counted(|| (0..count).for_each(|_| round()));
        out.set((counted.hardware.tlb_misses, counted.counter(PmapCounter::Preloads)));
        k.pmaps.activate(Some(&space), None);
        k.destroy(space);
    });
    found.get()
}

#[test]
fn neighbours_on_the_recency_stack_are_loaded_with_what_was_missed() {
    let (misses, ahead) = rounds("sh7751r+unused", 100, 10);
    assert_eq!(ahead, 0);
    let (fewer, ahead) = rounds("sh7751r+unused+recency", 100, 10);
    assert!(ahead > 100, "{ahead} loaded ahead");
    assert!(fewer * 10 < misses * 8, "{fewer} misses, and {misses} without");
    // Entries enough for all: nothing ever leaves.
    assert_eq!(rounds("sh7751r+unused+recency", 40, 10), (0, 0));
}

/// Pages that are unmapped and mapped again are announced only where flushed pages are laid on the stack.
#[test]
fn what_was_invalidated_is_announced_if_the_kernel_wants_that() {
    for (machine, loads) in [("sh7751r+recency", false), ("sh7751r+recency-flushed", true)] {
        run(Shape::new(machine, 1), move |k| {
            let space = k.pmaps.create(&k.frames).unwrap();
            let pages = VaRange::pages_from(BASE, 2);
            let frames = [k.frames.data(), k.frames.data()];
            let map = || {
                for (va, frame) in pages.pages().zip(frames) {
                    k.enter(&space, va, frame, Prot::RW);
                }
            };
            k.pmaps.activate(None, Some(&space));
            map();
            pages.pages().for_each(|va| k.m.store(Mode::User, va, &[3]).unwrap());
            k.pmaps.remove(&space, pages).flush(&k.pmaps);
            map();
            let counted = k.counted(|| _ = k.load(Mode::User, BASE));
            // Nothing has noted yet that the other one is used since.
            assert_eq!(counted.counter(PmapCounter::Preloads), 0, "{machine}");
            _ = k.load(Mode::User, BASE + PAGE_SIZE);
            let again = k.counted(|| {
                for (va, frame) in pages.pages().zip(frames) {
                    // Read-only, and back: invalidated, and still noted as used.
                    k.enter(&space, va, frame, Prot::READ);
                }
                assert!(k.load(Mode::User, BASE).is_ok());
                assert!(k.load(Mode::User, BASE + PAGE_SIZE).is_ok());
            });
            assert_eq!(again.counter(PmapCounter::Preloads) > 0, loads, "{machine}");
            assert_eq!(again.hardware.tlb_misses, if loads { 1 } else { 2 }, "{machine}");
            k.pmaps.activate(Some(&space), None);
            k.destroy(space);
        });
    }
}

#[test]
fn entries_are_loaded_ahead_and_counted_only_where_any_may_hold_any_page() {
    let boot = |name, refill| refused(Shape::new(name, 1), PmapConfig { refill, ..CONFIG });
    for refill in [
        RefillConfig { preload: Preload::Recency, ..CONFIG.refill },
        RefillConfig { counts: true, ..CONFIG.refill },
    ] {
        for machine in ["xeon-up", "mini-hash", "ppc603", "ultrasparc-iie", "itanium2"] {
            assert_eq!(boot(machine, refill), Some(PmapError::NoPreload), "{machine}");
        }
        assert_eq!(boot("sh7751r", refill), None);
    }
}
