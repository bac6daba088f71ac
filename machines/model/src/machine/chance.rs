//! Which CPU goes on where time does not decide: at random at every call, or by priorities that change now and then.
//!
//! # Priorities
//! *Probabilistic concurrency testing* (Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with
//! Probabilistic Guarantees of Finding Bugs, ASPLOS 2010), with CPUs for threads. Each CPU has a priority, at random,
//! and the ready CPU with the highest one goes on. At `depth - 1` of the turns, which are drawn beforehand among
//! `steps`, the CPU that would go on gets a priority below all of those. A bug of depth *d*, which shows when *d* turns
//! come in the right order, is found with a probability of at least 1 / (cpus * steps^(d - 1)).
//!
//! What the paper takes for granted has to be seen to here:
//! * *A CPU that waits is not ready.* It waits in a loop that tests; it has one turn for a test after each turn of a
//!   CPU that does not wait, so that what it waits for is seen in time. Where all wait, they have turns at random.
//! * *A run has `steps` turns.* A longer one begins anew, with other priorities, every `steps` turns. So a loop that
//!   the machine does not know for a wait keeps no other CPU away for ever.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How turns are given.
pub(crate) struct Chance {
    /// Turns so far for which there was a choice.
    turns: u64,
    order: Order,
}

enum Order {
    Random(ChaCha8Rng),
    Priorities(Priorities),
}

struct Priorities {
    rng: ChaCha8Rng,
    depth: u32,
    steps: u64,
    /// Turns that may be drawn and were not reached, each with the priority that it gives.
    changes: Vec<(u64, u64)>,
    /// Turns of these `steps`.
    turn: u64,
    /// By CPU; no two are equal.
    priorities: Vec<u64>,
    /// By CPU: it waits, and has tested since a CPU that does not wait had a turn.
    tested: Vec<bool>,
}

impl Chance {
    pub(crate) fn random(seed: u64) -> Chance {
        Chance { turns: 0, order: Order::Random(ChaCha8Rng::seed_from_u64(seed)) }
    }

    pub(crate) fn priorities(seed: u64, depth: u32, steps: u64, cpus: usize) -> Chance {
        let (rng, steps) = (ChaCha8Rng::seed_from_u64(seed), steps.max(1));
        let mut priorities = Priorities {
            rng,
            depth,
            steps,
            changes: Vec::new(),
            turn: 0,
            priorities: vec![0; cpus],
            tested: vec![false; cpus],
        };
        priorities.draw();
        Chance { turns: 0, order: Order::Priorities(priorities) }
    }

    /// The CPU of `ready` that goes on. `waits` says of which it is known that it waits.
    pub(crate) fn next<R>(&mut self, ready: impl Fn() -> R, waits: impl Fn(usize) -> bool) -> usize
    where
        R: Iterator<Item = usize>,
    {
        let choice = ready().nth(1).is_some();
        self.turns += u64::from(choice);
        match &mut self.order {
            Order::Random(rng) => any(rng, ready),
            Order::Priorities(_) if !choice => ready().next().expect("one is ready"),
            Order::Priorities(priorities) => priorities.next(ready, waits),
        }
    }

    /// Turns so far for which there was a choice.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }
}

fn any<R: Iterator<Item = usize>>(rng: &mut ChaCha8Rng, ready: impl Fn() -> R) -> usize {
    let nth = rng.next_u32() as usize % ready().count();
    ready().nth(nth).expect("fewer than are ready")
}

impl Priorities {
    /// Priorities, and where they change, for the next `steps` turns.
    fn draw(&mut self) {
        let low = u64::from(self.depth);
        for (cpu, priority) in self.priorities.iter_mut().enumerate() {
            *priority = low + cpu as u64;
        }
        for cpu in (1..self.priorities.len()).rev() {
            self.priorities.swap(cpu, self.rng.next_u32() as usize % (cpu + 1));
        }
        self.turn = 0;
        let (rng, steps) = (&mut self.rng, self.steps);
        self.changes = (1..low).map(|priority| (rng.next_u64() % steps, priority)).collect();
    }

    fn next<R: Iterator<Item = usize>>(
        &mut self,
        ready: impl Fn() -> R,
        waits: impl Fn(usize) -> bool,
    ) -> usize {
        if self.turn == self.steps {
            self.draw();
        }
        let Some(mut cpu) = self.first(&ready, &waits) else {
            self.tested.fill(false);
            return any(&mut self.rng, ready);
        };
        while let Some(at) = self.changes.iter().position(|&(turn, _)| turn == self.turn) {
            self.priorities[cpu] = self.changes.swap_remove(at).1;
            cpu = self.first(&ready, &waits).expect("there was one");
        }
        self.turn += 1;
        if waits(cpu) {
            self.tested[cpu] = true;
        } else {
            self.tested.fill(false);
        }
        cpu
    }

    /// The CPU with the highest priority among those that do not wait, or have not tested yet.
    fn first<R: Iterator<Item = usize>>(
        &self,
        ready: impl Fn() -> R,
        waits: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        ready().filter(|&cpu| !waits(cpu) || !self.tested[cpu]).max_by_key(|&cpu| self.priorities[cpu])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pct(seed: u64, depth: u32, steps: u64) -> Chance {
        Chance::priorities(seed, depth, steps, 4)
    }

    /// Who goes on, of four that are always ready.
    fn turns(mut chance: Chance, count: usize) -> Vec<usize> {
        (0..count).map(|_| chance.next(|| 0..4, |_| false)).collect()
    }

    fn changes(turns: &[usize]) -> usize {
        turns.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    #[test]
    fn the_same_seed_gives_the_same_turns() {
        for seed in 0..20 {
            assert_eq!(turns(pct(seed, 3, 50), 200), turns(pct(seed, 3, 50), 200));
        }
        assert_ne!(turns(pct(1, 3, 50), 200), turns(pct(2, 3, 50), 200));
    }

    #[test]
    fn priorities_change_as_often_as_the_depth_says() {
        let mut often = [0; 4];
        for seed in 0..200 {
            for depth in 1..=4 {
                let switches = changes(&turns(pct(seed, depth, 100), 100));
                assert!(switches < depth as usize, "{switches} switches at depth {depth}");
                often[depth as usize - 1] += switches;
            }
        }
        assert!(often.is_sorted() && often[0] == 0 && often[3] > 500, "{often:?}");
        assert!(changes(&turns(pct(0, 1, 10), 1000)) > 50, "a long run begins anew");
    }

    #[test]
    fn every_cpu_is_first_as_often_as_any_other() {
        let mut first = [0; 4];
        (0..4000).for_each(|seed| first[turns(pct(seed, 2, 100), 1)[0]] += 1);
        assert!(first.iter().all(|n| (900..1100).contains(n)), "{first:?}");
    }

    /// Whoever waits has one turn after each turn of one that does not, whatever its priority.
    #[test]
    fn who_waits_tests_once_and_lets_others_go_on() {
        for seed in 0..50 {
            let mut chance = pct(seed, 1, 1000);
            let turns: Vec<_> = (0..100).map(|_| chance.next(|| 0..4, |cpu| cpu != 2)).collect();
            let work = turns.iter().filter(|&&cpu| cpu == 2).count();
            assert!(work >= 25, "{turns:?}");
            let others = turns.split(|&cpu| cpu == 2).map(|row| row.len()).max();
            assert!(others <= Some(3), "{turns:?}");
        }
        let mut chance = pct(0, 1, 1000);
        let turns: Vec<_> = (0..100).map(|_| chance.next(|| 0..4, |_| true)).collect();
        assert!((0..4).all(|cpu| turns.contains(&cpu)), "where all wait, all test: {turns:?}");
    }
}
