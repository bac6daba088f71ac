//! The kernel that this image boots: pipes that hand over wired pages. Path lengths are zero, because the
//! instructions themselves take the time.

use crate::args::Args;
use pageferry_ephemeral::{EphemeralConfig, EphemeralPaths, FlushPolicy};
use pageferry_hal::{Board, CodePath, PAGE_SIZE};
use pageferry_kernel::{
    DiskConfig, KernelConfig, KernelPaths, LentMapping, PipeConfig, PipeKind, PipeMapping, Planted,
    SchedConfig, SocketConfig,
};
use pageferry_pmap::{PmapConfig, PmapPaths};
use pageferry_vm::{FreedTo, VmConfig, VmPaths};

const NONE: CodePath = CodePath::of(0);

/// Bytes of kernel memory for the image, its heap, and the modelled addresses of structures, in superpages. The last of
/// these decides: a structure's Rust value takes about what its modelled size says, and as much again for the rest.
pub(crate) fn arena_bytes(board: Board) -> usize {
    (2 * VmConfig::arena_bytes(board) + (32 << 20)).next_multiple_of(512 * PAGE_SIZE)
}

/// The configuration, as the command line has it.
pub(crate) fn kernel(arena_bytes: usize, args: &Args) -> KernelConfig {
    KernelConfig {
        skew_bytes: 0,
        pmap: PmapConfig::new(arena_bytes, PmapPaths::all(NONE)),
        vm: VmConfig { paths: VmPaths::all(NONE), paging: None, objects: 0, freed_to: FreedTo::Head },
        ephemeral: EphemeralConfig {
            scheme: args.scheme,
            honour_private: true,
            flush: FlushPolicy::default(),
            paths: EphemeralPaths::all(NONE),
        },
        pipe: PipeConfig {
            kind: PipeKind::Fifo,
            socket_buffer_bytes: 16 * PAGE_SIZE,
            direct: true,
            min_direct_bytes: 2 * PAGE_SIZE,
            buffer_bytes: 4 * PAGE_SIZE,
            big_buffer_bytes: 16 * PAGE_SIZE,
            mapping: PipeMapping::ReaderPage,
        },
        socket: SocketConfig {
            high_water_bytes: 4 * PAGE_SIZE,
            loan_bytes: 16 * PAGE_SIZE,
            lent_mapping: LentMapping::Run,
            clusters: 1024,
            null_protocol: false,
        },
        net: None,
        disk: DiskConfig::default(),
        ispc: None,
        files: 0,
        sched: SchedConfig::default(),
        locks_on_one_cpu: true,
        measures_at_boot: false,
        paths: KernelPaths::all(NONE),
        defect: Planted::NONE,
    }
}
