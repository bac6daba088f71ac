//! Numbers of the command line: what each may be, and what is expected in place of one that is refused.

use pageferry_lab::run::MAX_JOBS;
use std::time::Duration;

/// Host threads: 0 to as many as there may be.
pub(crate) fn jobs(text: &str) -> Result<usize, String> {
    whole_number(text, 0, MAX_JOBS as u64).map(|jobs| jobs as usize)
}

/// Minutes of a run: up to a year.
pub(crate) fn minutes(text: &str) -> Result<u64, String> {
    whole_number(text, 1, 366 * 24 * 60)
}

/// Weeks of one core, at most.
pub(crate) fn steps(text: &str) -> Result<u64, String> {
    whole_number(text, 1, 1_000_000_000_000)
}

pub(crate) fn seeds(text: &str) -> Result<u64, String> {
    whole_number(text, 0, 1_000_000)
}

pub(crate) fn repeats(text: &str) -> Result<u64, String> {
    whole_number(text, 1, u64::from(pageferry_lab::files::MAX_REPEAT))
}

pub(crate) fn parts(text: &str) -> Result<u64, String> {
    whole_number(text, 1, 100_000)
}

/// A bug that needs more turns in the right order is found by no schedule within any time.
pub(crate) fn depth(text: &str) -> Result<u32, String> {
    whole_number(text, 1, 100).map(|depth| depth as u32)
}

fn whole_number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("expected {min} to {max}"))
}

/// A percentage from 0 up, with the sign or without.
pub(crate) fn percentage(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = number.parse().ok().filter(|_| plain);
    value.ok_or_else(|| "expected a percentage such as 3%, 0.5% or 0%".to_owned())
}

/// A modelled time: a number and a unit.
pub(crate) fn modelled_time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let expected = || "expected a time such as 2ms, 500us, 1.5s or 100ns".to_owned();
    let (unit, nanos) = UNITS.iter().find(|(unit, _)| text.ends_with(unit)).ok_or_else(expected)?;
    let number = &text[..text.len() - unit.len()];
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value: f64 = number.parse().ok().filter(|_| plain).ok_or_else(expected)?;
    // A modelled machine's clock would not run over in as long.
    const MAX_SECONDS: f64 = 1e6;
    if value * nanos > MAX_SECONDS * 1e9 {
        return Err("expected at most 1000000s".to_owned());
    }
    Ok(Duration::from_nanos((value * nanos).round() as u64))
}

/// A modelled time that is not zero.
pub(crate) fn modelled_length(text: &str) -> Result<Duration, String> {
    let length = modelled_time(text)?;
    if length.is_zero() { Err("expected more than no time".to_owned()) } else { Ok(length) }
}

/// A share of a constant in percent: more than nothing, and less than all of it.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let value = percentage(text)?;
    let is_some = value > 0.0 && value <= 90.0;
    if is_some { Ok(value) } else { Err("expected more than 0% and at most 90%".to_owned()) }
}
