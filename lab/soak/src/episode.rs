//! One program on one machine, from boot to the end.
//!
//! Steps are run in rounds: alone, or several side by side on different CPUs. Behind each round the pages that it
//! touched are compared with the model, and the laws are checked that what it changed could break; all pages and all
//! laws every so often, and in the end. When a program is run again to see where it fails, everything is checked at
//! every step.

use crate::calls;
use crate::failure::Failure;
use crate::planted::Planted;
use crate::program::{Op, Step};
use crate::rig::{Job, MACHINES, Rig, SHADOWS, with_rig};
use crate::servers::{Deed, Servers};
use crate::traffic::{Call, Traffic};
use crate::world::{Task, World};
use pageferry_calls::{CallStep, Calls};
use pageferry_model::{Schedule, panics};
use pageferry_vm::{VmError, Watch};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// A program, and where it is to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ProgramFile", into = "ProgramFile")]
pub struct Program {
    /// One of [`crate::MACHINES`].
    pub machine: String,
    /// The CPU that runs next is chosen by this seed at every step of the machine; by the clocks, if there is none.
    pub schedule: Option<u64>,
    /// The seed gives CPUs priorities, for bugs of this depth, and not a turn each to one at random.
    pub depth: Option<u32>,
    /// What it does.
    pub steps: Steps,
}

/// What a program does.
#[derive(Clone, Debug, PartialEq)]
pub enum Steps {
    /// Processes map, write, lend and pass memory, under the VM system alone.
    Memory(Vec<Step>),
    /// Sockets are used, under a whole kernel.
    Traffic(Traffic),
    /// Servers that are processes are asked, under a whole kernel.
    Servers(Servers),
    /// Processes use files, streams and memory together, under a whole kernel.
    Calls(Calls),
}

/// A program in a file: it has one of the four kinds of steps.
#[derive(Clone, Serialize, Deserialize)]
struct ProgramFile {
    machine: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schedule: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<Step>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traffic: Option<Traffic>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    servers: Option<Servers>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls: Option<Calls>,
}

impl TryFrom<ProgramFile> for Program {
    type Error = &'static str;
    fn try_from(kept: ProgramFile) -> Result<Program, &'static str> {
        let kinds = [
            kept.steps.map(Steps::Memory),
            kept.traffic.map(Steps::Traffic),
            kept.servers.map(Steps::Servers),
            kept.calls.map(Steps::Calls),
        ];
        let mut kinds = kinds.into_iter().flatten();
        let steps = match (kinds.next(), kinds.next()) {
            (Some(steps), None) => steps,
            (None, _) => return Err("it does nothing, expected `steps`, `traffic`, `servers` or `calls`"),
            (Some(_), Some(_)) => {
                return Err(
                    "it has several of `steps`, `traffic`, `servers` and `calls`, expected one of them",
                );
            }
        };
        if kept.depth.is_some() && kept.schedule.is_none() {
            return Err("it has a `depth` and no `schedule`, expected the seed of one");
        }
        if kept.depth.is_some_and(|depth| !(1..=100).contains(&depth)) {
            return Err("its `depth` is out of range, expected 1 to 100");
        }
        Ok(Program { machine: kept.machine, schedule: kept.schedule, depth: kept.depth, steps })
    }
}

impl From<Program> for ProgramFile {
    fn from(Program { machine, schedule, depth, steps }: Program) -> ProgramFile {
        let kept =
            ProgramFile { machine, schedule, depth, steps: None, traffic: None, servers: None, calls: None };
        match steps {
            Steps::Memory(steps) => ProgramFile { steps: Some(steps), ..kept },
            Steps::Traffic(traffic) => ProgramFile { traffic: Some(traffic), ..kept },
            Steps::Servers(servers) => ProgramFile { servers: Some(servers), ..kept },
            Steps::Calls(calls) => ProgramFile { calls: Some(calls), ..kept },
        }
    }
}

/// The schedule of a seed: by priorities for bugs of `depth`, if that is asked for.
pub(crate) fn seeded(seed: u64, depth: Option<u32>) -> Schedule {
    depth.map_or(Schedule::Seeded(seed), |depth| Schedule::pct(depth).with_seed(seed))
}

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scrutiny {
    /// Everything now and then.
    Usual,
    /// Everything at every step.
    Strict,
}

const COMPARE_EVERY: usize = 32;
const CHECK_EVERY: usize = 1024;

impl Program {
    /// Says what is wrong with a program that was not made here.
    ///
    /// # Errors
    /// A sentence.
    pub fn validate(&self) -> Result<(), String> {
        let machine = match self.steps {
            Steps::Memory(_) => self.machine.replacen(SHADOWS, "", 1),
            Steps::Traffic(_) | Steps::Servers(_) | Steps::Calls(_) => self.machine.clone(),
        };
        if !MACHINES.contains(&machine.as_str()) {
            return Err(format!(
                "no machine is called {}: expected one of {}",
                self.machine,
                MACHINES.join(", ")
            ));
        }
        match &self.steps {
            Steps::Memory(steps) => steps.iter().enumerate().try_for_each(|(i, step)| {
                step.op.validate().map_err(|problem| format!("step {i}: {problem}"))
            }),
            Steps::Traffic(traffic) => traffic.validate(),
            Steps::Servers(servers) => servers.validate(),
            Steps::Calls(calls) => calls.validate(),
        }
    }

    /// How many steps it has.
    pub fn len(&self) -> usize {
        match &self.steps {
            Steps::Memory(steps) => steps.len(),
            Steps::Traffic(traffic) => traffic.steps.len(),
            Steps::Servers(servers) => servers.steps.len(),
            Steps::Calls(calls) => calls.steps.len(),
        }
    }

    /// True for one that does nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The program without some of its steps.
    pub(crate) fn without(&self, range: Range<usize>) -> Program {
        let mut shorter = self.clone();
        match &mut shorter.steps {
            Steps::Memory(steps) => drop(steps.drain(range)),
            Steps::Traffic(traffic) => drop(traffic.steps.drain(range)),
            Steps::Servers(servers) => drop(servers.steps.drain(range)),
            Steps::Calls(calls) => drop(calls.steps.drain(range)),
        }
        shorter
    }

    /// Its steps, in words.
    pub fn lines(&self) -> Vec<String> {
        match &self.steps {
            Steps::Memory(steps) => {
                let line = |step: &Step| format!("process {}, cpu {}: {:?}", step.process, step.cpu, step.op);
                steps.iter().map(line).collect()
            }
            Steps::Traffic(traffic) => {
                let line = |call: &Call| {
                    let end = if call.other_end { ", its other end" } else { "" };
                    format!("connection {}{end}: {:?}", call.connection, call.op)
                };
                traffic.steps.iter().map(line).collect()
            }
            Steps::Servers(servers) => {
                let line = |deed: &Deed| format!("application {}: {:?}", deed.application, deed.op);
                let by = format!("memory is attached by {:?}", servers.by);
                std::iter::once(by).chain(servers.steps.iter().map(line)).collect()
            }
            Steps::Calls(calls) => {
                let line = |step: &CallStep| format!("process {}: {:?}", step.process, step.op);
                calls.steps.iter().map(line).collect()
            }
        }
    }

    /// Runs it, looking at everything at every step.
    ///
    /// # Errors
    /// How it failed.
    pub fn run(&self) -> Result<(), Failure> {
        self.run_with(Scrutiny::Strict, None)
    }

    /// Runs it with a defect planted.
    ///
    /// # Errors
    /// How it failed.
    pub fn run_planted(&self, defect: Planted) -> Result<(), Failure> {
        panics::quietly(|| self.run_with(Scrutiny::Strict, Some(defect))).0
    }

    pub(crate) fn run_with(&self, care: Scrutiny, defect: Option<Planted>) -> Result<(), Failure> {
        let schedule = self.schedule.map_or(Schedule::Timed, |seed| seeded(seed, self.depth));
        match &self.steps {
            Steps::Memory(steps) => {
                let at = Rc::new(Cell::new(0));
                let (steps, seen) = (steps.clone(), at.clone());
                with_rig(&self.machine, schedule, defect, move |rig| run(rig, &steps, care, &seen))
                    .map_err(|message| Failure { step: at.get(), message })
            }
            Steps::Traffic(traffic) => traffic.run(&self.machine, schedule, defect),
            Steps::Servers(servers) => servers.run(&self.machine, schedule, defect),
            Steps::Calls(calls) => calls::run(calls, &self.machine, schedule, defect),
        }
    }
}

/// The steps of the next round, and where the one behind them begins.
fn next_round(world: &World, steps: &[Step], mut i: usize, cpus: usize) -> (Vec<Task>, usize) {
    let mut tasks: Vec<Task> = Vec::new();
    while i < steps.len() {
        let step = &steps[i];
        if !tasks.is_empty() && (!step.beside || step.fail.is_some() || tasks.len() == cpus) {
            break;
        }
        let Some(task) = world.ready(step) else {
            i += 1;
            continue;
        };
        let solo = step.fail.is_some() || world.is_solo(&task);
        if !tasks.is_empty() && (solo || !tasks.iter().all(|t| World::are_strangers(t, &task))) {
            world.unready(task);
            break;
        }
        tasks.push(task);
        i += 1;
        if solo {
            break;
        }
    }
    (tasks, i)
}

fn run(rig: &Rig, steps: &[Step], care: Scrutiny, at: &Cell<usize>) {
    let world = Rc::new(World::new(rig));
    let mut watch = Watch::new(&rig.vm).expect("the laws hold at the start");
    let (mut i, mut round) = (0, 0);
    while i < steps.len() {
        at.set(i);
        let first = steps[i];
        let (tasks, next) = next_round(&world, steps, i, rig.cpus());
        // The step that was begun with is the last one read, or lies further on: what was skipped does not count.
        let alone = (tasks.len() == 1).then(|| steps[next - 1]);
        i = next;
        world.begin_round(&tasks);
        let tasks: Vec<Rc<Task>> = tasks.into_iter().map(Rc::new).collect();
        match alone {
            Some(step) => run_alone(rig, &world, &tasks[0], &step),
            None => run_together(rig, &world, &tasks, first.cpu),
        }
        round += 1;
        for task in tasks {
            world.compare_task(&task);
            world.unready(Rc::into_inner(task).expect("the jobs are done"));
        }
        if care == Scrutiny::Strict || round % COMPARE_EVERY == 0 {
            world.compare();
        }
        if care == Scrutiny::Strict || round % CHECK_EVERY == 0 {
            rig.check();
        }
        rig.m.inspect(|| watch.look()).unwrap_or_else(|law| panic!("a law is broken, says the watch: {law}"));
    }
    at.set(steps.len());
    drop(watch);
    let Ok(world) = Rc::try_unwrap(world) else { unreachable!("no job is left") };
    world.finish();
}

fn run_alone(rig: &Rig, world: &Rc<World>, task: &Rc<Task>, step: &Step) {
    // An exit makes all CPUs leave the address space, so it is CPU 0 that gives out the jobs.
    let cpu = if matches!(task.op, Op::Exit) { 0 } else { step.cpu % rig.cpus() };
    let (world, task, fail) = (world.clone(), task.clone(), step.fail);
    rig.on(cpu, move |rig| {
        rig.vm.fail_after(fail);
        let struck = world.apply(&task, true);
        rig.vm.fail_after(None);
        if let Err(e) = struck {
            assert_eq!(e, VmError::NoMemory, "{:?}", task.op);
            assert!(fail.is_some(), "memory ran out by itself in {:?}", task.op);
            world.compare_task(&task);
            let again = world.apply(&task, true);
            assert_eq!(again, Ok(()), "the failure did not last: {:?}", task.op);
        }
    });
}

fn run_together(rig: &Rig, world: &Rc<World>, tasks: &[Rc<Task>], turn: usize) {
    let jobs = (0..tasks.len()).map(|i| {
        let (world, task) = (world.clone(), tasks[(i + turn % tasks.len()) % tasks.len()].clone());
        let job: Job = Box::new(move |_| {
            let done = world.apply(&task, false);
            assert_eq!(done, Ok(()), "memory ran out by itself in {:?}", task.op);
        });
        job
    });
    if !tasks.is_empty() {
        rig.together(jobs.collect());
    }
}
