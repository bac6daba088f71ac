//! A whole kernel, one run of it from boot to the end, and a look at what it leaves behind: frames, sleepers, what the
//! machine's own checks say.

use crate::failure::Failure;
use pageferry_ephemeral::{AccessedRule, EphemeralConfig, EphemeralPaths, FlushPolicy, Scheme};
use pageferry_hal::{CodePath, Cycles, LockCosts, Machine as _};
use pageferry_kernel::*;
use pageferry_model::Model;
use pageferry_model::testing::{choices, small};
use pageferry_pmap::{PmapConfig, PmapPaths, RefillPaths};
use pageferry_vm::{Anonymous, FreeLists, FreedTo, LoanLocking, TransferConfig, VmConfig, VmPaths};
use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

/// Memory of the machines.
pub(crate) const MEMORY_MB: u64 = 64;
/// The kernel's address on the wire.
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PATH: CodePath = CodePath::of(20);

/// A kernel with the protocols, for the machine of this name.
pub(crate) fn kernel(name: &str, m: &Model, defect: Option<NetDefect>, seed: u64) -> KernelConfig {
    let mut pmap = PmapConfig::new(16 << 20, PmapPaths::all(PATH));
    pmap.refill.paths = RefillPaths::all(PATH);
    let mut vm = VmConfig {
        structures: None,
        loan_locking: LoanLocking::OneStep,
        paths: VmPaths::all(PATH),
        paging: None,
        objects: 0,
        lists: FreeLists::one(FreedTo::Head),
        zero_fill_pages: 1,
        anonymous: Anonymous::Amaps,
        transfer: TransferConfig::default(),
    };
    for word in choices(name) {
        let known = vm.choose(word, m.board().pointer) || pmap.choose(word);
        assert!(known, "{name}: no kernel has a choice called {word}");
    }
    let scheme = match m.board().layout.direct_map {
        Some(_) if seed.is_multiple_of(2) => Scheme::Hybrid { entries: 8 },
        Some(_) => Scheme::Direct,
        None => Scheme::Cache { entries: 64, rule: AccessedRule::Safe },
    };
    // Each run finds the bytes of what is lent in another way.
    let lent_mapping = match seed % 3 {
        0 => LentMapping::Run,
        1 => LentMapping::Pages,
        _ => LentMapping::WhileRead,
    };
    // A received buffer's bytes are found where they always are, or by a mapping made for them.
    let receive_mapping = match seed / 3 % 2 {
        0 => ReceiveMapping::Permanent,
        _ => ReceiveMapping::Ephemeral,
    };
    let net = NetConfig {
        address: OURS,
        prefix_bits: 24,
        gateway: None,
        sockets: 1024,
        loopback_mtu_bytes: 16384,
        loopback_packets: 512,
        send_buffer_bytes: 32768,
        receive_buffer_bytes: 65536,
        repack: None,
        receive_mapping,
        datagram_buffer_bytes: 65536,
        checksum_offload: true,
        ms_cycles: Cycles(small(name, MEMORY_MB).cpu.clock_mhz.value * 1000),
        delayed_ack_ms: 100,
        ack_segments: 2,
        segment_unit_bytes: 0,
        initial_window_segments: 4,
        initial_window_bytes: 4380,
        initial_rto_ms: 1000,
        min_rto_ms: 200,
        max_rto_ms: 64_000,
        min_persist_ms: 200,
        max_persist_ms: 60_000,
        retransmissions: if defect.is_none() { 1_000_000 } else { 8 },
        time_wait_ms: 60_000,
        // Soon the numbers wrap.
        initial_sequence: u32::MAX - 70_000,
        defect: defect.into(),
        paths: NetPaths::all(PATH),
    };
    KernelConfig {
        pmap,
        vm,
        ephemeral: EphemeralConfig {
            scheme,
            honour_private: true,
            flush: FlushPolicy::default(),
            paths: EphemeralPaths::all(PATH),
        },
        pipe: PipeConfig {
            kind: PipeKind::Socket,
            socket_buffer_bytes: 65536,
            direct: true,
            min_direct_bytes: 8192,
            buffer_bytes: 16384,
            big_buffer_bytes: 65536,
            mapping: PipeMapping::ReaderPage,
        },
        socket: SocketConfig {
            high_water_bytes: 65536,
            loan_bytes: 65536,
            lent_mapping,
            clusters: 2048,
            null_protocol: false,
            null_answers: NullAnswers::Memory,
            realigns: seed % 2 == 1,
        },
        skew_bytes: 0,
        disk: DiskConfig::default(),
        files: 0,
        net: Some(net),
        ispc: None,
        sched: SchedConfig::default(),
        locks: LockCosts::default(),
        measures_at_boot: false,
        paths: KernelPaths::all(PATH),
        defect: Planted::NONE,
    }
}

/// Boots a kernel on `m`, with `first` for its first process, and runs it until no process is left. What fails, fails
/// at step `at`.
///
/// # Errors
/// What was wrong, and at which step.
pub(crate) fn run(
    m: &Model,
    config: KernelConfig,
    at: &Cell<usize>,
    first: impl FnOnce(&User<Model>) + 'static,
) -> Result<(), Failure> {
    let booted = Rc::new(RefCell::new(None));
    let into = booted.clone();
    let ran = m.run(Box::new(move |m| {
        let kernel = Kernel::boot(m.clone(), m.devices(), config).unwrap_or_else(|e| panic!("boot: {e}"));
        into.replace(Some(kernel.clone()));
        kernel.spawn("init", Box::new(first)).expect("the first process");
        kernel.run()
    }));
    let kernel = booted.take();
    let left = || kernel.as_ref().map_or(Ok(()), |kernel| kernel.check_quiescent());
    let sleepers = || kernel.as_ref().map_or_else(String::new, |kernel| kernel.sleepers());
    ran.map_err(|e| format!("{e}\n{}", sleepers()))
        .and_then(|()| left())
        .and_then(|()| m.check())
        .map_err(|message| Failure { step: at.get(), message })
}
