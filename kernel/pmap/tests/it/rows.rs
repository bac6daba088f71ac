//! Pages in a row that one entry of the TLB maps, beside a mirror of what is mapped where.

use crate::common::*;
use crate::planted::Random;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_pmap::{PmapConfig, PmapCounter, PmapDefect, PmapError, Preload, RefillConfig};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Aligned as a page of 64 KB is.
const BASE: Va = Va(0x40_0000);
const ROW: usize = 16;

fn va(page: usize) -> Va {
    BASE + page * PAGE_SIZE
}

/// So many frames in a row, from an aligned one on.
fn frames_in_a_row(k: &Kernel, count: usize) -> Vec<Pfn> {
    while k.frames.data().index() % ROW != ROW - 1 {}
    (0..count).map(|_| k.frames.data()).collect()
}

/// Misses, and rows loaded, of a few uses of so many pages whose frames lie so far from where a row has them.
fn used(machine: &'static str, pages: usize, displaced: usize, write: bool) -> (u64, u64) {
    let found = Rc::new(Cell::new((0, 0)));
    let out = found.clone();
    run(Shape::new(machine, 1), move |k| {
        let space = k.pmaps.create(&k.frames).unwrap();
        let frames = frames_in_a_row(k, pages + displaced);
        for (page, frame) in frames[displaced..].iter().enumerate() {
            k.mark(*frame, page as u8);
            k.enter(&space, va(page), *frame, Prot::RW);
        }
        k.pmaps.activate(None, Some(&space));
        let counted = k.counted(|| {
            for _ in 0..3 {
                for page in 0..pages {
                    assert_eq!(k.load(Mode::User, va(page)), Ok(page as u8));
                    if write {
                        k.m.store(Mode::User, va(page), &[page as u8]).unwrap();
                    }
                }
            }
        });
        out.set((counted.hardware.tlb_misses, counted.counter(PmapCounter::RowLoads)));
        for frame in &frames[displaced..] {
            assert!(k.pmaps.is_referenced(*frame));
            assert_eq!(k.pmaps.is_modified(*frame), write);
        }
        k.pmaps.activate(Some(&space), None);
        k.destroy(space);
    });
    found.get()
}

#[test]
fn a_row_takes_one_entry() {
    for machine in ["sh7751r+rows", "sh7751r+unused+rows"] {
        assert_eq!(used(machine, 64, 0, false), (4, 4), "{machine}");
        // Of a page that does not fill a row, and of frames that lie elsewhere, each takes its own.
        assert_eq!(used(machine, 20, 0, false), (5, 1), "{machine}");
        assert_eq!(used(machine, 16, 4, false), (16, 0), "{machine}");
    }
    assert_eq!(used("sh7751r", 32, 0, false), (32, 0));
    // A clean one gives way to one that may be stored to: once, not for each page.
    let (_, loads) = used("sh7751r+unused+rows", 32, 0, true);
    assert_eq!(loads, 4);
}

/// What one page of a row says is its own: after a change of it the others go on, each by itself.
#[test]
fn a_page_that_changes_leaves_its_row() {
    run(Shape::new("sh7751r+unused+rows", 1), |k| {
        let space = k.pmaps.create(&k.frames).unwrap();
        let frames = frames_in_a_row(k, ROW + 1);
        for (page, frame) in frames.iter().enumerate() {
            k.mark(*frame, page as u8);
        }
        let map = |page: usize, frame: usize, prot| k.enter(&space, va(page), frames[frame], prot);
        (0..ROW).for_each(|page| map(page, page, Prot::RW));
        k.pmaps.activate(None, Some(&space));
        let loads = |k: &Kernel| (0..ROW).map(|page| k.load(Mode::User, va(page)).ok()).collect::<Vec<_>>();
        let all: Vec<Option<u8>> = (0..ROW).map(|page| Some(page as u8)).collect();
        assert_eq!(loads(k), all);
        k.pmaps.protect(&space, VaRange::page(va(3)), Prot::READ).flush(&k.pmaps);
        assert!(k.m.store(Mode::User, va(3), &[9]).is_err());
        k.m.store(Mode::User, va(4), &[4]).unwrap();
        assert_eq!(loads(k), all);
        k.pmaps.remove(&space, VaRange::page(va(7))).flush(&k.pmaps);
        assert_eq!(loads(k)[7], None);
        assert_eq!(loads(k)[8], Some(8));
        map(7, ROW, Prot::RW);
        assert_eq!(loads(k)[7], Some(ROW as u8));
        // As it was, it is a row again.
        map(7, 7, Prot::RW);
        map(3, 3, Prot::RW);
        k.pmaps.activate(Some(&space), None);
        k.pmaps.activate(None, Some(&space));
        let counted = k.counted(|| assert_eq!(loads(k), all));
        assert!(counted.counter(PmapCounter::RowLoads) <= 1);
        k.pmaps.activate(Some(&space), None);
        k.destroy(space);
    });
}

/// Changes and uses pages of three rows at random, most of them where a row has them; what the run came to, if that is
/// nothing good.
fn exercise(machine: &'static str, defect: Option<PmapDefect>, seed: u64) -> Option<String> {
    let shape = Shape { schedule: Schedule::Seeded(seed), size_mb: 12, ..Shape::new(machine, 1) };
    let shape = Shape { defect: defect.map_or(shape.defect, Into::into), ..shape };
    let (m, result) = try_run(shape, move |k| {
        const PAGES: usize = 3 * ROW;
        let mut random = Random(seed);
        let space = k.pmaps.create(&k.frames).unwrap();
        let frames = frames_in_a_row(k, PAGES);
        let mut bytes: Vec<u8> = (0..PAGES).map(|page| page as u8).collect();
        for (frame, byte) in frames.iter().zip(&bytes) {
            k.mark(*frame, *byte);
        }
        let mut map: BTreeMap<usize, (usize, bool)> = BTreeMap::new();
        let mut modified = [false; PAGES];
        k.pmaps.activate(None, Some(&space));
        for _ in 0..400 {
            let page = random.below(PAGES);
            let end = (page + 1 + random.below(ROW)).min(PAGES);
            let range = VaRange::new(va(page), va(end));
            match random.below(24) {
                0 | 1 => {
                    // A whole row, as it should be.
                    let first = page / ROW * ROW;
                    for (page, frame) in frames.iter().enumerate().skip(first).take(ROW) {
                        k.enter(&space, va(page), *frame, Prot::RW);
                        map.insert(page, (page, true));
                    }
                }
                2 => {
                    // Of the page's own colour.
                    let (frame, write) = (random.below(PAGES / 4) * 4 + page % 4, random.below(2) > 0);
                    let prot = if write { Prot::RW } else { Prot::READ };
                    k.enter(&space, va(page), frames[frame], prot);
                    map.insert(page, (frame, write));
                }
                3 if random.below(2) == 0 => {
                    k.pmaps.remove(&space, range).flush(&k.pmaps);
                    map.retain(|at, _| !(page..end).contains(at));
                }
                4 => {
                    k.pmaps.protect(&space, range, Prot::READ).flush(&k.pmaps);
                    map.range_mut(page..end).for_each(|(_, to)| to.1 = false);
                }
                5 => {
                    k.pmaps.clear_referenced(frames[page]).flush(&k.pmaps);
                    k.pmaps.clear_modified(frames[page]).flush(&k.pmaps);
                    modified[page] = false;
                }
                6..16 => {
                    let expected = map.get(&page).map(|(frame, _)| bytes[*frame]);
                    assert_eq!(k.load(Mode::User, va(page)).ok(), expected, "page {page}");
                    if let Some((frame, _)) = map.get(&page) {
                        assert!(k.pmaps.is_referenced(frames[*frame]), "page {page}");
                    }
                }
                _ => {
                    let byte = random.below(256) as u8;
                    let stored = k.m.store(Mode::User, va(page), &[byte]).is_ok();
                    let to = map.get(&page).filter(|(_, write)| *write);
                    assert_eq!(stored, to.is_some(), "page {page}");
                    if let Some((frame, _)) = to {
                        (bytes[*frame], modified[*frame]) = (byte, true);
                    }
                }
            }
            // A row says more than is so, and never less.
            let lost = (0..PAGES).find(|page| modified[*page] && !k.pmaps.is_modified(frames[*page]));
            assert_eq!(lost, None, "a store that nothing notes");
        }
        k.pmaps.activate(Some(&space), None);
        k.destroy(space);
    });
    let stale = m.stale_uses().first().map(ToString::to_string);
    stale.or_else(|| result.err().map(|e| e.to_string())).or_else(|| m.check().err())
}

#[test]
fn whatever_becomes_of_rows_every_page_is_its_own() {
    for machine in ["sh7751r+rows", "sh7751r+unused+rows", "sh7751r+unused+rows+renew"] {
        for seed in 0..40 {
            assert_eq!(exercise(machine, None, seed), None, "{machine}, seed {seed}");
        }
    }
}

#[test]
fn defects_of_rows_are_caught() {
    for (defect, how) in [(PmapDefect::RowOverPages, "multiple hit"), (PmapDefect::RowHalfCompared, "")] {
        let found = (0..40).find_map(|seed| exercise("sh7751r+unused+rows", Some(defect), seed));
        let found = found.unwrap_or_else(|| panic!("{defect:?} is not seen"));
        assert!(found.contains(how), "{defect:?}: {found}");
    }
}

#[test]
fn rows_are_loaded_only_where_a_tlb_takes_larger_pages() {
    let boot = |name, refill| refused(Shape::new(name, 1), PmapConfig { refill, ..CONFIG });
    let rows = RefillConfig { rows: true, ..CONFIG.refill };
    for machine in ["xeon-up", "mini-hash", "ppc603"] {
        assert_eq!(boot(machine, rows), Some(PmapError::NoRows), "{machine}");
    }
    assert_eq!(boot("sh7751r", rows), None);
    for beside in [RefillConfig { counts: true, ..rows }, RefillConfig { preload: Preload::Recency, ..rows }]
    {
        assert_eq!(boot("sh7751r", beside), Some(PmapError::NoRows));
    }
}
