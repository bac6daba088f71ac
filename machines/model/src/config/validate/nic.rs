//! What no network card could be.

use super::checks::fault;
use crate::config::machine::MachineConfig;
use pageferry_sourced::Fault;

impl MachineConfig {
    pub(super) fn validate_nic(&self) -> Result<(), Fault> {
        let Some(nic) = &self.nic else { return Ok(()) };
        let (fragments, slots) = (nic.transmit_fragments.value, nic.transmit_slots.value);
        if fragments > slots {
            return fault(
                "nic.transmit_fragments",
                format!("{fragments}, expected no more than the {slots} descriptors of the ring"),
            );
        }
        Ok(())
    }
}
