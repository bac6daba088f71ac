//! One ephemeral mapping, as its user holds it.

use crate::index::BufferId;
use crate::user::MappingUser;
use pageferry_hal::{CpuId, Pfn, VaRange};

/// An ephemeral mapping (`struct sf_buf *`): opaque, one reference, to be given back with [`crate::Ephemeral::free`].
#[derive(Debug)]
#[must_use = "an ephemeral mapping must be freed"]
pub struct Mapping {
    pub(crate) frame: Pfn,
    pub(crate) by: MappingUser,
    pub(crate) backing: Backing,
}

/// A frame, and who asks for a mapping of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) frame: Pfn,
    pub(crate) by: MappingUser,
}

/// What a mapping stands on, and what giving it back takes.
#[derive(Debug)]
pub(crate) enum Backing {
    /// In the direct map.
    Direct,
    /// In a buffer of the cache; a private one belongs to a CPU.
    Cached { id: BufferId, private_on: Option<CpuId> },
    /// In a buffer of one of several caches: of a colour, or of a process.
    Among { cache: usize, id: BufferId, private_on: Option<CpuId> },
    /// At an address of its own.
    Own(VaRange),
}
