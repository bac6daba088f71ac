//! The arena of this process, and what Python may ask of it.

use super::arrived::{MAX_MAPPED, MAY_BE_MAPPED};
use arc_swap::ArcSwap;
use pageferry::{Arena, Limits};
use pyo3::prelude::*;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

/// Where blocks come from: another one from the next call of [`limit_blocks`] on.
pub(super) static ARENA: LazyLock<ArcSwap<Arena>> = LazyLock::new(|| ArcSwap::from_pointee(Arena::new()));

/// Sets what blocks may take, in this process and from now on. What was made before is forgotten when it is home.
#[pyfunction]
#[pyo3(signature = (budget=None, kept=None, mapped=MAX_MAPPED))]
pub fn limit_blocks(budget: Option<u64>, kept: Option<u64>, mapped: usize) {
    MAY_BE_MAPPED.store(mapped, Ordering::Relaxed);
    let mut limits = Limits::default();
    if let Some(budget) = budget {
        limits.bytes = budget;
        limits.kept = budget / 8;
    }
    limits.kept = kept.unwrap_or(limits.kept);
    ARENA.store(Arc::new(Arena::with(limits)));
}

/// Frees all blocks that nobody has.
#[pyfunction]
pub fn trim_blocks(py: Python<'_>) {
    py.detach(|| ARENA.load().trim());
}

/// Frees blocks that nobody has, where more are kept than are to be.
#[pyfunction]
pub fn tidy_blocks(py: Python<'_>) {
    if ARENA.load().has_excess() {
        py.detach(|| ARENA.load().tidy());
    }
}

/// Bytes of all blocks, how many they are, how many of them somebody has, how many were made, how often one was used
/// again, how many were left to their readers.
#[pyfunction]
pub fn held_blocks() -> (u64, usize, usize, u64, u64, u64) {
    let held = ARENA.load().held();
    (held.bytes, held.blocks, held.out, held.made, held.again, held.left)
}
