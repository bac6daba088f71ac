//! The relatives that the UVM paper compares itself with (2.2, 2.3 and 5.5), as far as this kernel's floor carries
//! them: what a delivery of data to another process costs by each.
//!
//! A process has data in a buffer and hands it to another, which says so when it is through with it; that reply is the
//! same small message for all. With `touch` the sender fills its buffer before each delivery and the receiver reads
//! every word. Else nobody touches the data, and it changes from outside of the machine.
//!
//! * *copy*, *loan*, *transfer*, *both*: UVM's pipe, as in `uvm-pipe`.
//! * *tcow*: Genie's output by temporary copy-on-write, which on this floor is a loan to the kernel; input is copied.
//!   *tcow-aligned*: input into an aligned buffer, whose pages are swapped for those of the kernel, and are not
//!   flushed.
//! * *container-send*, *container-receive*, *container*: Container Shipping. A container's buffers leave the sender's
//!   addresses when they are shipped, are mapped by the receiver when it wants to, and come back empty. Sent by
//!   container and read into a buffer; written from a buffer and unloaded from a container; or both.
//! * *fbuf-volatile*, *fbuf*, *fbuf-uncached*: fbufs lie at the same addresses in both processes, and the receiver may
//!   only read. A cached one stays mapped, so a delivery is its number; a volatile one stays writable, another is
//!   write-protected while it is away. An uncached one is made, mapped and unmapped for each delivery.
//! * *mach-copy*, *mach-move*: Mach's out-of-line data: a copy-on-write copy of the range, which the receiver
//!   deallocates; or the range itself, so that the sender has to make another.
//!
//! All of them stand on UVM's amaps and anons. What Mach, fbufs and TCOW pay on top for chains of shadow objects is
//! not in these numbers.

use super::store_all;
use crate::error::LabError;
use crate::files::Experiment;
use crate::judge::Reproduction;
use crate::kit::{
    CallError, Onlooker, OutcomeCell, Payload, Process, Stopwatch, first_process, named, other_process,
};
use crate::plot::{Axis, Chart, Plot, Stack, StackRow, Table, causes_in, parts};
use crate::record::{Metric, Record, metric};
use crate::run::{Testbed, Workload};
use crate::text;
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, ExportId, ExportTo, Fd, Pid, Program, SendMode, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, MapAddr, PassMode};
use pageferry_workloads::Link;
use std::rc::Rc;

/// Where fbufs are, in both processes.
const FBUFS: Va = Va(0x3000_0000);

crate::choice! {
    /// What carries the data.
    pub(crate) enum By {
        Copy = "copy",
        Loan = "loan",
        Transfer = "transfer",
        Both = "both",
        Tcow = "tcow",
        TcowAligned = "tcow-aligned",
        ContainerSend = "container-send",
        ContainerReceive = "container-receive",
        Container = "container",
        FbufVolatile = "fbuf-volatile",
        Fbuf = "fbuf",
        FbufUncached = "fbuf-uncached",
        MachCopy = "mach-copy",
        MachMove = "mach-move",
    }
}

impl By {
    fn is_cached_fbuf(self) -> bool {
        matches!(self, By::FbufVolatile | By::Fbuf)
    }

    /// Data goes through the pipe, sent like this.
    fn piped(self) -> Option<SendMode> {
        match self {
            By::Copy | By::Transfer | By::ContainerReceive => Some(SendMode::Copy),
            By::Loan | By::Both | By::Tcow | By::TcowAligned => Some(SendMode::Loan),
            _ => None,
        }
    }

    /// The receiver has a buffer of its own.
    fn has_target(self) -> bool {
        self.piped().is_some() && self != By::ContainerReceive || self == By::ContainerSend
    }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 4096..=1 << 24,
        rounds: u64 = 1..=1 << 20,
        warmup_rounds: u64 = 0..=1 << 20,
        by: By,
        /// The sender fills its buffer, and the receiver reads every word.
        touch: bool,
    }
}

pub(crate) struct Relatives {
    p: Parameters,
    onlooker: Onlooker,
    clock_mhz: f64,
    payload: Payload,
}

impl Workload for Relatives {
    const NAME: &'static str = "relatives";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64 / 4096 * 10).saturating_mul(p.rounds + p.warmup_rounds) + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric("delivery_us", "us", "Modelled time of a delivery, with its reply."),
            metric("sender_entries_left", "count", "Map entries that the sender has more when all is over."),
        ]
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.needs_whole_pages("size_bytes", p.size_bytes)?;
        let buffers = 4 * p.size_bytes;
        let work = Rc::new(Relatives {
            onlooker: Onlooker::new(&testbed.model, &cell),
            clock_mhz: testbed.clock_mhz(),
            payload: Payload::new(testbed.seed, p.size_bytes),
            p,
        });
        Ok(first_process(cell, buffers, move |user| work.run(user)))
    }

    fn plots(of: &Reproduction, experiment: &Experiment) -> Vec<Plot> {
        factors(of, &experiment.name).into_iter().collect()
    }
}

/// One of the two processes.
struct Side<'a> {
    user: &'a User<Model>,
    os: Process<'a>,
    link: Link,
    /// Its end of the pipe.
    pipe: Fd,
}

impl Relatives {
    fn run(self: Rc<Self>, user: &User<Model>) -> Result<(), CallError> {
        let os = Process::new(user, &self.onlooker);
        let (from, to) = user.pipe().map_err(named("pipe"))?;
        let (own, theirs) = Link::pair(&os)?;
        let (work, sender) = (self.clone(), user.pid());
        let receiver = other_process(self.onlooker.cell.clone(), move |user| {
            let os = Process::new(user, &work.onlooker);
            own.close(&os)?;
            user.close(to).map_err(named("close"))?;
            let link = theirs.with_message(&os)?;
            work.receive(&Side { user, os, link, pipe: from }, sender)
        });
        let receiver = user.fork("receiver", receiver).map_err(named("fork"))?;
        theirs.close(&os)?;
        user.close(from).map_err(named("close"))?;
        let side = Side { user, link: own.with_message(&os)?, os, pipe: to };
        let result = self.send(&side, receiver);
        // Without a peer the receiver ends, too: no wait for ever after a failure.
        own.close(&side.os)?;
        user.close(to).map_err(named("close"))?;
        user.wait().map_err(named("wait"))?;
        result
    }

    // ------------------------------------------------------------------------------------------- the sender

    fn send(&self, side: &Side<'_>, peer: Pid) -> Result<(), CallError> {
        let Parameters { size_bytes, rounds, warmup_rounds, by, .. } = self.p;
        let user = side.user;
        // The message's page is in use by now: its entry is not joined with the buffer's.
        side.link.tell(&side.os, 0)?;
        let mut buffer = self.first_buffer(user).map_err(named("map the buffer"))?;
        if by.is_cached_fbuf() {
            let id = user.export(buffer, size_bytes, PassMode::Share, ExportTo::Process(peer));
            let id = id.map_err(named("export"))?;
            side.link.tell(&side.os, id.0)?;
            side.link.hear(&side.os)?;
        }
        let at_first = user.space().entry_count(user.thread()) as f64;
        let mut watch = Stopwatch::start(&self.onlooker.model);
        for round in 0..warmup_rounds + rounds {
            if round == warmup_rounds {
                watch = Stopwatch::start(&self.onlooker.model);
            }
            buffer = self.deliver(side, peer, buffer, round)?;
        }
        let bytes = rounds * size_bytes as u64;
        watch.stop(&self.onlooker.model, self.clock_mhz, bytes, &mut self.onlooker.cell.borrow_mut());
        // Other processes leave what they find in the same place: it is not kept over a call.
        let left = user.space().entry_count(user.thread()) as f64 - at_first;
        let outcome = &mut *self.onlooker.cell.borrow_mut();
        let results =
            [("delivery_us", outcome.results["elapsed_us"] / rounds as f64), ("sender_entries_left", left)];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// The buffer of the first delivery, every page of it in memory: a part of a larger mapping, as a process's heap
    /// is; or memory for this alone.
    fn first_buffer(&self, user: &User<Model>) -> Result<Va, Errno> {
        let Parameters { size_bytes, by, .. } = self.p;
        if by.is_cached_fbuf() || by == By::FbufUncached {
            let at = user.map_at(MapAddr::Free(FBUFS), size_bytes, Prot::RW, Inherit::Copy)?;
            self.touch_pages(user, at, size_bytes);
            return Ok(at);
        }
        let around = user.map(size_bytes + 2 * PAGE_SIZE, Prot::RW, Inherit::Copy)?;
        self.touch_pages(user, around, size_bytes + 2 * PAGE_SIZE);
        Ok(around + PAGE_SIZE)
    }

    fn touch_pages(&self, user: &User<Model>, at: Va, len_bytes: usize) {
        (0..len_bytes).step_by(PAGE_SIZE).for_each(|page| user.store(at + page, &[1]));
    }

    /// Makes one delivery; where the buffer of the next is.
    fn deliver(&self, side: &Side<'_>, peer: Pid, buffer: Va, round: u64) -> Result<Va, CallError> {
        let Parameters { size_bytes, by, touch, .. } = self.p;
        let (user, contents) = (side.user, self.payload.chunk(round));
        match touch {
            true => store_all(user, buffer, contents).map_err(named("fill the buffer"))?,
            false => self.onlooker.fill(user.pid(), buffer, contents),
        }
        let offer =
            |mode| user.export(buffer, size_bytes, mode, ExportTo::Process(peer)).map_err(named("export"));
        let protect = |prot| user.protect(buffer, size_bytes, prot).map_err(named("protect"));
        let mut offered = None;
        match by {
            By::Container | By::ContainerSend | By::MachMove => offered = Some(offer(PassMode::Donate)?),
            By::MachCopy => offered = Some(offer(PassMode::Copy)?),
            By::FbufUncached => offered = Some(offer(PassMode::Share)?),
            By::Fbuf => protect(Prot::READ)?,
            _ => {}
        }
        match by.piped() {
            Some(mode) => {
                let mut done = 0;
                while done < size_bytes {
                    let taken = user.send(side.pipe, buffer + done, size_bytes - done, mode);
                    done += taken.map_err(named("send"))?;
                }
            }
            None => side.link.tell(&side.os, offered.map_or(0, |id| id.0))?,
        }
        let reply = side.link.hear(&side.os)?.ok_or(("hear the reply", Errno::BrokenPipe))?;
        match by {
            // The container comes back.
            By::Container | By::ContainerSend => {
                return Ok(user.import(ExportId(reply), None).map_err(named("import"))?.at);
            }
            By::Fbuf => protect(Prot::RW)?,
            By::MachCopy => user.withdraw(offered.expect("it was")).map_err(named("withdraw"))?,
            By::FbufUncached => {
                user.withdraw(offered.expect("it was")).map_err(named("withdraw"))?;
                user.unmap(buffer, size_bytes).map_err(named("unmap"))?;
            }
            _ => {}
        }
        if matches!(by, By::FbufUncached | By::MachMove) {
            let again = user.map_at(MapAddr::Free(buffer), size_bytes, Prot::RW, Inherit::Copy);
            let again = again.map_err(named("map another buffer"))?;
            // Memory that is new has to be cleared, whoever fills it.
            if !touch {
                self.touch_pages(user, again, size_bytes);
            }
            return Ok(again);
        }
        Ok(buffer)
    }

    // ------------------------------------------------------------------------------------------- the receiver

    fn receive(&self, side: &Side<'_>, sender: Pid) -> Result<(), CallError> {
        let Parameters { size_bytes, rounds, warmup_rounds, by, .. } = self.p;
        let (user, link, os) = (side.user, side.link, &side.os);
        link.hear(os)?;
        let mut target = Va(0);
        if by.has_target() {
            target = user.map(size_bytes, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
            self.touch_pages(user, target, size_bytes);
        }
        if by.is_cached_fbuf() {
            let Some(id) = link.hear(os)? else { return Ok(()) };
            target = user.import(ExportId(id), Some(FBUFS)).map_err(named("import"))?.at;
            user.protect(target, size_bytes, Prot::READ).map_err(named("protect"))?;
            link.tell(os, 0)?;
        }
        for round in 0..warmup_rounds + rounds {
            let reply = match by.piped() {
                Some(_) => self.take_from_pipe(side, target, round)?,
                None => self.take(side, sender, target, round)?,
            };
            let Some(reply) = reply else { return Ok(()) };
            link.tell(os, reply)?;
        }
        // What a process offers goes with it: the sender has to take the last first, and then it closes.
        link.hear(os).map(drop)
    }

    /// Receives a delivery through the pipe and goes over it; nothing when the other end is gone.
    fn take_from_pipe(&self, side: &Side<'_>, target: Va, round: u64) -> Result<Option<u64>, CallError> {
        let Parameters { size_bytes, by, .. } = self.p;
        let (user, mut done) = (side.user, 0);
        while done < size_bytes {
            let (at, left) = (target + done, size_bytes - done);
            let len = match by {
                By::Copy | By::Loan | By::Tcow => user.receive(side.pipe, at, left),
                By::ContainerReceive => {
                    let got = user.receive_transfer(side.pipe, None, left).map_err(named("receive"))?;
                    // Unloaded where there was room, gone over, and given up.
                    self.go_over(user, got.at, (round, done..done + got.len_bytes));
                    if got.len_bytes > 0 {
                        let pages = got.len_bytes.next_multiple_of(PAGE_SIZE);
                        user.unmap(got.at, pages).map_err(named("unmap"))?;
                    }
                    Ok(got.len_bytes)
                }
                _ => user.receive_transfer(side.pipe, Some(at), left).map(|got| got.len_bytes),
            };
            match len.map_err(named("receive"))? {
                0 => return Ok(None),
                len => done += len,
            }
        }
        if by != By::ContainerReceive {
            self.go_over(user, target, (round, 0..size_bytes));
        }
        if matches!(by, By::Transfer | By::Both) {
            user.anflush(target, size_bytes).map_err(named("anflush"))?;
        }
        Ok(Some(0))
    }

    /// Takes a delivery whose number comes in a message, and goes over it; what to reply.
    fn take(&self, side: &Side<'_>, sender: Pid, target: Va, round: u64) -> Result<Option<u64>, CallError> {
        let Parameters { size_bytes, by, .. } = self.p;
        let user = side.user;
        let Some(id) = side.link.hear(&side.os)? else { return Ok(None) };
        let all = (round, 0..size_bytes);
        if by.is_cached_fbuf() {
            self.go_over(user, target, all);
            return Ok(Some(0));
        }
        let place = (by == By::FbufUncached).then_some(FBUFS);
        let at = user.import(ExportId(id), place).map_err(named("import"))?.at;
        if by == By::ContainerSend {
            let read = |from, to| {
                user.system_call(|call| call.copy_out(to, from, size_bytes).map_err(|stopped| stopped.why))
            };
            read(at, target).map_err(named("read a container"))?;
            self.go_over(user, target, all);
        } else {
            self.go_over(user, at, all);
        }
        if matches!(by, By::Container | By::ContainerSend) {
            let back = user.export(at, size_bytes, PassMode::Donate, ExportTo::Process(sender));
            return Ok(Some(back.map_err(named("ship it back"))?.0));
        }
        user.unmap(at, size_bytes).map_err(named("unmap"))?;
        Ok(Some(0))
    }

    /// Compares what has come with what was sent, and with `touch` reads every word.
    fn go_over(&self, user: &User<Model>, at: Va, (round, part): (u64, std::ops::Range<usize>)) {
        let expected = &self.payload.chunk(round)[part];
        if let Some(wrong) = self.onlooker.differs(user.pid(), at, expected) {
            self.onlooker.damage(format!("byte {wrong} of delivery {round} is not what was sent"));
        }
        if self.p.touch {
            user.load(at, &mut vec![0; expected.len()]);
        }
    }
}

// ---------------------------------------------------------------------------------------- the figure

/// The designs as they are drawn.
const DESIGNS: [(&str, &str); 14] = [
    ("copy", "copied twice"),
    ("loan", "UVM, loan"),
    ("transfer", "UVM, transfer"),
    ("both", "UVM, both"),
    ("tcow", "TCOW, out"),
    ("tcow-aligned", "TCOW, out and aligned in"),
    ("container-send", "Container Shipping, send"),
    ("container-receive", "Container Shipping, receive"),
    ("container", "Container Shipping, both"),
    ("fbuf-volatile", "fbufs, cached, volatile"),
    ("fbuf", "fbufs, cached"),
    ("fbuf-uncached", "fbufs, uncached"),
    ("mach-copy", "Mach out-of-line, copy"),
    ("mach-move", "Mach out-of-line, move"),
];

/// The table of factors (UVM paper, 5.5), for each size, and the time of a delivery of 64 KB by cause.
fn factors(of: &Reproduction, experiment: &str) -> Option<Plot> {
    let records = || of.records().filter(|r| r.experiment == experiment);
    let mut places: Vec<(String, u64, bool)> = records()
        .filter_map(|r| {
            Some((r.machine.clone(), r.number("size_bytes")? as u64, r.setting_is("touch", "true")))
        })
        .collect();
    places.sort();
    places.dedup();
    let at = |(machine, size, touch): &(String, u64, bool), by: &str| -> Option<&Record> {
        let touched = if *touch { "true" } else { "false" };
        let mut ran =
            records().filter(|r| &r.machine == machine && r.number("size_bytes") == Some(*size as f64));
        ran.find(|r| r.setting_is("by", by) && r.setting_is("touch", touched))
    };
    let mut table = Table { head: vec!["design".into()], rows: Vec::new() };
    let label = |(machine, size, touch): &(String, u64, bool)| {
        format!("{machine}, {}{}", text::bytes(*size), if *touch { ", touched" } else { "" })
    };
    table.head.extend(places.iter().map(|place| format!("{} (times copying)", label(place))));
    for (by, name) in DESIGNS {
        let factor = |place| {
            let (copy, this) =
                (at(place, "copy")?.metric("delivery_us")?, at(place, by)?.metric("delivery_us")?);
            Some(format!("{:.2}", copy / this))
        };
        let mut row = vec![name.to_owned()];
        row.extend(places.iter().map(|place| factor(place).unwrap_or_default()));
        table.rows.push(row);
    }
    let mut groups = Vec::new();
    for place in places.iter().filter(|(_, size, _)| *size == 65536) {
        let mut rows = Vec::new();
        for (by, name) in DESIGNS {
            let (Some(record), Some(copy)) = (at(place, by), at(place, "copy")) else { continue };
            let (Some(this), Some(copy)) = (record.metric("delivery_us"), copy.metric("delivery_us")) else {
                continue;
            };
            let cycles = |r: &Record| r.metric("cycles.total").filter(|total| *total > 0.0);
            let Some(total) = cycles(record) else { continue };
            // In percent of the time of the copy.
            let mut parts = parts(record, 100.0 * this / copy / total);
            parts.retain(|part| part.name != "idle");
            rows.push(StackRow { name: name.into(), parts, shown: format!("{:.2} times", copy / this) });
        }
        groups.push(Stack { label: label(place), rows });
    }
    let legend = causes_in(&groups);
    (!groups.is_empty()).then(|| Plot {
        id: "relatives-factors".into(),
        title: "UVM and its relatives on one floor".into(),
        subtitle: "A delivery of 64 KB to another process, by cause, in percent of one that is copied twice; behind \
                   each bar how many times as fast it is"
            .into(),
        chart: Chart::Stacks(groups, Axis::linear("time of a delivery", "% of copying"), 84.0),
        label: "Time of a delivery by cause, for each design".into(),
        legend,
        note: "All stand on UVM's amaps and anons. What Mach, fbufs and TCOW pay on top for chains of shadow objects \
               is not in it. The UVM paper cites factors of 1.2, 1.6 and 8.3 for Container Shipping on another machine."
            .into(),
        table,
    })
}
