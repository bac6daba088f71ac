//! Several CPUs at once, switched at every call of the machine: no write is lost, no snapshot changes, nothing leaks,
//! no stale translation is used.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_vm::*;
use std::cell::Cell;
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const PAGES: usize = 3;
const SEEDS: u64 = 40;

/// Stores ever new values in its own byte of each page, and finds them there.
fn writer(space: &AddressSpace, va: Va, cpu: usize, rounds: u8) -> Job {
    let space = space.clone();
    Box::new(move |rig| {
        // Every other CPU forgets its translations before each store, so that it faults while others need not.
        let elsewhere = cpu.is_multiple_of(2).then(|| rig.vm.space().unwrap());
        for value in 1..=rounds {
            for page in 0..PAGES {
                elsewhere.iter().for_each(|space| rig.enter(space));
                let at = va + page * PAGE + cpu * 64;
                rig.store(&space, at, &[value]).unwrap();
                assert_eq!(rig.load(&space, at, 1).unwrap(), [value], "a write of cpu{cpu} is lost");
            }
        }
        rig.leave(cpu);
        elsewhere.iter().for_each(|space| space.terminate(rig.t()));
    })
}

/// Forks, and sees that the child's memory is its own.
fn forker(space: &AddressSpace, va: Va, rounds: u8) -> Job {
    let space = space.clone();
    Box::new(move |rig| {
        for round in 0..rounds {
            let child = space.fork(rig.t()).unwrap();
            let snapshot = rig.load(&child, va, PAGES * PAGE).unwrap();
            rig.store(&child, va + 3000, &[round]).unwrap();
            let mut expected = snapshot;
            expected[3000] = round;
            assert!(rig.load(&child, va, PAGES * PAGE).unwrap() == expected, "a copy changes");
            rig.exit(child);
        }
    })
}

fn expect_all(rig: &Rig, space: &AddressSpace, va: Va, cpus: std::ops::Range<usize>, value: u8) {
    for page in 0..PAGES {
        for cpu in cpus.clone() {
            let got = rig.load(space, va + page * PAGE + cpu * 64, 1).unwrap();
            assert_eq!(got, [value], "the last write of cpu{cpu} to page {page}");
        }
    }
}

fn seeds(machine: &'static str, body: impl Fn(&Rig) + Clone + 'static) {
    for seed in 0..SEEDS {
        let body = body.clone();
        with_rig(machine, 24, Schedule::Seeded(seed), move |rig| body(rig));
    }
    with_rig(machine, 24, Schedule::Timed, move |rig| body(rig));
}

#[test]
fn threads_write_while_their_process_forks() {
    for machine in ["opteron-mp", "xeon-mp-htt"] {
        seeds(machine, |rig| {
            let s = rig.vm.space().unwrap();
            let va = s.map(rig.t(), None, PAGES * PAGE, Prot::RW, Inherit::Copy).unwrap();
            let mut jobs = vec![forker(&s, va, 4)];
            jobs.extend((1..rig.cpus()).map(|cpu| writer(&s, va, cpu, 6)));
            rig.together(jobs);
            rig.check();
            expect_all(rig, &s, va, 1..rig.cpus(), 6);
            rig.exit(s);
        });
    }
}

#[test]
fn processes_that_share_write_while_one_forks() {
    seeds("xeon-mp-htt", |rig| {
        let t = rig.t();
        let s = rig.vm.space().unwrap();
        let va = s.map(t, None, PAGES * PAGE, Prot::RW, Inherit::Share).unwrap();
        let sharer = s.fork(t).unwrap();
        s.inherit(t, va, PAGES * PAGE, Inherit::Copy).unwrap();
        let jobs = vec![
            forker(&s, va, 4),
            writer(&s, va, 1, 5),
            writer(&sharer, va, 2, 5),
            writer(&sharer, va, 3, 5),
        ];
        rig.together(jobs);
        rig.check();
        expect_all(rig, &s, va, 1..4, 5);
        expect_all(rig, &sharer, va, 1..4, 5);
        rig.exit(s);
        rig.exit(sharer);
    });
}

#[test]
fn two_heirs_write_the_same_pages() {
    seeds("xeon-mp-htt", |rig| {
        let t = rig.t();
        let parent = rig.vm.space().unwrap();
        let va = parent.map(t, None, PAGES * PAGE, Prot::RW, Inherit::Copy).unwrap();
        rig.store(&parent, va, &pattern(1, PAGES * PAGE)).unwrap();
        let spaces =
            [parent.clone(), parent.fork(t).unwrap(), parent.fork(t).unwrap(), parent.fork(t).unwrap()];
        let jobs = spaces.iter().enumerate().map(|(cpu, space)| writer(space, va, cpu, 1)).collect();
        rig.together(jobs);
        drop(parent);
        rig.check();
        for (cpu, space) in spaces.iter().enumerate() {
            let mut expected = pattern(1, PAGES * PAGE);
            (0..PAGES).for_each(|page| expected[page * PAGE + cpu * 64] = 1);
            assert!(
                rig.load(space, va, PAGES * PAGE).unwrap() == expected,
                "a write of another process is seen"
            );
        }
        spaces.into_iter().for_each(|s| rig.exit(s));
    });
}

#[test]
fn mappings_come_and_go_under_stores_and_wires() {
    seeds("xeon-mp-htt", |rig| {
        let s = rig.vm.space().unwrap();
        let va = Va(0x10_0000);
        let remap = {
            let s = s.clone();
            Box::new(move |rig: &Rig| {
                for _ in 0..6 {
                    s.map(rig.t(), Some(va), PAGES * PAGE, Prot::RW, Inherit::Copy).unwrap();
                    s.protect(rig.t(), va + PAGE, PAGE, Prot::READ).unwrap();
                    let child = s.fork(rig.t()).unwrap();
                    s.protect(rig.t(), va + PAGE, PAGE, Prot::RW).unwrap();
                    rig.exit(child);
                    s.unmap(rig.t(), va, 2 * PAGE).unwrap();
                    s.unmap(rig.t(), va + 2 * PAGE, PAGE).unwrap();
                }
            }) as Job
        };
        let hits = Rc::new(Cell::new(0));
        let store = |cpu: usize| {
            let (s, hits) = (s.clone(), hits.clone());
            Box::new(move |rig: &Rig| {
                for i in 0..20 {
                    match rig.store(&s, va + (i % PAGES) * PAGE + cpu * 64, &[cpu as u8; 5]) {
                        Ok(()) => hits.set(hits.get() + 1),
                        Err(e) => assert!(matches!(e, VmError::Fault(_) | VmError::Access), "{e}"),
                    }
                }
                rig.leave(cpu);
            }) as Job
        };
        let wire = {
            let (s, hits) = (s.clone(), hits.clone());
            Box::new(move |rig: &Rig| {
                for i in 0..12 {
                    let prot = if i % 2 == 0 { Prot::RW } else { Prot::READ };
                    match s.wire(rig.t(), va + 100, 2 * PAGE, prot) {
                        Ok(wired) => {
                            hits.set(hits.get() + 1);
                            rig.vm.unwire(wired);
                        }
                        Err(e) => assert!(matches!(e, VmError::Fault(_)), "{e}"),
                    }
                }
            }) as Job
        };
        rig.together(vec![remap, store(1), store(2), wire]);
        rig.check();
        assert!(hits.get() > 0, "some stores and wires meet a mapping");
        rig.exit(s);
        assert_eq!(rig.vm.wired_frames(), 0);
    });
}

#[test]
fn a_wire_for_writing_and_a_fork_never_share_a_frame() {
    seeds("opteron-mp", |rig| {
        let s = rig.vm.space().unwrap();
        let va = s.map(rig.t(), None, PAGES * PAGE, Prot::RW, Inherit::Copy).unwrap();
        rig.store(&s, va, &pattern(1, PAGES * PAGE)).unwrap();
        let wirer = {
            let s = s.clone();
            Box::new(move |rig: &Rig| {
                for round in 0..6u8 {
                    let wired = s.wire(rig.t(), va, PAGES * PAGE, Prot::RW).unwrap();
                    // The process stores, the frame must be the one that is wired.
                    rig.store(&s, va + 64, &[round]).unwrap();
                    assert_eq!(
                        rig.m.frame_bytes(wired.frames()[0])[64],
                        round,
                        "the page left its wired frame"
                    );
                    rig.vm.unwire(wired);
                }
                rig.leave(1);
            }) as Job
        };
        rig.together(vec![forker(&s, va, 5), wirer]);
        rig.check();
        rig.exit(s);
    });
}

#[test]
fn a_frame_is_free_only_when_nobody_can_reach_it() {
    const MANY: usize = 12;
    seeds("xeon-mp-htt", |rig| {
        let s = rig.vm.space().unwrap();
        let va = Va(0x10_0000);
        let over = Rc::new(Cell::new(false));
        let remap = {
            let (s, over) = (s.clone(), over.clone());
            Box::new(move |rig: &Rig| {
                for _ in 0..5 {
                    s.map(rig.t(), Some(va), MANY * PAGE, Prot::RW, Inherit::Copy).unwrap();
                    rig.store(&s, va, &[1; MANY * PAGE]).unwrap();
                    s.unmap(rig.t(), va, MANY * PAGE).unwrap();
                }
                over.set(true);
            }) as Job
        };
        // A thread of the same process that never stops storing there.
        let intruder = {
            let (s, over) = (s.clone(), over.clone());
            Box::new(move |rig: &Rig| {
                while !over.get() {
                    for page in 0..MANY {
                        let _ = rig.store(&s, va + page * PAGE + 8, &[0xee; 8]);
                    }
                }
                rig.leave(1);
            }) as Job
        };
        // Others, who get the frames as they become free.
        let heir = |cpu: usize| {
            let over = over.clone();
            Box::new(move |rig: &Rig| {
                let own = rig.vm.space().unwrap();
                while !over.get() {
                    own.map(rig.t(), Some(va), MANY * PAGE, Prot::RW, Inherit::Copy).unwrap();
                    for page in 0..MANY {
                        let at = va + page * PAGE;
                        assert_eq!(rig.load(&own, at, 32).unwrap(), [0; 32], "another process writes here");
                    }
                    own.unmap(rig.t(), va, MANY * PAGE).unwrap();
                }
                rig.leave(cpu);
                own.terminate(rig.t());
            }) as Job
        };
        rig.together(vec![remap, intruder, heir(2), heir(3)]);
        rig.check();
        rig.exit(s);
    });
}
