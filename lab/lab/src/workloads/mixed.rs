//! A mixed load over a pipe: messages of four sizes, the smaller ones the more often, from a writer to a reader.
//!
//! Both know the order, and each has a buffer for each size. The writer's buffers are filled once; the pages of each
//! differ. The reader reads each message as a whole, and flushes out what came as pages. Every byte is checked at each
//! read, from outside the machine.
//!
//! The measured part begins when the reader has the last byte of the warm-up, and ends when it has the last byte of
//! all.

use crate::error::LabError;
use crate::kit::{
    CallError, OutcomeCell, Payload, Stopwatch, differs_behind, first_process, measure_first, named,
    over_a_pipe, receive_by,
};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, Program, ReceiveMode, SendMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::rc::Rc;

/// The sizes of messages. Each comes four times as often as the next.
const SIZES_BYTES: [usize; 4] = [128, 4096, 65536, 1 << 20];

#[derive(Clone)]
pub(crate) struct Mixed {
    model: Model,
    cell: OutcomeCell,
    send: SendMode,
    receive: ReceiveMode,
    warmup_rounds: u64,
    rounds: u64,
    clock_mhz: f64,
    payload: Rc<Payload>,
}

/// The messages of a round, in order, as indices of sizes.
fn round() -> impl Iterator<Item = usize> {
    (1..=64_u32).flat_map(|step| (0..SIZES_BYTES.len()).filter(move |&size| step % (1 << (2 * size)) == 0))
}

/// Bytes of a round.
fn round_bytes() -> u64 {
    round().map(|size| SIZES_BYTES[size] as u64).sum()
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        rounds: u64 = 1..=1 << 30,
        warmup_rounds: u64 = 0..=1 << 20,
        send: SendMode,
        receive: ReceiveMode,
    }
}

impl Workload for Mixed {
    const NAME: &'static str = "mixed";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.rounds.saturating_add(p.warmup_rounds).saturating_mul(1000)
    }

    /// The program of the reader, which is the parent.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let load = Mixed {
            model: testbed.model.clone(),
            cell,
            send: p.send,
            receive: p.receive,
            warmup_rounds: p.warmup_rounds,
            rounds: p.rounds,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Rc::new(Payload::new(testbed.seed, SIZES_BYTES[3])),
        };
        Ok(first_process(load.cell.clone(), 3 * SIZES_BYTES.iter().sum::<usize>(), move |user| {
            measure_first(user, load.send, load.receive)?;
            over_a_pipe(user, &load.cell, &load, Mixed::write, Mixed::read)
        }))
    }
}

impl Mixed {
    /// What messages of a size hold.
    fn contents(&self, size: usize) -> &[u8] {
        &self.payload.chunk(size as u64)[..SIZES_BYTES[size]]
    }

    fn buffers(user: &User<Model>) -> Result<Vec<Va>, CallError> {
        let map = |&len: &usize| user.map(len, Prot::RW, Inherit::Copy).map_err(named("map a buffer"));
        SIZES_BYTES.iter().map(map).collect()
    }

    fn write(&self, user: &User<Model>, to: Fd) -> Result<(), CallError> {
        let buffers = Mixed::buffers(user)?;
        for (size, &buffer) in buffers.iter().enumerate() {
            user.store(buffer, self.contents(size));
        }
        for size in (0..self.warmup_rounds + self.rounds).flat_map(|_| round()) {
            let (buffer, len) = (buffers[size], SIZES_BYTES[size]);
            let mut done = 0;
            while done < len {
                done += user.send(to, buffer + done, len - done, self.send).map_err(named("write"))?;
            }
        }
        Ok(())
    }

    fn read(&self, user: &User<Model>, from: Fd) -> Result<(), CallError> {
        let buffers = Mixed::buffers(user)?;
        let mut watch = Stopwatch::start(&self.model);
        for index in 0..self.warmup_rounds + self.rounds {
            if index == self.warmup_rounds {
                watch = Stopwatch::start(&self.model);
            }
            for size in round() {
                let (at, len) = (buffers[size], SIZES_BYTES[size]);
                let Some(pages) = self.message(user, from, at, len)? else {
                    self.cell.borrow_mut().damage(format!("the stream ended in round {index}"));
                    return Ok(());
                };
                let began = ThreadTime::now();
                if let Some(wrong) = differs_behind(user, &self.model, at, self.contents(size)) {
                    let fault = format!("byte {wrong} of a message of {len} is not what was sent");
                    self.cell.borrow_mut().damage(fault);
                }
                watch.leave_out(began);
                if pages {
                    user.anflush(at, len.next_multiple_of(PAGE_SIZE)).map_err(named("anflush"))?;
                }
            }
        }
        let bytes = self.rounds * round_bytes();
        watch.stop(&self.model, self.clock_mhz, bytes, &mut self.cell.borrow_mut());
        Ok(())
    }

    /// Reads a message of `len` bytes, and returns whether some of it came as pages; none at the end of the stream.
    fn message(&self, user: &User<Model>, from: Fd, at: Va, len: usize) -> Result<Option<bool>, CallError> {
        let (mut done, mut pages) = (0, false);
        while done < len {
            let received = receive_by(user, from, at + done, len - done, self.receive);
            let (got, came) = received.map_err(named("read"))?;
            if got == 0 {
                return Ok(None);
            }
            (done, pages) = (done + got, pages || came);
        }
        Ok(Some(pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_comes_four_times_as_often_as_the_next() {
        let count = |wanted: usize| round().filter(|&size| size == wanted).count();
        assert_eq!([count(0), count(1), count(2), count(3)], [64, 16, 4, 1]);
        assert_eq!(round_bytes(), 64 * 128 + 16 * 4096 + 4 * 65536 + (1 << 20));
    }
}
