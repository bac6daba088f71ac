//! What ephemeral mappings count: as a whole, and for each [`crate::MappingUser`].
//!
//! An allocation counts as one mapping, whether it found the page mapped or not, and a run as many as it has pages. The
//! invalidations of a user are those that its mappings have caused by being made and unmade: what a buffer of the cache
//! is taken over for is whose that is. They are among those of all ([`pageferry_pmap::PmapCounter`]).

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
        /// Pages mapped in runs of addresses that their user keeps.
        RunPages = "run_pages",
        /// Pages mapped for pipes.
        MappingsByPipe = "mappings_by_pipe",
        /// Pages mapped for sockets.
        MappingsBySocket = "mappings_by_socket",
        /// Pages mapped for memory disks.
        MappingsByMemoryDisk = "mappings_by_memory_disk",
        /// Pages mapped for physio.
        MappingsByPhysio = "mappings_by_physio",
        /// Pages mapped for buffers of file systems.
        MappingsByBuffers = "mappings_by_buffers",
        /// Pages mapped for files.
        MappingsByFiles = "mappings_by_files",
        /// Pages mapped for exec.
        MappingsByExec = "mappings_by_exec",
        /// Pages mapped for debuggers.
        MappingsByPtrace = "mappings_by_ptrace",
        /// Pages mapped for the vnode pager.
        MappingsByVnodePager = "mappings_by_vnode_pager",
        /// Pages mapped for others.
        MappingsByOther = "mappings_by_others",
        /// Pages invalidated for mappings of pipes, in the own TLB and by request in others.
        InvalidationsByPipe = "invalidations_by_pipe",
        /// Pages invalidated for mappings of sockets, in the own TLB and by request in others.
        InvalidationsBySocket = "invalidations_by_socket",
        /// Pages invalidated for mappings of memory disks, in the own TLB and by request in others.
        InvalidationsByMemoryDisk = "invalidations_by_memory_disk",
        /// Pages invalidated for mappings of physio, in the own TLB and by request in others.
        InvalidationsByPhysio = "invalidations_by_physio",
        /// Pages invalidated for mappings of buffers of file systems, in the own TLB and by request in others.
        InvalidationsByBuffers = "invalidations_by_buffers",
        /// Pages invalidated for mappings of files, in the own TLB and by request in others.
        InvalidationsByFiles = "invalidations_by_files",
        /// Pages invalidated for mappings of exec, in the own TLB and by request in others.
        InvalidationsByExec = "invalidations_by_exec",
        /// Pages invalidated for mappings of debuggers, in the own TLB and by request in others.
        InvalidationsByPtrace = "invalidations_by_ptrace",
        /// Pages invalidated for mappings of the vnode pager, in the own TLB and by request in others.
        InvalidationsByVnodePager = "invalidations_by_vnode_pager",
        /// Pages invalidated for mappings of others, in the own TLB and by request in others.
        InvalidationsByOther = "invalidations_by_others",
        /// Pages whose invalidation was requested of other CPUs for mappings of pipes.
        RemoteInvalidationsByPipe = "remote_invalidations_by_pipe",
        /// Pages whose invalidation was requested of other CPUs for mappings of sockets.
        RemoteInvalidationsBySocket = "remote_invalidations_by_socket",
        /// Pages whose invalidation was requested of other CPUs for mappings of memory disks.
        RemoteInvalidationsByMemoryDisk = "remote_invalidations_by_memory_disk",
        /// Pages whose invalidation was requested of other CPUs for mappings of physio.
        RemoteInvalidationsByPhysio = "remote_invalidations_by_physio",
        /// Pages whose invalidation was requested of other CPUs for mappings of buffers of file systems.
        RemoteInvalidationsByBuffers = "remote_invalidations_by_buffers",
        /// Pages whose invalidation was requested of other CPUs for mappings of files.
        RemoteInvalidationsByFiles = "remote_invalidations_by_files",
        /// Pages whose invalidation was requested of other CPUs for mappings of exec.
        RemoteInvalidationsByExec = "remote_invalidations_by_exec",
        /// Pages whose invalidation was requested of other CPUs for mappings of debuggers.
        RemoteInvalidationsByPtrace = "remote_invalidations_by_ptrace",
        /// Pages whose invalidation was requested of other CPUs for mappings of the vnode pager.
        RemoteInvalidationsByVnodePager = "remote_invalidations_by_vnode_pager",
        /// Pages whose invalidation was requested of other CPUs for mappings of others.
        RemoteInvalidationsByOther = "remote_invalidations_by_others",
    }
}
