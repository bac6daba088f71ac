//! The table of slots beside a list that does the same, and shapes that cannot be.

use super::*;
use crate::sys;
use proptest::prelude::*;

#[test]
fn a_run_is_taken_once() {
    let slots = Slots::new(8);
    let run = slots.claim(2, 3).unwrap();
    assert_eq!((run.first(), run.slots(), slots.taken()), (2, 3, 3));
    for (first, count) in [(2, 1), (4, 1), (0, 3), (4, 4), (0, 8), (3, 1)] {
        assert!(slots.claim(first, count).is_none(), "{first}+{count}");
    }
    slots.give(run);
    assert_eq!(slots.taken(), 0);
    assert!(slots.claim(0, 8).is_some());
}

#[test]
fn what_is_not_there_is_not_claimed() {
    let slots = Slots::new(8);
    for (first, count) in [(0, 0), (0, 9), (8, 1), (7, 2), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)]
    {
        assert!(slots.claim(first, count).is_none(), "{first}+{count}");
    }
    assert_eq!(slots.taken(), 0);
}

#[test]
fn far_reuse_goes_round() {
    let slots = Slots::new(3);
    let mut firsts = Vec::new();
    for _ in 0..6 {
        let run = slots.take(1, Reuse::Far).unwrap();
        firsts.push(run.first());
        slots.give(run);
    }
    assert_eq!(firsts, [0, 1, 2, 0, 1, 2]);
    let run = slots.take(1, Reuse::Near).unwrap();
    assert_eq!(run.first(), 0);
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let page = sys::page_bytes() as u64;
    assert!(offered(1, page).is_ok() && offered(4096, 2 << 20).is_ok());
    for (slots, bytes) in [
        (0, page),
        (4097, page),
        (u32::MAX, page),
        (1, 0),
        (1, page - 1),
        (1, page + 1),
        (1, 1 << 63),
        (2, 1 << 62),
        (4096, 1 << 52),
        (1, u64::MAX),
    ] {
        assert!(offered(slots, bytes).is_err(), "{slots} of {bytes}");
    }
}

proptest! {
    #[test]
    fn no_slot_is_in_two_runs(
        all in 1..20u32,
        steps in proptest::collection::vec((0..4u8, 0..24u32, 0..24u32), 0..100),
    ) {
        let slots = Slots::new(all);
        let mut runs: Vec<Run> = Vec::new();
        let mut taken = vec![false; all as usize];
        for (step, first, count) in steps {
            let run = match step {
                0 => slots.claim(first, count),
                1 => slots.take(1 + count % 4, Reuse::Near),
                2 => slots.take(1 + count % 4, Reuse::Far),
                _ if runs.is_empty() => None,
                _ => {
                    let run = runs.swap_remove(first as usize % runs.len());
                    taken[run.first() as usize..][..run.slots() as usize].fill(false);
                    slots.give(run);
                    None
                }
            };
            let range = first as usize..(first + count) as usize;
            let free = taken.get(range).is_some_and(|range| !range.is_empty() && !range.contains(&true));
            if step == 0 {
                prop_assert_eq!(run.is_some(), free);
            }
            if let Some(run) = run {
                let range = &mut taken[run.first() as usize..][..run.slots() as usize];
                prop_assert!(!range.contains(&true));
                range.fill(true);
                runs.push(run);
            } else if step == 1 || step == 2 {
                let wanted = (1 + count % 4) as usize;
                prop_assert!(!taken.windows(wanted).any(|window| !window.contains(&true)));
            }
            prop_assert_eq!(slots.taken() as usize, taken.iter().filter(|&&taken| taken).count());
        }
    }
}
