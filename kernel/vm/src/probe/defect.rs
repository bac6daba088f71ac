//! Defects to plant.
//!
//! A check that cannot fail proves nothing. Each of these leaves one step out, or does one too many, in the place where
//! a real system got it wrong or easily could; a test of the checks plants one with `Vm::plant` and sees it caught.
//! None is ever planted otherwise: asking costs one load, and nothing without the
//! feature `verify`.

use pageferry_defects::defects;

defects! {
    /// What is left out, or done wrong.
    pub enum VmDefect {
        LoanWithoutProtect: "The first loan of a page leaves its mappings writable (UVM paper, 4.1).",
        BreakWithoutRevoke: "Breaking a loan leaves other mappings of the old frame (UVM paper, 4.1.1).",
        PromoteWithoutRevoke: "Promotion in shared memory leaves the others' mappings of the old page (as in FreeBSD \
                               SA-21:08).",
        CopyForgotten: "Promotion and copy-on-write leave the frame as the allocator found it.",
        ZeroForgotten: "Zero-fill memory has the bytes of the frame's last owner.",
        ForkWithoutProtect: "Fork leaves the parent's mappings of copy-on-write memory writable.",
        ForkForgetsNeedsCopy: "Fork does not note in the parent's entry that it must copy before it writes.",
        ForkSharesWired: "Fork shares a wired page copy-on-write, and the kernel goes on storing into it.",
        AnonReferenceForgotten: "A copied amap does not count its references on anons.",
        SharedAnonWritten: "An anon with other references is written in place.",
        SlotsOutliveEntries: "An entry that goes leaves its count on the amap's slots, while the amap has others.",
        UnmapKeepsMappings: "Unmapping leaves the mappings in the page tables.",
        UnmapWithoutFlush: "Unmapping changes the page tables and tells no TLB.",
        LoanLeaked: "A loan that is given back leaves one frame lent.",
        OrphanFreedEarly: "An orphan is freed with the first of its loans, not the last (double free).",
        UnloanInTwoSteps: "The end of a loan lets go of the lock between counting it and freeing the orphan (as in \
                           uvm_loan.c 1.104).",
        LentFrameFreed: "An owner that lets a lent frame go frees it.",
        BorrowerForgotten: "A lent frame that an object lets go is not given to its borrower.",
        AdoptedStillLent: "An anon that adopts a page that it had on loan goes on having it on loan.",
        BorrowedOrphanKept: "A page that its object has let go stays when the borrower lets it go, too.",
        LoanAtWrongOffset: "Lending a mapped file ignores where in the file the mapping begins (as in uvm_loan.c \
                            1.27).",
        LoanUnsettled: "A loan does not wait for write-protection that is under way on other CPUs.",
        TransferKeepsMappings: "A transfer leaves the mappings of the pages that it replaces.",
        TransferLeaksReplaced: "A transfer does not free the anons that it replaces.",
        TransferWithoutFlush: "A transfer takes the mappings of what it replaces away and tells no TLB.",
        TransferFreesShared: "A transfer frees what it replaces, also where others have it, too.",
        TransferForgetsCopy: "A transfer into memory that is yet to be copied goes into the memory that others have.",
        SharedPageReturned: "A page that a transfer replaces goes back to the kernel although others have it, too.",
        TransferOverWired: "A transfer replaces a page that is wired, where the kernel or a device goes on writing.",
        TransferIntoReadOnly: "A transfer goes into memory that may not be written.",
        AnflushKeepsMappings: "anflush leaves the mappings of the pages that it removes.",
        WindowKeepsMappings: "A page that is shown in a window leaves the mappings that others have of the page before \
                              it.",
        WindowWithoutFlush: "A page that is shown in a window takes the place of another, and no TLB is told.",
        WindowWritable: "A page that is shown in a window can be written.",
        WindowLosesReplaced: "A page that was shown in a window does not come back to the kernel.",
        WindowOverLocked: "A page is shown in a part of a window that is locked in memory.",
        PushDownKeepsMappings: "A page that is pushed down leaves the mappings of the page that the object had there.",
        PushDownKeepsOld: "A page that is pushed down leaves the frame that the object had there with the object.",
        QuickRefCutsSource: "A quick reference cuts the source's map entry at its ends, like passing, and leaves it \
                             cut.",
        QuickRefKeepsReference: "A quick reference that is given back keeps its references to amap and object.",
        QuickRefKeepsMappings: "A quick reference that is given back leaves the holder's mappings.",
        DonateKeepsMappings: "Donating leaves the sender's mappings.",
        DonateLosesOnFailure: "A donation that fails has taken the memory from its sender all the same (as in \
                               uvm_map_extract with REMOVE).",
        ShareForgetsCopy: "Sharing by pass does not resolve a copy that the sender still has to make.",
        WireLeaked: "A wire is not taken off.",
        ProtectBeyondMaximum: "A range is permitted more than its mapping may ever permit.",
        ProtectKeepsMappings: "Reducing the permissions of a range leaves those of its mappings.",
        DaemonWaitsForMemory: "The page daemon waits for frames before it writes, as all others do.",
        PageoutKeepsMappings: "The page daemon takes a frame and leaves its mappings.",
        PageoutDropsChanges: "The page daemon takes a page that was modified since it came in for a clean one.",
        ReclaimedTwice: "The page daemon counts a page when it claims it, and again when its frame is free.",
        SwapSlotTrusted: "A page that comes in goes by what its anon looked like before a frame was found for it (as \
                          in UFFDIO_MOVE).",
        SwapSlotLeaked: "A page that goes to a new slot of the swap area does not give its old one up.",
        SwapSlotFreedEarly: "A page that comes in gives its slot up and goes on using it.",
        ShadowUncounted: "A shadow object does not count as a reference to what it shadows.",
        CollapseOldWins: "A collapse puts pages of the object behind in place of those that the object before it has.",
        CollapseForgetsSlots: "A collapse frees what the object behind has in the swap area.",
        BypassUnchecked: "An object goes past the one behind it without a look at whether it needs its pages.",
    }
    /// It shows only where a process has a window.
    needs_a_window: [
        WindowKeepsMappings, WindowWithoutFlush, WindowWritable, WindowLosesReplaced, WindowOverLocked,
        ProtectBeyondMaximum,
    ];
    /// It shows only where frames run out beside a thread of the daemon's own.
    needs_a_daemon: [DaemonWaitsForMemory];
}
