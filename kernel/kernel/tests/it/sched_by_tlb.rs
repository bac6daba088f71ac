//! Threads chosen by what the TLB holds of their address spaces.

use crate::common::*;
use crate::ispc::{ant, on_sh4, try_sh4};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_vm::Inherit;
use std::cell::RefCell;
use std::rc::Rc;

const PASSES: u32 = 3;

fn by_tlb(passes: Option<u32>, defect: Planted<SchedDefect>) -> KernelConfig {
    let mut config = ant(Method::Proposed);
    config.pmap.refill.counts = passes.is_some();
    config.sched.by_tlb = passes.map(|passes| ByTlb { passes, look: CodePath::of(8), defect });
    config
}

/// Runs a process that uses few pages and two that use many, each for so many turns; answers whose the turns were, and
/// how often another went before one that had waited longer.
fn turns(config: KernelConfig) -> (Vec<usize>, u64) {
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    let ended = try_sh4(config, 8, move |u| {
        for (who, pages) in [1, 12, 10].into_iter().enumerate() {
            let order = order.clone();
            fork(u, "worker", move |u| {
                let at = u.map(pages * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
                for turn in 0..40u8 {
                    (0..pages).for_each(|page| u.store(at + page * PAGE_SIZE, &[turn]));
                    order.borrow_mut().push(who);
                    u.yield_now().unwrap();
                }
            });
        }
        (0..3).for_each(|_| _ = u.wait().unwrap());
    });
    sound(&ended, "sh7751r");
    let choices = ended.counter(KernelCounter::TlbChoices);
    let order = seen.borrow().clone();
    (order, choices)
}

/// The longest time that one of them waits for a turn, in turns of others.
fn longest_wait(order: &[usize]) -> usize {
    let waits = |who: usize| {
        let last = order.iter().rposition(|&other| other == who).expect("it has turns");
        order[..last].split(move |&other| other == who).map(<[usize]>::len).max().unwrap_or(0)
    };
    (0..3).map(waits).max().expect("there are three")
}

#[test]
fn a_space_with_more_entries_goes_first_and_nobody_waits_for_ever() {
    let (order, choices) = turns(by_tlb(None, Planted::NONE));
    assert_eq!(choices, 0);
    assert_eq!(longest_wait(&order), 2, "one after the other");
    let (order, choices) = turns(by_tlb(Some(PASSES), Planted::NONE));
    assert!(choices > 10, "{choices}");
    let waited = longest_wait(&order);
    // Two at the most lie before it, and each is passed over so often before it is taken.
    assert!((3..=2 * (PASSES as usize + 1)).contains(&waited), "{waited} turns: {order:?}");
    for &defect in SchedDefect::ALL {
        let (order, _) = turns(by_tlb(Some(PASSES), defect.into()));
        let waited = longest_wait(&order);
        assert!(waited > 2 * (PASSES as usize + 1), "{defect:?}: {waited} turns");
    }
}

#[test]
fn the_kernel_counts_the_entries_of_each_space() {
    on_sh4(by_tlb(Some(PASSES), Planted::NONE), |u| {
        let live = || u.kernel().vm().pmaps().live_entries(u.space().pmap());
        let before = live();
        let at = u.map(8 * PAGE_SIZE, Prot::RW, Inherit::Copy).unwrap();
        (0..8).for_each(|page| u.store(at + page * PAGE_SIZE, &[1]));
        assert_eq!(live(), before + 8);
        let piece = u.ica_alloc(2, Wait::No).unwrap();
        assert_eq!(live(), before + 10, "reserved ones count");
        u.ica_free(piece).unwrap();
        u.unmap(at, 4 * PAGE_SIZE).unwrap();
        assert_eq!(live(), before + 4, "what is invalidated does not");
        u.unmap(at + 4 * PAGE_SIZE, 4 * PAGE_SIZE).unwrap();
    });
}
