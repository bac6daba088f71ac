//! A choice never costs more than the cheaper of what was to be chosen from, by its own costs.

use pageferry_costs::*;
use proptest::prelude::*;

const MB: usize = 1 << 20;

fn linear() -> impl Strategy<Value = Linear> {
    (0..1_000_000_u64, 0..100_000_u64)
        .prop_map(|(call_cycles, page_cycles)| Linear { call_cycles, page_cycles })
}

prop_compose! {
    fn costs()(
        mut copy_page in prop::array::uniform11(100..50_000_u64),
        lines in prop::array::uniform5(linear()),
        [cluster_cycles, map_cycles, rewrite_cycles, break_cycles, switch_cycles]
            in prop::array::uniform5(0..20_000_u64),
    ) -> MoveCosts {
        copy_page.sort_unstable();
        let [lend, donate, lend_on, pass, pass_touched] = lines;
        MoveCosts {
            copy_page, cluster_cycles, map_cycles, lend, donate, lend_on, pass, pass_touched, rewrite_cycles,
            break_cycles, switch_cycles,
        }
    }
}

prop_compose! {
    fn sending()(
        at in any::<u64>(),
        len in 0..4 * MB,
        peer in prop::sample::select(vec![Peer::Null, Peer::Socket, Peer::Device]),
        space in PAGE_BYTES..MB,
        loan_pages in 1..64_usize,
    ) -> Sending {
        Sending { at, len, peer, space, max_loan: loan_pages * PAGE_BYTES }
    }
}

proptest! {
    #[test]
    fn the_cheapest_way_is_taken_and_the_first_of_equals(costs in prop::array::uniform4(0..5_u64)) {
        let [a, b, c, d] = costs;
        let (way, cost) = decide([(0, a), (1, b), (2, c), (3, d)]);
        prop_assert_eq!(cost, *costs.iter().min().unwrap());
        prop_assert_eq!(Some(way), costs.iter().position(|c| *c == cost));
    }

    /// A process of which nothing is known: what is lent costs no more than what would have been copied.
    #[test]
    fn pages_are_lent_only_where_that_is_no_dearer(costs in costs(), sending in sending()) {
        let plan = costs.plan(&mut LoanStats::default(), sending);
        let (before, pages) = whole_pages(sending.at, sending.len);
        prop_assert!(plan.lent.start <= plan.lent.end && plan.lent.end <= sending.len);
        if pages == 0 {
            prop_assert!(plan.lent.is_empty());
            return Ok(());
        }
        prop_assert!(plan.is_chosen && before < PAGE_BYTES);
        let expected = plan.copy_page_cycles.unwrap();
        let copied = pages as u64 * (costs.cluster_cycles + expected);
        let loans = pages.div_ceil(sending.max_loan.min(sending.space) / PAGE_BYTES) as u64;
        let lent = pages as u64 * costs.lend.page_cycles + loans * costs.lend.call_cycles;
        prop_assert_eq!(plan.lent.is_empty(), copied <= lent);
    }

    /// Where nothing was measured, everything is copied.
    #[test]
    fn the_unknown_is_copied(sending in sending(), pages in 0..1000_usize) {
        let (costs, mut stats) = (MoveCosts::UNKNOWN, LoanStats::default());
        let plan = costs.plan(&mut stats, sending);
        prop_assert!(plan.lent.is_empty() && plan.copy_page_cycles.is_none());
        let len = sending.len;
        prop_assert!(!costs.donates(pages, len, sending.peer) && !costs.lends_on(&stats, pages, len, 0));
        prop_assert!(!costs.lends_file(len, sending.space));
        let carrier = costs.carrier(&stats, sending, Arrived::Untouched);
        prop_assert_eq!(carrier.0, Carrier::Socket);
        prop_assert_eq!(RequestCosts::NEVER.carrier(len.max(1), carrier), Carrier::Socket);
    }

    /// What writing to lent pages costs only ever speaks against lending.
    #[test]
    fn a_penalty_never_makes_more_be_lent(
        costs in costs(), sending in sending(), penalty in 0..100_000_u64,
    ) {
        let lent = |cow_penalty_cycles| {
            let mut stats = LoanStats { cow_penalty_cycles, ..LoanStats::default() };
            let warm = stats.is_warm(costs.rewrite_cycles);
            (costs.plan(&mut stats, sending).lent.len(), warm, costs.lends_on(&stats, 8, sending.len, 0))
        };
        let (free, fined) = (lent(0), lent(penalty));
        prop_assert!(fined.0 <= free.0 && (free.2 || !fined.2));
    }

    #[test]
    fn a_carrier_costs_no_more_than_any_other(
        costs in costs(), sending in sending(), request in linear(), message in 0..100_000_u64,
    ) {
        let (stats, sending) = (LoanStats::default(), Sending { peer: Peer::Socket, ..sending });
        let pages = sending.len.div_ceil(PAGE_BYTES);
        for (arrived, pass) in [(Arrived::Touched, costs.pass_touched), (Arrived::Untouched, costs.pass)] {
            let best = costs.carrier(&stats, sending, arrived);
            prop_assert!(best.1 <= pass.of(pages));
            prop_assert_eq!(best.0 == Carrier::Pass, best.1 == pass.of(pages) && {
                let dear = Linear { call_cycles: u64::MAX, page_cycles: 0 };
                let without = MoveCosts { pass: dear, pass_touched: dear, ..costs };
                without.carrier(&stats, sending, arrived).1 > best.1
            });
            let server = RequestCosts { message_cycles: message, request, max_pages: 64 };
            let any = server.carrier(sending.len, best);
            let served = pages <= 64 && request.of(pages) < best.1 + message;
            prop_assert_eq!(any, if served { Carrier::Server } else { best.0 });
        }
    }

    /// The larger the working set, the dearer its copies, where that was measured so.
    #[test]
    fn a_copy_costs_between_what_was_measured_around_it(costs in costs(), set in 0..64 * MB) {
        let (here, more) = (costs.copy_page_cycles(set), costs.copy_page_cycles(set + PAGE_BYTES));
        prop_assert!(here <= more);
        prop_assert!((costs.copy_page[0]..=costs.copy_page[CLASSES - 1]).contains(&here));
    }

    #[test]
    fn no_number_is_too_large(
        numbers in prop::array::uniform11(any::<u64>()), len in any::<usize>(), pages in any::<usize>(),
        penalty in any::<u64>(),
    ) {
        let line = Linear { call_cycles: numbers[0], page_cycles: numbers[1] };
        let costs = MoveCosts {
            copy_page: numbers, cluster_cycles: numbers[2], map_cycles: numbers[3], lend: line, donate: line,
            lend_on: line, pass: line, pass_touched: line, rewrite_cycles: numbers[4],
            break_cycles: numbers[5], switch_cycles: numbers[6],
        };
        let mut stats = LoanStats { cow_penalty_cycles: penalty, lent: 7, ..LoanStats::default() };
        for peer in [Peer::Null, Peer::Socket, Peer::Device] {
            let sending = Sending { at: numbers[7], len, peer, space: 1, max_loan: 1 };
            let plan = costs.plan(&mut stats, sending);
            prop_assert!(plan.lent.end <= len);
            costs.donates(pages, len, peer);
            let best = costs.carrier(&stats, sending, Arrived::Touched);
            RequestCosts { message_cycles: numbers[8], request: line, max_pages: pages }.carrier(len, best);
        }
        costs.lends_on(&stats, pages, len, numbers[9]);
        costs.lends_file(len, pages);
        stats = stats.timed(numbers[10], numbers[0]);
        stats.judge_copies();
        stats.judge_loans(&costs, Outcome { refused_writes: 9, broken: 3 });
    }
}
