//! The receiving process.

use crate::cell::{Line, Method, Pattern, Wait};
use crate::error::{BenchError, Calls as _, Result};
use crate::link::{Answer, Link, Order};
use crate::raw::{self, Memory, Turn};
use crate::sending::{SLOTS, config, slot_bytes};
use crate::work;
use pageferry::{Parent, Receiver};
use rustix::fd::OwnedFd;
use std::os::fd::AsFd as _;

/// Carries out orders until the other process is gone.
pub(crate) fn serve() -> Result<()> {
    let parent = Parent::get()?.ok_or(BenchError::NotAPeer)?;
    // A sender that is killed takes its peer with it, which may be spinning.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let link = Link::of(std::io::stdin().as_fd().try_clone_to_owned().call("dup")?);
    let mut realtime = false;
    let mut open: Option<ReceiverSide> = None;
    while let Some((order, fds)) = link.recv::<Order>()? {
        let answer = match order {
            Order::Start { cpu, realtime: wanted } => {
                realtime = wanted;
                cpu.map_or(Ok(()), |cpu| raw::pin(&[cpu])).map(|()| Answer::Ready)
            }
            Order::Open { bytes, wait, pid, own, lines } => {
                drop(open.take());
                ReceiverSide::open(&parent, bytes, wait, (pid, own), fds, &lines).map(
                    |(receiving, missing)| {
                        open = Some(receiving);
                        Answer::Opened { missing }
                    },
                )
            }
            Order::Close => {
                drop(open.take());
                Ok(Answer::Ready)
            }
            Order::Receive { method, pattern, rounds, check } => match &mut open {
                None => Err(BenchError::Peer("nothing is open".to_owned())),
                Some(open) => {
                    link.send(&Answer::Ready, &[])?;
                    open.receive(method, pattern, rounds, check, realtime)
                }
            },
        };
        link.send(&answer.unwrap_or_else(|error| Answer::Failed(error.to_string())), &[])?;
    }
    Ok(())
}

/// All that messages of one size come by.
struct ReceiverSide {
    bytes: usize,
    wait: Wait,
    turn: Turn,
    slots: Memory,
    pipe: OwnedFd,
    stream: OwnedFd,
    own: Memory,
    sender: (u32, u64),
    lines: [Option<Receiver>; Line::ALL.len()],
}

/// What was read of a batch.
#[derive(Default)]
struct Read {
    sum: u64,
    wrong: bool,
}

impl Read {
    fn look(&mut self, pattern: Pattern, check: Option<u64>, bytes: &[u8]) {
        if pattern.reads() {
            self.sum = self.sum.wrapping_add(work::sum(bytes));
        }
        if let Some(stamp) = check {
            self.wrong |= !work::is_of(bytes, stamp);
        }
    }
}

fn write(pattern: Pattern, bytes: &mut [u8]) {
    match pattern {
        Pattern::OneWord => work::write_one(bytes),
        Pattern::AllPages => work::write_pages(bytes),
        _ => (),
    }
}

impl ReceiverSide {
    fn open(
        parent: &Parent,
        bytes: usize,
        wait: Wait,
        sender: (u32, u64),
        fds: Vec<OwnedFd>,
        lines: &[Line],
    ) -> Result<(ReceiverSide, Vec<(usize, String)>)> {
        let [turn, slots, pipe, stream]: [OwnedFd; 4] =
            fds.try_into().map_err(|_| BenchError::Peer("descriptors are missing".to_owned()))?;
        raw::nonblocking(&pipe, wait)?;
        raw::nonblocking(&stream, wait)?;
        let mut receiving = ReceiverSide {
            bytes,
            wait,
            turn: Turn::of(turn, wait)?,
            slots: Memory::of(slots)?,
            pipe,
            stream,
            own: Memory::own(bytes)?,
            sender,
            lines: [const { None }; Line::ALL.len()],
        };
        let mut missing = Vec::new();
        for &line in lines {
            match parent.receiver(config(line, bytes, wait)) {
                Ok(receiver) => receiving.lines[line as usize] = Some(receiver),
                Err(error) => missing.push((line as usize, error.to_string())),
            }
        }
        Ok((receiving, missing))
    }

    fn receive(
        &mut self,
        method: Method,
        pattern: Pattern,
        rounds: u32,
        check: Option<u64>,
        realtime: bool,
    ) -> Result<Answer> {
        if realtime {
            raw::realtime(true)?;
        }
        let mut read = Read::default();
        let received = (0..rounds).try_for_each(|_| self.round(method, pattern, check, &mut read));
        if realtime {
            raw::realtime(false)?;
        }
        received.map(|()| Answer::Received { sum: read.sum, right: !read.wrong })
    }

    fn round(&mut self, method: Method, pattern: Pattern, check: Option<u64>, read: &mut Read) -> Result<()> {
        let len = self.bytes;
        if let Some(line) = method.channel() {
            let missing = || BenchError::Peer("the channel is missing".to_owned());
            let receiver = self.lines[line as usize].as_ref().ok_or_else(missing)?;
            let mut loan = receiver.recv()?;
            read.look(pattern, check, &loan);
            if matches!(pattern, Pattern::OneWord | Pattern::AllPages) {
                write(pattern, loan.as_mut()?);
            }
            drop(loan);
            if method.told_apart() {
                self.turn.begin();
                self.turn.done();
            }
            return Ok(());
        }
        match method {
            Method::Floor | Method::Shm => {
                let cell = self.turn.take()?;
                let at = cell.slot as usize % SLOTS * slot_bytes(len);
                if method == Method::Floor {
                    read.look(pattern, check, self.slots.bytes(at, len));
                    write(pattern, self.slots.bytes_mut(at, len));
                    self.turn.done();
                    return Ok(());
                }
                self.own.bytes_mut(0, len).copy_from_slice(self.slots.bytes(at, len));
            }
            Method::Readv => {
                let cell = self.turn.take()?;
                let at = cell.slot as usize % SLOTS * slot_bytes(len);
                raw::readv(self.sender.0, self.sender.1 + at as u64, self.own.bytes_mut(0, len))?;
            }
            _ => {
                self.turn.begin();
                let from = if method == Method::Unix { &self.stream } else { &self.pipe };
                read_all(from, self.own.bytes_mut(0, len))?;
            }
        }
        read.look(pattern, check, self.own.bytes(0, len));
        write(pattern, self.own.bytes_mut(0, len));
        self.turn.done();
        let _ = self.wait;
        Ok(())
    }
}

fn read_all(from: &OwnedFd, bytes: &mut [u8]) -> Result<()> {
    let mut done = 0;
    let mut since = None;
    while done < bytes.len() {
        match rustix::io::read(from, &mut bytes[done..]) {
            Ok(0) => return Err(BenchError::Peer("it has closed its end".to_owned())),
            Ok(read) => done += read,
            Err(rustix::io::Errno::AGAIN) => raw::patience(&mut since)?,
            Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(errno).call("read"),
        }
    }
    Ok(())
}
