//! Moments at which other systems went wrong, reached on purpose. Where a seed decides whether one is reached, it is
//! counted how often it was; where a defect can be planted there, it is, and must be noticed.

use crate::common::*;
use pageferry_hal::*;
use pageferry_model::Schedule;
use pageferry_soak::rig::{Site, run};
use pageferry_vm::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const PAGE: usize = PAGE_SIZE;
const AT: Va = Va(0x10_0000);

fn filled(rig: &Rig, pages: usize, tag: u8) -> AddressSpace {
    let space = rig.vm.space().unwrap();
    space.map(rig.t(), Some(AT), pages * PAGE, Prot::RW, Inherit::Copy).unwrap();
    rig.store(&space, AT, &pattern(tag, pages * PAGE)).unwrap();
    space
}

fn site(machine: &str, seed: u64) -> Site<'static> {
    let machine = or_other_kind(machine).leak();
    Site { machine, memory_mb: 24, schedule: Schedule::Seeded(seed), paging: None, flat: false }
}

/// A thread that has something done when it first sleeps for `reason`.
struct Waiting<'a> {
    thread: &'a dyn Threads,
    reason: &'static str,
    meanwhile: RefCell<Option<Box<dyn FnOnce() + 'a>>>,
}

impl<'a> Waiting<'a> {
    fn new(thread: &'a dyn Threads, reason: &'static str, meanwhile: impl FnOnce() + 'a) -> Waiting<'a> {
        Waiting { thread, reason, meanwhile: RefCell::new(Some(Box::new(meanwhile))) }
    }
}

impl Threads for Waiting<'_> {
    fn sleep(
        &self,
        channel: Channel,
        reason: &'static str,
        interruptible: bool,
        release: &mut dyn FnMut(),
    ) -> Result<(), Interrupted> {
        if reason == self.reason
            && let Some(work) = self.meanwhile.take()
        {
            release();
            work();
            return Ok(());
        }
        self.thread.sleep(channel, reason, interruptible, release)
    }
    fn wakeup(&self, channel: Channel) -> usize {
        self.thread.wakeup(channel)
    }
    fn wakeup_one(&self, channel: Channel) -> bool {
        self.thread.wakeup_one(channel)
    }
    fn pin(&self) {
        self.thread.pin();
    }
    fn unpin(&self) {
        self.thread.unpin();
    }
}

// ----------------------------------------------------------------------- everything is unlocked for the disk

/// What others do meanwhile; answers what is then to be found at the pages, or that there is nothing.
type Meanwhile = fn(&Rig, &AddressSpace) -> Option<Vec<u8>>;

const MEANWHILE: [(&str, Meanwhile); 5] = [
    ("nothing", |_, _| Some(pattern(1, 3 * PAGE))),
    ("part of it is unmapped", |rig, s| {
        s.unmap(rig.t(), AT + PAGE, PAGE).unwrap();
        None
    }),
    ("other memory is mapped there", |rig, s| {
        s.unmap(rig.t(), AT, 3 * PAGE).unwrap();
        s.map(rig.t(), Some(AT), 3 * PAGE, Prot::RW, Inherit::Copy).unwrap();
        rig.store(s, AT, &pattern(2, 3 * PAGE)).unwrap();
        assert_eq!(rig.vm.reclaim(rig.t()), 3, "it goes out at once");
        Some(pattern(2, 3 * PAGE))
    }),
    ("a child writes and ends", |rig, s| {
        let child = s.fork(rig.t()).unwrap();
        rig.store(&child, AT + PAGE, &pattern(3, PAGE)).unwrap();
        rig.exit(child);
        Some(pattern(1, 3 * PAGE))
    }),
    ("the process ends", |rig, s| {
        s.terminate(rig.t());
        None
    }),
];

/// A loan, or a fault, has let go of all locks and waits for the disk.
#[test]
fn what_happens_while_a_loan_waits_for_the_disk_is_seen_by_it() {
    for (what, meanwhile) in MEANWHILE {
        for way in 0..3 {
            let site = Site { paging: Some(PAGING), schedule: Schedule::Timed, ..site("xeon-up", 0) };
            run(site, move |rig| {
                let free = rig.vm.free_frames();
                let s = filled(rig, 3, 1);
                assert_eq!(rig.vm.reclaim(rig.t()), 3);
                let expected = RefCell::new(None);
                let waiting = Waiting::new(rig.t(), "disk", || {
                    expected.replace(Some(meanwhile(rig, &s)));
                });
                let got = match way {
                    0 => s.loan_to_kernel(&waiting, AT, 3 * PAGE).map(|loan| {
                        let got = loan.frames().iter().flat_map(|&f| rig.m.frame_bytes(f)).collect();
                        rig.vm.unloan(loan);
                        got
                    }),
                    1 => s.loan_to_anons(&waiting, AT, 3 * PAGE).map(|loan| {
                        let receiver = rig.vm.space().unwrap();
                        let to = receiver.transfer_anons(rig.t(), None, loan).unwrap();
                        let got = rig.load(&receiver, to, 3 * PAGE).unwrap();
                        rig.exit(receiver);
                        got
                    }),
                    _ => {
                        let (access, mode, kind) = (Access::Read, Mode::User, TrapKind::NotPresent);
                        let fault =
                            |page| s.fault(&waiting, Trap { va: AT + page * PAGE, access, mode, kind });
                        (0..3).try_for_each(fault).and_then(|()| rig.load(&s, AT, 3 * PAGE))
                    }
                };
                drop(waiting);
                rig.check();
                match expected.take().expect("it waited for the disk") {
                    Some(bytes) => assert!(got == Ok(bytes), "{what}, way {way}: other bytes"),
                    None => assert!(matches!(got, Err(VmError::Fault(_))), "{what}, way {way}: {got:?}"),
                }
                rig.exit(s);
                assert_eq!((rig.vm.free_frames(), rig.vm.wired_frames()), (free, 0), "{what}, way {way}");
                assert_eq!(rig.vm.swap_census().free, 512);
            })
            .unwrap_or_else(|e| panic!("{what}, way {way}: {e}"));
        }
    }
}

// ----------------------------------------------------------------------- between the last unloan and the free

/// Two CPUs end the last two loans of the same orphans. Answers whether they were at it at the same time.
fn last_loans_end(seed: u64, defect: Option<VmDefect>) -> Result<bool, String> {
    let met = Rc::new(Cell::new(false));
    let seen = met.clone();
    run(site("xeon-mp-htt", seed), move |rig| {
        rig.vm.plant(defect);
        let free = rig.vm.free_frames();
        let space = filled(rig, 3, 1);
        let loans = [0, 1].map(|_| space.loan_to_kernel(rig.t(), AT, 3 * PAGE).unwrap());
        rig.exit(space);
        rig.check();
        assert!(loans[0].frames().iter().all(|&f| rig.vm.frame_info(f).state == FrameState::Orphan));
        let inside = Rc::new(Cell::new(0));
        let jobs = loans.into_iter().map(|loan| {
            let (inside, seen) = (inside.clone(), seen.clone());
            let job: Job = Box::new(move |rig| {
                inside.set(inside.get() + 1);
                seen.set(seen.get() || inside.get() == 2);
                rig.vm.unloan(loan);
                inside.set(inside.get() - 1);
            });
            job
        });
        rig.together(jobs.collect());
        rig.check();
        assert_eq!(rig.vm.free_frames(), free, "each orphan is freed once");
    })?;
    Ok(met.get())
}

#[test]
fn the_last_loans_of_an_orphan_end_at_once() {
    let met = (0..30).filter(|&seed| last_loans_end(seed, None).unwrap()).count();
    assert!(met > 10, "the two met {met} times");
    let defect = Some(VmDefect::UnloanInTwoSteps);
    // The gap is a few cycles wide, and longer paths leave fewer schedules that hit it.
    let caught = (0..300).find_map(|seed| last_loans_end(seed, defect).err());
    assert!(caught.is_some_and(|e| e.contains("freed twice")), "the planted defect is not noticed");
}

// -------------------------------------------------------------------- gone from the source, not yet at the destination

/// Memory is donated back and forth while others store into it in both places. A store that succeeded is in the memory,
/// wherever that is in the end; one that did not has found nothing there.
#[test]
fn memory_that_is_being_donated_is_in_neither_place_for_nobody() {
    let between = Rc::new(Cell::new(0));
    for seed in 0..20 {
        let between = between.clone();
        with_rig("xeon-mp-htt", 24, Schedule::Seeded(seed), move |rig| {
            let spaces = [filled(rig, 3, 1), rig.vm.space().unwrap()];
            let (passing, over) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let stored = Rc::new([const { Cell::new(0) }; 4]);
            let donor: Job = {
                let (spaces, passing, over) = (spaces.clone(), passing.clone(), over.clone());
                Box::new(move |rig| {
                    for round in 0..8 {
                        let (from, to) = (&spaces[round % 2], &spaces[1 - round % 2]);
                        passing.set(true);
                        pass(from, to, rig.t(), AT, 3 * PAGE, Some(AT), PassMode::Donate).unwrap();
                        passing.set(false);
                        // Others get a turn.
                        (0..30).for_each(|_| rig.m.execute(Instructions(1)));
                    }
                    over.set(true);
                })
            };
            let mut jobs = vec![donor];
            jobs.extend((1..4).map(|cpu| {
                let (spaces, passing, over) = (spaces.clone(), passing.clone(), over.clone());
                let (stored, between) = (stored.clone(), between.clone());
                let job: Job = Box::new(move |rig| {
                    for value in 1..=u8::MAX {
                        if over.get() {
                            break;
                        }
                        let space = &spaces[(cpu + usize::from(value) / 4) % 2];
                        match rig.store(space, AT + PAGE + cpu, &[value]) {
                            Ok(()) => stored[cpu].set(value),
                            Err(e) => assert_eq!(e, VmError::Fault(AT + PAGE + cpu)),
                        }
                        let gone = |s: &AddressSpace| rig.vm.pmaps().extract(s.pmap(), AT + PAGE).is_none();
                        if passing.get() && spaces.iter().all(gone) && passing.get() {
                            between.set(between.get() + 1);
                        }
                    }
                    rig.leave(cpu);
                });
                job
            }));
            rig.together(jobs);
            rig.check();
            let mut expected = pattern(1, 3 * PAGE);
            (1..4)
                .filter(|&cpu| stored[cpu].get() > 0)
                .for_each(|cpu| expected[PAGE + cpu] = stored[cpu].get());
            assert!(rig.load(&spaces[0], AT, 3 * PAGE).unwrap() == expected, "a store is lost");
            assert_eq!(rig.load(&spaces[1], AT, 1), Err(VmError::Fault(AT)), "it is in one place");
            spaces.into_iter().for_each(|s| rig.exit(s));
        });
    }
    assert!(between.get() > 0, "nobody looked while it was in neither place");
}

// ----------------------------------------------------------------------- a swap slot is freed and used again

/// A fault has seen which slot a page is in, and waits for a frame. Meanwhile the page comes in for somebody else, who
/// shares it, and gives its only slot up; another page goes there; and if it is to go `back`, it goes to the same slot
/// again once that is free.
fn slot_used_again(back: bool, defect: Option<VmDefect>) -> Result<(), String> {
    let mut paging = PAGING;
    paging.swap_pages = 4;
    let site = Site { paging: Some(paging), schedule: Schedule::Timed, ..site("xeon-up", 0) };
    run(site, move |rig| {
        rig.vm.plant(defect);
        rig.vm.launch_page_daemon();
        let t = rig.t();
        let (parent, filler) = (filled(rig, 1, 1), filled(rig, 3, 2));
        let child = parent.fork(t).unwrap();
        assert_eq!(rig.vm.reclaim(t), 4);
        let full = |only| {
            let swap = rig.vm.swap_census();
            assert_eq!((swap.free, swap.only), (0, only));
        };
        full(4);
        let hoard = rig.hoard(PAGING.kernel_reserve_pages);
        let done = Cell::new(false);
        let meanwhile = || {
            rig.vm.free_kernel_pages(hoard);
            // It stays in its frame while the other page takes the slot.
            let wired = child.wire(rig.t(), AT, PAGE, Prot::READ).unwrap();
            assert_eq!(rig.vm.swap_census().free, 1, "the page that came in gave its slot up");
            let other = filled(rig, 1, 3);
            assert_eq!(rig.vm.reclaim(rig.t()), 1);
            full(4);
            rig.vm.unwire(wired);
            if back {
                rig.exit(other);
                assert_eq!(rig.vm.reclaim(rig.t()), 1);
                full(4);
            } else {
                assert_eq!(rig.load(&other, AT, 9).unwrap(), pattern(3, 9));
                rig.exit(other);
            }
            done.set(true);
        };
        let waiting = Waiting::new(t, "free memory", meanwhile);
        let trap = Trap { va: AT, access: Access::Read, mode: Mode::User, kind: TrapKind::NotPresent };
        parent.fault(&waiting, trap).unwrap();
        drop(waiting);
        assert!(done.get(), "the fault waited for a frame");
        rig.check();
        for space in [&parent, &child] {
            assert_eq!(rig.load(space, AT, PAGE).unwrap(), pattern(1, PAGE), "another page came in");
        }
        [parent, child, filler].into_iter().for_each(|s| rig.exit(s));
        assert_eq!(rig.vm.swap_census().free, 4);
    })
}

#[test]
fn a_slot_that_was_used_again_while_a_fault_waited() {
    for back in [false, true] {
        slot_used_again(back, None).unwrap();
        slot_used_again(back, Some(VmDefect::SwapSlotTrusted))
            .expect_err("the planted defect is not noticed");
    }
}

// ------------------------------------------------------------------- a copied page appears while the old one is cached

/// While a copy-on-write fault replaces a frame, another thread stores through the new mapping and a third reads: it
/// must not be older what it reads than what it knows to be stored.
#[test]
fn what_is_stored_in_the_new_frame_is_read_by_all() {
    let (copies, old) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in 0..200 {
        let (copies, old) = (copies.clone(), old.clone());
        with_rig("xeon-mp-htt", 24, Schedule::Seeded(seed), move |rig| {
            let space = filled(rig, 1, 1);
            rig.store(&space, AT, &[0; 16]).unwrap();
            let (published, over) = (Rc::new([const { Cell::new(0u32) }; 3]), Rc::new(Cell::new(false)));
            let forker: Job = {
                let (space, over) = (space.clone(), over.clone());
                Box::new(move |rig| {
                    for round in 0..12 {
                        let child = space.fork(rig.t()).unwrap();
                        (0..50 + round).for_each(|_| rig.m.execute(Instructions(1)));
                        child.terminate(rig.t());
                    }
                    over.set(true);
                    rig.leave(0);
                })
            };
            let mut jobs = vec![forker];
            // Two that store, each into its own byte, and forget their translations before.
            jobs.extend((1..3).map(|cpu| {
                let (space, over, published) = (space.clone(), over.clone(), published.clone());
                let job: Job = Box::new(move |rig| {
                    rig.enter(&space);
                    for value in 1u32.. {
                        if over.get() {
                            break;
                        }
                        // The second is mostly elsewhere.
                        let elsewhere = if cpu == 2 { value.wrapping_mul(2_654_435_761) >> 23 } else { 0 };
                        (0..elsewhere).for_each(|_| rig.m.execute(Instructions(1)));
                        rig.m.tlb_flush(Flush::Page(Asid::KERNEL, AT));
                        if rig.m.store(Mode::User, AT + 4 * cpu, &value.to_le_bytes()).is_err() {
                            rig.store(&space, AT + 4 * cpu, &value.to_le_bytes()).unwrap();
                        }
                        published[cpu].set(value);
                    }
                    rig.leave(cpu);
                });
                job
            }));
            let reader: Job = {
                let (space, over, published, old) =
                    (space.clone(), over.clone(), published.clone(), old.clone());
                Box::new(move |rig| {
                    while !over.get() {
                        let known = [0, 1, 2].map(|cpu: usize| published[cpu].get());
                        let mut bytes = [0; 12];
                        if rig.m.load(Mode::User, AT, &mut bytes).is_err() {
                            bytes.copy_from_slice(&rig.load(&space, AT, 12).unwrap());
                        }
                        let read = |cpu: usize| u32::from_le_bytes(bytes.as_chunks().0[cpu]);
                        old.set(old.get() + u64::from((1..3).any(|cpu| read(cpu) < known[cpu])));
                    }
                    rig.leave(3);
                })
            };
            jobs.push(reader);
            rig.together(jobs);
            rig.check();
            copies.set(copies.get() + rig.counter(VmCounter::CowCopies));
            rig.exit(space);
        });
    }
    assert!(copies.get() > 100, "{} copies", copies.get());
    assert_eq!(old.get(), 0, "reads of what was known to be overwritten");
}
