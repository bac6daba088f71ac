//! The stage of a mechanism's program: where it says what has happened, and what the machine counted meanwhile.
//!
//! Whatever happens between the end of one step and the end of the next belongs to the next, on whatever CPU and in
//! whichever process, unless the program begins anew: so the steps of two processes that take turns do not overlap.

use pageferry_hal::{Cause, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Pid, Program, User};
use pageferry_lab::LabError;
use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::kit::{CallError, Payload, differs_behind, named};
use pageferry_lab::record::Law;
use pageferry_lab::run::{counters, cycles};
use pageferry_model::{Model, Snapshot, Spent};
use pageferry_pmap::{KernelMapping, Reload};
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
    /// What is told first, to show what goes wrong.
    pub counterexample: Option<Counterexample>,
    /// The runs that are told side by side, where there is more than one.
    pub more: Option<&'static More>,
    /// There is a host at the far end of the machine's wire.
    pub far_end: bool,
    pub(super) program: fn(&Stage, &User<Model>) -> Result<(), CallError>,
}

/// A kernel under which the program uses a stale translation.
#[derive(Debug)]
pub struct Counterexample {
    /// The kernel.
    pub kernel: &'static str,
    /// What stands before the steps under this kernel, and before those under the mechanism's own.
    pub words: [&'static str; 2],
}

/// Runs of a mechanism's program on several machines and kernels, and the table that they end with.
#[derive(Debug)]
pub struct More {
    /// The runs, in order.
    pub runs: &'static [Variant],
    pub(super) table: fn(&[Ran]) -> Result<Comparison, LabError>,
}

/// A table, and the laws of what was run for it besides.
pub(super) type Comparison = (Table, Vec<Law>);

/// One run of several.
#[derive(Debug)]
pub struct Variant {
    /// The machine, unless another is asked for.
    pub machine: &'static str,
    /// Changes to machine and kernel, as for `--set`.
    pub set: &'static [&'static str],
    /// What is said of its steps, before the first; without, they are not told.
    pub words: Option<&'static str>,
}

/// What the table of several runs is made from.
pub(super) struct Ran {
    pub(super) machine: MachineChoice,
    /// With the changes of the variant.
    pub(super) kernel: KernelChoice,
    /// What the program found.
    pub(super) figures: BTreeMap<&'static str, u64>,
}

impl Ran {
    /// The machine, the refill handler, and how the kernel is mapped: the first fields of a row.
    pub(super) fn words(&self) -> Vec<Field> {
        let pmap = self.kernel.file.config(&self.machine.config, 0).pmap;
        let reload = match pmap.refill.reload {
            Reload::Fast => "fast",
            Reload::Slow => "slow",
            Reload::SlowInsert => "slow-insert",
        };
        let mapping = match pmap.mapping {
            KernelMapping::Pages => "pages",
            KernelMapping::Board => "the board's way",
            _ => "blocks",
        };
        [&self.machine.name, reload, mapping].map(|word| Field::Word(word.to_owned())).into()
    }
}

/// What is set side by side at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// What is in the columns.
    pub head: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<Field>>,
}

/// A field of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Field {
    /// A word.
    Word(String),
    /// A number.
    Number(u64),
}

/// A step, and what was counted in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What the steps from here on are of, where there are several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// It is a part of the last step that is none, which has its cycles too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub part: bool,
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
        let what = what.to_owned();
        Step { section: None, part: false, what, busy_cycles, by_cause, counters, notes: Vec::new() }
    }

    /// Something that was watched, or a part of that.
    pub(super) fn watched(part: bool, what: String, spent: &Spent) -> Step {
        let by_cause: BTreeMap<_, _> =
            (Cause::ALL.iter().map(|c| (c.name().to_owned(), spent.cycles[c.index()])))
                .filter(|(_, cycles)| *cycles > 0)
                .collect();
        let counters = [
            ("instructions", spent.instructions),
            ("accesses", spent.accesses),
            ("data_lines", spent.data_lines),
            ("instruction_lines", spent.instruction_lines),
            ("lines_from_memory", spent.memory_lines),
        ];
        let counters = counters.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n));
        let busy_cycles = by_cause.values().sum();
        let counters = counters.collect();
        Step { section: None, part, what, busy_cycles, by_cause, counters, notes: Vec::new() }
    }
}

/// Where a program's processes leave what they found. They are coroutines of one thread.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) model: Model,
    /// Entries of the TLB for data.
    pub(super) tlb_entries: usize,
    /// What the host at the far end has heard.
    pub(super) heard: Rc<RefCell<Vec<u8>>>,
    pub(super) state: Rc<RefCell<State>>,
}

pub(super) struct State {
    since: Snapshot,
    pub(super) steps: Vec<Step>,
    pub(super) failed: Option<CallError>,
    pub(super) broken: Result<(), String>,
    /// What the table of several runs is made from.
    pub(super) figures: BTreeMap<&'static str, u64>,
}

impl Stage {
    pub(super) fn new(model: &Model, tlb_entries: usize) -> Stage {
        let state = State {
            since: model.snapshot(),
            steps: Vec::new(),
            failed: None,
            broken: Ok(()),
            figures: BTreeMap::new(),
        };
        Stage { model: model.clone(), tlb_entries, heard: Rc::default(), state: Rc::new(RefCell::new(state)) }
    }

    /// Begins a step: what has happened so far belongs to none.
    pub(super) fn begin(&self) {
        self.state.borrow_mut().since = self.model.snapshot();
    }

    /// Ends a step: `what` is all that has happened since the last step, or since the last beginning.
    pub(super) fn end(&self, what: &str) {
        let now = self.model.snapshot();
        let state = &mut *self.state.borrow_mut();
        state.steps.push(Step::new(what, &now.since(&state.since)));
        state.since = now;
    }

    /// A step that is one call.
    pub(super) fn step<R>(
        &self,
        what: &'static str,
        call: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, CallError> {
        self.begin();
        let result = call().map_err(named(what))?;
        self.end(what);
        Ok(result)
    }

    /// Adds to the last step what was seen afterwards, from outside of the machine.
    pub(super) fn note(&self, text: impl Into<String>) {
        let state = &mut *self.state.borrow_mut();
        state.steps.last_mut().expect("there is a step to say it of").notes.push(text.into());
    }

    /// Adds to the last step something that was counted.
    pub(super) fn count(&self, name: &str, count: u64) {
        let state = &mut *self.state.borrow_mut();
        let step = state.steps.last_mut().expect("there is a step in which it was counted");
        if count > 0 {
            step.counters.insert(name.to_owned(), count);
        }
    }

    /// How often the event called `name` was counted in the last step.
    pub(super) fn counted(&self, name: &str) -> u64 {
        self.state.borrow().steps.last().map_or(0, |step| step.count(name))
    }

    /// Adds a step that was watched.
    pub(super) fn add(&self, step: Step) {
        self.state.borrow_mut().steps.push(step);
    }

    /// Keeps a number for the table.
    pub(super) fn figure(&self, name: &'static str, number: u64) {
        self.state.borrow_mut().figures.insert(name, number);
    }

    /// States what must hold; the first promise that does not breaks the run's law.
    pub(super) fn promise(&self, what: &str, held: bool) {
        let state = &mut *self.state.borrow_mut();
        if !held && state.broken.is_ok() {
            state.broken = Err(format!("not so: {what}"));
        }
    }

    /// Keeps the first failure.
    pub(super) fn settle(&self, result: Result<(), CallError>) {
        if let Err(failed) = result {
            self.state.borrow_mut().failed.get_or_insert(failed);
        }
    }

    /// Forks a process for `program`, and does not wait for its end.
    pub(super) fn fork(
        &self,
        user: &User<Model>,
        name: &str,
        program: impl FnOnce(&Stage, &User<Model>) -> Result<(), CallError> + 'static,
    ) -> Result<Pid, CallError> {
        let stage = self.clone();
        let program: Program<Model> = Box::new(move |user: &User<Model>| {
            let result = program(&stage, user);
            stage.settle(result);
        });
        user.fork(name, program).map_err(named("fork"))
    }

    /// Forks a process for `program`, and waits for its end.
    pub(super) fn other(
        &self,
        user: &User<Model>,
        name: &str,
        program: impl FnOnce(&Stage, &User<Model>) -> Result<(), CallError> + 'static,
    ) -> Result<(), CallError> {
        self.fork(user, name, program)?;
        user.wait().map_err(named("wait")).map(|_| ())
    }

    /// `len_pages` pages of memory with the bytes of [`contents`], which a child does not get; no step.
    pub(super) fn buffer(&self, user: &User<Model>, len_pages: usize) -> Result<Va, CallError> {
        let at = map(user, len_pages).map_err(named("map a buffer"))?;
        user.store(at, &contents(len_pages));
        Ok(at)
    }

    /// The state of the frame behind a page, in words.
    pub(super) fn page(&self, user: &User<Model>, at: Va) -> String {
        self.model.inspect(|| match user.frame_behind(at) {
            None => "no frame".to_owned(),
            Some(frame) => {
                let info = user.kernel().vm().frame_info(frame);
                format!("on loan {}, wired {}", times(info.loan_count), times(info.wire_count))
            }
        })
    }

    /// True when memory holds `expected`, mapped or not. `at` is page-aligned.
    pub(super) fn holds(&self, user: &User<Model>, at: Va, expected: &[u8]) -> bool {
        differs_behind(user, &self.model, at, expected).is_none()
    }
}

pub(super) fn times(count: u32) -> String {
    match count {
        0 => "not at all".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// `len_pages` pages of zero-fill memory that a child does not get.
pub(super) fn map(user: &User<Model>, len_pages: usize) -> Result<Va, Errno> {
    user.map(len_pages * PAGE_SIZE, Prot::RW, Inherit::None)
}

/// Loads a word of each page.
pub(super) fn look_at(user: &User<Model>, at: Va, len_pages: usize) {
    for page in 0..len_pages {
        user.load(at + page * PAGE_SIZE, &mut [0; 4]);
    }
}

/// The bytes of a buffer of `len_pages` pages.
pub(super) fn contents(len_pages: usize) -> Vec<u8> {
    Payload::new(1, len_pages * PAGE_SIZE).chunk(0).to_vec()
}
