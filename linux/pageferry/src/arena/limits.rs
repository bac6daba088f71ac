//! What an arena may have.

use crate::sys;

/// What an arena may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that are lent or kept, at most.
    pub bytes: u64,
    /// Bytes that are kept for later when nobody has asked for them in a second.
    pub kept: u64,
    /// Blocks, at most: each has a descriptor in this process.
    pub blocks: usize,
}

impl Default for Limits {
    /// An eighth of the host's memory and 1 GB at most; an eighth of that is kept; and an eighth of the descriptors
    /// that this process may have, 256 at most.
    fn default() -> Limits {
        let page = sys::page_bytes() as u64;
        let memory = rustix::system::sysinfo();
        let memory = (memory.totalram as u64).saturating_mul(u64::from(memory.mem_unit.max(1)));
        let bytes = if memory == 0 { 1 << 30 } else { (memory / 8).clamp(64 * page, 1 << 30) };
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let blocks = files.current.map_or(256, |files| (files / 8).clamp(1, 256) as usize);
        Limits { bytes, kept: bytes / 8, blocks }
    }
}
