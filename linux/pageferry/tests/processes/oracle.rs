//! Random programs of all verbs beside a model that copies everything.
//!
//! Every byte is looked at when it is received, before it is given back, and after each store of a sender.
//! At the end of a program, sent is acknowledged, no slot is taken, and the process has the descriptors and
//! mappings that it had before.
//!
//! `cargo test` runs a few hundred. More: `PAGEFERRY_PROGRAMS=1000000` programs, from the seed
//! `PAGEFERRY_SEED` (1) on, with `PAGEFERRY_STEPS` (80) steps each. A program that fails is cut down and
//! written to the directory that the message names; kept in `linux/programs/kept`, it is run for ever after.

use crate::actor::Actor;
use crate::again::{self, Ended};
use crate::conserved::Ground;
use crate::talk;
use pageferry::verify::Defect;
use pageferry_programs::{Action, Answer, Failure, Level, Model, Op, Program, Shape, Turn, shrink};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For ever, to a program: none takes a second on an idle host.
const HANGS: Duration = Duration::from_secs(60);

/// What a process of programs is to run.
#[derive(Debug, Serialize, Deserialize)]
enum Job {
    Seeds { first: u64, count: u64, steps: usize, spread: bool },
    One { program: Program, spread: bool },
}

/// What runs the actions of a program.
enum Stage {
    Alone(Actor),
    Spread(Vec<Process>),
}

/// An actor that is a process.
struct Process {
    player: again::Player,
    socket: OwnedFd,
    owes: Option<Turn>,
}

/// What an actor is told.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// With one socket for each end: the channel's number, and whether it sends.
    Begin(Shape, Vec<(usize, bool)>),
    Act(Action),
    /// Nothing must be left.
    End,
}

/// An actor's process.
pub fn actor() {
    use std::os::fd::AsFd as _;
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    warm_up();
    let ground = Ground::now();
    let mut actor = Actor::default();
    while let Some((order, fds)) = talk::hear::<Order>(&socket) {
        let answer = match order {
            Order::Begin(shape, ends) => {
                let its_own = shape.topology.channels().into_iter().enumerate();
                its_own
                    .filter(|(_, its)| its.from == its.to)
                    .for_each(|(number, _)| actor.pair(number, &shape));
                let mut made = ends.into_iter().zip(fds).map(|((channel, sends), fd)| {
                    actor.end(channel, sends, fd, &shape).map_err(|error| error.to_string())
                });
                made.find_map(Result::err).map_or(Answer::Done, Answer::Wrong)
            }
            Order::Act(action) => actor.act(&action),
            Order::End if !actor.is_idle() => Answer::Wrong("something was not dropped".to_owned()),
            Order::End => ground.check().map_or_else(Answer::Wrong, |()| Answer::Done),
        };
        talk::say(&socket, &answer, &[]);
    }
}

/// What the library makes once in a process is made.
fn warm_up() {
    let mut actor = Actor::default();
    actor.pair(0, &as_here(Program::random(0, 0)).shape);
}

impl Stage {
    fn new(spread: bool) -> Stage {
        if spread {
            return Stage::Spread(Vec::new());
        }
        warm_up();
        Stage::Alone(Actor::default())
    }

    fn begin(&mut self, shape: &Shape) -> Result<(), String> {
        let channels = shape.topology.channels();
        match self {
            Stage::Alone(actor) => (0..channels.len()).for_each(|channel| actor.pair(channel, shape)),
            Stage::Spread(processes) => {
                while processes.len() < shape.topology.processes() {
                    processes.push(Process::start());
                }
                let sockets: Vec<_> =
                    channels.iter().map(|_| pageferry::Channel::sockets().unwrap()).collect();
                let used = shape.topology.processes();
                for (number, process) in processes.iter().enumerate().take(used) {
                    let (mut ends, mut fds) = (Vec::new(), Vec::new());
                    for (channel, (from, to)) in sockets.iter().enumerate() {
                        let its = channels[channel];
                        if its.from == its.to {
                            continue;
                        }
                        let sides = [(its.from, true, from), (its.to, false, to)];
                        for (_, sends, fd) in sides.into_iter().filter(|side| side.0 == number) {
                            ends.push((channel, sends));
                            fds.push(fd);
                        }
                    }
                    talk::say(&process.socket, &Order::Begin(*shape, ends), &fds);
                }
                drop(sockets);
                for process in processes.iter_mut().take(used) {
                    match process.hear() {
                        Answer::Done => (),
                        answer => return Err(format!("a channel was not made: {answer:?}")),
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a turn and all that it calls for. What is local to a process goes on meanwhile, if `beside`.
    fn run(&mut self, model: &mut Model, turn: Turn, beside: bool) -> Result<(), String> {
        let mut turns = vec![turn];
        while let Some(turn) = turns.pop() {
            turns.extend(self.turn(model, turn, beside)?);
        }
        Ok(())
    }

    fn turn(&mut self, model: &mut Model, turn: Turn, beside: bool) -> Result<Vec<Turn>, String> {
        let answer = match self {
            Stage::Alone(actor) => actor.act(&turn.action),
            Stage::Spread(processes) => {
                for (number, process) in processes.iter_mut().enumerate() {
                    if !beside || number == turn.process {
                        process.settle()?;
                    }
                }
                let process = &mut processes[turn.process];
                talk::say(&process.socket, &Order::Act(turn.action.clone()), &[]);
                if turn.local {
                    // Its answer can only be that it was done.
                    process.owes = Some(turn.clone());
                    Answer::Done
                } else {
                    process.hear()
                }
            }
        };
        model.answer(&turn, answer)
    }

    fn end(&mut self, ground: &Ground) -> Result<(), String> {
        match self {
            Stage::Alone(actor) if actor.is_idle() => ground.check(),
            Stage::Alone(_) => Err("something was not dropped".to_owned()),
            Stage::Spread(processes) => {
                for process in processes.iter_mut() {
                    process.settle()?;
                    talk::say(&process.socket, &Order::End, &[]);
                    match process.hear() {
                        Answer::Done => (),
                        answer => return Err(format!("at the end: {answer:?}")),
                    }
                }
                Ok(())
            }
        }
    }
}

impl Process {
    fn start() -> Process {
        let (socket, theirs) = talk::pair();
        let mut command = again::command("actor", "");
        command.stdin(std::process::Stdio::from(theirs));
        Process { player: again::Player::start(command), socket, owes: None }
    }

    fn hear(&mut self) -> Answer {
        match talk::hear(&self.socket) {
            Some((answer, _)) => answer,
            None => Answer::Wrong(format!("the process has ended: {}", self.player.output())),
        }
    }

    fn settle(&mut self) -> Result<(), String> {
        match self.owes.take() {
            None => Ok(()),
            Some(turn) => match self.hear() {
                Answer::Done => Ok(()),
                answer => Err(format!("{:?} was answered by {answer:?}", turn.action)),
            },
        }
    }
}

/// The program as this host can run it. Where memory cannot be frozen, nothing promises what `Level::Mmu` does. Where
/// mappings cannot be duplicated, nothing comes in the place of a donation, and stray stores make no pages.
fn as_here(mut program: Program) -> Program {
    static HERE: OnceLock<(bool, bool)> = OnceLock::new();
    let &(mmu, alias) = HERE.get_or_init(|| (crate::mmu_here(), crate::alias_here()));
    if !mmu && program.shape.level == Level::Mmu {
        program.shape.level = Level::Typed;
    }
    if !alias {
        program.shape.copy_on_write = false;
        for step in &mut program.steps {
            if let Op::DonateZero { which } = step.op {
                step.op = Op::Donate { which };
            }
        }
    }
    program
}

fn run_program(stage: &mut Stage, program: &Program, ground: &Ground) -> Result<(), String> {
    let mut model = Model::new(program);
    stage.begin(&program.shape)?;
    for (number, step) in program.steps.iter().enumerate() {
        if let Some(turn) = model.step(&step.op) {
            stage.run(&mut model, turn, step.beside).map_err(|what| format!("step {number}: {what}"))?;
        }
    }
    while let Some(turn) = model.end() {
        stage.run(&mut model, turn, false).map_err(|what| format!("at the end: {what}"))?;
    }
    stage.end(ground)
}

/// A process that runs programs, one after the other.
pub fn programs(input: &str) {
    static AT: AtomicU64 = AtomicU64::new(0);
    std::thread::spawn(|| {
        let mut last = u64::MAX;
        loop {
            let at = AT.load(Ordering::Relaxed);
            if at == last {
                eprintln!("program {at} hangs");
                std::process::abort();
            }
            last = at;
            std::thread::sleep(HANGS);
        }
    });
    let job: Job = serde_json::from_str(input).unwrap();
    let (Job::Seeds { spread, .. } | Job::One { spread, .. }) = job;
    let mut stage = Stage::new(spread);
    let ground = Ground::now();
    match job {
        Job::One { program, .. } => run_program(&mut stage, &as_here(program), &ground).unwrap(),
        Job::Seeds { first, count, steps, .. } => {
            for seed in first..first + count {
                AT.fetch_add(1, Ordering::Relaxed);
                println!("\nseed {seed}");
                run_program(&mut stage, &as_here(Program::random(seed, steps)), &ground).unwrap();
            }
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect(name))
}

fn failure(job: &Job) -> Option<String> {
    let within = match job {
        Job::One { .. } => HANGS,
        Job::Seeds { count, .. } => HANGS * 2 + Duration::from_secs(*count),
    };
    match again::run("programs", &serde_json::to_string(job).unwrap(), within) {
        Ended::Through(_) => None,
        Ended::Failed(output) | Ended::Hung(output) => Some(output),
    }
}

/// Runs programs of seeds; the first that fails is cut down and written to a file.
fn run_seeds(count: u64, spread: bool) {
    let (first, steps) = (setting("PAGEFERRY_SEED", 1), setting("PAGEFERRY_STEPS", 80) as usize);
    let all = setting("PAGEFERRY_PROGRAMS", count);
    const AT_A_TIME: u64 = 500;
    for start in (0..all).step_by(AT_A_TIME as usize) {
        let count = AT_A_TIME.min(all - start);
        let job = Job::Seeds { first: first + start, count, steps, spread };
        let Some(message) = failure(&job) else { continue };
        let seed = message.lines().rev().find_map(|line| line.strip_prefix("seed ")?.parse().ok());
        let seed = seed.unwrap_or_else(|| panic!("no program was begun: {message}"));
        let run = |program: &Program| failure(&Job::One { program: program.clone(), spread });
        let found = shrink(Failure { program: Program::random(seed, steps), message }, 300, run);
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("failed-{seed}.json"));
        std::fs::write(&path, serde_json::to_string_pretty(&found.program).unwrap()).unwrap();
        panic!("seed {seed}, spread {spread}: {}\ncut down: {}", found.message, path.display());
    }
}

#[test]
fn programs_in_one_process() {
    run_seeds(250, false);
}

#[test]
fn programs_over_processes() {
    run_seeds(250, true);
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs/kept")
}

fn read(path: &Path) -> Program {
    let program: Program = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    program.validate().unwrap();
    program
}

#[test]
fn programs_that_once_failed() {
    let mut run = 0;
    for file in std::fs::read_dir(kept()).unwrap() {
        let path = file.unwrap().path();
        let program = read(&path);
        for spread in [false, true] {
            let found = failure(&Job::One { program: program.clone(), spread });
            assert_eq!(found, None, "{}", path.display());
        }
        run += 1;
    }
    assert!(run >= 1, "the kept programs are gone");
}

/// What the programs are for: a library that leaves out one of its steps is found out.
#[test]
fn programs_find_what_is_left_out() {
    if !crate::mmu_here() || !crate::alias_here() {
        return;
    }
    let found_by = [
        (Defect::NoFreeze, "a-stray-store-after-a-loan", "bytes differ"),
        (Defect::NoThaw, "slots-that-are-home-are-filled-again", "SIGSEGV"),
        (Defect::NoDontNeed, "what-a-receiver-wrote-shadows-nothing", "bytes differ"),
    ];
    for (defect, name, expected) in found_by {
        let program = read(&kept().join(name).with_extension("json"));
        let job = serde_json::to_string(&Job::One { program, spread: false }).unwrap();
        match again::run_planted("programs", &job, defect, HANGS) {
            Ended::Failed(output) if output.contains(expected) => (),
            other => panic!("{defect:?} is not found by {name}: {other:?}"),
        }
    }
}

/// Programs that never do a thing would never fail.
#[test]
fn programs_do_everything() {
    let mut actions = BTreeSet::new();
    for seed in 1..40 {
        let program = Program::random(seed, 80);
        let mut model = Model::new(&program);
        for step in &program.steps {
            let Some(turn) = model.step(&step.op) else { continue };
            let name = format!("{:?}", turn.action);
            actions.insert(name.split([' ', '{']).next().unwrap().to_owned());
            let answer = match &turn.action {
                Action::Receive { expect: None, .. } => Answer::WouldBlock,
                Action::CountSender { .. } => continue,
                _ => Answer::Done,
            };
            let _ = model.answer(&turn, answer);
        }
    }
    let all = "Buffer Check Copy CopyBuffer CountSender Cut Donate DonateZero Drop EndReceiver EndSender Forward \
               IsOut Loan Receive Resend Share Store Stray Transfer Wait Write WriteFrom";
    let missing: Vec<_> = all.split_ascii_whitespace().filter(|name| !actions.contains(*name)).collect();
    assert!(missing.is_empty(), "no program does {missing:?}");
}
