//! What ephemeral mappings count.

pageferry_hal::counters! {
    /// What ephemeral mappings count.
    pub enum EphemeralCounter from pageferry_pmap::PmapCounter::END => {
        /// Allocations of ephemeral mappings that found the page mapped.
        EphemeralHits = "ephemeral_hits",
        /// Allocations of ephemeral mappings that had to map the page.
        EphemeralMisses = "ephemeral_misses",
        /// Ephemeral mappings that are addresses of the direct map, which has every page: there is no cache to hit.
        EphemeralDirect = "ephemeral_direct",
        /// Ephemeral mappings given back.
        EphemeralFrees = "ephemeral_frees",
        /// Sleeps for want of an ephemeral mapping.
        EphemeralSleeps = "ephemeral_sleeps",
    }
}
