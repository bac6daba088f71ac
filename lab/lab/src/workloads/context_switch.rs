//! Context switches as lmbench measures them (`lat_ctx`, McVoy and Staelin, USENIX 1996): processes in a ring hand a
//! word round through pipes, and each sums an array of its own whenever it has the word.
//!
//! What a hop takes beside the switch is measured apart, as `lat_ctx` does: the first process writes the word to a pipe
//! of its own, reads it there, and sums its array. What is left of a hop is the switch: the kernel's way to the other
//! process, and what that finds missing in TLBs and caches. All processes are on one CPU. The word counts the hops, so
//! that a lost one is seen, and sums are compared.

use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Stopwatch, first_process, named, other_process};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{CpuId, Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;

/// Bytes of the word that goes round.
const WORD: usize = 8;

#[derive(Clone)]
pub(crate) struct ContextSwitch {
    model: Model,
    cell: OutcomeCell,
    processes: usize,
    size_bytes: usize,
    warmup_rounds: u64,
    rounds: u64,
    clock_mhz: f64,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        processes: usize = 2..=100,
        size_bytes: usize = 0..=1 << 20,
        rounds: u64 = 1..=1 << 20,
        warmup_rounds: u64 = 1..=1 << 20,
    }
}

impl Workload for ContextSwitch {
    const NAME: &'static str = "context-switch";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        let hops = p.rounds.saturating_add(p.warmup_rounds).saturating_mul(2 * p.processes as u64);
        hops.saturating_mul(20 + p.size_bytes as u64 / 4096) + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric("null_call_us", "us", "Modelled time of a system call that does nothing."),
            metric(
                "hop_us",
                "us",
                "Modelled time until the next process has the word and has summed its array.",
            ),
            metric("own_us", "us", "The same by one process alone, with a pipe of its own."),
            metric("switch_us", "us", "What a hop takes more: the switch, and what is cold behind it."),
        ]
    }

    /// The program of the first process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let work = ContextSwitch {
            model: testbed.model.clone(),
            cell,
            processes: p.processes,
            size_bytes: p.size_bytes,
            warmup_rounds: p.warmup_rounds,
            rounds: p.rounds,
            clock_mhz: testbed.clock_mhz(),
        };
        let bytes = work.processes * (work.size_bytes + 4 * PAGE_SIZE);
        Ok(first_process(work.cell.clone(), bytes, move |user| work.first(user)))
    }
}

/// What a process has: where the word comes from and goes to, and its memory.
struct Own {
    from: Fd,
    to: Fd,
    word: Va,
    array: Option<Va>,
}

impl ContextSwitch {
    fn first(&self, user: &User<Model>) -> Result<(), CallError> {
        user.bind_cpu(Some(CpuId(0))).map_err(named("bind to a CPU"))?;
        let null_cycles = self.of_each(|_| user.null_call().map_err(named("make a null call")))?;
        // Pipe `i` leads to process `i`.
        let mut pipes = Vec::new();
        for _ in 0..self.processes {
            pipes.push(user.pipe().map_err(named("pipe"))?);
        }
        for index in 1..self.processes {
            let (work, all) = (self.clone(), pipes.clone());
            let child = other_process(self.cell.clone(), move |user| work.child(user, index, &all));
            user.fork("hop", child).map_err(named("fork"))?;
        }
        let (from, to) = self.keep_only(user, 0, &pipes)?;
        let own = self.own(user, from, to)?;
        let hop_cycles = self.ring(user, &own)?;
        let own_cycles = self.alone(user, &own)?;
        // Who waits for the word finds the end of its pipe, ends, and closes the next.
        for fd in [from, to] {
            user.close(fd).map_err(named("close"))?;
        }
        for _ in 1..self.processes {
            user.wait().map_err(named("wait"))?;
        }
        let us = |cycles: f64| cycles / self.clock_mhz;
        let results = [
            ("null_call_us", us(null_cycles)),
            ("hop_us", us(hop_cycles)),
            ("own_us", us(own_cycles)),
            ("switch_us", us(hop_cycles - own_cycles)),
        ];
        self.cell.borrow_mut().results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    fn child(&self, user: &User<Model>, index: usize, pipes: &[(Fd, Fd)]) -> Result<(), CallError> {
        user.bind_cpu(Some(CpuId(0))).map_err(named("bind to a CPU"))?;
        let (from, to) = self.keep_only(user, index, pipes)?;
        let own = self.own(user, from, to)?;
        let mut hops = index as u64;
        while self.receive(user, &own, hops)? {
            self.send(user, &own, hops + 1)?;
            hops += self.processes as u64;
        }
        Ok(())
    }

    /// Closes all ends of pipes but those of a process.
    fn keep_only(&self, user: &User<Model>, index: usize, pipes: &[(Fd, Fd)]) -> Result<(Fd, Fd), CallError> {
        let next = (index + 1) % pipes.len();
        for (i, &(read, write)) in pipes.iter().enumerate() {
            for (fd, is_own) in [(read, i == index), (write, i == next)] {
                if !is_own {
                    user.close(fd).map_err(named("close"))?;
                }
            }
        }
        Ok((pipes[index].0, pipes[next].1))
    }

    fn own(&self, user: &User<Model>, from: Fd, to: Fd) -> Result<Own, CallError> {
        let map = |len: usize| user.map(len, Prot::RW, Inherit::Copy).map_err(named("map memory"));
        let word = map(WORD)?;
        let array = if self.size_bytes > 0 { Some(map(self.size_bytes)?) } else { None };
        if let Some(array) = array {
            user.store(array, &vec![1; self.size_bytes]);
        }
        Ok(Own { from, to, word, array })
    }

    fn send(&self, user: &User<Model>, own: &Own, hops: u64) -> Result<(), CallError> {
        user.store(own.word, &hops.to_le_bytes());
        user.write(own.to, own.word, WORD).map_err(named("write")).map(|_| ())
    }

    /// Gets the word and sums the array; false where there will be none.
    fn receive(&self, user: &User<Model>, own: &Own, hops: u64) -> Result<bool, CallError> {
        if user.read(own.from, own.word, WORD).map_err(named("read"))? == 0 {
            return Ok(false);
        }
        let mut word = [0; WORD];
        user.load(own.word, &mut word);
        if word != hops.to_le_bytes() {
            self.cell.borrow_mut().damage(format!("hop {hops} has the word {word:?}"));
        }
        let mut part = [0; PAGE_SIZE];
        let mut sum = 0;
        for at in (0..self.size_bytes).step_by(PAGE_SIZE) {
            let part = &mut part[..PAGE_SIZE.min(self.size_bytes - at)];
            user.load(own.array.expect("it has a size") + at, part);
            sum += part.iter().map(|&byte| usize::from(byte)).sum::<usize>();
        }
        if sum != self.size_bytes {
            self.cell.borrow_mut().damage(format!("an array of {} ones sums to {sum}", self.size_bytes));
        }
        Ok(true)
    }

    /// Cycles of a hop, from the rounds that count.
    fn ring(&self, user: &User<Model>, own: &Own) -> Result<f64, CallError> {
        let (mut watch, mut hops) = (Stopwatch::start(&self.model), 0);
        for round in 0..self.warmup_rounds + self.rounds {
            if round == self.warmup_rounds {
                watch = Stopwatch::start(&self.model);
            }
            self.send(user, own, hops + 1)?;
            hops += self.processes as u64;
            if !self.receive(user, own, hops)? {
                self.cell.borrow_mut().damage(format!("the ring ends in round {round}"));
                break;
            }
        }
        let outcome = &mut *self.cell.borrow_mut();
        let elapsed_cycles = watch.stop_cycles(&self.model, outcome);
        outcome.results.insert("elapsed_us".to_owned(), elapsed_cycles / self.clock_mhz);
        Ok(elapsed_cycles / (self.rounds * self.processes as u64) as f64)
    }

    /// Cycles of what one process does of a hop.
    fn alone(&self, user: &User<Model>, own: &Own) -> Result<f64, CallError> {
        let (from, to) = user.pipe().map_err(named("pipe"))?;
        let own = Own { from, to, ..*own };
        let cycles = self.of_each(|hop| {
            self.send(user, &own, hop)?;
            self.receive(user, &own, hop).map(|_| ())
        })?;
        for fd in [from, to] {
            user.close(fd).map_err(named("close"))?;
        }
        Ok(cycles)
    }

    /// Cycles of each of so many as there are rounds, where the first do not count.
    fn of_each(&self, mut work: impl FnMut(u64) -> Result<(), CallError>) -> Result<f64, CallError> {
        (0..self.warmup_rounds).try_for_each(&mut work)?;
        let began = self.model.now();
        (self.warmup_rounds..self.warmup_rounds + self.rounds).try_for_each(work)?;
        Ok((self.model.now().0 - began.0) as f64 / self.rounds as f64)
    }
}
