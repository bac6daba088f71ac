//! What is out: every loan and slot that a Python object of this process still holds.
//!
//! A child of `fork` has a ledger of its own: what it has inherited is its parent's affair, and another thread of the
//! parent may have held the parent's ledger at the fork.
//!
//! # Locks
//! One per ledger, for a look-up; nothing is called meanwhile.

use arc_swap::ArcSwap;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

static LEDGER: LazyLock<ArcSwap<Ledger>> = LazyLock::new(|| ArcSwap::from_pointee(Ledger::new()));

struct Ledger {
    process: u32,
    lines: Mutex<BTreeMap<u64, Line>>,
}

#[derive(Clone)]
struct Line {
    what: &'static str,
    bytes: usize,
    channel: u64,
    since: Instant,
    whence: Option<String>,
}

impl Ledger {
    fn new() -> Ledger {
        Ledger { process: std::process::id(), lines: Mutex::default() }
    }
}

/// A line of the ledger; struck out when dropped.
pub struct Entry {
    ledger: Arc<Ledger>,
    number: u64,
}

impl Entry {
    /// Enters memory: what was done to it, where it came from (a line of Python, if that is traced).
    pub fn new(what: &'static str, bytes: usize, channel: u64, whence: Option<String>) -> Entry {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let ledger = LEDGER.load_full();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let line = Line { what, bytes, channel, since: Instant::now(), whence };
        ledger.lines.lock().unwrap_or_else(PoisonError::into_inner).insert(number, line);
        Entry { ledger, number }
    }

    /// Something else was done to it.
    pub fn becomes(&self, what: &'static str) {
        if self.ledger.process != std::process::id() {
            return;
        }
        let mut lines = self.ledger.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get_mut(&self.number) {
            line.what = what;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.ledger.process == std::process::id() {
            self.ledger.lines.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        }
    }
}

/// A number for a channel.
pub fn channel() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What is out: (what, bytes, seconds, channel, where).
#[pyfunction]
pub fn outstanding() -> Vec<(&'static str, usize, f64, u64, Option<String>)> {
    let lines = LEDGER.load().lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    lines
        .into_values()
        .map(|line| (line.what, line.bytes, line.since.elapsed().as_secs_f64(), line.channel, line.whence))
        .collect()
}

/// A child of `fork` begins with an empty ledger.
#[pyfunction]
pub fn forget() {
    LEDGER.store(Arc::new(Ledger::new()));
}
