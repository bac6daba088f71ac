//! Tags that hardware puts on what it walks to, where the kernel chooses them: entries stay over switches, and no CPU
//! is interrupted for a space that it has left.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Model;
use pageferry_pmap::{Pmap, PmapConfig, PmapError};
use std::cell::RefCell;
use std::rc::Rc;

const VA: Va = Va(0x40_0000);
const TAGGED: &str = "today+tags";

/// Two spaces, each with a page of its own there.
fn two(k: &Kernel) -> Rc<[Pmap<Model>; 2]> {
    let spaces = [k.pmaps.create(&k.frames).unwrap(), k.pmaps.create(&k.frames).unwrap()];
    for (i, space) in spaces.iter().enumerate() {
        let frame = k.frames.data();
        k.mark(frame, i as u8);
        k.enter(space, VA, frame, Prot::READ);
    }
    Rc::new(spaces)
}

fn end(k: &Kernel, spaces: Rc<[Pmap<Model>; 2]>) {
    Rc::into_inner(spaces).expect("the jobs are done").into_iter().for_each(|space| k.destroy(space));
}

#[test]
fn entries_stay_over_switches() {
    for (machine, misses) in [("today", 2), (TAGGED, 0)] {
        run(Shape::new(machine, 1), move |k| {
            let spaces = two(k);
            let [a, b] = &*spaces;
            let round = || {
                k.pmaps.activate(None, Some(a));
                assert_eq!(k.load(Mode::User, VA), Ok(0));
                k.pmaps.activate(Some(a), Some(b));
                assert_eq!(k.load(Mode::User, VA), Ok(1));
                k.pmaps.activate(Some(b), None);
            };
            round();
            assert_eq!(k.counted(round).hardware.tlb_misses, misses, "{machine}");
            end(k, spaces);
        });
    }
}

#[test]
fn a_cpu_that_has_left_a_space_notices_when_it_comes_back() {
    for cpus in [1, 2] {
        run(Shape::new(TAGGED, cpus), move |k| {
            let spaces = two(k);
            let visit = |i: usize| {
                let (there, spaces, read) = (cpus - 1, spaces.clone(), Rc::new(RefCell::new(None)));
                let to = read.clone();
                k.on(there, move |k| {
                    k.pmaps.activate(None, Some(&spaces[i]));
                    *to.borrow_mut() = Some(k.load(Mode::User, VA));
                    k.pmaps.activate(Some(&spaces[i]), None);
                });
                read.take().expect("it has read")
            };
            assert_eq!((visit(0), visit(1)), (Ok(0), Ok(1)));
            let new = k.frames.data();
            k.mark(new, 7);
            let asked = invalidations(&k.counted(|| k.enter(&spaces[0], VA, new, Prot::READ)));
            assert_eq!(asked, [0; 4], "its tag is taken away, and nothing is invalidated");
            assert_eq!((visit(0), visit(1)), (Ok(7), Ok(1)));
            end(k, spaces);
        });
    }
}

#[test]
fn tags_that_run_out_are_given_again_without_emptying_the_tlb() {
    // Three tags are left beside the kernel's.
    run(Shape { asid_bits: Some(2), ..Shape::new(TAGGED, 1) }, |k| {
        let kernel = k.kva.start();
        k.pmaps.kenter(kernel, &[k.frames.data()], Prot::RW).flush(&k.pmaps);
        let spaces: Vec<_> = (0..5).map(|_| two(k)).collect();
        k.load(Mode::Kernel, kernel).expect("mapped");
        for _ in 0..3 {
            for space in spaces.iter().flat_map(|two| two.iter()) {
                k.pmaps.activate(None, Some(space));
                assert_eq!(k.load(Mode::User, VA), Ok(u8::from(space.id().0 % 2 == spaces[0][1].id().0 % 2)));
                k.pmaps.activate(Some(space), None);
            }
        }
        let global = k.counted(|| assert!(k.load(Mode::Kernel, kernel).is_ok()));
        assert_eq!(global.hardware.tlb_misses, 0, "what is global stays");
        spaces.into_iter().for_each(|two| end(k, two));
    });
}

#[test]
fn a_tlb_without_tags_is_refused() {
    let tags = PmapConfig { tags: true, ..CONFIG };
    assert_eq!(refused(Shape::new("opteron-mp", 1), tags), Some(PmapError::NoTags));
}
