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
mod site;
mod stage;

pub(crate) use site::Site;

use crate::error::LabError;
use crate::run::plan::RunSpec;
use crate::run::testbed::Testbed;
use crate::workload::outcome::OutcomeCell;
use crate::workload::process::first_process;
use pageferry_ephemeral::Scheme;
use pageferry_hal::{Instructions, PAGE_SIZE};
use pageferry_kernel::Program;
use pageferry_model::Model;
use std::net::SocketAddrV4;
use std::rc::Rc;

/// Where the server listens.
const SERVER: SocketAddrV4 = SocketAddrV4::new(super::MACHINE, 80);

/// Finds out what is asked for, and gives the kernel room for so many files.
///
/// # Errors
/// See [`Site::of`].
pub(super) fn prepare(testbed: &mut Testbed, spec: &RunSpec) -> Result<(), LabError> {
    let site = Site::of(spec.choice("trace"), spec.choices.seed, requests(spec))?;
    testbed.files = site.sizes.len() + 64;
    testbed.site = Some(Rc::new(site));
    Ok(())
}

/// All requests: when the last that is measured is answered, no client has run out of them.
fn requests(spec: &RunSpec) -> usize {
    ["warmup_requests", "requests", "clients"].iter().map(|key| spec.parameter(key) as usize).sum()
}

/// What the parts of the workload share.
struct Web {
    model: Model,
    cell: OutcomeCell,
    site: Rc<Site>,
    seed: u64,
    clients: usize,
    processes: usize,
    warmup_requests: u64,
    requests: u64,
    user_instructions: Instructions,
    /// Entries of the cache of mappings, where there is one.
    mapping_entries: usize,
    /// The CPU looks at what it sends.
    sums_in_software: bool,
    mtu_bytes: usize,
    clock_mhz: f64,
}

/// The program of the first process, which makes the files and forks the others.
pub(crate) fn program(testbed: &Testbed, spec: &RunSpec, cell: OutcomeCell) -> Program<Model> {
    let machine = &testbed.machine.config;
    let scheme = testbed.kernel.file.config(machine, 0).ephemeral.scheme;
    let offloads = testbed.net.is_some_and(|net| net.checksum_offload)
        && machine.nic.as_ref().is_some_and(|nic| nic.transmit_checksum.value);
    let web = Web {
        model: testbed.model.clone(),
        cell: cell.clone(),
        site: testbed.site.clone().expect("it was prepared"),
        seed: spec.choices.seed,
        clients: spec.parameter("clients") as usize,
        processes: spec.parameter("processes") as usize,
        warmup_requests: spec.parameter("warmup_requests") as u64,
        requests: spec.parameter("requests") as u64,
        user_instructions: Instructions(spec.parameter("user_instructions") as u32),
        mapping_entries: match scheme {
            Scheme::Cache { entries, .. } => entries,
            // Those of processes are filled by these.
            Scheme::PerProcess { .. }
            | Scheme::Hybrid { .. }
            | Scheme::Direct
            | Scheme::Original
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
    first_process(cell, wanted, move |user| Rc::new(web).run(user, &files))
}

impl Web {
    /// The files that anything in the run refers to. All others would be in memory, too, and not be looked at.
    fn files(&self) -> Vec<u32> {
        let mapped = self.site.still_mapped(self.mapping_entries).into_iter().map(|(file, _)| file);
        let mut files: Vec<u32> = self.site.requests.iter().copied().chain(mapped).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}
