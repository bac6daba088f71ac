//! Costs that were measured at some sizes, and what they are taken to be elsewhere.
//!
//! Between two sizes a cost is taken to change evenly. Beyond the largest, what is done to every byte costs the same
//! for each, which holds where no cache is large enough.

/// The cost at `x` between two that were measured, `(x, cost)`: on the straight line, rounded down.
pub fn between(low: (u64, u64), high: (u64, u64), x: u64) -> u64 {
    let Some(width) = high.0.checked_sub(low.0).filter(|&width| width > 0) else { return low.1 };
    let right = u128::from(x.clamp(low.0, high.0) - low.0);
    let width = u128::from(width);
    ((u128::from(low.1) * (width - right) + u128::from(high.1) * right) / width) as u64
}

/// The cost at `x` beyond the largest that was measured: by the same rate.
pub fn beyond(last: (u64, u64), x: u64) -> u64 {
    (u128::from(last.1) * u128::from(x) / u128::from(last.0.max(1))).try_into().unwrap_or(u64::MAX)
}
