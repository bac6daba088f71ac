//! A machine with a pmap and nothing above: CPU 0 runs the test, the others do what it tells them.
//!
//! Small machines are made from one of each kind, with as many packages of one CPU as a test wants and little memory.
//! No test depends on what anything costs.
#![allow(dead_code, unreachable_pub)] // Each test file uses its part.

use pageferry_hal::*;
use pageferry_model::testing::{Workers, assert_sound, choices, small};
use pageferry_model::{Model, Options, RunError, Schedule, Snapshot};
use pageferry_pmap::{
    FrameSource, Invalidations, KernelMapping, Planted, Pmap, PmapConfig, PmapCounter, PmapDefect, PmapError,
    PmapPaths, Pmaps, RefillConfig, RefillPaths,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

pub const PATHS: PmapPaths = PmapPaths {
    enter: CodePath::of(100),
    remove: CodePath::of(100),
    kenter: CodePath::of(10),
    shootdown_send: CodePath::of(50),
    shootdown_handle: CodePath::of(30),
};

pub const CONFIG: PmapConfig = PmapConfig {
    refill: RefillConfig {
        paths: RefillPaths { direct: CodePath::of(40), ..RefillPaths::all(CodePath::of(20)) },
        ..RefillConfig::NONE
    },
    ..PmapConfig::new(1 << 20, PATHS)
};

/// What a test runs on.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name; what follows a `+` is a choice of the kernel.
    pub machine: &'static str,
    pub cpus: usize,
    pub ranged: bool,
    /// More user pages in one flush are invalidated with all of their space.
    pub full_flush_pages: usize,
    pub schedule: Schedule,
    pub size_mb: u64,
    /// Bits of tags, instead of the machine file's.
    pub asid_bits: Option<u64>,
    /// Its devices have memory, if the machine file says so. Without, what the kernel maps page by page begins with its
    /// own pages.
    pub devices: bool,
    pub mapping: KernelMapping,
    pub defect: Planted<PmapDefect>,
}

impl Shape {
    pub fn new(machine: &'static str, cpus: usize) -> Shape {
        Shape {
            machine,
            cpus,
            ranged: true,
            full_flush_pages: CONFIG.full_flush_pages,
            schedule: Schedule::Timed,
            size_mb: 64,
            asid_bits: None,
            devices: false,
            mapping: KernelMapping::Board,
            defect: Planted::NONE,
        }
    }
}

/// Goes on after the use of a stale translation, of which [`run`] tells.
pub fn machine(shape: Shape) -> Model {
    let mut config = small(&format!("{}:{}", shape.machine, shape.cpus), shape.size_mb);
    config.io = config.io.filter(|_| shape.devices);
    if let (Some(bits), Some(of)) = (shape.asid_bits, &mut config.mmu.asid_bits) {
        of.value = bits;
    }
    Model::new(&config, Options::new(shape.schedule).tolerate_stale()).expect("a valid machine")
}

/// Why a pmap does not come up on this machine, if it does not.
pub fn refused(shape: Shape, config: PmapConfig) -> Option<PmapError> {
    let m = machine(shape);
    let refused = Rc::new(Cell::new(None));
    let out = refused.clone();
    m.run(Box::new(move |m| {
        out.set(Pmaps::bootstrap(m.clone(), config).err());
        None
    }))
    .unwrap();
    refused.get()
}

/// Free frames, last given first taken; refuses a frame that it did not hand out.
pub struct Frames {
    free: RefCell<Vec<Pfn>>,
    out: RefCell<BTreeSet<Pfn>>,
    pub limit: Cell<usize>,
}

impl Frames {
    fn new(first: Pfn, frames: usize) -> Frames {
        let free = (first.0..frames as u32).rev().map(Pfn).collect();
        Frames { free: RefCell::new(free), out: RefCell::default(), limit: Cell::new(usize::MAX) }
    }
    /// Frames that are out.
    pub fn out(&self) -> usize {
        self.out.borrow().len()
    }
    /// A frame for data.
    pub fn data(&self) -> Pfn {
        self.take().expect("enough frames")
    }
}

impl FrameSource for Frames {
    fn take(&self) -> Option<Pfn> {
        if self.out() >= self.limit.get() {
            return None;
        }
        let frame = self.free.borrow_mut().pop()?;
        assert!(self.out.borrow_mut().insert(frame), "{frame:?} is out twice");
        Some(frame)
    }
    fn give(&self, frame: Pfn) {
        assert!(self.out.borrow_mut().remove(&frame), "{frame:?} was not out");
        self.free.borrow_mut().push(frame);
    }
}

/// What may be done again and again.
pub type Work = Rc<dyn Fn(&Kernel)>;

/// What a test has.
pub struct Kernel {
    pub m: Model,
    pub pmaps: Pmaps<Model>,
    pub frames: Frames,
    pub kva: VaRange,
    pub first_free: Pfn,
    workers: Rc<Workers<Rc<Kernel>>>,
    /// How deep refill handlers were nested at most.
    pub deepest: Cell<u32>,
    /// What is done when the timer interrupts.
    pub on_timer: RefCell<Option<Work>>,
}

impl Kernel {
    fn boot(m: &Model, mut config: PmapConfig) -> Rc<Kernel> {
        let mut text = Text::new(&m.board());
        let place = &mut |path: &mut CodePath| text.place(path);
        config.paths.each_mut(place);
        config.refill.paths.each_mut(place);
        let (pmaps, mut boot) = Pmaps::bootstrap(m.clone(), config).expect("bootstrap");
        let frames = Frames::new(boot.first_free, m.board().frames);
        let k = Rc::new(Kernel {
            m: m.clone(),
            pmaps,
            frames,
            kva: boot.kva,
            first_free: boot.first_free,
            workers: Workers::new(m),
            deepest: Cell::new(0),
            on_timer: RefCell::default(),
        });
        let refiller = k.clone();
        m.set_refill(Box::new(move |miss| {
            refiller.deepest.set(refiller.deepest.get().max(refiller.m.refill_depth()));
            refiller.pmaps.handle_miss(miss)
        }));
        k.pmaps.init_cpu();
        if m.board().fetches {
            m.set_text(boot.arena.array("text", text.len_bytes(), 1).expect("a page or two"));
        }
        let h = k.clone();
        m.set_interrupt_handler(Box::new(move |interrupt| match interrupt {
            Interrupt::Shootdown => h.pmaps.handle_shootdown(),
            Interrupt::Timer => {
                let work = h.on_timer.borrow().clone();
                work.into_iter().for_each(|work| work(&h));
            }
            _ => {}
        }));
        k
    }

    /// Gives `cpu` something to do, and does not wait.
    pub fn start(&self, cpu: usize, job: impl FnOnce(&Kernel) + 'static) {
        self.workers.start(cpu, move |k| job(k));
    }

    /// Waits until the other CPUs have done what they were given.
    pub fn wait(&self) {
        self.workers.wait_for_all();
    }

    /// Maps a frame in an address space.
    pub fn enter(&self, pmap: &Pmap<Model>, va: Va, frame: Pfn, prot: Prot) {
        self.pmaps.enter(&self.frames, pmap, va, frame, prot, false).expect("frames").flush(&self.pmaps);
    }

    /// Ends an address space, whatever it maps.
    pub fn destroy(&self, pmap: Pmap<Model>) {
        let layout = self.m.board().layout;
        let all = VaRange::new(layout.user_start, layout.user_end.min(Va(0xbfc0_0000)));
        self.pmaps.remove(&pmap, all).flush(&self.pmaps);
        self.pmaps.destroy(&self.frames, pmap);
    }

    /// Does something on `cpu`, and waits.
    pub fn on(&self, cpu: usize, job: impl FnOnce(&Kernel) + 'static) {
        if cpu == self.m.cpu().index() {
            return job(self);
        }
        self.workers.on(cpu, move |k| job(k));
    }

    /// What is counted while `work` runs.
    pub fn counted(&self, work: impl FnOnce()) -> Snapshot {
        let before = self.m.snapshot();
        work();
        self.m.snapshot().since(&before)
    }

    /// What flushing adds to the counters; it has to say so itself.
    pub fn flushed(&self, flush: impl FnOnce() -> Invalidations) -> Snapshot {
        let mut issued = Invalidations::NONE;
        let counted = self.counted(|| issued = flush());
        let local = counted.counter(PmapCounter::TlbInvalidationsLocal);
        let remote = counted.counter(PmapCounter::TlbInvalidationsRemoteIssued);
        assert_eq!(issued, Invalidations { local, remote }, "what the flush says of itself");
        counted
    }

    pub fn load(&self, mode: Mode, va: Va) -> Result<u8, CopyFault> {
        let mut byte = [0];
        self.m.load(mode, va, &mut byte)?;
        Ok(byte[0])
    }

    /// Writes a byte into a frame, past all translations of the test.
    pub fn mark(&self, frame: Pfn, byte: u8) {
        let page = self.kva.end().0 - PAGE_SIZE as u64 * (1 + self.m.cpu().0 as u64);
        let change = self.pmaps.kenter(Va(page), &[frame], Prot::RW);
        change.flush_local(&self.pmaps);
        self.m.store(Mode::Kernel, Va(page), &[byte]).expect("mapped");
        self.pmaps.kremove(VaRange::page(Va(page))).flush_local(&self.pmaps);
    }
}

/// Local invalidations, pages asked of others, shootdowns, interrupts for them.
pub fn invalidations(s: &Snapshot) -> [u64; 4] {
    [
        PmapCounter::TlbInvalidationsLocal,
        PmapCounter::TlbInvalidationsRemoteIssued,
        PmapCounter::Shootdowns,
        PmapCounter::ShootdownIpis,
    ]
    .map(|c| s.counter(c))
}

/// Runs `test` on CPU 0 with the other CPUs waiting; the machine's laws hold at the end, but for stale uses.
pub fn try_run(shape: Shape, test: impl FnOnce(&Rc<Kernel>) + 'static) -> (Model, Result<(), RunError>) {
    let m = machine(shape);
    let mut config = PmapConfig {
        ranged_shootdown: shape.ranged,
        full_flush_pages: shape.full_flush_pages,
        mapping: shape.mapping,
        defect: shape.defect,
        ..CONFIG
    };
    for word in choices(shape.machine) {
        assert!(config.choose(word), "{shape:?}: no kernel has a choice called {word}");
    }
    let result = m.run(Box::new(move |m| {
        let k = Kernel::boot(m, config);
        k.workers.start_cpus(&k, |k| k.pmaps.init_cpu(), |k| k.pmaps.retire_cpu());
        k.workers.wait_until_ready();
        test(&k);
        k.wait();
        k.workers.dismiss();
        None
    }));
    (m, result)
}

/// As [`try_run`]; the run ends well, and no stale translation was used.
pub fn run(shape: Shape, test: impl FnOnce(&Rc<Kernel>) + 'static) -> Model {
    let (m, result) = try_run(shape, test);
    if let Err(e) = result {
        panic!("{shape:?}: {e}");
    }
    assert_sound(&m, &format!("{shape:?}"));
    m
}

/// Hardware walks page tables, of two levels and of four.
pub const RADIX: [&str; 2] = ["xeon-up", "opteron-mp"];
pub const I386: &str = RADIX[0];
/// A machine of each kind.
pub const ALL: [&str; 6] = ["xeon-up", "opteron-mp", "today+tags", "mini-soft", "mini-hash", "mini-blocks"];

/// Every shape with 1 to 4 CPUs.
pub fn shapes() -> impl Iterator<Item = Shape> {
    ALL.into_iter().flat_map(|machine| (1..=4).map(move |cpus| Shape::new(machine, cpus)))
}
