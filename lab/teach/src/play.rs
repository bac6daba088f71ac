//! Playing a scenario on a modelled machine, by system calls alone.
//!
//! Every process is a process of the kernel. Steps that go on together form a group, and the groups take turns. A
//! process does its own steps of the current group, and yields until a later group has more for it. Meanwhile it looks
//! at those that have: where all of them sleep until another process does something, none will, and the scenario ends.

use super::scenario::{Amount, Do, Scenario, Step, Value, Variant};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, Pid, Program, SendMode, User};
use pageferry_lab::LabError;
use pageferry_lab::files::{KernelChoice, MachineChoice};
use pageferry_lab::run::{Choices, Schedule, Testbed};
use pageferry_model::Model;
use pageferry_vm::{Inherit, MapAddr};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How a variant went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What varied, as `name=value`.
    pub variant: String,
    /// What is wrong, if anything.
    pub wrong: Option<String>,
}

/// So often in a row all processes of a group are seen asleep before that is believed: a wakeup may be under way.
const LOOKS: u32 = 100;

/// Steps are done one after the other, so what is sent waits in a socket until a later step receives it: so much finds
/// room there, whatever the kernel's file says.
const MIN_ROOM_BYTES: u64 = 8192;

/// Plays all variants, under this schedule; `seed` is its seed, if it has one.
///
/// # Errors
/// When the kernel does not fit the machine, or has no page daemon where the scenario asks for one.
pub fn play(
    scenario: &Scenario,
    machine: &MachineChoice,
    kernel: &KernelChoice,
    (schedule, seed): (Schedule, u64),
) -> Result<Vec<Outcome>, LabError> {
    let page_out = scenario.file.step.iter().position(|step| step.what == Do::PageOut);
    if let Some(step) = page_out.filter(|_| kernel.file.paging.is_none()) {
        let problem = format!(
            "step {}: `page_out` needs a page daemon, and kernel `{}` has none; expected one with a table [paging], \
             such as `uvm-paging`",
            step + 1,
            kernel.name
        );
        return Err(LabError::Input { file: scenario.name.clone(), problem });
    }
    let mut roomy = kernel.clone();
    let room = &mut roomy.file.socket.high_water_bytes.value;
    *room = MIN_ROOM_BYTES.max(*room);
    let one = |variant: Variant| {
        let testbed = Testbed::new(machine, &roomy, Choices { schedule, seed, ..Choices::default() })?;
        let script = Rc::new(Script::new(scenario, &variant));
        let playing = script.clone();
        let first = scenario.file.step[0].process.clone();
        let program: Program<Model> = Box::new(move |user| Actor::new(&playing, first).play(user));
        let finish = testbed.execute(&scenario.name, program)?;
        let broken =
            finish.laws.iter().find(|law| !law.held).map(|law| format!("a law is broken: {}", law.name));
        let never = script.next().map(|step| {
            let why = broken.as_ref().map_or_else(String::new, |broken| format!(": {broken}"));
            format!("{step} never ended{why}")
        });
        let wrong = script.wrong.take().or(never).or(broken);
        let variant: Vec<_> = variant.iter().map(|(k, v)| format!("{k}={v}")).collect();
        Ok(Outcome { variant: variant.join(" "), wrong })
    };
    scenario.variants().into_iter().map(one).collect()
}

struct Script {
    variant: Variant,
    /// Group, number in the file, and step.
    steps: Vec<(usize, usize, Step)>,
    /// Which of them are done.
    done: RefCell<Vec<bool>>,
    /// The processes, by name.
    pids: RefCell<BTreeMap<String, Pid>>,
    wrong: RefCell<Option<String>>,
}

impl Script {
    fn new(scenario: &Scenario, variant: &Variant) -> Script {
        let (mut group, mut beside) = (0, true);
        let mut steps = Vec::new();
        for (number, step) in scenario.file.step.iter().enumerate().filter(|(_, s)| s.applies(variant)) {
            group += usize::from(!beside);
            beside = step.beside;
            steps.push((group, number + 1, step.clone()));
        }
        let done = RefCell::new(vec![false; steps.len()]);
        Script { variant: variant.clone(), steps, done, pids: RefCell::default(), wrong: RefCell::default() }
    }

    /// The steps that are not done, in order.
    fn left(&self) -> impl Iterator<Item = &(usize, usize, Step)> {
        let done = self.done.borrow().clone();
        self.steps.iter().zip(done).filter(|(_, done)| !done).map(|(step, _)| step)
    }

    /// The current group.
    fn group(&self) -> usize {
        self.left().next().map_or(usize::MAX, |(group, ..)| *group)
    }

    /// The first step that is not done, for messages.
    fn next(&self) -> Option<String> {
        self.left().next().map(|(_, number, step)| named(*number, step))
    }

    /// Where all who have a step in the current group wait for others: the first such step, and what it waits for.
    fn blocked(&self, user: &User<Model>) -> Option<String> {
        let group = self.group();
        let waits = |(_, number, step): &(usize, usize, Step)| {
            let pid = *self.pids.borrow().get(&step.process)?;
            Some((named(*number, step), user.kernel().waits_for(pid)?))
        };
        let all: Option<Vec<_>> = self.left().take_while(|step| step.0 == group).map(waits).collect();
        let (step, what) = all?.into_iter().next()?;
        Some(format!("{step} is blocked: it waits ({what}), and no other process has anything to do"))
    }

    fn word(&self, name: &str) -> Option<&str> {
        match self.variant.get(name) {
            Some(Value::Word(word)) => Some(word),
            _ => None,
        }
    }
}

fn named(number: usize, step: &Step) -> String {
    format!("step {number} ({:?} of {})", step.what, step.process)
}

/// A process: what it knows by name.
#[derive(Clone)]
struct Actor {
    script: Rc<Script>,
    me: String,
    maps: BTreeMap<String, Va>,
    sockets: BTreeMap<String, Fd>,
    /// The next of the steps that might be its own.
    next: usize,
}

impl Actor {
    fn new(script: &Rc<Script>, me: String) -> Actor {
        Actor { script: script.clone(), me, maps: BTreeMap::new(), sockets: BTreeMap::new(), next: 0 }
    }

    fn play(mut self, user: &User<Model>) {
        let script = self.script.clone();
        script.pids.borrow_mut().insert(self.me.clone(), user.pid());
        while let Some(i) = (self.next..script.steps.len()).find(|&i| script.steps[i].2.process == self.me) {
            let (group, number, step) = &script.steps[i];
            // Other processes' steps of the same group may be done first: wait for the group, not for the count.
            let mut looks = 0;
            while script.group() < *group {
                if script.wrong.borrow().is_some() || user.yield_now().is_err() {
                    return;
                }
                let blocked = script.blocked(user);
                looks = if blocked.is_some() { looks + 1 } else { 0 };
                if looks == LOOKS {
                    *script.wrong.borrow_mut() = blocked;
                }
            }
            self.next = i + 1;
            let done = self.step(user, step);
            if let Err(problem) = done {
                let message = format!("{}: {problem}", named(*number, step));
                script.wrong.borrow_mut().get_or_insert(message);
                return;
            }
            script.done.borrow_mut()[i] = true;
            if step.what == Do::Exit {
                break;
            }
        }
        while user.wait().is_ok() {}
    }

    fn step(&mut self, user: &User<Model>, step: &Step) -> Result<(), String> {
        let called = |e: Errno| e.to_string();
        match step.what {
            Do::Create => self.create(user, step),
            Do::Map => {
                let at = user.map(self.len(step), Prot::RW, Inherit::Copy).map_err(called)?;
                self.name(step, at);
                Ok(())
            }
            Do::MapFile => {
                let flags = OpenFlags::READ | OpenFlags::WRITE;
                let fd = user.open(step.file.as_deref().expect("validated"), flags).map_err(called)?;
                let mapped = user.map_file(fd, 0, MapAddr::Anywhere, self.len(step), Prot::RW, step.shared);
                user.close(fd).map_err(called)?;
                self.name(step, mapped.map_err(called)?);
                Ok(())
            }
            Do::Unmap => user.unmap(self.at(step)?, self.len(step)).map_err(called),
            Do::Protect => {
                let prot = match step.access.as_deref() {
                    Some("none") => Prot::empty(),
                    Some("read") => Prot::READ,
                    _ => Prot::RW,
                };
                user.protect(self.at(step)?, self.len(step), prot).map_err(called)
            }
            Do::Inherit => {
                let inherit = match step.inherit.as_deref() {
                    Some("share") => Inherit::Share,
                    Some("none") => Inherit::None,
                    _ => Inherit::Copy,
                };
                user.inherit(self.at(step)?, self.len(step), inherit).map_err(called)
            }
            Do::Fill => {
                user.store(self.at(step)?, &self.text(step));
                if user.is_killed() { Err("the process was killed".into()) } else { Ok(()) }
            }
            Do::Expect => self.expect(user, step),
            Do::SocketPair => {
                let (a, b) = user.socket_pair().map_err(called)?;
                let names = step.sockets.clone().expect("validated");
                self.sockets.extend(names.into_iter().zip([a, b]));
                Ok(())
            }
            Do::Send => self.send(user, step).map_err(called),
            Do::Receive => self.receive(user, step),
            Do::Fork => {
                let child = step.child.clone().expect("validated");
                let actor = Actor { me: child.clone(), ..self.clone() };
                user.fork(&child, Box::new(move |user| actor.play(user))).map(drop).map_err(called)
            }
            Do::Exit => Ok(()),
            Do::PageOut => {
                user.kernel().vm().reclaim(user.thread());
                Ok(())
            }
        }
    }

    fn create(&self, user: &User<Model>, step: &Step) -> Result<(), String> {
        let called = |e: Errno| e.to_string();
        let bytes = self.text(step);
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        let fd = user.open(step.file.as_deref().expect("validated"), flags).map_err(called)?;
        let room = 16 * PAGE_SIZE;
        let buffer = user.map(room, Prot::RW, Inherit::Copy).map_err(called)?;
        for piece in bytes.chunks(room) {
            user.store(buffer, piece);
            let mut done = 0;
            while done < piece.len() {
                done += user.write(fd, buffer + done, piece.len() - done).map_err(called)?;
            }
        }
        user.unmap(buffer, room).map_err(called)?;
        user.close(fd).map_err(called)
    }

    fn expect(&self, user: &User<Model>, step: &Step) -> Result<(), String> {
        let expected = self.text(step);
        let mut got = vec![0; expected.len()];
        user.load(self.at(step)?, &mut got);
        match got.iter().zip(&expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => {
                let shown =
                    |bytes: &[u8]| String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 12)]).into_owned();
                Err(format!("byte {at} begins `{}`, expected `{}`", shown(&got), shown(&expected)))
            }
        }
    }

    fn send(&self, user: &User<Model>, step: &Step) -> Result<(), Errno> {
        let loan = self.script.word("send") == Some("loan");
        let mode = if loan { SendMode::Loan } else { SendMode::Copy };
        let (at, len, fd) = (self.at(step).map_err(|_| Errno::Fault)?, self.len(step), self.socket(step)?);
        let mut done = 0;
        while done < len {
            done += user.send(fd, at + done, len - done, mode)?;
        }
        Ok(())
    }

    fn receive(&self, user: &User<Model>, step: &Step) -> Result<(), String> {
        let called = |e: Errno| e.to_string();
        let how = step.receive.as_deref().or(self.script.word("receive"));
        let (at, len) = (self.at(step)?, self.len(step));
        let fd = self.socket(step).map_err(called)?;
        let mut done = 0;
        while done < len {
            let piece = step.piece.map_or(len, |p| p as usize).min(len - done);
            let got = match how {
                Some("transfer") => {
                    user.receive_transfer(fd, Some(at + done), piece).map_err(called)?.len_bytes
                }
                _ => user.receive(fd, at + done, piece).map_err(called)?,
            };
            if got == 0 {
                return Err(format!("the stream ended after {done} of {len} bytes"));
            }
            done += got;
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------- names

    fn name(&mut self, step: &Step, at: Va) {
        self.maps.insert(step.at.clone().expect("validated"), at);
    }

    fn at(&self, step: &Step) -> Result<Va, String> {
        let name = step.at.as_ref().expect("validated");
        let start = self.maps.get(name).ok_or_else(|| format!("`{name}` is not mapped"))?;
        Ok(*start + step.offset as usize)
    }

    fn socket(&self, step: &Step) -> Result<Fd, Errno> {
        self.sockets.get(step.socket.as_ref().expect("validated")).copied().ok_or(Errno::BadFd)
    }

    fn len(&self, step: &Step) -> usize {
        match step.len.as_ref().expect("validated") {
            Amount::Fixed(len) => *len as usize,
            Amount::Named(name) => match self.script.variant[name] {
                Value::Number(len) => len as usize,
                _ => unreachable!("validated"),
            },
        }
    }

    fn text(&self, step: &Step) -> Vec<u8> {
        let text = step.text.as_ref().expect("validated").bytes();
        text.cycle().take(self.len(step)).collect()
    }
}
