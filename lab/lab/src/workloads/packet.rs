//! Sending one packet (Yamauchi et al., 4.3): from the application's call until the driver has handed the packet to the
//! card.
//!
//! Under a kernel whose servers are processes, the application makes a request of the protocol server, which puts
//! headers in front of the data where it is, sums it, and makes a request of the driver's server, which has the kernel
//! ring the card's doorbell. The data goes in one piece of the area, whose memory was there before; requests go in
//! control pieces. Under a monolithic kernel the application sends a datagram on a connected socket, and the kernel
//! builds the packet.
//!
//! Between packets the application sleeps. A process of the lowest priority may use that time to read and write as much
//! memory as the data cache holds. Every packet is compared at the far end of the wire.

use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, first_process, named, other_process};
use crate::run::{MACHINE, Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Cycles, Instructions, Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Inquiry, Pid, Program, SocketKind, User, Wait};
use pageferry_model::net::FarEnd;
use pageferry_model::{MachineConfig, Model, Snapshot};
use pageferry_vm::Inherit;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

const RECEIVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 9);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

const PROTOCOLS: u32 = 1;
const DRIVER: u32 = 2;
/// Where data begins in its piece, behind room for headers; and their length.
const DATA_AT: usize = 64;
const HEADER_BYTES: usize = 42;
/// Bytes of a request.
const REQUEST_BYTES: usize = 32;

/// What has arrived at the far end: answers whose address is asked for, and keeps the data of datagrams.
#[derive(Default)]
struct Wire {
    answers: VecDeque<Vec<u8>>,
    data: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl FarEnd for Wire {
    fn arrives(&mut self, _: u64, frame: &[u8]) {
        match frame.get(12..14) {
            Some([8, 6]) if frame.len() >= 42 => {
                let mut answer = frame.to_vec();
                let (asker, address) = (frame[22..32].to_vec(), frame[38..42].to_vec());
                answer[..6].copy_from_slice(&asker[..6]);
                answer[6..12].copy_from_slice(&MAC);
                answer[21] = 2;
                answer[22..28].copy_from_slice(&MAC);
                answer[28..32].copy_from_slice(&address);
                answer[32..42].copy_from_slice(&asker);
                self.answers.push_back(answer);
            }
            Some([8, 0]) if frame.len() >= HEADER_BYTES => {
                let len = usize::from(u16::from_be_bytes([frame[38], frame[39]])).saturating_sub(8);
                let end = (HEADER_BYTES + len).min(frame.len());
                self.data.borrow_mut().push(frame[HEADER_BYTES..end].to_vec());
            }
            _ => {}
        }
    }
    fn poll(&mut self, _: u64) -> Option<Vec<u8>> {
        self.answers.pop_front()
    }
    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        (!self.answers.is_empty()).then_some(now_ns)
    }
}

#[derive(Clone)]
struct Packets {
    model: Model,
    cell: OutcomeCell,
    by_servers: bool,
    size_bytes: usize,
    corunner_bytes: Option<usize>,
    protocol: Instructions,
    sum: Instructions,
    pause: Cycles,
    warmup: u64,
    packets: u64,
    clock_mhz: f64,
    arrived: Rc<RefCell<Vec<Vec<u8>>>>,
    over: Rc<Cell<bool>>,
}

crate::choice! {
    /// What carries a packet.
    pub(crate) enum By { Area = "area", Sockets = "sockets" }
}

/// The workload.
pub(crate) struct Packet;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1472,
        packets: u64 = 1..=1 << 20,
        warmup: u64 = 0..=1 << 20,
        pause_us: u64 = 100..=1_000_000,
        corunner_bytes: usize = 1..=1 << 24,
        protocol_instructions: u32 = 0..=1 << 20,
        sum_instructions: u32 = 0..=1000,
        by: By,
        /// A process of the lowest priority runs between packets.
        corunner: bool,
    }
}

impl Workload for Packet {
    const NAME: &'static str = "packet";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.packets.saturating_add(p.warmup).saturating_mul(3000)
    }

    /// The program of the application, which is the first process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let kernel = &testbed.kernel.file;
        if kernel.ispc.is_none() && kernel.net.is_none() {
            return Err(testbed.incompatible(
                "expected a kernel with the Internet protocols ([net] of its file), or with servers ([ispc])",
            ));
        }
        // The application makes the requests of servers itself. Where servers are no processes there are only sockets.
        let by_servers = kernel.ispc.is_some() && p.by == By::Area;
        match by_servers {
            true => drop(testbed.card()?),
            false => testbed.give_address(true)?,
        }
        let clock_mhz = testbed.machine.config.cpu.clock_mhz.value;
        let work = Packets {
            model: testbed.model.clone(),
            cell,
            by_servers,
            size_bytes: p.size_bytes,
            corunner_bytes: p.corunner.then_some(p.corunner_bytes),
            protocol: Instructions(p.protocol_instructions),
            sum: Instructions(p.sum_instructions),
            pause: Cycles(p.pause_us * clock_mhz),
            warmup: p.warmup,
            packets: p.packets,
            clock_mhz: clock_mhz as f64,
            arrived: Rc::default(),
            over: Rc::default(),
        };
        testbed.model.attach(Box::new(Wire { data: work.arrived.clone(), ..Wire::default() }));
        Ok(first_process(work.cell.clone(), 4 * PAGE_SIZE + work.corunner_bytes.unwrap_or(0), move |user| {
            work.run(user)
        }))
    }
}

impl Packets {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let (mut children, mut servers) = (0, Vec::new());
        if let Some(bytes) = self.corunner_bytes {
            let work = self.clone();
            let corunner = other_process(self.cell.clone(), move |user| work.corun(user, bytes));
            user.fork("corunner", corunner).map_err(named("fork"))?;
            children += 1;
        }
        let sent = if self.by_servers {
            for (name, serve) in
                [("driver", Packets::drive as fn(&Packets, &User<Model>) -> _), ("protocols", Packets::serve)]
            {
                let work = self.clone();
                let server = other_process(self.cell.clone(), move |user| serve(&work, user));
                servers.push(user.fork(name, server).map_err(named("fork"))?);
                children += 1;
            }
            self.send_by_servers(user, &servers)
        } else {
            self.send_by_socket(user)
        };
        self.over.set(true);
        for _ in 0..children {
            user.wait().map_err(named("wait"))?;
        }
        sent
    }

    /// What packet `number` carries.
    fn data(&self, number: u64) -> Vec<u8> {
        (0..self.size_bytes).map(|at| (number as usize * 7 + at * 13) as u8).collect()
    }

    /// Sends packet after packet by `send`, which answers when the measured part began, and measures.
    fn measure(
        &self,
        user: &User<Model>,
        place: Va,
        mut send: impl FnMut() -> Result<(), Errno>,
    ) -> Result<(), CallError> {
        let mut all: Vec<u64> = Vec::new();
        let mut start: Option<(Cycles, Snapshot, ThreadTime)> = None;
        for number in 0..self.warmup + self.packets {
            user.sleep_for(self.pause).map_err(named("sleep"))?;
            if number == self.warmup {
                start = Some((user.machine().now(), self.model.begin_measuring(), ThreadTime::now()));
            }
            let data = self.data(number);
            user.store(place, &data);
            let before = self.arrived.borrow().len();
            let began = user.machine().now();
            loop {
                match send() {
                    // The servers are on their way.
                    Err(Errno::ConnectionRefused) if number == 0 => {
                        user.yield_now().map_err(named("yield"))?
                    }
                    made => break made.map_err(named("send"))?,
                }
            }
            user.sleep_for(self.pause).map_err(named("sleep"))?;
            // A server may hand it to the card after the call has returned; the first packet may wait for the
            // receiver's address.
            let handed = self.model.transmit_started_at();
            if number >= self.warmup {
                all.push(handed.saturating_sub(began).0);
            }
            let arrived = self.arrived.borrow();
            if arrived.len() != before + 1 || arrived.last() != Some(&data) {
                self.cell.borrow_mut().damage(format!("packet {number} did not arrive as it was sent"));
            }
        }
        let (began, before, host) = start.expect("there is a packet to measure");
        let mean = all.iter().sum::<u64>() as f64 / all.len().max(1) as f64;
        let elapsed_us = user.machine().now().saturating_sub(began).0 as f64 / self.clock_mhz;
        let outcome = &mut *self.cell.borrow_mut();
        outcome.measured_s = host.elapsed().as_secs_f64();
        let measured = self.model.end_measuring().since(&before);
        let misses = measured.hardware.tlb_misses as f64 / all.len().max(1) as f64;
        outcome.measured = Some(measured);
        let results =
            [("elapsed_us", elapsed_us), ("time_us", mean / self.clock_mhz), ("tlb_misses_per_step", misses)];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    fn send_by_socket(&self, user: &User<Model>) -> Result<(), CallError> {
        let place = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map the data"))?;
        let socket = user.socket(SocketKind::Datagram).map_err(named("socket"))?;
        user.connect(socket, RECEIVER).map_err(named("connect"))?;
        self.measure(user, place, || user.write(socket, place, self.size_bytes).map(|_| ()))?;
        user.close(socket).map_err(named("close"))
    }

    fn send_by_servers(&self, user: &User<Model>, servers: &[Pid]) -> Result<(), CallError> {
        let control = user.ica_alloc(1, Wait::Yes).map_err(named("allocate a control piece"))?;
        let data = user.ica_alloc(1, Wait::Yes).map_err(named("allocate a data piece"))?;
        let ask = |len: usize| {
            let mut words = [0; REQUEST_BYTES];
            words[..8].copy_from_slice(&(len as u64).to_le_bytes());
            user.store(control, &words);
        };
        self.measure(user, data + DATA_AT, || {
            ask(self.size_bytes);
            user.ispc_request(PROTOCOLS, control, Some(data), Wait::Yes)
        })?;
        if user.ispc_crosses() {
            return servers.iter().try_for_each(|pid| user.signal(*pid).map_err(named("end the servers")));
        }
        ask(0);
        user.ispc_request(PROTOCOLS, control, Some(data), Wait::Yes).map_err(named("end the servers"))
    }

    /// The length that a request names.
    fn asked(user: &User<Model>, control: Va) -> usize {
        let mut words = [0; REQUEST_BYTES];
        user.load(control, &mut words);
        u64::from_le_bytes(words[..8].try_into().expect("eight bytes")) as usize
    }

    /// The protocol server.
    fn serve(&self, user: &User<Model>) -> Result<(), CallError> {
        let own = user.ica_alloc(1, Wait::Yes).map_err(named("allocate a control piece"))?;
        let work = self.clone();
        self.serve_each(user, PROTOCOLS, move |user, control, data| {
            work.put_headers(user, own, control, data)
        })
    }

    /// The driver's server.
    fn drive(&self, user: &User<Model>) -> Result<(), CallError> {
        self.serve_each(user, DRIVER, Packets::hand_to_card)
    }

    /// Does `work` with the control piece and the data of each request: of those in the queue, up to one for no bytes,
    /// or in the threads of those that come here, until a signal comes.
    fn serve_each(
        &self,
        user: &User<Model>,
        service: u32,
        work: impl Fn(&User<Model>, Va, Va) -> Result<(), CallError> + 'static,
    ) -> Result<(), CallError> {
        let data_of = |inquiry: &Inquiry| inquiry.data.ok_or(("find the data", Errno::Invalid));
        if user.ispc_crosses() {
            let cell = self.cell.clone();
            let procedure = move |user: &User<Model>, inquiry: &Inquiry| {
                let done = data_of(inquiry).and_then(|(data, _)| work(user, inquiry.control, data));
                if let Err((what, errno)) = done {
                    cell.borrow_mut().fail(what, errno);
                }
            };
            user.ispc_serve_by(service, Box::new(procedure)).map_err(named("serve"))?;
            return match user.ispc_receive(Wait::Yes) {
                Err(Errno::Interrupted) => Ok(()),
                other => other.map(|_| ()).map_err(named("wait for the end")),
            };
        }
        user.ispc_serve(service).map_err(named("serve"))?;
        loop {
            let inquiry = user.ispc_receive(Wait::Yes).map_err(named("receive"))?;
            let is_last = Packets::asked(user, inquiry.control) == 0;
            work(user, inquiry.control, data_of(&inquiry)?.0)?;
            user.ispc_return(inquiry.id).map_err(named("return"))?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// What the protocol server does: headers in front of the data where it is, and a request of the driver.
    fn put_headers(&self, user: &User<Model>, own: Va, control: Va, data: Va) -> Result<(), CallError> {
        let len = Packets::asked(user, control);
        let mut words = [0; REQUEST_BYTES];
        if len > 0 {
            user.compute(self.protocol);
            let mut bytes = vec![0; len];
            user.load(data + DATA_AT, &mut bytes);
            user.compute(Instructions(self.sum.0 * len.div_ceil(32) as u32));
            user.store(data + (DATA_AT - HEADER_BYTES), &headers(&bytes));
            words[..8].copy_from_slice(&((len + HEADER_BYTES) as u64).to_le_bytes());
        }
        user.store(own, &words);
        loop {
            match user.ispc_request(DRIVER, own, Some(data), Wait::Yes) {
                Err(Errno::ConnectionRefused) => user.yield_now().map_err(named("yield"))?,
                made => return made.map_err(named("make a request of the driver")),
            }
        }
    }

    /// What the driver's server does.
    fn hand_to_card(user: &User<Model>, control: Va, data: Va) -> Result<(), CallError> {
        let len = Packets::asked(user, control);
        if len > 0 {
            user.card_send(data + (DATA_AT - HEADER_BYTES), len).map_err(named("send"))?;
            user.card_wait().map_err(named("wait for the card"))?;
        }
        Ok(())
    }

    /// Reads and writes memory for ever, at the lowest priority: whatever is woken runs before it.
    fn corun(&self, user: &User<Model>, bytes: usize) -> Result<(), CallError> {
        let at = user.map(bytes, Prot::RW, Inherit::Copy).map_err(named("map memory"))?;
        let mut page = vec![0; 512];
        while !self.over.get() {
            for start in (0..bytes).step_by(page.len()) {
                let part = page.len().min(bytes - start);
                user.load(at + start, &mut page[..part]);
                user.store(at + start, &page[..part]);
            }
        }
        Ok(())
    }
}

/// Ethernet, IP and UDP in front of `data`.
fn headers(data: &[u8]) -> [u8; HEADER_BYTES] {
    let mut h = [0; HEADER_BYTES];
    h[..6].copy_from_slice(&MAC);
    h[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    h[12..14].copy_from_slice(&[8, 0]);
    h[14] = 0x45;
    h[16..18].copy_from_slice(&((28 + data.len()) as u16).to_be_bytes());
    (h[22], h[23]) = (64, 17);
    h[26..30].copy_from_slice(&MACHINE.octets());
    h[30..34].copy_from_slice(&RECEIVER.ip().octets());
    let sum = sum_of(&h[14..34], 0);
    h[24..26].copy_from_slice(&(!sum).to_be_bytes());
    h[34..36].copy_from_slice(&1024u16.to_be_bytes());
    h[36..38].copy_from_slice(&RECEIVER.port().to_be_bytes());
    let len = (8 + data.len()) as u16;
    h[38..40].copy_from_slice(&len.to_be_bytes());
    let pseudo = sum_of(&h[26..34], 17 + u32::from(len));
    let sum = sum_of(data, u32::from(sum_of(&h[34..42], u32::from(pseudo))));
    h[40..42].copy_from_slice(&(if sum == 0xffff { sum } else { !sum }).to_be_bytes());
    h
}

/// The ones' complement sum.
fn sum_of(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = words.fold(start, |sum, word| sum + word);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
