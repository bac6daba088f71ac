//! A modelled machine that serves a directory to real clients over HTTP.
//!
//! * `site`: the directory, as files of the modelled kernel.
//! * `http`: the web server, a program that runs in modelled processes, which `workers` looks after; `connection`: what
//!   each has with its client. `answer` is what is read, `upload` what is given, and kept on the host by `kept`.
//! * `request`, `fields`, `target`, `range`, `conditional`, `chunked`, `body`: what is asked, by RFC 9110 and 9112.
//!   `response`: what is answered. `access_log`: a line for each request.
//! * `forward`: a link to the real world: a port of the host, whose connections go on to the machine over its modelled
//!   card, a `pair` for each; `watch` tells which have news.
//! * `tap`: another one: a TAP device, so that the host's own TCP talks to the machine's.
//!
//! While the machine has something to do, its time passes as its work takes; while it waits, as real time does.
//!
//! What can fail: the directory (unreadable, too large for the machine), the port, the machine and the kernel (no
//! card).
#![forbid(unsafe_code)]

mod access_log;
mod answer;
mod body;
mod chunked;
mod conditional;
mod connection;
mod fields;
mod forward;
mod http;
mod kept;
mod pair;
mod range;
mod request;
mod response;
mod service;
mod site;
mod tap;
mod target;
mod upload;
mod watch;
mod workers;

pub use service::{Progress, Service};
pub use tap::Tap;

use access_log::AccessLog;
use forward::Forward;
use http::{Server, WORKERS};
use kept::Keeper;
use pageferry_lab::LabError;
use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::record::{Cycles, Law};
pub use pageferry_lab::run::MACHINE;
use pageferry_lab::run::{Choices, Testbed, counters, cycles};
use serde::Serialize;
use site::Site;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use tap::TapEnd;

/// What was served, and what it cost the machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ServeReport {
    /// The machine's name.
    pub machine: String,
    /// The kernel's name.
    pub kernel: String,
    /// Connections taken.
    pub connections: u64,
    /// Requests answered, by status.
    pub requests: BTreeMap<u16, u64>,
    /// Answers that ended early, because the client went, took nothing for too long, or the server was stopped.
    pub cut_short: u64,
    /// Clients that did nothing and were let go early, because others waited and every process had one.
    pub hurried: u64,
    /// Bytes of files that were sent.
    pub file_bytes: u64,
    /// Bytes that were uploaded.
    pub uploaded_bytes: u64,
    /// Why an upload or the log could not be written to the host, if any could not.
    pub host_failed: Option<String>,
    /// Modelled time since the machine was ready.
    pub elapsed_us: f64,
    /// Events that the kernel counted since.
    pub counters: BTreeMap<String, u64>,
    /// Where the cycles went.
    pub cycles: Cycles,
    /// Laws, and whether each held.
    pub laws: Vec<Law>,
    /// Time on the host.
    pub host_ms: f64,
}

/// A port of the host that is listened to.
#[derive(Debug)]
pub struct Port(TcpListener);

/// How clients come to the machine.
#[derive(Debug)]
pub enum Link {
    /// By a port of the host.
    Port(Port),
    /// By a TAP device: the machine is at [`MACHINE`], and the host's interface is to be at an address beside it.
    Tap(Tap),
}

impl Port {
    /// Listens on a port of the host's loopback address; 0 is any that is free.
    ///
    /// # Errors
    /// When it is in use or not permitted.
    pub fn open(port: u16) -> Result<Port, LabError> {
        let refuse = |e| LabError::io("listen on", format!("127.0.0.1:{port}"), e);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(refuse)?;
        // Clients that do not fit wait here. Where that is full the host drops their calls, and some give up.
        rustix::net::listen(&listener, MAX_WAITING).map_err(|e| refuse(e.into()))?;
        listener.set_nonblocking(true).map_err(refuse)?;
        Ok(Port(listener))
    }

    /// The address that clients connect to.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()
    }
}

/// Clients of the host that wait to be taken.
const MAX_WAITING: i32 = 4096;
/// The part of the machine's memory that the names and structures of files may take, and what a file takes of it.
const FILES_SHARE: u64 = 16;
const FILE_BYTES: u64 = 768;
/// Uploads at a time that the kernel has room for, at least and at most.
const UPLOADS: std::ops::RangeInclusive<u64> = 1_000..=65_536;

/// Serves `directory` over `link` until `stop` is set. Tells how far it has come.
///
/// # Errors
/// When the directory cannot be read or does not fit, or machine and kernel do not. A broken law is not an error here.
pub fn serve(
    machine: &MachineChoice,
    kernel: &KernelChoice,
    directory: &Path,
    link: Link,
    service: Service,
    stop: Arc<AtomicBool>,
    tell: impl FnMut(Progress<'_>) + 'static,
) -> Result<ServeReport, LabError> {
    let began = Instant::now();
    let mut site = Site::read(directory)?;
    let keeper = service.uploads.as_deref().map(Keeper::new).transpose()?;
    let log = service.log.as_deref().map(AccessLog::open).transpose()?;
    let mut testbed = Testbed::new(machine, kernel, Choices { seed: 0, ..Choices::default() })?;
    testbed.give_address(true)?;
    let memory_bytes = machine.config.memory_bytes();
    let uploads = (memory_bytes / FILES_SHARE / FILE_BYTES).clamp(*UPLOADS.start(), *UPLOADS.end());
    let files = site.len() + uploads as usize;
    site.has_room_for(files);
    testbed.make_room_for_files(files + WORKERS);
    let clock_mhz = machine.config.cpu.clock_mhz.value;
    let mtu_bytes = machine.config.nic.as_ref().map_or(0, |nic| nic.mtu_bytes.value);
    let pcap = service.pcap.clone();
    if let Some(path) = &pcap {
        let file = File::create(path).map_err(|e| LabError::io("write", path, e))?;
        testbed.model().record_frames(BufWriter::new(file));
    }
    match link {
        Link::Port(port) => {
            let forward = Forward::new(port.0, mtu_bytes, stop.clone());
            let forward = forward.map_err(|e| LabError::io("watch", "connections", e))?;
            testbed.model().attach(Box::new(forward));
        }
        Link::Tap(tap) => testbed.model().attach(Box::new(TapEnd::new(tap, stop.clone()))),
    }
    let server = Server::new(testbed.model().clone(), site, service, (keeper, log), stop, tell);
    let (state, site) = (server.state(), server.site.clone());
    let mut finish = testbed.execute("httpd", server.program())?;
    let numbers = site.borrow().check();
    finish.laws.push(Law::new("each number of a file is a file's, or free", numbers));
    if let Some(path) = &pcap {
        testbed.model().end_record_frames().map_err(|e| LabError::io("write", path, e))?;
    }
    let state = state.take();
    if let Some(problem) = state.failed.filter(|_| finish.laws.iter().all(|law| law.held)) {
        return Err(testbed.incompatible(problem));
    }
    let measured = state.measured;
    Ok(ServeReport {
        machine: machine.name.clone(),
        kernel: kernel.name.clone(),
        connections: state.connections,
        requests: state.requests,
        cut_short: state.cut_short,
        hurried: state.hurried,
        file_bytes: state.file_bytes,
        uploaded_bytes: state.uploaded_bytes,
        host_failed: state.host_failed,
        elapsed_us: state.elapsed_cycles as f64 / clock_mhz as f64,
        counters: measured.as_ref().map(counters).unwrap_or_default(),
        cycles: measured.as_ref().map(cycles).unwrap_or_default(),
        laws: finish.laws,
        host_ms: began.elapsed().as_secs_f64() * 1e3,
    })
}
