//! What the repeats of a run gave: the one in the middle, and how sure that is.

use crate::text;
use serde::{Deserialize, Serialize};

/// An interval is to hold the true median in so many of 100 sets of repeats. With five repeats all of them are needed
/// for it: the median is below all or above all once in sixteen times.
const MIN_COVERAGE: f64 = 0.93;

/// Values of repeats: the median, and an interval that says how sure it is.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The interval holds the true median with a probability of 0.93 or more, whatever the values' distribution; of
    /// fewer than five values it is their range.
    pub low: f64,
    /// Its end.
    pub high: f64,
    /// How many values there are.
    pub repeats: usize,
}

impl Spread {
    /// Of fewer values the interval is their range, and says nothing of how sure the median is.
    pub const MIN_FOR_INTERVAL: usize = 5;

    /// That of `values`; none of none.
    pub fn of(values: &mut [f64]) -> Option<Spread> {
        let median = text::median(values);
        let cut = cut(values.len());
        let (low, high) = (*values.get(cut)?, values[values.len() - 1 - cut]);
        Some(Spread { median, low, high, repeats: values.len() })
    }

    /// Both ends of the interval as tables tell them, where they differ there.
    pub fn told(&self) -> Option<(String, String)> {
        let (low, high) = (text::number(self.low), text::number(self.high));
        (low != high).then_some((low, high))
    }

    /// True when all repeats gave the same.
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }
}

/// How many of the lowest, and of the highest, of `n` values lie outside of the interval.
///
/// The true median is below the lowest value but k when k or fewer values are below it, and each is with probability
/// 1/2: a sum of binomial coefficients, the same on the other side.
fn cut(n: usize) -> usize {
    let (mut below, mut term) = (0.0, 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX)));
    let covered = |k: &usize| {
        below += term;
        term *= (n - k) as f64 / (k + 1) as f64;
        1.0 - 2.0 * below >= MIN_COVERAGE
    };
    (0..n / 2).take_while(covered).count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_values_are_all_needed() {
        let spread = Spread::of(&mut [3.0, 1.0, 2.0, 9.0, 4.0]).expect("five");
        assert_eq!((spread.median, spread.low, spread.high, spread.repeats), (3.0, 1.0, 9.0, 5));
        assert_eq!(Spread::of(&mut []), None);
        let one = Spread::of(&mut [7.0]).expect("one");
        assert!(one.is_exact() && one.median == 7.0);
    }

    /// From tables of the binomial distribution, for 0.93.
    #[test]
    fn more_values_make_it_narrower() {
        // Coverage of what is left with one cut off: n = 8: 0.9297, n = 9: 0.961; n = 20 with 5: 0.959, with 6: 0.885.
        assert_eq!([1, 2, 5, 8, 9, 20].map(cut), [0, 0, 0, 0, 1, 5]);
    }

    #[test]
    fn it_covers_as_often_as_it_says() {
        use rand_chacha::ChaCha8Rng;
        use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        // Of a skewed distribution whose median is known: 2^-32 parts, squared.
        let median = 0.25;
        for n in [5, 9, 15] {
            let sets = 4000;
            let mut draw = || {
                let x = f64::from(rng.next_u32()) / f64::from(u32::MAX);
                x * x
            };
            let covered = (0..sets)
                .filter(|_| {
                    let mut values: Vec<f64> = (0..n).map(|_| draw()).collect();
                    let spread = Spread::of(&mut values).expect("some");
                    spread.low <= median && median <= spread.high
                })
                .count();
            assert!(covered * 100 > sets * 92, "{covered} of {sets} sets of {n}");
        }
    }
}
