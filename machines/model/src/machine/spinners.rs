//! CPUs that spin for locks which are held: their turns, one after the other, until something else is next.
//!
//! Each turn tests once and lets the CPU catch up with whatever comes next, and a cycle more: so with many CPUs there
//! are as many turns in a cycle or two as there are CPUs. Soon those that are behind move together, in *rounds*: all
//! that are at one cycle go on to the next, and the last of them, which has only the others to catch up with, one
//! farther. A round is taken in one step; and as the last of a round is one of the same two in each, any number of
//! rounds is, as long as nothing is in their way.

use crate::turns::NEVER;

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

/// Takes turns of `those`, which are in the order of their CPUs, as long as one of them is first; how many.
pub(super) fn take_turns(those: &mut [Spinner], bounds: Bounds) -> u64 {
    let mut turns = 0;
    while turns < bounds.turns {
        let Some((first, second)) = first_and_second(those) else { break };
        let Spinner { clock, pending, taken_at, .. } = those[first];
        if clock >= bounds.others_at || clock >= taken_at || clock > bounds.last {
            break;
        }
        if second <= clock + 1 {
            let taken = take_rounds(those, clock, Bounds { turns: bounds.turns - turns, ..bounds });
            turns += taken;
            if taken > 0 {
                continue;
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
    let (mut first, mut min, mut second) = (None, NEVER, NEVER);
    for (i, spinner) in those.iter().enumerate() {
        if first.is_none() || spinner.clock < min {
            (first, second, min) = (Some(i), min, spinner.clock);
        } else {
            second = second.min(spinner.clock);
        }
    }
    first.map(|first| (first, second))
}

/// Those that go from one round to the next: who is no more than a cycle ahead.
struct Group {
    /// How many.
    count: u64,
    /// The two with the highest numbers, the highest first, and whether they are held back: by an interrupt that has
    /// come and is not taken they never look past the next cycle.
    highest: [Option<(usize, bool)>; 2],
}

/// A round that is to come.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Round {
    /// The one that is ahead already, if any is: it has no turn.
    ahead: Option<usize>,
    /// Where the others are.
    clock: u64,
}

impl Group {
    fn turns(&self, round: Round) -> u64 {
        self.count - u64::from(round.ahead.is_some())
    }

    /// The round behind this one.
    fn after(&self, round: Round) -> Round {
        let last = self.highest.iter().flatten().find(|(i, _)| Some(*i) != round.ahead);
        let ahead = last.filter(|(_, held_back)| !held_back).map(|(i, _)| *i);
        Round { ahead, clock: round.clock + 1 }
    }
}

/// Takes as many whole rounds as nothing is in the way of, from the cycle `clock` on, at which the first of them are.
/// How many turns that is; 0 if there is not one such round.
fn take_rounds(those: &mut [Spinner], clock: u64, bounds: Bounds) -> u64 {
    let is_one = |spinner: &Spinner| spinner.clock <= clock + 1;
    let mut group = Group { count: 0, highest: [None; 2] };
    // The round that is half over: who is left of it, and the last of these.
    let (mut left, mut last) = (0, None);
    // The cycle before which each turn of a round has to begin.
    let mut until = bounds.others_at.min(bounds.last.saturating_add(1));
    for (i, spinner) in those.iter().enumerate() {
        if !is_one(spinner) {
            // When the rest has come near, it is one of them.
            until = until.min(spinner.clock - 1);
            continue;
        }
        let held_back = spinner.pending <= clock;
        // An interrupt that comes later ends this. One that has come for who is a cycle ahead: not a round, but turn by
        // turn.
        until = until.min(spinner.taken_at);
        if !held_back {
            until = until.min(spinner.pending);
        }
        group.count += 1;
        group.highest = [Some((i, held_back)), group.highest[0]];
        if spinner.clock == clock {
            left += 1;
            last = Some((i, held_back));
        }
    }
    if until <= clock || left > bounds.turns {
        return 0;
    }
    let ahead = last.filter(|(_, held_back)| !held_back).map(|(i, _)| i);
    let (mut round, mut turns) = (Round { ahead, clock: clock + 1 }, left);
    // One whole round, and then two and two, which end as they begin.
    while round.clock < until && group.turns(round) <= bounds.turns - turns {
        let next = group.after(round);
        let two = group.turns(round) + group.turns(next);
        let twice = ((until - round.clock) / 2).min((bounds.turns - turns) / two);
        if twice > 0 && (Round { clock: round.clock, ..group.after(next) }) == round {
            turns += twice * two;
            round.clock += 2 * twice;
        } else {
            turns += group.turns(round);
            round = next;
        }
    }
    for (i, spinner) in those.iter_mut().enumerate().filter(|(_, spinner)| is_one(spinner)) {
        spinner.clock = round.clock + u64::from(round.ahead == Some(i));
    }
    turns
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
            clocks in proptest::collection::vec(
                (prop_oneof![4 => 0..8u64, 1 => 0..1500u64], time(), any::<bool>()),
                0..24,
            ),
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
