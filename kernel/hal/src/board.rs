//! What is on a board, as far as the kernel must know before it runs: processors, memory, and how its TLBs are filled.

use crate::isa::RadixFormat;
use crate::mmu::{BlockRegisters, Layout, Width};

/// How a TLB is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mmu {
    /// Hardware walks page tables of this format, from the root of the [`crate::Context`].
    Radix(RadixFormat),
    /// Hardware looks into a [`crate::HashTable`] of the format [`crate::isa::hash`]; what it does not find there is a
    /// [`crate::Miss`].
    Hash,
    /// Every miss is a [`crate::Miss`]; the kernel loads the TLB.
    Soft {
        /// Entries of the TLB.
        entries: usize,
        /// Any page may be in any entry, so that some can be reserved.
        is_fully_associative: bool,
        /// At a miss hardware names the groups of [`crate::isa::hash`] that the page belongs to: a kernel may keep a
        /// [`crate::HashTable`] of its own.
        hashes: bool,
        /// A counter names the entry that a load takes next ([`crate::Tlb::tlb_random`]).
        has_counter: bool,
        /// Fetches look into a TLB of their own, which the kernel loads apart from the other.
        fetches_apart: bool,
        /// log2 of the bytes of the larger pages that it may load, from small to large: one or two sizes.
        large: &'static [u8],
        /// log2 of the bytes of pages that are smaller than a frame, where it may load such.
        part: Option<u8>,
        /// Software can read the entries one by one ([`crate::Tlb::tlb_search`]).
        is_readable: bool,
    },
}

/// Memory of devices, behind the last frame of physical memory; no cache holds any of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceMemory {
    /// Pages of the frame buffer: the first ones.
    pub frame_buffer_pages: usize,
    /// Pages of registers, behind it.
    pub register_pages: usize,
}

impl DeviceMemory {
    /// All of its pages.
    pub const fn pages(&self) -> usize {
        self.frame_buffer_pages + self.register_pages
    }
}

/// What is on the board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Board {
    /// Logical CPUs, numbered from 0. A machine with one runs a uniprocessor kernel: locks without atomics.
    pub cpus: usize,
    /// Frames of physical memory, numbered from 0.
    pub frames: usize,
    /// Size of a pointer; with it, of the kernel's structures.
    pub pointer: Width,
    /// Where things are in an address space.
    pub layout: Layout,
    /// What devices have beside that.
    pub device_memory: Option<DeviceMemory>,
    /// How the TLB is filled.
    pub mmu: Mmu,
    /// How many tags of address spaces there are, [`crate::Asid::KERNEL`] among them; 0 when entries carry none, and a
    /// change of the context drops all that is not global. A kernel need not use them where hardware walks page tables:
    /// one that knows [`crate::Asid::KERNEL`] alone, and never has [`crate::Context::keep`] set, has a machine without.
    pub asids: u32,
    /// Registers for blocks.
    pub blocks: Option<BlockRegisters>,
    /// [`crate::Flush::Broadcast`] reaches the TLBs of all CPUs: no interrupt has to ask them.
    pub broadcasts_flushes: bool,
    /// Colours of pages: addresses of equal colour share a frame in a virtually indexed cache. 1 where caches need
    /// none.
    pub colours: u32,
    /// The first cache passes each store on, and takes no line in for one: what it holds is never newer than what lies
    /// behind it.
    pub writes_through: bool,
    /// Bytes of an instruction, on average.
    pub instruction_bytes: u32,
    /// Instructions are fetched through a TLB or a cache that the machine describes: kernel text needs a place.
    /// Without, instructions take their time and nothing else.
    pub fetches: bool,
    /// Page tables may map huge pages ([`RadixFormat::huge_shift`]).
    pub huge_pages: bool,
}

impl Board {
    /// Entries of a TLB of which the kernel can keep some for itself; `None` where it can keep none: it must load the
    /// TLB of the only processor, any page must go into any entry, and what an entry of one space maps must not be seen
    /// in another.
    pub const fn reservable_entries(&self) -> Option<usize> {
        match self.mmu {
            Mmu::Soft { entries, is_fully_associative: true, .. } if self.cpus == 1 && self.asids > 0 => {
                Some(entries)
            }
            _ => None,
        }
    }
}
