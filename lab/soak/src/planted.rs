//! Defects to plant in what is run, to see them caught.

use pageferry_kernel::{IspcDefect, NetDefect};
use pageferry_pmap::{AreaDefect, PmapDefect};
use pageferry_vm::VmDefect;

/// A defect to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the VM system.
    Vm(VmDefect),
    /// In the pmap.
    Pmap(PmapDefect),
    /// In the Internet protocols.
    Net(NetDefect),
    /// In communication by a common area.
    Ispc(IspcDefect),
    /// In what attaches that.
    Area(AreaDefect),
}

/// A machine whose kernel locks loans as published.
const PUBLISHED: &str = "mini-soft+published+tabled:4";

impl Planted {
    /// All that random programs must find. (No process of theirs has a block of its own that could stay, or a piece
    /// that a large page attaches. What is wrong with entries loaded ahead, or for rows of pages, the tests of the pmap
    /// show; what only a host that lies would show, or one that resets what it has just sent, the tests of the kernel
    /// show; and a writer that is not woken, which leaves the far end with timers that go off for hours. No driver of
    /// theirs is a program, and no process has a window: `kernel/vm/tests/it/window.rs`.)
    pub fn all() -> impl Iterator<Item = Planted> {
        let apart = [
            PmapDefect::BlockStays,
            PmapDefect::PreloadTwice,
            PmapDefect::PreloadUnseen,
            PmapDefect::PreloadOfOthers,
            PmapDefect::RowOverPages,
            PmapDefect::RowHalfCompared,
        ];
        let pmaps = PmapDefect::ALL.iter().copied().filter(move |defect| !apart.contains(defect));
        let nets = NetDefect::ALL.iter().copied().filter(|defect| {
            !defect.needs_a_liar() && !defect.needs_pages() && *defect != NetDefect::WriterNotWoken
        });
        let ispcs = IspcDefect::ALL
            .iter()
            .copied()
            .filter(|defect| !defect.needs_a_card() && !defect.needs_large_pieces());
        let vms = VmDefect::ALL
            .iter()
            .copied()
            .filter(|defect| !defect.needs_a_window() && !defect.needs_a_daemon());
        vms.map(Planted::Vm)
            .chain(pmaps.map(Planted::Pmap))
            .chain(nets.map(Planted::Net))
            .chain(ispcs.map(Planted::Ispc))
            .chain(AreaDefect::ALL.iter().copied().map(Planted::Area))
    }

    /// What it does.
    pub const fn sentence(self) -> &'static str {
        match self {
            Planted::Vm(defect) => defect.sentence(),
            Planted::Pmap(defect) => defect.sentence(),
            Planted::Net(defect) => defect.sentence(),
            Planted::Ispc(defect) => defect.sentence(),
            Planted::Area(defect) => defect.sentence(),
        }
    }

    /// The machine, with the kernel, that shows it, where not every one does.
    pub const fn machine(self) -> Option<&'static str> {
        let defect = match self {
            Planted::Pmap(defect) => defect,
            Planted::Ispc(_) | Planted::Area(_) => return Some("sh7751r+unused"),
            Planted::Vm(VmDefect::AdoptedStillLent | VmDefect::BorrowedOrphanKept) => return Some(PUBLISHED),
            Planted::Vm(_) | Planted::Net(_) => return None,
        };
        Some(match defect {
            PmapDefect::TagReusedEarly
            | PmapDefect::OldTagStays
            | PmapDefect::MissingFlush
            | PmapDefect::ModifiedLost
            | PmapDefect::ReferencedLost
            | PmapDefect::WriteAlways
            | PmapDefect::BlockOverPages
            | PmapDefect::BlockMissing
            | PmapDefect::BlockStays => "ppc603+renew",
            PmapDefect::NewTagKept | PmapDefect::LeftCpusForgotten => "today+tags",
            PmapDefect::TagHalfCompared | PmapDefect::EndlessRefill => "ppc603+slow+hash+pte+renew",
            PmapDefect::TagReusedInHashTable
            | PmapDefect::StaleHashEntry
            | PmapDefect::RefusedStays
            | PmapDefect::MissUnplaced => "ppc604+renew",
            PmapDefect::SecondaryUnmarked => "ppc604+slow+pte+renew",
            PmapDefect::BroadcastNotAwaited => "today-invlpgb+tags",
            PmapDefect::OwnSpaceOnly | PmapDefect::ReadBeforeLocked | PmapDefect::NotedBlindly => {
                "ppc604-smp"
            }
            PmapDefect::HalfWritten => "ppc604-smp",
            PmapDefect::PreloadTwice | PmapDefect::PreloadUnseen | PmapDefect::PreloadOfOthers => {
                "sh7751r+unused+recency-flushed"
            }
            PmapDefect::RowOverPages | PmapDefect::RowHalfCompared => "sh7751r+unused+rows",
            PmapDefect::ColourIgnored | PmapDefect::OtherColourStays | PmapDefect::NotPurged => {
                "sh7751r+unused"
            }
        })
    }

    /// True for one that only chains of shadow objects can show.
    pub(crate) const fn is_of_chains(self) -> bool {
        matches!(
            self,
            Planted::Vm(
                VmDefect::ShadowUncounted
                    | VmDefect::CollapseOldWins
                    | VmDefect::CollapseForgetsSlots
                    | VmDefect::BypassUnchecked
            )
        )
    }

    /// The pmap's, if it is one.
    pub(crate) const fn in_pmap(self) -> Option<PmapDefect> {
        match self {
            Planted::Pmap(defect) => Some(defect),
            _ => None,
        }
    }

    /// The VM system's, if it is one.
    pub(crate) const fn in_vm(self) -> Option<VmDefect> {
        match self {
            Planted::Vm(defect) => Some(defect),
            _ => None,
        }
    }

    /// The Internet protocols', if it is one.
    pub(crate) const fn in_net(self) -> Option<NetDefect> {
        match self {
            Planted::Net(defect) => Some(defect),
            _ => None,
        }
    }
}
