//! A message between two processes, there and back, by every mechanism that a kernel has.
//!
//! One process has a message of so many bytes in a buffer and hands it to the other, which reads every word, writes
//! another in its place, and hands it back. Half a round is a message: what it takes to hand it over, to switch to the
//! other process, and to go over it there. Whoever reads compares.
//!
//! * *By pipe*, one for each direction; how the kernel's pipes move the bytes is the kernel's setting.
//! * *By socket*: a local one, copied twice; or sent by *loan*, received by *transfer*, or *both*.
//! * *By pass*: exported and imported as a map entry, with the number of the offer sent over a local socket.
//! * *By auto*: the kernel says once whether passing is cheaper, or a request of a server where it has those, and
//!   chooses for each call on a socket.
//! * *By ispc*: a request of a server, whose data is attached there and, with the answer, here again.

use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{
    CallError, Onlooker, OutcomeCell, Payload, Process, Stopwatch, first_process, named, other_process,
};
use crate::plot::{Axis, Chart, Plot, Stack, StackRow, Table, causes_in, parts};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{
    Arrived, Carrier, Errno, Fd, Inquiry, Pid, Program, ReceiveMode, SendMode, User, Wait,
};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use pageferry_workloads::Link;
use std::rc::Rc;

/// What the server serves.
const SERVICE: u32 = 1;

#[derive(Clone)]
pub(crate) struct Message {
    model: Model,
    cell: OutcomeCell,
    by: By,
    size_bytes: usize,
    warmup_transfers: u64,
    transfers: u64,
    clock_mhz: f64,
    payload: Rc<Payload>,
}

crate::choice! {
    /// What carries a message.
    pub(crate) enum By {
        Pipe = "pipe",
        Socket = "socket",
        Loan = "loan",
        Transfer = "transfer",
        Both = "both",
        Pass = "pass",
        Auto = "auto",
        Ispc = "ispc",
    }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 20,
        rounds: u64 = 1..=1 << 20,
        warmup_rounds: u64 = 0..=1 << 20,
        by: By,
    }
}

impl Workload for Message {
    const NAME: &'static str = "message";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.rounds.saturating_add(p.warmup_rounds).saturating_mul(60) + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![metric(
            "message_us",
            "us",
            "Modelled time from handing a message over until the other process has gone over it.",
        )]
    }

    /// The program of the first process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        if p.by == By::Ispc {
            testbed.needs_servers()?;
        }
        let size_bytes = p.size_bytes;
        let work = Message {
            model: testbed.model.clone(),
            cell,
            by: p.by,
            size_bytes,
            warmup_transfers: 2 * p.warmup_rounds,
            transfers: 2 * p.rounds,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Rc::new(Payload::new(testbed.seed, size_bytes)),
        };
        Ok(first_process(work.cell.clone(), 2 * size_bytes, move |user| match work.by {
            By::Ispc => work.request(user),
            By::Auto => work.as_is_cheaper(user),
            by => work.correspond(user, by == By::Pass),
        }))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        if experiment.file.curves.is_empty() {
            by_mechanism(of, &experiment.name).into_iter().collect()
        } else {
            Vec::new()
        }
    }
}

/// How one of the two processes sends and receives.
#[derive(Clone, Copy)]
enum End {
    Pipes { from: Fd, to: Fd },
    Socket(Link),
    Pass(Link, Pid),
}

impl Message {
    /// The process as [`Link`] sees it.
    fn os<'a>(&self, user: &'a User<Model>) -> Process<'a> {
        Process::new(user, &Onlooker::new(&self.model, &self.cell))
    }

    // -------------------------------------------------------------------------------------- pipes, sockets and passing

    /// As the kernel says, once: both processes have to do the same.
    fn as_is_cheaper(&self, user: &User<Model>) -> Result<(), CallError> {
        user.measure_moves().map_err(named("measure"))?;
        let carrier = user.choose_any_carrier(self.size_bytes, Arrived::Touched);
        match carrier.map_err(named("choose a carrier"))? {
            Carrier::Server => self.request(user),
            carrier => self.correspond(user, carrier == Carrier::Pass),
        }
    }

    fn correspond(&self, user: &User<Model>, passes: bool) -> Result<(), CallError> {
        let parent = user.pid();
        let (own, theirs, fds) = if self.by == By::Pipe {
            let [(a, b), (c, d)] = [user.pipe().map_err(named("pipe"))?, user.pipe().map_err(named("pipe"))?];
            (End::Pipes { from: a, to: d }, End::Pipes { from: c, to: b }, [vec![a, d], vec![c, b]])
        } else {
            let (own, theirs) = Link::pair(&self.os(user))?;
            let (send, receive) = match self.by {
                By::Loan => (SendMode::Loan, ReceiveMode::Copy),
                By::Transfer => (SendMode::Copy, ReceiveMode::Transfer),
                By::Both => (SendMode::Loan, ReceiveMode::Transfer),
                By::Auto => (SendMode::Auto, ReceiveMode::Auto),
                _ => (SendMode::Copy, ReceiveMode::Copy),
            };
            let fds = [vec![own.socket()], vec![theirs.socket()]];
            (End::Socket(own.with_modes(send, receive)), End::Socket(theirs.with_modes(send, receive)), fds)
        };
        let with_peer = move |end: End, peer: Pid| match end {
            End::Socket(link) if passes => End::Pass(link, peer),
            end => end,
        };
        let close = |user: &User<Model>, fds: &[Fd]| {
            fds.iter().try_for_each(|&fd| user.close(fd)).map_err(named("close"))
        };
        let [own_fds, their_fds] = fds;
        let (work, not_theirs) = (self.clone(), own_fds.clone());
        let child = other_process(self.cell.clone(), move |user| {
            close(user, &not_theirs)?;
            work.play(user, with_peer(theirs, parent), false)
        });
        let child = user.fork("child", child).map_err(named("fork"))?;
        close(user, &their_fds)?;
        let result = self.play(user, with_peer(own, child), true);
        // Without a peer the child ends, too: no wait for ever after a failure.
        close(user, &own_fds)?;
        user.wait().map_err(named("wait"))?;
        result
    }

    /// The part of the parent, which begins, or of the child.
    fn play(&self, user: &User<Model>, end: End, is_parent: bool) -> Result<(), CallError> {
        let end = match end {
            End::Socket(link) => End::Socket(link.with_message(&self.os(user))?),
            End::Pass(link, peer) => End::Pass(link.with_message(&self.os(user))?, peer),
            End::Pipes { .. } => end,
        };
        // What is passed has one place at a time; what is copied has one in each process.
        let mut buffer = Va(0);
        if is_parent || !matches!(end, End::Pass(..)) {
            buffer = user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
            user.store(buffer, self.payload.chunk(0));
        }
        let mut watch = None;
        for index in 0..self.warmup_transfers + self.transfers {
            if is_parent && index == self.warmup_transfers {
                watch = Some(Stopwatch::start(&self.model));
            }
            if (index % 2 == 0) == is_parent {
                self.send(user, end, buffer)?;
            } else if !self.receive(user, end, &mut buffer)? {
                return Ok(());
            } else {
                self.go_over(user, buffer, index);
            }
        }
        if is_parent {
            self.results(watch);
            return Ok(());
        }
        // What a process offers goes with it: the parent has to take the last first, and then it closes.
        match end {
            End::Pass(link, _) => link.hear(&self.os(user)).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn send(&self, user: &User<Model>, end: End, at: Va) -> Result<(), CallError> {
        match end {
            End::Pipes { to, .. } => {
                let mut done = 0;
                while done < self.size_bytes {
                    done += user.write(to, at + done, self.size_bytes - done).map_err(named("write"))?;
                }
                Ok(())
            }
            End::Socket(link) => link.send(&self.os(user), at, self.size_bytes),
            End::Pass(link, peer) => link.pass(&self.os(user), at, self.size_bytes, peer),
        }
    }

    /// False when the other end is gone.
    fn receive(&self, user: &User<Model>, end: End, buffer: &mut Va) -> Result<bool, CallError> {
        match end {
            End::Pipes { from, .. } => {
                let mut done = 0;
                while done < self.size_bytes {
                    let left = self.size_bytes - done;
                    match user.read(from, *buffer + done, left).map_err(named("read"))? {
                        0 => return Ok(false),
                        len => done += len,
                    }
                }
                Ok(true)
            }
            End::Socket(link) => link.receive(&self.os(user), *buffer, self.size_bytes),
            End::Pass(link, _) => {
                let passed = link.take(&self.os(user))?;
                *buffer = passed.unwrap_or(*buffer);
                Ok(passed.is_some())
            }
        }
    }

    // ------------------------------------------------------------------------------------------- requests of a server

    fn request(&self, user: &User<Model>) -> Result<(), CallError> {
        let work = self.clone();
        let server = other_process(self.cell.clone(), move |user| work.serve(user));
        let server = user.fork("server", server).map_err(named("fork"))?;
        let result = self.make_requests(user);
        user.signal(server).map_err(named("end the server"))?;
        user.wait().map_err(named("wait"))?;
        result
    }

    fn make_requests(&self, user: &User<Model>) -> Result<(), CallError> {
        let control = user.ica_alloc(1, Wait::Yes).map_err(named("allocate a control piece"))?;
        let pages = self.size_bytes.div_ceil(PAGE_SIZE);
        let data = user.ica_alloc(pages, Wait::Yes).map_err(named("allocate a data piece"))?;
        user.store(data, self.payload.chunk(0));
        let mut watch = None;
        for index in (0..self.warmup_transfers + self.transfers).step_by(2) {
            if index == self.warmup_transfers {
                watch = Some(Stopwatch::start(&self.model));
            }
            user.store(control, &index.to_le_bytes());
            loop {
                match user.ispc_request(SERVICE, control, Some(data), Wait::Yes) {
                    // The server is on its way.
                    Err(Errno::ConnectionRefused) if index == 0 => {
                        user.yield_now().map_err(named("yield"))?;
                    }
                    made => break made.map_err(named("make a request"))?,
                }
            }
            self.go_over(user, data, index + 1);
        }
        self.results(watch);
        Ok(())
    }

    /// Until a signal comes.
    fn serve(&self, user: &User<Model>) -> Result<(), CallError> {
        let until_ended = |error| match error {
            Errno::Interrupted => Ok(()),
            error => Err(named("receive a request")(error)),
        };
        if user.ispc_crosses() {
            let work = self.clone();
            let procedure = move |user: &User<Model>, request: &Inquiry| work.answer(user, request);
            user.ispc_serve_by(SERVICE, Box::new(procedure)).map_err(named("serve"))?;
            return user.ispc_receive(Wait::Yes).map_or_else(until_ended, |_| Ok(()));
        }
        user.ispc_serve(SERVICE).map_err(named("serve"))?;
        loop {
            match user.ispc_receive(Wait::Yes) {
                Ok(request) => {
                    self.answer(user, &request);
                    user.ispc_return(request.id).map_err(named("return a request"))?;
                }
                Err(error) => return until_ended(error),
            }
        }
    }

    fn answer(&self, user: &User<Model>, request: &Inquiry) {
        let mut index = [0; 8];
        user.load(request.control, &mut index);
        match request.data {
            Some((data, _)) => self.go_over(user, data, u64::from_le_bytes(index)),
            None => self.cell.borrow_mut().damage("a request has come without its data".into()),
        }
    }

    // ------------------------------------------------------------------------------------------- both

    /// Reads every word of message `index`, compares, and writes the next in its place.
    fn go_over(&self, user: &User<Model>, at: Va, index: u64) {
        let mut found = [0; PAGE_SIZE];
        let (old, new) = (self.payload.chunk(index), self.payload.chunk(index + 1));
        for (page, (old, new)) in old.chunks(PAGE_SIZE).zip(new.chunks(PAGE_SIZE)).enumerate() {
            let found = &mut found[..old.len()];
            user.load(at + page * PAGE_SIZE, found);
            if let Some(wrong) = found.iter().zip(old).position(|(a, b)| a != b) {
                let wrong = page * PAGE_SIZE + wrong;
                self.cell
                    .borrow_mut()
                    .damage(format!("byte {wrong} of message {index} is not what was sent"));
            }
            user.store(at + page * PAGE_SIZE, new);
        }
    }

    fn results(&self, watch: Option<Stopwatch>) {
        let outcome = &mut *self.cell.borrow_mut();
        let watch = watch.expect("there is a round to measure");
        let elapsed_us = watch.stop_cycles(&self.model, outcome) / self.clock_mhz;
        let transfers = self.transfers.max(1) as f64;
        let results = [("elapsed_us", elapsed_us), ("message_us", elapsed_us / transfers)];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}

// ---------------------------------------------------------------------------------------- the figure

/// The mechanisms as they are drawn: name, and the settings that say so.
const MECHANISMS: [(&str, &[(&str, &str)]); 12] = [
    ("pipe, copied", &[("by", "pipe"), ("kernel.pipe.direct", "false")]),
    ("pipe, mapped", &[("by", "pipe"), ("kernel.pipe.direct", "true")]),
    ("socket", &[("by", "socket")]),
    ("loan", &[("by", "loan")]),
    ("transfer", &[("by", "transfer")]),
    ("loan and transfer", &[("by", "both")]),
    ("pass", &[("by", "pass")]),
    ("auto", &[("by", "auto")]),
    ("server, random", &[("by", "ispc"), ("kernel.ispc.method", "random")]),
    ("server, previous", &[("by", "ispc"), ("kernel.ispc.method", "previous")]),
    ("server, proposed", &[("by", "ispc"), ("kernel.ispc.method", "proposed")]),
    ("server, migrating", &[("by", "ispc"), ("kernel.ispc.method", "migrating")]),
];

/// The time of a message by cause, against that of a pipe that copies. Where the kernel may tag TLB entries, the
/// machine is there twice, both times against the pipe without tags.
fn by_mechanism(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let mut groups = Vec::new();
    let mut table = Table { head: vec!["machine".into()], rows: Vec::new() };
    table.head.extend(MECHANISMS.iter().map(|(name, _)| format!("{name}, us")));
    for machine in of.machines_of(experiment) {
        let by = |settings: &[(&str, &str)], tagged: bool| {
            let ran = of.records().filter(|r| r.experiment == experiment && r.machine == machine.name);
            let mut ran = ran.filter(|r| r.setting_is("kernel.pmap.tags", "true") == tagged);
            let record = ran.find(|r| settings.iter().all(|(key, word)| r.setting_is(key, word)))?;
            Some((record, record.metric("message_us")?))
        };
        let Some((_, base_us)) = by(MECHANISMS[0].1, false) else { continue };
        for tagged in [false, true] {
            let label = if tagged { format!("{}, tags", machine.name) } else { machine.name.clone() };
            let (mut row, mut rows) = (vec![label.clone()], Vec::new());
            for (name, settings) in MECHANISMS {
                let Some((record, time_us)) = by(settings, tagged) else {
                    row.push(String::new());
                    continue;
                };
                row.push(format!("{time_us:.2}"));
                let rounds = record.settings.get("rounds").and_then(|s| s.number()).unwrap_or(1) as f64;
                // In percent of what the pipe takes: of CPU time, for half a round.
                let factor = machine.nanoseconds(1.0) / 1000.0 / (2.0 * rounds) / base_us * 100.0;
                let mut parts = parts(record, factor);
                parts.retain(|part| part.name != "idle");
                let shown =
                    if time_us < 10.0 { format!("{time_us:.2} us") } else { format!("{time_us:.0} us") };
                rows.push(StackRow { name: name.into(), parts, shown });
            }
            if !rows.is_empty() {
                table.rows.push(row);
                groups.push(Stack { label, rows });
            }
        }
    }
    let legend = causes_in(&groups);
    (!groups.is_empty()).then(|| Plot {
        id: "message-by-mechanism".into(),
        title: "What a message costs, by every mechanism on every machine".into(),
        subtitle: "CPU time by cause, in percent of the time of a pipe that copies on the same machine; behind each \
                   bar the time".into(),
        chart: Chart::Stacks(groups, Axis::linear("CPU time of a message", "% of a pipe that copies"), 68.0),
        label: "CPU time of a message by cause, for each machine and mechanism".into(),
        legend,
        note: "The receiver reads every word and writes another in its place: that is the user code of each bar, and \
               it is the same for all. Where a machine has several CPUs, its bars are what all of them spend, without \
               idling. With tags, TLB entries of a process stay over switches, where hardware walks page tables: what \
               is copied to one place again and again is still there, what was attached, lent or passed had to be \
               invalidated."
            .into(),
        table,
    })
}
