//! PostMark 1.5 on a file system on a memory disk (sf_buf paper, 6.4.2): many small files are made, read, made longer
//! and taken away.
//!
//! * `random`: the program's own random numbers. `script`: what it does next. Here: doing it by system calls.
//!
//! The program uses the C library's buffered streams, whose buffer is larger than any of its files: a file is made by
//! an open, an `fstat`, a write and a close; read by an open, an `fstat`, a read and a close; made longer by an open, a
//! seek, an `fstat`, a write and a close. The process fills the buffer before a write and looks at all of it behind a
//! read, as the program does block by block. Every file's bytes are compared with what was written to it.
//!
//! Rates are the program's: transactions in the time of the transactions, bytes in that of all, from the first file's
//! making to the last one's end; the measured part is all.

mod random;
mod script;

use super::format_of;
use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Stopwatch, differs, first_process, named};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_hal::{Account, Instructions, Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, OpenFlags, Program, User, VolumeFormat};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use script::{MAX_BYTES, Script, Step};

/// The stream's buffer: a file system's preferred size (`st_blksize`), here as in FreeBSD's, larger than any file.
const BUFFER_BYTES: usize = 16384;
const BLOCK_BYTES: usize = 512;
const MIB: f64 = (1 << 20) as f64;
/// What the program is started with, unless it is told otherwise.
const SEED: u32 = 42;

pub(crate) struct PostMark {
    model: Model,
    cell: OutcomeCell,
    disk_bytes: u64,
    format: VolumeFormat,
    files: usize,
    transactions: u64,
    user_instructions: Instructions,
    soft_updates: bool,
    clock_mhz: f64,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        files: usize = 1..=100_000,
        transactions: u64 = 1..=1 << 20,
        disk_mb: u64 = 1..=4096,
        block_bytes: u32 = 512..=65_536,
        fragment_bytes: u32 = 512..=65_536,
        user_instructions: u32 = 0..=1 << 30,
        soft_updates: bool,
    }
}

impl Workload for PostMark {
    const NAME: &'static str = "postmark";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.files as u64).saturating_add(p.transactions).saturating_mul(200)
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "transactions_per_s",
                "1/s",
                "PostMark's transactions, a second of modelled time while it makes them.",
            ),
            metric(
                "read_mb_s",
                "MB/s",
                "Bytes of files read, in the time of the whole of PostMark; an MB is 1,000,000 bytes.",
            ),
            metric("write_mb_s", "MB/s", "Bytes of files written, in the time of the whole of PostMark."),
            metric("creation_us", "us", "Modelled time in which PostMark makes its first files."),
            metric("transactions_us", "us", "Modelled time of its transactions."),
            metric("deletion_us", "us", "Modelled time in which it takes all files away."),
            metric("files_created", "count", "Files that PostMark made."),
            metric("files_read", "count", "Files that PostMark read."),
            metric("files_appended", "count", "Files that PostMark made longer."),
            metric("files_deleted", "count", "Files that PostMark took away."),
            metric("file_bytes_read", "bytes", "Bytes that PostMark read."),
            metric("file_bytes_written", "bytes", "Bytes that PostMark wrote."),
            metric(
                "footprint_mb",
                "MB",
                "The most that PostMark's files take at once, in whole fragments; an MB is 2^20 bytes, as of a disk.",
            ),
            metric(
                "memory_disk_mb",
                "MB",
                "Pages of the memory disk that were ever used, in the end; an MB is 2^20 bytes.",
            ),
        ]
    }

    /// The program of the only process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let format = format_of(testbed, p.block_bytes, p.fragment_bytes)?;
        let work = PostMark {
            model: testbed.model.clone(),
            cell,
            disk_bytes: p.disk_mb << 20,
            format,
            files: p.files,
            transactions: p.transactions,
            user_instructions: Instructions(p.user_instructions),
            soft_updates: p.soft_updates,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
        };
        // What the disk has, and the same in the page cache. A file takes whole blocks.
        let file = (MAX_BYTES * 3 / 2).next_multiple_of(u64::from(work.format.fragment_bytes).max(1));
        let max = work.disk_bytes.min((2 * work.files as u64).saturating_mul(file).saturating_add(8 << 20))
            as usize;
        Ok(first_process(work.cell.clone(), 2 * max, move |user| {
            user.attach_memory_disk(work.disk_bytes).map_err(named("make the memory disk"))?;
            let result = work.on_disk(user).and_then(|()| work.footprint(user));
            result.and(user.detach_memory_disk().map_err(named("destroy the memory disk")))
        }))
    }
}

/// What is known of the files on the volume.
struct Files<'a> {
    work: &'a PostMark,
    user: &'a User<Model>,
    buffer: Va,
    script: Script,
    /// The lengths of the pieces that each slot's file was written in.
    pieces: Vec<Vec<usize>>,
    scratch: Vec<u8>,
}

fn path(name: u64) -> String {
    format!("/mnt/{name}")
}

impl PostMark {
    fn on_disk(&self, user: &User<Model>) -> Result<(), CallError> {
        let made = if self.soft_updates {
            user.make_soft_volume(self.format)
        } else {
            user.make_volume(self.format)
        };
        made.map_err(named("make the volume"))?;
        let result = self.run(user);
        result.and(user.unmount().map_err(named("unmount the volume")))
    }

    /// What the disk has taken: PostMark's files, the volume's own blocks, and those that are free again.
    fn footprint(&self, user: &User<Model>) -> Result<(), CallError> {
        let frames = user.memory_disk_frames().map_err(named("look at the memory disk"))?;
        let mb = (frames * PAGE_SIZE) as f64 / MIB;
        self.cell.borrow_mut().results.insert("memory_disk_mb".to_owned(), mb);
        Ok(())
    }

    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let buffer = user.map(BUFFER_BYTES, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
        let script = Script::new(SEED, self.files, self.format.fragment_bytes);
        let pieces = vec![Vec::new(); script.slots()];
        let mut files = Files { work: self, user, buffer, script, pieces, scratch: Vec::new() };
        let mut watch = Stopwatch::start(&self.model);
        let now = || user.machine().now().0 as f64 / self.clock_mhz;
        let began = now();
        for _ in 0..self.files {
            let step = files.script.create();
            files.act(step, &mut watch)?;
        }
        let created = now();
        for _ in 0..self.transactions {
            for step in files.script.transaction() {
                files.act(step, &mut watch)?;
            }
        }
        let transacted = now();
        for slot in 0..files.script.slots() {
            let step = files.script.delete(slot);
            files.act(step, &mut watch)?;
        }
        let ended = now();
        let (transactions_us, all_us) = (transacted - created, ended - began);
        let counts = files.script.counts;
        let outcome = &mut *self.cell.borrow_mut();
        watch.stop(&self.model, self.clock_mhz, counts.bytes_read + counts.bytes_written, outcome);
        let rates = [
            ("transactions_per_s", self.transactions as f64 / transactions_us * 1e6),
            ("creation_us", created - began),
            ("transactions_us", transactions_us),
            ("deletion_us", ended - transacted),
            ("read_mb_s", counts.bytes_read as f64 / all_us),
            ("write_mb_s", counts.bytes_written as f64 / all_us),
            ("files_created", counts.created as f64),
            ("files_read", counts.read as f64),
            ("files_appended", counts.appended as f64),
            ("files_deleted", counts.deleted as f64),
            ("file_bytes_read", counts.bytes_read as f64),
            ("file_bytes_written", counts.bytes_written as f64),
            ("footprint_mb", counts.max_live_bytes as f64 / MIB),
        ];
        outcome.results.extend(rates.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }
}

impl Files<'_> {
    fn act(&mut self, step: Option<Step>, watch: &mut Stopwatch) -> Result<(), CallError> {
        let user = self.user;
        user.machine().execute(self.work.user_instructions);
        match step {
            None => {}
            Some(Step::Create { slot, name, bytes }) => {
                let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
                let fd = user.open(&path(name), flags).map_err(named("make a file"))?;
                self.pieces[slot].clear();
                self.write(fd, slot, bytes)?;
            }
            // A file that is long enough is not opened.
            Some(Step::Append { bytes: 0, .. }) => {}
            Some(Step::Append { slot, name, bytes }) => {
                let fd = user.open(&path(name), OpenFlags::WRITE).map_err(named("open a file"))?;
                let size = user.file_size(fd).map_err(named("fstat"))?;
                user.seek(fd, size).map_err(named("seek"))?;
                self.write(fd, slot, bytes)?;
            }
            Some(Step::Read { slot, name, bytes }) => {
                let fd = user.open(&path(name), OpenFlags::READ).map_err(named("open a file"))?;
                user.file_size(fd).map_err(named("fstat"))?;
                let got = user.read(fd, self.buffer, BUFFER_BYTES).map_err(named("read"))?;
                user.close(fd).map_err(named("close"))?;
                self.scratch.resize(got, 0);
                let mut seen = std::mem::take(&mut self.scratch);
                user.load(self.buffer, &mut seen);
                self.scratch = seen;
                let began = ThreadTime::now();
                self.compare(slot, name, got, bytes);
                watch.leave_out(began);
            }
            Some(Step::Delete { slot, name }) => {
                self.pieces[slot].clear();
                user.unlink(&path(name)).map_err(named("unlink"))?;
            }
        }
        Ok(())
    }

    fn write(&mut self, fd: Fd, slot: usize, bytes: usize) -> Result<(), CallError> {
        let user = self.user;
        user.file_size(fd).map_err(named("fstat"))?;
        let contents = contents(&self.script.source, &[bytes]);
        user.store(self.buffer, &contents);
        let wrote = user.write(fd, self.buffer, bytes).map_err(named("write"))?;
        assert_eq!(wrote, bytes, "a write to a volume with room is whole");
        self.pieces[slot].push(bytes);
        user.close(fd).map_err(named("close"))
    }

    fn compare(&mut self, slot: usize, name: u64, got: usize, bytes: usize) {
        let damage = |fault: String| self.work.cell.borrow_mut().damage(fault);
        if got != bytes {
            return damage(format!("file {name} has {got} bytes, expected {bytes}"));
        }
        let expected = contents(&self.script.source, &self.pieces[slot]);
        if let Some(wrong) = differs(&self.work.model, self.buffer, &expected, &mut self.scratch) {
            damage(format!("byte {wrong} of file {name} is not what was written"));
        }
    }
}

/// What a file has that was written in these pieces: each block begins with the first byte of the source.
fn contents(source: &[u8], pieces: &[usize]) -> Vec<u8> {
    let mut all = Vec::with_capacity(pieces.iter().sum());
    for &piece in pieces {
        let mut left = piece;
        while left > 0 {
            let block = left.min(BLOCK_BYTES);
            all.extend_from_slice(&source[..block]);
            left -= block;
        }
    }
    all
}
