//! What lies behind the caches: the costs of memory and of asking other packages, and the row that memory has open.

use super::access::Kind;
use crate::config::{MachineConfig, Number};

/// What the other packages had of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Elsewhere {
    Absent,
    Clean,
    Dirty,
}

/// Memory as the caches see it.
#[derive(Clone, Default, Debug)]
pub(super) struct Memory {
    latency_cycles: u32,
    stream_load_cycles: u32,
    stream_store_cycles: u32,
    writeback_cycles: u32,
    row_change_cycles: u32,
    transfer_cycles: u32,
    stream_transfer_cycles: u32,
    upgrade_cycles: u32,
    stream_upgrade_cycles: u32,
    /// The line that was served last.
    last_line: u64,
}

impl Memory {
    pub(super) fn new(machine: &MachineConfig) -> Memory {
        let memory = &machine.memory;
        let outside = |cycles: &Number| machine.outside_cycles(cycles) as u32;
        Memory {
            latency_cycles: machine.memory_latency_cycles() as u32,
            stream_load_cycles: outside(&memory.stream_load_cycles),
            stream_store_cycles: outside(&memory.stream_store_cycles),
            writeback_cycles: outside(&memory.writeback_cycles),
            row_change_cycles: memory.row_change_cycles.as_ref().map_or(0, outside),
            transfer_cycles: outside(&memory.transfer_cycles),
            stream_transfer_cycles: outside(&memory.stream_transfer_cycles),
            upgrade_cycles: outside(&memory.upgrade_cycles),
            stream_upgrade_cycles: outside(&memory.stream_upgrade_cycles),
            last_line: 0,
        }
    }

    /// `line` is served: what a stream pays when it comes to another row. A dependent access waits for as long every
    /// time, so its latency has it already.
    #[inline(always)]
    pub(super) fn row_change(&mut self, line: u64, kind: Kind) -> u32 {
        let follows = line == self.last_line.wrapping_add(1);
        self.last_line = line;
        if follows || kind == Kind::Latency { 0 } else { self.row_change_cycles }
    }

    /// `line` is served to a dependent access.
    pub(super) fn serves(&mut self, line: u64) {
        self.last_line = line;
    }

    /// A dirty victim is written back.
    #[inline(always)]
    pub(super) fn write_back(&mut self, line: u64, kind: Kind) -> u32 {
        let row_change = self.row_change(line, kind);
        if kind == Kind::Stream { self.writeback_cycles + row_change } else { 0 }
    }

    /// What a stream pays for a dirty victim, beside what it costs that memory changes rows for it.
    pub(super) fn write_back_cost(&self) -> u64 {
        u64::from(self.writeback_cycles)
    }

    /// A change of rows costs something. Where it does not, which line was served last does not matter.
    #[inline(always)]
    pub(super) fn has_rows(&self) -> bool {
        self.row_change_cycles > 0
    }

    /// The most that one line of a stream costs which no other package is asked for, if so many victims are written
    /// back.
    pub(super) fn max_cycles(&self, victims: u64) -> u64 {
        let line = u64::from(self.stream_load_cycles.max(self.stream_store_cycles));
        let row = u64::from(self.row_change_cycles);
        line + row + victims * (self.write_back_cost() + row)
    }

    /// The most that a line of a stream costs more where other packages are asked for it.
    pub(super) fn max_asking_cycles(&self) -> u64 {
        u64::from(self.stream_transfer_cycles.max(self.stream_upgrade_cycles))
    }

    /// A line comes from memory, or from the package that had it dirty.
    #[inline(always)]
    pub(super) fn fetch_cost(&self, elsewhere: Elsewhere, write: bool, kind: Kind) -> u32 {
        match (kind, elsewhere, write) {
            (Kind::Latency, Elsewhere::Dirty, _) => self.transfer_cycles,
            (Kind::Latency, _, _) => self.latency_cycles,
            (Kind::Stream, Elsewhere::Dirty, _) => self.stream_transfer_cycles,
            (Kind::Stream, _, false) => self.stream_load_cycles,
            (Kind::Stream, _, true) => self.stream_store_cycles,
        }
    }

    /// A store that no level takes in.
    pub(super) fn store_cost(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Latency => self.latency_cycles,
            Kind::Stream => self.stream_store_cycles,
        }
    }

    /// The other packages are asked for their copies.
    pub(super) fn upgrade_cost(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Latency => self.upgrade_cycles,
            Kind::Stream => self.stream_upgrade_cycles,
        }
    }
}
