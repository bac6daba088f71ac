//! A stream to a host at the far end of the network card's wire, copied or lent to the kernel (UVM paper, 5.1).
//!
//! The paper measures loans by a protocol that discards data, because its CPU outruns its cards: with a card, it says,
//! a loan would be seen as a reduction in processor load rather than as increased bandwidth. Here is the card. The
//! sender has a ring of buffers, one more than the socket takes, so that a page that is written again is no longer on
//! loan; with `refill` it fills each before it sends it. Pages that are only pinned it must not write before they are
//! back, so it asks after each send how many are out. Where the card does not sum, the CPU reads what was lent once
//! to sum it; where it does, nobody but the card touches it.
//!
//! The far end compares every byte. The measured part begins when the warm-up is sent, and ends when all is: the
//! socket's buffer is as full at both moments.

use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Payload, first_process, measure_first, named, stream_socket};
use crate::record::{Metric, metric};
use crate::run::{FAR_END, Testbed, Workload};
use crate::workloads::net::{Began, METRICS};
use pageferry_hal::{Cycles, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Program, ReceiveMode, SendMode, User};
use pageferry_model::net::line::{Call, End, LineConfig, LineHost, Speech, Talker};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::cell::RefCell;
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::time::Duration;

/// Where the far end listens: the discard port.
const DISCARD: SocketAddrV4 = SocketAddrV4::new(FAR_END, 9);

/// The last bytes are under way for no longer than this, unless the connection is lost.
const MAX_WAIT_MS: u32 = 100_000;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        socket_bytes: usize = 4096..=16 << 20,
        size_bytes: usize = 1..=16 << 20,
        warmup_bytes: u64 = 0..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        send: SendMode,
        /// The sender fills a buffer before it sends it.
        refill: bool,
    }
}

pub(crate) struct CardSend {
    p: Parameters,
    model: Model,
    cell: OutcomeCell,
    clock_mhz: f64,
    payload: Rc<Payload>,
    heard: Rc<RefCell<Listener>>,
}

impl Workload for CardSend {
    const NAME: &'static str = "card-send";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.total_bytes.saturating_add(p.warmup_bytes) / 4096 * 12
    }

    fn metrics() -> Vec<Metric> {
        let own = [metric("wire_percent", "%", "Throughput, of what the wire carries without any header.")];
        METRICS.into_iter().chain(own).collect()
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.give_address(true)?;
        let payload = Rc::new(Payload::new(testbed.seed, p.size_bytes));
        let listener = Listener {
            payload: payload.clone(),
            lap: 1,
            size_bytes: p.size_bytes,
            bytes: 0,
            wrong: None,
            ended: false,
        };
        let heard = Rc::new(RefCell::new(listener));
        let nic = testbed.machine.config.nic.as_ref();
        let mtu_bytes = nic.map_or(1500, |nic| nic.mtu_bytes.value as usize);
        let config = LineConfig { ip: FAR_END, mtu_bytes, ..LineConfig::default() };
        testbed.model.attach(Box::new(LineHost::new(config, heard.clone())));
        let link_mbit_s = nic.map_or(0, |nic| nic.link_mbit_s.value) as f64;
        let work = CardSend {
            model: testbed.model.clone(),
            cell: cell.clone(),
            clock_mhz: testbed.clock_mhz(),
            payload,
            heard,
            p,
        };
        let buffers = (work.ring() + 1) * work.p.size_bytes + 2 * work.p.socket_bytes;
        Ok(first_process(cell, buffers, move |user| work.run(user, link_mbit_s)))
    }
}

impl CardSend {
    /// Buffers that the sender has.
    fn ring(&self) -> usize {
        self.p.socket_bytes.div_ceil(self.p.size_bytes) + 1
    }

    fn run(&self, user: &User<Model>, link_mbit_s: f64) -> Result<(), CallError> {
        let Parameters { socket_bytes, size_bytes, warmup_bytes, total_bytes, send, refill } = self.p;
        let ring =
            user.map(self.ring() * size_bytes, Prot::RW, Inherit::Copy).map_err(named("map the ring"))?;
        let fill = |at: Va, index: u64| user.store(at, self.payload.chunk(index));
        let place = |index: u64| ring + (index % self.ring() as u64) as usize * size_bytes;
        // Without refilling, a buffer goes out again as it was: the far end expects that, too.
        let lap = if refill { u64::MAX } else { self.ring() as u64 };
        self.heard.borrow_mut().expects(lap, size_bytes);
        (0..self.ring() as u64).for_each(|index| fill(place(index), index));
        let fd = stream_socket(user, socket_bytes)?;
        user.connect(fd, DISCARD).map_err(named("connect"))?;
        measure_first(user, send, ReceiveMode::Copy)?;
        if send == SendMode::Pin {
            user.watch_loans(true).map_err(named("watch what is pinned"))?;
        }
        let all = warmup_bytes + total_bytes;
        let (mut sent, mut began) = (0, None);
        // One that passes the end with the last piece of its warm-up sends another, to be measured.
        while sent < all || began.is_none() {
            if sent >= warmup_bytes && began.is_none() {
                began = Some((Began::now(user, &self.model), sent));
            }
            let index = sent / size_bytes as u64;
            if refill {
                fill(place(index), index);
            }
            let mut done = 0;
            while done < size_bytes {
                let took =
                    user.send(fd, place(index) + done, size_bytes - done, send).map_err(named("send"))?;
                done += took;
            }
            sent += size_bytes as u64;
            if send == SendMode::Pin {
                // What it asks for after each send: how much is out still (`MSG_ERRQUEUE`). The ring is longer.
                let out = user.pages_on_loan().map_err(named("ask what is pinned"))?;
                if out * PAGE_SIZE > self.ring() * size_bytes {
                    self.cell.borrow_mut().damage(format!("{out} pages are pinned, more than there are"));
                }
            }
        }
        let (began, from) = began.expect("there is at least one byte to measure");
        {
            let outcome = &mut *self.cell.borrow_mut();
            began.ended(user, &self.model, self.clock_mhz, sent - from, Duration::ZERO, outcome);
            let of_wire = 100.0 * outcome.results["throughput_mbit_s"] / link_mbit_s;
            outcome.results.insert("wire_percent".into(), of_wire);
        }
        user.close(fd).map_err(named("close"))?;
        // The far end has the last bytes when it has closed, too.
        for _ in 0..MAX_WAIT_MS {
            if self.heard.borrow().is_over(sent) {
                break;
            }
            user.sleep_for(Cycles(self.clock_mhz as u64 * 1000)).map_err(named("sleep"))?;
        }
        let heard = self.heard.borrow();
        if let Some(wrong) = heard.wrong {
            self.cell.borrow_mut().damage(format!("byte {wrong} of the stream is not what was sent"));
        } else if heard.bytes != sent {
            self.cell.borrow_mut().damage(format!("{} of {sent} bytes arrived", heard.bytes));
        }
        Ok(())
    }
}

/// The far end: what it has heard, and what was wrong first.
struct Listener {
    payload: Rc<Payload>,
    /// After so many pieces of so many bytes the same come again.
    lap: u64,
    size_bytes: usize,
    bytes: u64,
    wrong: Option<u64>,
    ended: bool,
}

impl Listener {
    /// Nothing more comes that is waited for, of `sent` bytes.
    fn is_over(&self, sent: u64) -> bool {
        self.bytes >= sent || self.wrong.is_some() || self.ended
    }

    fn expects(&mut self, lap: u64, size_bytes: usize) {
        (self.lap, self.size_bytes) = (lap, size_bytes);
    }

    fn differs(&self, at: u64, bytes: &[u8]) -> Option<u64> {
        let mut done = 0;
        while done < bytes.len() {
            let place = at + done as u64;
            let from = (place % self.size_bytes as u64) as usize;
            let part = (bytes.len() - done).min(self.size_bytes - from);
            let chunk = self.payload.chunk(place / self.size_bytes as u64 % self.lap);
            let (found, sent) = (&bytes[done..done + part], &chunk[from..from + part]);
            if let Some(wrong) = found.iter().zip(sent).position(|(a, b)| a != b) {
                return Some(place + wrong as u64);
            }
            done += part;
        }
        None
    }
}

impl Talker for Listener {
    fn accepts(&mut self, _: u64, port: u16) -> Option<Speech> {
        (port == DISCARD.port()).then(|| Speech::of(Vec::new(), false))
    }
    fn calls(&mut self, _: u64, _: u64) -> Option<Call> {
        None
    }
    fn next_call_at(&mut self, _: u64) -> Option<u64> {
        None
    }
    fn hears(&mut self, _: u64, _: u64, at: u64, bytes: &[u8]) {
        let expected_at = self.bytes;
        let wrong = if at == expected_at { self.differs(at, bytes) } else { Some(expected_at) };
        self.wrong = self.wrong.or(wrong);
        self.bytes += bytes.len() as u64;
    }
    fn ended(&mut self, _: u64, _: u64, _: End) {
        self.ended = true;
    }
}
