//! Defects to plant.
//!
//! A check that cannot fail proves nothing. Each of these leaves one step out, or does one too many, in the place where a
//! real system got it wrong or easily could; whoever tests the checks plants one with [`crate::Vm::plant`] and sees it
//! caught. None is ever planted otherwise: asking costs one load.

use core::sync::atomic::{AtomicU8, Ordering};

/// What is left out, or done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Defect {
    /// The first loan of a page leaves its mappings writable (UVM paper, 4.1).
    LoanWithoutProtect = 1,
    /// Breaking a loan leaves other mappings of the old frame (UVM paper, 4.1.1).
    BreakWithoutRevoke,
    /// Promotion in shared memory leaves the others' mappings of the old page (as in FreeBSD SA-21:08).
    PromoteWithoutRevoke,
    /// Promotion and copy-on-write leave the frame as the allocator found it.
    CopyForgotten,
    /// Zero-fill memory has the bytes of the frame's last owner.
    ZeroForgotten,
    /// Fork leaves the parent's mappings of copy-on-write memory writable.
    ForkWithoutProtect,
    /// Fork does not note in the parent's entry that it must copy before it writes.
    ForkForgetsNeedsCopy,
    /// Fork shares a wired page copy-on-write, and the kernel goes on storing into it.
    ForkSharesWired,
    /// A copied amap does not count its references on anons.
    AnonReferenceForgotten,
    /// An anon with other references is written in place.
    SharedAnonWritten,
    /// Unmapping leaves the mappings in the page tables.
    UnmapKeepsMappings,
    /// Unmapping changes the page tables and tells no TLB.
    UnmapWithoutFlush,
    /// A loan that is given back leaves one frame lent.
    LoanLeaked,
    /// An orphan is freed with the first of its loans, not the last (double free).
    OrphanFreedEarly,
    /// An owner that lets a lent frame go frees it.
    LentFrameFreed,
    /// A lent frame that an object lets go is not given to its borrower.
    BorrowerForgotten,
    /// Lending a mapped file ignores where in the file the mapping begins (as in uvm_loan.c 1.27).
    LoanAtWrongOffset,
    /// A loan does not wait for write-protection that is under way on other CPUs.
    LoanUnsettled,
    /// A transfer leaves the mappings of the pages that it replaces.
    TransferKeepsMappings,
    /// A transfer does not free the anons that it replaces.
    TransferLeaksReplaced,
    /// `anflush` leaves the mappings of the pages that it removes.
    AnflushKeepsMappings,
    /// Donating leaves the sender's mappings.
    DonateKeepsMappings,
    /// A donation that fails has taken the memory from its sender all the same (as in uvm_map_extract with REMOVE).
    DonateLosesOnFailure,
    /// Sharing by pass does not resolve a copy that the sender still has to make.
    ShareForgetsCopy,
    /// A wire is not taken off.
    WireLeaked,
    /// Reducing the permissions of a range leaves those of its mappings.
    ProtectKeepsMappings,
}

impl Defect {
    /// All of them.
    pub const ALL: [Defect; 26] = [
        Defect::LoanWithoutProtect,
        Defect::BreakWithoutRevoke,
        Defect::PromoteWithoutRevoke,
        Defect::CopyForgotten,
        Defect::ZeroForgotten,
        Defect::ForkWithoutProtect,
        Defect::ForkForgetsNeedsCopy,
        Defect::ForkSharesWired,
        Defect::AnonReferenceForgotten,
        Defect::SharedAnonWritten,
        Defect::UnmapKeepsMappings,
        Defect::UnmapWithoutFlush,
        Defect::LoanLeaked,
        Defect::OrphanFreedEarly,
        Defect::LentFrameFreed,
        Defect::BorrowerForgotten,
        Defect::LoanAtWrongOffset,
        Defect::LoanUnsettled,
        Defect::TransferKeepsMappings,
        Defect::TransferLeaksReplaced,
        Defect::AnflushKeepsMappings,
        Defect::DonateKeepsMappings,
        Defect::DonateLosesOnFailure,
        Defect::ShareForgetsCopy,
        Defect::WireLeaked,
        Defect::ProtectKeepsMappings,
    ];
}

/// The one that is planted, if any.
#[derive(Debug, Default)]
pub(crate) struct Planted(AtomicU8);

impl Planted {
    pub(crate) fn set(&self, defect: Option<Defect>) {
        self.0.store(defect.map_or(0, |d| d as u8), Ordering::Relaxed);
    }

    pub(crate) fn is(&self, defect: Defect) -> bool {
        self.0.load(Ordering::Relaxed) == defect as u8
    }
}
