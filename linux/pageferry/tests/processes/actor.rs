//! A process of a program: has the library do each action, and looks at what comes of it.
#![allow(
    unsafe_code,
    reason = "stores through pointers that are older than a loan: the library must survive them"
)]

use pageferry::{
    Buffer, Channel, Config, Error, Lent, Loan, Message, Owned, PeerFault, Receiver, Sender, Shared, Sharing,
    Stores, Zeroed,
};
use pageferry_programs::{Action, Answer, Content, Contents, Id, Level, Shape, pattern};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// What is home, or has room, comes at once; a busy host may still need a while.
const AT_ONCE: Duration = Duration::from_secs(120);

/// See the top of the file.
#[derive(Default)]
pub struct Actor {
    senders: BTreeMap<usize, Sender>,
    receivers: BTreeMap<usize, Receiver>,
    things: BTreeMap<Id, Thing>,
}

enum Thing {
    Buffer(Buffer),
    /// With the address that it was written at.
    Lent(Lent, *mut u8),
    Sharing(Sharing),
    Zeroed(Zeroed),
    Loan(Loan),
    Shared(Shared),
    Owned(Owned),
}

/// Has the kernel store bytes at an address; whether it could. A stray pointer would end the process where it cannot.
///
/// # Safety
/// Whatever is there may change.
unsafe fn stray(at: *mut u8, bytes: &[u8]) -> bool {
    let (read, write) = rustix::pipe::pipe().unwrap();
    bytes.chunks(4096).zip((0..).step_by(4096)).all(|(chunk, offset)| {
        assert_eq!(rustix::io::write(&write, chunk).unwrap(), chunk.len());
        // SAFETY: the kernel looks whether the address is mapped writable; the rest is the caller's promise.
        let stored = unsafe { libc::read(read.as_raw_fd(), at.add(offset).cast(), chunk.len()) };
        stored == chunk.len() as isize
    })
}

/// The channels of a shape.
pub fn config(shape: &Shape) -> Config {
    let level = match shape.level {
        Level::Copy => pageferry::Level::Copy,
        Level::Typed => pageferry::Level::Typed,
        Level::Mmu => pageferry::Level::Mmu,
        Level::Sealed => pageferry::Level::Sealed,
    };
    Config::new()
        .slots(shape.slots)
        .slot_bytes(shape.slot_bytes)
        .capacity(shape.capacity)
        .inline_bytes(shape.inline_bytes)
        .donations(shape.donations)
        .copy_on_write(shape.copy_on_write)
        .handshake_timeout(AT_ONCE)
        .require_level(level)
}

impl Actor {
    /// Both ends of a channel are this actor's.
    pub fn pair(&mut self, channel: usize, shape: &Shape) {
        let (sender, receiver) = Channel::pair(config(shape)).unwrap();
        self.senders.insert(channel, sender);
        self.receivers.insert(channel, receiver);
    }

    /// One end of a channel.
    pub fn end(&mut self, channel: usize, sends: bool, socket: OwnedFd, shape: &Shape) -> Result<(), Error> {
        if sends {
            // SAFETY: the other side is an actor as well.
            let sender = unsafe { Channel::trusted_sender(socket, config(shape))? };
            self.senders.insert(channel, sender);
        } else {
            // SAFETY: the other side is an actor as well.
            let receiver = unsafe { Channel::trusted_receiver(socket, config(shape))? };
            self.receivers.insert(channel, receiver);
        }
        Ok(())
    }

    /// Does an action.
    pub fn act(&mut self, action: &Action) -> Answer {
        match self.do_it(action) {
            Ok(answer) => answer,
            Err(Error::WouldBlock) => Answer::WouldBlock,
            Err(Error::Peer(PeerFault::Dead)) => Answer::Dead,
            Err(Error::Usage(_)) => Answer::Refused,
            Err(error) => Answer::Wrong(error.to_string()),
        }
    }

    fn buffer(&mut self, id: Id) -> Result<Buffer, Error> {
        match self.things.remove(&id) {
            Some(Thing::Buffer(buffer)) => Ok(buffer),
            _ => panic!("thing {id} is no buffer"),
        }
    }

    fn do_it(&mut self, action: &Action) -> Result<Answer, Error> {
        match *action {
            Action::Buffer { channel, id, len, stamp } => {
                let mut buffer = self.senders[&channel].try_buffer(len)?;
                pattern(stamp, 0, &mut buffer);
                self.things.insert(id, Thing::Buffer(buffer));
            }
            Action::Store { id, at, len, stamp } => {
                let bytes: &mut [u8] = match self.things.get_mut(&id) {
                    Some(Thing::Buffer(buffer)) => buffer,
                    Some(Thing::Sharing(sharing)) => sharing,
                    Some(Thing::Zeroed(zeroed)) => zeroed,
                    _ => panic!("thing {id} is not to be stored to"),
                };
                pattern(stamp, at, &mut bytes[at..at + len]);
            }
            Action::WriteFrom { id, len, stamp, past } => {
                let Some(Thing::Buffer(buffer)) = self.things.get_mut(&id) else { panic!("no buffer") };
                let mut bytes = vec![0; len];
                pattern(stamp, 0, &mut bytes);
                buffer.write_with(&bytes, if past { Stores::NonTemporal } else { Stores::Ordinary })?;
            }
            Action::Cut { id, len } => {
                let Some(Thing::Buffer(buffer)) = self.things.get_mut(&id) else { panic!("no buffer") };
                buffer.set_len(len)?;
            }
            Action::Loan { channel, id, tag } => {
                let mut buffer = self.buffer(id)?;
                let at = buffer.as_mut_ptr();
                let lent = self.senders[&channel].loan_tagged(buffer, tag)?;
                self.things.insert(id, Thing::Lent(lent, at));
            }
            Action::CopyBuffer { channel, id } => {
                let mut buffer = self.buffer(id)?;
                let at = buffer.as_mut_ptr();
                let lent = self.senders[&channel].copy_buffer(buffer)?;
                self.things.insert(id, Thing::Lent(lent, at));
            }
            Action::Donate { channel, id, tag } => {
                let buffer = self.buffer(id)?;
                self.senders[&channel].donate_tagged(buffer, tag)?;
            }
            Action::DonateZero { channel, id } => {
                let buffer = self.buffer(id)?;
                let zeroed = self.senders[&channel].donate_zero(buffer)?;
                if zeroed.iter().any(|&byte| byte != 0) {
                    return Ok(Answer::Wrong("what takes the place of a gift is not zero".to_owned()));
                }
                self.things.insert(id, Thing::Zeroed(zeroed));
            }
            Action::Share { channel, id } => {
                let buffer = self.buffer(id)?;
                let sharing = self.senders[&channel].share(buffer)?;
                self.things.insert(id, Thing::Sharing(sharing));
            }
            Action::Copy { channel, len, stamp, tag } => {
                let mut bytes = vec![0; len];
                pattern(stamp, 0, &mut bytes);
                self.senders[&channel].copy_tagged(&bytes, tag)?;
            }
            Action::Resend { channel, id, new } => {
                let Some(Thing::Lent(lent, at)) = self.things.get(&id) else { panic!("nothing is lent") };
                let again = Thing::Lent(self.senders[&channel].resend(lent)?, *at);
                self.things.insert(new, again);
            }
            Action::Forward { channel, id } => {
                let Some(Thing::Loan(loan)) = self.things.get(&id) else { panic!("nothing was received") };
                self.senders[&channel].forward(loan)?;
            }
            Action::Stray { id, at, len, stamp, lands } => {
                let Some(Thing::Lent(lent, first)) = self.things.get(&id) else { panic!("nothing is lent") };
                assert!(at + len <= lent.len());
                let mut bytes = vec![0; len];
                pattern(stamp, at, &mut bytes);
                // SAFETY: within what is lent. No reference to it is alive: `lent` is only looked at again by later
                // calls.
                let landed = unsafe { stray(first.add(at), &bytes) };
                if landed != lands {
                    return Ok(Answer::Wrong(format!("a stray store lands: {landed}, and should: {lands}")));
                }
            }
            Action::Wait { id, ref contents } => {
                let lent = self.things.remove(&id);
                let buffer = match lent {
                    Some(Thing::Lent(lent, _)) => lent.wait_timeout(AT_ONCE).map_err(|(error, _)| error)?,
                    Some(Thing::Sharing(sharing)) => sharing.wait()?,
                    _ => panic!("nothing is lent"),
                };
                let answer = same(contents, &buffer);
                self.things.insert(id, Thing::Buffer(buffer));
                return Ok(answer);
            }
            Action::IsOut { id } => {
                let is_home = match self.things.get(&id) {
                    Some(Thing::Lent(lent, _)) => lent.is_home()?,
                    Some(Thing::Sharing(sharing)) => sharing.is_home()?,
                    _ => panic!("nothing is lent"),
                };
                if is_home {
                    return Ok(Answer::Wrong("it says that it is home, and it is out".to_owned()));
                }
            }
            Action::Drop { id, ref contents } => {
                let answer = self.check(id, contents)?;
                drop(self.things.remove(&id));
                return Ok(answer);
            }
            Action::Receive { channel, id, shared, ref expect } => {
                return self.receive(channel, id, shared, expect.as_ref());
            }
            Action::Write { id, at, len, stamp } => {
                let bytes: &mut [u8] = match self.things.get_mut(&id) {
                    Some(Thing::Loan(loan)) => loan.as_mut()?,
                    Some(Thing::Owned(owned)) => owned,
                    _ => panic!("nothing was received"),
                };
                pattern(stamp, at, &mut bytes[at..at + len]);
            }
            Action::Transfer { id, ref contents } => {
                let answer = self.check(id, contents)?;
                let Some(Thing::Loan(loan)) = self.things.remove(&id) else { panic!("nothing was received") };
                let owned = loan.transfer()?;
                self.things.insert(id, Thing::Owned(owned));
                return if answer == Answer::Done { self.check(id, contents) } else { Ok(answer) };
            }
            Action::Check { id, ref contents } => return self.check(id, contents),
            Action::CountSender { channel } => {
                let counters = self.senders[&channel].counters();
                return Ok(Answer::Sent(counters.sent, counters.out, counters.slots_taken));
            }
            Action::CountReceiver { channel } => {
                let counters = self.receivers[&channel].counters();
                let (received, slots) = (counters.received, counters.slots_held);
                return Ok(Answer::Received(received, slots, counters.bytes_held, counters.retired));
            }
            Action::EndSender { channel } => drop(self.senders.remove(&channel)),
            Action::EndReceiver { channel } => drop(self.receivers.remove(&channel)),
        }
        Ok(Answer::Done)
    }

    fn receive(
        &mut self,
        channel: usize,
        id: Id,
        shared: bool,
        expect: Option<&Content>,
    ) -> Result<Answer, Error> {
        let receiver = &self.receivers[&channel];
        let message = match expect {
            Some(expect) if shared && expect.shared => receiver.recv_message()?,
            _ => Message::Loan(receiver.try_recv()?),
        };
        let Some(expect) = expect else { return Ok(Answer::Wrong("nothing was sent".to_owned())) };
        let found = match &message {
            Message::Loan(loan) => (loan.tag(), loan.sequence(), false),
            Message::Shared(shared) => (shared.tag(), expect.sequence, true),
            Message::Passed(_) => return Ok(Answer::Wrong("ranges were received".to_owned())),
        };
        if found != (expect.tag, expect.sequence, expect.shared) {
            return Ok(Answer::Wrong(format!("(tag, sequence, shared) are {found:?}, expected {expect:?}")));
        }
        let held = match message {
            Message::Loan(loan) => Thing::Loan(loan),
            Message::Shared(shared) => Thing::Shared(shared),
            Message::Passed(_) => return Ok(Answer::Done),
        };
        self.things.insert(id, held);
        self.check(id, &expect.contents)
    }

    fn check(&self, id: Id, contents: &Contents) -> Result<Answer, Error> {
        Ok(match self.things.get(&id) {
            None => panic!("there is no thing {id}"),
            Some(Thing::Buffer(buffer)) => same(contents, buffer),
            Some(Thing::Lent(lent, _)) => same(contents, lent),
            Some(Thing::Sharing(sharing)) => same(contents, sharing),
            Some(Thing::Zeroed(zeroed)) => same(contents, zeroed),
            Some(Thing::Loan(loan)) => same(contents, loan),
            Some(Thing::Owned(owned)) => same(contents, owned),
            Some(Thing::Shared(shared)) => {
                let mut bytes = vec![0; shared.len()];
                shared.read_at(0, &mut bytes)?;
                same(contents, &bytes)
            }
        })
    }

    /// Whether it has neither ends nor things.
    pub fn is_idle(&self) -> bool {
        self.senders.is_empty() && self.receivers.is_empty() && self.things.is_empty()
    }
}

fn same(contents: &Contents, found: &[u8]) -> Answer {
    contents.differs(found).map_or(Answer::Done, Answer::Wrong)
}
