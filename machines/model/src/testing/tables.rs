//! Page tables by hand, for a test that needs mappings and is not about page tables.
//!
//! One address space, on a machine that walks page tables of any depth. Frames for the tables are taken one after the
//! other, from a first one on, which is the test's to choose; none is given back. What is mapped is declared to the
//! oracle; what is to be invalidated, and where, is for the caller to see to.

use crate::machine::Model;
use pageferry_hal::isa::RadixFormat;
use pageferry_hal::{Asid, Attr, Context, Machine, Mmu, Oracle, Pa, Pfn, SpaceId, Tte, Va};
use std::cell::Cell;

/// Page tables of the kernel's space.
///
/// ```
/// use pageferry_model::prelude::*;
///
/// let machine = MachineConfig::named("xeon-mp").expect("it is built in");
/// testing::seeds(&machine, Options::default(), 0..10, |m| {
///     let tables = Tables::new(m, Pfn(1));
///     tables.map(Va(0xc000_0000), Pfn(100), Attr::WRITE);
///     tables.activate();
///     m.store(Mode::Kernel, Va(0xc000_0000), b"a first page").expect("it is mapped");
///     None
/// });
/// ```
pub struct Tables {
    m: Model,
    format: RadixFormat,
    root: Pa,
    /// The next frame for a table.
    next: Cell<Pfn>,
}

impl Tables {
    /// No page is mapped. The root is in the frame `first`, and further tables in those behind it.
    ///
    /// # Panics
    /// When the machine walks no page tables: there is a hash table, or software loads the TLB.
    pub fn new(m: &Model, first: Pfn) -> Tables {
        let Mmu::Radix(format) = m.board().mmu else {
            panic!("this machine does not walk page tables: {:?}", m.board().mmu);
        };
        let tables = Tables { m: m.clone(), format, root: first.pa(), next: Cell::new(first) };
        tables.new_table();
        tables
    }

    /// Makes them what the executing CPU translates by.
    pub fn activate(&self) {
        let context = Context { space: SpaceId::KERNEL, root: self.root, asid: Asid::KERNEL, keep: false };
        self.m.activate(context);
    }

    /// Maps a page that was not mapped.
    ///
    /// # Panics
    /// When it was: [`Tables::change`] is for that.
    #[track_caller]
    pub fn map(&self, va: Va, frame: Pfn, attr: Attr) {
        let new = Tte::page(frame, attr);
        let slot = self.slot(va);
        let old = self.format.decode(self.m.pt_swap(slot, self.format.width, self.format.encode(new)));
        assert_eq!(old, None, "{va:?} is mapped already");
        self.m.mapping_changed(SpaceId::KERNEL, va.page(), None, Some(new), None);
    }

    /// Maps a page another way, or not at all, and has it invalidated within the window of that change.
    #[track_caller]
    pub fn change(&self, va: Va, new: Option<Tte>, invalidate: impl FnOnce()) {
        let window = self.m.open_flush_window();
        let word = new.map_or(0, |tte| self.format.encode(tte));
        let old = self.format.decode(self.m.pt_swap(self.slot(va), self.format.width, word));
        self.m.mapping_changed(SpaceId::KERNEL, va.page(), old, new, Some(&window));
        invalidate();
        self.m.close_flush_window(window);
    }

    /// What the entry of a page says.
    pub fn read(&self, va: Va) -> Option<Tte> {
        self.format.decode(self.m.pt_load(self.slot(va), self.format.width))
    }

    /// Where the entry of a page lies; the tables that lead there are made.
    pub fn slot(&self, va: Va) -> Pa {
        let mut table = self.root;
        for level in (1..self.format.levels).rev() {
            let slot = self.format.slot(table, va, level);
            let lower = self.format.decode(self.m.pt_load(slot, self.format.width));
            let lower = lower.map_or_else(
                || {
                    // A page below may be anything: the leaf decides.
                    let made = Tte::page(self.new_table(), Attr::WRITE | Attr::USER);
                    self.m.pt_store(slot, self.format.width, self.format.encode(made));
                    made.frame
                },
                |tte| tte.frame,
            );
            table = lower.pa();
        }
        self.format.slot(table, va, 0)
    }

    fn new_table(&self) -> Pfn {
        let frame = self.next.get();
        assert!(frame.index() < self.m.board().frames, "no frame is left for a table");
        self.next.set(Pfn(frame.0 + 1));
        self.m.pt_clear(frame.pa());
        frame
    }
}
