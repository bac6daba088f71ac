//! A pipeline of three processes (UVM paper, 5.4): the first allocates and fills a buffer and sends it to the second,
//! which modifies it and sends it to the third, which writes it to a socket of the null protocol.
//!
//! *By socket* the data is copied from process to process, each of which has a buffer of its own for all rounds. *By
//! pass* the buffer itself goes from one to the next as a donation, its number in a message (see [`super::ping_pong`]);
//! the first process maps a new one for each round, and the last unmaps it. The last may write by copy or by loan
//! either way.
//!
//! *By auto* the first process asks the kernel once what is cheaper for buffers of this size; over sockets, each call
//! is as the kernel chooses.
//!
//! "Then the first process can generate another buffers worth of data" (5.4) is taken at its word: the third process
//! tells the first, in a message, that it has written the data, and the first waits for that. So one buffer is on its
//! way at a time, however it travels.
//!
//! Bytes are checked on arrival in the second and the third process, from outside of the machine and at no modelled
//! cost. The measured part begins when the third process has written the last buffer of the warm-up, and ends when it
//! has written the last of all.

use crate::error::LabError;
use crate::kit::{
    By, CallError, Link, OutcomeCell, Payload, by_pass, differs_behind, first_process, modify, named,
    other_process, write_over,
};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Machine as _, Prot, Va};
use pageferry_kernel::{Arrived, Pid, Program, SendMode, User};
use pageferry_model::{MachineConfig, Model, Snapshot};
use pageferry_vm::Inherit;
use std::rc::Rc;

#[derive(Clone)]
pub(crate) struct Pipeline {
    model: Model,
    cell: OutcomeCell,
    by: By,
    /// Whether `by` means passing: known when the first process has asked the kernel.
    by_pass: bool,
    send: SendMode,
    size_bytes: usize,
    warmup_rounds: u64,
    rounds: u64,
    loop_instructions: u32,
    clock_mhz: f64,
    payload: Rc<Payload>,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        rounds: u64 = 1..=1 << 30,
        warmup_rounds: u64 = 0..=1 << 20,
        loop_instructions: u32 = 0..=1 << 20,
        by: By,
        send: SendMode,
    }
}

impl Workload for Pipeline {
    const NAME: &'static str = "pipeline";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64).saturating_mul(p.rounds) / 400 + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![metric(
            "elapsed_cycles_per_round",
            "cycles",
            "Modelled time of one round through all processes.",
        )]
    }

    /// The program of the first process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let mut line = Pipeline {
            model: testbed.model.clone(),
            cell,
            by: p.by,
            by_pass: false,
            send: p.send,
            size_bytes,
            warmup_rounds: p.warmup_rounds,
            rounds: p.rounds,
            loop_instructions: p.loop_instructions,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Rc::new(Payload::new(testbed.seed, size_bytes)),
        };
        Ok(first_process(line.cell.clone(), 3 * size_bytes, move |user| {
            line.by_pass = by_pass(user, line.by, size_bytes, Arrived::Touched)?;
            line.start(user)
        }))
    }
}

/// The connections of a process: what it uses, and what it inherited and closes.
struct Ends {
    used: Vec<Link>,
    unused: Vec<Link>,
}

/// One of the processes at work.
struct Stage<'a> {
    line: &'a Pipeline,
    user: &'a User<Model>,
    /// Its own buffer, for data that is copied.
    own: Va,
}

impl Pipeline {
    /// Makes the others, and is the first.
    fn start(&self, user: &User<Model>) -> Result<(), CallError> {
        let (first_out, second_in) = Link::pair(user)?;
        let (second_out, third_in) = Link::pair(user)?;
        let (third_done, first_done) = Link::pair(user)?;
        let third = self.fork(user, "third", move |line, user| {
            let unused = vec![first_out, second_in, second_out, first_done];
            line.third(user, Ends { used: vec![third_in, third_done], unused })
        })?;
        let second = self.fork(user, "second", move |line, user| {
            let unused = vec![first_out, third_in, third_done, first_done];
            line.second(user, Ends { used: vec![second_in, second_out], unused }, third)
        })?;
        let unused = vec![second_in, second_out, third_in, third_done];
        let result = self.first(user, Ends { used: vec![first_out, first_done], unused }, second);
        // Without the first the others end, too: no wait for ever after a failure.
        first_out.close(user)?;
        first_done.close(user)?;
        for _ in 0..2 {
            user.wait().map_err(named("wait"))?;
        }
        result
    }

    fn fork(
        &self,
        user: &User<Model>,
        name: &str,
        part: impl FnOnce(&Pipeline, &User<Model>) -> Result<(), CallError> + 'static,
    ) -> Result<Pid, CallError> {
        let line = self.clone();
        let program = other_process(self.cell.clone(), move |user| part(&line, user));
        user.fork(name, program).map_err(named("fork"))
    }

    fn all_rounds(&self) -> u64 {
        self.warmup_rounds + self.rounds
    }

    fn stage<'a>(&'a self, user: &'a User<Model>, ends: Ends) -> Result<(Stage<'a>, Link, Link), CallError> {
        ends.unused.into_iter().try_for_each(|link| link.close(user))?;
        let own = if self.by_pass { Va(0) } else { self.map(user)? };
        let [one, other] = ends.used[..] else { panic!("each stage has two connections") };
        let (one, other) = (one.with_message(user)?, other.with_message(user)?);
        let auto = self.by == By::Auto;
        let (one, other) = (one.with_auto(auto), other.with_auto(auto));
        Ok((Stage { line: self, user, own }, one, other))
    }

    fn map(&self, user: &User<Model>) -> Result<Va, CallError> {
        user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))
    }

    fn first(&self, user: &User<Model>, ends: Ends, second: Pid) -> Result<(), CallError> {
        let (stage, out, done) = self.stage(user, ends)?;
        for round in 0..self.all_rounds() {
            let buffer = if self.by_pass { self.map(user)? } else { stage.own };
            write_over(user, buffer, self.payload.chunk(2 * round), self.loop_instructions);
            stage.send(&out, buffer, second)?;
            if done.hear(user)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn second(&self, user: &User<Model>, ends: Ends, third: Pid) -> Result<(), CallError> {
        let (stage, from, to) = self.stage(user, ends)?;
        for round in 0..self.all_rounds() {
            let Some(buffer) = stage.receive(&from, 2 * round)? else { return Ok(()) };
            modify(user, buffer, self.payload.chunk(2 * round + 1), self.loop_instructions);
            stage.send(&to, buffer, third)?;
        }
        // What a process offers goes with it: the last buffer has to be taken first.
        from.hear(user).map(|_| ())
    }

    fn third(&self, user: &User<Model>, ends: Ends) -> Result<(), CallError> {
        let (stage, from, done) = self.stage(user, ends)?;
        let null = user.null_socket().map_err(named("null socket"))?;
        let now = || (user.machine().now().0, self.model.snapshot(), ThreadTime::now());
        let mut start = now();
        for round in 0..self.all_rounds() {
            let Some(buffer) = stage.receive(&from, 2 * round + 1)? else { return Ok(()) };
            let mut sent = 0;
            while sent < self.size_bytes {
                let rest = self.size_bytes - sent;
                sent += user.send(null, buffer + sent, rest, self.send).map_err(named("send"))?;
            }
            if self.by_pass {
                user.unmap(buffer, self.size_bytes).map_err(named("unmap"))?;
            }
            // The clock is read before the message: its receiver may run at once.
            if round + 1 == self.warmup_rounds {
                start = now();
            }
            if round + 1 == self.all_rounds() {
                self.results(user, &start);
            }
            done.tell(user, round)?;
        }
        Ok(())
    }

    fn results(&self, user: &User<Model>, (began, before, host): &(u64, Snapshot, ThreadTime)) {
        let elapsed_cycles = user.machine().now().0.saturating_sub(*began);
        let elapsed_us = elapsed_cycles as f64 / self.clock_mhz;
        let outcome = &mut *self.cell.borrow_mut();
        outcome.measured_s = host.elapsed().as_secs_f64();
        outcome.measured = Some(self.model.snapshot().since(before));
        let bytes = (self.size_bytes as u64 * self.rounds) as f64;
        let results = [
            ("elapsed_us", elapsed_us),
            ("bandwidth_mb_s", bytes / elapsed_us),
            ("elapsed_cycles_per_round", elapsed_cycles as f64 / self.rounds as f64),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}

impl Stage<'_> {
    /// Sends the buffer on to `peer`.
    fn send(&self, link: &Link, buffer: Va, peer: Pid) -> Result<(), CallError> {
        let size_bytes = self.line.size_bytes;
        if !self.line.by_pass {
            return link.send(self.user, buffer, size_bytes);
        }
        link.pass(self.user, buffer, size_bytes, peer)
    }

    /// Receives the buffer and checks that it holds chunk `index`; none when the one before is gone.
    fn receive(&self, link: &Link, index: u64) -> Result<Option<Va>, CallError> {
        let Pipeline { model, cell, payload, size_bytes, by_pass, .. } = self.line;
        let mut buffer = self.own;
        if *by_pass {
            let Some(at) = link.take(self.user)? else { return Ok(None) };
            buffer = at;
        } else if !link.receive(self.user, buffer, *size_bytes)? {
            return Ok(None);
        }
        if let Some(wrong) = differs_behind(self.user, model, buffer, payload.chunk(index)) {
            let round = index / 2;
            cell.borrow_mut().damage(format!("byte {wrong} of round {round} is not what was sent"));
        }
        Ok(Some(buffer))
    }
}
