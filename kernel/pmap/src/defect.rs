//! Defects to plant.
//!
//! A check that cannot fail proves nothing. A pmap with one of these ([`crate::PmapConfig::defect`]) does one thing
//! wrong that a real one could, and must be caught. They are asked for where nothing is fast: in the refill handler,
//! when tags end, at boot.

use pageferry_defects::defects;

defects! {
    /// A defect to plant: a pmap with one of these must be caught.
    pub enum PmapDefect {
        TagReusedEarly: "Tags are given again while TLBs still hold entries of those that had them.",
        NewTagKept: "A space that has a tag anew is loaded as if the TLB held nothing but its own by that tag.",
        LeftCpusForgotten: "A shootdown leaves out CPUs that run another space, though the tag that the space has \
                            there leads to its entries.",
        TagReusedInHashTable: "Tags are given again while the hash table still has entries of those that had them.",
        OldTagStays: "A space whose tag was given anew goes on with the old one until it is switched to.",
        MissingFlush: "Pages are not invalidated in the own TLB.",
        BroadcastNotAwaited: "What is invalidated for all CPUs at once is not waited for.",
        OwnSpaceOnly: "Where one invalidation reaches all CPUs, it is left out for a space that does not run on the \
                       CPU that makes it.",
        StaleHashEntry: "The entry of a page that has changed stays in the hash table.",
        ReadBeforeLocked: "The refill handler reads the page tables before it locks the hash table: what changes \
                           meanwhile it puts there as it was.",
        NotedBlindly: "The refill handler notes a use in the page tables without looking whether they have changed.",
        HalfWritten: "An entry of the hash table that takes another's place has its own page and the other's frame \
                      for a moment.",
        RefusedStays: "The handler puts a better entry into the hash table and leaves the worse one in the TLB.",
        ModifiedLost: "Clean pages can be stored to through the hash table or the TLB, and nothing notes it.",
        ReferencedLost: "The referenced bit is not noted.",
        WriteAlways: "What is loaded permits stores, whatever the page table says.",
        SecondaryUnmarked: "An entry of the hash table goes to its secondary group without the mark of one.",
        TagHalfCompared: "The handler takes the entry of another page of the group.",
        BlockOverPages: "A block maps memory once more, over the addresses of pages.",
        BlockMissing: "The last block is left out: the end of memory is not mapped.",
        BlockStays: "The block of a process stays when another comes to run.",
        ColourIgnored: "Frames are mapped and reached without regard to colours.",
        OtherColourStays: "Mappings of another colour stay when a frame is taken away from it.",
        NotPurged: "A frame is taken away from another colour, and the cache keeps what it has by that.",
        PreloadTwice: "What is loaded ahead stays on its recency stack, and is loaded ahead again.",
        PreloadUnseen: "What is loaded ahead permits stores and notes none.",
        PreloadOfOthers: "What is loaded ahead is looked for among the pages of all spaces.",
        RowOverPages: "A row is loaded beside entries of its pages.",
        RowHalfCompared: "A row is loaded when the first half of its pages lies in a row.",
        MissUnplaced: "Misses of the hash table by stores are counted without their address.",
        EndlessRefill: "A handler that misses within itself does all over again what missed.",
    }
}

defects! {
    /// A defect of the communication area to plant.
    pub enum AreaDefect {
        DetachKeepsEntry: "What is detached stays in the TLB.",
        DetachOfOtherTag: "What is detached is invalidated under another space's tag.",
        EntryTwice: "What a reserved entry attaches is loaded into another as well.",
        ReservedKeepTags: "Reserved entries keep the tag of a space that has been given another.",
        BelowRefused: "A miss is compared with the end of the area alone: what lies below is refused, too.",
        FlushDropsReserved: "A flush drops reserved entries, too.",
    }
}
