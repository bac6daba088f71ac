//! What tests put into a VM system: failures to come, a journal of changes, a defect. At rest each costs one load.

use super::defect::VmDefect;
use super::failures::Failures;
use super::journal::Journal;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, Ordering};

/// Shared by the system and those of its parts that are made before it.
pub(crate) type Probes = Arc<ProbeSet>;

#[derive(Default)]
pub(crate) struct ProbeSet {
    pub(crate) failures: Failures,
    pub(crate) journal: Journal,
    pub(crate) planted: Planted,
}

/// The one that is planted, if any.
#[derive(Debug, Default)]
pub(crate) struct Planted(AtomicU8);

impl Planted {
    pub(crate) fn set(&self, defect: Option<VmDefect>) {
        self.0.store(defect.map_or(0, |d| d as u8 + 1), Ordering::Relaxed);
    }

    pub(crate) fn is(&self, defect: VmDefect) -> bool {
        self.0.load(Ordering::Relaxed) == defect as u8 + 1
    }
}
