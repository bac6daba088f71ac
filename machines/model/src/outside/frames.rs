//! Frames on the wire: how long they are, and how long they take.

use crate::params::NicParams;
use pageferry_hal::ETHERNET_MIN_BYTES;

/// Makes a frame as long as a frame has to be.
pub(crate) fn pad(frame: &mut Vec<u8>) {
    if frame.len() < ETHERNET_MIN_BYTES {
        frame.resize(ETHERNET_MIN_BYTES, 0);
    }
}

/// Checksum, preamble and the gap between frames.
const AROUND_FRAME_BYTES: u64 = 4 + 8 + 12;

/// How long a frame takes on the wire.
pub(crate) fn wire_ps(params: &NicParams, len_bytes: usize) -> u64 {
    let bits = (len_bytes.max(ETHERNET_MIN_BYTES) as u64 + AROUND_FRAME_BYTES) * 8;
    (bits * 1_000_000).div_ceil(params.link_mbit_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_take_what_the_standard_says() {
        let config = crate::MachineConfig::named("xeon-up").expect("it is built in");
        let mut params = crate::params::Params::from_config(&config).nic.expect("a card");
        assert_eq!(wire_ps(&params, 1514), 12_304_000);
        assert_eq!(wire_ps(&params, 60), 672_000);
        assert_eq!(wire_ps(&params, 14), 672_000);
        params.link_mbit_s = 25_000;
        assert_eq!(wire_ps(&params, 1514), 492_160);
    }
}
