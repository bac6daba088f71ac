//! Real data through a modelled pipe.
//!
//! A modelled process takes bytes from a reader on the host, stores them in its memory and writes them to a pipe;
//! another reads the pipe, loads the bytes from its memory and hands them to a writer on the host. The bytes go through
//! modelled memory and the modelled MMU all the way. Storing and loading are the processes' own time (`user`); reading
//! and writing on the host cost no modelled time.
//!
//! Identity is checked by a hash of what came in and one of what went out.

use crate::error::LabError;
use crate::files::{KernelChoice, MachineChoice};
use crate::kit::{receive_by, room_for};
use crate::record::{Cycles, Law};
use crate::run::Choices;
use crate::run::Testbed;
use crate::run::{counters, cycles};
use cpu_time::ThreadTime;
use pageferry_hal::{Machine as _, PAGE_SIZE, Prot};
use pageferry_kernel::{Errno, Fd, Program, User};
pub use pageferry_kernel::{ReceiveMode, SendMode};
use pageferry_model::{Model, Snapshot};
use pageferry_vm::Inherit;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::rc::Rc;

/// Where the bytes come from and go to. The names are for errors.
pub struct Ends {
    /// What is carried.
    pub input: Box<dyn Read>,
    /// The input's name.
    pub input_name: PathBuf,
    /// How long the input should be, where that is known.
    pub expected_bytes: Option<u64>,
    /// Where it goes.
    pub output: Box<dyn Write>,
    /// The output's name.
    pub output_name: PathBuf,
    /// Called with the number of bytes that have arrived, now and then.
    pub progress: Box<dyn FnMut(u64)>,
}

/// How the bytes get into the pipe and out of it. Anything but copies needs pipes that are sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ways {
    /// How the writer sends.
    pub send: SendMode,
    /// How the reader receives.
    pub receive: ReceiveMode,
}

/// What a transfer cost.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TransferReport {
    /// The machine's name.
    pub machine: String,
    /// The kernel's name.
    pub kernel: String,
    /// Bytes carried.
    pub len_bytes: u64,
    /// Bytes in a write.
    pub chunk_bytes: usize,
    /// The SHA-256 of the bytes that went in, and of those that came out.
    pub sha256: String,
    /// True when the two hashes are equal.
    pub identical: bool,
    /// Modelled time, from the first byte's entering to the last one's leaving.
    pub elapsed_us: f64,
    /// Bytes a modelled microsecond: MB of 10^6 bytes a second.
    pub bandwidth_mb_s: f64,
    /// How often the kernel copied each byte.
    pub copies_per_byte: f64,
    /// Events that the kernel counted.
    pub counters: BTreeMap<String, u64>,
    /// Where the cycles went.
    pub cycles: Cycles,
    /// Laws, and whether each held.
    pub laws: Vec<Law>,
    /// Time on the host.
    pub host_ms: f64,
}

/// Carries all of `ends.input` to `ends.output`, in writes of `chunk_bytes`, by `ways`.
///
/// # Errors
/// When the input cannot be read or ends early, the output cannot be written, or the machine and kernel do not fit. A
/// broken law is not an error here.
pub fn stream(
    machine: &MachineChoice,
    kernel: &KernelChoice,
    chunk_bytes: usize,
    ways: Ways,
    ends: Ends,
) -> Result<TransferReport, LabError> {
    assert!(chunk_bytes > 0, "a chunk has at least one byte");
    let began = ThreadTime::now();
    let testbed = Testbed::new(machine, kernel, Choices { seed: 0, ..Choices::default() })?;
    let clock_mhz = machine.config.cpu.clock_mhz.value as f64;
    let state = Rc::new(RefCell::new(State::default()));
    let expected = ends.expected_bytes;
    let (input_name, output_name) = (ends.input_name.clone(), ends.output_name.clone());
    let finish =
        testbed.execute("pipe", parent(testbed.model.clone(), chunk_bytes, ways, ends, state.clone()))?;
    let state = state.take();
    let sound = finish.laws.iter().all(|law| law.held);
    match state.failed {
        Some(Failure::Input(error)) => return Err(LabError::io("read", input_name, error)),
        Some(Failure::Output(error)) => return Err(LabError::io("write", output_name, error)),
        // In a broken run the failure of a call is a consequence.
        Some(Failure::Kernel(problem)) if sound => return Err(testbed.incompatible(problem)),
        _ => {}
    }
    if let Some(expected) = expected.filter(|expected| sound && state.taken < *expected) {
        let problem = format!("it ended after {} of {expected} bytes", state.taken);
        return Err(LabError::io("read", input_name, io::Error::new(io::ErrorKind::UnexpectedEof, problem)));
    }
    let (sent, arrived) = (hex(&state.sent.finalize()), hex(&state.arrived.finalize()));
    let identical = sent == arrived && state.taken == state.delivered;
    let mut laws = finish.laws;
    let fault =
        || format!("{} bytes in, {} out; SHA-256 {sent} in, {arrived} out", state.taken, state.delivered);
    laws.push(Law::new("what came out is what went in", identical.then_some(()).ok_or_else(fault)));
    let measured = state.measured;
    let counters = measured.as_ref().map(counters).unwrap_or_default();
    let copied = counters.get("bytes_copied").copied().unwrap_or(0) as f64;
    let elapsed_us = state.elapsed_cycles as f64 / clock_mhz;
    let per = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    Ok(TransferReport {
        machine: machine.name.clone(),
        kernel: kernel.name.clone(),
        len_bytes: state.taken,
        chunk_bytes,
        sha256: arrived,
        identical,
        elapsed_us,
        bandwidth_mb_s: per(state.taken as f64, elapsed_us),
        copies_per_byte: per(copied, state.taken as f64),
        counters,
        cycles: measured.as_ref().map(cycles).unwrap_or_default(),
        laws,
        host_ms: began.elapsed().as_secs_f64() * 1e3,
    })
}

/// What ended the transfer early.
enum Failure {
    Input(io::Error),
    Output(io::Error),
    Kernel(String),
}

/// What the two processes share with the host.
#[derive(Default)]
struct State {
    failed: Option<Failure>,
    /// When the first byte entered, and the accounts of that moment.
    start: Option<(u64, Snapshot)>,
    taken: u64,
    delivered: u64,
    sent: Sha256,
    arrived: Sha256,
    measured: Option<Snapshot>,
    elapsed_cycles: u64,
}

type Shared = Rc<RefCell<State>>;

impl State {
    fn fail(&mut self, failure: Failure) {
        self.failed.get_or_insert(failure);
    }
}

fn named(what: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::Kernel(format!("{what}: {errno}"))
}

/// The first process: makes the pipe, forks the writer, and is the reader.
fn parent(model: Model, chunk_bytes: usize, ways: Ways, ends: Ends, state: Shared) -> Program<Model> {
    Box::new(move |user: &User<Model>| {
        let Ends { input, output, progress, .. } = ends;
        let mut reader =
            Reader { output, progress, chunk_bytes, mode: ways.receive, model, state: state.clone() };
        let carried = carry(
            user,
            Writer { input, chunk_bytes, mode: ways.send, model: reader.model.clone(), state: state.clone() },
            &mut reader,
        );
        // A failure may have begun with the writer: the first one counts.
        if let Err(failure) = carried {
            state.borrow_mut().fail(failure);
        }
    })
}

fn carry(user: &User<Model>, mut writer: Writer, reader: &mut Reader) -> Result<(), Failure> {
    room_for(user, 2 * reader.chunk_bytes).map_err(Failure::Kernel)?;
    if writer.mode == SendMode::Auto || reader.mode == ReceiveMode::Auto {
        // Now, before anything is measured here, the kernel measures what its choices rest on.
        user.measure_moves().map_err(named("measure"))?;
    }
    let (from, to) = user.pipe().map_err(named("pipe"))?;
    let child: Program<Model> = Box::new(move |user: &User<Model>| {
        if let Err(failure) = writer.run(user, from, to) {
            writer.state.borrow_mut().fail(failure);
        }
    });
    user.fork("writer", child).map_err(named("fork"))?;
    user.close(to).map_err(named("close"))?;
    let read = reader.run(user, from);
    // Without a reader the writer ends, too.
    user.close(from).map_err(named("close"))?;
    user.wait().map_err(named("wait"))?;
    read
}

struct Writer {
    input: Box<dyn Read>,
    chunk_bytes: usize,
    mode: SendMode,
    model: Model,
    state: Shared,
}

impl Writer {
    fn run(&mut self, user: &User<Model>, unused: Fd, to: Fd) -> Result<(), Failure> {
        user.close(unused).map_err(named("close"))?;
        let buffer =
            user.map(self.chunk_bytes, Prot::RW, Inherit::Copy).map_err(named("map the writer's buffer"))?;
        let mut chunk = vec![0; self.chunk_bytes];
        loop {
            let len = fill(&mut *self.input, &mut chunk).map_err(Failure::Input)?;
            if len == 0 {
                return user.close(to).map_err(named("close"));
            }
            {
                let state = &mut *self.state.borrow_mut();
                state.start.get_or_insert_with(|| (user.machine().now().0, self.model.begin_measuring()));
                state.taken += len as u64;
                state.sent.update(&chunk[..len]);
            }
            user.store(buffer, &chunk[..len]);
            let mut done = 0;
            while done < len {
                match user.send(to, buffer + done, len - done, self.mode) {
                    Ok(wrote) => done += wrote,
                    // The reader has given up, and reports why.
                    Err(Errno::BrokenPipe) => return Ok(()),
                    Err(errno) => return Err(named("write")(errno)),
                }
            }
        }
    }
}

struct Reader {
    output: Box<dyn Write>,
    progress: Box<dyn FnMut(u64)>,
    chunk_bytes: usize,
    mode: ReceiveMode,
    model: Model,
    state: Shared,
}

impl Reader {
    fn run(&mut self, user: &User<Model>, from: Fd) -> Result<(), Failure> {
        let buffer =
            user.map(self.chunk_bytes, Prot::RW, Inherit::Copy).map_err(named("map the reader's buffer"))?;
        let mut chunk = vec![0; self.chunk_bytes];
        loop {
            let received = receive_by(user, from, buffer, self.chunk_bytes, self.mode);
            let (len, pages) = received.map_err(named("read"))?;
            if len == 0 {
                break;
            }
            user.load(buffer, &mut chunk[..len]);
            if pages {
                let len = len.next_multiple_of(PAGE_SIZE);
                user.anflush(buffer, len).map_err(named("anflush"))?;
            }
            self.output.write_all(&chunk[..len]).map_err(Failure::Output)?;
            let state = &mut *self.state.borrow_mut();
            state.arrived.update(&chunk[..len]);
            state.delivered += len as u64;
            (self.progress)(state.delivered);
        }
        let state = &mut *self.state.borrow_mut();
        if let Some((began, before)) = &state.start {
            state.elapsed_cycles = user.machine().now().0.saturating_sub(*began);
            state.measured = Some(self.model.end_measuring().since(before));
        }
        self.output.flush().map_err(Failure::Output)
    }
}

/// Reads until `buf` is full or the input ends.
fn fill(input: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match input.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String");
        text
    })
}
