//! Memory's chips behind a bus: one request after the other, and a CPU that does not wait for all of them.
//!
//! What is held is how long the chips are still busy while the CPU goes on, and the line that they served last. A miss
//! is on its way to the chips and back, and occupies them in between; only the second part excludes others. So many
//! loads, and so many stores, may be under way at once. A store at a time waits for all of its miss, but the way is
//! hidden while the chips are busy with what was before it. Loads that overlap wait only until the chips have come to
//! them: the last one is still under way when the CPU goes on. A victim that is written back occupies the chips, and
//! the CPU waits for it when it misses the next line, or when as many others are on their way.
//!
//! What a CPU does between two streams is not seen here, but for what it loads and stores: the chips may be said to be
//! busy a line or two longer than they are.

use super::access::Kind;
use crate::config::{DramConfig, MachineConfig};

#[derive(Clone, Debug)]
pub(super) struct Dram {
    /// A miss's way without the chips.
    way_cycles: u32,
    /// A line that follows the last one occupies the chips so long.
    line_cycles: u32,
    /// Any other, so much longer.
    row_cycles: u32,
    max_load_misses: u32,
    max_store_misses: u32,
    /// With more to do before them, dirty lines have to wait.
    max_busy_cycles: u32,
    last_line: u64,
    /// The chips have still so much to do.
    busy_cycles: u32,
}

impl Dram {
    pub(super) fn new(machine: &MachineConfig, dram: &DramConfig) -> Dram {
        Dram {
            way_cycles: machine.dram_way_cycles(dram) as u32,
            line_cycles: machine.dram_line_cycles(dram) as u32,
            row_cycles: machine.dram_row_cycles(dram) as u32,
            max_load_misses: dram.max_load_misses.value as u32,
            max_store_misses: dram.max_store_misses.value as u32,
            max_busy_cycles: (dram.max_write_backs.value
                * (machine.dram_line_cycles(dram) + machine.dram_row_cycles(dram)))
                as u32,
            last_line: 0,
            busy_cycles: 0,
        }
    }

    /// How long a line occupies the chips.
    #[inline]
    fn occupies(&mut self, line: u64) -> u32 {
        let follows = line == self.last_line.wrapping_add(1);
        self.last_line = line;
        if follows { self.line_cycles } else { self.line_cycles + self.row_cycles }
    }

    /// A stream misses a line. Gives how long the CPU waits.
    #[inline]
    pub(super) fn miss(&mut self, line: u64, write: bool) -> u32 {
        let occupied = self.occupies(line);
        let alone = self.busy_cycles.max(self.way_cycles) + occupied;
        let at_once = if write { self.max_store_misses } else { self.max_load_misses };
        let waits = self.busy_cycles.max(alone.div_ceil(at_once));
        self.busy_cycles = (self.busy_cycles + occupied).saturating_sub(waits);
        waits
    }

    /// A dirty victim is written back. Gives how long the CPU waits. A single access leaves its victim to the write
    /// buffer.
    #[inline]
    pub(super) fn write_back(&mut self, line: u64, kind: Kind) -> u32 {
        let occupied = self.occupies(line);
        if kind == Kind::Latency {
            return 0;
        }
        let waits = (self.busy_cycles + occupied).saturating_sub(self.max_busy_cycles);
        self.busy_cycles += occupied - waits;
        waits
    }

    /// A line is read for a single access, which takes as long every time.
    #[inline]
    pub(super) fn is_waited_for(&mut self, line: u64, cycles: u32) {
        self.last_line = line;
        self.passes(cycles);
    }

    /// The CPU goes on for so many cycles.
    #[inline(always)]
    pub(super) fn passes(&mut self, cycles: u32) {
        self.busy_cycles = self.busy_cycles.saturating_sub(cycles);
    }

    /// The most that a line costs: the chips have all to do that they may have, and its victims find no room.
    pub(super) fn max_cycles(&self, victims: u64) -> u64 {
        let line = u64::from(self.line_cycles + self.row_cycles);
        u64::from(self.max_busy_cycles + self.way_cycles) + (1 + victims) * line
    }
}
