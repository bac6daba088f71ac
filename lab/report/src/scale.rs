//! Scales: from values to pixels, and where their ticks are.

/// A scale from values to pixels, starting at 0, with round ticks.
pub(super) struct Scale {
    from: f64,
    pixels: f64,
    max: f64,
    step: f64,
}

impl Scale {
    /// A scale that reaches at least `max` over `pixels`, starting at pixel `from`, with about `ticks` ticks.
    pub(super) fn new(max: f64, from: f64, pixels: f64, ticks: f64) -> Scale {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = round_step(max / ticks);
        Scale { from, pixels, max: (max / step).ceil() * step, step }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        self.from + value / self.max * self.pixels
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let (step, count) = (self.step, (self.max / self.step).round() as usize);
        (0..=count).map(move |i| i as f64 * step)
    }
}

/// The least round number that is not below `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough * 0.999);
    step.unwrap_or(rough)
}

/// A logarithmic scale from values to pixels.
pub(super) struct LogScale {
    from: f64,
    pixels: f64,
    min: f64,
    max: f64,
}

impl LogScale {
    /// A scale of the values from `range.0` to `range.1`, both positive, over `pixels` (which may be negative:
    /// upwards), starting at pixel `from`.
    pub(super) fn new(range: (f64, f64), from: f64, pixels: f64) -> LogScale {
        let (min, max) = range;
        assert!(min > 0.0 && max >= min, "a logarithmic scale from {min} to {max}");
        // A little room at both ends; and some range, where there is one value only.
        let room = (max / min).powf(0.04).max(1.02);
        LogScale { from, pixels, min: min / room, max: max * room }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        self.from + (value / self.min).ln() / (self.max / self.min).ln() * self.pixels
    }

    /// The powers of ten within, and, where these are few, twice and five times them, or round values at equal steps;
    /// true for a power of ten.
    pub(super) fn decimal_ticks(&self) -> Vec<(f64, bool)> {
        let (min, max) = (self.min, self.max);
        if max / min < 5.0 {
            let step = round_step((max - min) / 4.0);
            let steps = (min / step).ceil() as i64..=(max / step).floor() as i64;
            return steps.map(|i| (i as f64 * step, false)).collect();
        }
        let wide = max / min > 3000.0;
        let power = |p: i32| {
            let one = 10f64.powi(p);
            [(one, true), (2.0 * one, false), (5.0 * one, false)].into_iter().filter(move |t| t.1 || !wide)
        };
        let powers = min.log10().floor() as i32..=max.log10().ceil() as i32;
        powers.flat_map(power).filter(|(tick, _)| (min..=max).contains(tick)).collect()
    }

    /// The powers of two within.
    pub(super) fn binary_ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let (min, max) = (self.min, self.max);
        let powers = min.log2().ceil() as i32..=max.log2().floor() as i32;
        powers.map(|p| 2f64.powi(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_ticks_and_hold_the_most() {
        for max in [0.3, 7.0, 99.0, 100.0, 1234.0, 51_200.0] {
            let scale = Scale::new(max, 0.0, 100.0, 4.0);
            let last = scale.ticks().last().expect("ticks");
            assert!(last >= max && last < max * 1.6, "{max}: {last}");
            assert!((3..=6).contains(&scale.ticks().count()), "{max}");
            assert!((scale.at(last) - 100.0).abs() < 1e-9);
        }
    }

    #[test]
    fn logarithmic_scales_hold_their_values() {
        let scale = LogScale::new((4096.0, 4194304.0), 50.0, 500.0);
        assert!(scale.at(4096.0) > 50.0 && scale.at(4194304.0) < 550.0);
        let steps: Vec<f64> = scale.binary_ticks().map(|t| scale.at(t)).collect();
        assert_eq!(steps.len(), 11);
        assert!(steps.windows(3).all(|w| (w[2] - w[1] - (w[1] - w[0])).abs() < 1e-9), "equal ratios");
        let ticks: Vec<f64> =
            LogScale::new((11.0, 450.0), 0.0, 100.0).decimal_ticks().into_iter().map(|t| t.0).collect();
        assert_eq!(ticks, [10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        let near = LogScale::new((277.0, 382.0), 0.0, 100.0).decimal_ticks();
        assert_eq!(near.iter().map(|t| t.0).collect::<Vec<_>>(), [300.0, 350.0], "never none");
        let wide = LogScale::new((11.0, 45_000.0), 0.0, 100.0);
        assert!(wide.decimal_ticks().iter().all(|t| t.1));
    }
}
