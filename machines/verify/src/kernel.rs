//! The board of amd64 and the kernel that is booted on it: direct map, pipes that hand over wired pages. Path lengths
//! are zero, because on metal the instructions themselves take the time.

use crate::programs::Experiment;
use crate::selection::{SchemeName, Selection};
use pageferry_ephemeral::{EphemeralConfig, EphemeralPaths, FlushPolicy};
use pageferry_hal::isa::x86::{AMD64, AMD64_LAYOUT};
use pageferry_hal::{Board, CodePath, Cycles, LockCosts, Mmu, PAGE_SIZE, Width};
use pageferry_kernel::{
    DiskConfig, KernelConfig, KernelPaths, LentMapping, NullAnswers, PipeConfig, PipeKind, PipeMapping,
    SchedConfig, SocketConfig,
};
use pageferry_pmap::{PmapConfig, PmapPaths};
use pageferry_vm::{Anonymous, FreeLists, FreedTo, LoanLocking, TransferConfig, VmConfig, VmPaths};

const NONE: CodePath = CodePath::of(0);

/// A board of amd64 with this many CPUs and frames. Its TLBs could tell address spaces apart (PCID), but are not told
/// to.
pub const fn board(cpus: usize, frames: usize) -> Board {
    Board {
        cpus,
        frames,
        pointer: Width::Eight,
        layout: AMD64_LAYOUT,
        device_memory: None,
        mmu: Mmu::Radix(AMD64),
        asids: 0,
        blocks: None,
        broadcasts_flushes: false,
        colours: 1,
        writes_through: false,
        // Some 3.5 bytes, in whole ones.
        instruction_bytes: 4,
        fetches: false,
        // Most processors have them; this kernel asks for none.
        huge_pages: false,
    }
}

/// Bytes of kernel memory for the image and its heap, in superpages: a structure's Rust value takes about what its
/// modelled size says.
pub fn image_bytes(frames: usize) -> usize {
    (VmConfig::arena_bytes(board(1, frames)) + (16 << 20)).next_multiple_of(512 * PAGE_SIZE)
}

/// Bytes of kernel memory: for the image and its heap, and behind them for the modelled addresses of structures. Most
/// of these are numbers that nobody reads; but mbufs hold bytes.
pub fn arena_bytes(frames: usize) -> usize {
    // A quarter of those of structures is for reverse mappings (`pmap`).
    let structure_bytes = VmConfig::arena_bytes(board(1, frames)) / 2 * 3 + (6 << 20);
    image_bytes(frames) + structure_bytes.next_multiple_of(512 * PAGE_SIZE)
}

/// The configuration on a board with so many frames.
pub fn config(frames: usize, selection: &Selection) -> KernelConfig {
    let is_conducted = selection.experiment.is_conducted();
    KernelConfig {
        skew_bytes: 0,
        pmap: PmapConfig {
            defect: selection.pmap_defect,
            image_bytes: image_bytes(frames),
            ..PmapConfig::new(arena_bytes(frames), PmapPaths::all(NONE))
        },
        vm: VmConfig {
            structures: None,
            loan_locking: LoanLocking::OneStep,
            paths: VmPaths::all(NONE),
            paging: None,
            objects: 0,
            lists: FreeLists::one(FreedTo::Head),
            zero_fill_pages: 1,
            anonymous: Anonymous::Amaps,
            transfer: TransferConfig::default(),
        },
        ephemeral: EphemeralConfig {
            scheme: selection.scheme.scheme(),
            honour_private: true,
            flush: FlushPolicy::default(),
            paths: EphemeralPaths::all(NONE),
        },
        pipe: PipeConfig {
            kind: match (selection.pipes, selection.experiment) {
                (Some(kind), _) => kind,
                // Pages are lent and transferred through sockets.
                (None, Experiment::Loan | Experiment::Mixed) => PipeKind::Socket,
                (None, _) => PipeKind::Fifo,
            },
            socket_buffer_bytes: 16 * PAGE_SIZE,
            direct: true,
            min_direct_bytes: 2 * PAGE_SIZE,
            buffer_bytes: 4 * PAGE_SIZE,
            big_buffer_bytes: 16 * PAGE_SIZE,
            mapping: match selection.scheme {
                // As the kernel had it before there were ephemeral mappings.
                SchemeName::Original => PipeMapping::WriterRun,
                SchemeName::Direct | SchemeName::Cache => PipeMapping::ReaderPage,
            },
        },
        socket: SocketConfig {
            high_water_bytes: 4 * PAGE_SIZE,
            loan_bytes: 16 * PAGE_SIZE,
            lent_mapping: LentMapping::Run,
            clusters: 1024,
            null_protocol: true,
            null_answers: NullAnswers::Memory,
            realigns: false,
        },
        net: None,
        disk: DiskConfig::default(),
        ispc: None,
        files: 0,
        sched: SchedConfig {
            // In a run that is conducted the clock is the model's, and may tick as often as one likes: so that it does
            // before these short programs are over.
            quantum_cycles: match (is_conducted, selection.preempts) {
                (true, _) => Cycles(60_000),
                (false, true) => SchedConfig::default().quantum_cycles,
                (false, false) => Cycles(1 << 60),
            },
            tick_cycles: if is_conducted { Cycles(20_000) } else { SchedConfig::default().tick_cycles },
            ..SchedConfig::default()
        },
        locks: LockCosts::default(),
        measures_at_boot: false,
        paths: KernelPaths::all(NONE),
        defect: selection.defect,
    }
}
