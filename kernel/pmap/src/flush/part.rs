//! Pages of an address space that are to be invalidated.

use crate::tlb::asid::Tags;
use alloc::sync::Arc;
use pageferry_hal::{SpaceId, VaRange};

/// Pages of one address space; [`SpaceId::KERNEL`] means addresses that are the same in all of them.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) space: SpaceId,
    pub(crate) range: VaRange,
    /// The space's tags, on machines that have any.
    pub(crate) tags: Option<Arc<Tags>>,
}
