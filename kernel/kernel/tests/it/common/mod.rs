//! What the tests of this crate stand on: kernels as configurations, and a run that checks every law at its end.
#![allow(dead_code, unused_imports, unreachable_pub, clippy::arc_with_non_send_sync, clippy::type_complexity)]

use pageferry_ephemeral::{
    AccessedRule, EphemeralConfig, EphemeralCounter, EphemeralPaths, FlushAt, FlushBy, FlushPolicy,
    MappingUser, Scheme,
};
use pageferry_hal::*;
use pageferry_kernel::*;
pub use pageferry_model::testing::other_kind;
use pageferry_model::testing::{assert_sound, choices, or_other_kind, small};
use pageferry_model::{Jitter, LateSleep, MachineConfig, Model, Options, RunError, Schedule, Snapshot};
use pageferry_pmap::{PmapConfig, PmapCounter, PmapPaths, RefillConfig, RefillPaths};
use pageferry_vm::{
    Anonymous, BufferHeads, FreeLists, FreedTo, Inherit, KernelPages, LoanLocking, PagingConfig, PagingPaths,
    TransferConfig, VmConfig, VmCounter, VmPaths,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

pub mod far;
pub mod puppet;

pub type U = User<Model>;

thread_local! {
    /// The test of this thread runs on the machines that it names.
    static NAMED: Cell<bool> = const { Cell::new(false) };
}

/// From here on the test runs on the machines that it names: it is about what these have. Where others run on a kind
/// that the environment says, it has nothing to do: it would do there what it does where none is said.
macro_rules! on_named_machines {
    () => {
        if $crate::common::runs_elsewhere() {
            return;
        }
    };
}
pub(crate) use on_named_machines;

/// See [`on_named_machines`].
pub fn runs_elsewhere() -> bool {
    NAMED.set(true);
    other_kind().is_some()
}

/// The machine that a test runs on where it names this one.
fn kind_for(name: &str) -> String {
    if NAMED.get() { name.into() } else { or_other_kind(name) }
}

/// Milliseconds of the machine that a test runs on where it names this one.
pub fn ms_on(name: &str, ms: u64) -> Cycles {
    Cycles(small(&kind_for(name), 64).cpu.clock_mhz.value * 1000 * ms)
}

/// A machine that goes on after the use of a stale translation: [`run`] tells of it in the end. No test spins for long.
pub fn machine(name: &str, schedule: Schedule) -> Model {
    machine_by(name, schedule, |_| ())
}

/// As [`machine`], with something changed.
pub fn machine_by(name: &str, schedule: Schedule, change: impl FnOnce(&mut MachineConfig)) -> Model {
    machine_with(name, Options::new(schedule), change)
}

/// As [`machine`], of which each CPU stands still for up to `max` whenever it reads its clock.
pub fn stalling_machine(name: &str, schedule: Schedule, max: Cycles) -> Model {
    machine_with(name, Options::new(schedule).stalls(Some(Jitter { seed: 1, max })), |_| ())
}

/// As [`machine`], timed, with a thread that is late to sleep.
pub fn late_machine(name: &str, late: Option<LateSleep>) -> Model {
    machine_with(name, Options::default().late_sleep(late), |_| ())
}

fn machine_with(name: &str, options: Options, change: impl FnOnce(&mut MachineConfig)) -> Model {
    let MachineConfig { disk, audio, nic, sources, .. } = small(name, 64);
    let mut config = MachineConfig { disk, audio, nic, ..small(&kind_for(name), 64) };
    change(&mut config);
    // The devices' constants cite documents of their own.
    config.sources.extend(sources);
    Model::new(&config, options.tolerate_stale().spin_limit(1_000_000)).expect("a valid machine")
}

const fn n(instructions: u32) -> CodePath {
    CodePath::of(instructions)
}

/// The kernel of the paper on i386: a mapping cache, and readers that map.
pub fn sf_buf(entries: usize) -> KernelConfig {
    KernelConfig {
        skew_bytes: 0,
        pmap: PmapConfig {
            refill: RefillConfig {
                paths: RefillPaths { direct: n(40), ..RefillPaths::all(n(20)) },
                ..RefillConfig::NONE
            },
            ..PmapConfig::new(
                16 << 20,
                PmapPaths {
                    enter: n(160),
                    remove: n(120),
                    kenter: n(8),
                    shootdown_send: n(60),
                    shootdown_handle: n(16),
                },
            )
        },
        vm: VmConfig {
            structures: None,
            loan_locking: LoanLocking::OneStep,
            paths: VmPaths {
                fault: n(600),
                map_entry: n(160),
                kva_alloc: n(320),
                kva_free: n(320),
                map_node: n(8),
                frame: n(120),
                wire: n(40),
                anon: n(60),
                loan: n(120),
                transfer: n(60),
                pass: n(160),
            },
            paging: None,
            objects: 0,
            lists: FreeLists::one(FreedTo::Head),
            zero_fill_pages: 1,
            anonymous: Anonymous::Amaps,
            transfer: TransferConfig::default(),
        },
        ephemeral: EphemeralConfig {
            scheme: Scheme::Cache { entries, rule: AccessedRule::Safe },
            honour_private: true,
            flush: FlushPolicy::default(),
            paths: EphemeralPaths { alloc_hit: n(70), alloc_miss: n(130), free: n(48), magazine: n(20) },
        },
        pipe: PipeConfig {
            kind: PipeKind::Fifo,
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
            lent_mapping: LentMapping::Run,
            clusters: 512,
            null_protocol: true,
            null_answers: NullAnswers::Clusters,
            realigns: false,
        },
        net: None,
        disk: DiskConfig {
            mapping: FrameMapping::Ephemeral,
            ptrace: PtraceBy::QuickRef,
            buffers: 64,
            dirty_buffers: 16,
            syncer: SyncerDelays::default(),
            paths: DiskPaths::all(n(300)),
        },
        ispc: None,
        files: 0,
        sched: SchedConfig::default(),
        locks: LockCosts::default(),
        measures_at_boot: false,
        paths: KernelPaths {
            syscall: n(150),
            switch: n(250),
            sleep: n(220),
            wakeup: n(260),
            clock: n(300),
            pipe_call: n(280),
            uiomove: n(80),
            pipe_page: n(60),
            export: n(600),
            process: n(8000),
            sosend: n(280),
            soreceive: n(280),
            protocol: n(120),
            mbuf: n(40),
            cluster: n(40),
            transfer_call: n(250),
        },
        defect: Planted::NONE,
    }
}

pub fn with_scheme(scheme: Scheme) -> KernelConfig {
    let mut config = sf_buf(1);
    config.ephemeral.scheme = scheme;
    config
}

/// The original kernel: the writer maps its run, into the pipe's own addresses.
pub fn original() -> KernelConfig {
    let mut config = with_scheme(Scheme::Original);
    config.pipe.mapping = PipeMapping::WriterRun;
    config.disk.mapping = FrameMapping::Own;
    config
}

/// The original kernel with another policy of flushing.
pub fn flushing(at: FlushAt, by: FlushBy) -> KernelConfig {
    let mut config = original();
    config.ephemeral.flush = FlushPolicy { at, by };
    config
}

/// The original kernel with addresses from a list, for what it looks at for a moment, too.
pub fn with_list(entries: usize, at: FlushAt) -> KernelConfig {
    let mut config = flushing(at, FlushBy::User);
    config.ephemeral.scheme = Scheme::FreeList { entries };
    config.disk.mapping = FrameMapping::Ephemeral;
    config
}

/// The kernel of the UVM paper: pipes are connected sockets.
pub fn sockets() -> KernelConfig {
    let mut config = sf_buf(64);
    config.pipe.kind = PipeKind::Socket;
    config
}

/// A kernel with the Internet protocols; its machine's card has the address 10.0.0.2.
pub fn internet() -> KernelConfig {
    let net = NetConfig {
        address: OUR_ADDRESS,
        prefix_bits: 24,
        gateway: None,
        sockets: 4096,
        loopback_mtu_bytes: 16384,
        loopback_packets: 512,
        send_buffer_bytes: 32768,
        receive_buffer_bytes: 65536,
        datagram_buffer_bytes: 65536,
        repack: None,
        receive_mapping: ReceiveMapping::Permanent,
        checksum_offload: true,
        // As the machine has it.
        ms_cycles: Cycles(0),
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
        // Where the seed decides whose turn it is, time goes by as fast as it likes.
        retransmissions: 1_000_000,
        time_wait_ms: 60_000,
        initial_sequence: 0x1357_9bdf,
        defect: Planted::NONE,
        paths: NetPaths::all(n(200)),
    };
    KernelConfig { net: Some(net), ..sockets() }
}

/// Where the machine is.
pub const OUR_ADDRESS: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 0, 0, 2);
/// Loopback.
pub const LOCALHOST: std::net::Ipv4Addr = std::net::Ipv4Addr::LOCALHOST;

/// Every combination of machine and kernel that pipes behave differently on.
pub fn kernels() -> Vec<(&'static str, &'static str, KernelConfig)> {
    let mut buffered = sf_buf(64);
    buffered.pipe.direct = false;
    let mut run_with_cache = sf_buf(64);
    run_with_cache.pipe.mapping = PipeMapping::WriterRun;
    let mut shared = sf_buf(64);
    shared.ephemeral.honour_private = false;
    let mut all = sf_buf(8);
    all.sched.forward = ForwardWakeup::All;
    vec![
        ("sf_buf, 1 CPU", "xeon-up", sf_buf(64)),
        ("sf_buf, tiny cache", "xeon-mp", sf_buf(2)),
        ("sf_buf, 4 CPUs", "xeon-mp-htt", sf_buf(64)),
        ("sf_buf, all idle CPUs interrupted", "xeon-mp-htt", all),
        ("sf_buf, shared", "xeon-htt", shared),
        ("sf_buf, buffered only", "xeon-mp", buffered),
        ("sf_buf, writer maps", "xeon-mp", run_with_cache),
        ("original, 1 CPU", "xeon-up", original()),
        ("original, 2 CPUs", "xeon-mp", original()),
        ("original, 4 CPUs", "xeon-mp-htt", original()),
        ("original, flushed when unmapped", "xeon-mp-htt", flushing(FlushAt::Unmap, FlushBy::Range)),
        ("original, flushed when mapped", "xeon-mp", flushing(FlushAt::Map, FlushBy::Page)),
        ("original, a list of addresses", "xeon-mp", with_list(3, FlushAt::Both)),
        ("Vmem", "xeon-mp", with_scheme(Scheme::Vmem)),
        ("original, reader maps", "xeon-htt", with_scheme(Scheme::Original)),
        ("direct map", "opteron-mp", with_scheme(Scheme::Direct)),
        ("direct map, ia64", "itanium2", with_scheme(Scheme::Direct)),
        ("direct map of other colours", "sh7751r", with_scheme(Scheme::Direct)),
        ("hybrid", "sh7751r", with_scheme(Scheme::Hybrid { entries: 4 })),
        ("original, colours", "sh7751r", original()),
        ("hybrid, stores go through", "ultrasparc-iie", with_scheme(Scheme::Hybrid { entries: 4 })),
        ("original, amd64", "opteron-mp", original()),
        ("cache on amd64", "opteron-mp", sf_buf(16)),
    ]
}

/// `config` with a page daemon, and a swap area of `swap_pages`.
pub fn paging(mut config: KernelConfig, swap_pages: u32) -> KernelConfig {
    config.vm.paging = Some(PagingConfig {
        swap_pages,
        free_min_pages: 32,
        free_target_pages: 43,
        kernel_reserve_pages: 16,
        daemon_reserve_pages: 4,
        inactive_percent: 33,
        cluster_pages: 16,
        read_ahead_pages: 8,
        lock_limit_percent: 33,
        heads: Some(BufferHeads { head_bytes: 96, block_bytes: 1024, buckets: 2048 }),
        paths: PagingPaths { scan: n(80), io: n(600) },
    });
    config
}

/// Takes all frames out of use but `left`; they are freed with [`Vm::free_kernel_pages`].
pub fn hoard(u: &U, left: usize) -> KernelPages {
    let vm = u.kernel().vm();
    vm.kernel_pages(vm.free_frames() - left).expect("they are free")
}

/// What a run leaves behind.
pub struct Ended {
    pub m: Model,
    pub result: Result<(), RunError>,
    pub kernel: Option<Arc<Kernel<Model>>>,
}

impl Ended {
    pub fn counter(&self, counter: impl Into<Metric>) -> u64 {
        self.m.snapshot().counter(counter)
    }
}

/// Boots `config` on `name`, runs `init` as the first process until none is left; whatever comes of it.
pub fn try_run(
    name: &str,
    schedule: Schedule,
    config: KernelConfig,
    init: impl FnOnce(&U) + 'static,
) -> Ended {
    try_run_on(machine(name, schedule), name, config, init)
}

/// As [`try_run`], on a machine that is there, which is called `name`.
pub fn try_run_on(m: Model, name: &str, mut config: KernelConfig, init: impl FnOnce(&U) + 'static) -> Ended {
    for word in choices(&kind_for(name)) {
        let known = config.vm.choose(word, m.board().pointer) || config.pmap.choose(word);
        assert!(known, "{word}: no such choice");
    }
    let direct = matches!(config.ephemeral.scheme, Scheme::Direct | Scheme::Hybrid { .. });
    if direct && m.board().layout.direct_map.is_none() {
        config.ephemeral.scheme = Scheme::Cache { entries: 64, rule: AccessedRule::Safe };
    }
    if let (Some(ispc), Mmu::Soft { large, .. }) = (&mut config.ispc, m.board().mmu)
        && !large.contains(&20)
    {
        // The next smaller pages, and as many more of them.
        (ispc.server_page_bytes, ispc.server_entries) = (1 << 16, 16);
    }
    if let Some(net) = &mut config.net {
        // The far end has a clock of its own.
        net.ms_cycles = ms_on(name, 1);
    }
    let kernel = Rc::new(RefCell::new(None));
    let booted = kernel.clone();
    let result = m.run(Box::new(move |m| {
        let kernel =
            pageferry_servers::boot(m.clone(), m.devices(), config).unwrap_or_else(|e| panic!("boot: {e}"));
        booted.replace(Some(kernel.clone()));
        kernel.spawn("init", Box::new(init)).expect("the first process");
        kernel.run()
    }));
    let kernel = kernel.take();
    Ended { m, result, kernel }
}

/// As [`try_run`], for tests that must end well: no panic, no deadlock, no stale use, nothing left, accounts in
/// balance.
pub fn run(name: &str, schedule: Schedule, config: KernelConfig, init: impl FnOnce(&U) + 'static) -> Ended {
    run_on(machine(name, schedule), name, &schedule.to_string(), config, init)
}

/// As [`run`], on a machine that is there, which is called `name`; `what` says in messages what runs there.
pub fn run_on(
    m: Model,
    name: &str,
    what: &str,
    config: KernelConfig,
    init: impl FnOnce(&U) + 'static,
) -> Ended {
    let ended = try_run_on(m, name, config, init);
    sound(&ended, &format!("{name}, {what}"));
    ended
}

/// Tests what holds behind every run that is to end well.
pub fn sound(ended: &Ended, what: &str) {
    let kernel = ended.kernel.as_ref();
    if let Err(e) = &ended.result {
        panic!("{what}: {e}\n{}", kernel.map_or(String::new(), |k| k.sleepers()));
    }
    assert_sound(&ended.m, what);
    let kernel = kernel.expect("the kernel booted");
    kernel.check_quiescent().unwrap_or_else(|e| panic!("{what}: {e}"));
    laws(&ended.m.snapshot());
}

/// What goes in comes out.
fn laws(s: &Snapshot) {
    let pairs = [
        (VmCounter::FramesAllocated, VmCounter::FramesFreed),
        (VmCounter::FramesWired, VmCounter::FramesUnwired),
    ];
    for (a, b) in pairs {
        assert_eq!(s.counter(a), s.counter(b), "{a:?} and {b:?}");
    }
    let allocated = [
        EphemeralCounter::EphemeralHits,
        EphemeralCounter::EphemeralMisses,
        EphemeralCounter::EphemeralDirect,
    ];
    let allocated: u64 = allocated.into_iter().map(|c| s.counter(c)).sum();
    assert_eq!(allocated, s.counter(EphemeralCounter::EphemeralFrees), "ephemeral mappings given back");
    let by_users = |of: fn(MappingUser) -> EphemeralCounter| -> u64 {
        MappingUser::ALL.into_iter().map(|user| s.counter(of(user))).sum()
    };
    let mapped = allocated + s.counter(EphemeralCounter::RunPages);
    assert_eq!(by_users(MappingUser::mappings), mapped, "pages mapped, by user");
    let remote = s.counter(PmapCounter::TlbInvalidationsRemoteIssued);
    let all = s.counter(PmapCounter::TlbInvalidationsLocal) + remote;
    assert!(by_users(MappingUser::invalidations) <= all, "the users' invalidations are among all");
    assert!(by_users(MappingUser::remote_invalidations) <= remote, "and those of other CPUs");
}

/// The byte at `at` of stream `seed`.
pub fn byte(seed: u64, at: usize) -> u8 {
    let x = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
    ((x >> 23) ^ (x >> 51)) as u8
}

pub fn bytes(seed: u64, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| byte(seed, at)).collect()
}

pub fn map(u: &U, len: usize) -> Va {
    u.map(len, Prot::RW, Inherit::Copy).expect("memory")
}

/// Makes a child whose program is a plain closure.
pub fn fork(u: &U, name: &str, program: impl FnOnce(&U) + 'static) -> Pid {
    u.fork(name, Box::new(program)).expect("a child")
}

/// Reads until the end of the stream or `max_bytes`, `chunk` at a time, into memory at `at`.
pub fn read_all(u: &U, fd: Fd, at: Va, chunk: usize, max_bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < max_bytes {
        match u.read(fd, at, chunk.min(max_bytes - all.len())) {
            Ok(0) => break,
            Ok(n) => {
                let mut part = vec![0; n];
                u.load(at, &mut part);
                all.extend(part);
            }
            Err(Errno::WouldBlock) => u.yield_now().expect("alive"),
            Err(Errno::Interrupted) => {}
            Err(e) => panic!("read: {e}"),
        }
    }
    all
}

/// Writes bytes `from..from + len` of stream `seed` through memory at `at`, `chunk` at a time.
pub fn write_all(u: &U, fd: Fd, at: Va, chunk: usize, seed: u64, len: usize) {
    let mut done = 0;
    while done < len {
        let part = bytes(seed, done, chunk.min(len - done));
        u.store(at, &part);
        let mut sent = 0;
        while sent < part.len() {
            match u.write(fd, at + sent, part.len() - sent) {
                Ok(n) => sent += n,
                Err(Errno::WouldBlock) => u.yield_now().expect("alive"),
                Err(Errno::Interrupted) => {}
                Err(e) => panic!("write: {e}"),
            }
        }
        done += part.len();
    }
}

/// Waits until the process `pid` sleeps.
pub fn until_asleep(u: &U, pid: Pid) {
    while !u.kernel().is_asleep(pid) {
        u.yield_now().expect("alive");
        u.compute(Instructions(100));
    }
}

/// Takes away all that is below `dir`.
pub fn clear(u: &U, dir: &str) {
    for (name, is_directory) in u.list(dir).unwrap() {
        let path = format!("{dir}/{name}");
        if is_directory {
            clear(u, &path);
            u.rmdir(&path).unwrap();
        } else {
            u.unlink(&path).unwrap();
        }
    }
}
