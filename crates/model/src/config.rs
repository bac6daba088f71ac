//! A machine as its file describes it: `machines/*.toml`, of this crate ([`crate::machines`]) or of yours.
//!
//! Every number is [`Sourced`]; in a file of your own it may also be plain, without a source. Times have their unit in the key:
//! `_us` and `_ns` are time, `_cycles` are cycles of the CPU's clock. What happens outside of the CPU takes its time whatever that
//! clock is: the cycles of `[memory]`, and of the delivery of interrupts, are counted by `memory.clock_mhz`. A file may name
//! another in `extends`: its tables are then laid upon those of the other key by key, so that the members of a family
//! share their constants. [`MachineConfig::validate`] refuses what no machine could be; the rest of the model relies on
//! it and does not ask again.

mod fetch;

pub use fetch::{InstructionCacheConfig, InstructionTlbConfig};

use std::collections::BTreeMap;

use pageferry_hal::isa::{powerpc, sh4, x86};
use pageferry_hal::{Attr, Block, BlockRegisters, Board, CpuSet, Layout, Mmu, PAGE_SIZE, Pa, Va, Width};
use serde::{Deserialize, Serialize};

use crate::mmu::tlb::Replace;
use crate::range::{Ranges, range};
use crate::sourced::{self, ConfigError, Constant, Fault, SourceKind, Sourced};

/// A whole number with its source.
pub type Number = Sourced<u64>;

/// The instruction set, as far as it shows: where addresses are, and what entries look like that hardware reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArchName {
    /// 32-bit x86: two-level page tables.
    I386,
    /// 64-bit x86: four-level page tables, and room for a direct map.
    Amd64,
    /// 32-bit PowerPC: hashed page tables, block registers.
    PowerPc,
    /// SH-4: areas of fixed kind.
    Sh4,
}

/// When a cache passes a store on to the next level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WritePolicy {
    /// At once; a store that misses takes no room in this cache.
    Through,
    /// When the line is evicted; a store that misses first fetches the line.
    Back,
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
    /// The cache for instructions; without one, their time is in `cpi_milli`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icache: Option<InstructionCacheConfig>,
    /// Memory, and what packages do to each other's caches.
    pub memory: MemoryConfig,
    /// The disk, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskConfig>,
    /// The sound device, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<AudioConfig>,
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
    /// Factor, in thousandths, on the time of instructions while a sibling is busy; 1000 without SMT.
    pub smt_slowdown_milli: Number,
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
    /// What that takes longer when the TLB holds the page.
    pub invalidate_live_cycles: Number,
    /// Invalidation of all entries of the own TLB, global ones too.
    pub invalidate_all_cycles: Number,
    /// Loading the root of the page tables (`CR3`); drops the entries that are not global.
    pub load_root_cycles: Number,
    /// The instructions that save one thread's registers and load another's.
    pub context_switch_cycles: Number,
    /// From the arrival of an interrupt at a halted CPU to its leaving the halt.
    pub halt_wake_cycles: Number,
}

/// What translates addresses: exactly one of `walker` and `soft`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmuConfig {
    /// Hardware that looks for what is not in the TLB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walker: Option<WalkerName>,
    /// A TLB that the kernel loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<SoftConfig>,
    /// What the kernel's refill handler costs besides its own instructions and accesses; for every machine but those whose
    /// hardware walks page tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<RefillConfig>,
    /// Bits of the tag that tells address spaces apart in the TLB; absent where entries carry none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asid_bits: Option<Number>,
    /// Registers that map blocks before any page is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlocksConfig>,
    /// Areas that are mapped by the machine itself, before any block register.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub area: Vec<AreaConfig>,
}

/// Hardware that looks for translations in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WalkerName {
    /// It walks page tables in levels (i386, amd64).
    Radix,
    /// It looks into a hash table (PowerPC).
    Hash,
}

/// A TLB that the kernel loads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftConfig {
    /// Which entry a load takes.
    pub replace: Sourced<ReplaceName>,
    /// Entries that are set aside from the start, for the kernel to load one by one.
    pub reserved_entries: Number,
}

/// Which entry of the TLB a load by software takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplaceName {
    /// The way that hardware proposes: a free one, or the one used longest ago.
    Lru,
    /// The one that a counter of look-ups names.
    Counter,
}

/// The exception that calls the kernel's refill handler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefillConfig {
    /// From the access to the handler's first instruction.
    pub enter_cycles: Number,
    /// From the handler's last instruction back to the access.
    pub exit_cycles: Number,
    /// One load of the TLB by software; 0 where hardware does that.
    pub tlb_load_cycles: Number,
}

/// Registers that map blocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlocksConfig {
    /// How many.
    pub registers: Number,
    /// The smallest block: a power of two.
    pub least_bytes: Number,
    /// The largest block: a power of two.
    pub most_bytes: Number,
    /// Setting one.
    pub set_cycles: Number,
}

/// An area that is mapped by the machine itself, for the kernel alone. Its size is a power of two, to which both ends are
/// aligned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaConfig {
    /// First address.
    pub va: Number,
    /// Where it leads.
    pub pa: Number,
    /// Its size.
    pub len_bytes: Number,
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
    /// The second level, for 4 KB pages only, where there is one.
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
}

/// A second-level TLB.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecondTlbConfig {
    /// Entries for 4 KB pages.
    pub entries: Number,
    /// Associativity; 0 means fully associative.
    pub ways: Number,
    /// A first-level miss that hits here.
    pub hit_cycles: Number,
}

/// One level of cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// `L1`, `L2` ...
    pub name: String,
    /// Capacity.
    pub size_bytes: Number,
    /// Associativity.
    pub ways: Number,
    /// Bytes in a line; the same at all levels of a machine.
    pub line_bytes: Number,
    /// Load to use, for an access that hits here.
    pub latency_cycles: Number,
    /// One line read by a copy, when it comes from here.
    pub stream_load_cycles: Number,
    /// One line written by a copy, when it is taken in here.
    pub stream_store_cycles: Number,
    /// When stores go on to the next level.
    pub write_policy: Sourced<WritePolicy>,
    /// True for a second level that holds only what the first evicted.
    pub exclusive: Sourced<bool>,
}

/// Memory, and what packages do to each other's caches. Its cycles are those of `clock_mhz`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// Capacity, in 2^20 bytes.
    pub size_mb: Number,
    /// The clock that the cycles of this table are counted by: that of the CPU beside which they were found, so that memory is
    /// as fast beside a faster one. A file that does not say it, nor extends one that does, means the clock of its own CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<Number>,
    /// Load to use, in cycles; this or `latency_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<Number>,
    /// Load to use, in nanoseconds; this or `latency_cycles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Number>,
    /// One line read by a copy.
    pub stream_load_cycles: Number,
    /// One line written by a copy: fetched first, its later write-back is apart.
    pub stream_store_cycles: Number,
    /// One dirty line written back during a copy.
    pub writeback_cycles: Number,
    /// More for a line of a stream, read or written back, that does not follow the one that memory served before it: a row
    /// of the memory chips is closed and another opened. Without it streams do not disturb each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_change_cycles: Option<Number>,
    /// A dependent access to a line that is dirty in another package.
    pub transfer_cycles: Number,
    /// One line moved by a copy when it is dirty in another package.
    pub stream_transfer_cycles: Number,
    /// Making other packages give up a line that is clean here and there, before a store that is waited for.
    pub upgrade_cycles: Number,
    /// The same for one line of a copy.
    pub stream_upgrade_cycles: Number,
}

/// A disk: requests are served one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// Capacity, in 2^20 bytes.
    pub size_mb: Number,
    /// From the start of a request to its first byte: seek and rotation. A request that goes on where the last one ended
    /// pays nothing.
    pub access_us: Number,
    /// Between medium and memory, in 10^6 bytes a second.
    pub bandwidth_mb_s: Number,
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
    /// Reads the machine file called `name`, whose contents are `text`. `base_lookup` gives the contents of the files that
    /// it extends.
    ///
    /// # Errors
    /// When the file or one that it extends is not a machine, with the place of the fault.
    pub fn parse(
        name: &str,
        text: &str,
        base_lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<MachineConfig, ConfigError> {
        let check = |machine: &MachineConfig| machine.validate();
        let mut machine: MachineConfig =
            sourced::load_extending(name, text, "machine", base_lookup, &RANGES, &check)?;
        let own = || Sourced { source: "that of the CPU".into(), ..machine.cpu.clock_mhz.clone() };
        machine.memory.clock_mhz = machine.memory.clock_mhz.take().or_else(|| Some(own()));
        Ok(machine)
    }

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

    /// Cycles of the CPU's clock that something takes which is counted by the clock of memory: the nearest number.
    pub fn outside_cycles(&self, cycles: &Number) -> u64 {
        let cpu_mhz = self.cpu.clock_mhz.value;
        let counted_mhz = self.memory.clock_mhz.as_ref().map_or(cpu_mhz, |clock| clock.value);
        (cycles.value * cpu_mhz + counted_mhz / 2) / counted_mhz
    }

    /// The latency of memory, in whichever unit it is given.
    pub fn memory_latency_cycles(&self) -> u64 {
        match (&self.memory.latency_cycles, &self.memory.latency_ns) {
            (Some(cycles), _) => self.outside_cycles(cycles).max(1),
            (None, Some(ns)) => ((ns.value * self.cpu.clock_mhz.value + 500) / 1000).max(1),
            (None, None) => unreachable!("validate() refuses a machine without memory latency"),
        }
    }

    /// What is on the board.
    pub fn board(&self) -> Board {
        let mmu = match (self.arch, self.mmu.walker) {
            (_, Some(WalkerName::Hash)) => Mmu::Hash,
            (ArchName::Amd64, Some(WalkerName::Radix)) => Mmu::Radix(x86::AMD64),
            (_, Some(WalkerName::Radix)) => Mmu::Radix(x86::I386),
            (_, None) => Mmu::Soft { entries: self.tlb.data.entries.value as usize },
        };
        let blocks = self.mmu.blocks.as_ref().map(|b| BlockRegisters {
            count: b.registers.value as usize,
            least_shift: b.least_bytes.value.ilog2() as u8,
            most_shift: b.most_bytes.value.ilog2() as u8,
        });
        Board {
            cpus: self.cpus(),
            frames: (self.memory_bytes() / PAGE_SIZE as u64) as usize,
            pointer: if self.arch == ArchName::Amd64 { Width::Eight } else { Width::Four },
            layout: self.layout(),
            mmu,
            asids: self.mmu.asid_bits.as_ref().map_or(0, |bits| 1 << bits.value),
            blocks,
            colours: 1,
            instruction_bytes: match self.arch {
                ArchName::PowerPc => 4,
                ArchName::Sh4 => 2,
                // Some 3.5 bytes, in whole ones.
                ArchName::I386 | ArchName::Amd64 => 4,
            },
            fetches: self.fetches(),
        }
    }

    fn layout(&self) -> Layout {
        match self.arch {
            ArchName::I386 => x86::I386_LAYOUT,
            ArchName::Amd64 => x86::AMD64_LAYOUT,
            ArchName::PowerPc if self.mmu.blocks.is_some() => powerpc::BLOCKS,
            ArchName::PowerPc => powerpc::PAGES,
            ArchName::Sh4 => sh4::LAYOUT,
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
        sourced::constants_of(self)
    }

    /// Refuses what no machine could be.
    ///
    /// # Errors
    /// The first offending key, and what is expected there.
    pub fn validate(&self) -> Result<(), Fault> {
        if self.name.is_empty() || self.name.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
            return fault("name", "expected letters, digits and dashes");
        }
        RANGES.config(self)?;
        self.validate_cpu()?;
        self.validate_tlb()?;
        self.validate_caches()?;
        self.validate_fetch()?;
        self.validate_memory()?;
        self.validate_mmu()?;
        self.validate_sources(&self.constants())
    }

    fn validate_cpu(&self) -> Result<(), Fault> {
        if self.cpus() > CpuSet::MAX_CPUS {
            let cpus = self.cpus();
            let most = CpuSet::MAX_CPUS;
            return fault("cpu.threads_per_package", format!("{cpus} CPUs in all, expected at most {most}"));
        }
        Ok(())
    }

    fn validate_tlb(&self) -> Result<(), Fault> {
        let data = &self.tlb.data;
        tlb_geometry("tlb.data", &data.entries, &data.ways)?;
        match &self.tlb.second {
            Some(second) => tlb_geometry("tlb.second", &second.entries, &second.ways),
            None => Ok(()),
        }
    }

    fn validate_mmu(&self) -> Result<(), Fault> {
        let mmu = &self.mmu;
        match (mmu.walker, &mmu.soft) {
            (None, None) => {
                return fault("mmu", "nothing fills the TLB, expected `walker` or a table [mmu.soft]");
            }
            (Some(_), Some(_)) => {
                return fault(
                    "mmu.soft",
                    "the TLB is filled twice, expected only one of `walker` and [mmu.soft]",
                );
            }
            _ => {}
        }
        let walks = mmu.walker == Some(WalkerName::Radix);
        let fits = match self.arch {
            ArchName::I386 | ArchName::Amd64 => walks,
            ArchName::PowerPc => !walks,
            ArchName::Sh4 => mmu.soft.is_some(),
        };
        if !fits {
            let (key, arch) = (if mmu.soft.is_some() { "mmu.soft" } else { "mmu.walker" }, self.arch);
            return fault(key, format!("expected something else: no {arch:?} fills its TLB so"));
        }
        match (&mmu.refill, walks) {
            (Some(_), true) => return fault("mmu.refill", "expected none: hardware walks page tables"),
            (None, false) => return fault("mmu", "expected a table [mmu.refill]: the kernel fills the TLB"),
            _ => {}
        }
        if let (Some(bits), true) = (&mmu.asid_bits, walks) {
            let problem = "expected none: page tables are walked without tags here";
            return fault("mmu.asid_bits", format!("{}, {problem}", bits.value));
        }
        if mmu.walker == Some(WalkerName::Hash) && mmu.asid_bits.is_none() {
            return fault("mmu", "expected asid_bits: a hash table holds all address spaces");
        }
        if let Some(soft) = &mmu.soft {
            let (entries, reserved) = (&self.tlb.data.entries, &soft.reserved_entries);
            if reserved.value >= entries.value {
                let (entries, reserved) = (entries.value, reserved.value);
                return fault(
                    "mmu.soft.reserved_entries",
                    format!("{reserved}, expected fewer than the {entries} entries that there are"),
                );
            }
            // A copy needs both of its translations at once.
            let room = match self.tlb.data.ways.value {
                0 => entries.value - reserved.value,
                ways => ways,
            };
            if room < 2 {
                return fault(
                    "tlb.data.entries",
                    "expected room for two translations of any two pages: a copy needs both at once",
                );
            }
            if reserved.value > 0 && self.tlb.data.ways.value != 0 {
                return fault("mmu.soft.reserved_entries", "expected 0: the TLB is not fully associative");
            }
            if soft.replace.value == ReplaceName::Counter && self.tlb.data.ways.value != 0 {
                return fault(
                    "mmu.soft.replace",
                    "expected \"lru\": a counter names an entry of the whole TLB",
                );
            }
        }
        if self.tlb.second.is_some() && !walks {
            return fault("tlb.second", "expected none: only page tables are walked behind two levels");
        }
        if let Some(blocks) = &mmu.blocks {
            power_of_two("mmu.blocks.least_bytes", &blocks.least_bytes)?;
            power_of_two("mmu.blocks.most_bytes", &blocks.most_bytes)?;
            let (least, most) = (blocks.least_bytes.value, blocks.most_bytes.value);
            if most < least {
                return fault("mmu.blocks.most_bytes", format!("{most}, expected {least} to {}", 1u64 << 32));
            }
            let layout = self.layout();
            if layout.region != pageferry_hal::Region::Blocks {
                return fault("mmu.blocks", format!("expected none: {:?} has no such registers", self.arch));
            }
            let room = layout.paged_base.map_or(u64::MAX, |paged| paged.0 - layout.kernel_base.0);
            if self.memory_bytes().next_multiple_of(least) > room {
                return fault(
                    "mmu.blocks.least_bytes",
                    format!(
                        "blocks of {least:#x} bytes over all of memory, expected no more than {room:#x} bytes: pages begin there"
                    ),
                );
            }
        }
        self.validate_areas()
    }

    fn validate_areas(&self) -> Result<(), Fault> {
        let areas = &self.mmu.area;
        for (i, area) in areas.iter().enumerate() {
            let key = |field: &str| format!("mmu.area[{i}].{field}");
            power_of_two(&key("len_bytes"), &area.len_bytes)?;
            for (field, address) in [("va", &area.va), ("pa", &area.pa)] {
                if !address.value.is_multiple_of(area.len_bytes.value) {
                    let (value, len) = (address.value, area.len_bytes.value);
                    return fault(
                        key(field),
                        format!("{value:#x}, expected a multiple of its size, {len:#x}"),
                    );
                }
            }
        }
        let blocks = self.fixed_blocks();
        for (i, block) in blocks.iter().enumerate() {
            if let Some(other) = blocks[..i].iter().position(|b| b.overlaps(block)) {
                return fault(format!("mmu.area[{i}].va"), format!("it overlaps mmu.area[{other}]"));
            }
        }
        let layout = self.layout();
        if layout.region != pageferry_hal::Region::Unmapped {
            return match areas.len() {
                0 => Ok(()),
                _ => fault(
                    "mmu.area",
                    format!("expected none: on {:?} all addresses are translated", self.arch),
                ),
            };
        }
        let paged = layout.paged_base.map_or(0..0, |base| base.0..layout.kernel_end.0);
        for (i, area) in areas.iter().enumerate() {
            let (start, end) = (area.va.value, area.va.value.saturating_add(area.len_bytes.value));
            if start < layout.user_end.0 || (start < paged.end && end > paged.start) {
                let (user, kernel) = (layout.user_end.0, paged.start);
                return fault(
                    format!("mmu.area[{i}].va"),
                    format!(
                        "{start:#x}, expected addresses of no pages: they end below {user:#x}, and begin again at {kernel:#x}"
                    ),
                );
            }
        }
        // From the base on, area by area: each has to go on where the one before it ends.
        let (mut at, end) = (layout.kernel_base, layout.kernel_base + self.memory_bytes() as usize);
        while at < end {
            let here =
                blocks.iter().find(|b| b.contains(at) && b.translate(at).0 == at.0 - layout.kernel_base.0);
            let Some(block) = here else {
                let base = layout.kernel_base.0;
                return fault(
                    "mmu.area",
                    format!(
                        "nothing maps {:#x}, expected areas that map all of memory from {base:#x} on",
                        at.0
                    ),
                );
            };
            at = block.va + block.len_bytes() as usize;
        }
        Ok(())
    }

    fn validate_caches(&self) -> Result<(), Fault> {
        if self.cache.is_empty() || self.cache.len() > 4 {
            return fault("cache", format!("{} levels, expected 1 to 4", self.cache.len()));
        }
        for (i, level) in self.cache.iter().enumerate() {
            let key = |field: &str| format!("cache[{i}].{field}");
            if level.name.is_empty() || self.cache[..i].iter().any(|above| above.name == level.name) {
                return fault(key("name"), "expected a name that no other level has");
            }
            power_of_two(&key("line_bytes"), &level.line_bytes)?;
            if level.line_bytes.value != self.cache[0].line_bytes.value {
                let first = self.cache[0].line_bytes.value;
                return fault(key("line_bytes"), format!("expected {first}, as in the first level"));
            }
            let way_set_bytes = level.ways.value * level.line_bytes.value;
            let sets = level.size_bytes.value / way_set_bytes;
            if sets * way_set_bytes != level.size_bytes.value || !sets.is_power_of_two() {
                return fault(
                    key("size_bytes"),
                    format!("expected ways x line_bytes ({way_set_bytes}) times a power of two"),
                );
            }
            if level.exclusive.value && (i != 1 || self.cache[0].write_policy.value == WritePolicy::Through) {
                return fault(
                    key("exclusive"),
                    "expected false: only the second level, behind a write-back first one, can be exclusive",
                );
            }
            if i > 0
                && level.write_policy.value == WritePolicy::Through
                && self.cache[i - 1].write_policy.value == WritePolicy::Back
            {
                return fault(key("write_policy"), "expected \"back\", as the level above writes back");
            }
            if self.lines_behind(sets, level.line_bytes.value) > MOST_TAGS {
                return fault(key("size_bytes"), "too few sets for this much memory");
            }
        }
        Ok(())
    }

    /// Lines of memory that share one set.
    fn lines_behind(&self, sets: u64, line_bytes: u64) -> u64 {
        self.memory.size_mb.value.saturating_mul(1 << 20) / line_bytes / sets
    }

    fn validate_memory(&self) -> Result<(), Fault> {
        // Without PAE i386 has 32-bit physical addresses; the Opteron has 40 bits.
        let most_mb = match self.arch {
            ArchName::I386 => 4096,
            ArchName::Amd64 => 1 << 20,
            // What the blocks or the area map that lead to memory.
            ArchName::PowerPc | ArchName::Sh4 => 512,
        };
        let size_mb = self.memory.size_mb.value;
        if size_mb > most_mb {
            let arch = self.arch;
            return fault(
                "memory.size_mb",
                format!("{size_mb} MiB, expected 1 to {most_mb}: {arch:?} addresses no more"),
            );
        }
        match (&self.memory.latency_cycles, &self.memory.latency_ns) {
            (Some(_), Some(_)) => {
                return fault("memory.latency_ns", "expected only one of latency_cycles and latency_ns");
            }
            (None, None) => return fault("memory", "expected latency_cycles or latency_ns"),
            _ => {}
        }
        self.validate_clocks()
    }

    /// What is counted by the clock of memory is not too much in cycles of the CPU's.
    fn validate_clocks(&self) -> Result<(), Fault> {
        let Some(clock) = &self.memory.clock_mhz else { return Ok(()) };
        let (m, ipi) = (&self.memory, &self.ipi);
        let counted =
            [&m.stream_load_cycles, &m.stream_store_cycles, &m.writeback_cycles, &m.transfer_cycles]
                .into_iter()
                .chain([&m.stream_transfer_cycles, &m.upgrade_cycles, &m.stream_upgrade_cycles])
                .chain([&ipi.deliver_same_package_cycles, &ipi.deliver_other_package_cycles])
                .chain(m.latency_cycles.iter().chain(&m.row_change_cycles));
        let most = counted.map(|cycles| self.outside_cycles(cycles)).max().unwrap_or(0);
        if most > MAX_COST as u64 {
            let (counted, cpu) = (clock.value, self.cpu.clock_mhz.value);
            let problem = format!(
                "{counted}, expected more: what is counted by it takes up to {most} cycles of a CPU of {cpu} MHz, and may take {MAX_COST}"
            );
            return fault("memory.clock_mhz", problem);
        }
        Ok(())
    }

    /// What is read somewhere names a document of the bibliography; what is reasoned need not.
    fn validate_sources(&self, constants: &[Constant]) -> Result<(), Fault> {
        for Constant { key, source, kind, .. } in constants {
            if matches!(kind, SourceKind::Calibrated | SourceKind::Assumed | SourceKind::Yours) {
                continue;
            }
            let cited = source.split([',', ':']).next().unwrap_or("").trim();
            if !self.sources.contains_key(cited) {
                return Err(Fault {
                    suggestion: sourced::nearest(cited, self.sources.keys().map(String::as_str))
                        .map(str::to_owned),
                    problem: format!("source `{cited}` is not in [sources]"),
                    key: key.clone(),
                });
            }
        }
        Ok(())
    }
}

/// The tags of the model have 29 bits.
const MOST_TAGS: u64 = 1 << 29;

/// The largest cost of one action: costs fit in 32 bits and leave room for sums.
const MAX_COST: i64 = 100_000_000;

/// What the numbers of a machine file may be. What they mean is said at the fields of [`MachineConfig`].
pub const RANGES: Ranges = Ranges(&[
    range("cpu.clock_mhz", 1, 100_000),
    range("cpu.packages", 1, CpuSet::MAX_CPUS as i64),
    range("cpu.threads_per_package", 1, CpuSet::MAX_CPUS as i64),
    range("cpu.cpi_milli", 1, 1_000_000),
    range("cpu.smt_slowdown_milli", 1000, 100_000),
    range("memory.clock_mhz", 1, 100_000),
    range("memory.latency_cycles", 1, MAX_COST),
    range("*_cycles", 0, MAX_COST),
    range("memory.latency_ns", 1, MAX_COST / 100),
    range("memory.size_mb", 1, 1 << 16),
    range("tlb.*.entries", 1, 1 << 16),
    range("tlb.*.ways", 0, 1 << 16),
    range("tlb.data.superpage_entries", 0, 1 << 16),
    range("mmu.asid_bits", 1, 20),
    range("mmu.soft.reserved_entries", 0, 1 << 16),
    range("mmu.blocks.registers", 1, 16),
    range("mmu.blocks.*_bytes", PAGE_SIZE as i64, 1 << 32),
    range("mmu.area.len_bytes", PAGE_SIZE as i64, 1 << 32),
    // Of 32 bits: no machine with wider addresses has areas.
    range("mmu.area.*", 0, (1 << 32) - 1),
    // The model keeps the order of use of a set in one word.
    range("*cache.ways", 1, 16),
    range("*cache.size_bytes", 1, 1 << 30),
    range("*cache.line_bytes", 8, 4096),
    range("disk.size_mb", 1, 1 << 22),
    range("disk.access_us", 0, 10_000_000),
    range("disk.bandwidth_mb_s", 1, 100_000),
    range("audio.bytes_per_s", 1000, 100_000_000_000),
    range("audio.card_pages", 1, 1024),
]);

fn fault<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { key: key.into(), problem: problem.into(), suggestion: None })
}

fn power_of_two(key: &str, number: &Number) -> Result<(), Fault> {
    if number.value.is_power_of_two() {
        return Ok(());
    }
    fault(key, format!("{}, expected a power of two", number.value))
}

fn tlb_geometry(table: &str, entries: &Number, ways: &Number) -> Result<(), Fault> {
    let ways_key = format!("{table}.ways");
    if ways.value == 0 {
        return Ok(());
    }
    if ways.value > entries.value {
        return fault(ways_key, format!("{}, expected 0 to {}", ways.value, entries.value));
    }
    if !entries.value.is_multiple_of(ways.value) || !(entries.value / ways.value).is_power_of_two() {
        let entries = entries.value;
        return fault(
            ways_key,
            format!("{}, expected {entries} entries / ways to be a power of two", ways.value),
        );
    }
    Ok(())
}
