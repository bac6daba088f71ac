//! What no network card could be.

use super::checks::fault;
use crate::config::machine::MachineConfig;
use pageferry_hal::PAGE_SIZE;
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
        let coalesced = nic.coalesce_bytes.as_ref().map_or(0, |n| n.value as usize);
        if !coalesced.is_multiple_of(PAGE_SIZE) {
            return fault(
                "nic.coalesce_bytes",
                format!("{coalesced}, expected whole pages of {PAGE_SIZE} bytes, or 0"),
            );
        }
        if coalesced > 0 && !(nic.header_split.value && nic.receive_checksum.value) {
            return fault(
                "nic.coalesce_bytes",
                format!("{coalesced}, expected a card with header_split and receive_checksum, or 0"),
            );
        }
        let needed = 1 + coalesced / PAGE_SIZE;
        if nic.receive_slots.value < needed as u64 {
            return fault(
                "nic.receive_slots",
                format!(
                    "{}, expected the {needed} descriptors of one frame, or more",
                    nic.receive_slots.value
                ),
            );
        }
        Ok(())
    }
}
