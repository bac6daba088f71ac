//! What cycles are spent on, and what events are counted.
//!
//! A modelled CPU adds every cycle to exactly one [`Cause`]; the sum over all causes equals its clock, and that is
//! asserted at the end of every run. On bare metal both enums cost nothing.

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[doc = $doc])* $variant,)* }

        impl $name {
            /// All of them, in order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// The name used in results and reports.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
            /// What it means, in a sentence.
            pub const fn about(self) -> &'static str {
                match self { $($name::$variant => concat!($($doc),*).trim_ascii()),* }
            }
            /// The position in [`Self::ALL`].
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

named! {
    /// Why a cycle was spent.
    Cause {
        /// User code.
        User = "user",
        /// Moving bytes: loads, stores and instructions of copies.
        Copy = "copy",
        /// Clearing pages.
        Zero = "zero",
        /// Walking page tables after a TLB miss (and setting accessed and dirty bits).
        TlbMiss = "tlb_miss",
        /// The kernel's refill handler, on machines that cannot fill the TLB by themselves.
        Refill = "refill",
        /// Invalidating entries of the own TLB.
        InvalidateLocal = "invalidate_local",
        /// Sending invalidations to other CPUs and waiting until they are done.
        ShootdownSent = "shootdown_sent",
        /// Being interrupted for another CPU's invalidation.
        ShootdownReceived = "shootdown_received",
        /// Page faults: entry, look-up, resolution, return.
        Fault = "fault",
        /// Reading and writing page-table entries and reverse mappings.
        PteWork = "pte_work",
        /// Allocating and freeing kernel virtual addresses.
        AddressAllocation = "address_allocation",
        /// Looking up, taking and giving back ephemeral mappings.
        Ephemeral = "ephemeral",
        /// Allocating, freeing, holding and wiring frames.
        Frame = "frame",
        /// Map entries, amaps, anons, objects.
        Vm = "vm",
        /// Atomic instructions of locks, and waiting for them.
        Lock = "lock",
        /// System call entry, exit and dispatch.
        Syscall = "syscall",
        /// Context switches, sleeping, waking, run queues.
        Switch = "switch",
        /// Interrupts other than shootdowns.
        Interrupt = "interrupt",
        /// What carries data: pipes, sockets, mbufs, protocols.
        Protocol = "protocol",
        /// Attaching memory of the communication area to a process.
        IcaAttach = "ica_attach",
        /// Detaching memory of the communication area from a process.
        IcaDetach = "ica_detach",
        /// Computing checksums of packets.
        Checksum = "checksum",
        /// Starting up, before the measured part.
        Boot = "boot",
        /// Nothing to do.
        Idle = "idle",
    }
}

named! {
    /// Events that kernel code counts. (The machine counts its own: TLB hits and misses, cache accesses, interrupts.)
    Counter {
        /// Entries invalidated in the own TLB, one for each page of each invalidation.
        TlbInvalidationsLocal = "tlb_invalidations_local",
        /// Pages whose invalidation was requested of other CPUs, counted once at the initiator however many CPUs are
        /// asked (the counting rule of the sf_buf paper, 6.3).
        TlbInvalidationsRemoteIssued = "tlb_invalidations_remote_issued",
        /// Shootdowns: requests to other CPUs, each for a page or a range.
        Shootdowns = "shootdowns",
        /// Interprocessor interrupts sent for shootdowns, one for each CPU asked.
        ShootdownIpis = "shootdown_ipis",
        /// Interprocessor interrupts sent to make an idle CPU look at the run queue.
        ReschedIpis = "resched_ipis",
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
        /// Ranges of kernel virtual addresses allocated.
        KvaAllocations = "kva_allocations",
        /// Ranges of kernel virtual addresses freed.
        KvaFrees = "kva_frees",
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
        /// System calls.
        Syscalls = "syscalls",
        /// Context switches.
        Switches = "switches",
        /// Sleeps.
        Sleeps = "sleeps",
        /// Threads made runnable by wakeups.
        Wakeups = "wakeups",
        /// Bytes moved by kernel copies.
        BytesCopied = "bytes_copied",
        /// Pipe writes that went through the kernel buffer.
        PipeBufferedWrites = "pipe_buffered_writes",
        /// Pipe writes that handed over wired pages.
        PipeDirectWrites = "pipe_direct_writes",
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
        /// Clusters of mbufs taken from their pool.
        Clusters = "clusters",
        /// Pages that a sender lent to a socket.
        PagesLent = "pages_lent",
        /// Loans that were refused to a socket; the bytes were copied.
        LoansRefused = "loans_refused",
        /// Pages of clusters that became a receiver's.
        PagesDonated = "pages_donated",
        /// Pages on loan that a receiver got.
        PagesLentOn = "pages_lent_on",
        /// Bytes that a receiver by transfer got by copy all the same.
        TransferBytesCopied = "transfer_bytes_copied",
        /// Translations that were looked for in the hash table and were not there.
        HashMisses = "hash_misses",
        /// Refill handlers that were called for a miss of another one.
        NestedRefills = "nested_refills",
        /// Entries that went from the hash table because both groups of a page were full.
        HashEvictions = "hash_evictions",
        /// Entries of tags that no address space has any more, taken out of the hash table by a CPU with nothing to do.
        HashReclaimed = "hash_reclaimed",
        /// Packets that the Internet protocols have taken in.
        PacketsReceived = "packets_received",
        /// Packets that they have handed to an interface.
        PacketsSent = "packets_sent",
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
        /// Requests that processes have made of servers.
        IspcRequests = "ispc_requests",
        /// Sleeps for want of a reserved TLB entry.
        EntrySleeps = "entry_sleeps",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_follow_the_order() {
        for (i, c) in Cause::ALL.iter().enumerate() {
            assert_eq!(c.index(), i);
        }
        for (i, c) in Counter::ALL.iter().enumerate() {
            assert_eq!(c.index(), i);
        }
        assert_eq!(Cause::Zero.about(), "Clearing pages.");
    }
}
