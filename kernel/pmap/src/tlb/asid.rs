//! The numbers by which a machine tells TLB entries of address spaces apart.
//!
//! There are three ways, and the board says which; where hardware walks page tables and could tag what it finds, the
//! kernel chooses ([`crate::PmapConfig::tags`]):
//! * **None**: a change of the context drops what is not global. No entry of a space is anywhere but where it runs.
//! * **For each CPU**, where the kernel loads the TLB, or hardware fills it from page tables: a CPU gives out numbers
//!   as spaces come to run there, in *generations* (as NetBSD's pmap_tlb does). When all are given out, it begins anew;
//!   what was given before does not count any more. What TLBs hold by a number from before goes all at once when it
//!   begins anew; where hardware walks, when the number is given again, by the load of the root
//!   ([`pageferry_hal::Context::keep`]). A space that does not run on a CPU is flushed there by taking its number away
//!   (as FreeBSD does on amd64): no other CPU has to be interrupted for it.
//! * **Shared**, where there is a hash table of all spaces, or one CPU invalidates for all: a number is given when a
//!   space is made and comes to rest when it is gone. Any CPU that the space has run on may hold entries of it, even
//!   then: a flush of its pages may still be owed. When all have been given, the TLBs of all CPUs are emptied, the hash
//!   table is cleared of them, and those that rested are given again.
//!
//! A uniprocessor may give a space another number instead of invalidating many of its pages one by one
//! ([`crate::PmapConfig::renew_pages`]; Linux/PPC). What the old number leads to stays behind, in TLB and hash table,
//! out of reach; a CPU with nothing to do takes it out of the hash table ([`crate::Pmaps::reclaim`]).

use crate::defect::PmapDefect;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use pageferry_defects::Planted;
use pageferry_hal::{Asid, Board, CpuId, CpuSet, Flush, Machine, Mmu};

/// How this board tells address spaces apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tagging {
    None,
    PerCpu,
    Shared,
}

impl Tagging {
    /// `tags`: as the kernel chooses where it has the choice.
    pub(crate) fn of(board: &Board, hash: bool, tags: bool) -> Tagging {
        match (board.asids, board.mmu) {
            (0, _) => Tagging::None,
            (_, Mmu::Radix(_)) if !tags => Tagging::None,
            _ if hash || board.broadcasts_flushes => Tagging::Shared,
            _ => Tagging::PerCpu,
        }
    }
}

/// The tags that a CPU has given out.
#[derive(Default)]
pub(crate) struct Numbers {
    generation: AtomicU32,
    /// The last one of this generation.
    given: AtomicU32,
}

impl Numbers {
    /// How often the tags began anew.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(SeqCst)
    }
}

/// The numbers of one address space.
#[derive(Debug)]
pub(crate) enum Tags {
    /// By CPU: generation and number, or 0.
    PerCpu(Box<[AtomicU64]>),
    /// The same everywhere, and the CPUs that the space has run on.
    Shared { asid: AtomicU32, ran_on: AtomicU64 },
}

fn pack(generation: u32, asid: Asid) -> u64 {
    u64::from(generation) << 32 | u64::from(asid.0)
}

impl Tags {
    pub(crate) fn per_cpu(cpus: usize) -> Tags {
        Tags::PerCpu((0..cpus).map(|_| AtomicU64::new(0)).collect())
    }

    /// The number on `cpu`, which is about to run the space and has given out `numbers`; and whether it was the space's
    /// before, so that what the TLB holds by it is.
    pub(crate) fn number<M: Machine>(
        &self,
        m: &M,
        cpu: CpuId,
        numbers: &Numbers,
        defect: Planted<PmapDefect>,
    ) -> (Asid, bool) {
        match self {
            Tags::Shared { asid, ran_on } => {
                ran_on.fetch_or(CpuSet::only(cpu).bits(), SeqCst);
                (Asid(asid.load(SeqCst)), true)
            }
            Tags::PerCpu(tags) => {
                let tag = tags[cpu.index()].load(SeqCst);
                if tag >> 32 == u64::from(numbers.generation.load(SeqCst)) && tag != 0 {
                    return (Asid(tag as u32), true);
                }
                let mut next = numbers.given.load(SeqCst) + 1;
                if next >= m.board().asids {
                    numbers.generation.fetch_add(1, SeqCst);
                    let drops_by_root = matches!(m.board().mmu, Mmu::Radix(_));
                    if !drops_by_root && !defect.is(PmapDefect::TagReusedEarly) {
                        m.tlb_flush(Flush::All);
                    }
                    next = 1;
                }
                numbers.given.store(next, SeqCst);
                tags[cpu.index()].store(pack(numbers.generation.load(SeqCst), Asid(next)), SeqCst);
                (Asid(next), defect.is(PmapDefect::NewTagKept))
            }
        }
    }

    /// The number that `cpu` has given, and has not given out again since.
    pub(crate) fn given(&self, cpu: CpuId, numbers: &Numbers) -> Option<Asid> {
        match self {
            Tags::Shared { asid, .. } => Some(Asid(asid.load(SeqCst))),
            Tags::PerCpu(tags) => {
                let tag = tags[cpu.index()].load(SeqCst);
                (tag != 0 && tag >> 32 == u64::from(numbers.generation())).then_some(Asid(tag as u32))
            }
        }
    }

    /// Takes the number on `cpu` away: what its TLB holds of the space is out of reach from then on.
    pub(crate) fn revoke(&self, cpu: CpuId) {
        if let Tags::PerCpu(tags) = self {
            tags[cpu.index()].store(0, SeqCst);
        }
    }

    /// The number that is the same on all CPUs, if it is.
    pub(crate) fn shared(&self) -> Option<Asid> {
        match self {
            Tags::Shared { asid, .. } => Some(Asid(asid.load(SeqCst))),
            Tags::PerCpu(_) => None,
        }
    }

    /// Gives the space another number, where it is the same on all CPUs; answers the old one. The caller sees to it
    /// that no other CPU runs the space.
    pub(crate) fn renew(&self, new: Asid) -> Option<Asid> {
        match self {
            Tags::Shared { asid, .. } => Some(Asid(asid.swap(new.0, SeqCst))),
            Tags::PerCpu(_) => None,
        }
    }

    /// The CPUs that the space has run on, where all of them may hold entries.
    pub(crate) fn ran_on(&self) -> CpuSet {
        match self {
            Tags::Shared { ran_on, .. } => CpuSet::from_bits(ran_on.load(SeqCst)),
            Tags::PerCpu(_) => CpuSet::EMPTY,
        }
    }
}

/// The numbers that are the same on all CPUs, and free. Under the lock of reverse mappings.
pub(crate) struct FreeNumbers {
    next: u32,
    end: u32,
    /// No TLB has entries of them.
    free: Vec<Asid>,
    /// Given back, and perhaps still in TLBs and in the hash table; in order.
    resting: Vec<Asid>,
    /// How many are about to be freed: their TLBs are being emptied.
    rested: usize,
    /// Rounds of reclaiming through the hash table, this one among them, until nothing is left there of those that
    /// rest.
    rounds_due: u8,
}

impl FreeNumbers {
    /// From `first` on, which is at least 1: 0 is the kernel's.
    pub(crate) fn new(first: u32, asids: u32) -> FreeNumbers {
        FreeNumbers {
            next: first.max(1),
            end: asids,
            free: Vec::new(),
            resting: Vec::new(),
            rested: 0,
            rounds_due: 0,
        }
    }
    pub(crate) fn take(&mut self) -> Option<Asid> {
        if self.next < self.end {
            self.next += 1;
            return Some(Asid(self.next - 1));
        }
        self.free.pop()
    }
    pub(crate) fn give(&mut self, asid: Asid) {
        let place = self.resting.partition_point(|other| *other < asid);
        self.resting.insert(place, asid);
        // The round that is under way may have passed entries of this one.
        self.rounds_due = 2;
    }
    /// True when the hash table may have entries of those that rest.
    pub(crate) fn some_to_reclaim(&self) -> bool {
        self.rounds_due > 0
    }
    /// Reclaiming has come to the end of the hash table.
    pub(crate) fn round_over(&mut self) {
        self.rounds_due -= 1;
    }
    /// Those that rest now. When all TLBs have been emptied since, they are [freed](Self::free).
    pub(crate) fn rested(&mut self) -> Vec<Asid> {
        self.rested += self.resting.len();
        core::mem::take(&mut self.resting)
    }
    pub(crate) fn free(&mut self, rested: Vec<Asid>) {
        self.rested -= rested.len();
        self.free.extend(rested);
    }
    /// True when `asid` is not in use, but not free yet.
    pub(crate) fn rests(&self, asid: Asid) -> bool {
        self.resting.binary_search(&asid).is_ok()
    }
    /// True when some are not in use, but not free yet.
    pub(crate) fn some_rest(&self) -> bool {
        self.rested + self.resting.len() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_where_they_are_told_to_and_never_with_the_kernels() {
        let mut late = FreeNumbers::new(6, 8);
        assert_eq!([late.take(), late.take(), late.take()], [Some(Asid(6)), Some(Asid(7)), None]);
        assert_eq!(FreeNumbers::new(0, 8).take(), Some(Asid(1)));
    }
}
