//! What a process has of its own beside what a workload is about: text that it fetches, a stack, and data.
//!
//! A workload is a closure: without an image its processes fetch nothing and have no stack, so that on a machine where
//! TLB entries are scarce none of theirs is ever in another's way. [`Image::run`] works in one: it goes through all of
//! the text's pages, a function on each, which has a frame on the stack and looks at a word of data.
//!
//! A [`Misses`] counts whose accesses missed the TLB, at no modelled cost: those to the process's own memory, and those
//! to memory that came from others. Misses of instruction fetches are among the first.
//!
//! What can fail: mapping the image.

use pageferry_hal::{Instructions, Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::User;
use pageferry_model::Model;
use pageferry_vm::Inherit;
use pageferry_workloads::{CallError, named};
use std::cell::Cell;
use std::rc::Rc;

/// Bytes of a function's frame on the stack, and of what it looks at in the data.
const FRAME_BYTES: usize = 32;
const WORD_BYTES: usize = 8;
/// Functions do not all begin at the same place of their pages, where one cache set would hold them all.
const APART_BYTES: usize = 352;

/// How large a process is, in pages; its stack is one more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageSize {
    pub(crate) text: usize,
    pub(crate) data: usize,
}

impl ImageSize {
    /// With the stack.
    pub(crate) fn bytes(self) -> usize {
        (self.text + self.data + 1) * PAGE_SIZE
    }
}

/// TLB misses of one process, in what is measured.
#[derive(Default)]
pub(crate) struct Misses {
    own: Cell<u64>,
    others: Cell<u64>,
}

impl Misses {
    /// Of accesses to the process's own memory.
    pub(crate) fn own(&self) -> u64 {
        self.own.get()
    }

    /// Of accesses to what came from others.
    pub(crate) fn others(&self) -> u64 {
        self.others.get()
    }
}

/// A process's image; all clones are one.
#[derive(Clone)]
pub(crate) struct Image {
    at: Va,
    size: ImageSize,
    misses: Rc<Misses>,
    measuring: Rc<Cell<bool>>,
}

impl Image {
    /// Maps an image for the calling process. Its misses are counted in `misses`, as long as `measuring`.
    pub(crate) fn load(
        user: &User<Model>,
        size: ImageSize,
        (misses, measuring): (&Rc<Misses>, &Rc<Cell<bool>>),
    ) -> Result<Image, CallError> {
        let prot = Prot::RW | Prot::EXECUTE;
        let at = user.map(size.bytes(), prot, Inherit::Copy).map_err(named("map the process's image"))?;
        (0..size.bytes()).step_by(PAGE_SIZE).for_each(|page| user.store(at + page, &[1]));
        Ok(Image { at, size, misses: misses.clone(), measuring: measuring.clone() })
    }

    /// Executes so many instructions of the text, on each of its pages as many: more than a page has are a loop there.
    pub(crate) fn run(&self, user: &User<Model>, instructions: u32) {
        self.count(user, &self.misses.own, || {
            let pages = self.size.text;
            let instruction_bytes = user.machine().board().instruction_bytes as usize;
            for page in 0..pages {
                let part = instructions / pages as u32 + u32::from(page == 0) * (instructions % pages as u32);
                let place = page * APART_BYTES % (PAGE_SIZE / 2);
                let depth_bytes = (page % (PAGE_SIZE / FRAME_BYTES) + 1) * FRAME_BYTES;
                let frame = self.at + (self.size.bytes() - depth_bytes);
                user.store(frame, &[1; FRAME_BYTES]);
                let at = self.at + page * PAGE_SIZE + place;
                loop_at(user, at, part, ((PAGE_SIZE - place) / instruction_bytes) as u32);
                if self.size.data > 0 {
                    let data = self.size.text + page % self.size.data;
                    user.load(self.at + data * PAGE_SIZE + place, &mut [0; WORD_BYTES]);
                }
                user.load(frame, &mut [0; FRAME_BYTES]);
            }
        });
    }

    /// Does something to memory that came from others.
    pub(crate) fn of_others<R>(&self, user: &User<Model>, work: impl FnOnce() -> R) -> R {
        self.count(user, &self.misses.others, work)
    }

    fn count<R>(&self, user: &User<Model>, into: &Cell<u64>, work: impl FnOnce() -> R) -> R {
        if !self.measuring.get() {
            return work();
        }
        let before = misses_so_far(user.machine());
        let result = work();
        into.set(into.get() + misses_so_far(user.machine()) - before);
        result
    }
}

/// All TLB misses of a machine, of data and of instructions.
pub(crate) fn misses_so_far(model: &Model) -> u64 {
    let hardware = model.snapshot().hardware;
    hardware.tlb_misses + hardware.fetch_misses
}

/// Executes instructions at an address, of which there are `max` before the first comes again.
fn loop_at(user: &User<Model>, at: Va, instructions: u32, max: u32) {
    let rest = instructions % max;
    (0..instructions / max).for_each(|_| user.execute_at(at, Instructions(max)));
    if rest > 0 || instructions == 0 {
        user.execute_at(at, Instructions(rest));
    }
}
