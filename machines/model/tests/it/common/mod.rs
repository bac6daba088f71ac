//! Machines by name, runs that end well or do not, and page tables made by hand.
#![allow(dead_code, unreachable_pub)] // Each test file uses its part.

use pageferry_hal::isa::RadixFormat;
use pageferry_hal::isa::x86::I386;
use pageferry_hal::*;
use pageferry_model::{MachineConfig, Model, Options, RunError, Schedule};

pub fn config(name: &str) -> MachineConfig {
    MachineConfig::named(name).expect("it is built in")
}

/// What a mapping by hand permits.
pub const RO: Attr = Attr::empty();
pub const RW: Attr = Attr::WRITE;

/// Page tables on i386, of the kernel's addresses from 0xc0000000 on: the root at 0x1000, a leaf table for each 4 MB
/// behind it.
#[derive(Clone, Copy)]
pub struct ByHand {
    pub root: Pa,
}

const FORMAT: RadixFormat = I386;
pub const BASE: Va = Va(0xc000_0000);

impl ByHand {
    pub fn new() -> ByHand {
        ByHand { root: Pa(0x1000) }
    }

    /// Makes it what the executing CPU translates by.
    pub fn activate(self, m: &Model) {
        m.activate(Context { space: SpaceId::KERNEL, root: self.root, asid: Asid::KERNEL, keep: false });
    }

    /// The leaf table of 4 MB at `va`.
    fn table(va: Va) -> Pa {
        Pa(0x2000 + (va.0 - BASE.0) / (4 << 20) * PAGE_SIZE as u64)
    }

    /// Makes the leaf table of the 4 MB at `va`.
    pub fn grow(self, m: &Model, va: Va) {
        let upper = FORMAT.encode(Tte::page(ByHand::table(va).pfn(), RW | Attr::USER));
        m.pt_store(FORMAT.slot(self.root, va, 1), Width::Four, upper);
    }

    pub fn leaf(va: Va) -> Pa {
        FORMAT.slot(ByHand::table(va), va, 0)
    }

    /// What the entry of `va` says.
    pub fn read(m: &Model, va: Va) -> Option<Tte> {
        FORMAT.decode(m.pt_load(ByHand::leaf(va), Width::Four))
    }

    /// Maps a page that was not mapped.
    #[track_caller]
    pub fn map(m: &Model, va: Va, frame: u32, attr: Attr) {
        let new = Tte::page(Pfn(frame), attr);
        m.pt_store(ByHand::leaf(va), Width::Four, FORMAT.encode(new));
        m.mapping_changed(SpaceId::KERNEL, va.page(), None, Some(new), None);
    }

    /// Maps a page another way, or not at all; the window stays open.
    #[track_caller]
    #[must_use = "the window stays open until this is called"]
    pub fn change<'a>(m: &'a Model, va: Va, new: Option<Tte>) -> impl FnOnce() + 'a + use<'a> {
        let window = m.open_flush_window();
        let word = new.map_or(0, |tte| FORMAT.encode(tte));
        let old = FORMAT.decode(m.pt_swap(ByHand::leaf(va), Width::Four, word));
        m.mapping_changed(SpaceId::KERNEL, va.page(), old, new, Some(&window));
        move || m.close_flush_window(window)
    }

    /// Maps 4 MB at once.
    pub fn map_superpage(self, m: &Model, va: Va, frame: u32, attr: Attr) {
        let new = Tte { frame: Pfn(frame), shift: 22, attr };
        m.pt_store(FORMAT.slot(self.root, va, 1), Width::Four, FORMAT.encode(new));
        m.mapping_changed(SpaceId::KERNEL, va, None, Some(new), None);
    }
}

pub fn machine(name: &str, schedule: Schedule) -> Model {
    Model::new(&config(name), Options::new(schedule)).expect("a valid machine")
}

/// One that goes on after the use of a stale translation.
pub fn tolerant(name: &str) -> Model {
    Model::new(&config(name), Options::default().tolerate_stale()).expect("a valid machine")
}

pub fn map_by_hand(m: &Model) {
    let tables = ByHand::new();
    tables.grow(m, BASE);
    tables.activate(m);
}

pub fn run(m: &Model, boot: impl FnOnce(&Model) + 'static) {
    m.run(Box::new(move |m| {
        boot(m);
        None
    }))
    .expect("the run ends well");
    m.check().expect("the laws hold");
    m.snapshot().check().expect("the accounts balance");
}

/// What a boot context that does `work` is told, on a machine of two CPUs.
pub fn refused(work: impl FnOnce(&Model) + 'static) -> String {
    let m = machine("xeon-mp", Schedule::Timed);
    let result = m.run(Box::new(move |m| {
        work(m);
        None
    }));
    result.expect_err("it is refused").to_string()
}

/// CPU 0 runs `first`, CPU 1 `second`.
pub fn two(
    options: Options,
    first: impl FnOnce(&Model) + 'static,
    second: impl FnOnce(&Model) + 'static,
) -> (Model, Result<(), RunError>) {
    let m = Model::flat(&config("xeon-mp"), options).expect("a valid machine");
    let result = m.run(Box::new(move |m| {
        let other = m.clone();
        let entry = move || {
            second(&other);
            None
        };
        m.start_cpu(CpuId(1), m.context_new("second", Box::new(entry)));
        first(m);
        None
    }));
    (m, result)
}
