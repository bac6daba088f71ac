//! Which CPU's turn it is: a tournament between the times at which CPUs can go on.
//!
//! A complete binary tree with a CPU at each leaf; a node knows the winner beneath it. A change is carried up along one
//! path, and the one that comes second is among those that the winner met on its way: both take as many steps as the
//! tree is high. Of equal times the lower CPU number wins.

/// The time of a CPU that cannot go on.
pub(crate) const NEVER: u64 = u64::MAX;

/// The tournament.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Leaves: a power of two.
    width: usize,
    /// Node 1 is the root, the children of `i` are `2 * i` and `2 * i + 1`, leaves begin at `width`.
    times: Vec<u64>,
}

impl Turns {
    /// No CPU can go on.
    pub(crate) fn new(cpus: usize) -> Turns {
        let width = cpus.next_power_of_two();
        Turns { width, times: vec![NEVER; 2 * width] }
    }

    /// `cpu` can go on from `at`.
    #[inline]
    pub(crate) fn set(&mut self, cpu: usize, at: u64) {
        let mut node = self.width + cpu;
        self.times[node] = at;
        while node > 1 {
            let min = self.times[node].min(self.times[node ^ 1]);
            node /= 2;
            // What is above knows it already.
            if std::mem::replace(&mut self.times[node], min) == min {
                return;
            }
        }
    }

    /// When `cpu` can go on.
    #[inline]
    pub(crate) fn time(&self, cpu: usize) -> u64 {
        self.times[self.width + cpu]
    }

    /// The CPU that can go on first, when, and when the next one can.
    #[inline]
    pub(crate) fn first(&self) -> Option<(usize, u64, u64)> {
        let at = self.times[1];
        if at == NEVER {
            return None;
        }
        let (mut node, mut second) = (1, NEVER);
        while node < self.width {
            node *= 2;
            if self.times[node] != at {
                node += 1;
            }
            second = second.min(self.times[node ^ 1]);
        }
        Some((node - self.width, at, second))
    }

    /// The CPUs that can go on, by number, and when.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.times[self.width..].iter().copied().enumerate().filter(|&(_, at)| at != NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_and_the_second_are_those_of_a_list(
            cpus in 1..65usize,
            changes in proptest::collection::vec((0..64usize, prop_oneof![0..6u64, Just(NEVER)]), 1..200),
        ) {
            let (mut turns, mut list) = (Turns::new(cpus), vec![NEVER; cpus]);
            for (cpu, at) in changes {
                let cpu = cpu % cpus;
                turns.set(cpu, at);
                list[cpu] = at;
                let first = (0..cpus).filter(|&c| list[c] != NEVER).min_by_key(|&c| (list[c], c));
                let expected = first.map(|first| {
                    let others = (0..cpus).filter(|&c| c != first).map(|c| list[c]);
                    (first, list[first], others.min().unwrap_or(NEVER))
                });
                prop_assert_eq!(turns.first(), expected);
                prop_assert_eq!(turns.ready().count(), list.iter().filter(|&&at| at != NEVER).count());
            }
        }
    }
}
