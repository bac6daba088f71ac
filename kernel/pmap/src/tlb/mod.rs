//! What CPUs hold: the address space that each has loaded, the tags of TLB entries, which entry was loaded with what,
//! in which order pages left, and the one request for a shootdown.

pub(crate) mod active;
pub(crate) mod asid;
pub(crate) mod loaded;
pub(crate) mod recency;
pub(crate) mod request;
