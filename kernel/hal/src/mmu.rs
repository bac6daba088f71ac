//! What translates addresses: the vocabulary that all memory management units share.
//!
//! A machine translates in one of three ways ([`crate::Mmu`]): its hardware walks page tables, its hardware looks into
//! a hash table, or a miss calls the kernel, which loads the TLB by itself. Beside any of them there may be *blocks*,
//! registers that map large areas before any page is looked at, and areas that are not translated at all. Whatever the
//! way, a mapping is one [`Tte`]: a frame, a size, and what it permits. The bits of an entry in memory are the business
//! of the `pmap`; the ones that hardware reads are described under [`crate::isa`].
//!
//! # What is true
//! No format of an entry in memory does: a TLB, a hash table and a software table may all hold copies. The kernel
//! declares each mapping when it makes or changes it ([`crate::Oracle::mapping_changed`]), and a modelled machine
//! judges each translation that is used by the mapping last declared.

use crate::addr::{PAGE_SHIFT, Pa, Pfn, Va};
use crate::trap::{Access, Mode, Prot};

/// The size of a word in memory: of a pointer, or of an entry of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

impl Width {
    /// Bytes of one.
    pub const fn bytes(self) -> usize {
        match self {
            Width::Four => 4,
            Width::Eight => 8,
        }
    }
}

/// An address space, as the machine knows it: the owner of a translation. Never used twice in the life of a machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SpaceId(pub u32);

impl SpaceId {
    /// The kernel's addresses, which all spaces share.
    pub const KERNEL: SpaceId = SpaceId(0);
}

/// The number by which TLB entries of an address space differ from others' (ASID, PCID, context number, the VSIDs of
/// its segments). 0 is the kernel's own, and the only one on machines whose entries carry none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Asid(pub u32);

impl Asid {
    /// The kernel's.
    pub const KERNEL: Asid = Asid(0);
}

bitflags::bitflags! {
    /// What a mapping permits, and what is known of it.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Attr: u16 {
        /// Stores are permitted. (Loads always are: what permits nothing is no mapping.)
        const WRITE = 1 << 0;
        /// User mode may use it.
        const USER = 1 << 1;
        /// The same in all address spaces: matches whatever the ASID.
        const GLOBAL = 1 << 2;
        /// It was used.
        const REFERENCED = 1 << 3;
        /// It was stored through.
        const MODIFIED = 1 << 4;
        /// For software: the mapping is wired.
        const WIRED = 1 << 5;
        /// For software: the mapping is in the list of its frame.
        const MANAGED = 1 << 6;
        /// Instructions are not fetched from it, where the format can say so ([`crate::isa::RadixFormat::no_execute`]).
        const NO_EXECUTE = 1 << 7;
    }
}

/// A mapping of one page of some size: the same for every format. One that is smaller than a frame leads to the part of
/// the frame that has the place within it that the page has within a whole one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tte {
    /// The first frame.
    pub frame: Pfn,
    /// log2 of the bytes that it maps.
    pub shift: u8,
    /// What it permits, and what is known of it.
    pub attr: Attr,
}

impl Tte {
    /// A mapping of one page.
    pub const fn page(frame: Pfn, attr: Attr) -> Tte {
        Tte { frame, shift: PAGE_SHIFT as u8, attr }
    }
    /// What it permits.
    pub fn prot(&self) -> Prot {
        if self.attr.contains(Attr::WRITE) { Prot::RW } else { Prot::READ }
    }
}

/// What a CPU's accesses are translated by: an address space, the root of its page tables, and the tag of its TLB
/// entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Whose translations these are.
    pub space: SpaceId,
    /// The root of the page tables, for hardware or for the kernel's refill handler.
    pub root: Pa,
    /// The tag; [`Asid::KERNEL`] on machines without.
    pub asid: Asid,
    /// What the TLB holds by that tag is this space's, and stays (x86: bit 63 of CR3). Else what is not global goes,
    /// where hardware walks page tables; where it does not, entries of a tag stay in any case.
    pub keep: bool,
}

/// What is to be invalidated: in the own TLB, unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// The page at this address: of the address space with this tag, or global. Hardware may drop more.
    Page(Asid, Va),
    /// Such a page in the TLBs of all CPUs, where the board can ([`crate::Board::broadcasts_flushes`]). The own one has
    /// dropped it at once, the others when a [`Flush::Synchronise`] of this CPU has come back.
    Broadcast(Asid, Va),
    /// Nothing more, but waits until all CPUs have dropped what this one has broadcast.
    Synchronise,
    /// Everything of the address space with this tag that is neither global nor reserved. On machines without tags,
    /// everything that is not global.
    Context(Asid),
    /// Everything but reserved entries, global or not.
    All,
    /// Everything, reserved entries too: what a bit of a control register does where a loop over the others would be
    /// slower.
    Everything,
}

/// Which TLB entry a load of the TLB takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// One that the machine chooses among those that are not reserved.
    Replace,
    /// This reserved one: see [`crate::Tlb::tlb_reserve`].
    Reserved(usize),
    /// This one, which software has chosen among those that are not reserved.
    Chosen(usize),
    /// One that the machine chooses for a translation that a fetch missed: in the instruction TLB, where software loads
    /// that apart from the other.
    Instruction,
}

/// Why a machine asks the kernel's refill handler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MissKind {
    /// There is no translation.
    Absent,
    /// There is one, for stores too, but nothing has noted yet that the page is modified.
    Clean,
    /// There is one that does not permit the access. It may be older than the mapping.
    Refused,
}

/// An access that the machine could not translate by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    /// The address.
    pub va: Va,
    /// Load, store or fetch.
    pub access: Access,
    /// Privilege.
    pub mode: Mode,
    /// Why.
    pub kind: MissKind,
}

/// A run of addresses that a register maps, or hardware itself, before any page is looked at. It takes no TLB entry and
/// cannot miss. The size is a power of two, to which both ends are aligned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// First address.
    pub va: Va,
    /// Where it leads.
    pub pa: Pa,
    /// log2 of its size.
    pub shift: u8,
    /// What it permits. Nothing is noted of its use.
    pub attr: Attr,
}

impl Block {
    /// Bytes that it maps.
    pub const fn len_bytes(&self) -> u64 {
        1 << self.shift
    }
    /// True when it maps `va`.
    pub const fn contains(&self, va: Va) -> bool {
        va.0 >> self.shift == self.va.0 >> self.shift
    }
    /// Where `va`, which it maps, leads.
    pub const fn translate(&self, va: Va) -> Pa {
        Pa(self.pa.0 | (va.0 & ((1 << self.shift) - 1)))
    }
    /// True when the two share an address.
    pub const fn overlaps(&self, other: &Block) -> bool {
        self.contains(other.va) || other.contains(self.va)
    }
}

/// One of the registers that map blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockRegister {
    /// Looked into by loads and stores; by fetches too where there are none for instructions.
    Data(usize),
    /// Looked into by fetches alone.
    Instruction(usize),
}

/// Registers that map blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRegisters {
    /// How many there are for data.
    pub count: usize,
    /// How many there are for instructions; 0 where those for data serve both.
    pub instruction_count: usize,
    /// log2 of the smallest block.
    pub min_shift: u8,
    /// log2 of the largest block.
    pub max_shift: u8,
}

impl BlockRegisters {
    /// These, as far as a block can be had for data and for instructions.
    pub const fn for_both(self) -> BlockRegisters {
        let count = match self.instruction_count {
            0 => self.count,
            apart if apart < self.count => apart,
            _ => self.count,
        };
        BlockRegisters { count, ..self }
    }
}

/// How what is mapped for ever is mapped: the arena of kernel structures, and the direct map where there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Region {
    /// Not translated by TLB or tables at all (SH-4: P1).
    Unmapped,
    /// By block registers.
    Blocks,
    /// By superpages of the kernel's page tables, unless the kernel chooses other pages that the machine has.
    Superpages,
    /// By pages like any other.
    Pages,
    /// By large entries of the TLB that no table has, of two to this power bytes: the refill handler makes them of the
    /// address alone (FreeBSD/sparc64, FreeBSD/ia64).
    Computed(u8),
}

/// Where things are in an address space. All of user space lies below all of the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// First address of user space.
    pub user_start: Va,
    /// First address behind user space.
    pub user_end: Va,
    /// First address of the kernel: the arena of kernel structures begins here, on physical address 0.
    pub kernel_base: Va,
    /// First address that the kernel maps page by page; `None` when that is what follows the arena. It lies behind the
    /// arena, or below [`Layout::kernel_base`].
    pub paged_base: Option<Va>,
    /// First address behind what the kernel may map page by page.
    pub kernel_end: Va,
    /// Where physical address 0 appears in the direct map of all memory, if there is one. It may be
    /// [`Layout::kernel_base`].
    pub direct_map: Option<Va>,
    /// How arena and direct map are mapped.
    pub region: Region,
}

impl Layout {
    /// True when all of `len_bytes` at `at` lie in user space. Nothing does that has no length, but at any address.
    pub fn is_user(&self, at: Va, len_bytes: usize) -> bool {
        let end = at.checked_add(len_bytes);
        len_bytes == 0 || end.is_some_and(|end| at >= self.user_start && end <= self.user_end)
    }
}

/// The hash table that hardware looks into: groups of entries in memory, a primary and a secondary group for each page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashTable {
    /// Where it lies; aligned to its size.
    pub at: Pa,
    /// How many groups it has: a power of two.
    pub groups: usize,
    /// What numbers of address spaces are multiplied by for the numbers of their segments: see
    /// [`hash::vsid`](crate::isa::hash::vsid).
    pub scatter: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_areas_of_their_size() {
        let block = |va, shift| Block { va: Va(va), pa: Pa(0), shift, attr: Attr::WRITE };
        let b = block(0xc000_0000, 24);
        assert!(b.contains(Va(0xc0ff_ffff)) && !b.contains(Va(0xc100_0000)));
        assert_eq!(Block { pa: Pa(0x200_0000), ..b }.translate(Va(0xc012_3456)), Pa(0x212_3456));
        assert!(b.overlaps(&block(0xc080_0000, 17)) && block(0xc080_0000, 17).overlaps(&b));
        assert!(!b.overlaps(&block(0xc100_0000, 17)));
    }

    #[test]
    fn user_space_is_half_open() {
        let l = crate::isa::x86::I386_LAYOUT;
        assert!(l.is_user(l.user_start, 1) && l.is_user(Va(l.user_end.0 - 1), 1));
        assert!(!l.is_user(Va(0), 1) && !l.is_user(Va(l.user_end.0 - 1), 2) && l.is_user(Va(0), 0));
        assert!(!l.is_user(Va(u64::MAX), 2));
    }
}
