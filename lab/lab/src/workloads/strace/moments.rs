//! At which moment of its time each call counts.
//!
//! A call does what it does at one moment between its begin and its return, and that moment is not recorded. At first
//! every call counts when it returned. But another process may have seen what a call did before that returned: read
//! bytes that a write had put there, missed a name that an unlink had taken away. And a call may have looked before
//! another changed what it looked at, though it returned later. Then the plain model answers otherwise than was
//! recorded, and nothing is wrong.
//!
//! So where a call deviates, others that were under way beside it and meet it at a name or a file are made to count
//! before it or behind it, one move at a time, and the plan is made anew. What is kept leaves fewer deviations. Calls
//! of one process stay in their order, and a call that returned before another began stays before it: what no order
//! explains stays a deviation.
//!
//! The search is small: a few moves at once, a few calls on each side, and so many calls gone through in all.

use super::calls::{Request, request};
use super::circle::PipeRoom;
use super::names::Path;
use super::ops::Plan;
use super::order::Thing;
use super::plan::{Planned, Setting, first_directory, plan};
use pageferry_trace::strace::{Entry, Log, What};
use std::collections::BTreeSet;

/// Moves that are tried together, at most.
const MAX_MOVES: usize = 3;
/// Calls on each side of one that deviates which are looked at, and those of them that are moved, at most.
const MAX_SEEN: usize = 4096;
const MAX_MOVED: usize = 8;
/// Moves of one call, at most, behind each of which others are tried.
const MAX_FOLLOWED: usize = 6;
/// Plans that are made for one deviation, at most.
const MAX_PLANS: usize = 150;
/// Calls that all these plans go through together, at most.
const MAX_GONE_THROUGH: usize = 12_000_000;

/// Makes the plan of a recording for a kernel with such pipes; `given` has the bytes of files, where there are any.
///
/// # Errors
/// What of the recording is too much.
pub(super) fn plan_of(
    log: &Log,
    room: PipeRoom,
    given: &dyn Fn(&Path, usize) -> Option<Vec<u8>>,
) -> Result<Plan, String> {
    let setting = Setting { here: first_directory(&log.entries), lines: log.lines, room, given };
    let search = Search::new(log, &setting);
    let order: Order = (0..log.entries.len()).collect();
    let planned = plan(&search.entries(&order), &setting)?;
    Ok(search.run(Found { order, planned }).planned.plan)
}

/// Entries by their numbers, in the order in which they count.
type Order = Vec<usize>;

/// An order and what comes of it.
struct Found {
    order: Order,
    planned: Planned,
}

impl Found {
    fn deviations(&self) -> usize {
        self.planned.plan.deviations.len()
    }

    fn left_out(&self) -> u64 {
        self.planned.plan.not_modelled.values().sum()
    }

    /// Fewer calls deviate, and none is left out instead.
    fn is_better_than(&self, other: &Found) -> bool {
        self.deviations() < other.deviations() && self.left_out() <= other.left_out()
    }
}

/// What is left of the plans that may be made.
struct Budget {
    plans: usize,
    gone_through: usize,
    /// Orders that were tried.
    tried: BTreeSet<Order>,
}

struct Search<'a> {
    log: &'a Log,
    setting: &'a Setting<'a>,
    /// By entry: the last line at which it may count. A call that makes a process counts where it begins.
    until: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(log: &'a Log, setting: &'a Setting<'a>) -> Search<'a> {
        let until = |entry: &Entry| match &entry.what {
            What::Call(call) if matches!(request(call), Some(Request::Fork { .. })) => entry.line,
            _ => entry.ended,
        };
        Search { log, setting, until: log.entries.iter().map(until).collect() }
    }

    fn entries(&self, order: &[usize]) -> Vec<&'a Entry> {
        order.iter().map(|entry| &self.log.entries[*entry]).collect()
    }

    /// Moves calls as long as that leaves fewer deviations: one at a time, then where that did not help more at once.
    fn run(&self, mut best: Found) -> Found {
        let mut gone_through = MAX_GONE_THROUGH;
        for moves in 1..=MAX_MOVES {
            let mut hopeless = BTreeSet::new();
            while let Some(at) = self.first_deviation(&best, &hopeless) {
                let mut budget = Budget { plans: MAX_PLANS, gone_through, tried: BTreeSet::new() };
                let better = self.better(&best, &best, &hopeless, moves, &mut budget);
                gone_through = budget.gone_through;
                match better {
                    Some(better) => best = better,
                    None => drop(hopeless.insert(self.log.entries[best.order[at]].line)),
                }
            }
        }
        best
    }

    /// Where the first call is that deviates, of those that are not given up.
    fn first_deviation(&self, found: &Found, hopeless: &BTreeSet<usize>) -> Option<usize> {
        let deviations = &found.planned.plan.deviations;
        let lines: BTreeSet<usize> = deviations.iter().map(|deviation| deviation.line).collect();
        let deviates = |entry: &usize| {
            let line = self.log.entries[*entry].line;
            lines.contains(&line) && !hopeless.contains(&line)
        };
        if lines.iter().all(|line| hopeless.contains(line)) {
            return None;
        }
        found.order.iter().position(deviates)
    }

    /// An order that is better than the best, so many moves from here.
    fn better(
        &self,
        from: &Found,
        best: &Found,
        hopeless: &BTreeSet<usize>,
        moves: usize,
        budget: &mut Budget,
    ) -> Option<Found> {
        let at = self.first_deviation(from, hopeless)?;
        let mut others = Vec::new();
        for (one, to) in self.moves(from, at) {
            let order = moved(&from.order, one, to);
            if budget.tried.contains(&order) && moves == 1 {
                continue;
            }
            if budget.plans == 0 || budget.gone_through < order.len() {
                return None;
            }
            budget.plans -= 1;
            budget.gone_through -= order.len();
            budget.tried.insert(order.clone());
            let Ok(planned) = plan(&self.entries(&order), self.setting) else { continue };
            let found = Found { order, planned };
            if found.is_better_than(best) {
                return Some(found);
            }
            if moves > 1 {
                others.push((found.deviations(), found.order));
            }
        }
        others.sort();
        others.into_iter().take(MAX_FOLLOWED).find_map(|(_, order)| {
            let planned = plan(&self.entries(&order), self.setting).ok()?;
            self.better(&Found { order, planned }, best, hopeless, moves - 1, budget)
        })
    }

    /// What may be moved, and where to, so that the call at a place finds something else: it and the calls under way
    /// beside it that it meets, and calls before it that have met each other where it does.
    fn moves(&self, found: &Found, at: usize) -> Vec<(usize, usize)> {
        let met = |place: usize| &found.planned.met[place];
        let mut moves = Vec::new();
        let mut add = |from: usize, to: usize| {
            if from != to && self.is_possible(&found.order, from, to) && !moves.contains(&(from, to)) {
                moves.push((from, to));
            }
        };
        let behind = (at + 1..found.order.len()).take(MAX_SEEN);
        for other in behind.filter(|other| conflict(met(at), met(*other))).take(MAX_MOVED) {
            add(other, at);
            add(at, other);
        }
        let before = (0..at).rev().take(MAX_SEEN);
        for other in before.clone().filter(|other| conflict(met(at), met(*other))).take(MAX_MOVED) {
            add(at, other);
            add(other, at);
        }
        // Which file is behind a descriptor, its opening has told.
        let is_same_open = |(thing, _): &(Thing, bool)| {
            matches!(thing, Thing::Open(_)) && met(at).iter().any(|(of, _)| of == thing)
        };
        if let Some(opened) = (0..at).find(|place| met(*place).iter().any(is_same_open)) {
            let around = (opened + 1..at).take(MAX_SEEN).chain((0..opened).rev().take(MAX_SEEN));
            for other in around.filter(|other| conflict(met(opened), met(*other))).take(2 * MAX_MOVED) {
                add(other, opened);
                add(opened, other);
            }
        }
        let shared: Vec<usize> =
            before.filter(|other| share(met(at), met(*other))).take(2 * MAX_MOVED).collect();
        for (index, later) in shared.iter().enumerate() {
            for earlier in &shared[index + 1..] {
                if conflict(met(*earlier), met(*later)) {
                    add(*later, *earlier);
                    add(*earlier, *later);
                }
            }
        }
        moves
    }

    /// An entry of an order may be moved to a place: past none of its own process, and past none that had returned
    /// before it began, or that it had returned before.
    fn is_possible(&self, order: &[usize], from: usize, to: usize) -> bool {
        let (entry, line) = (order[from], self.log.entries[order[from]].line);
        let passed = if from < to { &order[from + 1..=to] } else { &order[to..from] };
        passed.iter().all(|other| {
            let passed = &self.log.entries[*other];
            let overlaps =
                if from < to { passed.line < self.until[entry] } else { line < self.until[*other] };
            overlaps && passed.pid != self.log.entries[entry].pid
        })
    }
}

fn moved(order: &[usize], from: usize, to: usize) -> Order {
    let mut order = order.to_vec();
    let entry = order.remove(from);
    order.insert(to, entry);
    order
}

/// Two calls meet at a name or a file, or where bytes go into a pipe: a reader of the same process cannot wait for
/// them. What else goes through a pipe goes in the order of returns.
fn meet(one: &[(Thing, bool)], other: &[(Thing, bool)], is_so: impl Fn(bool, bool) -> bool) -> bool {
    one.iter().any(|(thing, alone)| {
        !matches!(thing, Thing::Readers(_))
            && !matches!(thing, Thing::End(end) if end % 2 == 0)
            && other.iter().any(|(of, of_alone)| of == thing && is_so(*alone, *of_alone))
    })
}

/// One of two calls changes what the other sees.
fn conflict(one: &[(Thing, bool)], other: &[(Thing, bool)]) -> bool {
    meet(one, other, |alone, of_alone| alone || of_alone)
}

/// Two calls have to do with one thing.
fn share(one: &[(Thing, bool)], other: &[(Thing, bool)]) -> bool {
    meet(one, other, |_, _| true)
}
