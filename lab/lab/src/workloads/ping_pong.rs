//! Data to and fro between two processes (UVM paper, 5.4): over a local socket, or by passing map entries.
//!
//! A parent and its child pass one buffer's worth of data from one to the other and back, round after round. *By
//! socket* the kernel copies it from the sender into mbufs and from there to the receiver. *By pass* the sender exports
//! the buffer as a donation to its peer and tells it the number of the offer in a message of eight bytes over the same
//! kind of socket; the peer imports it, and so has the buffer. (The paper does not say how its processes learned the
//! number; a message is what processes that have nothing in common but the facility would use.)
//!
//! *By auto* the parent asks the kernel once what is cheaper for buffers of this size; over a socket, each call is by
//! copy or by loan and by copy or by transfer, as the kernel chooses.
//!
//! With `touch` a receiver goes over the data that has arrived: it reads every word and writes another in its place, so
//! that the next transfer carries other data. Without, the buffer is given other contents between transfers from
//! outside of the machine, at no modelled cost. Every byte is checked at each arrival, also from outside.
//!
//! The paper counts "the number of times the data was transferred from parent to child process and back": bandwidth is
//! one buffer for each such round. The measured part begins when the parent sends for the first time after the warm-up,
//! and ends when it has received, and gone over, what the child sent last.

use crate::error::LabError;
use crate::kit::{
    By, CallError, Link, OutcomeCell, Payload, Stopwatch, by_pass, differs_behind, fill_behind,
    first_process, modify, named, other_process,
};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{Prot, Va};
use pageferry_kernel::{Arrived, Pid, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::rc::Rc;

#[derive(Clone)]
pub(crate) struct PingPong {
    model: Model,
    cell: OutcomeCell,
    by: By,
    /// Whether `by` means passing: known when the first process has asked the kernel.
    by_pass: bool,
    touch: bool,
    size_bytes: usize,
    warmup_transfers: u64,
    transfers: u64,
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
        /// A receiver reads every word and writes another in its place.
        touch: bool,
    }
}

impl Workload for PingPong {
    const NAME: &'static str = "ping-pong";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64).saturating_mul(p.rounds) / 400 + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![metric(
            "elapsed_cycles_per_transfer",
            "cycles",
            "Modelled time of one transfer from a process to the other.",
        )]
    }

    /// The program of the parent.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let mut game = PingPong {
            model: testbed.model.clone(),
            cell,
            by: p.by,
            by_pass: false,
            touch: p.touch,
            size_bytes,
            warmup_transfers: 2 * p.warmup_rounds,
            transfers: 2 * p.rounds,
            loop_instructions: p.loop_instructions,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Rc::new(Payload::new(testbed.seed, size_bytes)),
        };
        Ok(first_process(game.cell.clone(), 2 * size_bytes, move |user| {
            let arrived = if game.touch { Arrived::Touched } else { Arrived::Untouched };
            game.by_pass = by_pass(user, game.by, size_bytes, arrived)?;
            game.parent(user)
        }))
    }
}

/// One of the two processes, as it plays.
struct Player<'a> {
    game: &'a PingPong,
    user: &'a User<Model>,
    link: Link,
    peer: Pid,
    /// The data, while this process has it.
    buffer: Va,
}

impl PingPong {
    fn parent(&self, user: &User<Model>) -> Result<(), CallError> {
        let (own, other) = Link::pair(user)?;
        let (own, other) = (own.with_auto(self.by == By::Auto), other.with_auto(self.by == By::Auto));
        let (game, parent) = (self.clone(), user.pid());
        let child = other_process(self.cell.clone(), move |user| {
            own.close(user)?;
            game.play(user, other, parent, false)
        });
        let child = user.fork("child", child).map_err(named("fork"))?;
        other.close(user)?;
        let result = self.play(user, own, child, true);
        // Without a peer the child ends, too: no wait for ever after a failure.
        own.close(user)?;
        user.wait().map_err(named("wait"))?;
        result
    }

    /// Plays the parent's part, which begins, or the child's.
    fn play(&self, user: &User<Model>, link: Link, peer: Pid, is_parent: bool) -> Result<(), CallError> {
        let mut buffer = Va(0);
        // What is passed has one place at a time; what is copied has one in each process.
        if is_parent || !self.by_pass {
            buffer = user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
            user.store(buffer, self.payload.chunk(0));
        }
        let link = link.with_message(user)?;
        let mut player = Player { game: self, user, link, peer, buffer };
        let mut watch = None;
        for index in 0..self.warmup_transfers + self.transfers {
            if index == self.warmup_transfers {
                watch = Some(Stopwatch::start(&self.model));
            }
            if (index % 2 == 0) == is_parent {
                player.send(index)?;
            } else if !player.receive(index)? {
                return Ok(());
            }
        }
        if is_parent {
            self.results(watch.expect("there is at least one round to measure"));
            return Ok(());
        }
        // What a process offers goes with it: the parent has to take the last buffer first, and then it closes.
        player.link.hear(user).map(|_| ())
    }

    fn results(&self, watch: Stopwatch) {
        let outcome = &mut *self.cell.borrow_mut();
        let elapsed_cycles = watch.stop_cycles(&self.model, outcome);
        let elapsed_us = elapsed_cycles / self.clock_mhz;
        let bytes = (self.size_bytes as u64 * self.transfers / 2) as f64;
        let results = [
            ("elapsed_us", elapsed_us),
            ("bandwidth_mb_s", bytes / elapsed_us),
            ("elapsed_cycles_per_transfer", elapsed_cycles / self.transfers as f64),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
    }
}

impl Player<'_> {
    /// Sends transfer `index`.
    fn send(&mut self, index: u64) -> Result<(), CallError> {
        let PingPong { model, payload, size_bytes, touch, by_pass, .. } = self.game;
        if !touch && index > 0 {
            fill_behind(self.user, model, self.buffer, payload.chunk(index));
        }
        if !by_pass {
            return self.link.send(self.user, self.buffer, *size_bytes);
        }
        self.link.pass(self.user, self.buffer, *size_bytes, self.peer)
    }

    /// Receives transfer `index`, checks it, and goes over it; false when there is none, because the peer is gone.
    fn receive(&mut self, index: u64) -> Result<bool, CallError> {
        let PingPong { cell, payload, size_bytes, touch, by_pass, loop_instructions, model, .. } = self.game;
        if *by_pass {
            let Some(at) = self.link.take(self.user)? else { return Ok(false) };
            self.buffer = at;
        } else if !self.link.receive(self.user, self.buffer, *size_bytes)? {
            return Ok(false);
        }
        if let Some(wrong) = differs_behind(self.user, model, self.buffer, payload.chunk(index)) {
            cell.borrow_mut().damage(format!("byte {wrong} of transfer {index} is not what was sent"));
        }
        if *touch {
            modify(self.user, self.buffer, payload.chunk(index + 1), *loop_instructions);
        }
        Ok(true)
    }
}
