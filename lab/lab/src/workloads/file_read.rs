//! Reading a file that is in memory: by copy, by page transfer, or by mapping it (UVM paper, 4.2.3, which names the use
//! and measures nothing).
//!
//! A process reads a file from its beginning to its end, piece by piece into one buffer, and over again. By *transfer*
//! the file's pages go on loan and take the place of those in the buffer. By *map* each piece is mapped privately and
//! unmapped again. With `touch` the process then reads every word of the piece, as a program that reads a file does.
//! Every byte is checked.

use crate::error::LabError;
use crate::kit::{
    CallError, OutcomeCell, Payload, Stopwatch, differs_behind, first_process, measure_first, named,
    receive_by,
};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, OpenFlags, Program, ReceiveMode, SendMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, MapAddr};

const NAME: &str = "data";

pub(crate) struct FileRead {
    model: Model,
    cell: OutcomeCell,
    /// None by mapping.
    mode: Option<ReceiveMode>,
    touch: bool,
    size_bytes: usize,
    warmup_passes: u64,
    passes: u64,
    clock_mhz: f64,
    contents: Payload,
}

crate::choice! {
    /// How the file is read.
    pub(crate) enum By { Copy = "copy", Transfer = "transfer", Map = "map", Auto = "auto" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 1..=1 << 32,
        file_bytes: usize = 1..=1 << 32,
        warmup_passes: u64 = 0..=1 << 20,
        passes: u64 = 1..=1 << 20,
        receive: By,
        /// The process reads every word.
        touch: bool,
    }
}

impl Workload for FileRead {
    const NAME: &'static str = "file-read";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.file_bytes as u64 / 4096 * 3).saturating_mul(p.passes.saturating_add(1))
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let size_bytes = p.size_bytes;
        let file_bytes = p.file_bytes;
        let work = FileRead {
            model: testbed.model.clone(),
            cell,
            mode: match p.receive {
                By::Copy => Some(ReceiveMode::Copy),
                By::Transfer => Some(ReceiveMode::Transfer),
                By::Auto => Some(ReceiveMode::Auto),
                By::Map => None,
            },
            touch: p.touch,
            size_bytes,
            warmup_passes: p.warmup_passes,
            passes: p.passes,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            contents: Payload::new(testbed.seed, file_bytes),
        };
        Ok(first_process(work.cell.clone(), 2 * (file_bytes + size_bytes), move |user| {
            let result = work.run(user);
            // Files outlive their processes.
            result.and(user.unlink(NAME).map_err(named("unlink")))
        }))
    }
}

impl FileRead {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let file = self.make_file(user)?;
        measure_first(user, SendMode::Copy, self.mode.unwrap_or_default())?;
        let buffer = match self.mode {
            Some(_) => user.map(self.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?,
            None => Va::default(),
        };
        let mut watch = Stopwatch::start(&self.model);
        for pass in 0..self.warmup_passes + self.passes {
            if pass == self.warmup_passes {
                watch = Stopwatch::start(&self.model);
            }
            user.seek(file, 0).map_err(named("seek"))?;
            self.pass(user, file, buffer, &mut watch)?;
        }
        let total_bytes = self.passes * self.contents.chunk(0).len() as u64;
        watch.stop(&self.model, self.clock_mhz, total_bytes, &mut self.cell.borrow_mut());
        Ok(())
    }

    /// Reads the file from its beginning to its end.
    fn pass(&self, user: &User<Model>, file: Fd, buffer: Va, watch: &mut Stopwatch) -> Result<(), CallError> {
        let contents = self.contents.chunk(0);
        let mut offset = 0;
        while offset < contents.len() {
            let (at, len) = self.read(user, file, buffer, offset)?;
            if len == 0 {
                self.cell.borrow_mut().damage(format!("the file ends at byte {offset}"));
                break;
            }
            if self.touch {
                look_over(user, at, len);
            }
            let began = ThreadTime::now();
            if let Some(wrong) = differs_behind(user, &self.model, at, &contents[offset..][..len]) {
                let fault = format!("byte {wrong} of what was read at {offset} is not what the file has");
                self.cell.borrow_mut().damage(fault);
            }
            watch.leave_out(began);
            if self.mode.is_none() {
                user.unmap(at, len).map_err(named("unmap"))?;
            }
            offset += len;
        }
        Ok(())
    }

    fn make_file(&self, user: &User<Model>) -> Result<Fd, CallError> {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = user.open(NAME, flags).map_err(named("open"))?;
        let contents = self.contents.chunk(0);
        let from = user.map(contents.len(), Prot::RW, Inherit::Copy).map_err(named("map the contents"))?;
        user.store(from, contents);
        user.write(file, from, contents.len()).map_err(named("write the file"))?;
        user.seek(file, 0).map_err(named("seek"))?;
        user.unmap(from, contents.len()).map_err(named("unmap"))?;
        Ok(file)
    }

    /// Gets the next piece; returns where it is, and how long.
    fn read(
        &self,
        user: &User<Model>,
        file: Fd,
        buffer: Va,
        offset: usize,
    ) -> Result<(Va, usize), CallError> {
        match self.mode {
            Some(mode) => {
                let (len, _) =
                    receive_by(user, file, buffer, self.size_bytes, mode).map_err(named("read"))?;
                Ok((buffer, len))
            }
            None => {
                let len = self.size_bytes.min(self.contents.chunk(0).len() - offset);
                let at = user.map_file(file, offset as u64, MapAddr::Anywhere, len, Prot::READ, false);
                Ok((at.map_err(named("map the file"))?, len))
            }
        }
    }
}

/// Reads every word.
fn look_over(user: &User<Model>, at: Va, len: usize) {
    let mut seen = [0; PAGE_SIZE];
    for start in (0..len).step_by(PAGE_SIZE) {
        user.load(at + start, &mut seen[..PAGE_SIZE.min(len - start)]);
    }
}
