//! Reading a machine file.

use super::machine::MachineConfig;
use super::ranges::RANGES;
use pageferry_sourced::{ConfigError, Sourced, load_extending};

/// What a machine tells in one of two ways.
const INSTEAD: [(&str, &str); 4] = [
    ("memory.latency_cycles", "memory.latency_ns"),
    ("memory.dram", "memory.stream_load_cycles"),
    ("memory.dram", "memory.stream_store_cycles"),
    ("memory.dram", "memory.writeback_cycles"),
];

impl MachineConfig {
    /// Reads the machine file called `name`, whose contents are `text`. `base_lookup` gives the contents of the files
    /// that it extends.
    ///
    /// # Errors
    /// When the file or one that it extends is not a machine, with the place of the fault.
    pub fn parse(
        name: &str,
        text: &str,
        base_lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<MachineConfig, ConfigError> {
        let check = |machine: &MachineConfig| machine.validate();
        let mut machine: MachineConfig =
            load_extending(name, text, "machine", base_lookup, &RANGES, &INSTEAD, &check)?;
        let own = || Sourced { source: "that of the CPU".into(), ..machine.cpu.clock_mhz.clone() };
        machine.memory.clock_mhz = machine.memory.clock_mhz.take().or_else(|| Some(own()));
        Ok(machine)
    }
}
