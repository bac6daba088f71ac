//! Where one way becomes cheaper than another, exactly.

use pageferry_costs::*;
use proptest::prelude::*;

fn linear() -> impl Strategy<Value = Linear> {
    (0..40_u64, 0..6_u64).prop_map(|(call_cycles, page_cycles)| Linear { call_cycles, page_cycles })
}

proptest! {
    /// No crossing of such lines lies beyond 41 pages.
    #[test]
    fn the_crossing_of_two_lines_is_exact(one in linear(), other in linear()) {
        let wins = |pages: usize| one.of(pages) < other.of(pages);
        let searched = pays((1..100_usize).map(|pages| (pages as u64, wins(pages))));
        prop_assert_eq!(Some(one.pays_over(&other)), searched);
    }

    #[test]
    fn it_pays_from_the_first_size_behind_which_it_always_does(wins in prop::collection::vec(any::<bool>(), 0..8)) {
        let found = pays(wins.iter().copied().enumerate());
        match found {
            None => prop_assert!(wins.is_empty()),
            Some(Pays::Always) => prop_assert!(wins.iter().all(|win| *win)),
            Some(Pays::Never) => prop_assert!(!wins[wins.len() - 1]),
            Some(Pays::From(at)) => {
                prop_assert!(wins[at..].iter().all(|win| *win) && !wins[at - 1]);
            }
        }
    }

    #[test]
    fn a_line_goes_through_what_was_measured(call in 0..10_000_u64, page in 0..10_000_u64, pages in 2..100_usize) {
        let line = Linear { call_cycles: call, page_cycles: page };
        prop_assert_eq!(Linear::through(line.of(1), pages, line.of(pages)), line);
        prop_assert_eq!(Linear::through(page, 1, page).of(1), page);
    }

    #[test]
    fn between_two_points_there_is_a_straight_line(
        x in 0..1000_u64, width in 1..1000_u64, low in any::<u32>(), high in any::<u32>(), at in 0..1000_u64,
    ) {
        let (low, high) = ((x, u64::from(low)), (x + width, u64::from(high)));
        prop_assert_eq!((between(low, high, low.0), between(low, high, high.0)), (low.1, high.1));
        let at = x + at % width;
        let (here, next) = (between(low, high, at), between(low, high, at + 1));
        prop_assert_eq!(here <= next, low.1 <= high.1 || here == next);
        prop_assert!((low.1.min(high.1)..=low.1.max(high.1)).contains(&here));
        prop_assert_eq!(between(low, low, at), low.1);
        prop_assert_eq!(beyond(high, 2 * high.0), 2 * high.1);
    }
}
