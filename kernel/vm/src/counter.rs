//! What the VM system counts.

pageferry_hal::counters! {
    /// What the VM system counts.
    pub enum VmCounter from pageferry_ephemeral::EphemeralCounter::END => {
        /// Ranges of kernel virtual addresses allocated.
        KvaAllocations = "kva_allocations",
        /// Ranges of kernel virtual addresses freed.
        KvaFrees = "kva_frees",
        /// Locks of objects that were taken when an anon that has a page of theirs on loan tried them.
        LoanLocksRefused = "loan_locks_refused",
        /// Page faults taken.
        PageFaults = "page_faults",
        /// Faults that allocated and cleared a frame.
        ZeroFills = "zero_fills",
        /// Faults that copied a frame (promotion of an object's page, or copy-on-write of an anon).
        CowCopies = "cow_copies",
        /// Frames taken off the free list.
        FramesAllocated = "frames_allocated",
        /// Frames put back on the free list.
        FramesFreed = "frames_freed",
        /// Frames wired.
        FramesWired = "frames_wired",
        /// Frames unwired.
        FramesUnwired = "frames_unwired",
        /// Pages read from the disk.
        PageIns = "page_ins",
        /// Pages written to the disk.
        PageOuts = "page_outs",
        /// Requests to the disk.
        DiskRequests = "disk_requests",
        /// Frames on the paging queues that the page daemon looked at.
        PagesScanned = "pages_scanned",
        /// Frames that the page daemon put on the free list: exactly as many as that list grew by it.
        PagesReclaimed = "pages_reclaimed",
        /// Pages that were to go to the swap area and found it full.
        SwapFull = "swap_full",
        /// Sleeps for want of a free frame.
        MemorySleeps = "memory_sleeps",
    }
}
