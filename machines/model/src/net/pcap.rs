//! What goes over the wire, as a pcap file with times in nanoseconds, which tcpdump and Wireshark read.
//!
//! The format is that of <https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/>: a header of 24 bytes, then each
//! frame behind one of 16.

use std::io::{self, Write};

/// Says that times are in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// The type of link of Ethernet frames.
const ETHERNET: u32 = 1;
/// Frames are never longer.
const MAX_BYTES: u32 = 1 << 18;

/// A file that is being written.
pub(crate) struct Pcap {
    to: Box<dyn Write>,
    frames: u64,
    /// What went wrong first; nothing is written after it.
    error: Option<io::Error>,
}

impl Pcap {
    pub(crate) fn new(to: Box<dyn Write>) -> Pcap {
        let mut pcap = Pcap { to, frames: 0, error: None };
        let mut header = Vec::new();
        header.extend(MAGIC.to_le_bytes());
        // Version 2.4, and two fields that no reader uses.
        header.extend([2, 0, 4, 0]);
        header.extend([0; 8]);
        header.extend(MAX_BYTES.to_le_bytes());
        header.extend(ETHERNET.to_le_bytes());
        pcap.write(&header);
        pcap
    }

    /// A frame is on the wire, at a time in picoseconds.
    pub(crate) fn frame(&mut self, ps: u64, frame: &[u8]) {
        let ns = ps / 1000;
        let len = frame.len() as u32;
        let header = [(ns / 1_000_000_000) as u32, (ns % 1_000_000_000) as u32, len, len];
        self.write(&header.map(u32::to_le_bytes).concat());
        self.write(frame);
        self.frames += 1;
    }

    /// How many frames there were.
    ///
    /// # Errors
    /// What went wrong while they were written.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.to.flush()?;
        Ok(self.frames)
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.to.write_all(bytes).err();
        }
    }
}
