//! Playing and recording sound, by copy or by page (UVM paper, 4.1.3 and 4.2.3, which name these uses of loans and of
//! page transfer and measure nothing).
//!
//! *Play*: a process makes sound in a few buffers in turn, and sends each to the device, by copy or by loan. There are
//! enough buffers that a page is not written while the device has it on loan. *Record*: a process receives what the
//! device has recorded, by copy or by transfer, and reads every word. All samples are checked: what the device played
//! at the end of the run, what it recorded as it arrives.
//!
//! The device is slow, and the processor waits for it most of the time. So what counts is the processor's own time: how
//! many bytes could be moved in it if the device were as fast.

use crate::error::LabError;
use crate::kit::{
    CallError, OutcomeCell, Payload, Stopwatch, differs_behind, first_process, measure_first, named,
    receive_by,
};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Cause, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, Program, ReceiveMode, SendMode, User};
use pageferry_model::{MachineConfig, Model, Snapshot};
use pageferry_vm::Inherit;

pub(crate) struct Sound {
    model: Model,
    cell: OutcomeCell,
    plays: bool,
    send: SendMode,
    receive: ReceiveMode,
    size_bytes: usize,
    buffers: usize,
    warmup: u64,
    calls: u64,
    clock_mhz: f64,
    payload: Payload,
}

crate::choice! {
    /// Where sound goes.
    pub(crate) enum Direction { Play = "play", Record = "record" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        total_bytes: u64 = 1..=1 << 40,
        buffers: usize = 1..=1 << 20,
        warmup_calls: u64 = 0..=1 << 20,
        direction: Direction,
        send: SendMode,
        receive: ReceiveMode,
    }
}

impl Workload for Sound {
    const NAME: &'static str = "sound";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.total_bytes / 4096 * 3
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric("busy_bandwidth_mb_s", "MB/s", "Payload in the time in which a CPU was not idle."),
            metric("load_percent", "%", "Time in which a CPU was not idle."),
        ]
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let work = Sound {
            model: testbed.model.clone(),
            cell,
            plays: p.direction == Direction::Play,
            send: p.send,
            receive: p.receive,
            size_bytes,
            buffers: p.buffers,
            warmup: p.warmup_calls,
            calls: p.total_bytes.div_ceil(size_bytes as u64),
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            payload: Payload::new(testbed.seed, size_bytes),
        };
        Ok(first_process(work.cell.clone(), (work.buffers + 1) * size_bytes, move |user| work.run(user)))
    }
}

impl Sound {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let device = user.open_audio().map_err(named("open the sound device"))?;
        let room = self.size_bytes.next_multiple_of(PAGE_SIZE);
        let buffers =
            user.map(self.buffers * room, Prot::RW, Inherit::Copy).map_err(named("map the buffers"))?;
        // All buffers are memory before anything is measured.
        for buffer in 0..self.buffers {
            user.store(buffers + buffer * room, self.payload.chunk(buffer as u64));
        }
        let (send, receive) = match self.plays {
            true => (self.send, ReceiveMode::Copy),
            false => (SendMode::Copy, self.receive),
        };
        measure_first(user, send, receive)?;
        let mut watch = Stopwatch::start(&self.model);
        let mut before = self.model.snapshot();
        let (mut total_bytes, mut position) = (0, 0);
        for index in 0..self.warmup + self.calls {
            if index == self.warmup {
                watch = Stopwatch::start(&self.model);
                before = self.model.snapshot();
                total_bytes = 0;
            }
            let buffer = buffers + index as usize % self.buffers * room;
            let len = match self.plays {
                true => self.play(user, device, buffer, index)?,
                false => self.record(user, device, buffer, &mut position, &mut watch)?,
            };
            total_bytes += len as u64;
        }
        let busy_us = self.busy_cycles(&before) / self.clock_mhz;
        {
            let outcome = &mut *self.cell.borrow_mut();
            watch.stop(&self.model, self.clock_mhz, total_bytes, outcome);
            let elapsed_us = outcome.results["elapsed_us"];
            let results = [
                ("busy_bandwidth_mb_s", total_bytes as f64 / busy_us),
                ("busy_cycles_per_page", busy_us * self.clock_mhz * PAGE_SIZE as f64 / total_bytes as f64),
                ("load_percent", 100.0 * busy_us / elapsed_us),
            ];
            outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        }
        user.close(device).map_err(named("close"))?;
        if self.plays {
            self.check_played();
        }
        Ok(())
    }

    /// What all CPUs have spent since `before` on anything but waiting.
    fn busy_cycles(&self, before: &Snapshot) -> f64 {
        let spent = self.model.snapshot().since(before);
        (spent.clocks.iter().sum::<u64>() - spent.cause(Cause::Idle)) as f64
    }

    fn play(&self, user: &User<Model>, device: Fd, buffer: Va, index: u64) -> Result<usize, CallError> {
        user.store(buffer, self.payload.chunk(index));
        user.send(device, buffer, self.size_bytes, self.send).map_err(named("play"))
    }

    fn record(
        &self,
        user: &User<Model>,
        device: Fd,
        buffer: Va,
        position: &mut u64,
        watch: &mut Stopwatch,
    ) -> Result<usize, CallError> {
        let mut done = 0;
        while done < self.size_bytes {
            let to = buffer + done;
            let left = self.size_bytes - done;
            done += receive_by(user, device, to, left, self.receive).map_err(named("record"))?.0;
        }
        let mut heard = vec![0; self.size_bytes];
        user.load(buffer, &mut heard);
        let began = ThreadTime::now();
        let expected = Model::sound(*position, done);
        if let Some(wrong) = differs_behind(user, &self.model, buffer, &expected) {
            let fault =
                format!("byte {wrong} of what was recorded at {position} is not what there was to hear");
            self.cell.borrow_mut().damage(fault);
        }
        *position += done as u64;
        watch.leave_out(began);
        Ok(done)
    }

    fn check_played(&self) {
        let played = self.model.played();
        let sent = (0..self.warmup + self.calls).flat_map(|index| self.payload.chunk(index));
        let wrong = played.iter().zip(sent).position(|(played, sent)| played != sent);
        let all = (self.warmup + self.calls) as usize * self.size_bytes;
        let fault = match wrong {
            Some(wrong) => Some(format!("byte {wrong} of what was played is not what was sent")),
            None if played.len() != all => Some(format!("{} bytes were played of {all}", played.len())),
            None => None,
        };
        fault.into_iter().for_each(|fault| self.cell.borrow_mut().damage(fault));
    }
}
