//! One step of communication between an application and a server (Yamauchi et al., 4.2), or between two servers: a
//! request or its return, synchronous or asynchronous, with a piece of data or without.
//!
//! A step begins when its sender calls its library, which calls the kernel, and ends when its receiver is back from its
//! own and has been at what came: it has read the request, or the answer, in the control piece, and the first word of
//! the data. The server does nothing else, and the control piece has no arguments. Before a call the sender has written
//! there what it asks, outside of what is measured; the receiver compares it, so every step is checked.
//!
//! Both fetch their own text, and have a stack and data ([`Image`]). TLB misses are counted by process, and by whether
//! memory was its own.
//!
//! Before each step the application may go over pages of its own: what it then misses is what the reservation costs it.
//!
//! The parts are those of the paper's figure. Switching, attaching, detaching and system calls are what the kernel
//! spends in these causes; the first access is the time of the receiver's accesses to what came, with the misses in
//! them; all else is *other*, the library of both too.

use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{CallError, Image, ImageSize, Misses, OutcomeCell, first_process, named, other_process};
use crate::plot::{Axis, Chart, Key, Part, Plot, Stack, StackRow, Table};
use crate::record::{Metric, Record, metric};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Cause, Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Inquiry, Pid, Program, User, Wait};
use pageferry_model::{MachineConfig, Model, Snapshot};
use pageferry_pmap::PmapCounter;
use pageferry_vm::Inherit;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What the server serves, and who makes requests of it, if that is a server.
const SERVICE: u32 = 1;
const OWN_SERVICE: u32 = 2;
/// Bytes of a request: its number, what is asked, the result, and what it is about.
const REQUEST_BYTES: usize = 32;

crate::choice! {
    /// What is measured.
    pub(crate) enum Op {
        SyncRequest = "sync-request",
        AsyncRequest = "async-request",
        SyncReturn = "sync-return",
        AsyncReturn = "async-return",
    }
}

/// The steps that were measured.
struct Probe {
    /// The step under way.
    began: Option<(u64, Snapshot)>,
    steps: u64,
    /// Cycles: all, and the first accesses.
    all: u64,
    first_access: u64,
    causes: [u64; Cause::COUNT],
    entries_written: u64,
    misses: u64,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe {
            began: None,
            steps: 0,
            all: 0,
            first_access: 0,
            causes: [0; Cause::COUNT],
            entries_written: 0,
            misses: 0,
        }
    }
}

crate::choice! {
    /// Who makes requests.
    pub(crate) enum From { Application = "application", Server = "server" }
}

#[derive(Clone)]
pub(crate) struct Ispc {
    model: Model,
    cell: OutcomeCell,
    op: Op,
    from: From,
    data_pages: Option<usize>,
    /// Pages of its own that the application goes over before each step.
    beside_pages: usize,
    warmup: u64,
    steps: u64,
    clock_mhz: f64,
    image: ImageSize,
    stub_instructions: u32,
    probe: Rc<RefCell<Probe>>,
    /// A step is under way that is measured.
    measuring: Rc<Cell<bool>>,
    /// Of the application and of the server.
    misses: [Rc<Misses>; 2],
}

/// Whose [misses](Ispc::misses).
const APPLICATION: usize = 0;
const SERVER: usize = 1;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        steps: u64 = 1..=1 << 20,
        warmup: u64 = 0..=1 << 20,
        data_bytes: usize = 1..=1 << 20,
        beside_pages: usize = 0..=4096,
        text_pages: usize = 1..=4096,
        data_pages: usize = 0..=4096,
        stub_instructions: u32 = 0..=1 << 20,
        op: Op,
        /// A piece of data goes with it.
        data: bool,
        from: From,
    }
}

impl Workload for Ispc {
    const NAME: &'static str = "ispc";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.steps.saturating_add(p.warmup).saturating_mul(30)
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "process_switch_us",
                "us",
                "Of the time of a step: sleeping, waking, choosing the next thread and switching to it.",
            ),
            metric(
                "first_access_us",
                "us",
                "Of the time of a step: the receiver's first access to what came, with the misses in it.",
            ),
            metric(
                "ica_detach_us",
                "us",
                "Of the time of a step: detaching memory of the area from its sender.",
            ),
            metric(
                "ica_attach_us",
                "us",
                "Of the time of a step: attaching memory of the area to its receiver.",
            ),
            metric("system_call_us", "us", "Of the time of a step: entering and leaving the kernel."),
            metric("other_us", "us", "Of the time of a step: all else, such as tests and queues."),
            metric(
                "entries_written_per_step",
                "count",
                "Reserved TLB entries written or cleared in one step.",
            ),
            metric(
                "misses_application_own",
                "count",
                "TLB misses of the application, in its own memory, a step.",
            ),
            metric("misses_application_area", "count", "TLB misses of the application, in the area, a step."),
            metric(
                "refused_miss_us",
                "us",
                "Handling of the miss where a process has a piece read that is not attached to it, up to the \
                 exception.",
            )
            .of_some_runs(),
            metric("misses_server_own", "count", "TLB misses of the server, in its own memory, a step."),
            metric("misses_server_area", "count", "TLB misses of the server, in the area, a step."),
        ]
    }

    /// The program of the application, which is the first process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.needs_servers()?;
        let work = Ispc {
            model: testbed.model.clone(),
            cell,
            op: p.op,
            from: p.from,
            data_pages: p.data.then(|| p.data_bytes.div_ceil(PAGE_SIZE)),
            beside_pages: p.beside_pages,
            warmup: p.warmup,
            steps: p.steps,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            image: ImageSize { text: p.text_pages, data: p.data_pages },
            stub_instructions: p.stub_instructions,
            probe: Rc::default(),
            measuring: Rc::default(),
            misses: Default::default(),
        };
        let buffers_bytes = (1 + work.beside_pages) * PAGE_SIZE + 2 * work.image.bytes();
        Ok(first_process(work.cell.clone(), buffers_bytes, move |user| work.application(user)))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        if experiment.file.curves.is_empty() {
            steps(of, experiment).into_iter().collect()
        } else {
            Vec::new()
        }
    }
}

impl Ispc {
    fn is_synchronous(&self) -> bool {
        matches!(self.op, Op::SyncRequest | Op::SyncReturn)
    }

    fn measures_requests(&self) -> bool {
        matches!(self.op, Op::SyncRequest | Op::AsyncRequest)
    }

    /// The image of the calling process, whose misses are counted as those of `whose`.
    fn load_image(&self, user: &User<Model>, whose: usize) -> Result<Image, CallError> {
        Image::load(user, self.image, (&self.misses[whose], &self.measuring))
    }

    fn application(&self, user: &User<Model>) -> Result<(), CallError> {
        if user.ispc_crosses() && !self.is_synchronous() {
            let what = "op: an asynchronous request where threads cross into servers (kernel.ispc.method=migrating), \
                        which are in one place at a time: expected sync-request or sync-return";
            return Err(named(what)(Errno::NotSupported));
        }
        let server = self.clone();
        let pid = user
            .fork("server", other_process(self.cell.clone(), move |user| server.serve(user)))
            .map_err(named("fork"))?;
        let made = self.requests(user, pid);
        if let Err((what, errno)) = made {
            // The server would wait for the next request for ever. What becomes of it is told after what went wrong.
            self.cell.borrow_mut().fail(what, errno);
            user.kill(pid).and_then(|()| user.wait()).map_err(named("end the server"))?;
        }
        made
    }

    /// Makes the requests of the server `pid`, and ends it.
    fn requests(&self, user: &User<Model>, pid: Pid) -> Result<(), CallError> {
        if self.from == From::Server {
            // Of nobody: it is a server by that, and has what servers have.
            match user.ispc_crosses() {
                true => user.ispc_serve_by(OWN_SERVICE, Box::new(|_, _| {})),
                false => user.ispc_serve(OWN_SERVICE),
            }
            .map_err(named("serve"))?;
        }
        let control = user.ica_alloc(1, Wait::Yes).map_err(named("allocate a control piece"))?;
        let data = self.data_pages.map(|pages| user.ica_alloc(pages, Wait::Yes)).transpose();
        let data = data.map_err(named("allocate a data piece"))?;
        let own = match self.beside_pages {
            0 => None,
            pages => Some(user.map(pages * PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map memory"))?),
        };
        let image = self.load_image(user, APPLICATION)?;
        let host = ThreadTime::now();
        let mut start = None;
        for number in 0..self.warmup + self.steps {
            if number == self.warmup {
                start = Some((user.machine().now(), self.model.begin_measuring()));
            }
            for page in 0..own.map_or(0, |_| self.beside_pages) {
                user.store(own.unwrap_or(Va(0)) + page * PAGE_SIZE, &number.to_le_bytes()[..4]);
            }
            self.say(user, control, data, number, false);
            self.begin(user, number, true);
            image.run(user, self.stub_instructions);
            loop {
                let made = if self.is_synchronous() {
                    user.ispc_request(SERVICE, control, data, Wait::Yes)
                } else {
                    user.ispc_post(SERVICE, control, data).and_then(|_| user.ispc_result(Wait::Yes)?.outcome)
                };
                match made {
                    // The server is on its way.
                    Err(Errno::ConnectionRefused) if number == 0 => {
                        user.yield_now().map_err(named("yield"))?
                    }
                    made => break made.map_err(named("make a request"))?,
                }
            }
            self.hear(user, &image, (control, data.map(|at| (at, PAGE_SIZE))), number, (true, false));
        }
        let (began, before) = start.expect("there is a step to measure");
        let elapsed_us = user.machine().now().saturating_sub(began).0 as f64 / self.clock_mhz;
        self.results(elapsed_us, self.model.end_measuring().since(&before), host);
        if user.ispc_crosses() {
            user.signal(pid).map_err(named("end the server"))?;
        } else {
            self.say(user, control, data, u64::MAX, false);
            user.ispc_request(SERVICE, control, data, Wait::Yes).map_err(named("end the server"))?;
        }
        user.wait().map_err(named("wait"))?;
        // Who sees all of the area is refused nothing.
        if self.from == From::Application { self.refused(user, control) } else { Ok(()) }
    }

    /// What a miss takes in a piece of another process, up to the exception: in a system call, which survives it.
    fn refused(&self, user: &User<Model>, piece: Va) -> Result<(), CallError> {
        let work = self.clone();
        let touch = move |user: &User<Model>| {
            let before = user.machine().snapshot();
            let printed = user.print(piece, 1);
            let spent = user.machine().snapshot().since(&before);
            let cycles: u64 = spent.cycles.iter().map(|of_cpu| of_cpu[Cause::Refill.index()]).sum();
            let mut outcome = work.cell.borrow_mut();
            if printed != Err(Errno::Fault) {
                outcome.damage("a process has read a piece of the area that is not its own".to_owned());
            }
            outcome.results.insert("refused_miss_us".to_owned(), cycles as f64 / work.clock_mhz);
            Ok(())
        };
        user.fork("toucher", other_process(self.cell.clone(), touch)).map_err(named("fork"))?;
        user.wait().map(drop).map_err(named("wait"))
    }

    fn serve(&self, user: &User<Model>) -> Result<(), CallError> {
        if user.ispc_crosses() {
            return self.be_crossed(user);
        }
        let image = self.load_image(user, SERVER)?;
        user.ispc_serve(SERVICE).map_err(named("serve"))?;
        for number in 0.. {
            let Inquiry { id, control, data, .. } =
                user.ispc_receive(Wait::Yes).map_err(named("receive a request"))?;
            let is_last = self.hear(user, &image, (control, data), number, (false, true));
            self.say(user, control, data.map(|(at, _)| at), number, true);
            self.begin(user, number, false);
            image.run(user, self.stub_instructions);
            user.ispc_return(id).map_err(named("return a request"))?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Serves threads that cross into this process, until a signal comes.
    fn be_crossed(&self, user: &User<Model>) -> Result<(), CallError> {
        let image = self.load_image(user, SERVER)?;
        let (work, next) = (self.clone(), Cell::new(0));
        let procedure = move |user: &User<Model>, &Inquiry { control, data, .. }: &Inquiry| {
            let number = next.get();
            next.set(number + 1);
            work.hear(user, &image, (control, data), number, (false, false));
            work.say(user, control, data.map(|(at, _)| at), number, true);
            work.begin(user, number, false);
            image.run(user, work.stub_instructions);
        };
        user.ispc_serve_by(SERVICE, Box::new(procedure)).map_err(named("serve"))?;
        match user.ispc_receive(Wait::Yes) {
            Err(Errno::Interrupted) => Ok(()),
            Err(error) => Err(named("wait for the end")(error)),
            Ok(_) => Ok(()),
        }
    }

    /// What a request says, or its answer.
    fn words(number: u64, is_answer: bool) -> [u8; REQUEST_BYTES] {
        let mut words = [u8::from(is_answer); REQUEST_BYTES];
        words[..8].copy_from_slice(&number.to_le_bytes());
        words
    }

    fn say(&self, user: &User<Model>, control: Va, data: Option<Va>, number: u64, is_answer: bool) {
        user.store(control, &Ispc::words(number, is_answer));
        if let Some(data) = data {
            user.store(data, &Ispc::words(!number, is_answer)[..8]);
        }
    }

    /// A step of this kind begins, if it is one of those to measure.
    fn begin(&self, user: &User<Model>, number: u64, is_request: bool) {
        let measured = (self.warmup..self.warmup + self.steps).contains(&number);
        if measured && is_request == self.measures_requests() {
            self.measuring.set(true);
            self.probe.borrow_mut().began = Some((user.machine().now().0, self.model.begin_measuring()));
        }
    }

    /// Reads what came, and ends the step; true when it was the last.
    fn hear(
        &self,
        user: &User<Model>,
        image: &Image,
        (control, data): (Va, Option<(Va, usize)>),
        number: u64,
        (is_answer, may_end): (bool, bool),
    ) -> bool {
        image.run(user, self.stub_instructions);
        let arrived = user.machine().now().0;
        let (mut words, mut first) = ([0; REQUEST_BYTES], [0; 8]);
        image.of_others(user, || {
            user.load(control, &mut words);
            if let Some((at, _)) = data {
                user.load(at, &mut first);
            }
        });
        self.end(user, arrived, !is_answer);
        if may_end && words[..8] == u64::MAX.to_le_bytes() {
            return true;
        }
        let data_as_sent = data.is_none() || first == Ispc::words(!number, is_answer)[..8];
        if words != Ispc::words(number, is_answer) || !data_as_sent {
            self.cell.borrow_mut().damage(format!("what came with step {number} is not what was sent"));
        }
        false
    }

    fn end(&self, user: &User<Model>, arrived: u64, is_request: bool) {
        let mut probe = self.probe.borrow_mut();
        if is_request != self.measures_requests() {
            return;
        }
        let Some((began, before)) = probe.began.take() else { return };
        self.measuring.set(false);
        let now = user.machine().now().0;
        let spent = self.model.end_measuring().since(&before);
        probe.steps += 1;
        probe.all += now - began;
        probe.first_access += now - arrived;
        for (sum, cause) in probe.causes.iter_mut().zip(Cause::ALL) {
            *sum += spent.cycles.iter().map(|of_cpu| of_cpu[cause.index()]).sum::<u64>();
        }
        probe.entries_written += spent.counter(PmapCounter::ReservedWrites);
        probe.misses += spent.hardware.tlb_misses + spent.hardware.fetch_misses;
    }

    fn results(&self, elapsed_us: f64, measured: Snapshot, host: ThreadTime) {
        let probe = self.probe.borrow();
        let outcome = &mut *self.cell.borrow_mut();
        outcome.measured_s = host.elapsed().as_secs_f64();
        let misses = measured.hardware.tlb_misses;
        outcome.measured = Some(measured);
        let steps = probe.steps.max(1) as f64;
        let us = |cycles: u64| cycles as f64 / self.clock_mhz / steps;
        let of = |cause: Cause| probe.causes[cause.index()];
        let (switch, detach, attach) = (of(Cause::Switch), of(Cause::IcaDetach), of(Cause::IcaAttach));
        let parts = switch + detach + attach + of(Cause::Syscall) + probe.first_access;
        let rounds = self.steps.max(1) as f64;
        let [application, server] = [APPLICATION, SERVER].map(|whose| &*self.misses[whose]);
        let a_step = |count: u64| count as f64 / steps;
        let results = [
            ("elapsed_us", elapsed_us),
            ("round_us", elapsed_us / rounds),
            ("tlb_misses_per_round", misses as f64 / rounds),
            ("time_us", us(probe.all)),
            ("process_switch_us", us(switch)),
            ("first_access_us", us(probe.first_access)),
            ("ica_detach_us", us(detach)),
            ("ica_attach_us", us(attach)),
            ("system_call_us", us(of(Cause::Syscall))),
            ("other_us", us(probe.all.saturating_sub(parts))),
            ("tlb_misses_per_step", a_step(probe.misses)),
            ("entries_written_per_step", a_step(probe.entries_written)),
            ("misses_application_own", a_step(application.own())),
            ("misses_application_area", a_step(application.others())),
            ("misses_server_own", a_step(server.own())),
            ("misses_server_area", a_step(server.others())),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}

// ---------------------------------------------------------------------------------------- the figure

/// The parts, as the paper draws them: metric, colour, sign, name.
const PARTS: [(&str, &str, &str, &str); 6] = [
    ("process_switch_us", "sys", "Y", "process switch"),
    ("first_access_us", "tlb", "T", "first access"),
    ("ica_detach_us", "local", "D", "detachment"),
    ("ica_attach_us", "pte", "A", "attachment"),
    ("system_call_us", "kva", "S", "system call"),
    ("other_us", "proto", "O", "other"),
];

const OPS: [&str; 4] = ["sync-request", "async-request", "sync-return", "async-return"];
const METHODS: [&str; 4] = ["random", "previous", "proposed", "migrating"];

/// The figure of one step (SH-4 paper, Figure 2): its parts, stacked, for each operation and each way to attach memory.
fn steps(of: &Reproduction, its: &Experiment) -> Option<Plot> {
    let experiment = its.name.as_str();
    let mut groups = Vec::new();
    let head = ["machine", "operation", "data", "method", "µs"].into_iter().chain(PARTS.map(|part| part.3));
    let head = head.chain(["TLB misses", "entries written"]);
    let mut table = Table { head: head.map(String::from).collect(), rows: Vec::new() };
    for machine in of.machines_of(experiment) {
        for op in OPS {
            for data in ["false", "true"] {
                let mut rows = Vec::new();
                for method in METHODS {
                    let is_it = |r: &&Record| {
                        r.experiment == experiment
                            && r.machine == machine.name
                            && r.setting_is("op", op)
                            && r.setting_is("data", data)
                            && r.setting_is("kernel.ispc.method", method)
                    };
                    let Some(record) = of.records().find(is_it) else { continue };
                    let metric = |name: &str| record.metric(name).unwrap_or(0.0);
                    let time = metric("time_us");
                    let mut row: Vec<String> = [&machine.name, op, data, method].map(String::from).to_vec();
                    row.push(format!("{time:.2}"));
                    row.extend(PARTS.map(|(name, ..)| format!("{:.2}", metric(name))));
                    row.push(format!("{:.1}", metric("tlb_misses_per_step")));
                    row.push(format!("{:.1}", metric("entries_written_per_step")));
                    table.rows.push(row);
                    let part = |(name, colour, sign, label): (&str, &'static str, &'static str, &str)| Part {
                        colour,
                        sign,
                        name: label.into(),
                        value: metric(name),
                    };
                    let parts = PARTS.map(part).into();
                    rows.push(StackRow { name: method.into(), parts, shown: format!("{time:.1}") });
                }
                let with = if data == "true" { "with data" } else { "without data" };
                if !rows.is_empty() {
                    groups.push(Stack { label: format!("{op}, {with}"), rows });
                }
            }
        }
    }
    let legend = PARTS.map(|(_, colour, sign, name)| Key::part(colour, sign, name)).into();
    (!groups.is_empty()).then(|| Plot {
        id: format!("{experiment}-steps"),
        title: its.file.title.clone(),
        subtitle: "Microseconds, by operation, data, and how memory is attached".into(),
        chart: Chart::Stacks(groups, Axis::linear("time of one step", "µs"), 46.0),
        label: "Time of one step of communication by its parts, for each operation and method".into(),
        legend,
        note: "SH-4 paper, Figure 2. By how much random is slower is held out of what the paper says here: it is \
               predicted without it. By the method `migrating`, which the paper does not have, a thread crosses into \
               its server: it has no asynchronous steps. Between servers nothing was published."
            .into(),
        table,
    })
}
