//! The programs of the experiments: what the modelled processes do, and what is measured of it.
//!
//! Each has a `program` that gives the first process's program. Its processes are coroutines of one host thread and
//! leave what they found in a shared [`Outcome`].

use crate::run::RunSpec;
use crate::text;
use pageferry_hal::{Cycles, Machine as _, PAGE_SIZE, Va};
use pageferry_kernel::{Carrier, Errno, Fd, Program, ReceiveMode, SendMode, User};
use pageferry_model::{Model, Snapshot};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub mod bw_pipe;
pub mod cost_growth;
pub mod ephemeral_hit;
pub mod file_read;
pub mod invalidate;
mod link;
pub mod mixed;
pub mod null_read;
pub mod null_write;
pub mod ping_pong;
pub mod pipeline;
pub mod sound;
pub mod stream;
pub mod uvm_pipe;

/// What a workload found.
#[derive(Debug)]
pub struct Outcome {
    /// What the experiment measures.
    pub results: BTreeMap<String, f64>,
    /// Cycles, counters and hardware counts of the measured part.
    pub measured: Option<Snapshot>,
    /// Host time of the measured part.
    pub measured_s: f64,
    /// What was wrong with the payload.
    pub payload: Result<(), String>,
    /// A system call that failed, with what it was for.
    pub failed: Option<String>,
}

/// Where a workload leaves what it found: shared by its processes, which are coroutines of one thread.
pub type OutcomeCell = Rc<RefCell<Outcome>>;

impl Default for Outcome {
    fn default() -> Self {
        Outcome { results: BTreeMap::new(), measured: None, measured_s: 0.0, payload: Ok(()), failed: None }
    }
}

impl Outcome {
    /// Keeps the first failure of a system call.
    pub fn fail(&mut self, what: &str, errno: Errno) {
        self.failed.get_or_insert_with(|| format!("{what}: {errno}"));
    }

    /// Keeps the first thing wrong with the payload.
    pub fn damage(&mut self, fault: String) {
        if self.payload.is_ok() {
            self.payload = Err(fault);
        }
    }
}

/// A system call that failed: what it was for, and why.
pub(crate) type Failed = (&'static str, Errno);

pub(crate) fn named(what: &'static str) -> impl Fn(Errno) -> Failed {
    move |errno| (what, errno)
}

/// The program of a first process, which needs `buffers_bytes` of memory; why it could not do its work is left in `cell`.
fn first_process(
    cell: OutcomeCell,
    buffers_bytes: usize,
    work: impl FnOnce(&User<Model>) -> Result<(), Failed> + 'static,
) -> Program<Model> {
    Box::new(move |user: &User<Model>| {
        if let Err(problem) = room_for(user, buffers_bytes) {
            cell.borrow_mut().failed = Some(problem);
        } else if let Err((what, errno)) = work(user) {
            cell.borrow_mut().fail(what, errno);
        }
    })
}

/// The program of another process.
fn other_process(
    cell: OutcomeCell,
    work: impl FnOnce(&User<Model>) -> Result<(), Failed> + 'static,
) -> Program<Model> {
    Box::new(move |user: &User<Model>| {
        if let Err((what, errno)) = work(user) {
            cell.borrow_mut().fail(what, errno);
        }
    })
}

/// Where the kernel is to choose, it measures what its choices rest on: before anything is sent, so that both ends begin as
/// they do without.
fn measure_first(user: &User<Model>, send: SendMode, receive: ReceiveMode) -> Result<(), Failed> {
    if send == SendMode::Auto || receive == ReceiveMode::Auto {
        user.choose_carrier(PAGE_SIZE).map_err(named("measure"))?;
    }
    Ok(())
}

/// What a process does at its end of a pipe.
type AtEnd<W> = fn(&W, &User<Model>, Fd) -> Result<(), Failed>;

/// A pipe: a child does `write` of the work at its one end, the caller `read` at the other.
fn over_a_pipe<W: Clone + 'static>(
    user: &User<Model>,
    cell: &OutcomeCell,
    work: &W,
    write: AtEnd<W>,
    read: AtEnd<W>,
) -> Result<(), Failed> {
    let (from, to) = user.pipe().map_err(named("pipe"))?;
    let theirs = work.clone();
    let writer = other_process(cell.clone(), move |user| {
        user.close(from).map_err(named("close"))?;
        write(&theirs, user, to)?;
        user.close(to).map_err(named("close"))
    });
    user.fork("writer", writer).map_err(named("fork"))?;
    user.close(to).map_err(named("close"))?;
    let result = read(work, user, from);
    // Without a reader the writer ends, too: no wait for ever after a failure.
    user.close(from).map_err(named("close"))?;
    user.wait().map_err(named("wait"))?;
    result
}

/// Refuses buffers that do not fit the machine's free memory: a process that touched them would be killed.
fn room_for(user: &User<Model>, buffers_bytes: usize) -> Result<(), String> {
    // Page tables take a thousandth of what they map, and something is needed besides.
    let wanted = buffers_bytes / PAGE_SIZE + buffers_bytes / PAGE_SIZE / 500 + 64;
    let free = user.kernel().vm().free_frames();
    if wanted <= free {
        return Ok(());
    }
    let (wanted, free) = (wanted * PAGE_SIZE, free * PAGE_SIZE);
    Err(format!(
        "buffers of {} do not fit: {} of memory are free",
        text::bytes(wanted as u64),
        text::bytes(free as u64)
    ))
}

/// What is sent: each chunk is another window of one pool of random bytes.
pub(crate) struct Payload {
    seed: u64,
    chunk_bytes: usize,
    pool: OnceCell<Vec<u8>>,
}

impl Payload {
    pub(crate) fn new(seed: u64, chunk_bytes: usize) -> Payload {
        Payload { seed, chunk_bytes, pool: OnceCell::new() }
    }

    /// The contents of chunk `index`.
    pub(crate) fn chunk(&self, index: u64) -> &[u8] {
        let pool = self.pool.get_or_init(|| random_bytes(self.seed, 2 * self.chunk_bytes));
        // Any step that is prime to most chunk sizes: neighbours differ in every place but by chance.
        let at = (index.wrapping_mul(977) % self.chunk_bytes as u64) as usize;
        &pool[at..at + self.chunk_bytes]
    }
}

/// `len_bytes` random bytes made from `seed`.
fn random_bytes(seed: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Compares user memory with what should be there, at no modelled cost.
fn differs(model: &Model, at: Va, expected: &[u8], scratch: &mut Vec<u8>) -> Option<usize> {
    scratch.resize(expected.len(), 0);
    if !model.peek(at, scratch) {
        return Some(0);
    }
    (scratch[..] != *expected).then(|| scratch.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0))
}

/// Compares the data of user memory with what should be there, mapped or not, at no modelled cost. `at` is page-aligned.
pub(crate) fn differs_behind(user: &User<Model>, model: &Model, at: Va, expected: &[u8]) -> Option<usize> {
    // Through the mapping where there is one: looking behind it takes the locks of what is there, and another CPU that holds
    // one of them just now does not go on meanwhile.
    let mut seen = [0; PAGE_SIZE];
    let mapped = |page: usize, expected: &[u8], seen: &mut [u8]| {
        model.peek(at + page * PAGE_SIZE, seen) && *seen == *expected
    };
    model.inspect(|| {
        for (page, expected) in expected.chunks(PAGE_SIZE).enumerate() {
            let start = page * PAGE_SIZE;
            if mapped(page, expected, &mut seen[..expected.len()]) {
                continue;
            }
            let Some(frame) = user.frame_behind(at + start) else { return Some(start) };
            let bytes = model.frame_bytes(frame);
            if let Some(wrong) = expected.iter().zip(&bytes).position(|(a, b)| a != b) {
                return Some(start + wrong);
            }
        }
        None
    })
}

/// Gives user memory other contents, mapped or not, at no modelled cost. `at` is page-aligned.
///
/// # Panics
/// When a page is not in memory: the workload has made it so.
fn fill_behind(user: &User<Model>, model: &Model, at: Va, bytes: &[u8]) {
    model.inspect(|| {
        for (page, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
            let frame = user.frame_behind(at + page * PAGE_SIZE).expect("the buffer was stored to");
            model.poke_frame(frame, 0, bytes);
        }
    });
}

/// Measures a part of a run: modelled time, what happened in it, and time on the host.
struct Stopwatch {
    began: Cycles,
    before: Snapshot,
    host: Instant,
    /// Time on the host for filling and checking payloads, which is not the model's.
    aside: Duration,
}

impl Stopwatch {
    fn start(user: &User<Model>, model: &Model) -> Stopwatch {
        Stopwatch {
            began: user.machine().now(),
            before: model.snapshot(),
            host: Instant::now(),
            aside: Duration::ZERO,
        }
    }

    /// Leaves what was done on the host since `began` out of its time.
    fn leave_out(&mut self, began: Instant) {
        self.aside += began.elapsed();
    }

    /// Ends the measured part, in which `total_bytes` were moved.
    fn stop(
        self,
        user: &User<Model>,
        model: &Model,
        clock_mhz: f64,
        total_bytes: u64,
        outcome: &mut Outcome,
    ) {
        let elapsed_cycles = (user.machine().now() - self.began).0 as f64;
        outcome.measured_s = self.host.elapsed().saturating_sub(self.aside).as_secs_f64();
        outcome.measured = Some(model.snapshot().since(&self.before));
        let elapsed_us = elapsed_cycles / clock_mhz;
        let results = [
            ("elapsed_us", elapsed_us),
            ("bandwidth_mb_s", total_bytes as f64 / elapsed_us),
            ("elapsed_cycles_per_page", elapsed_cycles / (total_bytes as f64 / PAGE_SIZE as f64)),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}

/// The word of a `send` choice.
fn send_mode(spec: &RunSpec) -> SendMode {
    send_word(spec.choice("send"))
}

/// The word of a `receive` choice.
fn receive_mode(spec: &RunSpec) -> ReceiveMode {
    receive_word(spec.choice("receive"))
}

/// Whether buffers are passed, by the word of a `by` choice. For `auto` the kernel says what is cheaper for buffers of
/// this size, once: both ends have to do the same.
fn by_pass(user: &User<Model>, word: &str, size_bytes: usize) -> Result<bool, Failed> {
    match word {
        "auto" => Ok(user.choose_carrier(size_bytes).map_err(named("choose a carrier"))? == Carrier::Pass),
        word => Ok(word == "pass"),
    }
}

/// How to send, by its word; copies for any other.
pub fn send_word(word: &str) -> SendMode {
    match word {
        "loan" => SendMode::Loan,
        "auto" => SendMode::Auto,
        _ => SendMode::Copy,
    }
}

/// How to receive, by its word; copies for any other.
pub fn receive_word(word: &str) -> ReceiveMode {
    match word {
        "transfer" => ReceiveMode::Transfer,
        "auto" => ReceiveMode::Auto,
        _ => ReceiveMode::Copy,
    }
}

/// Receives as `mode` says, to `at`, and answers how many bytes, and whether pages came, which are to be flushed out.
fn receive_by(
    user: &User<Model>,
    from: Fd,
    at: Va,
    len_bytes: usize,
    mode: ReceiveMode,
) -> Result<(usize, bool), Errno> {
    let received = match mode {
        ReceiveMode::Copy => return Ok((user.receive(from, at, len_bytes)?, false)),
        ReceiveMode::Transfer => user.receive_transfer(from, Some(at), len_bytes)?,
        ReceiveMode::Auto => user.receive_auto(from, at, len_bytes)?,
    };
    let pages = received.donated_pages + received.lent_pages;
    Ok((received.len_bytes, mode == ReceiveMode::Transfer || pages > 0))
}
