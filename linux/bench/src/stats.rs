//! Medians, and how sure they are.

use pageferry::choose::Nanos;
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// A median, and an interval that holds it with 95 %, by resampling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

const RESAMPLES: usize = 1000;

impl Estimate {
    /// Of values, of which there is at least one. The same values give the same interval.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        if values.is_empty() {
            return None;
        }
        let mut random = ChaCha8Rng::seed_from_u64(values.len() as u64);
        let mut again = vec![0.0; values.len()];
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                again.fill_with(|| values[random.random_range(0..values.len())]);
                median(&mut again)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let (low, high) = (medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40]);
        Some(Estimate { median: median(&mut values.to_vec()), low, high })
    }
}

/// The median of times with its bounds, none of which is below nothing.
pub(crate) fn nanos(values: &[f64]) -> Option<Nanos> {
    let Estimate { median, low, high } = Estimate::of(values)?;
    Some(Nanos { median: median.max(0.0), low: low.max(0.0), high: high.max(0.0) })
}

/// Of at least one value. Sorts them.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[half - 1], values[half]) } else { values[half] }
}

/// How far values vary, as a part of their median: the span of those that are left without the tenth at either end
/// (of five and more, at least one).
pub(crate) fn spread(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    if values.is_empty() {
        return 0.0;
    }
    let median = median(&mut values);
    let cut = if values.len() < 5 { 0 } else { values.len().div_ceil(10) };
    (values[values.len() - 1 - cut] - values[cut]) / median.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_in_their_intervals() {
        let values = [5.0, 1.0, 4.0, 2.0, 100.0, 3.0, 6.0];
        let estimate = Estimate::of(&values).unwrap();
        assert_eq!(estimate.median, 4.0);
        assert!(estimate.low >= 1.0 && estimate.low < 4.0, "{estimate:?}");
        assert!(estimate.high > 4.0 && estimate.high <= 100.0, "{estimate:?}");
        assert_eq!(Estimate::of(&values), Some(estimate));
        assert_eq!(Estimate::of(&[]), None);
        let same = Estimate::of(&[2.0; 9]).unwrap();
        assert_eq!((same.low, same.median, same.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn one_value_far_off_is_no_spread() {
        assert_eq!(spread(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 50.0]), 0.0);
        assert_eq!(spread(&[1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0]), 0.5);
        assert_eq!(spread(&[]), 0.0);
    }
}
