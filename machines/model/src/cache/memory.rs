//! What lies behind the caches: the costs of memory and of asking other packages.

use super::access::Kind;
use super::dram::Dram;
use crate::config::{MachineConfig, Number};

/// What the other packages had of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Snoop {
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
    /// What streams cost instead of these three, where the machine's file has the parts of it.
    dram: Option<Dram>,
    transfer_cycles: u32,
    stream_transfer_cycles: u32,
    upgrade_cycles: u32,
    stream_upgrade_cycles: u32,
}

impl Memory {
    pub(super) fn new(machine: &MachineConfig) -> Memory {
        let memory = &machine.memory;
        let outside = |cycles: &Number| machine.outside_cycles(cycles) as u32;
        let told = |cycles: &Option<Number>| cycles.as_ref().map_or(0, outside);
        Memory {
            latency_cycles: machine.memory_latency_cycles() as u32,
            stream_load_cycles: told(&memory.stream_load_cycles),
            stream_store_cycles: told(&memory.stream_store_cycles),
            writeback_cycles: told(&memory.writeback_cycles),
            dram: memory.dram.as_ref().map(|dram| Dram::new(machine, dram)),
            transfer_cycles: outside(&memory.transfer_cycles),
            stream_transfer_cycles: outside(&memory.stream_transfer_cycles),
            upgrade_cycles: outside(&memory.upgrade_cycles),
            stream_upgrade_cycles: outside(&memory.stream_upgrade_cycles),
        }
    }

    /// Memory's chips, where it matters in which order they are asked for lines, and when.
    #[inline(always)]
    pub(super) fn dram(&mut self) -> Option<&mut Dram> {
        self.dram.as_mut()
    }

    /// The CPU goes on for so many cycles without memory.
    #[inline(always)]
    pub(super) fn passes(&mut self, cycles: u32) {
        if let Some(dram) = &mut self.dram {
            dram.passes(cycles);
        }
    }

    /// A line is read. Gives what that costs.
    #[inline(always)]
    pub(super) fn read(&mut self, line: u64, write: bool, kind: Kind) -> u32 {
        if let Some(dram) = &mut self.dram {
            match kind {
                Kind::Latency => dram.is_waited_for(line, self.latency_cycles),
                Kind::Stream => return dram.miss(line, write),
            }
        }
        self.fetch_cost(Snoop::Absent, write, kind)
    }

    /// A dirty victim is written back.
    #[inline(always)]
    pub(super) fn write_back(&mut self, line: u64, kind: Kind) -> u32 {
        if let Some(dram) = &mut self.dram {
            return dram.write_back(line, kind);
        }
        if kind == Kind::Stream { self.writeback_cycles } else { 0 }
    }

    /// What a stream pays at once for a dirty victim.
    pub(super) fn write_back_cost(&self) -> u64 {
        u64::from(self.writeback_cycles)
    }

    /// The most that one line of a stream costs which no other package is asked for, if so many victims are written
    /// back.
    pub(super) fn max_cycles(&self, victims: u64) -> u64 {
        let line = u64::from(self.stream_load_cycles.max(self.stream_store_cycles));
        line + victims * self.write_back_cost()
            + self.dram.as_ref().map_or(0, |dram| dram.max_cycles(victims))
    }

    /// The most that a line of a stream costs more where other packages are asked for it.
    pub(super) fn max_asking_cycles(&self) -> u64 {
        u64::from(self.stream_transfer_cycles.max(self.stream_upgrade_cycles))
    }

    /// A line comes from memory, or from the package that had it dirty. A stream from a [`Dram`] pays there.
    #[inline(always)]
    pub(super) fn fetch_cost(&self, elsewhere: Snoop, write: bool, kind: Kind) -> u32 {
        match (kind, elsewhere, write) {
            (Kind::Latency, Snoop::Dirty, _) => self.transfer_cycles,
            (Kind::Latency, _, _) => self.latency_cycles,
            (Kind::Stream, Snoop::Dirty, _) => self.stream_transfer_cycles,
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
