//! A message's time, as the sum of its parts.
//!
//! # The model
//! A message is: lines of the ring that go from one CPU to the other; the calls of both sides; and what is done to its
//! bytes. The floor's ring has three lines (a counter and a cell there, a counter back), the library's four (a counter
//! and a descriptor there, a counter and an acknowledgement back), and one more where the bench's own ring tells that
//! the receiver is done. Calls take what they take in one thread. Bytes take what they take two threads that do nothing
//! else, at the same distance of reuse. Nothing is fitted, and nothing overlaps: what does makes the sum too large.

use super::parts::{
    COPY_AGAIN, COPY_NEW, Kind, LINE, READ_AGAIN, READ_COPIED, READ_NEW, ReceiverWrites, STORE,
};
use crate::cell::{Method, Pattern};
use pageferry::choose::{Nanos, Primitive};

/// The parts of a calibration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a>(pub(crate) &'a [Primitive]);

impl Parts<'_> {
    fn of(&self, (name, state): (&str, &str), bytes: usize) -> Option<Nanos> {
        let is =
            |of: &&Primitive| (of.name.as_str(), of.state.as_str(), of.bytes) == (name, state, bytes as u64);
        self.0.iter().find(is).map(|of| of.time)
    }

    /// The time of a message, with the interval that those of its parts give; `None` where a part was not measured, or
    /// the method has no formula.
    pub(crate) fn predict(&self, method: Method, pattern: Pattern, bytes: usize) -> Option<Nanos> {
        let mut sum = Nanos::default();
        let mut add = |part: Nanos, times: f64| {
            sum.median += times * part.median;
            sum.low += times * part.low;
            sum.high += times * part.high;
        };
        let of = |part| self.of(part, bytes);
        let line = of(LINE)?;
        let (kind, lines) = match method {
            Method::Floor => (None, 3.0),
            Method::Typed => (Some(Kind::Typed), 4.0),
            Method::Loan => (Some(Kind::Loan), 4.0),
            Method::Donate => (Some(Kind::Donation), 4.0),
            Method::CopyBuffer => (Some(Kind::Copy), 5.0),
            Method::Resent => (Some(Kind::Resent), 5.0),
            _ => return None,
        };
        add(line, lines);
        if let Some(kind) = kind {
            let written = match pattern {
                Pattern::OneWord if method == Method::Loan => ReceiverWrites::OneWord,
                Pattern::AllPages if method == Method::Loan => ReceiverWrites::AllPages,
                Pattern::OneWord | Pattern::AllPages => return None,
                Pattern::Read if method == Method::Resent => ReceiverWrites::OnlyRead,
                _ => ReceiverWrites::Nothing,
            };
            add(of((kind.name(), written.state()))?, 1.0);
        }
        if pattern.refills() {
            add(of(STORE)?, 1.0);
        }
        if method == Method::CopyBuffer {
            add(of(if pattern.refills() { COPY_NEW } else { COPY_AGAIN })?, 1.0);
            if pattern.reads() {
                add(of(READ_COPIED)?, 1.0);
            }
        } else if pattern.reads() {
            add(of(if pattern.refills() { READ_NEW } else { READ_AGAIN })?, 1.0);
        }
        Some(sum)
    }
}

/// The size from which on one way is cheaper than another, of times at ascending sizes: where their ratio, drawn by
/// ratios, crosses 1 for the last time. `None`: it is not within the sizes.
pub(crate) fn break_even(sizes: &[usize], one: &[f64], other: &[f64]) -> Option<f64> {
    let ratio = |index: usize| (one[index] / other[index]).ln();
    let last = sizes.len().min(one.len()).min(other.len()).checked_sub(1)?;
    if ratio(last) > 0.0 {
        return None;
    }
    let below = (0..last).rev().find(|&index| ratio(index) > 0.0)?;
    let part = ratio(below) / (ratio(below) - ratio(below + 1));
    let (from, to) = ((sizes[below] as f64).ln(), (sizes[below + 1] as f64).ln());
    Some((from + part * (to - from)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<Primitive> {
        let part = |(name, state): (&str, &str), nanos: f64| Primitive {
            name: name.into(),
            state: state.into(),
            bytes: 4096,
            time: Nanos { median: nanos, low: nanos / 2.0, high: nanos * 2.0 },
        };
        vec![
            part(LINE, 10.0),
            part(STORE, 100.0),
            part(READ_NEW, 200.0),
            part(READ_AGAIN, 50.0),
            part(COPY_NEW, 300.0),
            part(COPY_AGAIN, 30.0),
            part(READ_COPIED, 7.0),
            part((Kind::Loan.name(), ReceiverWrites::Nothing.state()), 1000.0),
            part((Kind::Copy.name(), ReceiverWrites::Nothing.state()), 400.0),
        ]
    }

    #[test]
    fn a_message_is_the_sum_of_its_parts() {
        let parts = parts();
        let of = |method, pattern| Parts(&parts).predict(method, pattern, 4096);
        let median = |method, pattern| of(method, pattern).unwrap().median;
        assert_eq!(median(Method::Floor, Pattern::Untouched), 30.0);
        assert_eq!(median(Method::Floor, Pattern::Refilled), 330.0);
        assert_eq!(median(Method::Loan, Pattern::Read), 1090.0);
        assert_eq!(median(Method::CopyBuffer, Pattern::Untouched), 480.0);
        assert_eq!(median(Method::CopyBuffer, Pattern::Refilled), 857.0);
        let loan = of(Method::Loan, Pattern::Refilled).unwrap();
        assert_eq!((loan.low, loan.median, loan.high), (670.0, 1340.0, 2680.0));
    }

    #[test]
    fn what_was_not_measured_is_not_predicted() {
        let parts = parts();
        assert_eq!(Parts(&parts).predict(Method::Loan, Pattern::OneWord, 4096), None);
        assert_eq!(Parts(&parts).predict(Method::Loan, Pattern::Read, 8192), None);
        assert_eq!(Parts(&parts).predict(Method::Pipe, Pattern::Read, 4096), None);
    }

    #[test]
    fn one_way_breaks_even_where_the_ratio_crosses_one() {
        let sizes = [1024, 2048, 4096];
        assert_eq!(break_even(&sizes, &[2.0, 2.0, 2.0], &[1.0, 2.0, 4.0]), Some(2048.0));
        let between = break_even(&sizes, &[4.0, 4.0, 4.0], &[1.0, 2.0, 8.0]).unwrap();
        assert!((between - 2896.3).abs() < 0.1, "{between}");
        assert_eq!(break_even(&sizes, &[1.0; 3], &[2.0; 3]), None);
        assert_eq!(break_even(&sizes, &[2.0; 3], &[1.0; 3]), None);
    }
}
