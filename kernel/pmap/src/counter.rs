//! What changing mappings counts: invalidations, shootdowns, the hash table, reserved entries.

pageferry_hal::counters! {
    /// What changing mappings counts: invalidations, shootdowns, the hash table, reserved entries.
    pub enum PmapCounter from 0 => {
        /// Entries invalidated in the own TLB, one for each page of each invalidation.
        TlbInvalidationsLocal = "tlb_invalidations_local",
        /// Pages whose invalidation was requested of other CPUs, counted once at the initiator however many CPUs are
        /// asked (the counting rule of the sf_buf paper, 6.3).
        TlbInvalidationsRemoteIssued = "tlb_invalidations_remote_issued",
        /// Shootdowns: requests to other CPUs, each for a page or a range.
        Shootdowns = "shootdowns",
        /// Interprocessor interrupts sent for shootdowns, one for each CPU asked.
        ShootdownIpis = "shootdown_ipis",
        /// Translations that were looked for in the hash table and were not there.
        HashMisses = "hash_misses",
        /// Refill handlers that were called for a miss of another one.
        NestedRefills = "nested_refills",
        /// Entries that went from the hash table because both groups of a page were full.
        HashEvictions = "hash_evictions",
        /// Of those, entries of programs that went for one of the kernel's.
        HashUsersDisplaced = "hash_users_displaced",
        /// Of those, entries of the kernel that went for one of a program's.
        HashKernelDisplaced = "hash_kernel_displaced",
        /// Entries of tags that no address space has any more, taken out of the hash table by a CPU with nothing to do.
        HashReclaimed = "hash_reclaimed",
        /// Address spaces that were given another tag instead of being invalidated page by page.
        ContextsRenewed = "contexts_renewed",
        /// Colours by which the cache wrote back and forgot a frame.
        ColoursPurged = "colours_purged",
        /// Pages of the communication area that were attached to a process.
        IcaAttachments = "ica_attachments",
        /// Pages of the communication area that were detached from a process.
        IcaDetachments = "ica_detachments",
        /// Reserved TLB entries that the kernel has written or cleared.
        ReservedWrites = "reserved_writes",
        /// TLB entries that the kernel has loaded beside what was missed.
        Preloads = "tlb_preloads",
        /// TLB entries that the kernel has loaded for all pages of a row.
        RowLoads = "tlb_row_loads",
    }
}
