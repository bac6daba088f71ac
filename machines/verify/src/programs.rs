//! The programs: what the first process does, and whether every byte came out right.
//!
//! [`Experiment::Carry`] and [`Experiment::Echo`] do in a run that nobody conducts, too. The others share their judge
//! between processes by `Rc`, whose counts are no atomics, and so need that one CPU at a time goes on. That is how the
//! modelled machine runs, and a conducted one.
//!
//! The judge looks through the machine, in user mode, at memory that the process has just used, so that what it sees is
//! what the process would; that is part of the events, and the same on both machines.

use crate::counts::Counts;
use crate::edges;
use crate::process::{Process, Watcher};
use crate::random::Programs;
use crate::verdict::Verdict;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use pageferry_hal::{CpuId, Machine, Mode, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Program, ReceiveMode, SendMode, User};
use pageferry_vm::Inherit;
use pageferry_workloads::checked::{Checked, Onlooker};
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
    /// Calls and accesses up to the edges of what a program may use, and beyond.
    Edges,
    /// Programs of system calls at random ([`Programs`]), one after the other.
    Random,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Experiment; 9] = [
        Experiment::Carry,
        Experiment::Echo,
        Experiment::Pipe,
        Experiment::PingPong,
        Experiment::Loan,
        Experiment::Pipeline,
        Experiment::Mixed,
        Experiment::Edges,
        Experiment::Random,
    ];

    /// What is expected where one is named.
    pub const NAMES: &str = "experiment=carry, echo, pipe, ping-pong, loan, pipeline, mixed, edges or random";

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
            Experiment::Edges => "edges",
            Experiment::Random => "random",
        }
    }

    /// Whether it has to be conducted where CPUs run at the same time.
    pub const fn is_conducted(self) -> bool {
        !matches!(self, Experiment::Carry | Experiment::Echo)
    }

    /// The program of the first process, on a machine with so many CPUs; `random` are those at random.
    pub fn program<M: Machine>(self, cpus: usize, random: Programs, verdict: &Arc<Verdict>) -> Program<M> {
        let verdict = verdict.clone();
        Box::new(move |user: &User<M>| {
            let ended = match self {
                Experiment::Random => {
                    random.run(user, &verdict);
                    Ok(())
                }
                _ => self.run(user, cpus, &verdict),
            };
            verdict.ends(ended);
        })
    }

    fn run<M: Machine>(self, user: &User<M>, cpus: usize, verdict: &Arc<Verdict>) -> Result<(), CallError> {
        // The ends on two CPUs, where there are two: else little is shared.
        let ends = (cpus > 1).then_some([CpuId(0), CpuId(cpus as u8 - 1)]);
        const SIZE: usize = 32 << 10;
        let program = match self {
            Experiment::Carry => return carry(user, verdict).map_err(|errno| ("carry", errno)),
            Experiment::Echo => return echo(user, ends, verdict).map_err(|errno| ("echo", errno)),
            Experiment::Edges => return edges::run(user, verdict).map_err(|errno| ("edges", errno)),
            Experiment::Pipe => {
                let chunk_bytes = 64 << 10;
                let (warmup_bytes, total_bytes) = (128 << 10, 1 << 20);
                Checked::Pipe(pipe::Pipe { chunk_bytes, warmup_bytes, total_bytes, cpus: ends })
            }
            Experiment::PingPong => Checked::PingPong(ping_pong::PingPong {
                by: By::Pass,
                touch: true,
                size_bytes: SIZE,
                warmup_transfers: 4,
                transfers: 36,
                loop_instructions: 0,
            }),
            Experiment::Loan => Checked::UvmPipe(uvm_pipe::UvmPipe {
                size_bytes: SIZE,
                warmup_writes: 2,
                total_bytes: 640 << 10,
                send: SendMode::Loan,
                receive: ReceiveMode::Transfer,
                refill: true,
            }),
            Experiment::Pipeline => Checked::Pipeline(pipeline::Pipeline {
                by: By::Pass,
                send: SendMode::Copy,
                size_bytes: SIZE,
                warmup_rounds: 2,
                rounds: 14,
                loop_instructions: 0,
            }),
            Experiment::Random => return Ok(()),
            Experiment::Mixed => {
                let (send, receive) = (SendMode::Copy, ReceiveMode::Copy);
                Checked::Mixed(mixed::Mixed { warmup_rounds: 0, rounds: 1, send, receive })
            }
        };
        let os = Process::new(user, &Watcher(verdict.clone()));
        let machine = user.machine().clone();
        program.run(&os, Looker { machine, verdict: verdict.clone(), counts: None })
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

/// Looks through the machine, in user mode, at what the process has just used.
struct Looker<M> {
    machine: M,
    verdict: Arc<Verdict>,
    /// Told where the measured part begins and ends, if anybody is.
    counts: Option<Arc<Counts>>,
}

impl<M: Machine> Onlooker for Looker<M> {
    fn load(&self, from: Va, bytes: &mut [u8]) -> bool {
        self.machine.load(Mode::User, from, bytes).is_ok()
    }

    fn store(&self, at: Va, bytes: &[u8]) -> bool {
        self.machine.store(Mode::User, at, bytes).is_ok()
    }

    fn compares(&self, found: &[u8], expected: &[u8]) {
        self.verdict.compares(found, expected);
    }

    fn falls_short(&self) {
        self.verdict.falls_short();
    }

    fn begins(&self) {
        self.counts.iter().for_each(|counts| counts.begin());
    }

    fn ends(&self) {
        self.counts.iter().for_each(|counts| counts.end());
    }
}

/// The first process runs one of the small programs, and says where its measured part begins and ends.
pub fn counted<M: Machine>(program: Checked, counts: &Arc<Counts>, verdict: &Arc<Verdict>) -> Program<M> {
    let (counts, verdict) = (counts.clone(), verdict.clone());
    Box::new(move |user: &User<M>| {
        let os = Process::new(user, &Watcher(verdict.clone()));
        let machine = user.machine().clone();
        let ended = program.run(&os, Looker { machine, verdict: verdict.clone(), counts: Some(counts) });
        verdict.ends(ended);
    })
}
