//! The programs by their names, with a judge that looks at every byte, for whoever runs them on several kinds of
//! machine.
//!
//! What is looked at, and how, is the matter of an [`Onlooker`]: it lies between the judge and the memory of the
//! process that tells of it. The bytes are the same ones wherever a program runs.
//!
//! What fails is a line: a name that is none, a word that makes no sense. See [`Checked::parse`].

use crate::choice::{By, Pin};
use crate::os::{CallError, Os};
use crate::{invalidate, mixed, null_read, null_write, ping_pong, pipe, pipeline, uvm_pipe};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use pageferry_abi::{Pid, ReceiveMode, SendMode};
use pageferry_hal::{PAGE_SIZE, Va};

/// Looks at the memory of the process that is about to do something, and is told what was found.
pub trait Onlooker: 'static {
    /// Loads bytes of a buffer; false if they are not there.
    fn load(&self, from: Va, bytes: &mut [u8]) -> bool;
    /// Stores bytes to a buffer; false if it is not there.
    fn store(&self, at: Va, bytes: &[u8]) -> bool;
    /// Bytes were found where others were expected, or the same ones.
    fn compares(&self, found: &[u8], expected: &[u8]);
    /// Less came than was sent.
    fn falls_short(&self);
    /// The measured part begins; again when the warm-up is over.
    fn begins(&self);
    /// It is over.
    fn ends(&self);
}

/// A program and its parameters.
#[derive(Clone, Copy, Debug)]
pub enum Checked {
    /// `bw-pipe`.
    Pipe(pipe::Pipe),
    /// `uvm-pipe`.
    UvmPipe(uvm_pipe::UvmPipe),
    /// `ping-pong`.
    PingPong(ping_pong::PingPong),
    /// `pipeline`.
    Pipeline(pipeline::Pipeline),
    /// `mixed`.
    Mixed(mixed::Mixed),
    /// `null-read`.
    NullRead(null_read::NullRead),
    /// `null-write`.
    NullWrite(null_write::NullWrite),
    /// `invalidate`.
    Invalidate(invalidate::Invalidate),
}

/// A word of a line that is not understood, and what was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadWord<'a> {
    /// The word.
    pub word: &'a str,
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for BadWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: expected {}", self.word, self.expected)
    }
}

/// The words behind a program's name.
struct Words<'a> {
    left: Vec<(&'a str, &'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn of(line: impl Iterator<Item = &'a str>) -> Result<Words<'a>, BadWord<'a>> {
        let pair = |word: &'a str| {
            let (name, value) = word.split_once('=').ok_or(BadWord { word, expected: "name=value" })?;
            Ok((word, name, value))
        };
        Ok(Words { left: line.map(pair).collect::<Result<_, _>>()? })
    }

    /// The value of a name, if a word has it.
    fn value(&mut self, name: &str) -> Option<(&'a str, &'a str)> {
        let at = self.left.iter().position(|(_, other, _)| *other == name)?;
        let (word, _, value) = self.left.remove(at);
        Some((word, value))
    }

    fn number(&mut self, name: &str, default: u64) -> Result<u64, BadWord<'a>> {
        // What is more than memory holds would only end in the middle.
        const MAX: u64 = 1 << 32;
        let Some((word, value)) = self.value(name) else { return Ok(default) };
        let number = value.parse().ok().filter(|number| *number <= MAX);
        number.ok_or(BadWord { word, expected: "a number up to 2^32" })
    }

    fn size(&mut self, name: &str, default: usize) -> Result<usize, BadWord<'a>> {
        let Some((word, value)) = self.value(name) else { return Ok(default) };
        let size = value.parse().ok().filter(|size| (1..=1 << 20).contains(size));
        size.ok_or(BadWord { word, expected: "1 byte to 1 MB" })
    }

    fn one_of<T: Copy>(
        &mut self,
        name: &str,
        all: &[(&str, T)],
        expected: &'static str,
    ) -> Result<T, BadWord<'a>> {
        let Some((word, value)) = self.value(name) else { return Ok(all[0].1) };
        let found = all.iter().find(|(other, _)| *other == value);
        found.map(|(_, value)| *value).ok_or(BadWord { word, expected })
    }

    fn send(&mut self) -> Result<SendMode, BadWord<'a>> {
        let all = [("copy", SendMode::Copy), ("loan", SendMode::Loan)];
        self.one_of("send", &all, "send=copy or loan")
    }

    fn receive(&mut self) -> Result<ReceiveMode, BadWord<'a>> {
        let all = [("copy", ReceiveMode::Copy), ("transfer", ReceiveMode::Transfer)];
        self.one_of("receive", &all, "receive=copy or transfer")
    }

    fn by(&mut self) -> Result<By, BadWord<'a>> {
        self.one_of("by", &[("socket", By::Socket), ("pass", By::Pass)], "by=socket or pass")
    }
}

impl Checked {
    /// The programs' names: those of the lab's experiments.
    pub const NAMES: [&str; 8] =
        ["bw-pipe", "uvm-pipe", "ping-pong", "pipeline", "mixed", "null-read", "null-write", "invalidate"];

    /// The program of a line: its name, and parameters of the form `name=value`, which are those of the experiment of
    /// that name. `cpus` is how many there are.
    ///
    /// # Errors
    /// [`BadWord`].
    pub fn parse(line: &str, cpus: usize) -> Result<Checked, BadWord<'_>> {
        const SIZE: usize = 64 << 10;
        let mut line = line.split_ascii_whitespace();
        let name = line.next().unwrap_or_default();
        let mut words = Words::of(line)?;
        let w = &mut words;
        let program = match name {
            "bw-pipe" => {
                let pins = [("free", Pin::Free), ("same", Pin::Same), ("other", Pin::Other)];
                let chunk_bytes = w.size("chunk_bytes", SIZE)?;
                Checked::Pipe(pipe::Pipe {
                    chunk_bytes,
                    warmup_bytes: w.number("warmup_chunks", 4)? * chunk_bytes as u64,
                    total_bytes: w.number("total_bytes", 4 << 20)?,
                    cpus: w.one_of("pin", &pins, "pin=free, same or other")?.cpus(cpus),
                })
            }
            "uvm-pipe" => Checked::UvmPipe(uvm_pipe::UvmPipe {
                size_bytes: w.size("size_bytes", SIZE)?,
                warmup_writes: w.number("warmup_writes", 2)?,
                total_bytes: w.number("total_bytes", 4 << 20)?,
                send: w.send()?,
                receive: w.receive()?,
                refill: false,
            }),
            "ping-pong" => Checked::PingPong(ping_pong::PingPong {
                by: w.by()?,
                touch: true,
                size_bytes: w.size("size_bytes", SIZE)?,
                warmup_transfers: 2 * w.number("warmup_rounds", 2)?,
                transfers: 2 * w.number("rounds", 4)?,
                loop_instructions: 0,
            }),
            "pipeline" => Checked::Pipeline(pipeline::Pipeline {
                by: w.by()?,
                send: w.send()?,
                size_bytes: w.size("size_bytes", SIZE)?,
                warmup_rounds: w.number("warmup_rounds", 4)?,
                rounds: w.number("rounds", 8)?,
                loop_instructions: 0,
            }),
            "mixed" => Checked::Mixed(mixed::Mixed {
                warmup_rounds: w.number("warmup_rounds", 1)?,
                rounds: w.number("rounds", 2)?,
                send: w.send()?,
                receive: w.receive()?,
            }),
            "null-read" => {
                let size_bytes = w.size("size_bytes", SIZE)?;
                Checked::NullRead(null_read::NullRead {
                    size_bytes,
                    warmup: w.number("warmup_reads", 2)?,
                    reads: (w.number("total_bytes", 4 << 20)? / size_bytes as u64).max(1),
                    mode: w.receive()?,
                })
            }
            "null-write" => {
                let size_bytes = w.size("size_bytes", SIZE)?;
                Checked::NullWrite(null_write::NullWrite {
                    size_bytes,
                    warmup: w.number("warmup_writes", 2)?,
                    writes: (w.number("total_bytes", 4 << 20)? / size_bytes as u64).max(1),
                    mode: w.send()?,
                })
            }
            "invalidate" => {
                let times = u32::try_from(w.number("times", 5000)?).unwrap_or(u32::MAX);
                Checked::Invalidate(invalidate::Invalidate { times, remote: cpus > 1 })
            }
            _ => {
                return Err(BadWord {
                    word: name,
                    expected: "bw-pipe, uvm-pipe, ping-pong, pipeline, mixed, null-read, null-write or invalidate",
                });
            }
        };
        match words.left.first() {
            None => Ok(program),
            Some(&(word, ..)) => Err(BadWord { word, expected: "a parameter of the experiment" }),
        }
    }

    /// Whether its pipe is a pair of sockets.
    pub fn pipes_are_sockets(&self) -> bool {
        matches!(self, Checked::UvmPipe(_) | Checked::Mixed(_))
    }

    /// Runs it, and looks at every byte.
    ///
    /// # Errors
    /// A system call that failed.
    pub fn run(self, os: &dyn Os, onlooker: impl Onlooker) -> Result<(), CallError> {
        fn with<O>(sizes: &[usize], onlooker: O) -> Rc<Watching<O>> {
            Rc::new(Watching { judge: Judge::new(sizes), lent: None, onlooker })
        }
        match self {
            Checked::Pipe(program) => program.run(os, &with(&[program.chunk_bytes], onlooker)),
            Checked::UvmPipe(program) => {
                let judge = Judge::new(&[program.size_bytes]);
                program.run(os, &Rc::new(Watching { judge, lent: Some(program), onlooker }))
            }
            Checked::PingPong(program) => program.run(os, &with(&[program.size_bytes], onlooker)),
            Checked::Pipeline(program) => program.run(os, &with(&[program.size_bytes], onlooker)),
            Checked::Mixed(program) => program.run(os, &with(&mixed::SIZES_BYTES, onlooker)),
            Checked::NullRead(program) => {
                let mut judge = Nulls { contents: Vec::new(), onlooker };
                program.run(os, &mut judge)?;
                judge.onlooker.ends();
                Ok(())
            }
            Checked::NullWrite(program) => {
                let mut judge = Nulls { contents: vec![7; program.size_bytes], onlooker };
                program.run(os, &mut judge)?;
                judge.onlooker.ends();
                Ok(())
            }
            Checked::Invalidate(program) => {
                onlooker.begins();
                program.run(os, &mut |_, _| {})?;
                onlooker.ends();
                // There are no bytes to be wrong.
                onlooker.compares(&[0], &[0]);
                Ok(())
            }
        }
    }
}

/// Different contents of a buffer: more than a pipe can have on its way.
const VARIANTS: u64 = 8;

/// What buffers hold.
struct Judge {
    /// Of each size, all variants.
    contents: Vec<Vec<Vec<u8>>>,
}

impl Judge {
    fn new(sizes: &[usize]) -> Judge {
        // Another byte at each place of a page, on each page, and in each variant.
        let byte = |at: usize, variant: u64| (at + at / PAGE_SIZE * 7 + variant as usize * 31) as u8;
        let filled = |len: usize, variant| (0..len).map(|at| byte(at, variant)).collect();
        Judge { contents: sizes.iter().map(|&len| (0..VARIANTS).map(|v| filled(len, v)).collect()).collect() }
    }

    fn contents(&self, size: usize, index: u64) -> &[u8] {
        &self.contents[size][(index % VARIANTS) as usize]
    }
}

/// Fills buffers and compares them.
struct Watching<O> {
    judge: Judge,
    /// The program that may have sent the same contents again, for what it has lent must stay as it is.
    lent: Option<uvm_pipe::UvmPipe>,
    onlooker: O,
}

impl<O: Onlooker> Watching<O> {
    fn contents(&self, size: usize, index: u64) -> &[u8] {
        self.judge.contents(size, index)
    }

    /// Looks at what lies at `at`. What is not there is wrong.
    fn compare(&self, at: Va, expected: &[u8]) {
        let mut found = vec![0; expected.len()];
        if !self.onlooker.load(at, &mut found) {
            found.iter_mut().zip(expected).for_each(|(found, expected)| *found = !expected);
        }
        self.onlooker.compares(&found, expected);
    }

    /// As [`Watching::compare`], for a part of a stream of buffers of one size.
    fn compare_stream(&self, buffer: Va, at: u64, len: usize) {
        let size = self.judge.contents[0][0].len() as u64;
        let mut done = 0;
        while done < len {
            let (index, offset) = ((at + done as u64) / size, (at + done as u64) % size);
            let n = (len - done).min((size - offset) as usize);
            let index = self.lent.map_or(index, |program| program.filled_for(index));
            self.compare(buffer + done, &self.contents(0, index)[offset as usize..][..n]);
            done += n;
        }
    }
}

impl<O: Onlooker> pipe::Judge for Watching<O> {
    fn contents(&self) -> &[u8] {
        self.contents(0, 0)
    }

    fn sends(&self, buffer: Va, at: u64, len: usize) {
        let index = at / self.judge.contents[0][0].len() as u64;
        // The buffer was stored to: it is there.
        if !self.onlooker.store(buffer, &self.contents(0, index)[..len]) {
            self.onlooker.falls_short();
        }
    }

    fn begins(&self) {
        self.onlooker.begins();
    }

    fn arrived(&self, buffer: Va, at: u64, len: usize) {
        self.compare_stream(buffer, at, len);
    }

    fn ended_early(&self, _: u64, _: u64) {
        self.onlooker.falls_short();
    }

    fn ends(&self) {
        self.onlooker.ends();
    }
}

impl<O: Onlooker> ping_pong::Judge for Watching<O> {
    fn contents(&self, index: u64) -> &[u8] {
        self.contents(0, index)
    }

    fn refills(&self, _: Pid, _: Va, _: u64) {}

    fn begins(&self) {
        self.onlooker.begins();
    }

    fn arrived(&self, _: Pid, buffer: Va, index: u64) {
        self.compare(buffer, self.contents(0, index));
    }

    fn ends(&self) {
        self.onlooker.ends();
    }
}

impl<O: Onlooker> pipeline::Judge for Watching<O> {
    fn contents(&self, index: u64) -> &[u8] {
        self.contents(0, index)
    }

    fn begins(&self) {
        self.onlooker.begins();
    }

    fn arrived(&self, _: Pid, buffer: Va, index: u64) {
        self.compare(buffer, self.contents(0, index));
    }

    fn ends(&self) {
        self.onlooker.ends();
    }
}

impl<O: Onlooker> uvm_pipe::Judge for Watching<O> {
    fn contents(&self, index: u64) -> &[u8] {
        self.contents(0, index)
    }

    fn refills(&self, buffer: Va, index: u64) {
        if !self.onlooker.store(buffer, self.contents(0, index)) {
            self.onlooker.falls_short();
        }
    }

    fn begins(&self) {
        self.onlooker.begins();
    }

    fn arrived(&self, buffer: Va, at: u64, len: usize) {
        self.compare_stream(buffer, at, len);
    }

    fn ended_early(&self, _: u64, _: u64) {
        self.onlooker.falls_short();
    }

    fn ends(&self) {
        self.onlooker.ends();
    }
}

impl<O: Onlooker> mixed::Judge for Watching<O> {
    fn contents(&self, size: usize) -> &[u8] {
        self.contents(size, 0)
    }

    fn begins(&self) {
        self.onlooker.begins();
    }

    fn arrived(&self, _: Pid, buffer: Va, size: usize) {
        self.compare(buffer, self.contents(size, 0));
    }

    fn ended_early(&self, _: u64) {
        self.onlooker.falls_short();
    }

    fn ends(&self) {
        self.onlooker.ends();
    }
}

/// Of null sockets only lengths are known: they answer with whatever there is.
struct Nulls<O> {
    contents: Vec<u8>,
    onlooker: O,
}

impl<O: Onlooker> null_read::Judge for Nulls<O> {
    fn begins(&mut self, _: usize) {
        self.onlooker.begins();
    }

    fn reads(&mut self, _: u64) {}

    fn read(&mut self, _: Va, _: u64, len: usize) {
        if len == 0 {
            self.onlooker.falls_short();
        }
        self.onlooker.compares(&[0], &[0]);
    }

    fn flushed(&mut self, _: usize) {}
}

impl<O: Onlooker> null_write::Judge for Nulls<O> {
    fn contents(&self) -> &[u8] {
        &self.contents
    }

    fn begins(&mut self) {
        self.onlooker.begins();
    }

    fn writes(&mut self, _: Va, _: u64) {}

    fn wrote(&mut self, _: Va, _: u64, len: usize) {
        if len == 0 {
            self.onlooker.falls_short();
        }
        self.onlooker.compares(&[0], &[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_programs_or_say_what_is_wrong() {
        for name in Checked::NAMES {
            assert!(Checked::parse(name, 1).is_ok(), "{name}");
        }
        let Ok(Checked::Pipe(pipe)) = Checked::parse("bw-pipe chunk_bytes=8192 warmup_chunks=2 pin=other", 4)
        else {
            panic!("it is a pipe");
        };
        assert_eq!((pipe.chunk_bytes, pipe.warmup_bytes), (8192, 16384));
        assert_eq!(pipe.cpus.map(|cpus| cpus[1].0), Some(3));
        for (line, word) in [
            ("", ""),
            ("bw", "bw"),
            ("bw-pipe chunk", "chunk"),
            ("bw-pipe chunk_bytes=0", "chunk_bytes=0"),
            ("bw-pipe chunks=1", "chunks=1"),
            ("uvm-pipe send=auto", "send=auto"),
            ("mixed rounds=-1", "rounds=-1"),
        ] {
            assert_eq!(Checked::parse(line, 1).map_err(|bad| bad.word).err(), Some(word), "{line}");
        }
    }
}
