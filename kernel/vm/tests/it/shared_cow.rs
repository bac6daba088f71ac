//! Copy-on-write where memory is shared: what is replaced must vanish from every mapping that should see the new page,
//! and from none that should not (the scenarios of FreeBSD's `shared_shadow_inval_test`, told again).

use crate::common::*;
use pageferry_hal::*;
use pageferry_vm::*;

const PAGE: usize = PAGE_SIZE;
const LEN: usize = 4 * PAGE;

/// P1 forks P2 copy-on-write; P2 shares with P3, and P3 (or P2) forks P4 copy-on-write again.
struct Chain {
    p: Vec<AddressSpace>,
    va: Va,
}

fn chain(rig: &Rig, touch_in_p3: bool, p4_of: usize) -> Chain {
    let t = rig.t();
    let p1 = rig.vm.space().unwrap();
    let va = p1.map(t, None, LEN, Prot::RW, Inherit::Copy).unwrap();
    rig.store(&p1, va, &pattern(1, LEN)).unwrap();
    let p2 = p1.fork(t).unwrap();
    p2.inherit(t, va, LEN, Inherit::Share).unwrap();
    let p3 = p2.fork(t).unwrap();
    if touch_in_p3 {
        assert_eq!(rig.load(&p3, va, LEN).unwrap(), pattern(1, LEN));
        assert_eq!(rig.load(&p2, va, LEN).unwrap(), pattern(1, LEN));
    }
    let parent = if p4_of == 2 { &p2 } else { &p3 };
    parent.inherit(t, va, LEN, Inherit::Copy).unwrap();
    let p4 = parent.fork(t).unwrap();
    rig.check();
    Chain { p: vec![p1, p2, p3, p4], va }
}

fn all(rig: &Rig, c: &Chain, expected: [&[u8]; 4]) {
    rig.check();
    for (i, (space, expected)) in c.p.iter().zip(expected).enumerate() {
        assert!(rig.load(space, c.va, LEN).unwrap() == expected, "P{} sees something else", i + 1);
    }
    rig.check();
}

#[test]
fn who_shares_sees_writes_and_who_copied_does_not() {
    for touch_in_p3 in [false, true] {
        for p4_of in [2, 3] {
            for writer in 0..4 {
                on_each(move |rig| {
                    let c = chain(rig, touch_in_p3, p4_of);
                    let old = pattern(1, LEN);
                    let mut new = old.clone();
                    new[PAGE + 5..PAGE + 8].copy_from_slice(b"new");
                    rig.store(&c.p[writer], c.va + PAGE + 5, b"new").unwrap();
                    let see = |i: usize| i == writer || (matches!(i, 1 | 2) && matches!(writer, 1 | 2));
                    let expected = [0, 1, 2, 3].map(|i| if see(i) { &new[..] } else { &old[..] });
                    all(rig, &c, expected);
                    // And once more, now that the copies are made.
                    rig.store(&c.p[1], c.va + PAGE + 5, b"own").unwrap();
                    let mut shared = old.clone();
                    shared[PAGE + 5..PAGE + 8].copy_from_slice(b"own");
                    let expected = [0, 1, 2, 3].map(|i| match i {
                        1 | 2 => &shared[..],
                        _ => expected[i],
                    });
                    all(rig, &c, expected);
                    c.p.into_iter().for_each(|s| rig.exit(s));
                });
            }
        }
    }
}

#[test]
fn a_sharer_on_another_cpu_never_reads_the_replaced_frame() {
    with_rig("xeon-mp-htt", 24, Default::default(), |rig| {
        for round in 0..3u8 {
            let c = chain(rig, true, 3);
            for (i, space) in c.p.iter().enumerate() {
                let (space, va) = (space.clone(), c.va);
                rig.on(i, move |rig| rig.load(&space, va, LEN).map(drop)).unwrap();
            }
            let (p3, va) = (c.p[2].clone(), c.va);
            rig.on(2, move |rig| rig.store(&p3, va + 2 * PAGE, &[round; 9])).unwrap();
            let (p2, va) = (c.p[1].clone(), c.va);
            let seen = rig.on(1, move |rig| rig.load(&p2, va + 2 * PAGE, 9)).unwrap();
            assert_eq!(seen, [round; 9]);
            let (p4, va) = (c.p[3].clone(), c.va);
            let seen = rig.on(3, move |rig| rig.load(&p4, va, LEN)).unwrap();
            assert_eq!(seen, pattern(1, LEN));
            c.p.into_iter().for_each(|s| rig.exit(s));
        }
    });
}
