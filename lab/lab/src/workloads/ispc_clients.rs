//! Many clients of a few servers, which communicate by a common area.
//!
//! The first process starts the servers and the clients, and waits. A client has a control piece and a data piece. It
//! writes what it asks into both, makes a synchronous request of the next server in turn, and looks at the answer: the
//! first client begins at the first server, the second at the second. A server reads all of the data, changes some of
//! it, and answers with the sum of what it read. The client compares the answer and every byte with what they must be,
//! which it knows without the machine.
//!
//! Every client makes as many requests. Measured are all but those that are answered first, as many as there are for
//! warming up; clients that begin late or end early are in it. Between an answer and a look at it a client may let
//! others run: it has its pieces then.
//!
//! What can fail: there are no TLB entries for one more server to see the area by, or no room for so many pieces.
//! Servers say whether they serve before a client starts; all that was started ends.

use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Payload, Stopwatch, first_process, named, other_process};
use crate::run::{Testbed, Workload};
use pageferry_hal::{PAGE_SIZE, Va};
use pageferry_kernel::{Errno, Inquiry, Pid, Program, User, Wait};
use pageferry_model::{MachineConfig, Model};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bytes of a request or an answer: its client, its number there, and the sum of the data in an answer.
const WORDS_BYTES: usize = 24;
/// Bytes of the data that a client or a server changes.
const CHANGED_BYTES: usize = 8;
/// Frames of a process beside the area: page tables, and some more.
const FRAMES: usize = 4;

/// Who changes some of the data.
#[derive(Clone, Copy)]
enum By {
    Client,
    Server,
}

/// What all processes know of the run, at no modelled cost.
#[derive(Default)]
struct Progress {
    /// Servers that serve, or cannot.
    started: Cell<usize>,
    /// A client asks for its pieces. One at a time waits for entries with a piece in hand: of several, each could have
    /// what another waits for.
    beginning: Cell<bool>,
    /// Requests that were answered, and the answers looked at.
    done: Cell<u64>,
    watch: RefCell<Option<Stopwatch>>,
}

#[derive(Clone)]
pub(crate) struct IspcClients {
    model: Model,
    cell: OutcomeCell,
    clients: usize,
    servers: usize,
    data_bytes: usize,
    yields: u64,
    warmup: u64,
    requests: u64,
    clock_mhz: f64,
    /// What is wrong when a server has no entries.
    no_entries: Rc<str>,
    payload: Rc<Payload>,
    progress: Rc<Progress>,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        clients: usize = 1..=64,
        servers: usize = 1..=64,
        steps: u64 = 1..=1 << 20,
        warmup: u64 = 0..=1 << 20,
        data_bytes: usize = 1..=1 << 20,
        /// How often a client lets others run before it looks at an answer.
        yields: u64 = 0..=1000,
    }
}

impl Workload for IspcClients {
    const NAME: &'static str = "ispc-clients";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        // With the bytes that both processes go over, line by line.
        (p.steps.saturating_add(p.warmup))
            .saturating_mul(p.clients as u64)
            .saturating_mul(60 + p.data_bytes as u64 / 20)
    }

    /// The program of the first process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.needs_servers()?;
        let Parameters { clients, servers, data_bytes, .. } = p;
        let work = IspcClients {
            model: testbed.model.clone(),
            cell,
            clients,
            servers,
            data_bytes,
            yields: p.yields,
            warmup: p.warmup * clients as u64,
            requests: p.steps * clients as u64,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            no_entries: no_entries(testbed, servers).into(),
            payload: Rc::new(Payload::new(testbed.seed, data_bytes)),
            progress: Rc::default(),
        };
        let memory_bytes = (clients + servers) * FRAMES * PAGE_SIZE;
        Ok(first_process(work.cell.clone(), memory_bytes, move |user| work.run(user)))
    }
}

/// That there are more servers than the TLB shows the area to.
fn no_entries(testbed: &Testbed, servers: usize) -> String {
    let Some(ispc) = &testbed.kernel.file.ispc else { return String::new() };
    let (entries, page_bytes) = (ispc.server_entries.value, ispc.server_page_bytes.value);
    let each = ispc.area_bytes.value / page_bytes.max(1);
    format!(
        "servers: {servers}, expected at most {}: each sees the area by {each} of the {entries} TLB entries of servers \
         (kernel.ispc.server_entries; pages of kernel.ispc.server_page_bytes={page_bytes})",
        entries / each.max(1)
    )
}

impl IspcClients {
    // ------------------------------------------------------------------------------------------- the first process

    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let mut servers = Vec::new();
        for server in 0..self.servers {
            let work = self.clone();
            let program = move |user: &User<Model>| work.serve(user, server as u32 + 1);
            let started = user.fork("server", other_process(self.cell.clone(), program));
            servers.push(started.map_err(named("fork a server"))?);
        }
        while self.progress.started.get() < self.servers {
            user.yield_now().map_err(named("yield"))?;
        }
        let all_serve = self.cell.borrow().failed.is_none();
        for client in 0..if all_serve { self.clients } else { 0 } {
            let work = self.clone();
            let program = move |user: &User<Model>| work.ask(user, client as u64);
            user.fork("client", other_process(self.cell.clone(), program)).map_err(named("fork a client"))?;
        }
        if all_serve {
            self.wait_for(user, self.clients)?;
        }
        // One that does not serve may be gone.
        servers.into_iter().for_each(|server: Pid| _ = user.signal(server));
        self.wait_for(user, self.servers)
    }

    fn wait_for(&self, user: &User<Model>, children: usize) -> Result<(), CallError> {
        (0..children).try_for_each(|_| user.wait().map(|_| ())).map_err(named("wait"))
    }

    // ------------------------------------------------------------------------------------------- a server

    /// Until a signal comes.
    fn serve(&self, user: &User<Model>, service: u32) -> Result<(), CallError> {
        let serving = if user.ispc_crosses() {
            let work = self.clone();
            let procedure = move |user: &User<Model>, request: &Inquiry| work.answer(user, request);
            user.ispc_serve_by(service, Box::new(procedure))
        } else {
            user.ispc_serve(service)
        };
        if serving == Err(Errno::WouldBlock) {
            self.cell.borrow_mut().failed.get_or_insert_with(|| self.no_entries.to_string());
        } else if let Err(error) = serving {
            self.cell.borrow_mut().fail("serve", error);
        }
        self.progress.started.set(self.progress.started.get() + 1);
        if serving.is_err() {
            return Ok(());
        }
        loop {
            match user.ispc_receive(Wait::Yes) {
                Ok(request) => {
                    self.answer(user, &request);
                    user.ispc_return(request.id).map_err(named("return a request"))?;
                }
                Err(Errno::Interrupted) => return Ok(()),
                Err(error) => return Err(named("receive a request")(error)),
            }
        }
    }

    /// Reads all of the data, changes some, and says what it has read.
    fn answer(&self, user: &User<Model>, request: &Inquiry) {
        let mut words = [0; WORDS_BYTES];
        user.load(request.control, &mut words);
        let Some((data, _)) = request.data else {
            return self.cell.borrow_mut().damage("a request has come without its data".into());
        };
        let mut found = vec![0; self.data_bytes];
        load(user, data, &mut found);
        let (client, number) = (word(&words, 0), word(&words, 1));
        self.change(client, number, By::Server, |at, bytes| user.store(data + at, bytes));
        user.store(request.control, &message(client, number, sum(&found)));
    }

    // ------------------------------------------------------------------------------------------- a client

    fn ask(&self, user: &User<Model>, client: u64) -> Result<(), CallError> {
        let pages = self.data_bytes.div_ceil(PAGE_SIZE);
        while self.progress.beginning.replace(true) {
            user.yield_now().map_err(named("yield"))?;
        }
        let control = user.ica_alloc(1, Wait::Yes);
        let pieces = control.and_then(|control| Ok((control, user.ica_alloc(pages, Wait::Yes)?)));
        self.progress.beginning.set(false);
        let (control, data) = pieces.map_err(named(
            "clients: pieces for one more: expected fewer clients, a smaller data_bytes, a larger \
             kernel.ispc.area_bytes, or more kernel.ispc.reserved_entries",
        ))?;
        let mut expected = self.payload.chunk(client).to_vec();
        let mut found = vec![0; self.data_bytes];
        store(user, data, &expected);
        let all = self.warmup + self.requests;
        for number in 0..all / self.clients as u64 {
            if self.progress.done.get() >= self.warmup && self.progress.watch.borrow().is_none() {
                *self.progress.watch.borrow_mut() = Some(Stopwatch::start(&self.model));
            }
            self.change(client, number, By::Client, |at, bytes| {
                user.store(data + at, bytes);
                expected[at..at + bytes.len()].copy_from_slice(bytes);
            });
            user.store(control, &message(client, number, 0));
            let service = (client + number) % self.servers as u64 + 1;
            user.ispc_request(service as u32, control, Some(data), Wait::Yes)
                .map_err(named("make a request"))?;
            for _ in 0..self.yields {
                user.yield_now().map_err(named("yield"))?;
            }
            let answer = message(client, number, sum(&expected));
            self.change(client, number, By::Server, |at, bytes| {
                expected[at..at + bytes.len()].copy_from_slice(bytes);
            });
            let mut words = [0; WORDS_BYTES];
            user.load(control, &mut words);
            load(user, data, &mut found);
            let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
            if let Some(wrong) = wrong {
                let fault =
                    format!("byte {wrong} of answer {number} of client {client} is not what was sent");
                self.cell.borrow_mut().damage(fault);
            }
            if words != answer {
                let fault = format!("the server of request {number} of client {client} read other bytes");
                self.cell.borrow_mut().damage(fault);
            }
            self.progress.done.set(self.progress.done.get() + 1);
            if self.progress.done.get() == all {
                self.results();
            }
        }
        user.ica_free(control).and_then(|()| user.ica_free(data)).map_err(named("free the pieces"))
    }

    // ------------------------------------------------------------------------------------------- both

    /// What a client, or its server, changes with a request: where, and what is there then.
    fn change(&self, client: u64, number: u64, by: By, mut put: impl FnMut(usize, &[u8])) {
        // One changes the lower half of the data, the other the upper; another line for each request, all over the
        // half.
        let half = (self.data_bytes / 2).max(1);
        let start = match by {
            By::Client => 0,
            By::Server => self.data_bytes - half,
        };
        let at = start + (number as usize * 40) % half;
        let end = self.data_bytes.min(at + CHANGED_BYTES);
        let bytes =
            (client << 48 ^ number << 8 ^ by as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        put(at, &bytes[..end - at]);
    }

    fn results(&self) {
        let outcome = &mut *self.cell.borrow_mut();
        let watch = self.progress.watch.borrow_mut().take().expect("there is a request to measure");
        let elapsed_us = watch.stop_cycles(&self.model, outcome) / self.clock_mhz;
        let requests = self.requests as f64;
        let misses = outcome.measured.as_ref().map_or(0, |measured| measured.hardware.tlb_misses);
        let results = [
            ("elapsed_us", elapsed_us),
            ("requests_per_s", requests / elapsed_us * 1e6),
            // Every client makes one round after another.
            ("round_us", elapsed_us * self.clients as f64 / requests),
            ("tlb_misses_per_round", misses as f64 / requests),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}

/// What is in a control piece.
fn message(client: u64, number: u64, sum: u64) -> [u8; WORDS_BYTES] {
    let mut words = [0; WORDS_BYTES];
    for (bytes, word) in words.chunks_mut(8).zip([client, number, sum]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    words
}

fn word(words: &[u8; WORDS_BYTES], index: usize) -> u64 {
    u64::from_le_bytes(words[8 * index..8 * index + 8].try_into().expect("eight bytes"))
}

/// A sum that depends on each byte and its place, and is not 0 for bytes that are.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum: u64, byte| sum.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*byte))
}

fn load(user: &User<Model>, at: Va, bytes: &mut [u8]) {
    bytes.chunks_mut(PAGE_SIZE).enumerate().for_each(|(page, bytes)| user.load(at + page * PAGE_SIZE, bytes));
}

fn store(user: &User<Model>, at: Va, bytes: &[u8]) {
    bytes.chunks(PAGE_SIZE).enumerate().for_each(|(page, bytes)| user.store(at + page * PAGE_SIZE, bytes));
}
