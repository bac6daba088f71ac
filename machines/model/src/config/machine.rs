//! A machine as a whole, and those of its tables that have no file of their own.

use super::cache::{CacheConfig, WritePolicy, colours};
use super::fetch::{InstructionCacheConfig, InstructionTlbConfig};
use super::mmu::{AreaConfig, MmuConfig, ReplaceName, WalkerName};
use super::nic::NicConfig;
use super::number::Number;
use crate::mmu::tlb::Replace;
use pageferry_hal::isa::{alpha, ia64, powerpc, sh4, sparc64, x86};
use pageferry_hal::{
    Attr, Block, BlockRegisters, Board, DeviceMemory, Layout, Mmu, PAGE_SIZE, Pa, Va, Width,
};
use pageferry_sourced::{Constant, Sourced, constants_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The instruction set, as far as it shows: where addresses are, and what entries look like that hardware reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArchName {
    /// 32-bit x86: two-level page tables.
    I386,
    /// 64-bit x86: four-level page tables, and room for a direct map.
    Amd64,
    /// 64-bit Arm with pages of 4 KB: four-level page tables, written as those of amd64 are, and tags of 16 bits.
    Arm64,
    /// 32-bit PowerPC: hashed page tables, block registers.
    PowerPc,
    /// SH-4: areas of fixed kind.
    Sh4,
    /// 64-bit SPARC: a direct map that software loads into the TLB.
    Sparc64,
    /// Alpha: an area of fixed kind that has all of memory.
    Alpha,
    /// IA-64: a direct map that software loads into the TLB.
    Ia64,
}

/// A machine: what is on the board, and what everything on it costs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// The name that commands know it by.
    pub name: String,
    /// One line for headings.
    pub title: String,
    /// What it is and where it was used.
    pub description: String,
    /// Its instruction set.
    pub arch: ArchName,
    /// What fills the TLB, and what translates beside it.
    pub mmu: MmuConfig,
    /// Instruction execution.
    pub cpu: CpuConfig,
    /// Interprocessor interrupts.
    pub ipi: IpiConfig,
    /// Translation look-aside buffers.
    pub tlb: TlbConfig,
    /// The caches of one package, from the CPU outwards. The SMT siblings of a package share them.
    pub cache: Vec<CacheConfig>,
    /// Which packages share the last of them; without, each has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complex: Option<ComplexConfig>,
    /// The cache for instructions; without one, their time is in `cpi_milli`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icache: Option<InstructionCacheConfig>,
    /// Memory, and what packages do to each other's caches.
    pub memory: MemoryConfig,
    /// What devices have in physical addresses behind memory: registers, and a frame buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoConfig>,
    /// The interval timer; reading the time takes nothing if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<TimerConfig>,
    /// The disk, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskConfig>,
    /// The sound device, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<AudioConfig>,
    /// The network card, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicConfig>,
    /// The bibliography: a short key, and where to find the document.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// Instruction execution.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuConfig {
    /// Clock rate.
    pub clock_mhz: Number,
    /// Physical packages.
    pub packages: Number,
    /// Logical CPUs in a package; more than 1 are SMT siblings.
    pub threads_per_package: Number,
    /// Cycles per 1000 kernel instructions, besides what the modelled caches and TLBs add.
    pub cpi_milli: Number,
    /// Cycles per 1000 instructions of a program's loop over bytes, which is short and predicted, besides what caches
    /// and TLBs add; those of the kernel's instructions if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_cpi_milli: Option<Number>,
    /// Factor, in thousandths, on the time of instructions while a sibling is busy; 1000 without SMT.
    pub smt_slowdown_milli: Number,
    /// Instructions of a lock around the atomic one, which are all of its cost on a uniprocessor.
    pub lock_instructions: Number,
    /// What each other CPU that waits for a lock adds to its being handed over, where all look at one word until it is
    /// free (test-and-set, tickets). Absent where each looks at a word of its own (a queue: MCS, qspinlock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_waiter_cycles: Option<Number>,
    /// How far a CPU's clock may be ahead of the next one's before that has its turn, where calls need no order: the
    /// grain of the simulation, and no property of a machine.
    pub run_ahead_cycles: Number,
    /// A locked read-modify-write of a line that is in the own cache.
    pub atomic_cycles: Number,
    /// From the system call instruction to the kernel's first instruction.
    pub syscall_enter_cycles: Number,
    /// From the kernel's last instruction back to the user's next.
    pub syscall_exit_cycles: Number,
    /// From a faulting instruction to the kernel's first instruction.
    pub trap_enter_cycles: Number,
    /// Return from a trap.
    pub trap_exit_cycles: Number,
    /// Invalidation of one page in the own TLB (`invlpg`), without the reading of its PTE.
    pub invalidate_page_cycles: Number,
    /// Invalidation of all entries of the own TLB, global ones too.
    pub invalidate_all_cycles: Number,
    /// Loading the root of the page tables (`CR3`); drops the entries that are not global.
    pub load_root_cycles: Number,
    /// The instructions that save one thread's registers and load another's.
    pub context_switch_cycles: Number,
    /// From the arrival of an interrupt at a halted CPU to its leaving the halt.
    pub halt_wake_cycles: Number,
}

/// Interprocessor interrupts, between the writing of the sender's interrupt controller and the handler's instructions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpiConfig {
    /// What the sender spends on one request, whatever the number of targets.
    pub send_cycles: Number,
    /// From the request to its arrival at a sibling in the sender's package, in cycles of `memory.clock_mhz`.
    pub deliver_same_package_cycles: Number,
    /// From the request to its arrival at a CPU of another package, likewise.
    pub deliver_other_package_cycles: Number,
    /// At the target: from the arrival to the handler's first instruction.
    pub entry_cycles: Number,
    /// At the target: telling the interrupt controller that it is done, and the return.
    pub exit_cycles: Number,
}

/// Translation look-aside buffers of one CPU.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbConfig {
    /// The first level for data.
    pub data: TlbLevelConfig,
    /// The second level, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<SecondTlbConfig>,
    /// The one for instructions, where fetches look into one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<InstructionTlbConfig>,
    /// True when SMT siblings compete for the same entries (each still uses only those that it made).
    pub shared_by_siblings: Sourced<bool>,
    /// A walk of the page tables, besides its memory accesses.
    pub walk_overhead_cycles: Number,
}

/// A TLB.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbLevelConfig {
    /// Entries for 4 KB pages.
    pub entries: Number,
    /// Associativity; 0 means fully associative.
    pub ways: Number,
    /// Entries for superpages, fully associative; 0 means that they share those for 4 KB pages.
    pub superpage_entries: Number,
    /// Entries for pages of 1 GB, fully associative; 0 means that they share those for 4 KB pages. Absent where the
    /// machine has no such pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gigabyte_entries: Option<Number>,
}

/// A second-level TLB.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecondTlbConfig {
    /// Entries, for 4 KB pages.
    pub entries: Number,
    /// True when they are for superpages too; absent or false when not. Pages of 1 GB are not kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superpages: Option<Sourced<bool>>,
    /// Associativity; 0 means fully associative.
    pub ways: Number,
    /// A first-level miss that hits here.
    pub hit_cycles: Number,
}

/// Packages that share the last level of their caches: cores of a core complex, or of a mesh with one cache. Its cycles
/// are those of the CPU's clock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComplexConfig {
    /// So many packages, of neighbouring numbers, make a complex; the last one may have fewer.
    pub packages: Number,
    /// A dependent access to a line that another package of the complex has newer than the shared level, or has alone.
    pub transfer_cycles: Number,
    /// One line moved by a copy, likewise.
    pub stream_transfer_cycles: Number,
    /// Making the other packages of the complex give up a line, before a store that is waited for.
    pub upgrade_cycles: Number,
    /// The same for one line of a copy.
    pub stream_upgrade_cycles: Number,
}

/// Memory, and what packages do to each other's caches. Its cycles are those of `clock_mhz`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// Capacity, in 2^20 bytes.
    pub size_mb: Number,
    /// The clock that the cycles of this table are counted by: that of the CPU beside which they were found, so that
    /// memory is as fast beside a faster one. A file that does not say it, nor extends one that does, means the clock
    /// of its own CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<Number>,
    /// Load to use, in cycles; this or `latency_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<Number>,
    /// Load to use, in nanoseconds; this or `latency_cycles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Number>,
    /// One line read by a copy; this and the next two, or `dram`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_load_cycles: Option<Number>,
    /// One line written by a copy: fetched first, its later write-back is apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_store_cycles: Option<Number>,
    /// One dirty line written back during a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writeback_cycles: Option<Number>,
    /// What streams cost by its parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram: Option<DramConfig>,
    /// A dependent access to a line that is dirty in another package.
    pub transfer_cycles: Number,
    /// One line moved by a copy when it is dirty in another package.
    pub stream_transfer_cycles: Number,
    /// Making other packages give up a line that is clean here and there, before a store that is waited for.
    pub upgrade_cycles: Number,
    /// The same for one line of a copy.
    pub stream_upgrade_cycles: Number,
}

/// Memory chips behind a bus, one request after the other, and how many of those a CPU has under way. Lines that follow
/// each other come from an open row; any other closes a row and opens one, which the latency has already. Clocks are
/// those of the bus.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DramConfig {
    /// A clock of the bus, in cycles of `memory.clock_mhz`.
    pub clock_cycles: Number,
    /// Bytes that the bus moves at a time.
    pub beat_bytes: Number,
    /// From one beat of a line to the next: a cycle of the chips within a row.
    pub beat_clocks: Number,
    /// From the last beat of a line to the first of the line that follows it, beyond `beat_clocks`.
    pub gap_clocks: Number,
    /// Closing a row.
    pub row_close_clocks: Number,
    /// Opening a row.
    pub row_open_clocks: Number,
    /// Loads that miss, under way at once.
    pub max_load_misses: Number,
    /// Stores that miss, under way at once: 1 where stores are made in the order of the program.
    pub max_store_misses: Number,
    /// Dirty lines that wait for their way to memory while the CPU goes on.
    pub max_write_backs: Number,
}

/// What devices have in physical addresses, right behind memory: nothing depends on where. No cache holds any of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoConfig {
    /// Pages of device registers.
    pub register_pages: Number,
    /// Reading or writing one register, in cycles of `memory.clock_mhz`.
    pub register_cycles: Number,
    /// The frame buffer: a power of two.
    pub frame_buffer_bytes: Number,
    /// As many bytes of the frame buffer, read or written, as a cache line has, in cycles of `memory.clock_mhz`.
    pub frame_buffer_line_cycles: Number,
}

/// The interval timer, on the bus of the slowest devices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimerConfig {
    /// Reading or writing one of its ports, or one of the interrupt controller beside it.
    pub access_ns: Number,
}

/// A disk: requests are served one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// Capacity, in 2^20 bytes.
    pub size_mb: Number,
    /// From the start of a request to its first byte: seek and rotation. A request that goes on where the last one
    /// ended pays nothing.
    pub access_us: Number,
    /// Between medium and memory, in 10^6 bytes a second.
    pub bandwidth_mb_s: Number,
    /// A turn, which a write waits for that goes on where the last request ended; without, the disk has a cache for
    /// writes, and it pays nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_us: Option<Number>,
}

/// A sound device: it plays and records at the same rate, both at once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioConfig {
    /// Bytes of samples a second, each way.
    pub bytes_per_s: Number,
    /// Pages of memory on the card that it records into; without, it records into main memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card_pages: Option<Number>,
}

impl MachineConfig {
    /// Logical CPUs.
    pub fn cpus(&self) -> usize {
        (self.cpu.packages.value * self.cpu.threads_per_package.value) as usize
    }

    /// The package of logical CPU `cpu`: siblings have neighbouring numbers.
    ///
    /// # Panics
    /// When there is no such CPU.
    pub fn package_of(&self, cpu: usize) -> usize {
        assert!(cpu < self.cpus(), "no CPU {cpu} among {}", self.cpus());
        cpu / self.cpu.threads_per_package.value as usize
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.size_mb.value << 20
    }

    /// Cycles of the CPU's clock in so many clocks of the bus to memory.
    fn bus_cycles(&self, dram: &DramConfig, clocks: u64) -> u64 {
        self.outside(clocks * dram.clock_cycles.value)
    }

    /// Cycles that memory takes for a line of an open row, where its chips are told.
    pub fn dram_line_cycles(&self, dram: &DramConfig) -> u64 {
        let beats = self.cache[0].line_bytes.value.div_ceil(dram.beat_bytes.value);
        self.bus_cycles(dram, beats * dram.beat_clocks.value + dram.gap_clocks.value)
    }

    /// Cycles more that memory takes for a line of another row.
    pub fn dram_row_cycles(&self, dram: &DramConfig) -> u64 {
        self.bus_cycles(dram, dram.row_close_clocks.value + dram.row_open_clocks.value)
    }

    /// Cycles of the latency that a miss is on its way, there and back: what is left without a change of rows and the
    /// first beat.
    pub fn dram_way_cycles(&self, dram: &DramConfig) -> u64 {
        let first = self.bus_cycles(dram, dram.beat_clocks.value);
        self.memory_latency_cycles().saturating_sub(self.dram_row_cycles(dram) + first)
    }

    /// Cycles in which a dirty line goes to memory.
    pub fn write_back_cycles(&self) -> u64 {
        match (&self.memory.writeback_cycles, &self.memory.dram) {
            (Some(cycles), _) => self.outside_cycles(cycles),
            (None, Some(dram)) => self.dram_line_cycles(dram),
            (None, None) => unreachable!("validate() refuses a machine whose streams have no costs"),
        }
    }

    /// Cycles of the CPU's clock that something takes which is counted by the clock of memory: the nearest number.
    pub fn outside_cycles(&self, cycles: &Number) -> u64 {
        self.outside(cycles.value)
    }

    fn outside(&self, cycles: u64) -> u64 {
        let cpu_mhz = self.cpu.clock_mhz.value;
        let counted_mhz = self.memory.clock_mhz.as_ref().map_or(cpu_mhz, |clock| clock.value);
        (cycles * cpu_mhz + counted_mhz / 2) / counted_mhz
    }

    /// The latency of memory, in whichever unit it is given.
    pub fn memory_latency_cycles(&self) -> u64 {
        match (&self.memory.latency_cycles, &self.memory.latency_ns) {
            (Some(cycles), _) => self.outside_cycles(cycles).max(1),
            (None, Some(ns)) => ((ns.value * self.cpu.clock_mhz.value + 500) / 1000).max(1),
            (None, None) => unreachable!("validate() refuses a machine without memory latency"),
        }
    }

    /// True when this file describes what instructions are fetched through.
    pub fn fetches(&self) -> bool {
        self.tlb.instruction.is_some() || self.icache.is_some()
    }

    /// Colours of pages: pages of a way of the first level, if it is indexed by virtual addresses; else 1.
    pub fn colours(&self) -> u32 {
        let first = &self.cache[0];
        colours(first.virtual_index.as_ref(), &first.size_bytes, &first.ways)
    }

    /// What is on the board.
    pub fn board(&self) -> Board {
        let mmu = match (self.arch, self.mmu.walker) {
            (_, Some(WalkerName::Hash)) => Mmu::Hash,
            (ArchName::Amd64 | ArchName::Arm64, Some(WalkerName::Radix)) => Mmu::Radix(x86::AMD64),
            (_, Some(WalkerName::Radix)) => Mmu::Radix(x86::I386),
            (_, None) => Mmu::Soft {
                entries: self.tlb.data.entries.value as usize,
                is_fully_associative: self.tlb.data.ways.value == 0,
                hashes: self.mmu.soft.as_ref().and_then(|s| s.hashes.as_ref()).is_some_and(|h| h.value),
                has_counter: self.replacement() == Replace::Counter,
                fetches_apart: (self.tlb.instruction.as_ref())
                    .is_some_and(|tlb| tlb.data_hit_cycles.is_none()),
                large: match self.arch {
                    ArchName::Sh4 => &[16, 20],
                    // There are pages of 512 KB beside.
                    ArchName::Sparc64 => &[16, sparc64::DIRECT_SHIFT],
                    // 8 and 512 pages of its own; it has 64 of them as well.
                    ArchName::Alpha => &[16, 22],
                    // There are nine more.
                    ArchName::Ia64 => &[16, ia64::DIRECT_SHIFT],
                    // One size, which nothing loads.
                    ArchName::PowerPc | ArchName::I386 | ArchName::Amd64 | ArchName::Arm64 => &[20],
                },
                part: (self.arch == ArchName::Sh4).then_some(10),
                is_readable: self.mmu.soft.as_ref().is_some_and(|soft| soft.search_cycles.is_some()),
            },
        };
        let blocks = self.mmu.blocks.as_ref().map(|b| BlockRegisters {
            count: b.registers.value as usize,
            instruction_count: b.instruction_registers.as_ref().map_or(0, |r| r.value as usize),
            min_shift: b.min_bytes.value.ilog2() as u8,
            max_shift: b.max_bytes.value.ilog2() as u8,
        });
        Board {
            cpus: self.cpus(),
            frames: (self.memory_bytes() / PAGE_SIZE as u64) as usize,
            pointer: match self.arch {
                ArchName::Amd64 | ArchName::Arm64 | ArchName::Sparc64 | ArchName::Alpha | ArchName::Ia64 => {
                    Width::Eight
                }
                ArchName::I386 | ArchName::PowerPc | ArchName::Sh4 => Width::Four,
            },
            layout: self.layout(),
            device_memory: self.io.as_ref().map(|io| DeviceMemory {
                frame_buffer_pages: io.frame_buffer_bytes.value as usize / PAGE_SIZE,
                register_pages: io.register_pages.value as usize,
            }),
            mmu,
            asids: self.mmu.asid_bits.as_ref().map_or(0, |bits| 1 << bits.value),
            blocks,
            broadcasts_flushes: self.mmu.broadcast().is_some(),
            colours: self.colours(),
            writes_through: self.cache[0].write_policy.value == WritePolicy::Through,
            instruction_bytes: match self.arch {
                ArchName::PowerPc | ArchName::Sparc64 | ArchName::Arm64 | ArchName::Alpha => 4,
                // A third of a bundle of 16, in whole ones.
                ArchName::Ia64 => 5,
                ArchName::Sh4 => 2,
                // Some 3.5 bytes, in whole ones.
                ArchName::I386 | ArchName::Amd64 => 4,
            },
            fetches: self.fetches(),
            huge_pages: self.tlb.data.gigabyte_entries.is_some(),
        }
    }

    /// Where addresses are.
    pub(super) fn layout(&self) -> Layout {
        match self.arch {
            ArchName::I386 => x86::I386_LAYOUT,
            ArchName::Amd64 | ArchName::Arm64 => x86::AMD64_LAYOUT,
            ArchName::PowerPc if self.mmu.blocks.is_some() => powerpc::BLOCKS,
            ArchName::PowerPc => powerpc::PAGES,
            ArchName::Sh4 => sh4::LAYOUT,
            ArchName::Sparc64 => sparc64::LAYOUT,
            ArchName::Alpha => alpha::LAYOUT,
            ArchName::Ia64 => ia64::LAYOUT,
        }
    }

    /// Which entry of the TLB a new one takes.
    pub(crate) fn replacement(&self) -> Replace {
        match self.mmu.soft.as_ref().map(|s| s.replace.value) {
            Some(ReplaceName::Counter) => Replace::Counter,
            Some(ReplaceName::Lru) | None => Replace::Lru,
        }
    }

    /// The areas that are mapped by the machine itself.
    pub(crate) fn fixed_blocks(&self) -> Vec<Block> {
        let block = |area: &AreaConfig| Block {
            va: Va(area.va.value),
            pa: Pa(area.pa.value),
            shift: area.len_bytes.value.ilog2() as u8,
            attr: Attr::WRITE | Attr::GLOBAL,
        };
        self.mmu.area.iter().map(block).collect()
    }

    /// Every constant with its source, for the report.
    pub fn constants(&self) -> Vec<Constant> {
        constants_of(self)
    }
}
