//! What each user of short mappings pays for them (sf_buf paper, 2 and 6.2): a memory disk that is read, the header of
//! an image that is looked at, a traced process that is read, a page that the vnode pager fills block by block, a pipe
//! whose reader looks at the writer's pages, a socket that sends from where the bytes lie.
//!
//! The user works on the same pages again and again; the first round is not measured. Beside the time of a page stands
//! what of it went into each part that a kernel can save: allocating addresses, invalidating here, having others
//! invalidate, and the mappings themselves.

use crate::error::LabError;
use crate::kit::stream_socket;
use crate::kit::{CallError, OutcomeCell, Stopwatch, differs, first_process, named, other_process};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{Cause, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, Pid, Program, SendMode, User, VolumeFormat};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, MapAddr};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Where the receiver of the socket listens.
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4096);

/// What is copied in one call.
const CALL_BYTES: usize = 65536;

pub(crate) struct Schemes {
    model: Model,
    cell: OutcomeCell,
    part: Part,
    pages: usize,
    rounds: u64,
    clock_mhz: f64,
}

crate::choice! {
    /// What uses short mappings.
    pub(crate) enum Part {
        MemoryDisk = "memory-disk",
        Exec = "exec",
        Ptrace = "ptrace",
        VnodePager = "vnode-pager",
        Pipe = "pipe",
        Socket = "socket",
    }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        pages: usize = 16..=1 << 14,
        rounds: u64 = 1..=1 << 20,
        user: Part,
    }
}

impl Workload for Schemes {
    const NAME: &'static str = "schemes";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.pages as u64).saturating_mul(p.rounds).saturating_mul(10)
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "address_cycles_per_page",
                "cycles",
                "Allocating and freeing kernel addresses, for each page that was mapped for a moment.",
            ),
            metric(
                "local_cycles_per_page",
                "cycles",
                "Invalidations in the own TLB, for each page that was mapped for a moment.",
            ),
            metric(
                "remote_cycles_per_page",
                "cycles",
                "Invalidations in other TLBs, on the CPUs that ask and those that are asked, for each page.",
            ),
            metric(
                "mapping_cycles_per_page",
                "cycles",
                "Making, finding and ending mappings, for each page that was mapped for a moment.",
            ),
        ]
    }

    /// The program of the first process.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        if p.user == Part::Socket {
            testbed.give_address(false)?;
        }
        let work = Schemes {
            model: testbed.model.clone(),
            cell,
            part: p.user,
            pages: p.pages,
            rounds: p.rounds,
            clock_mhz: testbed.machine.config.cpu.clock_mhz.value as f64,
        };
        let bytes = work.bytes();
        Ok(first_process(work.cell.clone(), 6 * bytes + (16 << 20), move |user| {
            let disk = (2 * bytes as u64 + (4 << 20)).next_multiple_of(1 << 20);
            user.attach_memory_disk(disk).map_err(named("make the memory disk"))?;
            let result = work.run(user);
            result.and(user.detach_memory_disk().map_err(named("destroy the memory disk")))
        }))
    }
}

impl Schemes {
    fn bytes(&self) -> usize {
        (self.pages * PAGE_SIZE).next_multiple_of(CALL_BYTES)
    }

    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let buffer = user.map(CALL_BYTES, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
        user.store(buffer, &self.contents());
        match self.part {
            Part::MemoryDisk => self.disk(user, buffer),
            Part::Ptrace => self.ptrace(user, buffer),
            Part::Pipe => self.pipe(user, buffer),
            Part::Socket => self.socket(user, buffer),
            Part::Exec | Part::VnodePager => self.on_volume(user, buffer),
        }
    }

    fn contents(&self) -> Vec<u8> {
        (0..CALL_BYTES).map(|i| (i / 11 + i / PAGE_SIZE) as u8).collect()
    }

    /// Does `round` once unmeasured, then as often as is to be measured; it answers how many pages were seen.
    fn measure(
        &self,
        mut round: impl FnMut() -> Result<usize, Errno>,
        what: &'static str,
    ) -> Result<(), CallError> {
        round().map_err(named(what))?;
        let watch = Stopwatch::start(&self.model);
        let mut pages = 0;
        for _ in 0..self.rounds {
            pages += round().map_err(named(what))?;
        }
        let outcome = &mut *self.cell.borrow_mut();
        watch.stop(&self.model, self.clock_mhz, (pages * PAGE_SIZE) as u64, outcome);
        let measured = outcome.measured.as_ref().expect("the watch was just stopped");
        let per_page = |causes: &[Cause]| {
            let spent =
                |cpu: &[u64; Cause::COUNT]| causes.iter().map(|cause| cpu[cause.index()]).sum::<u64>();
            measured.cycles.iter().map(spent).sum::<u64>() as f64 / pages as f64
        };
        let parts = [
            ("address_cycles_per_page", per_page(&[Cause::AddressAllocation])),
            ("local_cycles_per_page", per_page(&[Cause::InvalidateLocal])),
            ("remote_cycles_per_page", per_page(&[Cause::ShootdownSent, Cause::ShootdownReceived])),
            ("mapping_cycles_per_page", per_page(&[Cause::Ephemeral, Cause::PteWork])),
        ];
        outcome.results.extend(parts.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// Compares the buffer with what it should have, at no modelled cost.
    fn check(&self, at: Va) {
        let mut scratch = Vec::new();
        if let Some(wrong) = differs(&self.model, at, &self.contents(), &mut scratch) {
            self.cell.borrow_mut().damage(format!("byte {wrong} is not what it was"));
        }
    }

    fn disk(&self, user: &User<Model>, buffer: Va) -> Result<(), CallError> {
        let disk =
            user.open("/dev/md0", OpenFlags::READ | OpenFlags::WRITE).map_err(named("open the disk"))?;
        let calls = self.bytes() / CALL_BYTES;
        for _ in 0..calls {
            user.write(disk, buffer, CALL_BYTES).map_err(named("write the disk"))?;
        }
        let round = || {
            user.seek(disk, 0)?;
            let mut done = 0;
            for _ in 0..calls {
                done += user.read(disk, buffer, CALL_BYTES)?;
            }
            Ok(done / PAGE_SIZE)
        };
        let result = self.measure(round, "read the disk");
        self.check(buffer);
        result.and(user.close(disk).map_err(named("close the disk")))
    }

    fn ptrace(&self, user: &User<Model>, buffer: Va) -> Result<(), CallError> {
        let theirs =
            user.map(self.bytes(), Prot::RW, Inherit::Copy).map_err(named("map the child's memory"))?;
        for at in (0..self.bytes()).step_by(CALL_BYTES) {
            user.store(theirs + at, &self.contents());
        }
        let (go, start) = user.pipe().map_err(named("pipe"))?;
        let (has_copied, copied) = user.pipe().map_err(named("pipe"))?;
        let bytes = self.bytes();
        let child = other_process(self.cell.clone(), move |user| {
            // Its own pages, not its parent's.
            for at in (0..bytes).step_by(PAGE_SIZE) {
                let mut byte = [0];
                user.load(theirs + at, &mut byte);
                user.store(theirs + at, &byte);
            }
            let at = user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map"))?;
            user.close(start).map_err(named("close"))?;
            user.write(copied, at, 1).map_err(named("say that the pages are copied"))?;
            user.read(go, at, 1).map_err(named("wait for the end")).map(drop)
        });
        let pid: Pid = user.fork("traced", child).map_err(named("fork"))?;
        user.read(has_copied, buffer, 1).map_err(named("wait for its pages"))?;
        let round = || {
            let mut done = 0;
            for at in (0..bytes).step_by(CALL_BYTES) {
                done += user.ptrace_read(pid, theirs + at, buffer, CALL_BYTES)?;
            }
            Ok(done / PAGE_SIZE)
        };
        let result = self.measure(round, "read the traced process");
        self.check(buffer);
        for end in [start, go, copied, has_copied] {
            user.close(end).map_err(named("close"))?;
        }
        user.wait().map_err(named("wait"))?;
        result
    }

    fn pipe(&self, user: &User<Model>, buffer: Va) -> Result<(), CallError> {
        let (read, write) = user.pipe().map_err(named("pipe"))?;
        let open = move |user: &User<Model>| user.close(read).map_err(named("close")).and(Ok(write));
        let writer = self.sender(open, |user, fd, at, len| user.write(fd, at, len));
        user.fork("writer", writer).map_err(named("fork"))?;
        user.close(write).map_err(named("close"))?;
        self.receive(user, read, buffer)
    }

    fn socket(&self, user: &User<Model>, buffer: Va) -> Result<(), CallError> {
        let listening = stream_socket(user, CALL_BYTES)?;
        user.bind(listening, SERVER).and(user.listen(listening, 1)).map_err(named("listen"))?;
        let open = |user: &User<Model>| {
            let fd = stream_socket(user, CALL_BYTES)?;
            user.connect(fd, SERVER).map_err(named("connect")).and(Ok(fd))
        };
        let sender = self.sender(open, |user, fd, at, len| user.send(fd, at, len, SendMode::Loan));
        user.fork("sender", sender).map_err(named("fork"))?;
        let (fd, _) = user.accept(listening).map_err(named("accept"))?;
        let result = self.receive(user, fd, buffer);
        result.and(user.close(listening).map_err(named("close")))
    }

    /// A process that has the pages, and sends them once and then as often as is measured.
    fn sender(
        &self,
        open: impl FnOnce(&User<Model>) -> Result<Fd, CallError> + 'static,
        send: impl Fn(&User<Model>, Fd, Va, usize) -> Result<usize, Errno> + 'static,
    ) -> Program<Model> {
        let (bytes, rounds, contents) = (self.bytes(), self.rounds, self.contents());
        other_process(self.cell.clone(), move |user| {
            let pages = user.map(bytes, Prot::RW, Inherit::Copy).map_err(named("map the sender's pages"))?;
            for at in (0..bytes).step_by(CALL_BYTES) {
                user.store(pages + at, &contents);
            }
            let fd = open(user)?;
            for _ in 0..=rounds {
                for at in (0..bytes).step_by(CALL_BYTES) {
                    let mut done = 0;
                    while done < CALL_BYTES {
                        done +=
                            send(user, fd, pages + at + done, CALL_BYTES - done).map_err(named("send"))?;
                    }
                }
            }
            user.close(fd).map_err(named("close"))
        })
    }

    /// Receives what a [`Schemes::sender`] sends.
    fn receive(&self, user: &User<Model>, fd: Fd, buffer: Va) -> Result<(), CallError> {
        let round = || {
            let mut done = 0;
            while done < self.bytes() {
                let at = done % CALL_BYTES;
                match user.read(fd, buffer + at, CALL_BYTES - at)? {
                    0 => return Err(Errno::BrokenPipe),
                    len => done += len,
                }
            }
            Ok(done / PAGE_SIZE)
        };
        let result = self.measure(round, "receive");
        self.check(buffer);
        user.close(fd).map_err(named("close"))?;
        user.wait().map_err(named("wait"))?;
        result
    }

    fn on_volume(&self, user: &User<Model>, buffer: Va) -> Result<(), CallError> {
        user.make_volume(VolumeFormat::of_blocks(1024)).map_err(named("make the volume"))?;
        let result = match self.part {
            Part::Exec => self.images(user, buffer),
            _ => self.file(user, buffer),
        };
        result.and(user.unmount().map_err(named("unmount the volume")))
    }

    fn file(&self, user: &User<Model>, buffer: Va) -> Result<(), CallError> {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file: Fd = user.open("/mnt/file", flags).map_err(named("make a file"))?;
        for _ in 0..self.bytes() / CALL_BYTES {
            user.write(file, buffer, CALL_BYTES).map_err(named("write the file"))?;
        }
        user.sync_file(file).map_err(named("fsync"))?;
        let round = || {
            for at in (0..self.bytes()).step_by(CALL_BYTES) {
                let mapped =
                    user.map_file(file, at as u64, MapAddr::Anywhere, CALL_BYTES, Prot::READ, false)?;
                user.unmap(mapped, CALL_BYTES)?;
            }
            Ok(self.bytes() / PAGE_SIZE)
        };
        let result = self.measure(round, "use the file");
        result.and(user.close(file).map_err(named("close the file")))
    }

    /// Executes an image again and again: each time its header is looked at, what was in memory goes, and its two
    /// segments are mapped. What it would load is the vnode pager's to find.
    fn images(&self, user: &User<Model>, buffer: Va) -> Result<(), CallError> {
        let image = image();
        user.store(buffer, &image);
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file: Fd = user.open("/mnt/image", flags).map_err(named("make the image"))?;
        user.write(file, buffer, image.len()).map_err(named("write the image"))?;
        user.sync_file(file).map_err(named("fsync"))?;
        let round = || {
            for _ in 0..self.pages {
                user.exec(file)?;
            }
            Ok(self.pages)
        };
        let result = self.measure(round, "execute the image");
        // The page is found when it is loaded from; the comparison below only looks at what is mapped.
        user.load(Va(TEXT), &mut [0; 8]);
        let mut scratch = Vec::new();
        if differs(&self.model, Va(TEXT), &image[PAGE_SIZE..2 * PAGE_SIZE], &mut scratch).is_some() {
            self.cell.borrow_mut().damage("the text of the image is not the file's".to_owned());
        }
        result.and(user.close(file).map_err(named("close the image")))
    }
}

/// Where the image's text and its data are.
const TEXT: u64 = 0x40_0000;
const DATA: u64 = 0x41_0000;

/// An ELF image of 64 bits: a page for the header, one of text, and one of data that may be written.
fn image() -> Vec<u8> {
    let mut file: Vec<u8> = (0..3 * PAGE_SIZE).map(|i| (i / 7) as u8).collect();
    file[..PAGE_SIZE].fill(0);
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let mut put = |at: usize, len: usize, value: u64| {
        file[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    };
    let page = PAGE_SIZE as u64;
    let (header_bytes, entry_bytes) = (64, 56);
    // What kind it is, where it begins, where its program headers are, how long each is, and how many.
    for (at, len, value) in
        [(16, 2, 2), (24, 8, TEXT), (32, 8, header_bytes), (54, 2, entry_bytes), (56, 2, 2)]
    {
        put(at, len, value);
    }
    // Loaded; rights; offset; address; bytes in the file and in memory.
    for (i, (flags, offset, at)) in [(5, page, TEXT), (6, 2 * page, DATA)].into_iter().enumerate() {
        let head = (header_bytes + entry_bytes * i as u64) as usize;
        for (behind, len, value) in
            [(0, 4, 1), (4, 4, flags), (8, 8, offset), (16, 8, at), (32, 8, page), (40, 8, page)]
        {
            put(head + behind, len, value);
        }
    }
    file
}
