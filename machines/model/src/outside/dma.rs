//! How a device reaches memory.

use crate::cache::aliases::Aliases;
use crate::cache::power_on::PoweredOn;
use crate::memory::Memory;
use pageferry_hal::{PAGE_SIZE, Pa};

/// How a device reaches memory: what it reads is supplied by whatever cache has it, what it writes is in no cache
/// afterwards.
pub(crate) struct Dma<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) caches: Option<&'a mut PoweredOn>,
    pub(crate) aliases: Option<&'a mut Aliases>,
    pub(crate) line_bytes: usize,
}

impl Dma<'_> {
    /// Reads bytes of one frame of memory.
    pub(crate) fn read(&self, at: Pa, buf: &mut [u8]) {
        self.memory.read(at, buf);
    }

    /// Writes bytes of one frame of memory.
    pub(crate) fn write(&mut self, at: Pa, bytes: &[u8]) {
        debug_assert!(at.0 as usize % PAGE_SIZE + bytes.len() <= PAGE_SIZE, "bytes of one frame");
        self.memory.bytes_mut(at, bytes.len()).copy_from_slice(bytes);
        self.drop_lines(at, bytes.len());
    }

    /// These bytes are in no cache from here on.
    pub(crate) fn drop_lines(&mut self, at: Pa, len_bytes: usize) {
        if let Some(aliases) = &mut self.aliases {
            aliases.forget(at, len_bytes);
        }
        let Some(caches) = &mut self.caches else { return };
        let first = at.0 & !(self.line_bytes as u64 - 1);
        for line in (first..at.0 + len_bytes as u64).step_by(self.line_bytes) {
            caches.live().flush_line(line);
        }
    }
}
