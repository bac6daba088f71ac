//! What the parts of the workload share.

use super::site::Site;
use crate::kit::OutcomeCell;
use crate::run::MACHINE;
use pageferry_hal::Instructions;
use pageferry_model::Model;
use std::net::SocketAddrV4;
use std::rc::Rc;

/// Where the server listens.
pub(super) const SERVER: SocketAddrV4 = SocketAddrV4::new(MACHINE, 80);

/// A run: what is asked of the server, by how many, and where that is noted.
pub(crate) struct Web {
    pub(super) model: Model,
    pub(super) cell: OutcomeCell,
    pub(super) site: Rc<Site>,
    pub(super) seed: u64,
    pub(super) clients: usize,
    pub(super) processes: usize,
    pub(super) warmup_requests: u64,
    pub(super) requests: u64,
    pub(super) user_instructions: Instructions,
    /// Entries of the cache of mappings, where there is one.
    pub(super) mapping_entries: usize,
    /// The CPU looks at what it sends.
    pub(super) sums_in_software: bool,
    pub(super) mtu_bytes: usize,
    pub(super) clock_mhz: f64,
}

impl Web {
    /// The files that anything in the run refers to. All others would be in memory, too, and not be looked at.
    pub(super) fn files(&self) -> Vec<u32> {
        let mapped = self.site.still_mapped(self.mapping_entries).into_iter().map(|(file, _)| file);
        let mut files: Vec<u32> = self.site.requests.iter().copied().chain(mapped).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}
