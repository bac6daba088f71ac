//! Whether the processes of a plan come to their end, and what is left out where they would not.
//!
//! What a call waits for counts before it in the recording, but for the bytes and the ends of pipes: the kernel of
//! the recording may have held more than the one that replays, and a line may be missing or in a wrong place. So the
//! plan is gone through without a kernel: every process makes its calls as far as it can, a pipe is how many of its
//! bytes are on their way. Whether all come to their end does not depend on who goes first, as no call takes back what
//! another waits for.
//!
//! Where processes wait in a circle, one of its calls gives way:
//! * A write that nothing was written before is made without waiting, if the pipe's buffer grows to hold it.
//! * A read of a pipe's end is left out. So is one that bytes follow, circle or not.
//! * Else a pipe of the circle ends there: of what comes after, nothing is written, and nothing is read.

use super::ops::{Action, PipeBytes, Plan, Through};
use pageferry_kernel::{PipeConfig, PipeKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What pipes of a kernel take of a write while nobody reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct PipeRoom {
    /// What all writes together may leave there.
    holds: usize,
    /// Writes of so many bytes wait until all is read.
    min_direct_bytes: usize,
    /// What a pipe holds whose buffer has grown for its first write.
    grown: usize,
}

impl PipeRoom {
    /// Every write waits for its reader.
    #[cfg(test)]
    pub(super) const NONE: PipeRoom = PipeRoom { holds: 0, min_direct_bytes: 0, grown: 0 };

    pub(super) fn of(config: &PipeConfig) -> PipeRoom {
        match config.kind {
            PipeKind::Socket => {
                let holds = config.socket_buffer_bytes;
                PipeRoom { holds, min_direct_bytes: usize::MAX, grown: holds }
            }
            PipeKind::Fifo => PipeRoom {
                holds: config.buffer_bytes,
                min_direct_bytes: if config.direct { config.min_direct_bytes } else { usize::MAX },
                grown: config.big_buffer_bytes,
            },
        }
    }
}

/// A call by its process and its number there.
type CallAt = (usize, usize);

/// How the pipes of a plan are used so that every process comes to its end.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Of each pipe: how many of its bytes are both written and read.
    pub(super) limits: Vec<usize>,
    /// Pipes that end before the recording's do.
    pub(super) cut: BTreeSet<usize>,
    /// Writes that are made without waiting.
    pub(super) no_wait: BTreeSet<CallAt>,
    /// Reads of a pipe's end that are left out.
    pub(super) without_end: BTreeSet<CallAt>,
}

/// Finds them.
///
/// # Errors
/// The line of a call that waits for itself, and not at a pipe.
pub(super) fn ways(plan: &Plan, pipes: &[Through], room: PipeRoom) -> Result<Ways, usize> {
    let mut rehearsal = Rehearsal::new(plan, pipes, room);
    loop {
        rehearsal.go_on();
        let Some(stuck) = (0..plan.processes.len()).find(|process| !rehearsal.has_ended(*process)) else {
            return Ok(rehearsal.ways);
        };
        rehearsal.gives_way(stuck)?;
    }
}

/// A pipe, while the plan is gone through.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// The end of what calls that have begun write.
    written: usize,
    /// What calls that have begun have read.
    read: usize,
    /// What it holds.
    holds: usize,
    /// Descriptors to write to it.
    writers: usize,
}

/// What a process waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Calls(usize),
    End(usize),
    Pipe(usize),
}

struct Rehearsal<'a> {
    plan: &'a Plan,
    pipes: &'a [Through],
    room: PipeRoom,
    ways: Ways,
    flows: Vec<Flow>,
    reads: BTreeMap<CallAt, (usize, Range<usize>)>,
    writes: BTreeMap<CallAt, (usize, Range<usize>)>,
    /// How many calls each process has made; all and one more when it has made them all.
    done: Vec<usize>,
    has_begun: Vec<bool>,
    parents: Vec<Option<usize>>,
    /// Each process's descriptors to write to pipes.
    tables: Vec<BTreeMap<i32, usize>>,
    sleepers: BTreeMap<Event, Vec<usize>>,
    ready: Vec<usize>,
}

impl<'a> Rehearsal<'a> {
    fn new(plan: &'a Plan, pipes: &'a [Through], room: PipeRoom) -> Rehearsal<'a> {
        let by_call = |of: fn(&Through) -> &Vec<PipeBytes>| {
            let each = pipes.iter().enumerate().flat_map(move |(pipe, through)| {
                of(through)
                    .iter()
                    .map(move |(process, number, range)| ((*process, *number), (pipe, range.clone())))
            });
            each.collect()
        };
        let count = plan.processes.len();
        let mut parents = vec![None; count];
        for (parent, process) in plan.processes.iter().enumerate() {
            for op in &process.ops {
                if let Action::Fork { process: child } = op.action {
                    parents[child] = Some(parent);
                }
            }
        }
        let limits = pipes.iter().map(|through| through.bytes.len().min(through.read)).collect();
        let mut rehearsal = Rehearsal {
            plan,
            pipes,
            room,
            ways: Ways { limits, ..Ways::default() },
            flows: vec![Flow { holds: room.holds, ..Flow::default() }; pipes.len()],
            reads: by_call(|through| &through.reads),
            writes: by_call(|through| &through.writes),
            done: vec![0; count],
            has_begun: vec![false; count],
            parents,
            tables: vec![BTreeMap::new(); count],
            sleepers: BTreeMap::new(),
            ready: plan.first.clone(),
        };
        let too_early = |(_, (pipe, range)): &(&CallAt, &(usize, Range<usize>))| {
            range.is_empty() && range.start < rehearsal.ways.limits[*pipe]
        };
        let ends = rehearsal.reads.iter().filter(too_early).map(|(call, _)| *call).collect();
        rehearsal.ways.without_end = ends;
        rehearsal
    }

    fn go_on(&mut self) {
        while let Some(process) = self.ready.pop() {
            if let Err(event) = self.run(process) {
                self.sleepers.entry(event).or_default().push(process);
            }
        }
    }

    fn wake(&mut self, event: Event) {
        self.ready.extend(self.sleepers.remove(&event).unwrap_or_default());
    }

    /// A process makes its calls.
    ///
    /// # Errors
    /// What it waits for.
    fn run(&mut self, process: usize) -> Result<(), Event> {
        let ops = &self.plan.processes[process].ops;
        self.has_begun[process] = true;
        while let Some(op) = ops.get(self.done[process]) {
            if let Some((other, _)) = op.after.iter().find(|(other, done)| !self.is_over(*other, *done)) {
                return Err(Event::Calls(*other));
            }
            match op.action {
                Action::Fork { process: child } => {
                    for (fd, pipe) in self.tables[process].clone() {
                        self.hold(child, fd, pipe);
                    }
                    self.ready.push(child);
                }
                Action::Pipe { ends: [_, fd], pipe } => self.hold(process, fd, pipe),
                Action::Duplicate { fd, to } => {
                    if let Some(pipe) = self.tables[process].get(&fd) {
                        self.hold(process, to, *pipe);
                    }
                }
                Action::Close { fd } => self.let_go(process, fd),
                Action::Wait { process: child } if !self.has_ended(child) => return Err(Event::End(child)),
                _ => self.move_bytes((process, self.done[process]))?,
            }
            self.done[process] += 1;
            if op.is_awaited {
                self.wake(Event::Calls(process));
            }
        }
        if self.done[process] == ops.len() {
            for fd in self.tables[process].clone().into_keys() {
                self.let_go(process, fd);
            }
            self.done[process] += 1;
            self.wake(Event::Calls(process));
            self.wake(Event::End(process));
        }
        Ok(())
    }

    /// A process has made so many of its calls; all, and closed what it had, for more than it has.
    fn is_over(&self, process: usize, done: usize) -> bool {
        self.done[process] >= done.min(self.plan.processes[process].ops.len() + 1)
    }

    /// A process has made all of its calls and closed what it had. Its children may live on.
    fn has_ended(&self, process: usize) -> bool {
        self.done[process] > self.plan.processes[process].ops.len()
    }

    /// A process has a descriptor to write to a pipe.
    fn hold(&mut self, process: usize, fd: i32, pipe: usize) {
        self.let_go(process, fd);
        self.tables[process].insert(fd, pipe);
        self.flows[pipe].writers += 1;
    }

    fn let_go(&mut self, process: usize, fd: i32) {
        if let Some(pipe) = self.tables[process].remove(&fd) {
            self.flows[pipe].writers -= 1;
            self.wake(Event::Pipe(pipe));
        }
    }

    /// What a call does with pipes.
    ///
    /// # Errors
    /// The pipe that it waits at.
    fn move_bytes(&mut self, call: CallAt) -> Result<(), Event> {
        if let Some((pipe, range)) = self.reads.get(&call).cloned() {
            let end = range.end.min(self.ways.limits[pipe]);
            let flow = &mut self.flows[pipe];
            let there = flow.written.min(end);
            let is_all = there == end;
            if there > flow.read {
                flow.read = there;
                self.wake(Event::Pipe(pipe));
            }
            let is_at_end = !self.reads_end(call) || self.flows[pipe].writers == 0;
            return if is_all && is_at_end { Ok(()) } else { Err(Event::Pipe(pipe)) };
        }
        if let Some((pipe, range)) = self.writes.get(&call).cloned() {
            let end = range.end.min(self.ways.limits[pipe]);
            if end > self.flows[pipe].written {
                self.flows[pipe].written = end;
                self.wake(Event::Pipe(pipe));
            }
            return if self.is_written(call, pipe, &range) { Ok(()) } else { Err(Event::Pipe(pipe)) };
        }
        Ok(())
    }

    /// A call is one that reads the end of a pipe.
    fn reads_end(&self, (process, number): CallAt) -> bool {
        let op = &self.plan.processes[process].ops[number];
        matches!(op.action, Action::ReadPipe { count: 1.., answer: 0, .. })
            && !self.ways.without_end.contains(&(process, number))
    }

    /// A write can return.
    fn is_written(&self, call: CallAt, pipe: usize, range: &Range<usize>) -> bool {
        let flow = &self.flows[pipe];
        let is_direct = range.len() >= self.room.min_direct_bytes && !self.ways.no_wait.contains(&call);
        let end = range.end.min(self.ways.limits[pipe]);
        let left = end.saturating_sub(flow.read);
        end <= range.start || left <= if is_direct { 0 } else { flow.holds }
    }

    /// Whom a process waits for that can go no further, and at which pipe.
    fn waits_for(&self, process: usize) -> Option<(usize, Option<usize>)> {
        if !self.has_begun[process] {
            return self.parents[process].map(|parent| (parent, None));
        }
        let number = self.done[process];
        let op = self.plan.processes[process].ops.get(number)?;
        if let Some((other, _)) = op.after.iter().find(|(other, done)| !self.is_over(*other, *done)) {
            return Some((*other, None));
        }
        if let Action::Wait { process: child } = op.action {
            return Some((child, None));
        }
        let call = (process, number);
        let next = |of: &[PipeBytes], at: usize| {
            of.iter().find(|(_, _, range)| range.end > at).map(|(process, ..)| *process)
        };
        if let Some((pipe, _)) = self.writes.get(&call) {
            return next(&self.pipes[*pipe].reads, self.flows[*pipe].read).map(|other| (other, Some(*pipe)));
        }
        let (pipe, _) = self.reads.get(&call)?;
        if self.reads_end(call) {
            let holds = |other: &usize| self.tables[*other].values().any(|held| held == pipe);
            return (0..self.tables.len()).find(holds).map(|other| (other, Some(*pipe)));
        }
        next(&self.pipes[*pipe].writes, self.flows[*pipe].written).map(|other| (other, Some(*pipe)))
    }

    /// Lets a call of the circle give way that a process is in or waits for.
    ///
    /// # Errors
    /// The line at which there is none.
    fn gives_way(&mut self, stuck: usize) -> Result<(), usize> {
        let line = |process: usize| {
            let ops = &self.plan.processes[process].ops;
            ops.get(self.done[process]).or(ops.last()).map_or(0, |op| op.line)
        };
        let mut way = vec![stuck];
        let circle = loop {
            let at = *way.last().expect("it begins with one");
            let (next, _) = self.waits_for(at).ok_or_else(|| line(at))?;
            if let Some(from) = way.iter().position(|process| *process == next) {
                break way.split_off(from);
            }
            way.push(next);
        };
        // A write before a read: a sound recording has no other.
        let at_pipes = circle.iter().filter_map(|process| {
            let (_, pipe) = self.waits_for(*process)?;
            let call = (*process, self.done[*process]);
            Some((!self.writes.contains_key(&call), line(*process), call, pipe?))
        });
        let (_, _, call, pipe) = at_pipes.min().ok_or_else(|| line(circle[0]))?;
        let op = &self.plan.processes[call.0].ops[call.1];
        match self.writes.get(&call) {
            Some((_, range))
                if range.start == 0
                    && range.len() <= self.room.grown
                    && matches!(op.action, Action::Write { .. })
                    && self.ways.no_wait.insert(call) =>
            {
                self.flows[pipe].holds = self.room.grown;
            }
            None if self.reads_end(call) => drop(self.ways.without_end.insert(call)),
            writes => {
                // What was written before can be read.
                let before = writes.map_or(0, |(_, range)| range.start);
                self.ways.limits[pipe] = self.flows[pipe].read.max(before);
                self.ways.cut.insert(pipe);
            }
        }
        self.wake(Event::Pipe(pipe));
        Ok(())
    }
}
