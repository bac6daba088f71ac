//! What the library is to reach, and whether it did.
//!
//! A bar compares two methods within each repetition, so what the host does to both falls out. It is reached or
//! missed when the whole interval lies on one side of the limit. There is no verdict where it does not, nor where
//! the floor of the cell varies by more than a quarter within the run, or the method's own times by more than half.

use crate::cell::{Carrier, Method, Pattern, Wait};
use crate::series::{MAX_SPREAD, Report, Series, size};
use crate::stats::{Estimate, spread};
use serde::Serialize;

/// The same for the method itself.
const MAX_OWN_SPREAD: f64 = 0.5;

/// Whether a bar was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The whole interval is on the right side of the limit.
    Reached,
    /// The whole interval is on the wrong side.
    Missed,
    /// Neither, or the host was not steady enough to tell.
    NoVerdict,
}

impl Outcome {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Reached => "reached",
            Outcome::Missed => "missed",
            Outcome::NoVerdict => "no verdict",
        }
    }
}

/// Something that is to be reached, and what was measured of it.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// What.
    pub what: &'static str,
    /// In which cell.
    pub at: String,
    /// `<=` or `>=`.
    pub sign: &'static str,
    /// What the number is to keep to.
    pub limit: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// The number as it was measured.
    pub measured: Estimate,
    /// Whether it was reached.
    pub outcome: Outcome,
}

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;
const SIZES: [usize; 5] = [64 * KB, MB, 4 * MB, 16 * MB, 64 * MB];

/// What is compared in one repetition: this method's nanoseconds and the other's.
type Compare = fn(f64, f64) -> f64;

fn us(time: f64, _: f64) -> f64 {
    time / 1e3
}
fn us_over(time: f64, other: f64) -> f64 {
    (time - other) / 1e3
}
fn times(time: f64, other: f64) -> f64 {
    time / other
}
fn faster(time: f64, other: f64) -> f64 {
    other / time
}
/// Over the larger of 1.12 times the floor and the floor and 40 us.
fn us_over_allowance(time: f64, floor: f64) -> f64 {
    (time - (1.12 * floor).max(floor + 40e3)) / 1e3
}
/// Over 5 % and 2 us more than the other.
fn us_over_margin(time: f64, other: f64) -> f64 {
    (time - (1.05 * other + 2e3)) / 1e3
}

struct BarList<'a> {
    report: &'a Report,
    bars: Vec<Bar>,
}

#[derive(Clone, Copy)]
struct At(usize, Pattern, Wait);

impl BarList<'_> {
    fn series(&self, method: Method, At(bytes, pattern, wait): At) -> Option<&Series> {
        self.report.series(method, bytes, pattern, wait)
    }

    /// The smallest of several methods in each repetition.
    fn best(&self, methods: &[Method], at: At) -> Option<Vec<f64>> {
        let series: Option<Vec<_>> = methods.iter().map(|&method| self.series(method, at)).collect();
        let series = series?;
        let len = series.iter().map(|series| series.nanos.len()).min()?;
        let smallest = |index: usize| series.iter().map(|of| of.nanos[index]).fold(f64::INFINITY, f64::min);
        Some((0..len).map(smallest).collect())
    }

    fn bar(
        &mut self,
        what: &'static str,
        method: Method,
        others: &[Method],
        at: At,
        (compare, sign, limit, unit): (Compare, &'static str, f64, &'static str),
    ) {
        let Some(others) = self.best(others, at) else { return };
        let Some(series) = self.series(method, at) else { return };
        let values: Vec<_> =
            series.nanos.iter().zip(&others).map(|(time, other)| compare(*time, *other)).collect();
        let Some(measured) = Estimate::of(&values) else { return };
        let At(bytes, pattern, wait) = at;
        // Of what takes a microsecond or less, a quarter is nothing.
        let floor = self.best(&[Method::Floor], at).unwrap_or_default();
        let steady = self
            .report
            .floor_spread(bytes, pattern, wait)
            .is_some_and(|spread| spread <= MAX_SPREAD || floor.iter().all(|&nanos| nanos < 2e3));
        let steady = steady && spread(&series.nanos) <= MAX_OWN_SPREAD;
        let outcome = judge(measured, sign, limit, steady);
        let at = format!("{}, {}, {}", size(bytes), pattern.name(), wait.name());
        self.bars.push(Bar { what, at, sign, limit, unit, measured, outcome });
    }
}

fn judge(measured: Estimate, sign: &str, limit: f64, steady: bool) -> Outcome {
    let (all_within, all_beyond) = match sign {
        "<=" => (measured.high <= limit, measured.low > limit),
        _ => (measured.low >= limit, measured.high < limit),
    };
    match (steady, all_within, all_beyond) {
        (true, true, _) => Outcome::Reached,
        (true, _, true) => Outcome::Missed,
        _ => Outcome::NoVerdict,
    }
}

/// What the library is to reach from Python.
fn python_bars(report: &Report) -> Vec<Bar> {
    use Method::{Ferry, FerryArray, MpQueue, Pickle5, TorchKept};
    use Pattern::{Read, Refilled};
    let mut asked = BarList { report, bars: Vec::new() };
    let mut than = |method: Method, bytes, pattern, other, limit| {
        let at = At(bytes, pattern, Wait::Sleep);
        asked.bar(method.name(), method, &[other], at, (faster, ">=", limit, against(other)));
    };
    for (other, limit) in [(MpQueue, 25.0), (Pickle5, 4.0), (TorchKept, 4.0)] {
        than(Ferry, 4 * MB, Read, other, limit);
    }
    match report.is_far() {
        Some(true) => than(Ferry, 4 * MB, Refilled, MpQueue, 7.0),
        Some(false) => {
            than(Ferry, 4 * MB, Refilled, MpQueue, 12.0);
            than(Ferry, 4 * MB, Refilled, Pickle5, 3.5);
        }
        None => (),
    }
    for (other, limit) in [(MpQueue, 10.0), (Pickle5, 2.0)] {
        than(FerryArray, 4 * MB, Refilled, other, limit);
    }
    for (other, limit) in [(MpQueue, 25.0), (Pickle5, 7.0)] {
        than(Ferry, 64 * MB, Refilled, other, limit);
    }
    than(FerryArray, 64 * MB, Refilled, MpQueue, 13.0);
    let millis: Vec<_> = report.import_nanos.iter().map(|nanos| nanos / 1e6).collect();
    let mut bars = asked.bars;
    bars.extend(Estimate::of(&millis).map(|measured| Bar {
        what: "import of the package",
        at: "a fresh interpreter".to_owned(),
        sign: "<=",
        limit: 30.0,
        unit: "ms",
        measured,
        outcome: judge(measured, "<=", 30.0, spread(&millis) <= MAX_OWN_SPREAD),
    }));
    bars
}

/// All bars of which something was measured.
pub fn bars(report: &Report) -> Vec<Bar> {
    if report.series.iter().any(|of| of.method.carrier() != Carrier::Own) {
        return python_bars(report);
    }
    use Method::{Auto, CopyBuffer, Donate, Floor, Loan, LoanFilled, LoanOrdinary, LoanStreamed};
    use Pattern::{Read, Refilled, Untouched};
    let mut asked = BarList { report, bars: Vec::new() };
    let spin = |bytes, pattern| At(bytes, pattern, Wait::Spin);
    for bytes in SIZES {
        let at = spin(bytes, Untouched);
        let limit = if bytes > 16 * MB { 20.0 } else { 15.0 };
        asked.bar("loan", Loan, &[Floor], at, (us, "<=", limit, "us"));
        asked.bar("loan, view is read-only", Loan, &[Floor], at, (us, "<=", 9.0, "us"));
        asked.bar(
            "donation",
            Donate,
            &[Floor],
            at,
            (us, "<=", if bytes > 16 * MB { 32.0 } else { 18.0 }, "us"),
        );
        asked.bar("leased", Method::Leased, &[Loan], at, (us_over, "<=", 9.0, "us over a loan"));
        asked.bar("sealed, re-sent", Method::Resent, &[Floor], at, (us, "<=", 26.0, "us"));
    }
    for bytes in [MB, 4 * MB] {
        asked.bar("loan", Loan, &[Floor], spin(bytes, Read), (us_over, "<=", 20.0, "us over the floor"));
    }
    for bytes in [16 * MB, 64 * MB] {
        asked.bar("loan", Loan, &[Floor], spin(bytes, Read), (times, "<=", 1.08, "floors"));
    }
    for bytes in &SIZES[1..] {
        let limit = (us_over_allowance as Compare, "<=", 0.0, "us over floor x 1.12 or + 40");
        asked.bar("loan", Loan, &[Floor], spin(*bytes, Refilled), limit);
    }
    for bytes in &SIZES[1..] {
        let at = spin(*bytes, Refilled);
        let better = (times as Compare, "<=", 1.05, "of the better stores");
        asked.bar("write_from", Method::LoanWritten, &[LoanOrdinary, LoanStreamed], at, better);
    }
    if report.is_far() == Some(true) {
        for bytes in [MB, 4 * MB] {
            let at = spin(bytes, Refilled);
            asked.bar("non-temporal fill", LoanFilled, &[Loan], at, (times, "<=", 0.6, "of ordinary stores"));
        }
    }
    for bytes in SIZES {
        for pattern in [Untouched, Read, Refilled] {
            let margin = (us_over_margin as Compare, "<=", 0.0, "us over best x 1.05 + 2");
            asked.bar("auto", Auto, &[Loan, CopyBuffer], spin(bytes, pattern), margin);
        }
    }
    let four = spin(4 * MB, Read);
    for (other, limit) in [(Method::Readv, 4.0), (Method::Unix, 8.0), (Method::Pipe, 18.0)] {
        asked.bar("loan", Loan, &[other], four, (faster, ">=", limit, against(other)));
    }
    if report.is_far() == Some(false) {
        for (other, limit) in [(Method::Readv, 3.0), (Method::Unix, 4.0)] {
            asked.bar("loan", Loan, &[other], spin(4 * MB, Refilled), (faster, ">=", limit, against(other)));
        }
    }
    for bytes in SIZES {
        for pattern in [Untouched, Refilled] {
            let at = At(bytes, pattern, Wait::Sleep);
            asked.bar("loan", Loan, &[Floor], at, (us_over, "<=", 15.0, "us over the floor"));
        }
    }
    asked.bars
}

fn against(method: Method) -> &'static str {
    match method {
        Method::Readv => "x as fast as process_vm_readv",
        Method::Unix => "x as fast as a unix stream",
        Method::MpQueue => "x as fast as mp.Queue",
        Method::Pickle5 => "x as fast as pickle 5",
        Method::TorchKept => "x as fast as a kept tensor",
        _ => "x as fast as a pipe",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surroundings::Surroundings;

    fn series(method: Method, bytes: usize, pattern: Pattern, micros: [f64; 7]) -> Series {
        Series { method, bytes, pattern, wait: Wait::Sleep, nanos: micros.map(|us| us * 1e3).to_vec() }
    }

    const STEADY: [f64; 7] = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 100.0];

    /// All that the bars look at, by a factor of what the library takes.
    fn report(floor: Option<[f64; 7]>, factors: &[(Method, f64)]) -> Report {
        let mut all = Vec::new();
        for bytes in [4 * MB, 64 * MB] {
            for pattern in [Pattern::Read, Pattern::Refilled] {
                all.extend(floor.map(|floor| series(Method::Floor, bytes, pattern, floor)));
                all.push(series(Method::Ferry, bytes, pattern, STEADY));
                for &(method, factor) in factors {
                    all.push(series(method, bytes, pattern, STEADY.map(|us| us * factor)));
                }
            }
        }
        Report {
            surroundings: Surroundings::get(),
            notes: Vec::new(),
            series: all,
            fill_nanos: 90e3,
            base: Method::Ferry,
            import_nanos: vec![31e6; 7],
        }
    }

    fn outcome(bars: &[Bar], unit: &str, at: &str) -> Outcome {
        let found: Vec<_> =
            bars.iter().filter(|bar| bar.unit.contains(unit) && bar.at.contains(at)).collect();
        assert_eq!(found.len(), 1, "{unit} {at}: {bars:?}");
        found[0].outcome
    }

    #[test]
    fn bars_from_python_are_reached_and_missed() {
        let factors = [(Method::MpQueue, 26.0), (Method::Pickle5, 3.0), (Method::TorchKept, 4.0)];
        let report = report(Some(STEADY), &factors);
        let found = bars(&report);
        assert_eq!(outcome(&found, "mp.Queue", "4 MB, read whole"), Outcome::Reached);
        assert_eq!(outcome(&found, "pickle 5", "4 MB, read whole"), Outcome::Missed);
        assert_eq!(outcome(&found, "kept tensor", "4 MB, read whole"), Outcome::Reached);
        assert_eq!(outcome(&found, "mp.Queue", "64 MB, refilled"), Outcome::Reached);
        assert_eq!(outcome(&found, "pickle 5", "64 MB, refilled"), Outcome::Missed);
        assert_eq!(outcome(&found, "ms", "interpreter"), Outcome::Missed);
        // What was not measured has no bar.
        assert!(found.iter().all(|bar| bar.what != Method::FerryArray.name()), "{found:?}");
        let ratio =
            report.ratios(report.series(Method::MpQueue, 4 * MB, Pattern::Read, Wait::Sleep).unwrap());
        assert!(ratio.is_some_and(|ratio| (ratio.median - 26.0).abs() < 1e-9), "{ratio:?}");
    }

    #[test]
    fn there_is_no_verdict_without_a_steady_floor() {
        let factors = [(Method::MpQueue, 26.0)];
        let unsteady = [100.0, 150.0, 99.0, 100.0, 160.0, 98.0, 60.0];
        for floor in [Some(unsteady), None] {
            let found = bars(&report(floor, &factors));
            assert_eq!(outcome(&found, "mp.Queue", "4 MB, read whole"), Outcome::NoVerdict, "{floor:?}");
        }
    }

    #[test]
    fn there_is_no_verdict_where_an_interval_holds_the_limit() {
        let mut report = report(Some(STEADY), &[]);
        let times = [2300.0, 2700.0, 2400.0, 2600.0, 2500.0, 2550.0, 2450.0];
        report.series.push(series(Method::MpQueue, 4 * MB, Pattern::Read, times));
        assert_eq!(outcome(&bars(&report), "mp.Queue", "4 MB, read whole"), Outcome::NoVerdict);
    }
}
