//! What no network card could be.

use super::checks::fault;
use crate::config::machine::MachineConfig;
use pageferry_hal::{ETHERNET_HEADER_BYTES, PAGE_SIZE};
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
        let frame_pages = (ETHERNET_HEADER_BYTES + nic.mtu_bytes.value as usize).div_ceil(PAGE_SIZE);
        let needed = usize::from(nic.header_split.value) + frame_pages.max(coalesced / PAGE_SIZE);
        let flow_slots = nic.flow_slots.as_ref().map_or(0, |n| n.value);
        for (key, slots) in [("nic.receive_slots", nic.receive_slots.value), ("nic.flow_slots", flow_slots)] {
            if (1..needed as u64).contains(&slots) {
                return fault(
                    key,
                    format!("{slots}, expected the {needed} descriptors that a frame takes, or more"),
                );
            }
        }
        Ok(())
    }
}
