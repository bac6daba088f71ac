//! Sending one packet (Yamauchi et al., 4.3): from the application's call until it returns.
//!
//! Under a kernel whose servers are processes, the application makes a request of the protocol server, which puts
//! headers in front of the data where it is, sums it, and makes a request of the driver's server, which has the kernel
//! hand the frame to the card and answers at once: the card reads the frame when all have returned, or earlier. These
//! are four steps of communication. The data goes in one piece of the area, whose memory was there before; requests go
//! in control pieces. Under a monolithic kernel the application sends a datagram on a connected socket, and the kernel
//! builds the packet.
//!
//! Each process fetches its own text, and has a stack and data ([`Image`]): the application its own and a library, the
//! protocol server that of the protocols. TLB misses are counted by process, and by whether memory was its own.
//!
//! Between packets the application sleeps; the frame is on its way meanwhile, and nobody writes there. A process of the
//! lowest priority may use that time to read and write as much memory as the data cache holds. Every packet is compared
//! at the far end of the wire.

use crate::error::LabError;
use crate::kit::{
    CallError, Image, ImageSize, Misses, OutcomeCell, first_process, misses_so_far, named, other_process,
};
use crate::record::{Metric, metric};
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

/// A packet is waited for so many pauses at the most: paths of a file of one's own may be as long as one likes.
const MAX_PAUSES: u32 = 10_000;
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
    /// Text that is fetched between two packets, whoever's it is.
    other_text_bytes: usize,
    protocol_instructions: u32,
    stub_instructions: u32,
    sum: Instructions,
    application: ImageSize,
    protocols: ImageSize,
    driver: ImageSize,
    pause: Cycles,
    warmup: u64,
    packets: u64,
    clock_mhz: f64,
    arrived: Rc<RefCell<Vec<Vec<u8>>>>,
    over: Rc<Cell<bool>>,
    /// A packet is being sent that is measured.
    measuring: Rc<Cell<bool>>,
    /// Of the application, the protocol server and the driver's.
    misses: [Rc<Misses>; 3],
}

/// Whose [misses](Packets::misses).
const APPLICATION: usize = 0;
const IN_PROTOCOLS: usize = 1;
const IN_DRIVER: usize = 2;
/// What reads and writes all the time: a page of text, and the memory.
const CORUNNER: ImageSize = ImageSize { text: 1, data: 0 };
/// Its loop, for as much as it reads and writes at a time.
const CORUNNER_BYTES: usize = 512;
const CORUNNER_INSTRUCTIONS: u32 = 16;

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
        stub_instructions: u32 = 0..=1 << 20,
        other_text_bytes: usize = 0..=1 << 24,
        application_text_pages: usize = 1..=4096,
        application_data_pages: usize = 0..=4096,
        protocol_text_pages: usize = 1..=4096,
        protocol_data_pages: usize = 0..=4096,
        driver_text_pages: usize = 1..=4096,
        driver_data_pages: usize = 0..=4096,
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

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "misses_application_own",
                "count",
                "TLB misses of the application, in its own memory, a packet.",
            ),
            metric(
                "misses_application_area",
                "count",
                "TLB misses of the application, in the area, a packet.",
            ),
            metric(
                "misses_protocols_own",
                "count",
                "TLB misses of the protocol server, in its own memory, a packet.",
            ),
            metric(
                "misses_protocols_area",
                "count",
                "TLB misses of the protocol server, in the area, a packet.",
            ),
            metric(
                "misses_driver_own",
                "count",
                "TLB misses of the driver's server, in its own memory, a packet.",
            ),
            metric(
                "misses_driver_area",
                "count",
                "TLB misses of the driver's server, in the area, a packet.",
            ),
        ]
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
            other_text_bytes: p.other_text_bytes,
            protocol_instructions: p.protocol_instructions,
            stub_instructions: p.stub_instructions,
            sum: Instructions(p.sum_instructions),
            application: ImageSize { text: p.application_text_pages, data: p.application_data_pages },
            protocols: ImageSize { text: p.protocol_text_pages, data: p.protocol_data_pages },
            driver: ImageSize { text: p.driver_text_pages, data: p.driver_data_pages },
            pause: Cycles(p.pause_us * clock_mhz),
            warmup: p.warmup,
            packets: p.packets,
            clock_mhz: clock_mhz as f64,
            arrived: Rc::default(),
            over: Rc::default(),
            measuring: Rc::default(),
            misses: Default::default(),
        };
        testbed.model.attach(Box::new(Wire { data: work.arrived.clone(), ..Wire::default() }));
        let images = [work.application, work.protocols, work.driver, CORUNNER].map(ImageSize::bytes);
        let buffers_bytes = images.iter().sum::<usize>() + 4 * PAGE_SIZE + work.corunner_bytes.unwrap_or(0);
        Ok(first_process(work.cell.clone(), buffers_bytes, move |user| work.run(user)))
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

    /// The image of the calling process, whose misses are counted as those of `whose`.
    fn image(&self, user: &User<Model>, size: ImageSize, whose: usize) -> Result<Image, CallError> {
        Image::load(user, size, (&self.misses[whose], &self.measuring))
    }

    /// Sends packet after packet by `send`, and measures.
    fn measure(
        &self,
        user: &User<Model>,
        place: Va,
        mut send: impl FnMut() -> Result<(), Errno>,
    ) -> Result<(), CallError> {
        let (mut all, mut misses): (Vec<u64>, u64) = (Vec::new(), 0);
        let other_text = match self.other_text_bytes {
            0 => None,
            bytes => {
                let prot = Prot::READ | Prot::EXECUTE;
                Some(user.map(bytes, prot, Inherit::Copy).map_err(named("map other text"))?)
            }
        };
        let instruction_bytes = user.machine().board().instruction_bytes as usize;
        let mut start: Option<(Cycles, Snapshot, ThreadTime)> = None;
        for number in 0..self.warmup + self.packets {
            user.sleep_for(self.pause).map_err(named("sleep"))?;
            if number == self.warmup {
                start = Some((user.machine().now(), self.model.begin_measuring(), ThreadTime::now()));
            }
            let data = self.data(number);
            user.store(place, &data);
            if let Some(at) = other_text {
                user.execute_at(at, Instructions((self.other_text_bytes / instruction_bytes) as u32));
            }
            let before = self.arrived.borrow().len();
            let missed = misses_so_far(user.machine());
            let began = user.machine().now();
            self.measuring.set(number >= self.warmup);
            loop {
                match send() {
                    // The servers are on their way.
                    Err(Errno::ConnectionRefused) if number == 0 => {
                        user.yield_now().map_err(named("yield"))?
                    }
                    made => break made.map_err(named("send"))?,
                }
            }
            self.measuring.set(false);
            if number >= self.warmup {
                all.push(user.machine().now().saturating_sub(began).0);
                misses += misses_so_far(user.machine()) - missed;
            }
            // It may still be on its way; the first one may wait for the receiver's address.
            for _ in 0..MAX_PAUSES {
                user.sleep_for(self.pause).map_err(named("sleep"))?;
                if self.arrived.borrow().len() > before {
                    break;
                }
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
        outcome.measured = Some(measured);
        let [application, protocols, driver] =
            [APPLICATION, IN_PROTOCOLS, IN_DRIVER].map(|whose| &*self.misses[whose]);
        let a_packet = |misses: u64| misses as f64 / all.len().max(1) as f64;
        let by_whom = [
            ("misses_application_own", application.own()),
            ("misses_application_area", application.others()),
            ("misses_protocols_own", protocols.own()),
            ("misses_protocols_area", protocols.others()),
            ("misses_driver_own", driver.own()),
            ("misses_driver_area", driver.others()),
        ];
        let results = [
            ("elapsed_us", elapsed_us),
            ("time_us", mean / self.clock_mhz),
            ("tlb_misses_per_step", a_packet(misses)),
        ];
        let by_whom = by_whom.map(|(name, misses)| (name, a_packet(misses)));
        let all = results.into_iter().chain(by_whom).map(|(name, value)| (name.to_owned(), value));
        outcome.results.extend(all);
        Ok(())
    }

    fn send_by_socket(&self, user: &User<Model>) -> Result<(), CallError> {
        let place = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map the data"))?;
        let socket = user.socket(SocketKind::Datagram).map_err(named("socket"))?;
        user.connect(socket, RECEIVER).map_err(named("connect"))?;
        let own = self.image(user, self.application, APPLICATION)?;
        self.measure(user, place, || {
            own.run(user, self.stub_instructions);
            user.write(socket, place, self.size_bytes).map(|_| ())
        })?;
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
        let own = self.image(user, self.application, APPLICATION)?;
        self.measure(user, data + DATA_AT, || {
            own.run(user, self.stub_instructions);
            own.of_others(user, || ask(self.size_bytes));
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
        let image = self.image(user, self.protocols, IN_PROTOCOLS)?;
        let (work, its) = (self.clone(), image.clone());
        self.serve_each(user, PROTOCOLS, image, move |user, control, data| {
            work.put_headers(user, &its, own, control, data)
        })
    }

    /// The driver's server.
    fn drive(&self, user: &User<Model>) -> Result<(), CallError> {
        let image = self.image(user, self.driver, IN_DRIVER)?;
        let (work, its) = (self.clone(), image.clone());
        self.serve_each(user, DRIVER, image, move |user, control, data| {
            work.hand_to_card(user, &its, control, data)
        })
    }

    /// Does `work` with the control piece and the data of each request: of those in the queue, up to one for no bytes,
    /// or in the threads of those that come here, until a signal comes.
    fn serve_each(
        &self,
        user: &User<Model>,
        service: u32,
        image: Image,
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
            let is_last = image.of_others(user, || Packets::asked(user, inquiry.control)) == 0;
            work(user, inquiry.control, data_of(&inquiry)?.0)?;
            user.ispc_return(inquiry.id).map_err(named("return"))?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// What the protocol server does: headers in front of the data where it is, and a request of the driver.
    fn put_headers(
        &self,
        user: &User<Model>,
        image: &Image,
        own: Va,
        control: Va,
        data: Va,
    ) -> Result<(), CallError> {
        let len = image.of_others(user, || Packets::asked(user, control));
        let mut words = [0; REQUEST_BYTES];
        if len > 0 {
            image.run(user, self.protocol_instructions);
            // The loop of the sum is at hand.
            user.compute(Instructions(self.sum.0 * len.div_ceil(32) as u32));
            image.of_others(user, || {
                let mut bytes = vec![0; len];
                user.load(data + DATA_AT, &mut bytes);
                user.store(data + (DATA_AT - HEADER_BYTES), &headers(&bytes));
            });
            words[..8].copy_from_slice(&((len + HEADER_BYTES) as u64).to_le_bytes());
        }
        image.of_others(user, || user.store(own, &words));
        loop {
            match user.ispc_request(DRIVER, own, Some(data), Wait::Yes) {
                Err(Errno::ConnectionRefused) => user.yield_now().map_err(named("yield"))?,
                made => return made.map_err(named("make a request of the driver")),
            }
        }
    }

    /// What the driver's server does.
    fn hand_to_card(
        &self,
        user: &User<Model>,
        image: &Image,
        control: Va,
        data: Va,
    ) -> Result<(), CallError> {
        let len = image.of_others(user, || Packets::asked(user, control));
        if len > 0 {
            image.run(user, self.stub_instructions);
            user.card_send(data + (DATA_AT - HEADER_BYTES), len).map_err(named("send"))?;
        }
        Ok(())
    }

    /// Reads and writes memory for ever, at the lowest priority.
    fn corun(&self, user: &User<Model>, bytes: usize) -> Result<(), CallError> {
        user.run_last(true).map_err(named("take the lowest priority"))?;
        let at = user.map(bytes, Prot::RW, Inherit::Copy).map_err(named("map memory"))?;
        // It runs while nothing is measured: its misses are nobody's.
        let image = self.image(user, CORUNNER, APPLICATION)?;
        let mut page = vec![0; CORUNNER_BYTES];
        while !self.over.get() {
            for start in (0..bytes).step_by(page.len()) {
                let part = page.len().min(bytes - start);
                image.run(user, CORUNNER_INSTRUCTIONS);
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
