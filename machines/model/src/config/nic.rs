//! A network card, and the wire behind it: `[nic]` of a machine file.

use super::number::Number;
use pageferry_sourced::Sourced;
use serde::{Deserialize, Serialize};

/// A network card: two rings, and a link that sends and receives at the same time. What it does takes its time whatever
/// the CPU's clock is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicConfig {
    /// Bits a microsecond on the wire, each way.
    pub link_mbit_s: Number,
    /// The most bytes behind an Ethernet header.
    pub mtu_bytes: Number,
    /// Descriptors of the transmit ring.
    pub transmit_slots: Number,
    /// Descriptors of the receive ring.
    pub receive_slots: Number,
    /// Descriptors of a second receive ring, for frames of one flow that the kernel chooses. 0, or absent, where there
    /// is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_slots: Option<Number>,
    /// The most fragments that a frame is gathered from.
    pub transmit_fragments: Number,
    /// It puts the checksums of TCP and UDP into frames that it sends.
    pub transmit_checksum: Sourced<bool>,
    /// It checks the checksums of frames that arrive.
    pub receive_checksum: Sourced<bool>,
    /// It can put headers, and what is behind them, into buffers of their own.
    pub header_split: Sourced<bool>,
    /// Data of segments of one flow that it joins to one before the kernel sees it, at most: whole pages, which are
    /// filled whatever the size of a frame. 0, or absent, where it joins none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_bytes: Option<Number>,
    /// The least time between two interrupts.
    pub interrupt_gap_ns: Number,
    /// From a request on the bus to its first byte.
    pub dma_latency_ns: Number,
    /// Between the card and memory, in 10^6 bytes a second, both ways together.
    pub dma_mb_s: Number,
    /// A CPU reads a register, and waits for it.
    pub register_read_ns: Number,
    /// A CPU writes a register, and does not.
    pub register_write_ns: Number,
    /// The card does not look into caches: the CPU writes lines back before it reads them, and each of those of a frame
    /// takes this besides what memory takes for it. Absent where the card does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back_line_cycles: Option<Number>,
}
