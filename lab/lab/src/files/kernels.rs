//! Kernels as configurations: `kernels/*.toml`.
//!
//! A kernel file holds policies (which scheme of ephemeral mappings, which side maps the pages of a pipe) and path
//! lengths. All kernels run the same code; `extends` lets a file say only what differs. Every value is [`Sourced`].

use super::catalogue::{self, AsRead, Kind, Source};
use super::disk::DiskFile;
use super::ephemeral::{EphemeralFile, SchemeName};
use super::frames::{FramesFile, PagingFile, ShadowsFile, StructuresFile, TransferFile};
use super::ispc::IspcFile;
use super::locks::LocksFile;
use super::net::{self, NetFile};
use super::paths::paths;
use super::ranges::{MAX_BUFFER, RANGES};
use super::sched::SchedFile;
use super::tlb::TlbFile;
use super::words::*;
use crate::error::LabError;
use pageferry_ephemeral::{EphemeralConfig, EphemeralPaths};
use pageferry_hal::isa::hash::SCATTER;
use pageferry_hal::{Board, CodePath, Cycles, Mmu, PAGE_SHIFT, Region, Width};
use pageferry_kernel::{KernelConfig, KernelPaths, NullAnswers, PipeConfig, SchedConfig, SocketConfig};
use pageferry_model::MachineConfig;
use pageferry_pmap::{EntryChoice, KernelMapping, Planted, PmapConfig, PmapPaths, RefillConfig, RefillPaths};
use pageferry_sourced::{Constant, Fault, Sourced, constants_of, load_extending, nearest};
use pageferry_vm::{PagingConfig, StructuresConfig, VmConfig, VmPaths};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A kernel file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelFile {
    /// The name in figures.
    pub title: String,
    /// One line on what it is.
    pub summary: String,
    /// True for a kernel that is known to be wrong and kept to show why.
    #[serde(default, rename = "unsafe")]
    pub is_unsafe: bool,
    /// A defect to plant, to see it caught.
    #[serde(default)]
    pub planted_fault: DefectName,
    /// The page-table layer.
    pub pmap: PmapFile,
    /// The refill handler, where it is more than a way from the page tables into the TLB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<RefillFile>,
    /// What is made of the TLB's contents; nothing without this table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbFile>,
    /// Physical memory; without this table as `head` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<FramesFile>,
    /// The kernel's structures; without this table those of [`pageferry_vm::StructureSizes::of`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structures: Option<StructuresFile>,
    /// Chains of shadow objects, in place of amaps and anons; without this table there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadows: Option<ShadowsFile>,
    /// Moving pages into an address space; without this table one by one, and what they replace is freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferFile>,
    /// Ephemeral mappings.
    pub ephemeral: EphemeralFile,
    /// Pipes.
    pub pipe: PipeFile,
    /// Sockets.
    pub socket: SocketFile,
    /// Memory disks.
    pub disk: DiskFile,
    /// The scheduler.
    pub sched: SchedFile,
    /// Locks; compiled in on every machine if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<LocksFile>,
    /// The page daemon and its swap area; without this table memory that is full stays full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paging: Option<PagingFile>,
    /// The Internet protocols; without this table, or with `net = false`, there are none.
    #[serde(default, deserialize_with = "net::table_or_none", skip_serializing_if = "Option::is_none")]
    pub net: Option<NetFile>,
    /// Communication by a common area; without this table there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ispc: Option<IspcFile>,
    /// Path lengths in instructions.
    pub paths: PathsFile,
    /// The bibliography: a short key, and where to find the document.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// The page-table layer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmapFile {
    /// One shootdown for a run of pages, or one for each page.
    pub ranged_shootdown: Sourced<bool>,
    /// More user pages than this are invalidated with all of their address space.
    pub full_flush_pages: Sourced<u64>,
    /// How the kernel's own memory is mapped, where the machine leaves a choice; as `board` if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<Sourced<KernelMappingName>>,
    /// For a mapping that is fragmented: how many superpages of a hundred are split into pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragmented_percent: Option<Sourced<u64>>,
    /// Changing more pages of a space at once gives it another tag, on a uniprocessor whose TLB entries have tags;
    /// never if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_pages: Option<Sourced<u64>>,
    /// What numbers of address spaces are multiplied by for a hash table of translations: an odd number; 897 if this is
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scatter: Option<Sourced<u64>>,
    /// A CPU with nothing to do looks through the hash table for what address spaces have left behind that are no more,
    /// as if this were absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_reclaim: Option<Sourced<bool>>,
    /// TLB entries are tagged by address space and stay over switches, where hardware walks page tables and has tags;
    /// not if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Sourced<bool>>,
    /// All of memory is mapped one-to-one from the kernel's base on, where the machine leaves that to the kernel; not
    /// if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_memory: Option<Sourced<bool>>,
}

/// How the kernel's own memory is mapped. See [`KernelMapping`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelMappingName {
    /// As the machine would have it: by blocks where there are any, else by superpages where there are any.
    Board,
    /// All of it by pages.
    Pte,
    /// Memory by blocks.
    Bat,
    /// That, and the memory of devices.
    BatIo,
    /// That, and the frame buffer of a process by a block of its own.
    BatProcess,
    /// By pages of 2 MB.
    #[serde(rename = "2m")]
    Mega,
    /// By pages of 1 GB.
    #[serde(rename = "1g")]
    Giga,
    /// By superpages, some of which are split into pages.
    Fragmented,
}

impl KernelMappingName {
    /// The word in files.
    fn word(self) -> &'static str {
        match self {
            KernelMappingName::Board => "board",
            KernelMappingName::Pte => "pte",
            KernelMappingName::Bat => "bat",
            KernelMappingName::BatIo => "bat-io",
            KernelMappingName::BatProcess => "bat-process",
            KernelMappingName::Mega => "2m",
            KernelMappingName::Giga => "1g",
            KernelMappingName::Fragmented => "fragmented",
        }
    }

    /// Those that a kernel can have on `board`.
    fn all_on(board: &Board) -> Vec<KernelMappingName> {
        use KernelMappingName::*;
        match (board.layout.region, board.mmu) {
            (Region::Blocks, _) => vec![Board, Pte, Bat, BatIo, BatProcess],
            (Region::Superpages, Mmu::Radix(format)) => {
                let mega = format.superpage_shift() == 21;
                let giga = board.huge_pages && board.frames >= 1 << (format.huge_shift() - PAGE_SHIFT);
                let sizes = [(Mega, mega), (Giga, giga)].into_iter().filter(|(_, has)| *has);
                [Board, Pte].into_iter().chain(sizes.map(|(name, _)| name)).chain([Fragmented]).collect()
            }
            _ => vec![Board],
        }
    }

    fn mapping(self, fragmented_percent: u64) -> KernelMapping {
        match self {
            KernelMappingName::Board => KernelMapping::Board,
            KernelMappingName::Pte => KernelMapping::Pages,
            KernelMappingName::Bat => KernelMapping::Blocks,
            KernelMappingName::BatIo => KernelMapping::BlocksAndDevices,
            KernelMappingName::BatProcess => KernelMapping::BlocksAndProcess,
            KernelMappingName::Mega => KernelMapping::Superpages,
            KernelMappingName::Giga => KernelMapping::Huge,
            KernelMappingName::Fragmented => {
                KernelMapping::Fragmented { percent: fragmented_percent.min(100) as u8 }
            }
        }
    }
}

/// The refill handler. See [`RefillConfig`]; the path of a handler that knows of nothing but page tables is
/// `paths.pmap.refill`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefillFile {
    /// In a few registers, or in C.
    pub reload: Sourced<ReloadName>,
    /// There is a hash table even where hardware does not demand one.
    pub hash: Sourced<bool>,
    /// Instructions: see [`RefillPaths`].
    pub search: Sourced<u32>,
    /// As the others.
    pub secondary: Sourced<u32>,
    /// As the others.
    pub probe: Sourced<u32>,
    /// As the others.
    pub insert: Sourced<u32>,
    /// As the others.
    pub save: Sourced<u32>,
    /// As the others.
    pub walk: Sourced<u32>,
    /// As the others.
    pub search_c: Sourced<u32>,
    /// As the others.
    pub insert_c: Sourced<u32>,
    /// As the others.
    pub restore: Sourced<u32>,
}

/// Sockets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketFile {
    /// Bytes that a socket buffer takes before its sender sleeps; pipes have their own.
    pub high_water_bytes: Sourced<u64>,
    /// The most that is lent in one mbuf.
    pub loan_bytes: Sourced<u64>,
    /// How the kernel comes by addresses for what is lent.
    pub lent_mapping: Sourced<LentMappingName>,
    /// The most clusters, each of a page.
    pub clusters: Sourced<u64>,
    /// There is a null protocol.
    pub null_protocol: Sourced<bool>,
    /// What it answers with. Absent: memory of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null_answers: Option<Sourced<NullAnswersName>>,
    /// A receive by transfer ends before a page that only its place in the buffer keeps from being taken over. Absent:
    /// it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realigns: Option<Sourced<bool>>,
}

/// Pipes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipeFile {
    /// What a pipe is.
    pub kind: Sourced<PipeKindName>,
    /// For pipes that are sockets: bytes that the socket buffer takes. The rest describes the others.
    pub socket_buffer_bytes: Sourced<u64>,
    /// False: every byte is copied twice, through the kernel buffer.
    pub direct: Sourced<bool>,
    /// Writes of at least this many bytes go direct.
    pub min_direct_bytes: Sourced<u64>,
    /// The kernel buffer.
    pub buffer_bytes: Sourced<u64>,
    /// What the buffer grows to for large writes; the most that one direct transfer carries.
    pub big_buffer_bytes: Sourced<u64>,
    /// Which side maps.
    pub mapping: Sourced<MappingName>,
}

impl PipeFile {
    pub(crate) fn config(&self) -> PipeConfig {
        PipeConfig {
            kind: self.kind.value.into(),
            socket_buffer_bytes: self.socket_buffer_bytes.value as usize,
            direct: self.direct.value,
            min_direct_bytes: self.min_direct_bytes.value as usize,
            buffer_bytes: self.buffer_bytes.value as usize,
            big_buffer_bytes: self.big_buffer_bytes.value as usize,
            mapping: self.mapping.value.into(),
        }
    }
}

paths! {
    /// See [`KernelPaths`].
    KernelPathsFile for KernelPaths {
        syscall, switch, sleep, wakeup, pipe_call, uiomove, pipe_page, export, process, sosend, soreceive, protocol,
        transfer_call, mbuf, cluster, clock,
    }
    /// See [`VmPaths`].
    VmPathsFile for VmPaths { fault, map_entry, map_node, kva_alloc, kva_free, frame, wire, anon, loan, transfer, pass }
    /// See [`PmapPaths`].
    PmapPathsFile for PmapPaths { enter, remove, kenter, shootdown_send, shootdown_handle; refill }
    /// See [`EphemeralPaths`].
    EphemeralPathsFile for EphemeralPaths { alloc_hit, alloc_miss, free, magazine }
}

/// Path lengths in instructions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathsFile {
    /// Processes, threads, pipes.
    pub kernel: KernelPathsFile,
    /// Virtual memory.
    pub vm: VmPathsFile,
    /// Page tables.
    pub pmap: PmapPathsFile,
    /// Ephemeral mappings.
    pub ephemeral: EphemeralPathsFile,
}

/// A kernel under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelChoice {
    /// The short name.
    pub name: String,
    /// Its values.
    pub file: KernelFile,
}

impl KernelChoice {
    /// The kernel called `name`, or in the file `name`.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be used.
    pub fn find(name: &str) -> Result<KernelChoice, LabError> {
        static AS_READ: AsRead<KernelChoice> = AsRead::nothing();
        AS_READ.find(Kind::Kernel, name, KernelChoice::read)
    }

    fn read(source: Source) -> Result<KernelChoice, LabError> {
        let mut file: KernelFile = catalogue::extending(Kind::Kernel, &source.file, |lookup| {
            load_extending(&source.file, &source.text, "kernel", lookup, &RANGES, &[], &KernelFile::validate)
        })?;
        file.title = catalogue::title_of(Kind::Kernel, &source, file.title);
        Ok(KernelChoice { name: source.name, file })
    }

    /// Every constant with its source.
    pub fn constants(&self) -> Vec<Constant> {
        constants_of(&self.file)
    }
}

impl KernelFile {
    /// Refuses what no kernel could be.
    ///
    /// # Errors
    /// The first offending key, and what is expected there.
    pub fn validate(&self) -> Result<(), Fault> {
        RANGES.config(self)?;
        let scheme = self.ephemeral.scheme.value;
        if self.ephemeral.entries.value == 0
            && !matches!(scheme, SchemeName::Direct | SchemeName::Original | SchemeName::Vmem)
        {
            return fault("ephemeral.entries", "0, expected at least 1: a cache of mappings needs an entry");
        }
        let page = pageferry_hal::PAGE_SIZE as u64;
        let (small, big) = (self.pipe.buffer_bytes.value, self.pipe.big_buffer_bytes.value);
        if big < small {
            return fault("pipe.big_buffer_bytes", format!("{big}, expected {small} to {MAX_BUFFER}"));
        }
        for (key, size) in [
            ("pipe.buffer_bytes", &self.pipe.buffer_bytes),
            ("pipe.big_buffer_bytes", &self.pipe.big_buffer_bytes),
            ("socket.loan_bytes", &self.socket.loan_bytes),
        ] {
            if size.value % page != 0 {
                return fault(key, format!("{}, expected whole pages of {page} bytes", size.value));
            }
        }
        if self.paging().is_some_and(|paging| !paging.is_valid()) {
            return fault(
                "paging.free_min_pages",
                "expected daemon_reserve_pages <= kernel_reserve_pages < free_min_pages <= free_target_pages, and \
                 percentages up to 100",
            );
        }
        let heads = self.paging.as_ref().and_then(|paging| paging.heads.as_ref());
        if let Some(heads) = heads.filter(|heads| !heads.block_bytes.value.is_power_of_two()) {
            let problem = format!("{}, expected a power of two", heads.block_bytes.value);
            return fault("paging.heads.block_bytes", problem);
        }
        if let Some(frames) = &self.frames {
            frames.validate()?;
        }
        if let Some(net) = &self.net {
            net.validate()?;
        }
        if let Some(locks) = &self.locks {
            locks.validate()?;
        }
        if let Some(transfer) = &self.transfer {
            transfer.validate(self.locks.as_ref())?;
        }
        if self.mapping() == KernelMappingName::Fragmented && self.pmap.fragmented_percent.is_none() {
            return fault(
                "pmap.mapping",
                "`fragmented` needs pmap.fragmented_percent, how many superpages are split",
            );
        }
        if let Some(scatter) = self.pmap.scatter.as_ref().filter(|scatter| scatter.value % 2 == 0) {
            return fault("pmap.scatter", format!("{}, expected an odd number", scatter.value));
        }
        let reader_maps = self.pipe.mapping.value == MappingName::ReaderPage;
        if !reader_maps && scheme != SchemeName::Original {
            return fault(
                "pipe.mapping",
                "`writer-run` goes with ephemeral.scheme = `original` only; expected `reader-page`",
            );
        }
        self.validate_sources()
    }

    /// What was read somewhere names a document of the bibliography; what is reasoned need not.
    fn validate_sources(&self) -> Result<(), Fault> {
        for Constant { key, source, kind, .. } in constants_of(self) {
            if !kind.cites() {
                continue;
            }
            let cited = source.split([',', ':']).next().unwrap_or("").trim();
            if !self.sources.contains_key(cited) {
                let suggestion = nearest(cited, self.sources.keys().map(String::as_str)).map(str::to_owned);
                return Err(Fault {
                    key,
                    problem: format!("source `{cited}` is not in [sources]"),
                    suggestion,
                });
            }
        }
        Ok(())
    }

    /// Refuses a machine that cannot map this kernel's memory as it wants, and a clock that leaves `machine` no time
    /// for anything else.
    ///
    /// # Errors
    /// What the machine can; how often it would be interrupted, and what that costs.
    pub(crate) fn fits(&self, machine: &MachineConfig) -> Result<(), String> {
        let mapping = self.mapping();
        let all = KernelMappingName::all_on(&machine.board());
        if !all.contains(&mapping) {
            let can: Vec<_> = all.iter().map(|name| format!("`{}`", name.word())).collect();
            return Err(format!(
                "pmap.mapping: `{}`, but {} maps a kernel's memory by {} only",
                mapping.word(),
                machine.name,
                can.join(", ")
            ));
        }
        if self.pmap.tags.as_ref().is_some_and(|tags| tags.value) && machine.board().asids == 0 {
            return Err(format!("pmap.tags: `true`, but the TLB of {} has no tags", machine.name));
        }
        let hz = self.sched.hz.value;
        let tick = machine.cpu.clock_mhz.value * 1_000_000 / hz;
        let handler = u64::from(self.paths.kernel.clock.value) * machine.cpu.cpi_milli.value / 1000;
        let slowed = handler * machine.cpu.smt_slowdown_milli.value / 1000;
        let cost = machine.ipi.entry_cycles.value + machine.ipi.exit_cycles.value + slowed;
        // At least half of the time, and enough for a call of the kernel, is left for the rest.
        if tick >= 2 * cost + 1000 {
            return Ok(());
        }
        Err(format!(
            "sched.hz: {hz} clock interrupts a second are one every {tick} cycles, and taking one costs {cost}; \
             expected every {} cycles at the most",
            2 * cost + 1000
        ))
    }

    /// The configuration that this file describes on `machine`, whose kernel structures take `arena_bytes`.
    pub fn config(&self, machine: &MachineConfig, arena_bytes: usize) -> KernelConfig {
        KernelConfig {
            pmap: PmapConfig {
                arena_bytes,
                image_bytes: 0,
                paths: self.paths.pmap.lengths(),
                ranged_shootdown: self.pmap.ranged_shootdown.value,
                full_flush_pages: self.pmap.full_flush_pages.value as usize,
                refill: self.tlb.iter().fold(self.refill_config(), |refill, tlb| tlb.beside(refill)),
                mapping: self.mapping().mapping(self.pmap.fragmented_percent.as_ref().map_or(0, |p| p.value)),
                low_memory: self.pmap.low_memory.as_ref().is_some_and(|low| low.value),
                tags: self.pmap.tags.as_ref().is_some_and(|tags| tags.value),
                renew_pages: self.pmap.renew_pages.as_ref().map(|pages| pages.value as usize),
                scatter: self.pmap.scatter.as_ref().map_or(SCATTER, |scatter| scatter.value as u32),
                idle_reclaim: self.pmap.idle_reclaim.as_ref().is_none_or(|reclaim| reclaim.value),
                first_number: 1,
                // As communication wants it, when the kernel boots.
                area: None,
                choice: self
                    .ispc
                    .as_ref()
                    .map_or(EntryChoice::Hardware, |ispc| ispc.choice(&machine.board())),
                pv_bytes: self.structures.as_ref().map(|its| its.pv_bytes(machine.board().pointer)),
                defect: Planted::NONE,
            },
            vm: VmConfig {
                paths: self.paths.vm.lengths(),
                paging: self.paging(),
                objects: 0,
                lists: FramesFile::lists(self.frames.as_ref()),
                zero_fill_pages: TlbFile::zero_fill_pages(self.tlb.as_ref(), &machine.board()),
                anonymous: ShadowsFile::anonymous(self.shadows.as_ref()),
                transfer: TransferFile::config(self.transfer.as_ref()),
                structures: self.structures(machine.board().pointer),
                loan_locking: LocksFile::loans(self.locks.as_ref()),
            },
            ephemeral: EphemeralConfig {
                scheme: self.ephemeral.scheme_on(&machine.board()),
                honour_private: self.ephemeral.honour_private.value,
                flush: self.ephemeral.flush(),
                paths: self.paths.ephemeral.lengths(),
            },
            pipe: self.pipe.config(),
            socket: SocketConfig {
                high_water_bytes: self.socket.high_water_bytes.value as usize,
                loan_bytes: self.socket.loan_bytes.value as usize,
                lent_mapping: self.socket.lent_mapping.value.into(),
                clusters: self.socket.clusters.value as usize,
                null_protocol: self.socket.null_protocol.value,
                null_answers: self
                    .socket
                    .null_answers
                    .as_ref()
                    .map_or(NullAnswers::Memory, |answers| answers.value.into()),
                realigns: self.socket.realigns.as_ref().is_some_and(|realigns| realigns.value),
            },
            disk: self.disk.config(machine.cpu.clock_mhz.value),
            // Only where there is a network: see `NetFile::config`.
            net: None,
            ispc: self.ispc.as_ref().map(IspcFile::config),
            // Only where a run is not to be like another.
            skew_bytes: 0,
            // Only where a workload has more than usual.
            files: 0,
            sched: SchedConfig {
                forward: self.sched.forward_wakeup.value.into(),
                quantum_cycles: Cycles(self.sched.quantum_ms.value * machine.cpu.clock_mhz.value * 1000),
                tick_cycles: Cycles(machine.cpu.clock_mhz.value * 1_000_000 / self.sched.hz.value),
                timer_accesses: self.sched.timer_accesses.as_ref().map_or(0, |n| n.value),
                stack: self.sched.stack(),
                by_tlb: self.tlb.as_ref().and_then(TlbFile::by_tlb),
            },
            locks: self.locks.as_ref().map(LocksFile::costs).unwrap_or_default(),
            measures_at_boot: false,
            paths: self.paths.kernel.lengths(),
            defect: self.planted_fault.into(),
        }
    }

    fn refill_config(&self) -> RefillConfig {
        let direct = CodePath::of(self.paths.pmap.refill.value);
        let choose = self.ispc.as_ref().map_or(CodePath::of(0), |ispc| CodePath::of(ispc.paths.choose.value));
        let paths = RefillPaths { direct, choose, ..RefillConfig::NONE.paths };
        let none = RefillConfig { paths, ..RefillConfig::NONE };
        let Some(file) = &self.refill else { return none };
        let path = |of: &Sourced<u32>| CodePath::of(of.value);
        RefillConfig {
            reload: file.reload.value.into(),
            hash: file.hash.value,
            paths: RefillPaths {
                direct,
                search: path(&file.search),
                secondary: path(&file.secondary),
                probe: path(&file.probe),
                insert: path(&file.insert),
                save: path(&file.save),
                walk: path(&file.walk),
                search_c: path(&file.search_c),
                insert_c: path(&file.insert_c),
                restore: path(&file.restore),
                choose,
            },
            ..none
        }
    }

    fn mapping(&self) -> KernelMappingName {
        self.pmap.mapping.as_ref().map_or(KernelMappingName::Board, |mapping| mapping.value)
    }

    /// The page daemon and its swap area, if this kernel has them.
    pub fn paging(&self) -> Option<PagingConfig> {
        self.paging.as_ref().map(PagingFile::config)
    }

    /// Its structures, if it says what they are.
    pub fn structures(&self, pointer: Width) -> Option<StructuresConfig> {
        self.structures.as_ref().map(|its| its.config(pointer))
    }
}

fn fault<T>(key: &str, problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { key: key.to_owned(), problem: problem.into(), suggestion: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::words::RuleName;
    use pageferry_ephemeral::Scheme;

    fn xeon() -> MachineConfig {
        crate::files::machines::MachineChoice::find("xeon-up").expect("embedded").config
    }

    fn load(text: &str) -> Result<KernelFile, pageferry_sourced::ConfigError> {
        let lookup = |base: &str| catalogue::embedded(Kind::Kernel, base).map(|s| s.text);
        load_extending("test.toml", text, "kernel", &lookup, &RANGES, &[], &KernelFile::validate)
    }

    #[test]
    fn every_kernel_file_is_a_kernel_and_only_one_is_unsafe() {
        let unsafe_ones: Vec<_> = catalogue::names(Kind::Kernel)
            .into_iter()
            .map(|name| KernelChoice::find(name).unwrap_or_else(|e| panic!("{e}")))
            .filter(|kernel| kernel.file.is_unsafe)
            .map(|kernel| (kernel.name, kernel.file.ephemeral.accessed_rule.value))
            .collect();
        assert_eq!(unsafe_ones, [("sf_buf-as-printed".to_owned(), RuleName::AsPrinted)]);
    }

    #[test]
    fn native_is_what_the_machine_offers() {
        let kernel = KernelChoice::find("sf_buf").expect("embedded").file;
        let board = |name| MachineConfig::named(name).expect("it is built in").board();
        assert_eq!(
            kernel.ephemeral.scheme_on(&board("xeon-up")),
            Scheme::Cache { entries: 65536, rule: pageferry_ephemeral::AccessedRule::Safe }
        );
        for direct in ["opteron-mp", "alpha-21264", "itanium2"] {
            assert_eq!(kernel.ephemeral.scheme_on(&board(direct)), Scheme::Direct);
        }
        for coloured in ["sh7751r", "ultrasparc-iie"] {
            assert_eq!(kernel.ephemeral.scheme_on(&board(coloured)), Scheme::Hybrid { entries: 1024 / 4 });
        }
        let shared = KernelChoice::find("sf_buf-shared").expect("embedded").file;
        assert!(!shared.config(&xeon(), 0).ephemeral.honour_private);
        let original = KernelChoice::find("original").expect("embedded").file;
        assert_eq!(original.ephemeral.scheme_on(&board("opteron-mp")), Scheme::Original);
        assert_eq!(original.config(&xeon(), 0).pipe.mapping, pageferry_kernel::PipeMapping::WriterRun);
    }

    #[test]
    fn a_kernel_may_choose_another_policy_of_flushing() {
        let original = KernelChoice::find("original").expect("embedded").file;
        assert_eq!(original.config(&xeon(), 0).ephemeral.flush, pageferry_ephemeral::FlushPolicy::default());
        let own = |text: &str| {
            let text = format!("extends = \"original\"\n[ephemeral]\n{text}");
            load(&text).map(|file| file.config(&xeon(), 0).ephemeral)
        };
        let value = |key: &str, value: &str| {
            format!("{key} = {{ value = {value}, kind = \"assumed\", source = \"x\" }}\n")
        };
        let config = own(&(value("flush_at", "\"unmap\"") + &value("flush_by", "\"range\""))).expect("good");
        let (at, by) = (pageferry_ephemeral::FlushAt::Unmap, pageferry_ephemeral::FlushBy::Range);
        assert_eq!(config.flush, pageferry_ephemeral::FlushPolicy { at, by });
        let config = own(&value("addresses", "\"free-list\"")).expect("good");
        assert_eq!(config.scheme, Scheme::FreeList { entries: 6656 });
        let e = own(&value("list_entries", "0")).expect_err("none");
        assert_eq!(e.key, "ephemeral.list_entries");
        let e = own(&value("flush_at", "\"never\"")).expect_err("no such policy");
        assert!(e.to_string().contains("never"), "{e}");
    }

    #[test]
    fn kernels_differ_in_policies_only() {
        let original = KernelChoice::find("original").expect("embedded").file;
        // UVM and BSD VM, Linux, AnT and ART-Linux are other systems: their ways from process to process are
        // their own.
        let of_its_own =
            |name: &&str| ["uvm", "bsd-vm", "linux", "a"].iter().any(|own| name.starts_with(own));
        for name in catalogue::names(Kind::Kernel).into_iter().filter(|name| !of_its_own(name)) {
            let other = KernelChoice::find(name).expect("embedded").file;
            let lengths = |k: &KernelFile| {
                let c = k.config(&xeon(), 0);
                (c.paths, c.vm.paths, c.pmap.paths, c.ephemeral.paths)
            };
            assert_eq!(lengths(&other), lengths(&original), "{name}");
        }
    }

    #[test]
    fn a_cache_of_zero_entries_is_refused_with_its_place() {
        let e = load("extends = \"sf_buf\"\n[ephemeral]\nentries = { value = 0, source = \"x\", kind = \"assumed\" }\n")
            .expect_err("no entries");
        assert_eq!((e.line, e.key.as_str()), (3, "ephemeral.entries"));
        assert!(e.problem.contains("expected at least 1"), "{e}");
    }

    #[test]
    fn a_kernel_is_mapped_only_as_its_machine_can() {
        let fits = |machine: &str, kernel: &str, mapping: &str| {
            let machine = crate::files::machines::MachineChoice::find(machine).expect("embedded").config;
            let mut file = KernelChoice::find(kernel).expect("embedded").file;
            let word = toml::Value::String(mapping.into());
            file.pmap.mapping.as_mut().expect("said").value = word.try_into().expect("a word");
            file.fits(&machine)
        };
        for (machine, can) in [
            ("today", &["board", "pte", "2m", "1g", "fragmented"][..]),
            ("opteron-mp", &["board", "pte", "2m", "fragmented"]),
            ("xeon-mp", &["board", "pte", "fragmented"]),
            ("ppc603", &["board", "pte", "bat", "bat-io", "bat-process"]),
            ("mini-soft", &["board"]),
        ] {
            for mapping in ["board", "pte", "bat", "bat-io", "bat-process", "2m", "1g", "fragmented"] {
                let fits = fits(machine, "sf_buf", mapping);
                assert_eq!(fits.is_ok(), can.contains(&mapping), "{machine}, {mapping}: {fits:?}");
                let Err(problem) = fits else { continue };
                let named = can.iter().all(|word| problem.contains(&format!("`{word}`")));
                assert!(named && problem.contains(machine) && problem.contains(mapping), "{problem}");
            }
        }
        let text = "extends = \"sf_buf\"\n\
                    [pmap]\n\
                    fragmented_percent = { value = 101, source = \"x\", kind = \"assumed\" }\n";
        assert_eq!(load(text).expect_err("more than all").key, "pmap.fragmented_percent");
    }

    #[test]
    fn unknown_keys_and_sources_get_the_nearest() {
        let e = load("extends = \"sf_buf\"\n[ephemeral]\nentrys = 3\n").expect_err("no such key");
        assert_eq!(e.suggestion.as_deref(), Some("entries"));
        let e = load(
            "extends = \"sf_buf\"\n\
                      [ephemeral]\n\
                      entries = { value = 1, source = \"papr, 3\", kind = \"paper\" }\n",
        )
        .expect_err("no such source");
        assert_eq!(e.suggestion.as_deref(), Some("paper"));
    }

    #[test]
    fn a_kernel_may_have_no_protocols_where_its_base_has_some() {
        assert!(KernelChoice::find("sf_buf").expect("embedded").file.net.is_some());
        assert!(load("extends = \"sf_buf\"\nnet = false\n").expect("a kernel").net.is_none());
        let e = load("extends = \"sf_buf\"\nnet = true\n").expect_err("no table");
        assert!(e.line == 2 && e.key == "net" && e.problem.contains("`false`"), "{e}");
        let e = load("extends = \"sf_buf\"\n[net]\ndelayed_ack_msec = 3\n").expect_err("no such key");
        assert_eq!((e.line, e.suggestion.as_deref()), (3, Some("delayed_ack_ms")));
        let e = load("extends = \"sf_buf\"\n[net.paths]\ntcp_output = -1\n").expect_err("no length");
        assert_eq!((e.line, e.key.as_str()), (3, "net.paths.tcp_output"));
        let e = load("extends = \"sf_buf\"\n[net]\nmax_rto_ms = 229\n").expect_err("less than the least");
        assert_eq!((e.line, e.key.as_str()), (3, "net.max_rto_ms"));
    }

    #[test]
    fn a_run_mapped_by_the_writer_needs_the_original_scheme() {
        let e = load(
            "extends = \"sf_buf\"\n\
                      [pipe]\n\
                      mapping = { value = \"writer-run\", source = \"x\", kind = \"assumed\" }\n",
        )
        .expect_err("does not go together");
        assert_eq!(e.key, "pipe.mapping");
    }
}
