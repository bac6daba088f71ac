//! CPUs that spin for locks which are held: their turns, one after the other, until something else is next.
//!
//! Each turn tests once and lets the CPU catch up with whatever comes next, and a cycle more: so with many CPUs there are as many turns
//! in a cycle or two as there are CPUs. Soon these turns repeat themselves: after some of them every CPU that took one is as much later
//! as every other. From there on any number of repetitions is taken in one step, as long as nothing is in their way.

use super::turns::NEVER;

/// Repetitions that are looked for, from one state on, before a later one is tried: a state before the turns repeat themselves never
/// comes again.
const MOST_LOOKS: usize = 4;

/// A CPU that spins for a lock: its clock, when its next interrupt comes, and when it could take it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Spinner {
    pub(super) cpu: usize,
    pub(super) clock: u64,
    pub(super) pending: u64,
    pub(super) taken_at: u64,
}

/// What else there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// When another CPU can go on, or something happens outside.
    pub(super) others_at: u64,
    /// The last cycle at which a turn may begin.
    pub(super) last: u64,
    /// The most turns.
    pub(super) turns: u64,
}

/// A state that may come again.
struct Seen {
    clocks: Vec<u64>,
    first: usize,
    turns: u64,
    looks: usize,
}

/// Takes turns of `those`, which are in the order of their CPUs, as long as one of them is first; how many.
pub(super) fn take_turns(those: &mut [Spinner], bounds: Bounds) -> u64 {
    let mut turns = 0;
    let mut seen: Option<Seen> = None;
    while turns < bounds.turns {
        let Some((first, second)) = first_and_second(those) else { break };
        let Spinner { clock, pending, taken_at, .. } = those[first];
        if clock >= bounds.others_at || clock >= taken_at || clock > bounds.last {
            break;
        }
        match &mut seen {
            Some(before) if before.first == first => {
                let skipped = skip(those, before, Bounds { turns: bounds.turns - turns, ..bounds }, turns);
                before.looks += 1;
                if skipped > 0 || before.looks == MOST_LOOKS {
                    seen = None;
                }
                turns += skipped;
                if skipped > 0 {
                    continue;
                }
            }
            Some(_) => {}
            // Most do not spin for long.
            None if turns < 8 => {}
            None => {
                let clocks = those.iter().map(|spinner| spinner.clock).collect();
                seen = Some(Seen { clocks, first, turns, looks: 0 });
            }
        }
        let next = bounds.others_at.min(pending).min(second);
        if next == NEVER {
            break;
        }
        those[first].clock = next.max(clock) + 1;
        turns += 1;
    }
    turns
}

/// The one whose turn it is, of equal clocks the first; and the least clock of the others.
fn first_and_second(those: &[Spinner]) -> Option<(usize, u64)> {
    let (mut first, mut least, mut second) = (None, NEVER, NEVER);
    for (i, spinner) in those.iter().enumerate() {
        if first.is_none() || spinner.clock < least {
            (first, second, least) = (Some(i), least, spinner.clock);
        } else {
            second = second.min(spinner.clock);
        }
    }
    first.map(|first| (first, second))
}

/// If all that have taken turns since `before` are later by as much, repeats these turns as often as nothing is in their way. How many
/// turns that is.
fn skip(those: &mut [Spinner], before: &Seen, bounds: Bounds, turns: u64) -> u64 {
    let passed = |i: usize, spinner: &Spinner| spinner.clock - before.clocks[i];
    let moved = || those.iter().enumerate().filter(|(i, spinner)| passed(*i, spinner) > 0);
    let Some(each) = moved().map(|(i, spinner)| passed(i, spinner)).next() else { return 0 };
    let period = turns - before.turns;
    // What has not moved is a bound as any other: it must not have been reached yet.
    let still = those.iter().enumerate().filter(|(i, spinner)| passed(*i, spinner) == 0);
    let still = still.map(|(_, spinner)| spinner.clock).min().unwrap_or(NEVER);
    let mut until = bounds.others_at.min(bounds.last).min(still);
    let mut latest = 0;
    for (i, spinner) in moved() {
        if passed(i, spinner) != each {
            return 0;
        }
        until = until.min(spinner.taken_at);
        // An interrupt that has come, and is not taken, is none to come.
        if spinner.pending > before.clocks[i] {
            until = until.min(spinner.pending);
        }
        latest = latest.max(spinner.clock);
    }
    let times = (until.saturating_sub(latest) / each).min(bounds.turns / period);
    if until == NEVER || times == 0 {
        return 0;
    }
    let later = times * each;
    for (i, spinner) in those.iter_mut().enumerate() {
        if spinner.clock > before.clocks[i] {
            spinner.clock += later;
        }
    }
    times * period
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, turn by turn.
    fn one_by_one(those: &mut [Spinner], bounds: Bounds) -> u64 {
        let mut turns = 0;
        while turns < bounds.turns {
            let Some(first) = (0..those.len()).min_by_key(|&i| (those[i].clock, i)) else { break };
            let Spinner { clock, pending, taken_at, .. } = those[first];
            if clock >= bounds.others_at || clock >= taken_at || clock > bounds.last {
                break;
            }
            let others = those.iter().enumerate().filter(|(i, _)| *i != first).map(|(_, s)| s.clock);
            let next = others.fold(bounds.others_at.min(pending), u64::min);
            if next == NEVER {
                break;
            }
            those[first].clock = next.max(clock) + 1;
            turns += 1;
        }
        turns
    }

    fn time() -> impl Strategy<Value = u64> {
        prop_oneof![0..40u64, 0..4000u64, Just(NEVER)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn many_turns_at_once_are_as_many_one_by_one(
            clocks in proptest::collection::vec((prop_oneof![4 => 0..8u64, 1 => 0..1500u64], time(), any::<bool>()), 0..24),
            others_at in prop_oneof![0..3000u64, Just(NEVER)],
            last in prop_oneof![0..3000u64, Just(NEVER)],
            turns in prop_oneof![0..100u64, 0..20_000u64],
        ) {
            let spinner = |(cpu, (clock, pending, masked)): (usize, (u64, u64, bool))| {
                Spinner { cpu, clock, pending, taken_at: if masked { NEVER } else { pending } }
            };
            let mut some: Vec<_> = clocks.into_iter().enumerate().map(spinner).collect();
            let mut others = some.clone();
            let bounds = Bounds { others_at, last, turns };
            prop_assert_eq!(take_turns(&mut some, bounds), one_by_one(&mut others, bounds));
            prop_assert_eq!(some, others);
        }
    }

    #[test]
    fn turns_are_not_counted_out() {
        let spin = |cpu| Spinner { cpu, clock: cpu as u64 % 3, pending: NEVER, taken_at: NEVER };
        let mut those: Vec<_> = (0..63).map(spin).collect();
        let turns = take_turns(&mut those, Bounds { others_at: 1 << 40, last: NEVER, turns: NEVER });
        assert!(turns > 1 << 44, "{turns} turns, which would take days one by one");
        assert!(those.iter().all(|spinner| spinner.clock >= 1 << 40));
    }
}
