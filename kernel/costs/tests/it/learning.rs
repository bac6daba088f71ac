//! What is learnt of processes, receivers and stores; and the choice between ways of a message.

use pageferry_costs::*;
use proptest::prelude::*;

const AT: u64 = 64 << 10;

fn point() -> impl Strategy<Value = MessageCosts> {
    (1..100_u64, prop::array::uniform3(0..1_000_000_u64)).prop_map(|(size, [copy_ns, loan_ns, donate_ns])| {
        MessageCosts { bytes: size * AT, copy_ns, loan_ns, donate_ns }
    })
}

proptest! {
    #[test]
    fn a_message_goes_the_cheapest_way(
        points in prop::collection::vec(point(), 0..6), bytes in 0..200 * AT, writes in 0..1_000_000_u64,
        may_donate in any::<bool>(), touched in any::<bool>(),
    ) {
        let arrived = if touched { Arrived::Touched } else { Arrived::Untouched };
        let costs = MessageCosts::at(points.iter().copied(), bytes, arrived);
        let choice = costs.choose(writes, may_donate);
        let lent = costs.loan_ns.saturating_add(writes);
        let donated = if may_donate { costs.donate_ns } else { u64::MAX };
        let cost = match choice.way {
            Way::Copy => costs.copy_ns,
            Way::Loan => lent,
            Way::Donate => donated,
        };
        prop_assert_eq!(cost, costs.copy_ns.min(lent).min(donated));
        prop_assert!(may_donate || choice.way != Way::Donate);
        prop_assert!(!choice.only_for_writes || choice.way == Way::Copy);
        if points.is_empty() {
            prop_assert_eq!(choice.way, Way::Copy);
        }
        let here: Vec<_> = points.iter().filter(|p| p.bytes == bytes).collect();
        if let [here] = here[..] {
            prop_assert_eq!(costs, *here);
        }
    }

    /// The order in which sizes were measured is of no account.
    #[test]
    fn sizes_need_no_order(points in prop::collection::vec(point(), 1..6), bytes in 0..200 * AT) {
        let mut sizes: Vec<MessageCosts> = points;
        sizes.sort_by_key(|p| p.bytes);
        sizes.dedup_by_key(|p| p.bytes);
        let at = |points: &mut dyn Iterator<Item = &MessageCosts>| {
            MessageCosts::at(points.copied(), bytes, Arrived::Touched)
        };
        prop_assert_eq!(at(&mut sizes.iter()), at(&mut sizes.iter().rev()));
    }

    /// What is learnt lies between what was seen, and comes to what is seen for long.
    #[test]
    fn written_pages_come_to_what_receivers_do(first in 0..10_000_u64, then in 0..10_000_u64) {
        let mut written = WrittenPages::default();
        (0..64).for_each(|_| written.learn(first));
        let settled = written.cost(1000);
        prop_assert!(settled <= 1000 * first && settled + 1000 > 1000 * first, "{settled} {first}");
        written.learn(then);
        prop_assert!((first.min(then).saturating_sub(1) * 1000..=first.max(then) * 1000).contains(&written.cost(1000)));
        written.learn(u64::MAX);
        written.learn(u64::MAX);
        prop_assert!(written.cost(u64::MAX) > 0);
    }

    #[test]
    fn no_time_is_too_long(times in prop::collection::vec((any::<bool>(), any::<u64>(), any::<usize>()), 0..50)) {
        let mut learnt = StoreTimes::default();
        for (past, took, bytes) in times {
            learnt.pick();
            learnt.learn(bytes, if past { Stores::NonTemporal } else { Stores::Ordinary }, took);
        }
        prop_assert!(StoreTimes::class(usize::MAX, 12) == 11 && StoreTimes::class(0, 12) == 0);
    }
}

#[test]
fn a_receiver_that_writes_is_tried_again_now_and_then() {
    let mut written = WrittenPages::default();
    let only_for_writes = MessageChoice { way: Way::Copy, only_for_writes: true };
    let lent = (0..10 * PROBE_EVERY).filter(|_| written.way(only_for_writes) == Way::Loan).count();
    assert_eq!(lent, 10);
    let dear = MessageChoice { way: Way::Copy, only_for_writes: false };
    assert!((0..100).all(|_| written.way(dear) == Way::Copy));
}

#[test]
fn loans_that_are_written_to_are_fined_and_forgiven() {
    let costs = MoveCosts { rewrite_cycles: 1000, break_cycles: 3000, ..MoveCosts::UNKNOWN };
    let mut stats = LoanStats::default();
    let mut call = |refused_writes, broken| {
        stats.lent = 10;
        stats.judge_loans(&costs, Outcome { refused_writes, broken });
        stats.cow_penalty_cycles
    };
    let fined = (0..20).map(|_| call(10, 10)).last().unwrap();
    assert!((2900..=3000).contains(&fined), "{fined}");
    assert!(call(10, 0) < fined);
    let forgiven = (0..20).map(|_| call(0, 0)).last().unwrap();
    assert_eq!(forgiven, 0);
}

#[test]
fn copies_that_take_longer_than_measured_are_found_and_looked_at_ever_more_rarely() {
    let mut stats = LoanStats::default();
    for _ in 0..12 {
        stats = stats.timed(1000, 8000);
        stats.judge_copies();
    }
    assert!(stats.copy_ratio >= LoanStats::SLOW && stats.trust == 256, "{stats:?}");
    for _ in 0..12 {
        stats = stats.timed(1000, 1000);
        stats.judge_copies();
    }
    assert!(stats.copy_ratio < LoanStats::SLOW && stats.trust == 1, "{stats:?}");
}
