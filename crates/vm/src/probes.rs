//! What tests put into a VM system: failures to come, a journal of changes, a defect. At rest each costs one load.

use crate::defect::Planted;
use crate::failures::Failures;
use crate::journal::Journal;
use alloc::sync::Arc;

#[derive(Clone, Default)]
pub(crate) struct Probes {
    pub(crate) failures: Arc<Failures>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) planted: Arc<Planted>,
}
