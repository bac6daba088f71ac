//! A web server that sends files, and clients at the far end of the wire that ask for those of a trace (sf_buf paper,
//! 6.5.2).
//!
//! * `site`: what is asked for. `generator`: made up, after what is published of two traces. `access_log`: read from a
//!   log.
//! * `contents`: what is in files, and what is said around them.
//! * `clients`: they ask, and compare every byte.
//! * `stage`: files in memory, and the cache of mappings as a long run leaves it.
//! * `server`: processes in the way of Apache.
//!
//! The measured part begins when the warm-up's last request is answered, and ends when as many as are to be measured
//! are; then the last clients are still served. Throughput is what clients hear of TCP's payload, headers of answers
//! included.

mod access_log;
mod clients;
mod contents;
mod generator;
mod server;
mod shared;
mod site;
mod stage;

use crate::error::LabError;
use crate::files::WordOrFile;
use crate::kit::{OutcomeCell, first_process};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_ephemeral::Scheme;
use pageferry_hal::{Instructions, PAGE_SIZE};
use pageferry_kernel::Program;
use pageferry_model::{MachineConfig, Model};
pub(crate) use shared::Web;
use site::Site;
use std::path::Path;
use std::rc::Rc;

/// All requests: when the last that is measured is answered, no client has run out of them.
fn requests(p: &Parameters) -> usize {
    (p.warmup_requests + p.requests) as usize + p.clients
}

/// The site of a trace, a word that [`generator::PUBLISHED`] knows or else a log, and the next `count` requests.
///
/// # Errors
/// A log that cannot be read, or that has no request that was answered with a file.
fn site_of(trace: &str, seed: u64, count: usize) -> Result<Site, LabError> {
    match generator::PUBLISHED.iter().find(|published| published.name == trace) {
        Some(published) => Ok(published.site(seed, count)),
        None => access_log::read(Path::new(trace), count),
    }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        clients: usize = 1..=128,
        processes: usize = 1..=200,
        warmup_requests: u64 = 0..=1 << 20,
        requests: u64 = 1..=1 << 20,
        user_instructions: u32 = 0..=1 << 30,
        /// A published trace, or a log.
        trace: WordOrFile,
    }
}

impl Workload for Web {
    const NAME: &'static str = "web";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        // A request takes some twenty segments, and files are made first.
        (p.requests + p.warmup_requests).saturating_mul(300) + 400_000
    }

    fn metrics() -> Vec<Metric> {
        let own = [
            metric(
                "bytes_per_request",
                "bytes",
                "Bytes that clients heard, for each request that was answered meanwhile.",
            ),
            metric("log_lines_skipped", "count", "Lines of the log that could not be read."),
            metric(
                "log_first_skipped_line",
                "",
                "The number of the first line of the log that could not be read.",
            )
            .of_some_runs(),
        ];
        super::METRICS.into_iter().chain(own).collect()
    }

    /// The program of the first process, which makes the files and forks the others.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.give_address(true)?;
        let site = site_of(&p.trace.0, testbed.seed, requests(&p))?;
        testbed.files = site.sizes.len() + 64;
        let machine = &testbed.machine.config;
        let scheme = testbed.kernel.file.config(machine, 0).ephemeral.scheme;
        let offloads = testbed.net.is_some_and(|net| net.checksum_offload)
            && machine.nic.as_ref().is_some_and(|nic| nic.transmit_checksum.value);
        let web = Web {
            model: testbed.model.clone(),
            cell: cell.clone(),
            site: Rc::new(site),
            seed: testbed.seed,
            clients: p.clients,
            processes: p.processes,
            warmup_requests: p.warmup_requests,
            requests: p.requests,
            user_instructions: Instructions(p.user_instructions),
            mapping_entries: match scheme {
                Scheme::Cache { entries, .. } => entries,
                // Those of processes are filled by these.
                Scheme::PerProcess { .. }
                | Scheme::Hybrid { .. }
                | Scheme::Direct
                | Scheme::Original
                | Scheme::FreeList { .. }
                | Scheme::Vmem => 0,
            },
            sums_in_software: !offloads,
            mtu_bytes: machine.nic.as_ref().map_or(1500, |nic| nic.mtu_bytes.value as usize),
            clock_mhz: machine.cpu.clock_mhz.value as f64,
        };
        let files = web.files();
        let pages = |file: &u32| web.site.sizes[*file as usize].div_ceil(PAGE_SIZE as u64) as usize;
        let wanted =
            files.iter().map(pages).sum::<usize>() * PAGE_SIZE + web.processes * 4 * server::BUFFER_BYTES;
        Ok(first_process(cell, wanted, move |user| Rc::new(web).run(user, &files)))
    }
}
