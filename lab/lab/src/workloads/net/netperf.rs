//! netperf's TCP_STREAM with both ends on one machine (sf_buf paper, 6.5.1): how fast a process sends to another over
//! loopback.
//!
//! The sender has a ring of buffers, one more than the socket takes, which are filled once; so pages that were lent are
//! not written to. The receiver copies what comes, and every byte is compared with what the ring has there. The
//! measured part begins when the receiver has the last byte of the warm-up, and ends when it has the last byte of all.

use super::Began;
use crate::error::LabError;
use crate::kit::{
    CallError, OutcomeCell, Payload, differs, first_process, measure_first, named, other_process,
    stream_socket,
};
use crate::record::Metric;
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Prot, Va};
use pageferry_kernel::{Program, ReceiveMode, SendMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;

/// Where netserver listens for data.
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 12865);

#[derive(Clone)]
pub(crate) struct Netperf {
    model: Model,
    cell: OutcomeCell,
    zero_copy: SendMode,
    socket_bytes: usize,
    send_bytes: usize,
    warmup_bytes: u64,
    total_bytes: u64,
    clock_mhz: f64,
    payload: Rc<Payload>,
}

crate::choice! {
    /// Whether the sender's pages are lent.
    pub(crate) enum ZeroCopy { Always = "true", Never = "false", Auto = "auto" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        socket_bytes: usize = 4096..=16 << 20,
        send_bytes: usize = 1..=16 << 20,
        warmup_bytes: u64 = 0..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        zero_copy: ZeroCopy,
    }
}

impl Workload for Netperf {
    const NAME: &'static str = "netperf";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        super::weight(p.total_bytes, p.warmup_bytes)
    }

    fn metrics() -> Vec<Metric> {
        super::METRICS.to_vec()
    }

    /// The program of the receiver, which forks the sender.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.give_address(false)?;
        let send_bytes = p.send_bytes;
        let work = Netperf {
            model: testbed.model.clone(),
            cell,
            zero_copy: match p.zero_copy {
                ZeroCopy::Always => SendMode::Loan,
                ZeroCopy::Auto => SendMode::Auto,
                ZeroCopy::Never => SendMode::Copy,
            },
            socket_bytes: p.socket_bytes,
            send_bytes,
            warmup_bytes: p.warmup_bytes,
            total_bytes: p.total_bytes,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Rc::new(Payload::new(testbed.seed, send_bytes)),
        };
        let buffers = (work.ring() + 1) * send_bytes + 4 * work.socket_bytes;
        Ok(first_process(work.cell.clone(), buffers, move |user| work.run(user)))
    }
}

impl Netperf {
    /// Buffers that the sender has.
    fn ring(&self) -> usize {
        self.socket_bytes / self.send_bytes + 1
    }

    fn all(&self) -> u64 {
        self.warmup_bytes + self.total_bytes
    }

    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let listening = stream_socket(user, self.socket_bytes)?;
        user.bind(listening, SERVER).map_err(named("bind"))?;
        user.listen(listening, 1).map_err(named("listen"))?;
        let theirs = self.clone();
        let sender = other_process(self.cell.clone(), move |user| {
            user.close(listening).map_err(named("close"))?;
            theirs.send(user)
        });
        user.fork("netperf", sender).map_err(named("fork"))?;
        let result = self.receive(user, listening);
        user.close(listening).map_err(named("close"))?;
        user.wait().map_err(named("wait"))?;
        result
    }

    fn send(&self, user: &User<Model>) -> Result<(), CallError> {
        let ring = user.map(self.ring() * self.send_bytes, Prot::RW, Inherit::Copy);
        let ring = ring.map_err(named("map the sender's buffers"))?;
        for i in 0..self.ring() {
            user.store(ring + i * self.send_bytes, self.payload.chunk(i as u64));
        }
        let fd = stream_socket(user, self.socket_bytes)?;
        user.connect(fd, SERVER).map_err(named("connect"))?;
        measure_first(user, self.zero_copy, ReceiveMode::Copy)?;
        let mut sent = 0;
        while sent < self.all() {
            let buffer = ring + (sent / self.send_bytes as u64) as usize % self.ring() * self.send_bytes;
            let len = (self.all() - sent).min(self.send_bytes as u64) as usize;
            let mut done = 0;
            while done < len {
                done += user.send(fd, buffer + done, len - done, self.zero_copy).map_err(named("send"))?;
            }
            sent += len as u64;
        }
        user.close(fd).map_err(named("close"))
    }

    fn receive(&self, user: &User<Model>, listening: pageferry_kernel::Fd) -> Result<(), CallError> {
        let buffer = user.map(self.socket_bytes, Prot::RW, Inherit::Copy);
        let buffer = buffer.map_err(named("map the receiver's buffer"))?;
        let (fd, _) = user.accept(listening).map_err(named("accept"))?;
        let (mut began, mut got) = (None, 0);
        let (mut aside, mut scratch) = (Duration::ZERO, Vec::new());
        while got < self.all() {
            if got >= self.warmup_bytes && began.is_none() {
                aside = Duration::ZERO;
                began = Some(Began::now(user, &self.model));
            }
            // No read crosses the end of the warm-up.
            let end = if got < self.warmup_bytes { self.warmup_bytes } else { self.all() };
            let want = (end - got).min(self.socket_bytes as u64) as usize;
            let len = user.read(fd, buffer, want).map_err(named("read"))?;
            if len == 0 {
                self.cell
                    .borrow_mut()
                    .damage(format!("the stream ended after {got} of {} bytes", self.all()));
                return Ok(());
            }
            let checking = ThreadTime::now();
            self.check(buffer, got, len, &mut scratch);
            aside += checking.elapsed();
            got += len as u64;
        }
        let began = began.expect("there is at least one byte to measure");
        began.ended(user, &self.model, self.clock_mhz, self.total_bytes, aside, &mut self.cell.borrow_mut());
        user.close(fd).map_err(named("close"))
    }

    /// Compares `len` bytes that are at `offset` in the stream.
    fn check(&self, buffer: Va, offset: u64, len: usize, scratch: &mut Vec<u8>) {
        let mut done = 0;
        while done < len {
            let place = offset + done as u64;
            let at = (place % self.send_bytes as u64) as usize;
            let part = (len - done).min(self.send_bytes - at);
            let chunk = self.payload.chunk(place / self.send_bytes as u64 % self.ring() as u64);
            if let Some(wrong) = differs(&self.model, buffer + done, &chunk[at..at + part], scratch) {
                let fault = format!("byte {} of the stream is not what was sent", place + wrong as u64);
                self.cell.borrow_mut().damage(fault);
            }
            done += part;
        }
    }
}
