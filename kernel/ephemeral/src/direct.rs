//! The direct map of amd64 (sf_buf paper, 4.3): the frame *is* its mapping.
//!
//! Nothing is allocated, counted, locked or invalidated; no flag requires any action. Only the address takes an
//! addition.

use crate::config::ConfigError;
use alloc::sync::Arc;
use pageferry_hal::{Machine, Pfn, Va};
use pageferry_pmap::Pmaps;

pub(crate) struct Direct<M: Machine> {
    pmaps: Arc<Pmaps<M>>,
}

impl<M: Machine> Direct<M> {
    pub(crate) fn new(pmaps: &Arc<Pmaps<M>>) -> Result<Direct<M>, ConfigError> {
        match pmaps.direct_va(Pfn(0)) {
            Some(_) => Ok(Direct { pmaps: pmaps.clone() }),
            None => Err(ConfigError::NoDirectMap),
        }
    }

    pub(crate) fn va(&self, frame: Pfn) -> Va {
        self.pmaps.direct_va(frame).expect("the direct map covers every frame")
    }
}
