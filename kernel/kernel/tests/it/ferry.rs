//! The random programs of the Linux library, on the modelled kernel: one generator and one copying model, two machines
//! that move memory.
//!
//! # How the library's verbs are made here
//! A message is an offer of memory (`export`) that the receiver takes (`import`). What is offered is what is mapped
//! when it is taken; the library freezes memory when it is sent. So a sender passes itself a copy-on-write copy first
//! (`PassMode::Copy`), keeps storing to its own, and lends the copy. A loan goes by `export_loan`, a gift by `Donate`,
//! shared memory by `Share`, zeros in the place of a gift by passing them to oneself with `DonateZero`. A copy is
//! copied by the sender's program and given away.
//!
//! # Whose turn it is
//! One turn at a time: the first process takes a turn's answer to the model, and gives the next turn to the process
//! that it is for. Which CPU they run on, and what happens to pages, tables and TLB entries meanwhile, is the kernel's
//! and the machine's affair; every law is checked in the end.

use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_programs::{
    Action, Answer, Content, Contents, Id, Level, Model as Copying, Op, Program, Shape, Turn, pattern,
};
use pageferry_vm::PassMode;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What is known outside of all processes.
struct World {
    shape: Shape,
    channels: Vec<Channel>,
    messages: Vec<Message>,
    /// A turn for each process, and what came of it.
    turns: Vec<Option<Action>>,
    answers: Vec<Option<Answer>>,
    over: bool,
    /// False is a planted defect: what is lent is not frozen.
    freezes: bool,
}

struct Channel {
    sender: bool,
    receiver: bool,
    queue: VecDeque<usize>,
    sent: u64,
    received: u64,
    /// Things of the receiver.
    held: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Value,
    Loan,
    Donate,
    Share,
}

struct Message {
    channel: usize,
    kind: Kind,
    offer: ExportId,
    len: usize,
    tag: u64,
    sequence: u64,
    slots: u32,
    sealed: bool,
    /// The sender has a token for it.
    owned: bool,
    home: bool,
}

/// Mapped memory: `len` bytes are in use.
#[derive(Clone, Copy, Debug)]
struct Memory {
    at: Va,
    len: usize,
    mapped: usize,
}

/// What a process has.
#[derive(Clone, Copy)]
struct Thing {
    channel: usize,
    memory: Memory,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Buffer {
        slots: u32,
    },
    /// Lent: `frozen` is what its receivers read, where that is not the memory itself.
    Lent {
        message: usize,
        frozen: Option<Memory>,
    },
    Sharing {
        message: usize,
    },
    Zeroed {
        message: usize,
    },
    Loan {
        message: usize,
        copied: bool,
    },
    Shared {
        message: usize,
    },
    Owned,
}

type Things = BTreeMap<Id, Thing>;
type Shared = Rc<RefCell<World>>;

/// A process of a program.
struct Actor<'a> {
    u: &'a U,
    world: Shared,
    things: Things,
    /// Memory of messages that nobody here holds any more, until they are home.
    parked: Vec<(usize, Memory)>,
}

fn pages(len: usize) -> usize {
    len.max(1).next_multiple_of(PAGE_SIZE)
}

impl World {
    fn taken(&self, channel: usize, buffers: u32) -> u32 {
        let of_channel = self.messages.iter().filter(|message| message.channel == channel);
        buffers
            + of_channel
                .filter(|message| message.owned || !message.home)
                .map(|message| message.slots)
                .sum::<u32>()
    }

    fn out(&self, channel: usize) -> u64 {
        self.messages.iter().filter(|message| message.channel == channel && !message.home).count() as u64
    }

    /// When the receiver is gone and holds nothing, all is home.
    fn settle(&mut self, channel: usize) {
        let gone = !self.channels[channel].receiver && self.channels[channel].held == 0;
        if gone {
            self.messages
                .iter_mut()
                .filter(|message| message.channel == channel)
                .for_each(|message| message.home = true);
        }
    }
}

impl Actor<'_> {
    fn map(&self, len: usize) -> Memory {
        Memory { at: map(self.u, pages(len)), len, mapped: pages(len) }
    }

    fn unmap(&self, memory: Memory) {
        self.u.unmap(memory.at, memory.mapped).expect("it was mapped");
    }

    fn load(&self, memory: &Memory) -> Vec<u8> {
        let mut bytes = vec![0; memory.len];
        self.u.load(memory.at, &mut bytes);
        bytes
    }

    fn store(&self, memory: &Memory, at: usize, len: usize, stamp: u64) {
        let mut bytes = vec![0; len];
        pattern(stamp, at, &mut bytes);
        self.u.store(memory.at + at, &bytes);
    }

    /// A copy-on-write copy of memory of this process, or the memory itself with zeros in its place.
    fn pass_to_oneself(&self, memory: &Memory, mode: PassMode) -> Memory {
        let id = self.u.export(memory.at, memory.mapped, mode, ExportTo::Anyone).expect("an offer");
        let got = self.u.import(id, None).expect("taken");
        if mode == PassMode::Copy {
            self.u.withdraw(id).expect("it stands");
        }
        Memory { at: got.at, ..*memory }
    }

    /// New memory with the same bytes, copied by this program.
    fn copied(&self, memory: &Memory) -> Memory {
        let copy = self.map(memory.len);
        self.u.store(copy.at, &self.load(memory));
        copy
    }

    /// Sends memory; which message it is, or that nobody is there.
    fn send(
        &mut self,
        channel: usize,
        kind: Kind,
        memory: &Memory,
        tag: u64,
        slots: u32,
    ) -> Result<usize, Answer> {
        let mut world = self.world.borrow_mut();
        if !world.channels[channel].receiver {
            return Err(Answer::Dead);
        }
        drop(world);
        let offer = match kind {
            Kind::Loan => self.u.export_loan(memory.at, memory.mapped, ExportTo::Anyone),
            Kind::Value | Kind::Donate => {
                self.u.export(memory.at, memory.mapped, PassMode::Donate, ExportTo::Anyone)
            }
            Kind::Share => self.u.export(memory.at, memory.mapped, PassMode::Share, ExportTo::Anyone),
        }
        .expect("an offer");
        world = self.world.borrow_mut();
        let sequence = world.channels[channel].sent;
        world.channels[channel].sent += 1;
        let number = world.messages.len();
        let sealed = kind == Kind::Loan && world.shape.level == Level::Sealed;
        let (len, owned) = (memory.len, false);
        world.messages.push(Message {
            channel,
            kind,
            offer,
            len,
            tag,
            sequence,
            slots,
            sealed,
            owned,
            home: false,
        });
        world.channels[channel].queue.push_back(number);
        Ok(number)
    }

    fn own(&self, message: usize) {
        self.world.borrow_mut().messages[message].owned = true;
    }

    fn disown(&self, message: usize) {
        self.world.borrow_mut().messages[message].owned = false;
    }

    fn is_home(&self, message: usize) -> bool {
        self.world.borrow().messages[message].home
    }

    fn come_home(&self, message: usize) {
        let mut world = self.world.borrow_mut();
        world.messages[message].home = true;
    }

    /// What was sent from here is unmapped when it is home, or was given away.
    fn clean(&mut self) {
        let parked = std::mem::take(&mut self.parked);
        for (message, memory) in parked {
            if self.is_home(message) {
                let (offer, kind) = {
                    let world = self.world.borrow();
                    (world.messages[message].offer, world.messages[message].kind)
                };
                // A gift that was taken is mapped here no more; one that nobody took still is.
                let taken = self.u.withdraw(offer) == Err(Errno::Removed);
                if !(taken && matches!(kind, Kind::Value | Kind::Donate)) {
                    self.unmap(memory);
                }
            } else {
                self.parked.push((message, memory));
            }
        }
    }

    fn act(&mut self, action: &Action) -> Answer {
        self.clean();
        match *action {
            Action::Buffer { channel, id, len, stamp } => self.buffer(channel, id, len, stamp),
            Action::Store { id, at, len, stamp }
            | Action::Stray { id, at, len, stamp, lands: true }
            | Action::Write { id, at, len, stamp } => {
                let thing = self.things[&id];
                let target = match thing.state {
                    State::Lent { frozen: Some(frozen), .. } if !self.world.borrow().freezes => frozen,
                    _ => thing.memory,
                };
                self.store(&target, at, len, stamp);
                if let State::Loan { message, copied: false } = thing.state
                    && self.world.borrow().messages[message].sealed
                {
                    // The library copies what is sealed, and gives it back.
                    self.things.insert(id, Thing { state: State::Loan { message, copied: true }, ..thing });
                    self.come_home(message);
                }
                Answer::Done
            }
            // There is nothing that it would reach.
            Action::Stray { lands: false, .. } => Answer::Done,
            Action::WriteFrom { id, len, stamp, .. } => {
                let mut thing = self.things[&id];
                if len > thing.memory.mapped {
                    self.unmap(thing.memory);
                    thing.memory = self.map(len);
                }
                thing.memory.len = len;
                self.store(&thing.memory, 0, len, stamp);
                self.things.insert(id, thing);
                Answer::Done
            }
            Action::Cut { id, len } => {
                self.things.get_mut(&id).expect("a buffer").memory.len = len;
                Answer::Done
            }
            Action::Loan { channel, id, tag } => {
                let kind =
                    if self.world.borrow().shape.level == Level::Copy { Kind::Value } else { Kind::Loan };
                self.send_buffer(channel, id, kind, tag, false)
            }
            Action::CopyBuffer { channel, id } => self.send_buffer(channel, id, Kind::Value, 0, false),
            Action::Donate { channel, id, tag } => self.send_buffer(channel, id, Kind::Donate, tag, false),
            Action::DonateZero { channel, id } => self.send_buffer(channel, id, Kind::Donate, 0, true),
            Action::Share { channel, id } => self.send_buffer(channel, id, Kind::Share, 0, false),
            Action::Copy { channel, len, stamp, tag } => {
                let memory = self.map(len);
                self.store(&memory, 0, len, stamp);
                self.send_value(channel, memory, tag)
            }
            Action::Resend { channel, id, new } => self.resend(channel, id, new),
            Action::Forward { channel, id } => self.forward(channel, id),
            Action::Wait { id, ref contents } => self.wait(id, contents),
            Action::IsOut { id } => match self.things[&id].state {
                State::Lent { message, .. } | State::Sharing { message } if !self.is_home(message) => {
                    Answer::Done
                }
                _ => Answer::Wrong("it is home".to_owned()),
            },
            Action::Check { id, ref contents } => self.look(&self.things[&id].memory, contents),
            Action::Transfer { id, ref contents } => {
                let thing = self.things.get_mut(&id).expect("a loan");
                let (State::Loan { message, .. }, memory, channel) =
                    (thing.state, thing.memory, thing.channel)
                else {
                    return Answer::Refused;
                };
                thing.state = State::Owned;
                self.come_home(message);
                self.let_go(channel);
                self.look(&memory, contents)
            }
            Action::Drop { id, ref contents } => {
                let thing = self.things.remove(&id).expect("a thing");
                let seen = self.look(&thing.memory, contents);
                self.drop_thing(thing);
                seen
            }
            Action::Receive { channel, id, shared, ref expect } => {
                self.receive(channel, id, shared, expect.as_ref())
            }
            Action::CountSender { channel } => {
                let buffers = self.things.values().filter(|thing| thing.channel == channel);
                let slots = buffers
                    .map(|thing| if let State::Buffer { slots } = thing.state { slots } else { 0 })
                    .sum();
                let world = self.world.borrow();
                Answer::Sent(world.channels[channel].sent, world.out(channel), world.taken(channel, slots))
            }
            Action::CountReceiver { channel } => self.count_receiver(channel),
            Action::EndSender { channel } => {
                self.world.borrow_mut().channels[channel].sender = false;
                Answer::Done
            }
            Action::EndReceiver { channel } => {
                let mut world = self.world.borrow_mut();
                world.channels[channel].receiver = false;
                world.channels[channel].queue.clear();
                world.settle(channel);
                Answer::Done
            }
        }
    }

    fn slots_for(&self, len: usize) -> u32 {
        let world = self.world.borrow();
        if world.shape.level == Level::Sealed { 0 } else { len.div_ceil(world.shape.slot_bytes) as u32 }
    }

    fn buffer(&mut self, channel: usize, id: Id, len: usize, stamp: u64) -> Answer {
        let (all, slots) = (self.world.borrow().shape.slots, self.slots_for(len));
        if slots > all {
            return Answer::Refused;
        }
        let buffers = self.things.values().filter(|thing| thing.channel == channel);
        let buffers =
            buffers.map(|thing| if let State::Buffer { slots } = thing.state { slots } else { 0 }).sum();
        let taken = self.world.borrow().taken(channel, buffers);
        if taken + slots > all {
            return Answer::WouldBlock;
        }
        let memory = self.map(len);
        self.store(&memory, 0, len, stamp);
        self.things.insert(id, Thing { channel, memory, state: State::Buffer { slots } });
        Answer::Done
    }

    /// Without the pages behind what is in use.
    fn trimmed(&self, memory: Memory) -> Memory {
        let mapped = pages(memory.len);
        if mapped < memory.mapped {
            self.u.unmap(memory.at + mapped, memory.mapped - mapped).expect("it was mapped");
        }
        Memory { mapped, ..memory }
    }

    fn send_buffer(&mut self, channel: usize, id: Id, kind: Kind, tag: u64, zero: bool) -> Answer {
        let thing = self.things.remove(&id).expect("a buffer");
        let (sealed, donations) = {
            let world = self.world.borrow();
            (world.shape.level == Level::Sealed, world.shape.donations)
        };
        let refused = match kind {
            Kind::Donate => sealed || !donations,
            Kind::Share | Kind::Value => sealed,
            Kind::Loan => false,
        };
        if refused {
            self.unmap(thing.memory);
            return Answer::Refused;
        }
        let State::Buffer { slots } = thing.state else { return Answer::Refused };
        let memory = self.trimmed(thing.memory);
        let sent = match kind {
            Kind::Value => self.copied(&memory),
            Kind::Loan => self.pass_to_oneself(&memory, PassMode::Copy),
            Kind::Donate if zero => self.pass_to_oneself(&memory, PassMode::DonateZero),
            Kind::Donate | Kind::Share => memory,
        };
        let message = match self.send(channel, kind, &sent, tag, slots) {
            Ok(message) => message,
            Err(answer) => {
                self.unmap(sent);
                if sent.at != memory.at {
                    self.unmap(memory);
                }
                return answer;
            }
        };
        let state = match kind {
            Kind::Value => {
                self.parked.push((message, sent));
                Some(State::Lent { message, frozen: None })
            }
            Kind::Loan => Some(State::Lent { message, frozen: Some(sent) }),
            Kind::Donate => {
                self.parked.push((message, sent));
                zero.then_some(State::Zeroed { message })
            }
            Kind::Share => Some(State::Sharing { message }),
        };
        if let Some(state) = state {
            self.own(message);
            self.things.insert(id, Thing { channel, memory, state });
        }
        Answer::Done
    }

    /// Sends a copy: small ones take no slot.
    fn send_value(&mut self, channel: usize, memory: Memory, tag: u64) -> Answer {
        let (inline, whole, all) = {
            let world = self.world.borrow();
            let shape = &world.shape;
            (
                memory.len <= shape.inline_bytes as usize,
                memory.len.div_ceil(shape.slot_bytes) as u32,
                shape.slots,
            )
        };
        if !inline && whole > all {
            self.unmap(memory);
            return Answer::Refused;
        }
        match self.send(channel, Kind::Value, &memory, tag, if inline { 0 } else { whole }) {
            Ok(message) => {
                self.parked.push((message, memory));
                Answer::Done
            }
            Err(answer) => {
                self.unmap(memory);
                answer
            }
        }
    }

    fn resend(&mut self, channel: usize, id: Id, new: Id) -> Answer {
        let thing = self.things[&id];
        let State::Lent { frozen: Some(frozen), .. } = thing.state else { return Answer::Refused };
        if self.world.borrow().shape.level != Level::Sealed {
            return Answer::Refused;
        }
        // Each token can go before the other, so each has a copy of its own.
        let (memory, sent) = (
            self.pass_to_oneself(&thing.memory, PassMode::Copy),
            self.pass_to_oneself(&frozen, PassMode::Copy),
        );
        match self.send(channel, Kind::Loan, &sent, 0, 0) {
            Ok(message) => {
                self.own(message);
                let state = State::Lent { message, frozen: Some(sent) };
                self.things.insert(new, Thing { channel, memory, state });
                Answer::Done
            }
            Err(answer) => {
                self.unmap(memory);
                self.unmap(sent);
                answer
            }
        }
    }

    fn forward(&mut self, channel: usize, id: Id) -> Answer {
        let thing = self.things[&id];
        let State::Loan { message, copied } = thing.state else { return Answer::Refused };
        let (sealed, tag) = {
            let world = self.world.borrow();
            (world.messages[message].sealed, world.messages[message].tag)
        };
        if !sealed || copied {
            let memory = self.copied(&thing.memory);
            return self.send_value(channel, memory, tag);
        }
        let sent = self.pass_to_oneself(&thing.memory, PassMode::Copy);
        match self.send(channel, Kind::Loan, &sent, tag, 0) {
            Ok(message) => {
                self.parked.push((message, sent));
                Answer::Done
            }
            Err(answer) => {
                self.unmap(sent);
                answer
            }
        }
    }

    fn wait(&mut self, id: Id, contents: &Contents) -> Answer {
        let mut thing = self.things[&id];
        let (message, memory) = match thing.state {
            // What was stored since is thrown away: the buffer is what was lent.
            State::Lent { message, frozen: Some(frozen) } => {
                self.unmap(thing.memory);
                (message, frozen)
            }
            State::Lent { message, frozen: None } | State::Sharing { message } => (message, thing.memory),
            _ => return Answer::Refused,
        };
        if !self.is_home(message) {
            return Answer::Wrong("it is not home".to_owned());
        }
        self.disown(message);
        let (slots, kind, offer) = {
            let world = self.world.borrow();
            let message = &world.messages[message];
            (message.slots, message.kind, message.offer)
        };
        if kind != Kind::Value {
            let _ = self.u.withdraw(offer);
        }
        thing.memory = memory;
        thing.state = State::Buffer { slots };
        self.things.insert(id, thing);
        self.look(&memory, contents)
    }

    fn look(&self, memory: &Memory, contents: &Contents) -> Answer {
        match contents.differs(&self.load(memory)) {
            None => Answer::Done,
            Some(how) => Answer::Wrong(how),
        }
    }

    /// A thing of the receiver is gone.
    fn let_go(&self, channel: usize) {
        let mut world = self.world.borrow_mut();
        world.channels[channel].held -= 1;
        world.settle(channel);
    }

    fn drop_thing(&mut self, thing: Thing) {
        match thing.state {
            State::Buffer { .. } | State::Owned => self.unmap(thing.memory),
            State::Lent { message, frozen } => {
                self.disown(message);
                self.unmap(thing.memory);
                self.parked.extend(frozen.map(|frozen| (message, frozen)));
            }
            State::Sharing { message } => {
                self.disown(message);
                self.parked.push((message, thing.memory));
            }
            State::Zeroed { message } => {
                self.disown(message);
                self.unmap(thing.memory);
            }
            State::Loan { message, .. } | State::Shared { message } => {
                self.unmap(thing.memory);
                self.come_home(message);
                self.let_go(thing.channel);
            }
        }
    }

    fn receive(&mut self, channel: usize, id: Id, shared: bool, expect: Option<&Content>) -> Answer {
        let next = self.world.borrow_mut().channels[channel].queue.pop_front();
        let Some(number) = next else {
            return if self.world.borrow().channels[channel].sender {
                Answer::WouldBlock
            } else {
                Answer::Dead
            };
        };
        let (kind, offer, len, tag, sequence) = {
            let world = self.world.borrow();
            let message = &world.messages[number];
            (message.kind, message.offer, message.len, message.tag, message.sequence)
        };
        let place = (kind == Kind::Loan).then(|| map(self.u, pages(len)));
        let got = self.u.import(offer, place).expect("it is offered");
        let mut memory = Memory { at: got.at, len, mapped: got.len_bytes };
        let is_shared = shared && kind == Kind::Share;
        let mut copied = matches!(kind, Kind::Value | Kind::Share);
        if kind == Kind::Share && !shared {
            let value = self.copied(&memory);
            self.unmap(memory);
            memory = value;
            copied = true;
        }
        {
            let mut world = self.world.borrow_mut();
            world.channels[channel].received += 1;
            world.channels[channel].held += 1;
            if copied && !is_shared {
                world.messages[number].home = true;
            }
        }
        let state = if is_shared {
            State::Shared { message: number }
        } else {
            State::Loan { message: number, copied }
        };
        self.things.insert(id, Thing { channel, memory, state });
        match expect {
            None => Answer::Wrong("a message came that nobody had sent".to_owned()),
            Some(content)
                if (content.tag, content.sequence, content.shared) != (tag, sequence, is_shared) =>
            {
                Answer::Wrong(format!("it is message {sequence} with the tag {tag}"))
            }
            Some(content) => self.look(&memory, &content.contents),
        }
    }

    fn count_receiver(&self, channel: usize) -> Answer {
        let world = self.world.borrow();
        let (mut slots, mut bytes) = (0, 0);
        for thing in self.things.values().filter(|thing| thing.channel == channel) {
            match thing.state {
                State::Loan { message, copied } => {
                    let message = &world.messages[message];
                    slots += if message.home { 0 } else { message.slots };
                    bytes += if copied || message.sealed { thing.memory.len as u64 } else { 0 };
                }
                State::Shared { message } => slots += world.messages[message].slots,
                _ => (),
            }
        }
        Answer::Received(world.channels[channel].received, slots, bytes, 0)
    }
}

/// A process: takes its turns until all is over.
fn actor(u: &U, world: Shared, process: usize) {
    let mut actor = Actor { u, world: world.clone(), things: Things::new(), parked: Vec::new() };
    loop {
        let turn = world.borrow_mut().turns[process].take();
        match turn {
            Some(action) => {
                let answer = actor.act(&action);
                world.borrow_mut().answers[process] = Some(answer);
            }
            None if world.borrow().over => return,
            None => {
                u.yield_now().expect("alive");
                u.compute(Instructions(100));
            }
        }
    }
}

/// Has a process take its turn.
fn take(u: &U, world: &Shared, turn: &Turn) -> Answer {
    world.borrow_mut().turns[turn.process] = Some(turn.action.clone());
    loop {
        if let Some(answer) = world.borrow_mut().answers[turn.process].take() {
            return answer;
        }
        u.yield_now().expect("alive");
        u.compute(Instructions(100));
    }
}

/// Runs a program; what went wrong, if anything did.
fn play(u: &U, program: &Program, freezes: bool) -> Result<(), String> {
    let processes = program.shape.topology.processes();
    let channel =
        |_| Channel { sender: true, receiver: true, queue: VecDeque::new(), sent: 0, received: 0, held: 0 };
    let world: Shared = Rc::new(RefCell::new(World {
        shape: program.shape,
        channels: program.shape.topology.channels().into_iter().map(channel).collect(),
        messages: Vec::new(),
        turns: vec![None; processes],
        answers: vec![None; processes],
        over: false,
        freezes,
    }));
    for process in 0..processes {
        let world = world.clone();
        fork(u, "actor", move |u| actor(u, world, process));
    }
    let mut copying = Copying::new(program);
    let mut steps = program.steps.iter().map(|step| step.op).collect::<VecDeque<Op>>();
    let mut played = || -> Result<(), String> {
        loop {
            let turn = match steps.pop_front() {
                Some(op) => match copying.step(&op) {
                    Some(turn) => turn,
                    None => continue,
                },
                None => match copying.end() {
                    Some(turn) => turn,
                    None => return Ok(()),
                },
            };
            let mut turns = VecDeque::from([turn]);
            while let Some(turn) = turns.pop_front() {
                let answer = take(u, &world, &turn);
                turns.extend(copying.answer(&turn, answer)?);
            }
        }
    };
    let result = played();
    world.borrow_mut().over = true;
    for _ in 0..processes {
        u.wait().expect("an actor");
    }
    result
}

fn run_seed(name: &str, seed: u64, steps: usize) {
    let program = Program::random(seed, steps);
    let told = program.clone();
    run(name, Schedule::Timed, sf_buf(16), move |u| {
        if let Err(how) = play(u, &program, true) {
            panic!("seed {seed}: {how}\n{:?}", told.shape);
        }
    });
}

/// More: `PAGEFERRY_FERRY_SEEDS=1000`.
fn seeds() -> u64 {
    std::env::var("PAGEFERRY_FERRY_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn programs_of_the_linux_library_give_the_same_bytes_here() {
    for seed in 0..seeds() {
        run_seed("xeon-mp", seed, 60);
    }
}

#[test]
fn and_on_one_cpu() {
    for seed in 1000..1000 + seeds() / 2 {
        run_seed("xeon-up", seed, 60);
    }
}

#[test]
fn memory_that_is_lent_and_not_frozen_is_found() {
    let found = Rc::new(RefCell::new(0));
    for seed in 0..100 {
        if *found.borrow() > 0 {
            return;
        }
        let (program, found) = (Program::random(seed, 60), found.clone());
        run("xeon-up", Schedule::Timed, sf_buf(16), move |u| {
            *found.borrow_mut() += u32::from(play(u, &program, false).is_err());
        });
    }
    panic!("no program has found it");
}
