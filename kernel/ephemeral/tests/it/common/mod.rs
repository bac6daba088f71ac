//! What the tests of this crate stand on: a modelled machine with kernel page tables and nothing above, a worker on
//! each CPU that runs what it is handed, and a thread system in which sleeping is spinning.
#![allow(dead_code, unused_imports, unreachable_pub, clippy::arc_with_non_send_sync, clippy::type_complexity)]

use pageferry_ephemeral::*;
use pageferry_hal::*;
pub use pageferry_model::testing::other_kind;
use pageferry_model::testing::{Workers, assert_sound, choices, or_other_kind, small};
use pageferry_model::{Model, Options, RunError, Schedule, Snapshot};
use pageferry_pmap::{PmapConfig, PmapCounter, PmapPaths, Pmaps};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

pub const PATH: CodePath = CodePath::of(20);
pub const EPHEMERAL_PATHS: EphemeralPaths = EphemeralPaths {
    alloc_hit: CodePath::of(70),
    alloc_miss: CodePath::of(130),
    free: CodePath::of(48),
    magazine: CodePath::of(20),
};

pub fn cache(entries: usize) -> EphemeralConfig {
    let scheme = Scheme::Cache { entries, rule: AccessedRule::Safe };
    EphemeralConfig { scheme, honour_private: true, flush: FlushPolicy::default(), paths: EPHEMERAL_PATHS }
}

pub fn with_scheme(scheme: Scheme) -> EphemeralConfig {
    EphemeralConfig { scheme, ..cache(1) }
}

/// The schemes that make a mapping for each use, with a policy.
pub fn flushing(scheme: Scheme, at: FlushAt, by: FlushBy) -> EphemeralConfig {
    EphemeralConfig { flush: FlushPolicy { at, by }, ..with_scheme(scheme) }
}

/// A machine that goes on after the use of a stale translation: [`run`] tells of it in the end.
pub fn machine(name: &str, schedule: Schedule) -> Model {
    Model::new(&small(&or_other_kind(name), 32), Options::new(schedule).tolerate_stale())
        .expect("a valid machine")
}

/// Kernel addresses, lowest first.
pub struct Kva {
    free: RefCell<Vec<VaRange>>,
}

impl Kva {
    /// Pages of addresses that nobody has.
    pub fn free_pages(&self) -> usize {
        self.free.borrow().iter().map(VaRange::len_pages).sum()
    }

    /// So many of them, for somebody else: nobody takes them here meanwhile.
    pub fn first_pages(&self, len_pages: usize) -> Kva {
        let free = self.free.borrow();
        let range = free.iter().find(|range| range.len_pages() >= len_pages).expect("there are more");
        Kva { free: RefCell::new(vec![VaRange::pages_from(range.start(), len_pages)]) }
    }
}

impl KernelAddresses for Kva {
    fn alloc(&self, len_pages: usize) -> Option<VaRange> {
        let mut free = self.free.borrow_mut();
        let at = free.iter().position(|r| r.len_pages() >= len_pages)?;
        let range = VaRange::pages_from(free[at].start(), len_pages);
        free[at] = VaRange::new(range.end(), free[at].end());
        Some(range)
    }
    fn free(&self, range: VaRange) {
        self.free.borrow_mut().insert(0, range);
    }
}

/// Threads that spin where others sleep: one for each CPU.
#[derive(Clone)]
pub struct SpinThreads {
    m: Model,
    sleepers: Rc<RefCell<Vec<(Channel, Rc<Cell<bool>>)>>>,
    pub signals: Rc<Vec<Cell<bool>>>,
    /// Sleeps, wakeups, interruptions so far.
    pub slept: Rc<Cell<usize>>,
    /// The process that they speak for.
    pub process: Rc<Cell<u32>>,
}

impl SpinThreads {
    pub fn new(m: &Model) -> SpinThreads {
        let signals = (0..m.board().cpus).map(|_| Cell::new(false)).collect();
        SpinThreads {
            m: m.clone(),
            sleepers: Rc::default(),
            signals: Rc::new(signals),
            slept: Rc::default(),
            process: Rc::default(),
        }
    }
    pub fn sleepers(&self) -> usize {
        self.sleepers.borrow().len()
    }
}

impl Threads for SpinThreads {
    fn sleep(
        &self,
        channel: Channel,
        _: &'static str,
        interruptible: bool,
        release: &mut dyn FnMut(),
    ) -> Result<(), Interrupted> {
        let woken = Rc::new(Cell::new(false));
        self.sleepers.borrow_mut().push((channel, woken.clone()));
        self.slept.set(self.slept.get() + 1);
        release();
        let signal = &self.signals[self.m.cpu().index()];
        self.m.spin_until(&mut || woken.get() || (interruptible && signal.get()));
        if woken.get() {
            return Ok(());
        }
        signal.set(false);
        self.sleepers.borrow_mut().retain(|(_, w)| !Rc::ptr_eq(w, &woken));
        Err(Interrupted)
    }
    fn wakeup(&self, channel: Channel) -> usize {
        let mut n = 0;
        while self.wakeup_one(channel) {
            n += 1;
        }
        n
    }
    fn wakeup_one(&self, channel: Channel) -> bool {
        let mut sleepers = self.sleepers.borrow_mut();
        let Some(at) = sleepers.iter().position(|s| s.0 == channel) else { return false };
        sleepers.remove(at).1.set(true);
        true
    }
    fn process(&self) -> u32 {
        self.process.get()
    }
    fn pin(&self) {}
    fn unpin(&self) {}
}

pub type Eph = Ephemeral<Model, Kva>;

/// A machine that is running, with ephemeral mappings on it.
#[derive(Clone)]
pub struct Rig {
    pub m: Model,
    pub pmaps: Arc<Pmaps<Model>>,
    pub eph: Rc<Eph>,
    pub kva: Arc<Kva>,
    pub threads: SpinThreads,
    pub first_free: Pfn,
    scratch: VaRange,
    workers: Rc<Workers<Rig>>,
}

impl Rig {
    /// A frame without another user.
    pub fn frame(&self, n: u32) -> Pfn {
        Pfn(self.first_free.0 + n)
    }

    /// The first bytes of the frame `n` in these tests.
    pub fn tag(n: u32) -> [u8; 4] {
        (n ^ 0x5f5f_0000).to_le_bytes()
    }

    /// Writes its tag into each of the first `frames` frames, through an address that is used for nothing else.
    pub fn tag_frames(&self, frames: u32) {
        for n in 0..frames {
            self.pmaps.kenter(self.scratch.start(), &[self.frame(n)], Prot::RW).flush(&self.pmaps);
            self.m.store(Mode::Kernel, self.scratch.start(), &Rig::tag(n)).unwrap();
        }
        self.pmaps.kremove(self.scratch).flush(&self.pmaps);
    }

    /// Maps frame `n`, or says why not. Each frame has its user.
    pub fn alloc(&self, n: u32, flags: Flags) -> Result<Mapping, AllocError> {
        self.eph.alloc(&self.threads, self.frame(n), user(n), flags)
    }

    pub fn free(&self, mapping: Mapping) {
        self.eph.free(&self.threads, mapping);
    }

    /// Reads the tag through a mapping: sets the accessed bit, and fills the own TLB.
    pub fn read(&self, mapping: &Mapping) -> [u8; 4] {
        let mut buf = [0; 4];
        self.m.load(Mode::Kernel, self.eph.kva(mapping), &mut buf).expect("an ephemeral mapping is mapped");
        buf
    }

    /// Maps frame `n`, reads it if `touch`, and frees it.
    pub fn cycle(&self, n: u32, flags: Flags, touch: bool) {
        let mapping = self.alloc(n, flags).expect("a mapping");
        if touch {
            assert_eq!(self.read(&mapping), Rig::tag(n), "frame {n} reads as another");
        }
        self.free(mapping);
    }

    /// Runs `job` on `cpu` and waits for it.
    pub fn on(&self, cpu: u8, job: impl FnOnce(&Rig) + 'static) {
        self.start_on(cpu, job);
        self.join(cpu);
    }

    /// Runs `job` on `cpu`, and waits only if that is the own.
    pub fn start_on(&self, cpu: u8, job: impl FnOnce(&Rig) + 'static) {
        if cpu == self.m.cpu().0 {
            return job(self);
        }
        self.workers.start(cpu.into(), job);
    }

    /// Waits until `cpu` has done its job.
    pub fn join(&self, cpu: u8) {
        self.workers.wait(cpu.into());
    }

    /// What `work` adds to the counters.
    pub fn counted(&self, work: impl FnOnce()) -> Counts {
        let before = self.m.snapshot();
        work();
        Counts::between(&before, &self.m.snapshot())
    }
}

/// Who uses frame `n`.
pub fn user(n: u32) -> MappingUser {
    MappingUser::ALL[n as usize % MappingUser::ALL.len()]
}

/// What is counted for each user sums to what is counted in all. Before, nobody had used anything.
pub fn assert_users_account(before: &Snapshot, after: &Snapshot) {
    let n = |c: Metric| after.counter(c) - before.counter(c);
    let sum = |of: fn(MappingUser) -> EphemeralCounter| -> u64 {
        MappingUser::ALL.into_iter().map(|user| n(of(user).metric())).sum()
    };
    let allocated = [
        EphemeralCounter::EphemeralHits,
        EphemeralCounter::EphemeralMisses,
        EphemeralCounter::EphemeralDirect,
        EphemeralCounter::RunPages,
    ];
    let allocated: u64 = allocated.into_iter().map(|c| n(c.metric())).sum();
    assert_eq!(sum(MappingUser::mappings), allocated, "pages mapped by all users");
    let local = n(PmapCounter::TlbInvalidationsLocal.metric());
    let remote = n(PmapCounter::TlbInvalidationsRemoteIssued.metric());
    assert_eq!(sum(MappingUser::invalidations), local + remote, "invalidations by all users");
    assert_eq!(sum(MappingUser::remote_invalidations), remote, "of other CPUs");
}

/// Differences of the counters that an allocation can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    pub local: u64,
    pub remote: u64,
    pub ipis: u64,
    pub hits: u64,
    pub misses: u64,
}

impl Counts {
    pub fn between(before: &Snapshot, after: &Snapshot) -> Counts {
        let n = |c: Metric| after.counter(c) - before.counter(c);
        Counts {
            local: n(PmapCounter::TlbInvalidationsLocal.metric()),
            remote: n(PmapCounter::TlbInvalidationsRemoteIssued.metric()),
            ipis: n(PmapCounter::ShootdownIpis.metric()),
            hits: n(EphemeralCounter::EphemeralHits.metric()),
            misses: n(EphemeralCounter::EphemeralMisses.metric()),
        }
    }
}

/// Boots `name` with ephemeral mappings as configured and runs `test` on CPU 0, the other CPUs waiting for jobs.
pub fn try_run(
    name: &str,
    schedule: Schedule,
    mut config: EphemeralConfig,
    test: impl FnOnce(&Rig) + 'static,
) -> (Model, Result<(), RunError>) {
    let m = machine(name, schedule);
    if other_kind().is_some() && config.scheme == Scheme::Direct && m.board().layout.direct_map.is_none() {
        config = cache(64);
    }
    let pmap = pmap_config(name);
    let result = m.run(Box::new(move |m| {
        let rig = boot(m, pmap, config).expect("a configuration that fits");
        rig.workers.start_cpus(&rig, |rig| rig.pmaps.init_cpu(), |_| ());
        rig.workers.wait_until_ready();
        test(&rig);
        rig.workers.wait_for_all();
        rig.eph.check().expect("the invariants of the cache hold");
        let left = (rig.eph.held(), rig.eph.kva_runs(), rig.eph.waiting());
        assert_eq!(left, (0, 0, 0), "mappings, runs and waiting threads are left");
        rig.workers.dismiss();
        None
    }));
    (m, result)
}

/// The page tables that the name of the machine chooses.
fn pmap_config(name: &str) -> PmapConfig {
    let mut pmap = PmapConfig::new(4 << 20, PmapPaths::all(PATH));
    for word in choices(&or_other_kind(name)) {
        assert!(pmap.choose(word), "{word}: no kernel has such a choice");
    }
    pmap
}

fn boot(m: &Model, pmap: PmapConfig, config: EphemeralConfig) -> Result<Rig, ConfigError> {
    let (pmaps, boot) = Pmaps::bootstrap(m.clone(), pmap).expect("enough memory");
    let (pmaps, mut arena) = (Arc::new(pmaps), boot.arena);
    pmaps.init_cpu();
    let handler = Arc::downgrade(&pmaps);
    m.set_interrupt_handler(Box::new(move |interrupt| {
        // All others only end a halt.
        if interrupt == Interrupt::Shootdown {
            handler.upgrade().unwrap().handle_shootdown();
        }
    }));
    let refiller = Arc::downgrade(&pmaps);
    m.set_refill(Box::new(move |miss| refiller.upgrade().unwrap().handle_miss(miss)));
    let kva = Arc::new(Kva { free: RefCell::new(vec![boot.kva]) });
    let scratch = kva.alloc(1).expect("kernel addresses");
    let eph = Rc::new(Ephemeral::new(config, pmaps.clone(), kva.clone(), &mut arena)?);
    Ok(Rig {
        m: m.clone(),
        pmaps,
        eph,
        kva,
        threads: SpinThreads::new(m),
        first_free: boot.first_free,
        scratch,
        workers: Workers::new(m),
    })
}

/// Why a configuration does not fit `name`.
pub fn config_error(name: &str, config: EphemeralConfig) -> Option<ConfigError> {
    let m = machine(name, Schedule::Timed);
    let found = Rc::new(Cell::new(None));
    let result = found.clone();
    let pmap = pmap_config(name);
    m.run(Box::new(move |m| {
        result.set(boot(m, pmap, config).err());
        None
    }))
    .expect("booting does not panic");
    found.get()
}

/// As [`try_run`], for tests that must end well: no panic, no stale use, accounts in balance.
pub fn run(
    name: &str,
    schedule: Schedule,
    config: EphemeralConfig,
    test: impl FnOnce(&Rig) + 'static,
) -> Model {
    let (m, result) = try_run(name, schedule, config, test);
    result.expect("the test ends well");
    assert_sound(&m, name);
    m
}
