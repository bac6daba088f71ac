//! A machine with nothing above the VM system, for programs here and tests elsewhere: user accesses that fault, threads
//! that halt their CPU instead of sleeping, and CPUs that take turns or work side by side.

use crate::planted::Planted;
use pageferry_hal::*;
use pageferry_model::testing::{Workers, choices, small};
use pageferry_model::{MachineConfig, Model, Options, Schedule};
use pageferry_pmap::{PmapConfig, PmapDefect, PmapPaths, Pmaps, RefillPaths};
use pageferry_vm::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// An address space.
pub type AddressSpace = Arc<Space<Model>>;

/// The machines that programs run on, by name: one, two and four CPUs, and every kind of MMU. `mini-soft:4` is the
/// machine `mini-soft` with four CPUs; what follows a `+` is a choice of the kernel ([`PmapConfig::choose`]; `tail`,
/// `coloured`, `shadows`, `published` and `tabled` are some of its VM system, [`FreeLists`], [`Anonymous`],
/// [`LoanLocking`] and [`StructuresConfig::page_hash`]).
pub const MACHINES: [&str; 26] = [
    "xeon-up",
    "xeon-mp",
    "xeon-mp+published+tabled",
    "xeon-mp+coloured",
    "xeon-mp-htt",
    "opteron-mp",
    "today+tags",
    "today-invlpgb",
    "today-invlpgb+tags",
    "mini-soft",
    "mini-soft:4",
    "mini-soft+published+tabled:4",
    "mini-hash",
    "mini-hash:2",
    "mini-blocks",
    "mini-blocks:2",
    "ppc603+renew",
    "ppc603+slow+hash+pte+renew",
    "ppc604+renew",
    "ppc604+slow+pte+renew",
    "ppc604-smp",
    "ppc604-smp+slow+pte",
    "sh7751r+unused",
    "ultrasparc-iie",
    "alpha-21264",
    "itanium2",
];

/// As few tags as the kernel that the machine's name chooses can do with, so that they are used again and again; where
/// all CPUs share them, enough for all address spaces, of which programs here have few.
pub(crate) fn config(name: &str, memory_mb: u64) -> MachineConfig {
    let mut config = small(name, memory_mb);
    config.io = None;
    let board = config.board();
    let shared = matches!(board.mmu, Mmu::Hash) || board.broadcasts_flushes;
    if let Some(bits) = config.mmu.asid_bits.as_mut() {
        let chooses = |word| choices(name).any(|choice| choice == word);
        bits.value = match shared || chooses("hash") {
            true if chooses("renew") => 4,
            true => 7,
            false => 3,
        };
    }
    config
}

/// True for a machine whose kernel can keep entries of the TLB for itself.
pub(crate) fn reserves(name: &str) -> bool {
    config(name, 32).board().reservable_entries().is_some()
}

/// What the name of one of them has, before its number of CPUs, where memory is made of shadow objects.
pub(crate) const SHADOWS: &str = "+shadows";

/// The machine of this name, with memory that is made of shadow objects.
pub(crate) fn with_shadows(name: &str) -> String {
    match name.split_once(':') {
        Some((kind, cpus)) => format!("{kind}{SHADOWS}:{cpus}"),
        None => format!("{name}{SHADOWS}"),
    }
}

const PATH: CodePath = CodePath::of(20);
/// What no program here takes a hundredth of: more is a kernel in a loop.
const CYCLE_LIMIT: Cycles = Cycles(1_000_000_000_000);

const PATHS: VmPaths = VmPaths::all(PATH);

/// What a machine's name chooses with `shadows`.
const CHAINS: ShadowConfig = ShadowConfig { cluster_pages: 3, paths: ShadowPaths::all(PATH) };

/// A running VM system, on CPU 0.
#[derive(Clone)]
pub struct Rig {
    /// The machine.
    pub m: Model,
    /// The VM system.
    pub vm: Arc<Vm<Model>>,
    threads: Rc<Halting>,
    shadows: bool,
    workers: Rc<Workers<Rig>>,
    /// What each CPU runs on.
    active: Rc<RefCell<Vec<Option<AddressSpace>>>>,
}

/// What runs on one CPU, or on all of them.
pub type Job = pageferry_model::testing::Job<Rig>;

/// Paging in the hands of the test: nothing is taken before it is asked for, and then all that can be.
pub const PAGING: PagingConfig = PagingConfig {
    swap_pages: 512,
    free_min_pages: 24,
    free_target_pages: 1 << 20,
    kernel_reserve_pages: 12,
    daemon_reserve_pages: 4,
    inactive_percent: 33,
    cluster_pages: 8,
    read_ahead_pages: 4,
    lock_limit_percent: 20,
    heads: None,
    paths: PagingPaths::all(PATH),
};

/// What to boot.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The machine's name.
    pub machine: &'a str,
    /// Its memory: amd64's first page tables alone take 18 MB.
    pub memory_mb: u64,
    /// Which CPU runs next.
    pub schedule: Schedule,
    /// The page daemon and its swap area.
    pub paging: Option<PagingConfig>,
    /// Every access to memory takes one cycle, and caches are left alone.
    pub flat: bool,
}

/// Boots a small machine and calls `body` on CPU 0; the other CPUs wait for [`Rig::on`]. Then everything must balance.
///
/// # Errors
/// What the machine, the kernel or `body` says is wrong.
pub fn run(site: Site<'_>, body: impl FnOnce(&Rig) + 'static) -> Result<(), String> {
    run_with(site, None, body)
}

/// As [`run`], with a defect planted.
fn run_with(
    site: Site<'_>,
    defect: Option<Planted>,
    body: impl FnOnce(&Rig) + 'static,
) -> Result<(), String> {
    let (config, options) =
        (config(site.machine, site.memory_mb), Options::new(site.schedule).cycle_limit(CYCLE_LIMIT));
    let m = if site.flat { Model::flat(&config, options) } else { Model::new(&config, options) };
    let (m, paging) = (m.expect("a valid machine"), site.paging);
    let name = site.machine.to_owned();
    m.run(Box::new(move |m| {
        let rig = boot(m, &name, paging, defect.and_then(Planted::in_pmap));
        rig.vm.plant(defect.and_then(Planted::in_vm));
        // While a panic unwinds, address spaces must not be destroyed under CPUs that run on them.
        let keep = ManuallyDrop::new(rig.clone());
        rig.workers.start_cpus(&rig, |rig| rig.vm.pmaps().init_cpu(), Rig::retire);
        body(&rig);
        rig.workers.dismiss();
        rig.vm.check().expect("the laws hold at the end");
        rig.retire();
        drop(ManuallyDrop::into_inner(keep));
        None
    }))
    .map_err(|e| e.to_string())?;
    m.check()
}

/// Gives all paths their places in the kernel's text.
fn lay_out(board: &Board, pmap: &mut PmapConfig, vm: &mut VmConfig) -> Text {
    let mut text = Text::new(board);
    let place = &mut |path: &mut CodePath| text.place(path);
    vm.paths.each_mut(place);
    vm.paging.iter_mut().for_each(|paging| paging.paths.each_mut(place));
    vm.anonymous.each_path_mut(place);
    pmap.paths.each_mut(place);
    pmap.refill.paths.each_mut(place);
    text
}

/// Boots the kernel that the machine's `name` chooses.
fn boot(m: &Model, name: &str, paging: Option<PagingConfig>, defect: Option<PmapDefect>) -> Rig {
    let mut vm_config = VmConfig {
        structures: None,
        loan_locking: LoanLocking::OneStep,
        paths: PATHS,
        paging,
        objects: 0,
        lists: FreeLists::one(FreedTo::Head),
        zero_fill_pages: 1,
        anonymous: Anonymous::Amaps,
        transfer: TransferConfig { returns: true, ..TransferConfig::default() },
    };
    let pointer = m.board().pointer;
    let others: Vec<&str> = choices(name).filter(|word| !vm_config.choose(word, pointer)).collect();
    let bound = VmConfig::arena_bytes_with(m.board(), paging.as_ref(), vm_config.structures.as_ref());
    let arena_bytes = bound * 4 / 3 + 4 * PAGE_SIZE;
    let paths = PmapPaths::all(PATH);
    let mut config = PmapConfig::new(arena_bytes, paths);
    config.refill.paths = RefillPaths::all(PATH);
    config.defect = defect.into();
    for word in others {
        match word {
            // Pages by sixteen, which an SH-4 maps by one entry.
            "rows" => {
                vm_config.zero_fill_pages = 16;
                assert!(config.choose(word));
            }
            "shadows" => vm_config.anonymous = Anonymous::Shadows(CHAINS),
            word => assert!(config.choose(word), "{name}: no kernel has a choice called {word}"),
        }
    }
    let text = m.board().fetches.then(|| lay_out(&m.board(), &mut config, &mut vm_config));
    let (pmaps, mut boot) = Pmaps::bootstrap(m.clone(), config).expect("the kernel fits");
    let pmaps = Arc::new(pmaps);
    let handler = pmaps.clone();
    let disk = Rc::new(Cell::new(false));
    let (noted, machine) = (disk.clone(), m.clone());
    m.set_interrupt_handler(Box::new(move |interrupt| match interrupt {
        Interrupt::Shootdown => handler.handle_shootdown(),
        // Ends a halt.
        Interrupt::Reschedule | Interrupt::Timer => {}
        Interrupt::Device(_) => {
            noted.set(true);
            machine.send_ipi(machine.cpus(), Interrupt::Reschedule);
        }
    }));
    let refiller = pmaps.clone();
    m.set_refill(Box::new(move |miss| refiller.handle_miss(miss)));
    pmaps.init_cpu();
    if let Some(text) = text {
        m.set_text(boot.arena.array("text", text.len_bytes(), 1).expect("a page or two"));
    }
    let before = boot.arena.left_bytes();
    let vm = Vm::new(vm_config, pmaps, m.devices().disk, &mut boot.arena, boot.kva, boot.first_free)
        .expect("the arena is large enough");
    assert!(before - boot.arena.left_bytes() <= bound, "the bound is one");
    let cpus = m.board().cpus;
    Rig {
        m: m.clone(),
        threads: Rc::new(Halting { m: m.clone(), woken: RefCell::default(), disk, vm: Arc::downgrade(&vm) }),
        vm,
        shadows: matches!(vm_config.anonymous, Anonymous::Shadows(_)),
        workers: Workers::new(m),
        active: Rc::new(RefCell::new(vec![None; cpus])),
    }
}

impl Rig {
    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.m.board().cpus
    }

    /// True where memory is made of shadow objects, and nothing is lent or transferred.
    pub(crate) fn has_shadows(&self) -> bool {
        self.shadows
    }

    /// The executing CPU's thread.
    pub fn t(&self) -> &dyn Threads {
        &*self.threads
    }

    /// Runs `job` on `cpu` and waits for it.
    pub fn on<R: 'static>(&self, cpu: usize, job: impl FnOnce(&Rig) -> R + 'static) -> R {
        if cpu == 0 { job(self) } else { self.workers.on(cpu, job) }
    }

    /// Runs one job on each CPU, all at the same time, and waits for all.
    pub fn together(&self, mut jobs: Vec<Job>) {
        assert!(!jobs.is_empty() && jobs.len() <= self.cpus(), "at most one job for each CPU");
        let mine = jobs.remove(0);
        let others = jobs.len();
        for (i, job) in jobs.into_iter().enumerate() {
            self.workers.start(i + 1, job);
        }
        mine(self);
        (1..=others).for_each(|cpu| self.workers.wait(cpu));
    }

    fn cpu(&self) -> usize {
        self.m.cpu().index()
    }

    /// Makes `space` the executing CPU's.
    pub fn enter(&self, space: &AddressSpace) {
        let cpu = self.cpu();
        let old = self.active.borrow_mut()[cpu].replace(space.clone());
        self.vm.pmaps().activate(old.as_ref().map(|s| s.pmap()), Some(space.pmap()));
    }

    /// The executing CPU, `cpu`, leaves its address space.
    pub fn leave(&self, cpu: usize) {
        assert_eq!(cpu, self.cpu());
        let old = self.active.borrow_mut()[cpu].take();
        if let Some(old) = old {
            self.vm.pmaps().activate(Some(old.pmap()), None);
        }
    }

    /// The executing CPU has no more to do.
    fn retire(&self) {
        self.leave(self.cpu());
        self.vm.pmaps().retire_cpu();
    }

    /// Ends a space, on whatever CPUs it was active, and drops it. Called on CPU 0.
    pub fn exit(&self, space: AddressSpace) {
        assert_eq!(self.cpu(), 0, "only CPU 0 gives out jobs");
        space.terminate(self.t());
        for cpu in 0..self.cpus() {
            let here = self.active.borrow()[cpu].as_ref().is_some_and(|s| Arc::ptr_eq(s, &space));
            if here {
                self.on(cpu, move |rig| rig.leave(cpu));
            }
        }
        assert_eq!(Arc::strong_count(&space), 1, "this was the last reference");
    }

    /// A store by user code.
    pub fn store(&self, space: &AddressSpace, at: Va, bytes: &[u8]) -> Result<(), VmError> {
        self.store_some(space, at, bytes).1
    }

    /// A store by user code: how many bytes it stored, and what stopped it.
    pub fn store_some(&self, space: &AddressSpace, at: Va, bytes: &[u8]) -> (usize, Result<(), VmError>) {
        self.enter(space);
        let (mut done, mut retries) = (0, Retries::default());
        while let Err(stop) = self.m.store(Mode::User, at + done, &bytes[done..]) {
            done += stop.done_bytes;
            retries.again(stop.trap.va);
            if let Err(e) = self.take_fault(space, stop.trap) {
                return (done, Err(e));
            }
        }
        (bytes.len(), Ok(()))
    }

    /// A load by user code.
    pub fn load(&self, space: &AddressSpace, from: Va, len_bytes: usize) -> Result<Vec<u8>, VmError> {
        self.enter(space);
        let mut buf = vec![0xee; len_bytes];
        let (mut done, mut retries) = (0, Retries::default());
        while let Err(stop) = self.m.load(Mode::User, from + done, &mut buf[done..]) {
            done += stop.done_bytes;
            retries.again(stop.trap.va);
            self.take_fault(space, stop.trap)?;
        }
        self.execute(from, len_bytes);
        Ok(buf)
    }

    /// Where instructions are fetched, user code executes what it has loaded: what was translated for instructions must
    /// go with everything else when mappings change. A refusal says that another CPU was faster.
    fn execute(&self, at: Va, len_bytes: usize) {
        let board = self.m.board();
        if board.fetches {
            let instructions = (len_bytes as u32).div_ceil(board.instruction_bytes);
            let _ = self.m.fetch(Mode::User, at, Instructions(instructions));
        }
    }

    /// On a machine with one CPU, where nothing has come between: that user code has used the page at `at` is known of
    /// its frame.
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn check_noted(&self, space: &AddressSpace, at: Va, access: Access) {
        if self.cpus() > 1 {
            return;
        }
        let pmaps = self.vm.pmaps();
        self.m.inspect(|| {
            let (frame, _) = pmaps.extract(space.pmap(), at).expect("it was used a moment ago");
            assert!(pmaps.is_referenced(frame), "the page at {at:?} was used, and nothing noted it");
            let noted = access != Access::Write || pmaps.is_modified(frame);
            assert!(noted, "the page at {at:?} was stored to, and nothing noted it");
        });
    }

    fn take_fault(&self, space: &AddressSpace, trap: Trap) -> Result<(), VmError> {
        self.m.cross(Crossing::TrapEnter);
        let result = space.fault(self.t(), trap);
        self.m.cross(Crossing::TrapExit);
        result
    }

    /// Takes all frames but `left` out of use, until they are freed with [`Vm::free_kernel_pages`].
    pub fn hoard(&self, left: usize) -> KernelPages {
        self.vm.kernel_pages(self.vm.free_frames() - left).expect("they are free")
    }

    /// Events counted so far.
    pub fn counter(&self, counter: impl Into<Metric>) -> u64 {
        self.m.snapshot().counter(counter)
    }

    /// Checks the laws of memory.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.vm.check().unwrap_or_else(|law| panic!("a law is broken: {law}"));
    }
}

/// Threads without a scheduler: one on each CPU, which halts while the thread sleeps.
struct Halting {
    m: Model,
    /// Wakeups of each channel so far.
    woken: RefCell<BTreeMap<Channel, u64>>,
    /// The disk has interrupted, and its answers are not taken yet.
    disk: Rc<Cell<bool>>,
    vm: Weak<Vm<Model>>,
}

impl Halting {
    fn count(&self, channel: Channel) -> u64 {
        self.woken.borrow().get(&channel).copied().unwrap_or(0)
    }
}

impl Threads for Halting {
    fn sleep(
        &self,
        channel: Channel,
        _reason: &'static str,
        _interruptible: bool,
        release: &mut dyn FnMut(),
    ) -> Result<(), Interrupted> {
        let before = self.count(channel);
        release();
        while self.count(channel) == before {
            self.m.idle_until(&mut || self.count(channel) != before || self.disk.get());
            if self.disk.take() {
                self.vm.upgrade().expect("it runs").disk_interrupt(self);
            }
        }
        Ok(())
    }
    fn wakeup(&self, channel: Channel) -> usize {
        *self.woken.borrow_mut().entry(channel).or_default() += 1;
        let others = self.m.cpus().difference(CpuSet::only(self.m.cpu()));
        if !others.is_empty() {
            self.m.send_ipi(others, Interrupt::Reschedule);
        }
        others.len()
    }
    fn wakeup_one(&self, channel: Channel) -> bool {
        self.wakeup(channel) > 0
    }
    fn pin(&self) {}
    fn unpin(&self) {}
}

/// As programs are run: with paging, without caches, and as little memory as the machine does with.
pub(crate) fn with_rig(
    machine: &str,
    schedule: Schedule,
    defect: Option<Planted>,
    body: impl FnOnce(&Rig) + 'static,
) -> Result<(), String> {
    let memory_mb = if config(machine, 24).board().pointer == Width::Eight { 24 } else { 6 };
    run_with(Site { machine, memory_mb, schedule, paging: Some(PAGING), flat: true }, defect, |rig| {
        // All of memory is mapped, up to its last byte.
        let last = Pfn(rig.m.board().frames as u32 - 1);
        if let Some(va) = rig.vm.pmaps().direct_va(last) {
            rig.m.load(Mode::Kernel, va + (PAGE_SIZE - 1), &mut [0]).expect("the last frame is mapped");
        }
        body(rig);
    })
}

/// Bytes that say where they are from.
pub fn pattern(tag: u8, len: usize) -> Vec<u8> {
    /// Counts up to 250 and begins again: a prime length, so that no page is like the next.
    static RAMP: [u8; 251] = {
        let mut ramp = [0; 251];
        let mut i = 0;
        while i < ramp.len() {
            ramp[i] = i as u8;
            i += 1;
        }
        ramp
    };
    let start = RAMP.map(|b| b.wrapping_add(tag.wrapping_mul(31)));
    let mut bytes = start.repeat(len.div_ceil(start.len()));
    bytes.truncate(len);
    bytes
}
