//! Reading and writing a file, call by call: what a call costs where the file system is the kernel's, and where it is a
//! server's.
//!
//! A file on a memory disk is written once, so that the buffers of the file system have all of it. Then calls at one
//! place of it after the other read or write so many bytes; when the file ends they begin again. Every byte that is
//! read is compared with what was written, and behind the calls all of the file is.

use super::format_of;
use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Payload, Stopwatch, differs, first_process, named};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, Program, User, VolumeFormat};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;

pub(crate) struct FileCalls {
    model: Model,
    cell: OutcomeCell,
    reads: bool,
    size_bytes: usize,
    file_bytes: usize,
    format: VolumeFormat,
    warmup: u64,
    calls: u64,
    clock_mhz: f64,
    contents: Payload,
}

crate::choice! {
    /// What a call does.
    pub(crate) enum Op { Read = "read", Write = "write" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 20,
        file_bytes: usize = 1..=1 << 26,
        calls: u64 = 1..=1 << 20,
        warmup: u64 = 0..=1 << 20,
        block_bytes: u32 = 512..=65_536,
        fragment_bytes: u32 = 512..=65_536,
        op: Op,
    }
}

impl Workload for FileCalls {
    const NAME: &'static str = "file-calls";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.calls.saturating_add(p.warmup)).saturating_mul(200 + p.size_bytes as u64 / 400)
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric("call_us", "us", "Modelled time of a call that reads or writes a file."),
            metric("tlb_misses_per_call", "count", "Misses of the TLB for data in one such call."),
        ]
    }

    /// The program of the only process, beside a server that the kernel may begin.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let format = format_of(testbed, p.block_bytes, p.fragment_bytes)?;
        let work = FileCalls {
            model: testbed.model.clone(),
            cell,
            reads: p.op == Op::Read,
            size_bytes,
            file_bytes: p.file_bytes.next_multiple_of(size_bytes),
            format,
            warmup: p.warmup,
            calls: p.calls,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            contents: Payload::new(testbed.seed, size_bytes),
        };
        // The disk, and the same in buffers.
        let disk_bytes = (work.file_bytes * 5 / 4 + (1 << 20)).next_multiple_of(PAGE_SIZE);
        Ok(first_process(work.cell.clone(), 2 * disk_bytes + size_bytes, move |user| {
            user.attach_memory_disk(disk_bytes as u64).map_err(named("make the memory disk"))?;
            let result = work.on_disk(user);
            result.and(user.detach_memory_disk().map_err(named("destroy the memory disk")))
        }))
    }
}

impl FileCalls {
    fn on_disk(&self, user: &User<Model>) -> Result<(), CallError> {
        user.make_volume(self.format).map_err(named("make the volume"))?;
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = user.open("/mnt/file", flags).map_err(named("make the file"))?;
        let result = self.run(user, file);
        result.and(user.close(file).and(user.unmount()).map_err(named("unmount the volume")))
    }

    fn run(&self, user: &User<Model>, file: Fd) -> Result<(), CallError> {
        let buffer = user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
        let places = (self.file_bytes / self.size_bytes) as u64;
        // The last that was written to each place.
        let mut written: Vec<u64> = (0..places).collect();
        for place in 0..places {
            user.store(buffer, self.contents.chunk(place));
            self.write(user, file, buffer, place)?;
        }
        let mut watch = None;
        let mut scratch = Vec::new();
        for call in 0..self.warmup + self.calls {
            if call == self.warmup {
                watch = Some(Stopwatch::start(&self.model));
            }
            let place = call % places;
            let number = written[place as usize];
            if self.reads {
                self.read(user, file, buffer, place)?;
                let began = ThreadTime::now();
                if let Some(wrong) = differs(&self.model, buffer, self.contents.chunk(number), &mut scratch) {
                    let fault = format!("byte {wrong} of piece {place} is not what was written");
                    self.cell.borrow_mut().damage(fault);
                }
                watch.iter_mut().for_each(|watch| watch.leave_out(began));
            } else {
                let began = ThreadTime::now();
                let number = number + places;
                written[place as usize] = number;
                let filled = self.model.poke(buffer, self.contents.chunk(number));
                assert!(filled, "the buffer is resident: it was stored to, and nothing is paged out");
                watch.iter_mut().for_each(|watch| watch.leave_out(began));
                self.write(user, file, buffer, place)?;
            }
        }
        {
            let outcome = &mut *self.cell.borrow_mut();
            let bytes = self.calls * self.size_bytes as u64;
            watch.expect("there is a call to measure").stop(&self.model, self.clock_mhz, bytes, outcome);
            let calls = self.calls as f64;
            let elapsed_us = outcome.results["elapsed_us"];
            let measured = outcome.measured.as_ref().expect("just measured");
            let misses = measured.hardware.tlb_misses as f64;
            let results = [("call_us", elapsed_us / calls), ("tlb_misses_per_call", misses / calls)];
            outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        }
        for place in 0..places {
            self.read(user, file, buffer, place)?;
            let expected = self.contents.chunk(written[place as usize]);
            if differs(&self.model, buffer, expected, &mut scratch).is_some() {
                self.cell.borrow_mut().damage(format!("piece {place} of the file is not what was written"));
            }
        }
        Ok(())
    }

    fn read(&self, user: &User<Model>, file: Fd, buffer: Va, place: u64) -> Result<(), CallError> {
        let at = place * self.size_bytes as u64;
        let read = user.read_at(file, at, buffer, self.size_bytes).map_err(named("read the file"))?;
        if read == self.size_bytes { Ok(()) } else { Err(("read all of a piece", Errno::Io)) }
    }

    fn write(&self, user: &User<Model>, file: Fd, buffer: Va, place: u64) -> Result<(), CallError> {
        let at = place * self.size_bytes as u64;
        let wrote = user.write_at(file, at, buffer, self.size_bytes).map_err(named("write the file"))?;
        if wrote == self.size_bytes { Ok(()) } else { Err(("write all of a piece", Errno::Io)) }
    }
}
