//! What tests put into a VM system: failures to come, a journal of changes, a defect. At rest each costs one load.

use super::defect::Planted;
use super::failures::Failures;
use super::journal::Journal;
use alloc::sync::Arc;

#[derive(Clone, Default)]
pub(crate) struct Probes {
    pub(crate) failures: Arc<Failures>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) planted: Arc<Planted>,
}
