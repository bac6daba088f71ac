//! The programs: what the first process does, and whether every byte came out right.
//!
//! [`Experiment::Carry`] and [`Experiment::Echo`] do in a run that nobody conducts, too. The others share their judge
//! between processes by `Rc`, whose counts are no atomics, and so need that one CPU at a time goes on. That is how the
//! modelled machine runs, and a conducted one.
//!
//! The judge looks through the machine, in user mode, at memory that the process has just used, so that what it sees is
//! what the process would; that is part of the events, and the same on both machines.

use crate::process::{Process, Watcher};
use crate::verdict::Verdict;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use pageferry_hal::{CpuId, Machine, Mode, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Pid, Program, ReceiveMode, SendMode, User};
use pageferry_vm::Inherit;
use pageferry_workloads::{By, CallError, mixed, ping_pong, pipe, pipeline, uvm_pipe};

/// What the first process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Experiment {
    /// A megabyte, each page another, goes through a pipe once.
    Carry,
    /// A buffer goes to another process, on another CPU, and back, by two pipes, each time with other contents.
    Echo,
    /// Buffers go through a pipe, each with other contents (lmbench's `bw_pipe`).
    Pipe,
    /// A buffer goes to and fro between two processes, which pass it and change it.
    PingPong,
    /// Buffers are lent through a pipe of sockets, and transferred out of it.
    Loan,
    /// Buffers go through three processes, which pass them and change them.
    Pipeline,
    /// Buffers of four sizes, copied through a pipe of sockets.
    Mixed,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Experiment; 7] = [
        Experiment::Carry,
        Experiment::Echo,
        Experiment::Pipe,
        Experiment::PingPong,
        Experiment::Loan,
        Experiment::Pipeline,
        Experiment::Mixed,
    ];

    /// What is expected where one is named.
    pub const NAMES: &str = "experiment=carry, echo, pipe, ping-pong, loan, pipeline or mixed";

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Experiment::Carry => "carry",
            Experiment::Echo => "echo",
            Experiment::Pipe => "pipe",
            Experiment::PingPong => "ping-pong",
            Experiment::Loan => "loan",
            Experiment::Pipeline => "pipeline",
            Experiment::Mixed => "mixed",
        }
    }

    /// Whether it has to be conducted where CPUs run at the same time.
    pub const fn is_conducted(self) -> bool {
        !matches!(self, Experiment::Carry | Experiment::Echo)
    }

    /// The program of the first process, on a machine with so many CPUs.
    pub fn program<M: Machine>(self, cpus: usize, verdict: &Arc<Verdict>) -> Program<M> {
        let verdict = verdict.clone();
        Box::new(move |user: &User<M>| {
            let ended = self.run(user, cpus, &verdict);
            verdict.ends(ended);
        })
    }

    fn run<M: Machine>(self, user: &User<M>, cpus: usize, verdict: &Arc<Verdict>) -> Result<(), CallError> {
        let os = Process::new(user, &Watcher(verdict.clone()));
        let judge = |sizes: &[usize]| Rc::new(Judge::new(user.machine(), verdict, sizes));
        // The ends on two CPUs, where there are two: else little is shared.
        let ends = (cpus > 1).then_some([CpuId(0), CpuId(cpus as u8 - 1)]);
        match self {
            Experiment::Carry => carry(user, verdict).map_err(|errno| ("carry", errno)),
            Experiment::Echo => echo(user, ends, verdict).map_err(|errno| ("echo", errno)),
            Experiment::Pipe => {
                let chunk_bytes = 64 << 10;
                let (warmup_bytes, total_bytes) = (128 << 10, 1 << 20);
                let program = pipe::Pipe { chunk_bytes, warmup_bytes, total_bytes, cpus: ends };
                program.run(&os, &judge(&[chunk_bytes]))
            }
            Experiment::PingPong => {
                let (size_bytes, warmup_transfers, transfers) = (32 << 10, 4, 36);
                let (by, touch, loop_instructions) = (By::Pass, true, 0);
                let game = ping_pong::PingPong {
                    by,
                    touch,
                    size_bytes,
                    warmup_transfers,
                    transfers,
                    loop_instructions,
                };
                game.run(&os, &judge(&[size_bytes]))
            }
            Experiment::Loan => {
                let (size_bytes, warmup_writes, total_bytes) = (32 << 10, 2, 640 << 10);
                let (send, receive, refill) = (SendMode::Loan, ReceiveMode::Transfer, true);
                let program =
                    uvm_pipe::UvmPipe { size_bytes, warmup_writes, total_bytes, send, receive, refill };
                program.run(&os, &judge(&[size_bytes]))
            }
            Experiment::Pipeline => {
                let (size_bytes, warmup_rounds, rounds) = (32 << 10, 2, 14);
                let (by, send, loop_instructions) = (By::Pass, SendMode::Copy, 0);
                let line =
                    pipeline::Pipeline { by, send, size_bytes, warmup_rounds, rounds, loop_instructions };
                line.run(&os, &judge(&[size_bytes]))
            }
            Experiment::Mixed => {
                let (send, receive) = (SendMode::Copy, ReceiveMode::Copy);
                let program = mixed::Mixed { warmup_rounds: 0, rounds: 1, send, receive };
                program.run(&os, &judge(&mixed::SIZES_BYTES))
            }
        }
    }
}

/// Sends itself a megabyte through a pipe, by way of a child.
fn carry<M: Machine>(user: &User<M>, verdict: &Arc<Verdict>) -> Result<(), Errno> {
    const LEN_BYTES: usize = 1 << 20;
    let byte = |page: usize| (page * 31 % 251) as u8;
    let (read_end, write_end) = user.pipe()?;
    let memory = user.map(LEN_BYTES, Prot::RW, Inherit::Copy)?;
    let writer = move |user: &User<M>| {
        for page in 0..LEN_BYTES / PAGE_SIZE {
            user.store(memory + page * PAGE_SIZE, &[byte(page); PAGE_SIZE]);
        }
        // A reader that has gone away is the reader's business.
        let _ = user.write(write_end, memory, LEN_BYTES);
    };
    user.fork("writer", Box::new(writer))?;
    user.close(write_end)?;
    let mut received = 0;
    while received < LEN_BYTES {
        match user.read(read_end, memory + received, LEN_BYTES - received)? {
            0 => break,
            n => received += n,
        }
    }
    user.wait()?;
    let mut page_bytes = vec![0; PAGE_SIZE];
    for page in 0..LEN_BYTES / PAGE_SIZE {
        user.load(memory + page * PAGE_SIZE, &mut page_bytes);
        verdict.compares(&page_bytes, &[byte(page); PAGE_SIZE]);
    }
    Ok(())
}

/// Sends a buffer to a child and gets it back, each time with other contents, which both look at. Each end is on a CPU
/// of its own, and reads what the other has mapped: so both CPUs use the kernel's addresses for that in turn.
fn echo<M: Machine>(user: &User<M>, ends: Option<[CpuId; 2]>, verdict: &Arc<Verdict>) -> Result<(), Errno> {
    const LEN_BYTES: usize = 8 * PAGE_SIZE;
    const ROUNDS: usize = 12;
    let byte = move |round: usize, page: usize, back: bool| (round * 20 + page * 2 + usize::from(back)) as u8;
    let fill = move |user: &User<M>, memory: Va, round: usize, back: bool| {
        for page in 0..LEN_BYTES / PAGE_SIZE {
            user.store(memory + page * PAGE_SIZE, &[byte(round, page, back); PAGE_SIZE]);
        }
    };
    let look = move |user: &User<M>, verdict: &Verdict, memory: Va, round: usize, back: bool| {
        let mut page_bytes = vec![0; PAGE_SIZE];
        for page in 0..LEN_BYTES / PAGE_SIZE {
            user.load(memory + page * PAGE_SIZE, &mut page_bytes);
            verdict.compares(&page_bytes, &[byte(round, page, back); PAGE_SIZE]);
        }
    };
    let receive = move |user: &User<M>, from, memory: Va| {
        let mut received = 0;
        while received < LEN_BYTES {
            match user.read(from, memory + received, LEN_BYTES - received)? {
                0 => break,
                n => received += n,
            }
        }
        Ok::<bool, Errno>(received == LEN_BYTES)
    };
    let (there, to_there) = user.pipe()?;
    let (back, to_back) = user.pipe()?;
    let theirs = verdict.clone();
    let child = move |user: &User<M>| {
        let run = || {
            user.bind_cpu(ends.map(|ends| ends[1]))?;
            let memory = user.map(LEN_BYTES, Prot::RW, Inherit::Copy)?;
            for round in 0..ROUNDS {
                if !receive(user, there, memory)? {
                    break;
                }
                look(user, &theirs, memory, round, false);
                fill(user, memory, round, true);
                user.write(to_back, memory, LEN_BYTES)?;
            }
            Ok(())
        };
        theirs.ends(run().map_err(|errno| ("echo", errno)));
    };
    user.fork("echo", Box::new(child))?;
    user.bind_cpu(ends.map(|ends| ends[0]))?;
    let memory = user.map(LEN_BYTES, Prot::RW, Inherit::Copy)?;
    for round in 0..ROUNDS {
        fill(user, memory, round, false);
        user.write(to_there, memory, LEN_BYTES)?;
        if !receive(user, back, memory)? {
            break;
        }
        look(user, verdict, memory, round, true);
    }
    user.wait()?;
    Ok(())
}

/// Different contents of a buffer: more than a pipe can have on its way.
const VARIANTS: u64 = 8;

/// Fills buffers and compares them.
struct Judge<M> {
    machine: M,
    verdict: Arc<Verdict>,
    /// Of each size, all variants.
    contents: Vec<Vec<Vec<u8>>>,
}

impl<M: Machine> Judge<M> {
    fn new(machine: &M, verdict: &Arc<Verdict>, sizes: &[usize]) -> Judge<M> {
        // Another byte at each place of a page, on each page, and in each variant.
        let byte = |at: usize, variant: u64| (at + at / PAGE_SIZE * 7 + variant as usize * 31) as u8;
        let filled = |len: usize, variant| (0..len).map(|at| byte(at, variant)).collect();
        let contents = sizes.iter().map(|&len| (0..VARIANTS).map(|v| filled(len, v)).collect()).collect();
        Judge { machine: machine.clone(), verdict: verdict.clone(), contents }
    }

    fn contents(&self, size: usize, index: u64) -> &[u8] {
        &self.contents[size][(index % VARIANTS) as usize]
    }

    /// Looks at what lies at `at`. What is not there is wrong.
    fn compare(&self, at: Va, expected: &[u8]) {
        let mut found = vec![0; expected.len()];
        if self.machine.load(Mode::User, at, &mut found).is_err() {
            found.iter_mut().zip(expected).for_each(|(found, expected)| *found = !expected);
        }
        self.verdict.compares(&found, expected);
    }

    /// As [`Judge::compare`], for a part of a stream of buffers of one size.
    fn compare_stream(&self, buffer: Va, at: u64, len: usize, of_index: impl Fn(u64) -> u64) {
        let size = self.contents[0][0].len() as u64;
        let mut done = 0;
        while done < len {
            let (index, offset) = ((at + done as u64) / size, (at + done as u64) % size);
            let n = (len - done).min((size - offset) as usize);
            let expected = &self.contents(0, of_index(index))[offset as usize..][..n];
            self.compare(buffer + done, expected);
            done += n;
        }
    }

    fn ended_early(&self) {
        self.verdict.falls_short();
    }
}

impl<M: Machine> pipe::Judge for Judge<M> {
    fn contents(&self) -> &[u8] {
        self.contents(0, 0)
    }

    fn sends(&self, buffer: Va, at: u64, len: usize) {
        let index = at / self.contents[0][0].len() as u64;
        // The buffer was stored to: it is there.
        if self.machine.store(Mode::User, buffer, &self.contents(0, index)[..len]).is_err() {
            self.ended_early();
        }
    }

    fn begins(&self) {}

    fn arrived(&self, buffer: Va, at: u64, len: usize) {
        self.compare_stream(buffer, at, len, |index| index);
    }

    fn ended_early(&self, _: u64, _: u64) {
        self.ended_early();
    }

    fn ends(&self) {}
}

impl<M: Machine> ping_pong::Judge for Judge<M> {
    fn contents(&self, index: u64) -> &[u8] {
        self.contents(0, index)
    }

    fn refills(&self, _: Pid, _: Va, _: u64) {}

    fn begins(&self) {}

    fn arrived(&self, _: Pid, buffer: Va, index: u64) {
        self.compare(buffer, self.contents(0, index));
    }

    fn ends(&self) {}
}

impl<M: Machine> pipeline::Judge for Judge<M> {
    fn contents(&self, index: u64) -> &[u8] {
        self.contents(0, index)
    }

    fn begins(&self) {}

    fn arrived(&self, _: Pid, buffer: Va, index: u64) {
        self.compare(buffer, self.contents(0, index));
    }

    fn ends(&self) {}
}

impl<M: Machine> uvm_pipe::Judge for Judge<M> {
    fn contents(&self, index: u64) -> &[u8] {
        self.contents(0, index)
    }

    fn refills(&self, _: Va, _: u64) {}

    fn begins(&self) {}

    fn arrived(&self, buffer: Va, at: u64, len: usize) {
        self.compare_stream(buffer, at, len, |index| index);
    }

    fn ended_early(&self, _: u64, _: u64) {
        self.ended_early();
    }

    fn ends(&self) {}
}

impl<M: Machine> mixed::Judge for Judge<M> {
    fn contents(&self, size: usize) -> &[u8] {
        self.contents(size, 0)
    }

    fn begins(&self) {}

    fn arrived(&self, _: Pid, buffer: Va, size: usize) {
        self.compare(buffer, self.contents(size, 0));
    }

    fn ended_early(&self, _: u64) {
        self.ended_early();
    }

    fn ends(&self) {}
}
