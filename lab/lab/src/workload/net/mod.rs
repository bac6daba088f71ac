//! Programs that use the Internet protocols: over loopback, or through the card to a host at the far end of its wire.
//!
//! * `netperf`: a stream over loopback (sf_buf paper, 6.5.1).
//! * `web`: a web server, and clients that ask for the files of a trace (sf_buf paper, 6.5.2).
//! * `flip_receive`: a stream from the wire, received by copy or by taking pages over (page-flip paper).

pub mod flip_receive;
pub mod netperf;
pub(crate) mod web;

use crate::error::LabError;
use crate::files::Workload;
use crate::run::plan::RunSpec;
use crate::run::testbed::Testbed;
use pageferry_hal::{Cause, Machine as _, Nic, PAGE_SIZE};
use pageferry_kernel::{Fd, SocketKind, SocketOption, User, clusters_for_card};
use pageferry_model::{MachineConfig, Model, Snapshot};
use std::net::Ipv4Addr;

use super::outcome::{Failed, Outcome, named};
use cpu_time::ThreadTime;
use std::time::Duration;

/// The machine's address on its modelled wire.
pub const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// That of the host at the far end.
pub(crate) const FAR_END: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Bits of both that are those of the network.
pub(crate) const PREFIX_BITS: u8 = 24;

/// What a choice of the workload changes in the machine: a driver that does a card's work has a card that does not.
pub(crate) fn adapt(spec: &RunSpec, machine: &mut MachineConfig) {
    if spec.experiment.file.workload == Workload::FlipReceive {
        flip_receive::adapt(spec, machine);
    }
}

/// Puts a testbed on a network, where its workload is to have one.
///
/// # Errors
/// A kernel without the protocols, or a machine without a card where one is needed.
pub(crate) fn connect(testbed: &mut Testbed, spec: &RunSpec) -> Result<(), LabError> {
    let through_card = match spec.experiment.file.workload {
        Workload::Netperf => false,
        Workload::Schemes if spec.choice("user") == "socket" => false,
        Workload::FlipReceive | Workload::Web => true,
        _ => return Ok(()),
    };
    give_address(testbed, through_card)?;
    match spec.experiment.file.workload {
        Workload::FlipReceive => flip_receive::connect(testbed, spec),
        Workload::Web => web::prepare(testbed, spec)?,
        _ => {}
    }
    Ok(())
}

/// Has the kernel of a testbed boot with the protocols, at [`MACHINE`].
///
/// # Errors
/// A kernel without them, or a machine without a card where one is needed.
pub(crate) fn give_address(testbed: &mut Testbed, through_card: bool) -> Result<(), LabError> {
    let Some(net) = &testbed.kernel.file.net else {
        return Err(testbed.incompatible("expected a kernel with the Internet protocols ([net] of its file)"));
    };
    if through_card {
        let needed = clusters_for_card(&card(testbed)?.info(), net.receive_buffer_bytes.value as usize);
        let clusters = &testbed.kernel.file.socket.clusters;
        if clusters.value < needed as u64 {
            return Err(testbed.incompatible(format!(
                "socket.clusters = {}: expected at least {needed}: the network card takes some, a connection's receive \
                 buffer others",
                clusters.value
            )));
        }
    }
    let clock_mhz = testbed.machine.config.cpu.clock_mhz.value;
    testbed.net = Some(net.config(clock_mhz, MACHINE, PREFIX_BITS));
    Ok(())
}

/// The network card of a testbed.
///
/// # Errors
/// A machine without one.
pub(crate) fn card(testbed: &Testbed) -> Result<Box<dyn Nic>, LabError> {
    let none = || testbed.incompatible("expected a machine with a network card ([nic] of its file)");
    testbed.model.devices().nic.ok_or_else(none)
}

/// A stream socket with buffers of so many bytes.
pub(crate) fn stream_socket(user: &User<Model>, buffers_bytes: usize) -> Result<Fd, Failed> {
    let fd = user.socket(SocketKind::Stream).map_err(named("socket"))?;
    for option in [SocketOption::SendBuffer(buffers_bytes), SocketOption::ReceiveBuffer(buffers_bytes)] {
        user.set_socket_option(fd, option).map_err(named("set the socket's buffers"))?;
    }
    Ok(fd)
}

/// What it costs that translations go.
const FLUSHES: [Cause; 3] = [Cause::InvalidateLocal, Cause::ShootdownSent, Cause::ShootdownReceived];

/// When a measured stream began, and what the machine had done by then.
struct Began {
    at: u64,
    before: Snapshot,
    host: ThreadTime,
}

impl Began {
    fn now(user: &User<Model>, model: &Model) -> Began {
        Began { at: user.machine().now().0, before: model.snapshot(), host: ThreadTime::now() }
    }

    /// Ends the measured part, in which `bytes` were moved; `aside` of the host's time went into checking them.
    fn ended(
        self,
        user: &User<Model>,
        model: &Model,
        clock_mhz: f64,
        bytes: u64,
        aside: Duration,
        outcome: &mut Outcome,
    ) {
        let elapsed_us = user.machine().now().0.saturating_sub(self.at) as f64 / clock_mhz;
        let measured = model.snapshot().since(&self.before);
        let clocks = measured.clocks.iter().sum::<u64>() as f64;
        let busy = clocks - measured.cause(Cause::Idle) as f64;
        let throughput = bytes as f64 * 8.0 / elapsed_us;
        // Of all CPUs that the system sees, as sar has it.
        let cpu_percent = 100.0 * busy / clocks;
        let pages = bytes as f64 / PAGE_SIZE as f64;
        let per_page =
            |causes: &[Cause]| causes.iter().map(|cause| measured.cause(*cause)).sum::<u64>() as f64 / pages;
        let results = [
            ("elapsed_us", elapsed_us),
            ("throughput_mbit_s", throughput),
            ("cpu_percent", cpu_percent),
            ("efficiency_mbit_per_cpu_percent", throughput / cpu_percent),
            ("busy_cycles_per_page", busy / pages),
            ("lock_cycles_per_page", per_page(&[Cause::Lock])),
            ("flush_cycles_per_page", per_page(&FLUSHES)),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        outcome.measured_s = self.host.elapsed().saturating_sub(aside).as_secs_f64();
        outcome.measured = Some(measured);
    }
}
