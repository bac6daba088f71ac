//! What is done about misses of the TLB, step by step: for lessons, which follow one miss to its end.
//!
//! Nothing is kept unless [`Model::watch`] asks for it. A step stands when it is over, and has all that was spent since
//! the step before: so the steps of a watch leave nothing out.

use crate::hw::Hw;
use crate::machine::Model;
use pageferry_hal::{Access, Cause, Flush, Miss, Pa, Path, Va};

/// Something that hardware or kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Hardware has looked through a group of the hash table.
    Looks {
        /// The address that it looks for.
        va: Va,
        /// It is the secondary group of the page.
        secondary: bool,
        /// Entries that it looked at.
        entries: u32,
        /// The last of them is the page's.
        found: bool,
    },
    /// The kernel's refill handler was called.
    Misses(Miss),
    /// It has returned.
    Returns,
    /// The kernel has executed a path.
    Executes(Path),
    /// It has read an entry of a table, by its physical address.
    Reads(Pa),
    /// It has written one.
    Writes(Pa),
    /// It has accessed a structure, by its virtual address.
    Touches(Va, Access),
    /// It has taken a lock, or released it.
    Locks,
    /// It has loaded the TLB for this page.
    LoadsTlb(Va),
    /// It has invalidated.
    Flushes(Flush),
    /// Anything else, up to the end of the watch.
    Rest,
}

/// A step, and what was spent in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// What it was.
    pub doing: Doing,
    /// How many refill handlers were at work, each within the other.
    pub depth: u32,
    /// What was spent.
    pub spent: Spent,
}

/// What was spent between two moments by one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Cycles, by cause.
    pub cycles: [u64; Cause::COUNT],
    /// Instructions.
    pub instructions: u64,
    /// Accesses to memory, in lines; instructions apart.
    pub accesses: u64,
    /// Lines that came into the first-level cache for data.
    pub data_lines: u64,
    /// Lines that came into the instruction cache.
    pub instruction_lines: u64,
    /// Lines that were read from memory, for either.
    pub memory_lines: u64,
}

impl Spent {
    /// This and `more`.
    pub fn and(self, more: &Spent) -> Spent {
        self.by(more, |a, b| a + b)
    }

    fn since(self, earlier: &Spent) -> Spent {
        self.by(earlier, |a, b| a - b)
    }

    fn by(self, other: &Spent, both: impl Fn(u64, u64) -> u64) -> Spent {
        Spent {
            cycles: std::array::from_fn(|i| both(self.cycles[i], other.cycles[i])),
            instructions: both(self.instructions, other.instructions),
            accesses: both(self.accesses, other.accesses),
            data_lines: both(self.data_lines, other.data_lines),
            instruction_lines: both(self.instruction_lines, other.instruction_lines),
            memory_lines: both(self.memory_lines, other.memory_lines),
        }
    }
}

/// A watch of one CPU.
pub(crate) struct Watch {
    cpu: usize,
    since: Spent,
    steps: Vec<Watched>,
}

impl Hw {
    /// Something was done: a step, if that is watched.
    #[inline(always)]
    pub(crate) fn did(&mut self, cpu: usize, doing: Doing) {
        if self.watch.as_ref().is_some_and(|watch| watch.cpu == cpu) {
            self.note_step(doing);
        }
    }

    #[cold]
    fn note_step(&mut self, doing: Doing) {
        let Some(mut watch) = self.watch.take() else { return };
        let now = self.spent(watch.cpu);
        let depth = self.cpus[watch.cpu].refills;
        watch.steps.push(Watched { doing, depth, spent: now.since(&watch.since) });
        watch.since = now;
        self.watch = Some(watch);
    }

    fn spent(&mut self, cpu: usize) -> Spent {
        let package = self.cpus[cpu].package;
        let stats = self.caches.as_mut().map(|caches| caches.live().stats()).unwrap_or_default();
        let data = stats.levels.get(package).and_then(|levels| levels.first());
        Spent {
            cycles: self.snapshot().cycles[cpu],
            instructions: self.counts.instructions,
            accesses: self.counts.accesses,
            data_lines: data.map_or(0, |level| level.fills),
            instruction_lines: stats.instruction.get(package).map_or(0, |cache| cache.fills),
            memory_lines: stats.packages.get(package).map_or(0, |p| p.memory_reads),
        }
    }
}

impl Model {
    /// Watches what the executing CPU does about misses, until [`Model::take_watched`]. The other CPUs are to be at
    /// rest: accesses and instructions are those of all.
    pub fn watch(&self) {
        let cpu = self.0.cpu();
        let mut hw = self.0.hw.borrow_mut();
        let since = hw.spent(cpu);
        hw.watch = Some(Box::new(Watch { cpu, since, steps: Vec::new() }));
    }

    /// The steps since [`Model::watch`], the last of which is the rest; the watch ends.
    pub fn take_watched(&self) -> Vec<Watched> {
        let mut hw = self.0.hw.borrow_mut();
        hw.note_step(Doing::Rest);
        hw.watch.take().map_or(Vec::new(), |watch| watch.steps)
    }

    /// Entries in both TLBs of the executing CPU's core, and those of them that the kernel's addresses have.
    pub fn kernel_tlb_entries(&self) -> (usize, usize) {
        let cpu = self.0.cpu();
        self.0.hw.borrow_mut().live_and_kernels(cpu)
    }
}
