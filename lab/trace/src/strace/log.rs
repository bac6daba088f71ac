//! All lines of a log, in order, with calls that were cut in two put together.
//!
//! # Whose a line is
//! With `-o` each line begins with a number. Without, it has one (`[pid 7]`) only while there are several processes: a
//! line without belongs to the only one that is left, and a number that no call answered to is that of the first
//! process.

use super::args::Arg;
use super::line::{Answer, From, Line, call, prefix, read};
use std::collections::{BTreeMap, BTreeSet};

/// A call.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// What it answered.
    pub answer: Answer,
    /// The path behind a descriptor that it answered (`-y`).
    pub note: Option<Vec<u8>>,
    /// How long it took, where that was recorded (`-T`).
    pub took_us: Option<f64>,
}

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// A call returned, or never did.
    Call(Call),
    /// The process ended.
    Exited,
}

/// What happened in a process. Entries are in the order in which calls returned; a call that makes a process is where
/// it began.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The line where it began.
    pub line: usize,
    /// The line where it returned.
    pub ended: usize,
    /// Whose it is.
    pub pid: u32,
    /// What.
    pub what: What,
}

/// Lines that were left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SkippedLines {
    /// How many.
    pub count: u64,
    /// The first: its number, and what was expected.
    pub first: Option<(usize, String)>,
}

/// What a log says, as far as it could be read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Log {
    /// What happened.
    pub entries: Vec<Entry>,
    /// Lines that are none.
    pub skipped: SkippedLines,
    /// Calls whose end is not there.
    pub unfinished: u64,
    /// Lines that were read.
    pub lines: usize,
}

/// The number of the first process, until one is known.
const FIRST: u32 = 0;

/// True for a call that answers with a new process's number.
fn makes_process(name: &str) -> bool {
    matches!(name, "clone" | "clone3" | "fork" | "vfork")
}

struct Reading<'a> {
    log: Log,
    /// What each process has begun: the line, the call's name and its text up to there.
    begun: BTreeMap<u32, (usize, String, &'a str)>,
    alive: BTreeSet<u32>,
    /// Processes that a call answered with.
    made: BTreeSet<u32>,
    /// Which number the first process has.
    first: Option<u32>,
    /// Sorting key of each entry: the line where it counts.
    at: Vec<usize>,
}

impl Log {
    /// Reads a log.
    pub fn read(bytes: &[u8]) -> Log {
        let text = String::from_utf8_lossy(bytes);
        let mut reading = Reading {
            log: Log::default(),
            begun: BTreeMap::new(),
            alive: BTreeSet::new(),
            made: made_processes(&text),
            first: None,
            at: Vec::new(),
        };
        for (index, line) in text.lines().enumerate() {
            reading.log.lines = index + 1;
            if !line.trim().is_empty()
                && let Err(expected) = reading.take(index + 1, line)
            {
                let skipped = &mut reading.log.skipped;
                skipped.count += 1;
                skipped.first.get_or_insert_with(|| (index + 1, expected.to_owned()));
            }
        }
        let Reading { mut log, begun, at, .. } = reading;
        log.unfinished += begun.len() as u64;
        let mut order: Vec<usize> = (0..at.len()).collect();
        order.sort_by_key(|&entry| at[entry]);
        let mut entries: Vec<Option<Entry>> = log.entries.into_iter().map(Some).collect();
        log.entries = order.into_iter().filter_map(|entry| entries[entry].take()).collect();
        log
    }
}

/// The numbers that calls which make processes have answered.
fn made_processes(text: &str) -> BTreeSet<u32> {
    let answer = |line: &str| {
        let (_, rest) = prefix(line);
        let name = rest.strip_prefix("<... ").unwrap_or(rest).split([' ', '(']).next()?;
        let (_, answer) = rest.rsplit_once("= ").filter(|_| makes_process(name))?;
        Arg(answer.to_owned()).pid()
    };
    text.lines().filter_map(answer).collect()
}

impl<'a> Reading<'a> {
    fn pid(&mut self, from: From) -> u32 {
        let pid = match from {
            From::Pid(pid) => {
                // No process made it: it is the one that had no number so far.
                if self.first.is_none() && self.alive.contains(&FIRST) && !self.made.contains(&pid) {
                    self.first = Some(pid);
                }
                if self.first == Some(pid) && self.alive.contains(&FIRST) { FIRST } else { pid }
            }
            From::Only if self.alive.len() == 1 => *self.alive.first().expect("there is one"),
            From::Only => FIRST,
        };
        self.alive.insert(pid);
        pid
    }

    fn take(&mut self, number: usize, line: &'a str) -> Result<(), &'static str> {
        let (from, rest) = prefix(line);
        match read(rest)? {
            Line::Aside => {}
            Line::Superseded => {
                self.pid(from);
            }
            Line::Exited => {
                let pid = self.pid(from);
                self.log.unfinished += u64::from(self.begun.remove(&pid).is_some());
                self.add(number, (number, number), pid, What::Exited);
                self.alive.remove(&pid);
            }
            Line::Begun { name, head } => {
                let pid = self.pid(from);
                self.log.unfinished += u64::from(self.begun.insert(pid, (number, name, head)).is_some());
            }
            Line::Becomes { name, head, pid: to } => {
                let thread = self.pid(from);
                let to = self.pid(From::Pid(to));
                // What the process had begun itself never ends.
                self.log.unfinished += u64::from(self.begun.insert(to, (number, name, head)).is_some());
                if thread != to {
                    self.alive.remove(&thread);
                }
            }
            Line::Resumed { name, tail } => {
                let pid = self.pid(from);
                let begun = self.begun.get(&pid).filter(|(_, begun, _)| begun == name);
                let (began, name, head) =
                    begun.ok_or("expected the beginning of this call before its end")?;
                let (began, name, head) = (*began, name.clone(), *head);
                self.begun.remove(&pid);
                let arguments = head.split_once('(').map_or("", |(_, arguments)| arguments);
                let whole = call(&name, &format!("{arguments} {tail}"))?;
                self.call(began, number, pid, whole);
            }
            whole @ Line::Call { .. } => {
                let pid = self.pid(from);
                self.call(number, number, pid, whole);
            }
        }
        Ok(())
    }

    fn call(&mut self, began: usize, ended: usize, pid: u32, whole: Line<'_>) {
        let Line::Call { name, args, answer, note, took_us } = whole else { return };
        if makes_process(&name)
            && let Answer::Value(child) = answer
            && let Ok(child) = u32::try_from(child)
        {
            self.alive.insert(child);
        }
        let counts = if makes_process(&name) { began } else { ended };
        self.add(counts, (began, ended), pid, What::Call(Call { name, args, answer, note, took_us }));
    }

    fn add(&mut self, counts: usize, (line, ended): (usize, usize), pid: u32, what: What) {
        self.log.entries.push(Entry { line, ended, pid, what });
        self.at.push(counts);
    }
}
