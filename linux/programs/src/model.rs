//! The copying model: what each step does, and what everybody must see afterwards.
//!
//! # What it holds
//! Things (buffers, lent memory, messages that were received) with their bytes as recipes, the messages of
//! each channel, and which of these are home. Of memory it knows only how many slots are taken: a run of
//! several slots may or may not be found between others, and the answer is taken as it comes.
//!
//! # What can fail
//! [`Model::answer`] says in words what an answer has that cannot be.

use crate::action::{Action, Answer, Content, Id, Turn};
use crate::contents::{Contents, Layer};
use crate::program::{Ends, Level, Op, Program, Shape};
use std::collections::{BTreeMap, VecDeque};

/// The channels of a program, and who has which of their bytes.
#[derive(Debug)]
pub struct Model {
    shape: Shape,
    channels: Vec<Channel>,
    things: BTreeMap<Id, Thing>,
    messages: Vec<Message>,
    next_id: Id,
    pending: Option<Pending>,
    pub(crate) ending: Ending,
    turns: u64,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) ends: Ends,
    pub(crate) sender: bool,
    pub(crate) receiver: bool,
    pub(crate) queue: VecDeque<usize>,
    sent: u64,
    received: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Inline,
    Copy,
    Loan,
    Donate,
    Share,
}

#[derive(Debug)]
struct Message {
    channel: usize,
    kind: Kind,
    sealed: bool,
    contents: Contents,
    tag: u64,
    sequence: u64,
    slots: u32,
    /// The sender still has a token for it.
    owned: bool,
    home: bool,
}

#[derive(Clone, Debug)]
struct Thing {
    channel: usize,
    state: State,
    contents: Contents,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Buffer {
        slots: u32,
    },
    Lent(usize),
    Sharing(usize),
    Zeroed(usize),
    /// Received; `copied`: it is memory of the receiver.
    Loan {
        message: usize,
        copied: bool,
    },
    Shared(usize),
    Owned,
}

impl State {
    fn is_senders(self) -> bool {
        matches!(self, State::Buffer { .. } | State::Lent(_) | State::Sharing(_) | State::Zeroed(_))
    }
}

/// How far the end of a program has come.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    pub(crate) phase: usize,
    pub(crate) counted: usize,
    pub(crate) picked: usize,
}

/// What an answer decides.
#[derive(Debug)]
enum Pending {
    Buffer {
        channel: usize,
        id: Id,
        contents: Contents,
        slots: u32,
    },
    /// A message goes out, and the thing has another state; where the peer is gone it is no more.
    Send {
        message: Message,
        becomes: Option<(Id, Thing)>,
        consumed: Option<Id>,
    },
    /// It must be refused, and what it was given is no more.
    Refused {
        consumed: Option<Id>,
    },
    Receive {
        channel: usize,
        id: Id,
        thing: Option<(Thing, usize)>,
    },
    Count {
        channel: usize,
    },
    /// Nothing is decided: it must be done.
    Done,
}

impl Model {
    /// Before the first step of a program.
    pub fn new(program: &Program) -> Model {
        let channel = |ends| Channel {
            ends,
            sender: true,
            receiver: true,
            queue: VecDeque::new(),
            sent: 0,
            received: 0,
        };
        Model {
            shape: program.shape,
            channels: program.shape.topology.channels().into_iter().map(channel).collect(),
            things: BTreeMap::new(),
            messages: Vec::new(),
            next_id: 0,
            pending: None,
            ending: Ending::default(),
            turns: 0,
        }
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn channels(&self) -> &[Channel] {
        &self.channels
    }

    fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id
    }

    /// The things that fit, by number.
    fn ids(&self, fits: impl Fn(&Thing) -> bool) -> Vec<Id> {
        self.things.iter().filter(|(_, thing)| fits(thing)).map(|(&id, _)| id).collect()
    }

    fn pick(&self, which: usize, fits: impl Fn(&Thing) -> bool) -> Option<(Id, Thing)> {
        let ids = self.ids(fits);
        let id = *ids.get(which.checked_rem(ids.len())?)?;
        Some((id, self.things[&id].clone()))
    }

    fn pick_channel(&self, which: usize, fits: impl Fn(&Channel) -> bool) -> Option<usize> {
        let fitting: Vec<_> = (0..self.channels.len()).filter(|&index| fits(&self.channels[index])).collect();
        Some(fitting[which.checked_rem(fitting.len())?])
    }

    /// A thing with a sender that can still send.
    fn sends(&self, thing: &Thing) -> bool {
        self.channels[thing.channel].sender
    }

    fn out(&self, channel: usize) -> u64 {
        self.messages.iter().filter(|message| message.channel == channel && !message.home).count() as u64
    }

    fn has_cell(&self, channel: usize) -> bool {
        self.out(channel) < u64::from(self.shape.capacity)
    }

    fn taken(&self, channel: usize) -> u32 {
        let in_messages = self.messages.iter().filter(|message| message.channel == channel);
        let in_messages = in_messages.filter(|message| message.owned || !message.home);
        let in_buffers = self.things.values().filter(|thing| thing.channel == channel);
        let in_buffers =
            in_buffers.map(|thing| if let State::Buffer { slots } = thing.state { slots } else { 0 });
        in_messages.map(|message| message.slots).sum::<u32>() + in_buffers.sum::<u32>()
    }

    fn slots_for(&self, len: usize) -> u32 {
        len.div_ceil(self.shape.slot_bytes) as u32
    }

    /// A run of so many slots is free, wherever the taken ones lie.
    fn surely_free(&self, channel: usize, slots: u32) -> bool {
        let taken = self.taken(channel);
        slots <= self.shape.slots && (taken == 0 || slots == 1 && taken < self.shape.slots)
    }

    /// Nobody holds anything of the receiver's any more.
    fn gone(&self, channel: usize) -> bool {
        let holds = |thing: &Thing| {
            thing.channel == channel && matches!(thing.state, State::Loan { .. } | State::Shared(_))
        };
        !self.channels[channel].receiver && !self.things.values().any(holds)
    }

    /// When the receiver is gone, all is home.
    fn settle(&mut self) {
        for channel in 0..self.channels.len() {
            if self.gone(channel) {
                let its = self.messages.iter_mut().filter(|message| message.channel == channel);
                its.for_each(|message| message.home = true);
            }
        }
    }

    fn turn(&mut self, thing: &Thing, action: Action, local: bool) -> Option<Turn> {
        let ends = self.channels[thing.channel].ends;
        let process = if thing.state.is_senders() { ends.from } else { ends.to };
        Some(Turn { process, action, local })
    }

    /// What a process does in this step; `None`: the step finds nothing to work on. The answer comes next,
    /// to [`Model::answer`].
    pub fn step(&mut self, op: &Op) -> Option<Turn> {
        self.turns += 1;
        self.pending = Some(Pending::Done);
        match *op {
            Op::Buffer { channel, len, stamp } => {
                let channel = self.pick_channel(channel, |channel| channel.sender)?;
                let id = self.new_id();
                let sealed = self.shape.level == Level::Sealed;
                let slots = if sealed { 0 } else { self.slots_for(len) };
                // Sealed memory takes no slots, so it may be longer than the pool.
                self.pending = Some(if slots > self.shape.slots {
                    Pending::Refused { consumed: None }
                } else {
                    Pending::Buffer { channel, id, contents: Contents::new(len, stamp), slots }
                });
                let process = self.channels[channel].ends.from;
                Some(Turn { process, action: Action::Buffer { channel, id, len, stamp }, local: false })
            }
            Op::Store { which, at, len, stamp } => {
                let writable =
                    |thing: &Thing| thing.state.is_senders() && !matches!(thing.state, State::Lent(_));
                let (id, thing) = self.pick(which, writable)?;
                let layer = within(&thing.contents, at, len, stamp);
                self.store(id, layer);
                let local = !matches!(thing.state, State::Sharing(_));
                self.turn(&thing, Action::Store { id, at: layer.at, len: layer.len, stamp }, local)
            }
            Op::WriteFrom { which, len, stamp, past } => {
                let (id, thing) = self.pick(which, |thing| matches!(thing.state, State::Buffer { .. }))?;
                let State::Buffer { slots } = thing.state else { return None };
                let max = (slots as usize * self.shape.slot_bytes).max(thing.contents.len());
                let len = (len - 1) % max + 1;
                self.things.get_mut(&id)?.contents = Contents::new(len, stamp);
                self.turn(&thing, Action::WriteFrom { id, len, stamp, past }, true)
            }
            Op::Cut { which, len } => {
                let (id, thing) = self.pick(which, |thing| matches!(thing.state, State::Buffer { .. }))?;
                let len = (len - 1) % thing.contents.len() + 1;
                self.things.get_mut(&id)?.contents.cut(len);
                self.turn(&thing, Action::Cut { id, len }, true)
            }
            Op::Loan { which } => self.send_buffer(which, Kind::Loan, |channel, id| Action::Loan {
                channel,
                id,
                tag: id.into(),
            }),
            Op::CopyBuffer { which } => {
                self.send_buffer(which, Kind::Copy, |channel, id| Action::CopyBuffer { channel, id })
            }
            Op::Donate { which } => self.send_buffer(which, Kind::Donate, |channel, id| Action::Donate {
                channel,
                id,
                tag: id.into(),
            }),
            Op::DonateZero { which } => {
                self.send_buffer(which, Kind::Donate, |channel, id| Action::DonateZero { channel, id })
            }
            Op::Share { which } => {
                self.send_buffer(which, Kind::Share, |channel, id| Action::Share { channel, id })
            }
            Op::Copy { channel, len, stamp } => {
                let channel = self.pick_channel(channel, |channel| channel.sender)?;
                let (contents, tag) = (Contents::new(len, stamp), stamp);
                self.copy(channel, contents, tag, Action::Copy { channel, len, stamp, tag })
            }
            Op::Resend { which } => {
                let lent = |thing: &Thing| matches!(thing.state, State::Lent(_)) && self.sends(thing);
                let (id, thing) = self.pick(which, lent)?;
                let (channel, new) = (thing.channel, self.new_id());
                let State::Lent(old) = thing.state else { return None };
                if self.messages[old].sealed {
                    let mut message = self.message(channel, Kind::Loan, thing.contents.clone(), 0)?;
                    message.sealed = true;
                    let lent = Thing { state: State::Lent(self.messages.len()), ..thing.clone() };
                    self.pending =
                        Some(Pending::Send { message, becomes: Some((new, lent)), consumed: None });
                } else {
                    self.pending = Some(Pending::Refused { consumed: None });
                }
                self.turn(&thing, Action::Resend { channel, id, new }, false)
            }
            Op::Forward { which, channel } => {
                let (id, thing) = self.pick(which, |thing| matches!(thing.state, State::Loan { .. }))?;
                let State::Loan { message, copied } = thing.state else { return None };
                let here = self.channels[thing.channel].ends.to;
                let channel =
                    self.pick_channel(channel, |channel| channel.sender && channel.ends.from == here)?;
                let (tag, action) = (self.messages[message].tag, Action::Forward { channel, id });
                if self.messages[message].sealed && !copied {
                    let mut message = self.message(channel, Kind::Loan, thing.contents, tag)?;
                    (message.sealed, message.owned) = (true, false);
                    self.pending = Some(Pending::Send { message, becomes: None, consumed: None });
                    return Some(Turn { process: here, action, local: false });
                }
                self.copy(channel, thing.contents, tag, action)
            }
            Op::Stray { which, at, len, stamp } => {
                let frozen = |thing: &Thing| match thing.state {
                    State::Lent(message) => {
                        let message = &self.messages[message];
                        self.shape.level == Level::Mmu && message.kind == Kind::Loan && !message.home
                    }
                    _ => false,
                };
                let (id, thing) = self.pick(which, frozen)?;
                let layer = within(&thing.contents, at, len, stamp);
                let lands = self.shape.copy_on_write;
                if lands {
                    self.things.get_mut(&id)?.contents.store(layer);
                }
                self.turn(&thing, Action::Stray { id, at: layer.at, len: layer.len, stamp, lands }, true)
            }
            Op::Wait { which } => {
                let waits = |thing: &Thing| matches!(thing.state, State::Lent(_) | State::Sharing(_));
                let (id, thing) = self.pick(which, waits)?;
                let (State::Lent(message) | State::Sharing(message)) = thing.state else { return None };
                if !self.messages[message].home {
                    return self.turn(&thing, Action::IsOut { id }, false);
                }
                self.messages[message].owned = false;
                let Message { slots, ref contents, .. } = self.messages[message];
                // What was sealed stays sealed: the buffer that comes is a copy.
                let contents = contents.clone();
                let buffer =
                    Thing { state: State::Buffer { slots }, contents: contents.clone(), ..thing.clone() };
                self.things.insert(id, buffer);
                self.turn(&thing, Action::Wait { id, contents }, false)
            }
            Op::Drop { which } => {
                let (id, thing) = self.pick(which, |thing| thing.state.is_senders())?;
                self.drop_thing(id, thing)
            }
            Op::Receive { channel, shared } => {
                let channel = self.pick_channel(channel, |channel| channel.receiver)?;
                self.receive(channel, shared)
            }
            Op::Write { which, at, len, stamp } => {
                let received = |thing: &Thing| matches!(thing.state, State::Loan { .. } | State::Owned);
                let (id, thing) = self.pick(which, received)?;
                let layer = within(&thing.contents, at, len, stamp);
                self.store(id, layer);
                let mut local = true;
                if let State::Loan { message, copied: false } = thing.state
                    && self.messages[message].sealed
                {
                    // Sealed memory is copied, and given back at once.
                    self.messages[message].home = true;
                    self.things.get_mut(&id)?.state = State::Loan { message, copied: true };
                    local = false;
                }
                self.turn(&thing, Action::Write { id, at: layer.at, len: layer.len, stamp }, local)
            }
            Op::Transfer { which } => {
                let (id, thing) = self.pick(which, |thing| matches!(thing.state, State::Loan { .. }))?;
                let State::Loan { message, .. } = thing.state else { return None };
                self.messages[message].home = true;
                self.things.get_mut(&id)?.state = State::Owned;
                self.settle();
                let contents = thing.contents.clone();
                self.turn(&thing, Action::Transfer { id, contents }, false)
            }
            Op::Return { which } => {
                let (id, thing) = self.pick(which, |thing| !thing.state.is_senders())?;
                self.drop_thing(id, thing)
            }
            Op::Check { which } => {
                let (id, thing) = self.pick(which, |_| true)?;
                self.check(id, &thing)
            }
            Op::Count { channel } => {
                let whole = |channel: &Channel| channel.sender && channel.receiver;
                let channel = self.pick_channel(channel, whole)?;
                self.pending = Some(Pending::Count { channel });
                let process = self.channels[channel].ends.from;
                Some(Turn { process, action: Action::CountSender { channel }, local: false })
            }
            Op::EndSender { channel } => {
                let channel = self.pick_channel(channel, |channel| channel.sender)?;
                self.channels[channel].sender = false;
                let process = self.channels[channel].ends.from;
                Some(Turn { process, action: Action::EndSender { channel }, local: false })
            }
            Op::EndReceiver { channel } => {
                let channel = self.pick_channel(channel, |channel| channel.receiver)?;
                self.channels[channel].receiver = false;
                self.channels[channel].queue.clear();
                self.settle();
                let process = self.channels[channel].ends.to;
                Some(Turn { process, action: Action::EndReceiver { channel }, local: false })
            }
        }
    }

    /// The contents of a thing as its holder sees them.
    fn seen(&self, thing: &Thing) -> Contents {
        match thing.state {
            State::Shared(message) => self.messages[message].contents.clone(),
            _ => thing.contents.clone(),
        }
    }

    fn check(&mut self, id: Id, thing: &Thing) -> Option<Turn> {
        let local = !matches!(thing.state, State::Sharing(_) | State::Shared(_));
        let contents = self.seen(thing);
        self.turn(thing, Action::Check { id, contents }, local)
    }

    /// Stores to a thing; what is shared is the message's at the same time.
    fn store(&mut self, id: Id, layer: Layer) {
        let Some(thing) = self.things.get_mut(&id) else { return };
        thing.contents.store(layer);
        if let State::Sharing(message) = thing.state {
            self.messages[message].contents.store(layer);
        }
    }

    /// A message that can go out at once.
    fn message(&self, channel: usize, kind: Kind, contents: Contents, tag: u64) -> Option<Message> {
        let sequence = self.channels[channel].sent;
        let message = Message {
            channel,
            kind,
            sealed: false,
            contents,
            tag,
            sequence,
            slots: 0,
            owned: true,
            home: false,
        };
        self.has_cell(channel).then_some(message)
    }

    fn send_buffer(
        &mut self,
        which: usize,
        kind: Kind,
        action: impl Fn(usize, Id) -> Action,
    ) -> Option<Turn> {
        let buffers = |thing: &Thing| matches!(thing.state, State::Buffer { .. }) && self.sends(thing);
        let (id, thing) = self.pick(which, buffers)?;
        let State::Buffer { slots } = thing.state else { return None };
        let channel = thing.channel;
        let action = action(channel, id);
        let sealed = self.shape.level == Level::Sealed;
        let allowed = match kind {
            Kind::Donate => self.shape.donations && !sealed,
            Kind::Share | Kind::Copy => !sealed,
            Kind::Loan | Kind::Inline => true,
        };
        if !allowed {
            self.pending = Some(Pending::Refused { consumed: Some(id) });
            return self.turn(&thing, action, false);
        }
        let tagged = matches!(action, Action::Loan { .. } | Action::Donate { .. });
        let kind = if kind == Kind::Loan && self.shape.level == Level::Copy { Kind::Copy } else { kind };
        let tag = if tagged { id.into() } else { 0 };
        let mut message = self.message(channel, kind, thing.contents.clone(), tag)?;
        (message.slots, message.sealed) = (slots, sealed);
        let number = self.messages.len();
        let state = match action {
            Action::Donate { .. } => None,
            Action::DonateZero { .. } => Some(State::Zeroed(number)),
            Action::Share { .. } => Some(State::Sharing(number)),
            _ => Some(State::Lent(number)),
        };
        message.owned = state.is_some();
        let becomes = state.map(|state| {
            let zero = matches!(state, State::Zeroed(_));
            let contents = if zero { Contents::new(thing.contents.len(), 0) } else { thing.contents.clone() };
            (id, Thing { state, contents, channel })
        });
        self.pending = Some(Pending::Send { message, becomes, consumed: Some(id) });
        self.turn(&thing, action, false)
    }

    /// Sends bytes by copy, if that goes without waiting.
    fn copy(&mut self, channel: usize, contents: Contents, tag: u64, action: Action) -> Option<Turn> {
        let process = self.channels[channel].ends.from;
        let small = contents.len() <= self.shape.inline_bytes as usize;
        let slots = if small { 0 } else { self.slots_for(contents.len()) };
        if slots > self.shape.slots {
            self.pending = Some(Pending::Refused { consumed: None });
            return Some(Turn { process, action, local: false });
        }
        let kind = if small { Kind::Inline } else { Kind::Copy };
        let mut message = self.message(channel, kind, contents, tag)?;
        if !small && !self.surely_free(channel, slots) {
            return None;
        }
        (message.slots, message.owned) = (slots, false);
        self.pending = Some(Pending::Send { message, becomes: None, consumed: None });
        Some(Turn { process, action, local: false })
    }

    fn receive(&mut self, channel: usize, shared: bool) -> Option<Turn> {
        let id = self.new_id();
        let next = self.channels[channel].queue.front().copied();
        let found = next.map(|number| {
            let message = &self.messages[number];
            let is_shared = shared && message.kind == Kind::Share;
            let state = if is_shared {
                State::Shared(number)
            } else {
                let copied = matches!(message.kind, Kind::Inline | Kind::Copy | Kind::Share);
                State::Loan { message: number, copied }
            };
            let content = Content {
                contents: message.contents.clone(),
                tag: message.tag,
                sequence: message.sequence,
                shared: is_shared,
            };
            (Thing { channel, state, contents: message.contents.clone() }, number, content)
        });
        let expect = found.as_ref().map(|(_, _, content)| content.clone());
        let thing = found.map(|(thing, number, _)| (thing, number));
        self.pending = Some(Pending::Receive { channel, id, thing });
        let process = self.channels[channel].ends.to;
        Some(Turn { process, action: Action::Receive { channel, id, shared, expect }, local: false })
    }

    fn drop_thing(&mut self, id: Id, thing: Thing) -> Option<Turn> {
        let contents = self.seen(&thing);
        self.things.remove(&id);
        match thing.state {
            State::Buffer { .. } | State::Owned => (),
            State::Lent(message) | State::Sharing(message) | State::Zeroed(message) => {
                self.messages[message].owned = false;
            }
            State::Loan { message, .. } | State::Shared(message) => self.messages[message].home = true,
        }
        self.settle();
        self.turn(&thing, Action::Drop { id, contents }, false)
    }

    /// Takes the answer of the last turn; what has to be looked at now.
    pub fn answer(&mut self, turn: &Turn, answer: Answer) -> Result<Vec<Turn>, String> {
        if let Answer::Wrong(what) = answer {
            return Err(format!("{:?}: {what}", turn.action));
        }
        let wrong = |answer: &Answer, expected: &str| {
            Err(format!("{:?} was answered by {answer:?}; expected {expected}", turn.action))
        };
        match self.pending.take().unwrap_or(Pending::Done) {
            Pending::Done if answer == Answer::Done => (),
            Pending::Done => return wrong(&answer, "Done"),
            Pending::Refused { consumed } => {
                if answer != Answer::Refused {
                    return wrong(&answer, "Refused");
                }
                consumed.map(|id| self.things.remove(&id));
            }
            Pending::Buffer { channel, id, contents, slots } => {
                let alive = self.channels[channel].receiver;
                let free = self.shape.slots.saturating_sub(self.taken(channel));
                match answer {
                    Answer::Done if slots <= free || !alive => {
                        self.things.insert(id, Thing { channel, state: State::Buffer { slots }, contents });
                    }
                    Answer::WouldBlock if slots > 0 && (!alive || !self.surely_free(channel, slots)) => (),
                    // Nothing is out, so none would come back: waiting would never end.
                    Answer::Refused if !self.surely_free(channel, slots) && self.out(channel) == 0 => (),
                    Answer::Dead if slots > 0 && !alive => (),
                    answer => return wrong(&answer, &format!("as {free} slots are free and {slots} wanted")),
                }
            }
            Pending::Send { message, becomes, consumed } => {
                let channel = message.channel;
                match answer {
                    Answer::Done => {
                        consumed.map(|id| self.things.remove(&id));
                        self.things.extend(becomes);
                        self.channels[channel].sent += 1;
                        if self.channels[channel].receiver {
                            self.channels[channel].queue.push_back(self.messages.len());
                        }
                        self.messages.push(message);
                        self.settle();
                    }
                    Answer::Dead if !self.channels[channel].receiver => {
                        consumed.map(|id| self.things.remove(&id));
                    }
                    answer => return wrong(&answer, "Done, or Dead without a receiver"),
                }
            }
            Pending::Receive { channel, id, thing } => match (thing, answer) {
                (Some((thing, number)), Answer::Done) => {
                    self.channels[channel].queue.pop_front();
                    self.channels[channel].received += 1;
                    let home = matches!(thing.state, State::Loan { copied: true, .. });
                    self.messages[number].home |= home;
                    self.things.insert(id, thing);
                }
                (None, Answer::WouldBlock) if self.channels[channel].sender => (),
                (None, Answer::Dead) if !self.channels[channel].sender => (),
                (_, answer) => return wrong(&answer, "what was sent, or Dead without a sender"),
            },
            Pending::Count { channel } => return self.counted(channel, &turn.action, &answer),
        }
        Ok(self.looks(turn))
    }

    /// After a sender has stored anything, its receiver looks at all it has.
    fn looks(&mut self, turn: &Turn) -> Vec<Turn> {
        let stores = matches!(
            turn.action,
            Action::Buffer { .. }
                | Action::Store { .. }
                | Action::WriteFrom { .. }
                | Action::Stray { .. }
                | Action::DonateZero { .. }
        );
        if !stores {
            return Vec::new();
        }
        let turns = self.turns;
        let from = |channel: usize| self.channels[channel].ends.from == turn.process;
        // Long ones are looked at in one turn of four: they take most of the time.
        let due = |thing: &Thing| thing.contents.len() < 256 << 10 || turns.is_multiple_of(4);
        let ids = self.ids(|thing| !thing.state.is_senders() && from(thing.channel) && due(thing));
        ids.into_iter().filter_map(|id| self.check(id, &self.things[&id].clone())).collect()
    }

    fn counted(&mut self, channel: usize, action: &Action, answer: &Answer) -> Result<Vec<Turn>, String> {
        let of_channel = |thing: &&Thing| thing.channel == channel;
        match (action, answer) {
            (Action::CountSender { .. }, &Answer::Sent(sent, out, taken)) => {
                let expected = (self.channels[channel].sent, self.out(channel), self.taken(channel));
                if (sent, out, taken) != expected {
                    return Err(format!(
                        "the sender of channel {channel} counts (sent, out, slots) {:?}, not {expected:?}",
                        (sent, out, taken)
                    ));
                }
                self.pending = Some(Pending::Count { channel });
                let process = self.channels[channel].ends.to;
                Ok(vec![Turn { process, action: Action::CountReceiver { channel }, local: false }])
            }
            (Action::CountReceiver { .. }, &Answer::Received(received, slots, bytes, retired)) => {
                let (mut expected, mut min) = (0, 0);
                for thing in self.things.values().filter(of_channel) {
                    match thing.state {
                        State::Loan { message, copied } => {
                            let message = &self.messages[message];
                            expected += if message.home { 0 } else { message.slots };
                            min += if copied || message.sealed { thing.contents.len() as u64 } else { 0 };
                        }
                        State::Shared(message) => expected += self.messages[message].slots,
                        _ => (),
                    }
                }
                // What a receiver holds is counted in whole pages, or in whole files.
                let bytes_fit = if min > 0 { bytes >= min } else { bytes == 0 };
                if (received, slots, retired) != (self.channels[channel].received, expected, 0) || !bytes_fit
                {
                    return Err(format!(
                        "the receiver of channel {channel} counts {answer:?}, not {} received, {expected} slots, \
                         {min} bytes",
                        self.channels[channel].received
                    ));
                }
                Ok(Vec::new())
            }
            (action, answer) => Err(format!("{action:?} was answered by {answer:?}")),
        }
    }

    /// How many things there are, of senders if `senders`.
    pub(crate) fn count(&self, senders: bool) -> usize {
        self.things.values().filter(|thing| thing.state.is_senders() == senders).count()
    }
}

/// A store of at least a byte that lies in the contents.
fn within(contents: &Contents, at: usize, len: usize, stamp: u64) -> Layer {
    let at = at % contents.len();
    Layer { at, len: len.clamp(1, contents.len() - at), stamp }
}
