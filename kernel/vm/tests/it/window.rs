//! Windows: what they show, who sees it, what comes back, and what is refused.

use crate::common::*;
use crate::transfer::data;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_soak::rig::{Site, run};
use pageferry_vm::*;

const PAGE: usize = PAGE_SIZE;

/// A window of six pages that shows two, at its second and third.
fn with_two(rig: &Rig) -> (AddressSpace, Va) {
    let s = rig.vm.space().unwrap();
    let at = s.map_window(rig.t(), 6 * PAGE).unwrap();
    assert!(s.show_pages(rig.t(), at + PAGE, data(rig, 1, 2)).unwrap().is_none());
    (s, at)
}

/// What of six pages there is to be read: the first byte of each.
fn seen(rig: &Rig, s: &AddressSpace, at: Va) -> Vec<Option<u8>> {
    (0..6).map(|page| rig.load(s, at + page * PAGE, 1).ok().map(|bytes| bytes[0])).collect()
}

fn first(tag: u8, page: usize) -> Option<u8> {
    Some(pattern(tag, 6 * PAGE)[page * PAGE])
}

#[test]
fn a_window_shows_what_is_given_to_it_and_nothing_else() {
    on_each(|rig| {
        let free = rig.vm.free_frames();
        let t = rig.t();
        let (s, at) = with_two(rig);
        rig.check();
        assert_eq!(rig.load(&s, at + PAGE, 2 * PAGE).unwrap(), pattern(1, 2 * PAGE));
        for page in [0, 3, 5] {
            let there = at + page * PAGE;
            assert_eq!(rig.load(&s, there, 1), Err(VmError::Bus(there)), "nothing is shown there");
        }
        assert_eq!(rig.store(&s, at + PAGE, b"x"), Err(VmError::Access));
        assert_eq!(s.protect(t, at, 6 * PAGE, Prot::RW), Err(VmError::Access), "nor can that be had");
        let pages = data(rig, 2, 3);
        let frames = pages.frames().to_vec();
        let back = s.show_pages(t, at + 2 * PAGE, pages).unwrap().expect("one was shown there");
        assert_eq!(back.frames().len(), 1);
        rig.check();
        assert_eq!(rig.vm.pmaps().extract(s.pmap(), at + 3 * PAGE), Some((frames[1], Prot::READ)));
        let now = [None, first(1, 0), first(2, 0), first(2, 1), first(2, 2), None];
        assert_eq!(seen(rig, &s, at), now);
        rig.vm.free_kernel_pages(back);
        assert_eq!(s.entry_count(t), 1, "the map is not cut");
        let child = s.fork(t).unwrap();
        assert_eq!(rig.load(&child, at + PAGE, 1), Err(VmError::Fault(at + PAGE)), "it is not inherited");
        rig.exit(child);
        let back = s.clear_window(t, at, 6 * PAGE).unwrap().expect("four are shown");
        assert_eq!(back.frames().len(), 4);
        rig.vm.free_kernel_pages(back);
        rig.check();
        assert_eq!(seen(rig, &s, at), [None; 6]);
        assert!(s.clear_window(t, at, 6 * PAGE).unwrap().is_none());
        s.show_pages(t, at, data(rig, 3, 6)).unwrap();
        rig.check();
        rig.exit(s);
        assert_eq!(rig.vm.free_frames(), free, "what is shown goes with the window");
    });
}

/// However a window is cut, what is taken out of `[a, c)` is what is taken out of `[a, b)` and `[b, c)`.
#[test]
fn taking_out_in_two_calls_is_taking_out_in_one() {
    on_each(|rig| {
        let t = rig.t();
        for (a, c) in [(0, 6), (1, 3), (1, 6), (2, 5)] {
            for b in a + 1..c {
                for cut in [None, Some(2)] {
                    let taken = |ranges: &[(usize, usize)]| {
                        let (s, at) = with_two(rig);
                        s.show_pages(t, at + 4 * PAGE, data(rig, 2, 2)).unwrap();
                        if let Some(page) = cut {
                            s.protect(t, at + page * PAGE, PAGE, Prot::empty()).unwrap();
                        }
                        let mut back = 0;
                        for &(from, to) in ranges {
                            let pages = s.clear_window(t, at + from * PAGE, (to - from) * PAGE).unwrap();
                            back += pages.as_ref().map_or(0, |pages| pages.frames().len());
                            pages.into_iter().for_each(|pages| rig.vm.free_kernel_pages(pages));
                        }
                        rig.check();
                        let result = (back, seen(rig, &s, at), s.entry_count(t));
                        rig.exit(s);
                        result
                    };
                    assert_eq!(taken(&[(a, c)]), taken(&[(a, b), (b, c)]), "{a} {b} {c}, {cut:?}");
                }
            }
        }
    });
}

#[test]
fn what_is_refused_comes_back_and_changes_nothing() {
    on_each(|rig| {
        let t = rig.t();
        let (s, at) = with_two(rig);
        let plain = s.map(t, None, 2 * PAGE, Prot::RW, Inherit::Copy).unwrap();
        let before = seen(rig, &s, at);
        let refused = |at: Va| {
            let no = s.show_pages(t, at, data(rig, 5, 2)).unwrap_err();
            assert_eq!(no.back.frames().len(), 2);
            rig.vm.free_kernel_pages(no.back);
            rig.check();
            no.error
        };
        let far = Va(0x7000_0000);
        assert_eq!(refused(at + 1), VmError::Invalid);
        assert_eq!(refused(far), VmError::Fault(far));
        assert_eq!(refused(plain), VmError::Access);
        assert_eq!(s.clear_window(t, at + 1, PAGE).map(|_| ()), Err(VmError::Invalid));
        assert_eq!(s.clear_window(t, at, 0).map(|_| ()), Err(VmError::Invalid));
        assert_eq!(s.clear_window(t, far, PAGE).map(|_| ()), Err(VmError::NoMemory));
        assert_eq!(s.clear_window(t, plain, PAGE).map(|_| ()), Err(VmError::Access));
        assert_eq!(s.map_window(t, 0), Err(VmError::Invalid));
        s.lock_memory(t, at + PAGE, PAGE).unwrap();
        assert_eq!(refused(at + PAGE), VmError::Busy);
        assert_eq!(s.clear_window(t, at, 6 * PAGE).map(|_| ()), Err(VmError::Busy));
        s.unlock_memory(t, at + PAGE, PAGE).unwrap();
        assert_eq!(s.lock_memory(t, at, PAGE), Err(VmError::Bus(at)), "nothing is shown there");
        // What is shown is neither lent nor replaced.
        assert_eq!(s.loan_to_kernel(t, at + PAGE, PAGE).map(|_| ()), Err(VmError::Busy));
        let no = s.transfer_pages(t, Some(at + PAGE), data(rig, 6, 1)).unwrap_err();
        assert_eq!(no.error, VmError::Access);
        rig.vm.free_kernel_pages(no.back);
        rig.check();
        assert_eq!(seen(rig, &s, at), before);
        rig.exit(s);
    });
}

/// Somebody has wired what a window showed, for I/O: he keeps it as it was, and it is freed when he is done.
#[test]
fn a_wired_page_outlives_being_shown() {
    on_each(|rig| {
        let free = rig.vm.free_frames();
        let t = rig.t();
        let (s, at) = with_two(rig);
        let wired = s.wire(t, at + PAGE, 2 * PAGE, Prot::READ).unwrap();
        assert!(s.show_pages(t, at + PAGE, data(rig, 2, 1)).unwrap().is_none(), "it is somebody's");
        rig.check();
        for (page, &frame) in wired.frames().iter().enumerate() {
            assert!(rig.m.frame_is(frame, &pattern(1, 2 * PAGE)[page * PAGE..][..PAGE]));
        }
        s.unmap(t, at, 6 * PAGE).unwrap();
        rig.check();
        rig.vm.unwire(wired);
        rig.check();
        rig.exit(s);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

/// Pages that the kernel still maps have a wire of its own, and may be replaced meanwhile.
#[test]
fn a_page_that_the_kernel_maps_stays_wired() {
    on_each(|rig| {
        let free = rig.vm.free_frames();
        let t = rig.t();
        let (s, at) = with_two(rig);
        let given = s.show_pages_wired(t, at + PAGE, data(rig, 2, 2)).unwrap();
        rig.vm.free_kernel_pages(given.exchanged.expect("two were shown there"));
        let info = given.wired.frames().iter().map(|&frame| rig.vm.frame_info(frame).wire_count);
        assert_eq!(info.collect::<Vec<_>>(), [2, 2]);
        assert!(s.show_pages(t, at + 2 * PAGE, data(rig, 3, 1)).unwrap().is_none());
        rig.check();
        rig.vm.unwire(given.wired);
        rig.check();
        assert_eq!(seen(rig, &s, at)[1..3], [first(2, 0), first(3, 0)]);
        rig.exit(s);
        assert_eq!(rig.vm.free_frames(), free);
    });
}

/// Whoever was given a part of a window sees what is shown there next.
#[test]
fn who_shares_a_window_sees_the_same() {
    with_rig("xeon-mp", 24, Default::default(), |rig| {
        let t = rig.t();
        let (s, at) = with_two(rig);
        let other = rig.vm.space().unwrap();
        pass(&s, &other, t, at, 6 * PAGE, Some(at), PassMode::Share).unwrap();
        let theirs = other.clone();
        let looks = move |rig: &Rig| seen(rig, &theirs, at);
        assert_eq!(rig.on(1, looks.clone()), [None, first(1, 0), first(1, 1), None, None, None]);
        rig.vm.free_kernel_pages(s.show_pages(t, at + 2 * PAGE, data(rig, 2, 2)).unwrap().expect("one"));
        rig.check();
        assert_eq!(rig.on(1, looks.clone()), [None, first(1, 0), first(2, 0), first(2, 1), None, None]);
        rig.vm.free_kernel_pages(other.clear_window(t, at, 3 * PAGE).unwrap().expect("two"));
        rig.check();
        assert_eq!(seen(rig, &s, at), [None, None, None, first(2, 1), None, None]);
        rig.exit(s);
        assert_eq!(rig.on(1, looks), [None, None, None, first(2, 1), None, None]);
        rig.exit(other);
    });
}

/// One who was given a window may lock what it shows, and it stays there until he unlocks it. Two windows side by side
/// are not one.
#[test]
fn what_others_have_locked_is_not_replaced() {
    on_each(|rig| {
        let t = rig.t();
        let (s, at) = with_two(rig);
        let other = rig.vm.space().unwrap();
        pass(&s, &other, t, at, 6 * PAGE, Some(at), PassMode::Share).unwrap();
        other.lock_memory(t, at + 2 * PAGE, PAGE).unwrap();
        let refused = |at: Va| {
            let no = s.show_pages(t, at, data(rig, 5, 2)).unwrap_err();
            rig.vm.free_kernel_pages(no.back);
            rig.check();
            no.error
        };
        assert_eq!(refused(at + PAGE), VmError::Busy);
        assert_eq!(s.clear_window(t, at, 6 * PAGE).map(|_| ()), Err(VmError::Busy));
        assert_eq!(seen(rig, &other, at)[1..3], [first(1, 0), first(1, 1)]);
        other.unlock_memory(t, at + 2 * PAGE, PAGE).unwrap();
        rig.vm.free_kernel_pages(s.show_pages(t, at + PAGE, data(rig, 2, 2)).unwrap().expect("two"));
        rig.check();
        assert_eq!(seen(rig, &other, at)[1..3], [first(2, 0), first(2, 1)]);
        rig.exit(other);
        let beside = s.map_window(t, PAGE).unwrap();
        if beside == at + 6 * PAGE {
            assert_eq!(refused(at + 5 * PAGE), VmError::Access);
        }
        rig.exit(s);
    });
}

/// The page daemon passes by.
#[test]
fn what_is_shown_is_not_paged_out() {
    with_paging("xeon-up", 24, Schedule::Timed, Some(PAGING), |rig| {
        let t = rig.t();
        let (s, at) = with_two(rig);
        let other = rig.vm.space().unwrap();
        let there = other.map(t, None, 4 * PAGE, Prot::RW, Inherit::Copy).unwrap();
        rig.store(&other, there, &pattern(3, 4 * PAGE)).unwrap();
        assert_eq!(rig.vm.reclaim(t), 4, "all that can go goes");
        assert_eq!(rig.vm.reclaim(t), 0);
        rig.check();
        assert_eq!(rig.load(&s, at + PAGE, 2 * PAGE).unwrap(), pattern(1, 2 * PAGE));
        rig.exit(other);
        rig.exit(s);
    });
}

/// Shows pages over others, one of them locked, in a window that another process was given, with a defect planted.
fn shows_over(defect: Option<VmDefect>) -> Result<(), String> {
    let machine = &or_other_kind("xeon-mp");
    let site = Site { machine, memory_mb: 24, schedule: Schedule::Timed, paging: None, flat: false };
    run(site, move |rig| {
        let t = rig.t();
        let (s, at) = with_two(rig);
        let other = rig.vm.space().unwrap();
        pass(&s, &other, t, at, 6 * PAGE, Some(at), PassMode::Share).unwrap();
        let theirs = other.clone();
        rig.on(1, move |rig| rig.load(&theirs, at + PAGE, 2 * PAGE)).unwrap();
        rig.load(&s, at + PAGE, 2 * PAGE).unwrap();
        s.lock_memory(t, at + 2 * PAGE, PAGE).unwrap();
        rig.vm.plant(defect);
        _ = s.protect(t, at + 4 * PAGE, PAGE, Prot::RW);
        rig.check();
        for page in [1, 2] {
            let back = s.show_pages(t, at + page * PAGE, data(rig, 2, 1));
            let back = back.unwrap_or_else(|no| Some(no.back));
            back.into_iter().for_each(|pages| rig.vm.free_kernel_pages(pages));
            rig.check();
        }
        assert_eq!(rig.load(&s, at + PAGE, PAGE).unwrap(), pattern(2, PAGE), "what is shown now");
        assert_eq!(rig.store(&s, at + PAGE, b"x"), Err(VmError::Access), "a window is only read");
        let theirs = other.clone();
        assert_eq!(rig.on(1, move |rig| rig.load(&theirs, at + PAGE, PAGE)).unwrap(), pattern(2, PAGE));
        s.unlock_memory(t, at + 2 * PAGE, PAGE).unwrap();
        rig.exit(s);
        rig.exit(other);
    })
}

#[test]
fn every_defect_of_a_window_is_found() {
    assert_eq!(shows_over(None), Ok(()));
    for (defect, by) in [
        (VmDefect::WindowKeepsMappings, "its layers have"),
        (VmDefect::WindowWithoutFlush, "used a stale translation"),
        (VmDefect::WindowWritable, "its entry permits"),
        (VmDefect::WindowLosesReplaced, "hold the kernel's data"),
        (VmDefect::WindowOverLocked, "is locked in"),
        (VmDefect::ProtectBeyondMaximum, ", more than "),
    ] {
        let found = shows_over(Some(defect)).expect_err("a defect is planted");
        assert!(found.contains(by), "{defect:?}: {found}");
    }
}
