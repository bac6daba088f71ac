//! What calls cost, by their names.

use pageferry_hal::Cycles;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the calls of one name cost.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Cost {
    /// How many were made.
    pub calls: u64,
    /// Bytes that they moved or mapped.
    pub bytes: u64,
    /// Modelled time from their beginnings to their ends, waits within them included.
    pub elapsed_us: f64,
    /// The same when they were recorded, if that was.
    pub recorded_us: Option<f64>,
}

#[derive(Default)]
struct Sum {
    calls: u64,
    bytes: u64,
    cycles: u64,
    recorded_us: Option<f64>,
}

/// What calls cost, by their names.
#[derive(Default)]
pub(super) struct Costs(BTreeMap<String, Sum>);

impl Costs {
    pub(super) fn add(&mut self, name: &str, bytes: usize, took: Cycles, recorded_us: Option<f64>) {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Sum::default());
        }
        let sum = self.0.get_mut(name).expect("just put there");
        sum.calls += 1;
        sum.bytes += bytes as u64;
        sum.cycles += took.0;
        if let Some(us) = recorded_us {
            *sum.recorded_us.get_or_insert(0.0) += us;
        }
    }

    /// In the time of a machine with this clock.
    pub(super) fn by_call(&self, clock_mhz: f64) -> BTreeMap<String, Cost> {
        let cost = |sum: &Sum| Cost {
            calls: sum.calls,
            bytes: sum.bytes,
            elapsed_us: sum.cycles as f64 / clock_mhz,
            recorded_us: sum.recorded_us,
        };
        self.0.iter().map(|(name, sum)| (name.clone(), cost(sum))).collect()
    }
}
