//! Tests of the choices.

use super::stores::StoreChoice;
use super::*;
use pageferry_costs::Stores;
use std::time::Duration;

fn question(bytes: usize, arrived: Arrived, filled: Filled) -> Question {
    let placement = Placement::Far;
    Question {
        bytes,
        arrived,
        filled,
        placement,
        may_donate: false,
        written: WrittenPages::default(),
        huge: true,
    }
}

fn verb(question: Question) -> Verb {
    choose(&HostCosts::built_in(), &question).way.into()
}

#[test]
fn small_messages_are_copied_and_large_ones_lent() {
    for (arrived, filled) in [(Arrived::Touched, Filled::Before), (Arrived::Untouched, Filled::Before)] {
        assert_eq!(verb(question(64 << 10, arrived, filled)), Verb::Copy);
        assert_eq!(verb(question(4 << 20, arrived, filled)), Verb::Loan);
        assert_eq!(verb(question(1 << 30, arrived, filled)), Verb::Loan);
    }
    // The first size that is lent lies where the curves cross, and none above it is copied.
    let sizes = (0..400).map(|step| (64 << 10) + step * (16 << 10));
    let verbs: Vec<_> = sizes.map(|bytes| verb(question(bytes, Arrived::Touched, Filled::Before))).collect();
    let first = verbs.iter().position(|&verb| verb == Verb::Loan).unwrap();
    assert!(verbs[first..].iter().all(|&verb| verb == Verb::Loan) && (2..20).contains(&first), "{first}");
}

#[test]
fn a_receiver_that_writes_makes_loans_dear_and_is_known_to() {
    let near = Placement::Near;
    let asked = question(4 << 20, Arrived::Touched, Filled::Anew);
    let mut written = WrittenPages::default();
    (0..64).for_each(|_| written.learn(1024));
    let asked = Question { written, placement: near, ..asked };
    let choice = choose(&HostCosts::built_in(), &asked);
    assert_eq!(choice, MessageChoice { way: Way::Copy, only_for_writes: true });
    let donates = Question { may_donate: true, ..asked };
    assert_eq!(verb(Question { bytes: 16 << 20, ..donates }), Verb::Donate);
}

#[test]
fn by_small_pages_what_was_filled_anew_is_copied() {
    let asked = Question { huge: false, ..question(16 << 20, Arrived::Touched, Filled::Anew) };
    assert_eq!(verb(asked), Verb::Copy);
}

#[test]
fn one_placement_serves_for_both() {
    let near =
        Question { placement: Placement::Near, ..question(4 << 20, Arrived::Untouched, Filled::Before) };
    assert_eq!(verb(near), Verb::Loan);
    let empty = HostCosts { messages: Vec::new(), ..HostCosts::built_in() };
    assert_eq!(choose(&empty, &near).way, Way::Copy);
}

#[test]
fn the_faster_stores_are_found_kept_and_left_again() {
    let learnt = StoreChoice::default();
    let run = |copies: u32, ordinary: u64, non_temporal: u64| {
        let mut counts = [0, 0];
        for _ in 0..copies {
            let (stores, timed) = learnt.pick(1 << 20);
            assert!(timed);
            let took = if stores == Stores::Ordinary { ordinary } else { non_temporal };
            learnt.learn(1 << 20, stores, Duration::from_micros(took));
            counts[stores as usize] += 1;
        }
        counts
    };
    let [ordinary, past] = run(320, 700, 130);
    // A probe takes five times as long, so it comes five times as seldom.
    assert!(past > 300 && (2..5).contains(&ordinary), "far: {ordinary} {past}");
    assert_eq!(learnt.placement(1 << 20), Placement::Far);
    run(320, 100, 160);
    let [ordinary, past] = run(320, 100, 160);
    assert!(ordinary > 300 && past >= 5, "near: {ordinary} {past}");
    assert_eq!(learnt.placement(1 << 20), Placement::Near);
    assert_eq!(learnt.pick(1000), (Stores::Ordinary, false));
}

#[cfg(feature = "host-file")]
#[test]
fn a_file_of_this_host_is_read_and_one_of_another_is_refused() {
    use super::file::{cpu_name, kernel_release, of_this_host};
    let mut costs = HostCosts::built_in();
    costs.host.cpu = "another".to_owned();
    let text = toml::to_string(&costs).unwrap();
    assert!(of_this_host(&text).unwrap_err().contains("CPU"));
    costs.host.cpu = cpu_name();
    assert!(of_this_host(&toml::to_string(&costs).unwrap()).unwrap_err().contains("kernel"));
    costs.host.kernel = kernel_release();
    let text = toml::to_string(&costs).unwrap();
    assert_eq!(of_this_host(&text).unwrap(), costs);
    assert!(of_this_host(&text.replace("median", "medium")).unwrap_err().contains("medium"));
    costs.spin.median = -1.0;
    assert!(of_this_host(&toml::to_string(&costs).unwrap()).unwrap_err().contains("negative"));
}
