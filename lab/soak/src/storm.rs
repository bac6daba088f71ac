//! Storms: several CPUs at one piece of shared memory at the same time.
//!
//! Here what a call does depends on which CPU came first, so there is no model to compare with; what must hold all the
//! same is that no store is lost and that bytes on loan do not change for their borrower.

use crate::planted::Planted;
use crate::rig::{AddressSpace, Job, Rig, with_rig};
use pageferry_hal::{Instructions, PAGE_SIZE, Prot, Va};
use pageferry_model::Schedule;
use pageferry_vm::Inherit;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

const PAGES: usize = 4;
const ROUNDS: u8 = 24;
const RECLAIM_EVERY: usize = 8;

/// Half of the CPUs lend the pages and look at them, the others store into them, and all do the page daemon's work at
/// times, under this schedule.
///
/// # Errors
/// What went wrong.
pub(crate) fn storm(machine: &str, schedule: Schedule, defect: Option<Planted>) -> Result<(), String> {
    with_rig(machine, schedule, defect, move |rig| {
        let space = rig.vm.space().expect("there is memory");
        let va = space.map(rig.t(), None, PAGES * PAGE_SIZE, Prot::RW, Inherit::Copy).expect("there is room");
        let jobs = (0..rig.cpus()).map(|cpu| {
            let space = space.clone();
            let job: Job = Box::new(move |rig| {
                for round in 1..=ROUNDS {
                    // Now and then one takes the pages from all of them, which then want them at the same time.
                    if usize::from(round) % RECLAIM_EVERY == cpu {
                        rig.vm.reclaim(rig.t());
                    }
                    if cpu % 3 == 0 { lend(rig, &space, va) } else { write(rig, &space, va, cpu, round) }
                }
                rig.leave(cpu);
            });
            job
        });
        rig.together(jobs.collect());
        rig.check();
        rig.exit(space);
    })
}

fn lend(rig: &Rig, space: &AddressSpace, va: Va) {
    let loan = space.loan_to_kernel(rig.t(), va, PAGES * PAGE_SIZE).expect("nothing forbids it");
    let before: Vec<Vec<u8>> = loan.frames().iter().map(|&frame| rig.m.frame_bytes(frame)).collect();
    // Time for a store that is still on its way.
    (0..20).for_each(|_| pageferry_hal::Account::execute(&rig.m, Instructions(1)));
    let same = loan.frames().iter().zip(&before).all(|(&frame, bytes)| rig.m.frame_is(frame, bytes));
    assert!(same, "a borrower saw a write");
    rig.vm.unloan(loan);
}

fn write(rig: &Rig, space: &AddressSpace, va: Va, cpu: usize, round: u8) {
    for page in (0..PAGES).rev() {
        let at = va + page * PAGE_SIZE + cpu;
        let (_, stored) = rig.store_some(space, at, &[round]);
        stored.expect("nothing forbids it");
        let got = rig.load(space, at, 1).expect("nothing forbids it");
        assert_eq!(got, [round], "a store of cpu{cpu} is lost");
    }
}

/// Pages that meet in two groups of a hash table, and more than those hold.
const CROWD: usize = 24;
/// Pages of the row that goes at once: more than a kernel invalidates one by one that gives tags anew.
const ROW: usize = 8;

/// All CPUs use pages of one space that get in each other's way in a hash table, and in a TLB with sets: every store is
/// found again. Then a row of pages goes at once.
///
/// # Errors
/// What went wrong.
pub(crate) fn crowd(
    machine: &str,
    schedule: Schedule,
    seed: u64,
    defect: Option<Planted>,
) -> Result<(), String> {
    with_rig(machine, schedule, defect, move |rig| {
        let space = rig.vm.space().expect("there is memory");
        // The least hash table has 1024 groups: what lies so many pages apart has the same primary group, and what
        // differs from it in all bits below has that as its secondary one.
        let places = [5, 1024 - 6].map(|page| (0..CROWD as u64).map(move |i| Va((i * 1024 + page) << 12)));
        let pages: Vec<Va> = places.into_iter().flatten().collect();
        for va in &pages {
            let at = Some(*va);
            space.map(rig.t(), at, PAGE_SIZE, Prot::RW, Inherit::Copy).expect("there is room");
        }
        let jobs = (0..rig.cpus()).map(|cpu| {
            let (space, pages) = (space.clone(), pages.clone());
            let job: Job = Box::new(move |rig| {
                // In the same order on all CPUs: they meet.
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut order: Vec<usize> = (0..pages.len()).collect();
                for round in 1..=6u8 {
                    order.shuffle(&mut rng);
                    let own = |i: usize| (pages[i] + cpu, (i as u8).wrapping_mul(round));
                    for (at, byte) in order.iter().map(|&i| own(i)) {
                        rig.store_some(&space, at, &[byte]).1.expect("nothing forbids it");
                    }
                    for (at, byte) in order.iter().rev().map(|&i| own(i)) {
                        let got = rig.load(&space, at, 1).expect("nothing forbids it");
                        assert_eq!(got, [byte], "a store of cpu{cpu} is lost");
                    }
                }
                rig.leave(cpu);
            });
            job
        });
        rig.together(jobs.collect());
        // A row of pages goes at once, by another tag where there are any; what was loaded last may be found still.
        let row = space.map(rig.t(), None, ROW * PAGE_SIZE, Prot::RW, Inherit::Copy).expect("there is room");
        rig.store(&space, row, &[1; ROW * PAGE_SIZE]).expect("nothing forbids it");
        space.unmap(rig.t(), row, ROW * PAGE_SIZE).expect("it is mapped");
        let gone = (0..ROW).rev().all(|i| rig.load(&space, row + i * PAGE_SIZE, 1).is_err());
        assert!(gone, "what was unmapped is still there");
        rig.check();
        rig.exit(space);
    })
}
