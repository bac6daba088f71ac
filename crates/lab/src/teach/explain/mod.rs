//! What a mechanism does, told step by step beside the counters of a small run.
//!
//! A [`Mechanism`] is a few words and a program. The program makes a handful of system calls on a modelled machine and says
//! after each what has happened; the `Stage` notes what the machine counted meanwhile. So the words are written here, and
//! every number beside them is measured. A run is held to the same laws as an experiment, and what a program itself
//! promises (bytes that must be there, pages that must be free) it checks from outside of the machine.
//!
//! Whatever happens between the end of one step and the end of the next belongs to the next, on whatever CPU and in
//! whichever process, unless the program begins anew: so the steps of two processes that take turns do not overlap.

mod files;
mod mapping;
mod memory;
mod pass;
mod pipe;
mod sockets;

use crate::error::LabError;
use crate::files::{KernelChoice, MachineChoice, Settings};
use crate::run::{Law, Schedule, Site, counters, cycles, law};
use crate::workload::{Failed, Payload, named};
use pageferry_hal::{Cause, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Program, User};
use pageferry_model::{Model, Snapshot, nearest};
use pageferry_vm::Inherit;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A mechanism that can be explained.
#[derive(Debug)]
pub struct Mechanism {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// What it is for, in a few sentences.
    pub text: &'static str,
    /// Papers and sections.
    pub source: &'static str,
    /// The machine of its small run.
    pub machine: &'static str,
    /// The kernel of its small run: the words are true of this one.
    pub kernel: &'static str,
    /// Changes to them, as for `--set`, that keep the run small.
    pub set: &'static [&'static str],
    program: fn(&Stage, &User<Model>) -> Result<(), Failed>,
}

/// All mechanisms, in the order in which they build on each other.
pub fn all() -> impl Iterator<Item = &'static Mechanism> {
    [memory::ALL, files::ALL, sockets::ALL, pass::ALL, mapping::ALL, pipe::ALL].into_iter().flatten()
}

/// The mechanism called `name`.
///
/// # Errors
/// [`LabError::Unknown`] with the nearest name.
pub fn find(name: &str) -> Result<&'static Mechanism, LabError> {
    let names = || all().map(|mechanism| mechanism.name);
    all().find(|mechanism| mechanism.name == name).ok_or_else(|| LabError::Unknown {
        kind: "mechanism",
        name: name.to_owned(),
        nearest: nearest(name, names()).map(str::to_owned),
        known: names().map(str::to_owned).collect(),
    })
}

/// A step, and what was counted in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What happened.
    pub what: String,
    /// Cycles of all CPUs that were spent on something.
    pub busy_cycles: u64,
    /// Of these, by cause, what is not zero.
    pub by_cause: BTreeMap<String, u64>,
    /// Events counted, what is not zero.
    pub counters: BTreeMap<String, u64>,
    /// What the program found when it looked, from outside of the machine.
    pub notes: Vec<String>,
}

impl Step {
    /// How often the event called `name` was counted.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    fn new(what: &str, measured: &Snapshot) -> Step {
        let mut by_cause = cycles(measured).by_cause;
        by_cause.retain(|cause, cycles| *cycles > 0 && cause != Cause::Idle.name());
        let mut counters = counters(measured);
        counters.retain(|_, count| *count > 0);
        let busy_cycles = by_cause.values().sum();
        Step { what: what.to_owned(), busy_cycles, by_cause, counters, notes: Vec::new() }
    }
}

/// A mechanism with its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The mechanism.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// What it is for.
    pub text: &'static str,
    /// Papers and sections.
    pub source: &'static str,
    /// The machine.
    pub machine: String,
    /// The kernel.
    pub kernel: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The laws of the run.
    pub laws: Vec<Law>,
}

impl Explanation {
    /// The laws that do not hold, and why.
    pub fn broken(&self) -> Vec<String> {
        let broken = self.laws.iter().filter(|law| !law.held);
        broken.map(|law| format!("{}: {}", law.name, law.fault.as_deref().unwrap_or("broken"))).collect()
    }
}

/// Runs a mechanism's program, on its own machine and kernel or on others.
///
/// # Errors
/// A machine or kernel that does not exist, or on which the program cannot run. A broken law is not an error here.
pub fn explain(
    mechanism: &'static Mechanism,
    machine: Option<&str>,
    kernel: Option<&str>,
) -> Result<Explanation, LabError> {
    let settings = Settings::parse(mechanism.set)?;
    let chosen = settings.machine(MachineChoice::find(machine.unwrap_or(mechanism.machine))?)?;
    let kernel = settings.kernel(KernelChoice::find(kernel.unwrap_or(mechanism.kernel))?)?;
    let site = Site::new(&chosen, &kernel, Schedule::Timed, 1)?;
    let stage = Stage { model: site.model.clone(), state: Rc::new(RefCell::new(State::new(&site.model))) };
    let (acting, program) = (stage.clone(), mechanism.program);
    let program: Program<Model> = Box::new(move |user: &User<Model>| {
        let result = program(&acting, user);
        acting.settle(result);
    });
    let finish = site.execute(mechanism.name, program)?;
    let state = stage.state.borrow();
    let mut laws = finish.laws;
    if let Some((what, errno)) = state.failed.filter(|_| laws.iter().all(|law| law.held)) {
        return Err(site.misfit(format!("{what}: {errno}")));
    }
    laws.push(law("the run left what was promised", state.broken.clone()));
    laws.push(law("the causes of measured cycles sum to the measured time", site.model.snapshot().check()));
    Ok(Explanation {
        name: mechanism.name,
        title: mechanism.title,
        text: mechanism.text,
        source: mechanism.source,
        machine: chosen.name,
        kernel: kernel.name,
        steps: state.steps.clone(),
        laws,
    })
}

/// Where a program's processes leave what they found. They are coroutines of one thread.
#[derive(Clone)]
struct Stage {
    model: Model,
    state: Rc<RefCell<State>>,
}

struct State {
    since: Snapshot,
    steps: Vec<Step>,
    failed: Option<Failed>,
    broken: Result<(), String>,
}

impl State {
    fn new(model: &Model) -> State {
        State { since: model.snapshot(), steps: Vec::new(), failed: None, broken: Ok(()) }
    }
}

impl Stage {
    /// What has happened so far belongs to no step.
    fn begin(&self) {
        self.state.borrow_mut().since = self.model.snapshot();
    }

    /// All that has happened since the last step, or since the last beginning, was this.
    fn end(&self, what: &str) {
        let now = self.model.snapshot();
        let state = &mut *self.state.borrow_mut();
        state.steps.push(Step::new(what, &now.since(&state.since)));
        state.since = now;
    }

    /// A step that is one call.
    fn step<R>(&self, what: &'static str, call: impl FnOnce() -> Result<R, Errno>) -> Result<R, Failed> {
        self.begin();
        let result = call().map_err(named(what))?;
        self.end(what);
        Ok(result)
    }

    /// Something seen from outside after the last step.
    fn note(&self, text: impl Into<String>) {
        let state = &mut *self.state.borrow_mut();
        state.steps.last_mut().expect("there is a step to say it of").notes.push(text.into());
    }

    /// Something that must be so.
    fn promise(&self, what: &str, held: bool) {
        let state = &mut *self.state.borrow_mut();
        if !held && state.broken.is_ok() {
            state.broken = Err(format!("not so: {what}"));
        }
    }

    /// Keeps the first failure.
    fn settle(&self, result: Result<(), Failed>) {
        if let Err(failed) = result {
            self.state.borrow_mut().failed.get_or_insert(failed);
        }
    }

    /// Forks a process for `program`, which may end as it likes; nothing of it is waited for.
    fn fork(
        &self,
        user: &User<Model>,
        name: &str,
        program: impl FnOnce(&Stage, &User<Model>) -> Result<(), Failed> + 'static,
    ) -> Result<pageferry_kernel::Pid, Failed> {
        let stage = self.clone();
        let program: Program<Model> = Box::new(move |user: &User<Model>| {
            let result = program(&stage, user);
            stage.settle(result);
        });
        user.fork(name, program).map_err(named("fork"))
    }

    /// Lets another process act, to its end.
    fn other(
        &self,
        user: &User<Model>,
        name: &str,
        program: impl FnOnce(&Stage, &User<Model>) -> Result<(), Failed> + 'static,
    ) -> Result<(), Failed> {
        self.fork(user, name, program)?;
        user.wait().map_err(named("wait")).map(|_| ())
    }

    /// `len_pages` pages of memory with the bytes of [`contents`], which a child does not get; no step.
    fn buffer(&self, user: &User<Model>, len_pages: usize) -> Result<Va, Failed> {
        let at = map(user, len_pages).map_err(named("map a buffer"))?;
        user.store(at, &contents(len_pages));
        Ok(at)
    }

    /// The state of the frame behind a page, in words.
    fn page(&self, user: &User<Model>, at: Va) -> String {
        self.model.inspect(|| match user.frame_behind(at) {
            None => "no frame".to_owned(),
            Some(frame) => {
                let info = user.kernel().vm().frame_info(frame);
                format!("on loan {}, wired {}", times(info.loan_count), times(info.wire_count))
            }
        })
    }

    /// True when memory holds `expected`, mapped or not. `at` is page-aligned.
    fn holds(&self, user: &User<Model>, at: Va, expected: &[u8]) -> bool {
        crate::workload::differs_behind(user, &self.model, at, expected).is_none()
    }
}

fn times(count: u32) -> String {
    match count {
        0 => "not at all".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// `len_pages` pages of zero-fill memory that a child does not get.
fn map(user: &User<Model>, len_pages: usize) -> Result<Va, Errno> {
    user.map(len_pages * PAGE_SIZE, Prot::RW, Inherit::None)
}

/// Loads a word of each page.
fn look_at(user: &User<Model>, at: Va, len_pages: usize) {
    for page in 0..len_pages {
        user.load(at + page * PAGE_SIZE, &mut [0; 4]);
    }
}

/// The bytes of a buffer of `len_pages` pages.
fn contents(len_pages: usize) -> Vec<u8> {
    Payload::new(1, len_pages * PAGE_SIZE).chunk(0).to_vec()
}
