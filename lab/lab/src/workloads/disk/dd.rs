//! Dumping a memory disk to the null device (sf_buf paper, 6.4.1; `dd if=/dev/md0 of=/dev/null bs=64k`).
//!
//! The disk is written first, from its beginning to its end: a mapping that was never used costs nothing to replace, so
//! an unwritten disk would show no invalidations (sf_buf paper, 4.2). Then a warm-up reads its first blocks, and the
//! measured part reads it from its beginning to its end, block by block into one buffer, which it writes to the null
//! device. Every byte is checked.

use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Payload, Stopwatch, differs, first_process, named};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, OpenFlags, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;

pub(crate) struct Dd {
    model: Model,
    cell: OutcomeCell,
    disk_bytes: u64,
    block_bytes: usize,
    clock_mhz: f64,
    contents: Payload,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        disk_mb: u64 = 1..=4096,
        block_bytes: usize = 512..=16 << 20,
    }
}

impl Workload for Dd {
    const NAME: &'static str = "dd";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.disk_mb.saturating_mul(256 * 12)
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let block_bytes = p.block_bytes.next_multiple_of(PAGE_SIZE);
        let work = Dd {
            model: testbed.model.clone(),
            cell,
            disk_bytes: p.disk_mb << 20,
            block_bytes,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
            contents: Payload::new(testbed.seed, block_bytes),
        };
        let needed = work.disk_bytes as usize + 4 * block_bytes;
        Ok(first_process(work.cell.clone(), needed, move |user| {
            user.attach_memory_disk(work.disk_bytes).map_err(named("make the memory disk"))?;
            let result = work.run(user);
            result.and(user.detach_memory_disk().map_err(named("destroy the memory disk")))
        }))
    }
}

impl Dd {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        let disk = user.open("/dev/md0", flags).map_err(named("open the disk"))?;
        let null = user.open("/dev/null", OpenFlags::WRITE).map_err(named("open the null device"))?;
        let buffer = user.map(self.block_bytes, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
        self.fill(user, disk, buffer)?;
        user.seek(disk, 0).map_err(named("seek"))?;
        let watch = Stopwatch::start(&self.model);
        let result = self.dump(user, disk, null, buffer, watch);
        result.and(user.close(disk).and(user.close(null)).map_err(named("close")))
    }

    fn fill(&self, user: &User<Model>, disk: Fd, buffer: Va) -> Result<(), CallError> {
        user.store(buffer, self.contents.chunk(0));
        for (i, len) in self.blocks() {
            let filled = self.model.poke(buffer, &self.contents.chunk(i)[..len]);
            assert!(filled, "the buffer is resident: it was stored to, and nothing is paged out");
            let wrote = user.write(disk, buffer, len).map_err(named("write the disk"))?;
            assert_eq!(wrote, len, "a write to a disk is whole");
        }
        Ok(())
    }

    /// The numbers of the blocks, and how long each is.
    fn blocks(&self) -> impl Iterator<Item = (u64, usize)> {
        let (block, end) = (self.block_bytes as u64, self.disk_bytes);
        (0..end.div_ceil(block)).map(move |i| (i, block.min(end - i * block) as usize))
    }

    fn dump(
        &self,
        user: &User<Model>,
        disk: Fd,
        null: Fd,
        buffer: Va,
        mut watch: Stopwatch,
    ) -> Result<(), CallError> {
        let mut scratch = Vec::new();
        for (i, len) in self.blocks() {
            let read = user.read(disk, buffer, self.block_bytes).map_err(named("read the disk"))?;
            let began = ThreadTime::now();
            if read != len {
                self.cell.borrow_mut().damage(format!("{read} bytes of block {i}, expected {len}"));
                return Ok(());
            }
            if let Some(wrong) = differs(&self.model, buffer, &self.contents.chunk(i)[..len], &mut scratch) {
                let fault = format!("byte {wrong} of block {i} is not what was written");
                self.cell.borrow_mut().damage(fault);
            }
            watch.leave_out(began);
            user.write(null, buffer, len).map_err(named("write to the null device"))?;
        }
        watch.stop(&self.model, self.clock_mhz, self.disk_bytes, &mut self.cell.borrow_mut());
        Ok(())
    }
}
