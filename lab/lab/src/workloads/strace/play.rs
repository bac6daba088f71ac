//! A recorded process as one of the modelled machine: it makes its calls, and compares what they answer with the plain
//! model.
//!
//! It stores what it writes and loads what it has read, and does nothing else between its calls: what programs compute
//! is not recorded.
//!
//! # Waiting for each other
//! How far each process is, is under a lock of the machine; one that must wait for another's call sleeps as threads do
//! in the kernel.
//!
//! # What can fail
//! The machine may be too small for what is asked of it: then the process ends early, and why is left in the outcome.
//! An answer that is not the plain model's is kept as a fault; the process goes on.

use super::contents::{contents, sum};
use super::cost::Costs;
use super::ops::{Action, Op, Plan};
use crate::kit::OutcomeCell;
use pageferry_hal::{Channel, LockClass, Machine, PAGE_SIZE, Prot, SpinLock as _, Threads as _, Va};
use pageferry_kernel::{Errno, Fd, Pid, Program, User};
use pageferry_model::Model;
use pageferry_vm::{Inherit, MapAddr};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The most that is read at once of what is not there.
const MAX_ASKED: usize = 1 << 20;
/// What a program copies at once that has no call for it (`MAXBSIZE` of FreeBSD).
const COPIED_AT_ONCE: usize = 1 << 16;
/// Where processes sleep that wait for others: below all addresses of the kernel.
const WAITING: u64 = 1 << 12;

type Progress = <Model as Machine>::Lock<HowFar>;

/// How far the processes are.
struct HowFar {
    /// How many of its calls each has made.
    done: Vec<usize>,
    /// How many are there.
    running: usize,
}

/// What all processes of a recording share.
pub(super) struct Stage {
    pub(super) plan: Plan,
    pub(super) cell: OutcomeCell,
    progress: Progress,
    pub(super) state: RefCell<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) costs: Costs,
    /// Answers that are not the plain model's: how many, and the first.
    pub(super) faults: u64,
    pub(super) first_fault: Option<String>,
    /// How often a process slept until another had made a call.
    pub(super) waits: u64,
    pids: BTreeMap<usize, Pid>,
}

/// What a process has of its own; a child begins with a copy.
#[derive(Clone, Default)]
struct ProcessState {
    fds: BTreeMap<i32, Fd>,
    mappings: BTreeMap<usize, Va>,
}

struct Player<'a> {
    stage: &'a Rc<Stage>,
    user: &'a User<Model>,
    process: usize,
    own: ProcessState,
    buffer: Va,
    buffer_len: usize,
    ended: BTreeSet<Pid>,
}

/// A call could not be made: why the process ends.
type CallFailure = (String, Errno);

impl Stage {
    pub(super) fn new(user: &User<Model>, plan: Plan, cell: OutcomeCell) -> Rc<Stage> {
        let progress = {
            let how_far = HowFar { done: vec![0; plan.processes.len()], running: 0 };
            user.machine().new_lock(LockClass::PROCESS, how_far)
        };
        Rc::new(Stage { plan, cell, progress, state: RefCell::default() })
    }

    /// The program of a first process.
    pub(super) fn program(self: &Rc<Stage>, process: usize) -> Program<Model> {
        program(self.clone(), process, ProcessState::default())
    }

    /// The buffer that a process needs.
    pub(super) fn buffer_bytes(&self, process: usize) -> usize {
        let of = |op: &Op| match op.action {
            Action::Read { count, answer, .. } | Action::ReadPipe { count, answer, .. } => {
                answer.max(count.min(MAX_ASKED))
            }
            Action::Write { len, .. } => len,
            Action::Copy { len, .. } => len.min(COPIED_AT_ONCE),
            _ => 0,
        };
        let max = self.plan.processes[process].ops.iter().map(of).max();
        max.unwrap_or(0).max(1).next_multiple_of(PAGE_SIZE)
    }
}

fn program(stage: Rc<Stage>, process: usize, own: ProcessState) -> Program<Model> {
    Box::new(move |user: &User<Model>| {
        let buffer_len = stage.buffer_bytes(process);
        let result = match user.map(buffer_len, Prot::RW, Inherit::None) {
            Ok(buffer) => {
                let ended = BTreeSet::new();
                let mut player = Player { stage: &stage, user, process, own, buffer, buffer_len, ended };
                let played = player.play();
                player.close_all();
                played
            }
            Err(errno) => Err(("map a buffer".to_owned(), errno)),
        };
        if let Err((what, errno)) = result {
            stage.cell.borrow_mut().fail(&what, errno);
        }
        // Whoever waits for what it did not get to would wait for ever.
        stage.is_at(user, process, usize::MAX);
        stage.one_less(user);
    })
}

impl Stage {
    /// A process has made so many of its calls.
    fn is_at(&self, user: &User<Model>, process: usize, done: usize) {
        let mut progress = self.progress.lock();
        progress.done[process] = done;
        user.thread().wakeup(Channel(WAITING + process as u64));
    }

    /// Makes a process, whether its parent lives on or not.
    pub(super) fn fork(&self, user: &User<Model>, name: &str, program: Program<Model>) -> Result<Pid, Errno> {
        self.progress.lock().running += 1;
        user.fork(name, program).inspect_err(|_| self.one_less(user))
    }

    /// A process has closed all that it had open, or has not come to be.
    fn one_less(&self, user: &User<Model>) {
        let mut progress = self.progress.lock();
        progress.running -= 1;
        user.thread().wakeup(self.all());
    }

    /// Where the first process sleeps until all are over.
    fn all(&self) -> Channel {
        Channel(WAITING + self.plan.processes.len() as u64)
    }

    /// Sleeps until no process is left: what one has open is to be closed before the volume goes, and its parent may
    /// have ended long before it.
    pub(super) fn wait_for_all(&self, user: &User<Model>) -> Result<(), Errno> {
        self.wait_until(user, self.all(), |how_far| how_far.running == 0).map(drop)
    }

    /// Sleeps until another process has made so many of its calls.
    fn wait_for(&self, user: &User<Model>, other: usize, done: usize) -> Result<(), CallFailure> {
        let slept =
            self.wait_until(user, Channel(WAITING + other as u64), |how_far| how_far.done[other] >= done);
        let slept = slept.map_err(|errno| ("wait for another process".to_owned(), errno))?;
        self.state.borrow_mut().waits += u64::from(slept);
        Ok(())
    }

    /// Sleeps until something is so; true if it was not so yet.
    fn wait_until(
        &self,
        user: &User<Model>,
        channel: Channel,
        is_so: impl Fn(&HowFar) -> bool,
    ) -> Result<bool, Errno> {
        let mut slept = false;
        loop {
            let progress = self.progress.lock();
            if is_so(&progress) {
                return Ok(slept);
            }
            slept = true;
            let mut held = Some(progress);
            user.thread().sleep(channel, "replay", true, &mut || drop(held.take()))?;
        }
    }

    fn fault(&self, op: &Op, what: impl FnOnce() -> String) {
        let state = &mut *self.state.borrow_mut();
        state.faults += 1;
        state.first_fault.get_or_insert_with(|| {
            let name = op.name.as_deref().unwrap_or("a call");
            format!("line {}, {name}: {}", op.line, what())
        });
    }
}

impl Player<'_> {
    /// Closes what is open, as the end of a process does: who reads from its pipes finds their end.
    fn close_all(&mut self) {
        for (_, file) in std::mem::take(&mut self.own.fds) {
            // One that a call has closed behind the recording's back is closed.
            let _ = self.user.close(file);
        }
    }

    fn play(&mut self) -> Result<(), CallFailure> {
        let stage = self.stage.clone();
        // Resident from the beginning.
        self.user.store(self.buffer, &vec![0; self.buffer_len]);
        for (number, op) in stage.plan.processes[self.process].ops.iter().enumerate() {
            for (other, done) in &op.after {
                stage.wait_for(self.user, *other, *done)?;
            }
            let bytes = self.prepare(op);
            let began = self.user.machine().now();
            let moved = self.make(op)?;
            let took = self.user.machine().now().saturating_sub(began);
            if let Some(name) = &op.name {
                stage.state.borrow_mut().costs.add(name, bytes.max(moved), took, op.took_us);
            }
            if op.is_awaited {
                stage.is_at(self.user, self.process, number + 1);
            }
        }
        Ok(())
    }

    /// What a program has done before a call: it has made the bytes that it writes.
    fn prepare(&self, op: &Op) -> usize {
        match op.action {
            Action::Write { seed, len, .. } => {
                self.user.store(self.buffer, &contents(seed, 0, len));
                len
            }
            _ => 0,
        }
    }

    /// Makes a call; answers how many bytes it moved to the process.
    fn make(&mut self, op: &Op) -> Result<usize, CallFailure> {
        let user = self.user;
        match &op.action {
            Action::Open { path, flags, fd, answer } => {
                let opened = user.open(path, *flags);
                if let Ok(new) = opened {
                    if answer.is_ok() {
                        self.own.fds.insert(*fd, new);
                    } else {
                        let _ = user.close(new);
                    }
                }
                self.compare(op, &opened.map(drop), answer)?;
            }
            Action::Look { path, follows, answer } => {
                let seen = if *follows { user.stat(path) } else { user.stat_link(path) };
                let seen = seen.map(|stat| (!stat.is_directory).then_some(stat.size_bytes));
                self.compare(op, &seen, answer)?;
            }
            Action::List { path, answer } => {
                let seen = user.list(path).map(|names| names.len() as u64);
                self.compare(op, &seen, answer)?;
            }
            Action::Enter => self.compare(op, &user.null_call(), &Ok(()))?,
            Action::Pipe { ends, .. } => {
                let made = user.pipe();
                if let Ok((read, write)) = made {
                    self.own.fds.extend([(ends[0], read), (ends[1], write)]);
                }
                self.compare(op, &made.map(drop), &Ok(()))?;
            }
            Action::Unlink { path, answer } => self.compare(op, &user.unlink(path), answer)?,
            Action::RemoveDirectory { path, answer } => self.compare(op, &user.rmdir(path), answer)?,
            Action::MakeDirectory { path, answer } => self.compare(op, &user.mkdir(path), answer)?,
            Action::Rename { from, to, answer } => self.compare(op, &user.rename(from, to), answer)?,
            Action::Symlink { to, path, answer } => self.compare(op, &user.symlink(to, path), answer)?,
            Action::ReadLink { path, answer } => self.compare(op, &user.read_link(path), answer)?,
            Action::Link { from, to, answer } => self.compare(op, &user.link(from, to), answer)?,
            Action::Unmap { id, from, len } => {
                if let Some(at) = self.own.mappings.get(id) {
                    self.compare(op, &user.unmap(*at + *from, *len), &Ok(()))?;
                }
            }
            Action::Fork { process } => {
                let child = program(self.stage.clone(), *process, self.own.clone());
                let name = format!("pid {}", self.stage.plan.processes[*process].pid);
                let made = self.stage.fork(user, &name, child);
                if let Ok(pid) = made {
                    self.stage.state.borrow_mut().pids.insert(*process, pid);
                } else {
                    self.stage.is_at(user, *process, usize::MAX);
                }
                self.compare(op, &made.map(drop), &Ok(()))?;
            }
            Action::Wait { process } => {
                let child = self.stage.state.borrow().pids.get(process).copied();
                while child.is_some_and(|child| !self.ended.remove(&child)) {
                    match user.wait() {
                        Ok(pid) => drop(self.ended.insert(pid)),
                        Err(errno) => {
                            self.compare(op, &Err(errno), &Ok(()))?;
                            break;
                        }
                    }
                }
            }
            Action::Close { fd }
            | Action::Duplicate { fd, .. }
            | Action::Size { fd, .. }
            | Action::Read { fd, .. }
            | Action::ReadPipe { fd, .. }
            | Action::Write { fd, .. }
            | Action::Copy { fd, .. }
            | Action::Seek { fd, .. }
            | Action::Truncate { fd, .. }
            | Action::Sync { fd }
            | Action::Map { fd, .. } => {
                // One that could not be opened is a fault already.
                return match self.own.fds.get(fd) {
                    Some(file) => self.make_with(op, *file),
                    None => Ok(0),
                };
            }
        }
        Ok(0)
    }

    fn make_with(&mut self, op: &Op, file: Fd) -> Result<usize, CallFailure> {
        let (user, buffer) = (self.user, self.buffer);
        match &op.action {
            Action::Close { fd } => {
                self.own.fds.remove(fd);
                self.compare(op, &user.close(file), &Ok(()))?;
            }
            Action::Duplicate { to, .. } => {
                let made = user.duplicate(file);
                if let Ok(new) = made {
                    self.own.fds.insert(*to, new);
                }
                self.compare(op, &made.map(drop), &Ok(()))?;
            }
            Action::Size { answer, .. } => self.compare(op, &user.file_size(file), &Ok(*answer))?,
            Action::Read { count, offset, answer, sum, .. } => {
                let asked = (*count).min(self.buffer_len);
                let read = match offset {
                    Some(offset) => user.read_at(file, *offset, buffer, asked),
                    None => user.read(file, buffer, asked),
                };
                self.compare(op, &read, &Ok(*answer))?;
                let done = read.unwrap_or(0);
                self.look_at(op, done, *answer, *sum);
                return Ok(done);
            }
            Action::ReadPipe { count, answer, sum, .. } => {
                // Where nothing was left, as much is asked for as it was.
                let asked = if *answer > 0 { *answer } else { (*count).min(self.buffer_len) };
                let mut done = 0;
                let result = loop {
                    match user.read(file, buffer + done, asked - done) {
                        Ok(0) => break Ok(done),
                        Ok(len) if done + len < *answer => done += len,
                        Ok(len) => break Ok(done + len),
                        Err(errno) => break Err(errno),
                    }
                };
                self.compare(op, &result, &Ok(*answer))?;
                let done = result.unwrap_or(0);
                self.look_at(op, done, *answer, *sum);
                return Ok(done);
            }
            Action::Write { len, offset, waits, .. } => {
                let wrote = match offset {
                    Some(offset) => user.write_at(file, *offset, buffer, *len),
                    None if *waits => user.write(file, buffer, *len),
                    None => self.write_no_wait(file, *len),
                };
                self.compare(op, &wrote, &Ok(*len))?;
            }
            Action::Copy { offset, to, to_offset, len, sum, .. } => {
                // One that could not be opened is a fault already.
                let Some(to) = self.own.fds.get(to).copied() else { return Ok(0) };
                return self.copy(op, (file, *offset), (to, *to_offset), *len, *sum);
            }
            Action::Seek { to, .. } => self.compare(op, &user.seek(file, *to), &Ok(()))?,
            Action::Truncate { size, .. } => self.compare(op, &user.truncate(file, *size), &Ok(()))?,
            Action::Sync { .. } => self.compare(op, &user.sync_file(file), &Ok(()))?,
            Action::Map { offset, len, id, sum, .. } => {
                let mapped = user.map_file(file, *offset, MapAddr::Anywhere, *len, Prot::READ, false);
                self.compare(op, &mapped.map(drop), &Ok(()))?;
                if let Ok(at) = mapped {
                    self.own.mappings.insert(*id, at);
                    self.touch(op, at, *len, *sum);
                    return Ok(*len);
                }
            }
            _ => unreachable!("its caller has what needs no descriptor"),
        }
        Ok(0)
    }

    /// Writes what a pipe takes at once.
    fn write_no_wait(&self, pipe: Fd, len: usize) -> Result<usize, Errno> {
        self.user.set_nonblocking(pipe, true)?;
        let wrote = self.user.write(pipe, self.buffer, len);
        let waits_again = self.user.set_nonblocking(pipe, false);
        wrote.and_then(|len| waits_again.map(|()| len))
    }

    /// Reads and writes, as often as it takes.
    fn copy(
        &self,
        op: &Op,
        (from, offset): (Fd, Option<u64>),
        (to, to_offset): (Fd, Option<u64>),
        len: usize,
        expected: u64,
    ) -> Result<usize, CallFailure> {
        let (user, buffer) = (self.user, self.buffer);
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let (done, asked) = (bytes.len() as u64, (len - bytes.len()).min(COPIED_AT_ONCE));
            let read = match offset {
                Some(offset) => user.read_at(from, offset + done, buffer, asked),
                None => user.read(from, buffer, asked),
            };
            self.compare(op, &read, &Ok(asked))?;
            let Some(got) = read.ok().filter(|got| *got > 0) else { break };
            let mut part = vec![0; got];
            user.load(buffer, &mut part);
            bytes.extend(part);
            let wrote = match to_offset {
                Some(offset) => user.write_at(to, offset + done, buffer, got),
                None => user.write(to, buffer, got),
            };
            self.compare(op, &wrote, &Ok(got))?;
        }
        if sum(&bytes) != expected {
            self.stage.fault(op, || format!("the {} bytes are not those of the plain model", bytes.len()));
        }
        Ok(bytes.len())
    }

    /// Loads what was read, and compares it.
    fn look_at(&self, op: &Op, done: usize, answer: usize, expected: u64) {
        let mut bytes = vec![0; done];
        self.user.load(self.buffer, &mut bytes);
        if done == answer && sum(&bytes) != expected {
            self.stage.fault(op, || format!("the {done} bytes are not those of the plain model"));
        }
    }

    /// Loads a word of each page, and compares it.
    fn touch(&self, op: &Op, at: Va, len: usize, expected: u64) {
        let mut words = vec![0; len / PAGE_SIZE * 8];
        for (page, word) in words.chunks_mut(8).enumerate() {
            self.user.load(at + page * PAGE_SIZE, word);
        }
        if sum(&words) != expected {
            self.stage.fault(op, || format!("{} pages do not begin as in the plain model", len / PAGE_SIZE));
        }
    }

    /// Compares an answer.
    ///
    /// # Errors
    /// One that says that the machine is too small.
    fn compare<T: PartialEq + std::fmt::Debug>(
        &self,
        op: &Op,
        here: &Result<T, Errno>,
        model: &Result<T, Errno>,
    ) -> Result<(), CallFailure> {
        if here == model {
            return Ok(());
        }
        if let Err(
            errno @ (Errno::NoMemory
            | Errno::NoSpace
            | Errno::TooManyFiles
            | Errno::Killed
            | Errno::Interrupted),
        ) = here
        {
            let name = op.name.as_deref().unwrap_or("what happens by itself");
            return Err((format!("line {}, {name}", op.line), *errno));
        }
        self.stage.fault(op, || format!("{here:?}, and {model:?} by the plain model"));
        Ok(())
    }
}
