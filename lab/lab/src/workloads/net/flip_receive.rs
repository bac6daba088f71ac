//! Receiving a stream from the wire: copied out of the card's buffers, or by taking the card's pages over (page-flip
//! paper).
//!
//! The far end sends as fast as the wire and the window let it (nttcp's transmitter, on a host that is never short of
//! time). The receiver asks for so many bytes at a time into one buffer on a page boundary. With `touch` it does what
//! nttcp 1.47 does with `-c`: it makes the bytes that it expects anew for each buffer, one by one, by a generator of
//! pseudo-random numbers (`streamr250`), and compares byte by byte (`BufCompare`). That takes more of its CPU than the
//! kernel does, so that a receiver that looks at its data may well be slower than the wire. A driver whose card splits
//! no headers can do it by a copy (`mock`). The measured part begins when the receiver has the last byte of the warm-
//! up, and ends when it has the last byte of all. CPU use is that of all CPUs of the machine, as sar counts it.
//!
//! With more than one of `processes` the others compute for ever beside it, each over memory of its own, and give the
//! CPU up after each turn: the context switches that the paper expects to make a flip worth more (Future directions).

use super::Began;
use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{
    CallError, OutcomeCell, Payload, differs_behind, first_process, measure_first, named, other_process,
    receive_by, stream_socket,
};
use crate::plot::{Axis, CAUSES, Chart, Plot, Stack, StackRow, Table, causes_in, parts};
use crate::record::{Metric, Record, metric};
use crate::run::{FAR_END, Testbed, Workload};
use crate::text;
use cpu_time::ThreadTime;
use pageferry_hal::{Cause, CpuId, Instructions, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, Program, ReceiveMode, Repack, SendMode, SocketOption, User};
use pageferry_model::net::line::{Call, End, LineConfig, LineHost, Speech, Talker};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::cell::Cell;
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::time::Duration;

/// Where nttcp's transmitter is.
const NTTCP: SocketAddrV4 = SocketAddrV4::new(FAR_END, 5037);
/// The stream is checked in pieces of so many bytes.
const CHUNK_BYTES: usize = 65_536;
/// The CPU that the card interrupts.
const CARDS_CPU: CpuId = CpuId(0);
/// What a process that computes reads and writes a word of; and the instructions besides.
const COMPUTED_BYTES: usize = 64;
const COMPUTE_INSTRUCTIONS: u32 = 16;

/// Where a receiver gets what has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// Into its buffer.
    Buffer(ReceiveMode),
    /// Shown in a window; what fills no page into its buffer, by copy.
    Window,
    /// In a receive area of so many bytes, where the card puts it. The receiver gives back what a call has brought with
    /// the next one.
    Area(usize),
    /// Nowhere: it is thrown away.
    Nowhere,
}

impl Destination {
    /// How the kernel moves it.
    fn mode(self) -> ReceiveMode {
        match self {
            Destination::Buffer(mode) => mode,
            Destination::Window | Destination::Area(_) | Destination::Nowhere => ReceiveMode::Copy,
        }
    }
}

/// What a receiver does.
pub(super) struct Receiving {
    pub(super) into: Destination,
    /// It compares what it gets: instructions for each byte, to make what it expects and to compare.
    pub(super) touch: Option<u32>,
    pub(super) socket_bytes: usize,
    pub(super) read_bytes: usize,
    /// It waits for so many bytes, if it wants so many.
    pub(super) low_water_bytes: usize,
    /// How far behind a page boundary its buffer begins.
    pub(super) offset_bytes: usize,
    pub(super) warmup_bytes: u64,
    pub(super) total_bytes: u64,
    /// The CPU that it runs on; where the kernel has it if there is none.
    pub(super) cpu: Option<CpuId>,
    /// What its own CPU does is told, if the card interrupts another.
    pub(super) tells_own: bool,
    /// Others that compute beside it, and over how many bytes each; none where nobody asks what they get done.
    pub(super) beside: Option<(usize, usize)>,
}

impl Receiving {
    fn all_bytes(&self) -> u64 {
        self.warmup_bytes + self.total_bytes
    }

    /// The program of the only process, or of the first; the transmitter is at the far end of the card's wire.
    pub(super) fn program(
        self,
        testbed: &mut Testbed,
        cell: OutcomeCell,
    ) -> Result<Program<Model>, LabError> {
        testbed.give_address(true)?;
        connect(testbed, self.all_bytes());
        let (others, other_bytes) = self.beside.unwrap_or((0, 0));
        let others = others.saturating_mul(other_bytes);
        let area = if let Destination::Area(len) = self.into { len } else { 0 };
        let buffers = (2 * self.read_bytes + self.offset_bytes + 2 * self.socket_bytes)
            .saturating_add(area)
            .saturating_add(others);
        let work = FlipReceive {
            model: testbed.model.clone(),
            cell: cell.clone(),
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Payload::new(testbed.seed, CHUNK_BYTES),
            in_loops: InLoops::on(&testbed.machine.config),
            it: self,
        };
        Ok(first_process(cell, buffers, move |user| work.run(user)))
    }
}

/// Puts the transmitter of `len` bytes at the far end.
fn connect(testbed: &mut Testbed, len: u64) {
    let mtu = testbed.machine.config.nic.as_ref().map_or(1500, |nic| nic.mtu_bytes.value);
    let config = LineConfig { ip: FAR_END, mtu_bytes: mtu as usize, ..LineConfig::default() };
    let payload = Rc::new(Payload::new(testbed.seed, CHUNK_BYTES));
    let write = Rc::new(move |at: u64, into: &mut [u8]| {
        each_chunk(&payload, at, into.len(), |from, piece| {
            into[from..from + piece.len()].copy_from_slice(piece);
        })
    });
    let speech = Speech { len, write, closes_first: true };
    testbed.model.attach(Box::new(LineHost::new(config, Transmitter(speech))));
}

/// Calls `with` for each piece of the stream's bytes from `at` on: where it begins among them, and what it is.
fn each_chunk(payload: &Payload, at: u64, len: usize, mut with: impl FnMut(usize, &[u8])) {
    let mut done = 0;
    while done < len {
        let place = at + done as u64;
        let from = (place % CHUNK_BYTES as u64) as usize;
        let part = (len - done).min(CHUNK_BYTES - from);
        with(done, &payload.chunk(place / CHUNK_BYTES as u64)[from..from + part]);
        done += part;
    }
}

/// Says the same to everyone.
struct Transmitter(Speech);

impl Talker for Transmitter {
    fn accepts(&mut self, _: u64, port: u16) -> Option<Speech> {
        (port == NTTCP.port()).then(|| self.0.clone())
    }
    fn calls(&mut self, _: u64, _: u64) -> Option<Call> {
        None
    }
    fn next_call_at(&mut self, _: u64) -> Option<u64> {
        None
    }
    fn hears(&mut self, _: u64, _: u64, _: u64, _: &[u8]) {}
    fn ended(&mut self, _: u64, _: u64, _: End) {}
}

pub(crate) struct FlipReceive {
    model: Model,
    cell: OutcomeCell,
    clock_mhz: f64,
    payload: Payload,
    in_loops: InLoops,
    it: Receiving,
}

/// How long instructions of a tight loop take, beside those of which a machine says how long they take.
#[derive(Clone, Copy)]
struct InLoops {
    loop_cpi_milli: u64,
    cpi_milli: u64,
}

impl InLoops {
    fn on(machine: &MachineConfig) -> InLoops {
        let cpi_milli = machine.cpu.cpi_milli.value;
        InLoops {
            loop_cpi_milli: machine.cpu.loop_cpi_milli.as_ref().map_or(cpi_milli, |n| n.value),
            cpi_milli,
        }
    }

    /// So many instructions of others take as long as `count` of a loop.
    fn as_others(self, count: u64) -> Instructions {
        Instructions(u32::try_from(count * self.loop_cpi_milli / self.cpi_milli).unwrap_or(u32::MAX))
    }
}

crate::choice! {
    /// How data is received, and whether card or driver splits headers.
    pub(crate) enum By {
        Copy = "copy",
        Flip = "flip",
        MockCopy = "mock-copy",
        MockFlip = "mock-flip",
        Auto = "auto",
    }
}

crate::choice! {
    /// On which CPU the receiver runs: where the kernel has it, on any, by the seed, on the one that the card
    /// interrupts, on another thread of that one's package, or on another package.
    pub(crate) enum Reader {
        Free = "free",
        Any = "any",
        Interrupted = "interrupted",
        Sibling = "sibling",
        Package = "package",
    }
}

impl Reader {
    /// The card interrupts the first CPU. Fails with what the machine lacks.
    pub(super) fn cpu(self, machine: &MachineConfig, seed: u64) -> Result<Option<CpuId>, &'static str> {
        let (packages, threads) = (machine.cpu.packages.value, machine.cpu.threads_per_package.value);
        match self {
            Reader::Free => Ok(None),
            // As many seeds as there are CPUs have each of them once.
            Reader::Any => Ok(Some(CpuId((seed % machine.cpus() as u64) as u8))),
            Reader::Interrupted => Ok(Some(CARDS_CPU)),
            Reader::Sibling if threads > 1 => Ok(Some(CpuId(1))),
            Reader::Sibling => {
                Err("reader = sibling: expected a machine with two threads in a package, or more")
            }
            Reader::Package if packages > 1 => Ok(Some(CpuId(threads as u8))),
            Reader::Package => Err("reader = package: expected a machine with two packages, or more"),
        }
    }
}

impl By {
    fn is_mock(self) -> bool {
        matches!(self, By::MockCopy | By::MockFlip)
    }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        socket_bytes: usize = 4096..=16 << 20,
        read_bytes: usize = 1..=16 << 20,
        warmup_bytes: u64 = 0..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        processes: usize = 1..=64,
        process_bytes: usize = 4096..=16 << 20,
        by: By,
        reader: Reader,
        /// The receiver compares what it gets.
        touch: bool,
        touch_instructions: u32 = 0..=1000,
        /// A driver that splits headers by a copy flushes the TLB.
        driver_flushes: bool,
    }
}

impl Workload for FlipReceive {
    const NAME: &'static str = "flip-receive";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        super::weight(p.total_bytes, p.warmup_bytes)
    }

    fn metrics() -> Vec<Metric> {
        let own = [metric(
            "beside_mb_s",
            "MB/s",
            "Memory that other processes computed over meanwhile, all together.",
        )];
        super::METRICS.into_iter().chain(own).collect()
    }

    /// A driver that does the card's work has a card that does not.
    fn adapt(p: &Parameters, machine: &mut MachineConfig) {
        if let Some(nic) = machine.nic.as_mut().filter(|_| p.by.is_mock()) {
            nic.header_split.value = false;
        }
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let cpu = p
            .reader
            .cpu(&testbed.machine.config, testbed.seed)
            .map_err(|lacking| testbed.incompatible(lacking))?;
        let receiving = Receiving {
            into: Destination::Buffer(match p.by {
                By::Flip | By::MockFlip => ReceiveMode::Transfer,
                By::Auto => ReceiveMode::Auto,
                By::Copy | By::MockCopy => ReceiveMode::Copy,
            }),
            low_water_bytes: 1,
            touch: p.touch.then_some(p.touch_instructions),
            socket_bytes: p.socket_bytes,
            read_bytes: p.read_bytes,
            offset_bytes: 0,
            warmup_bytes: p.warmup_bytes,
            total_bytes: p.total_bytes,
            cpu,
            tells_own: false,
            beside: Some((p.processes - 1, p.process_bytes)),
        };
        let program = receiving.program(testbed, cell)?;
        if let (true, Some(net)) = (p.by.is_mock(), &mut testbed.net) {
            net.repack = Some(Repack { flushes: p.driver_flushes });
        }
        Ok(program)
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        shares(of, &experiment.name).into_iter().collect()
    }
}

impl FlipReceive {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let beside = Rc::new(Beside::default());
        let (others, bytes) = self.it.beside.unwrap_or((0, 0));
        for _ in 0..others {
            let beside = beside.clone();
            let body = other_process(self.cell.clone(), move |user| beside.compute(user, bytes));
            user.fork("computing", body).map_err(named("fork"))?;
        }
        let result = self.receive(user, &beside);
        beside.over.set(true);
        (0..others).try_for_each(|_| user.wait().map_err(named("wait")).map(|_| ()))?;
        result
    }

    fn receive(&self, user: &User<Model>, beside: &Beside) -> Result<(), CallError> {
        let Receiving { into, touch, read_bytes, offset_bytes, warmup_bytes, low_water_bytes, .. } = self.it;
        let all_bytes = self.it.all_bytes();
        if self.it.cpu.is_some() {
            user.bind_cpu(self.it.cpu).map_err(named("bind to a CPU"))?;
        }
        let mapped = |len| user.map(len, Prot::RW, Inherit::Copy).map_err(named("map the buffer"));
        let buffer = mapped(offset_bytes + read_bytes)? + offset_bytes;
        let expected = mapped(read_bytes)?;
        user.store(buffer, &vec![1; read_bytes]);
        user.store(expected, &vec![1; read_bytes]);
        measure_first(user, SendMode::Copy, into.mode())?;
        let elsewhere = match into {
            Destination::Window => user.map_window(read_bytes).map_err(named("map a window"))?,
            Destination::Area(len) => mapped(len)?,
            Destination::Buffer(_) | Destination::Nowhere => Va(0),
        };
        let fd = stream_socket(user, self.it.socket_bytes)?;
        if low_water_bytes > 1 {
            let low_water = SocketOption::ReceiveLowWater(low_water_bytes);
            user.set_socket_option(fd, low_water).map_err(named("say how much to wait for"))?;
        }
        user.connect(fd, NTTCP).map_err(named("connect"))?;
        if let Destination::Area(len) = into {
            user.set_receive_area(fd, elsewhere, len).map_err(named("have a receive area"))?;
        }
        let mut placed = Vec::new();
        let (mut began, mut got, mut aside) = (None, 0, Duration::ZERO);
        while got < all_bytes {
            if got >= warmup_bytes && began.is_none() {
                aside = Duration::ZERO;
                beside.bytes.set(0);
                began = Some((Began::now(user, &self.model), got));
            }
            let end = if got < warmup_bytes { warmup_bytes } else { all_bytes };
            let want = (end - got).min(read_bytes as u64) as usize;
            let parts = match into {
                Destination::Buffer(_) => vec![(buffer, self.read(user, fd, buffer, want)?)],
                Destination::Window => self.shown(user, fd, elsewhere, buffer, want)?.to_vec(),
                Destination::Area(_) => {
                    placed = user.receive_placed(fd, &placed, want).map_err(named("receive in an area"))?;
                    placed.iter().map(|place| (elsewhere + place.offset, place.len_bytes)).collect()
                }
                Destination::Nowhere => {
                    let len = user.discard(fd, want).map_err(named("throw away"))?;
                    got += len as u64;
                    if len > 0 {
                        continue;
                    }
                    Vec::new()
                }
            };
            if parts.iter().all(|(_, len)| *len == 0) {
                self.cell.borrow_mut().damage(format!("the stream ended after {got} of {all_bytes} bytes"));
                return Ok(());
            }
            for (at, len) in parts.into_iter().filter(|(_, len)| *len > 0) {
                let checking = ThreadTime::now();
                let sent = self.sent(got, len);
                aside += checking.elapsed();
                if let Some(instructions) = touch {
                    self.compare(user, at, expected, &sent, instructions);
                }
                let checking = ThreadTime::now();
                self.check(user, at, got, &sent);
                aside += checking.elapsed();
                got += len as u64;
            }
        }
        let (began, first) = began.expect("there is at least one byte to measure");
        let bytes = got - first;
        let outcome = &mut self.cell.borrow_mut();
        began.ended(user, &self.model, self.clock_mhz, bytes, aside, outcome);
        if let (true, Some(cpu), Some(measured)) = (self.it.tells_own, self.it.cpu, &outcome.measured)
            && cpu != CARDS_CPU
        {
            let idle = measured.cycles[cpu.index()][Cause::Idle.index()];
            let busy_us = (measured.clocks[cpu.index()] - idle) as f64 / self.clock_mhz;
            outcome.results.insert("receiver_us_per_mb".into(), busy_us * f64::from(1 << 20) / bytes as f64);
        }
        if self.it.beside.is_some() {
            // Bytes a microsecond are MB a second.
            let beside = beside.bytes.get() as f64 / outcome.results["elapsed_us"];
            outcome.results.insert("beside_mb_s".into(), beside);
        }
        user.close(fd).map_err(named("close"))
    }

    fn read(&self, user: &User<Model>, fd: Fd, at: Va, want: usize) -> Result<usize, CallError> {
        let (len, _) = receive_by(user, fd, at, want, self.it.into.mode()).map_err(named("receive"))?;
        Ok(len)
    }

    /// Has a window show what comes next, up to the page that has the last of the bytes that it wants; and receives
    /// into a buffer what fills no page and is in the way of more. Where both are, and how much.
    fn shown(
        &self,
        user: &User<Model>,
        fd: Fd,
        window: Va,
        buffer: Va,
        want: usize,
    ) -> Result<[(Va, usize); 2], CallError> {
        let pages = want.next_multiple_of(PAGE_SIZE);
        let shown = user.receive_shown(fd, window, pages).map_err(named("be shown"))?;
        let copied = match shown.copy_bytes.min(want.saturating_sub(shown.len_bytes)) {
            0 => 0,
            want => self.read(user, fd, buffer, want)?,
        };
        Ok([(window, shown.len_bytes), (buffer, copied)])
    }

    /// The `len` bytes of the stream from `offset` on.
    fn sent(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut sent = vec![0; len];
        each_chunk(&self.payload, offset, len, |at, piece| sent[at..at + piece.len()].copy_from_slice(piece));
        sent
    }

    /// Makes what is expected at `expected`, a page at a time, and compares it with what came to `at`, at
    /// `instructions` a byte.
    fn compare(&self, user: &User<Model>, at: Va, expected: Va, sent: &[u8], instructions: u32) {
        let mut seen = [0; PAGE_SIZE];
        for (start, part) in (0..).step_by(PAGE_SIZE).zip(sent.chunks(PAGE_SIZE)) {
            user.store(expected + start, part);
            user.load(at + start, &mut seen[..part.len()]);
            let differs = seen[..part.len()] != *part;
            user.load(expected + start, &mut seen[..part.len()]);
            user.compute(self.in_loops.as_others(part.len() as u64 * u64::from(instructions)));
            if differs {
                self.cell.borrow_mut().damage("the receiver did not get what it expects".into());
            }
        }
    }

    /// Compares what was received with what was sent, at no modelled cost.
    fn check(&self, user: &User<Model>, buffer: Va, offset: u64, sent: &[u8]) {
        if let Some(wrong) = differs_behind(user, &self.model, buffer, sent) {
            let fault = format!("byte {} of the stream is not what was sent", offset + wrong as u64);
            self.cell.borrow_mut().damage(fault);
        }
    }
}

/// What the others have done.
#[derive(Default)]
struct Beside {
    bytes: Cell<u64>,
    over: Cell<bool>,
}

impl Beside {
    /// Reads and writes a word of each line of `len` bytes, and gives the CPU up, until all is over.
    fn compute(&self, user: &User<Model>, len: usize) -> Result<(), CallError> {
        let at = user.map(len, Prot::RW, Inherit::Copy).map_err(named("map the memory to compute over"))?;
        while !self.over.get() {
            for line in (0..len).step_by(COMPUTED_BYTES) {
                let mut word = [0; 4];
                user.load(at + line, &mut word);
                user.store(at + line, &word);
            }
            user.compute(Instructions((len / COMPUTED_BYTES) as u32 * COMPUTE_INSTRUCTIONS));
            self.bytes.set(self.bytes.get() + len as u64);
            user.yield_now().map_err(named("yield"))?;
        }
        Ok(())
    }
}

// ---------------------------------------------------------------------------------------- the figure

const CLOCK: &str = "machine.cpu.clock_mhz";
const MTU: &str = "machine.nic.mtu_bytes";

/// The settings of a kernel whose path of a flip is better than the paper's, and what they are if it is.
const BETTER: [(&str, &str); 3] = [
    ("kernel.transfer.locked_once", "2"),
    ("kernel.transfer.returns", "true"),
    ("kernel.pmap.full_flush_pages", "1"),
];

/// What is received by, and which of [`BETTER`] the kernel has: names of rows, in their order.
const WAYS: [(&str, &str, [bool; 3]); 6] = [
    ("copy", "copy", [false; 3]),
    ("flip", "flip", [false; 3]),
    ("flip, locks once", "flip", [true, false, false]),
    ("flip, pages exchanged", "flip", [false, true, false]),
    ("flip, one flush", "flip", [false, false, true]),
    ("flip, all of it", "flip", [true; 3]),
];

/// The receiver looks at its data, and nothing but clock, MTU and [`BETTER`] differs from the paper's machine and card.
fn belongs(record: &Record) -> bool {
    record.setting_is("touch", "true")
        && record.setting_is("processes", "1")
        && record.settings.contains_key(CLOCK)
        && !record.settings.contains_key("machine.memory.latency_cycles")
        && !record.settings.contains_key("machine.nic.coalesce_bytes")
}

/// The figure of what a page costs that is received by copy or by flip (page-flip paper, Results: what its profiler saw
/// of locks and of flushes of the TLB): the cycles of all CPUs by cause, for each MTU and clock.
fn shares(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let all = || of.records().filter(|r| r.experiment == experiment && belongs(r));
    let reads = |record: &Record| record.number("read_bytes").map_or(0, |bytes| bytes as u64);
    let max_bytes = all().map(reads).max()?;
    let records = || all().filter(|record| reads(record) == max_bytes);
    let mut places: Vec<(u64, u64)> = records()
        .filter_map(|record| Some((record.number(MTU)? as u64, record.number(CLOCK)? as u64)))
        .collect();
    places.sort_unstable();
    places.dedup();
    let mut table = Table { head: ["MTU", "MHz", "by"].map(String::from).into(), rows: Vec::new() };
    table.head.extend(CAUSES.iter().map(|(_, _, name, _)| format!("{name} (cycles)")));
    let mut groups = Vec::new();
    for (mtu, clock) in places {
        let mut rows = Vec::new();
        for (name, by, better) in WAYS {
            let is_it = |r: &&Record| {
                r.number(MTU) == Some(mtu as f64)
                    && r.number(CLOCK) == Some(clock as f64)
                    && r.setting_is("by", by)
                    && BETTER.iter().zip(better).all(|((key, value), is)| r.setting_is(key, value) == is)
            };
            let Some(record) = records().find(is_it) else { continue };
            let Some(bytes) = record.number("total_bytes") else { continue };
            let mut parts = parts(record, PAGE_SIZE as f64 / bytes);
            let mut row = vec![mtu.to_string(), clock.to_string(), name.to_owned()];
            row.extend(parts.iter().map(|part| format!("{:.0}", part.value)));
            table.rows.push(row);
            parts.retain(|part| part.name != "idle");
            let busy: f64 = parts.iter().map(|part| part.value).sum();
            rows.push(StackRow { name: name.to_owned(), parts, shown: text::number(busy.round()) });
        }
        groups.push(Stack { label: format!("{mtu}, {clock} MHz"), rows });
    }
    groups.retain(|group| !group.rows.is_empty());
    let legend = causes_in(&groups);
    (!groups.is_empty()).then(|| Plot {
        id: format!("{}-shares", experiment.trim_end_matches("-receive")),
        title: "Where the cycles of a received page go".into(),
        subtitle: "By MTU and clock: cycles of all CPUs for 4 KiB of payload, with the receiver looking at its \
                   data".into(),
        chart: Chart::Stacks(groups, Axis::linear("CPU time of a page", "cycles"), 64.0),
        label: "Cycles of a page by cause, by copy and by flip, for each MTU and clock".into(),
        legend,
        note: "The paper's profiler found most stalls of the flip at its locks, and the flush of the TLB painful; a \
               memory access costs more cycles the faster the clock is, and so does a lock."
            .into(),
        table,
    })
}
