//! What is done about misses of the TLB, step by step: the words for it, and what a watch of one CPU has noted.

use pageferry_hal::{Access, Cause, CodePath, Flush, Miss, Pa, Va};

/// Something that hardware or kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
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
    Executes(CodePath),
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
pub struct Observation {
    /// What it was.
    pub doing: Action,
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

    pub(crate) fn since(self, earlier: &Spent) -> Spent {
        self.by(earlier, |a, b| a - b)
    }

    pub(crate) fn by(self, other: &Spent, both: impl Fn(u64, u64) -> u64) -> Spent {
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
    pub(crate) cpu: usize,
    pub(crate) since: Spent,
    pub(crate) steps: Vec<Observation>,
}
