//! The machine with its kernel, and the far end of its wire.

use super::talk::Talks;
use super::{Call, SocketOp};
use crate::episode::Failure;
use crate::whole;
use pageferry_ephemeral::{AccessedRule, EphemeralConfig, EphemeralPaths, Scheme};
use pageferry_hal::{CodePath, Cycles, Machine as _};
use pageferry_kernel::*;
use pageferry_model::net::Wire;
use pageferry_model::net::smol::{Service, SmolConfig, SmolFarEnd};
use pageferry_model::testing::{choices, small};
use pageferry_model::{MachineConfig, Model, Options, Schedule};
use pageferry_pmap::{PmapConfig, PmapPaths, RefillPaths};
use pageferry_vm::{VmConfig, VmPaths};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

/// Where the machine is, where the host at the far end sends everything back, and where it sends a file of so many
/// bytes.
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const ECHO: SocketAddrV4 = SocketAddrV4::new(THEIRS, 7);
pub(super) const SOURCE: SocketAddrV4 = SocketAddrV4::new(THEIRS, 19);
pub(super) const SOURCE_BYTES: usize = 24_000;

const MEMORY_MB: u64 = 64;
/// Frames and timers of the far end that nothing here has any use for, before the machine is taken to be stuck.
const SPIN_LIMIT: u64 = 1_000_000;
const PATH: CodePath = CodePath::of(20);
/// Steps between two looks at all laws, which take locks, and with them time.
const CHECK_EVERY: usize = 16;
/// Said for each connection that is left at the end.
const LAST_BYTES: usize = 3000;

/// A small machine with a card, whatever else it is.
fn machine(name: &str, schedule: Schedule, wire: Wire) -> Model {
    let MachineConfig { nic, sources, .. } = small("xeon-up", MEMORY_MB);
    let mut config = MachineConfig { nic, ..small(name, MEMORY_MB) };
    // The card's constants cite documents of their own.
    config.sources.extend(sources);
    let m = Model::new(&config, Options::new(schedule).spin_limit(SPIN_LIMIT)).expect("a valid machine");
    let far = SmolConfig { ip: THEIRS, seed: wire.seed, ..SmolConfig::default() };
    let mut far = SmolFarEnd::new(far);
    far.listen(ECHO.port(), Service::Echo);
    far.listen(SOURCE.port(), Service::HastySource(SOURCE_BYTES as u64));
    m.attach_over(wire, Box::new(far));
    m
}

/// A kernel with the protocols, for the machine of this name.
pub(crate) fn kernel(name: &str, m: &Model, defect: Option<NetDefect>, seed: u64) -> KernelConfig {
    let mut pmap = PmapConfig::new(16 << 20, PmapPaths::all(PATH));
    pmap.refill.paths = RefillPaths::all(PATH);
    for word in choices(name) {
        assert!(pmap.choose(word), "{name}: no kernel has a choice called {word}");
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
        datagram_buffer_bytes: 65536,
        checksum_offload: true,
        ms_cycles: Cycles(small(name, MEMORY_MB).cpu.clock_mhz.value * 1000),
        delayed_ack_ms: 100,
        ack_segments: 2,
        segment_unit_bytes: 0,
        first_window_segments: 4,
        first_window_bytes: 4380,
        first_timeout_ms: 1000,
        least_timeout_ms: 200,
        most_timeout_ms: 64_000,
        least_probe_ms: 200,
        most_probe_ms: 60_000,
        retransmissions: if defect.is_none() { 1_000_000 } else { 8 },
        time_wait_ms: 60_000,
        // Soon the numbers wrap.
        first_sequence: u32::MAX - 70_000,
        defect: defect.into(),
        paths: NetPaths::all(PATH),
    };
    KernelConfig {
        pmap,
        vm: VmConfig { paths: VmPaths::all(PATH), paging: None, objects: 0 },
        ephemeral: EphemeralConfig { scheme, honour_private: true, paths: EphemeralPaths::all(PATH) },
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
        },
        disk: DiskConfig::default(),
        files: 0,
        net: Some(net),
        ispc: None,
        sched: SchedConfig::default(),
        measures_at_boot: false,
        paths: KernelPaths::all(PATH),
        defect: Planted::NONE,
    }
}

/// Runs `steps`, and looks at what is left behind.
///
/// # Errors
/// At which step what was wrong.
pub(super) fn run(
    name: &str,
    schedule: Schedule,
    wire: Wire,
    steps: Vec<Call>,
    defect: Option<NetDefect>,
) -> Result<(), Failure> {
    let m = machine(name, schedule, wire);
    let config = kernel(name, &m, defect, wire.seed);
    // Where a seed decides whose turn it is, time goes by as fast as it likes: a host with timers of its own gives up
    // then.
    let is_timed = schedule == Schedule::Timed;
    let at = Rc::new(Cell::new(0));
    let seen = at.clone();
    whole::run(&m, config, &at, move |u| talk(u, &steps, is_timed, &seen))
}

fn talk(u: &User<Model>, steps: &[Call], wired: bool, at: &Cell<usize>) {
    let mut talks = Talks::new(u, wired);
    for (i, call) in steps.iter().enumerate() {
        at.set(i);
        talks.step(call);
        if i % CHECK_EVERY == 0 {
            u.kernel().check().unwrap_or_else(|law| panic!("a law is broken: {law}"));
        }
    }
    for connection in 0..super::CONNECTIONS {
        talks.step(&Call { connection, other_end: false, op: SocketOp::Drain { len: LAST_BYTES } });
    }
    talks.end();
}
