//! Map entry passing by each of its modes, beside a loan (UVM paper, 4.3.1): what a range of addresses costs to pass,
//! to look at, to write to again, and to give up; and what is left of both maps.
//!
//! A process fills a buffer and offers it; another imports the offer, goes over the data if `touch` says so, and gives
//! the range up. The sender fills its buffer anew: before the receiver gives it up (`meanwhile`), or afterwards. The
//! buffer is a mapping of its own, or the middle of one three times as large, whose entry has to be cut.
//!
//! The two agree by messages over a local socket, which are in no part that is measured here. After each step the
//! memory of both is compared with what the mode says that it holds: what is shared shows the other's stores, what is
//! copied or lent shows none, what is donated is gone, or zero.

use super::{Sum, entries, store_all};
use crate::error::LabError;
use crate::kit::{
    CallError, Onlooker, OutcomeCell, Payload, Process, Stopwatch, first_process, named, other_process,
};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, ExportId, ExportTo, Pid, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, MapAddr, PassMode};
use pageferry_workloads::Link;
use std::cell::Cell;
use std::rc::Rc;

crate::choice! {
    /// How the range is passed.
    pub(crate) enum By {
        Share = "share",
        Copy = "copy",
        Donate = "donate",
        DonateZero = "donate-zero",
        Loan = "loan",
    }
}

impl By {
    fn mode(self) -> Option<PassMode> {
        match self {
            By::Share => Some(PassMode::Share),
            By::Copy => Some(PassMode::Copy),
            By::Donate => Some(PassMode::Donate),
            By::DonateZero => Some(PassMode::DonateZero),
            By::Loan => None,
        }
    }

    fn is_donation(self) -> bool {
        matches!(self, By::Donate | By::DonateZero)
    }
}

crate::choice! {
    /// What the receiver does with the data.
    pub(crate) enum Touch { None = "none", Read = "read", Write = "write" }
}

crate::choice! {
    /// What of the sender's mapping is passed.
    pub(crate) enum Part { Whole = "whole", Middle = "middle" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 4096..=1 << 28,
        rounds: u64 = 1..=1 << 20,
        warmup_rounds: u64 = 0..=1 << 20,
        by: By,
        touch: Touch,
        part: Part,
        /// The sender fills its buffer before the receiver gives its own up.
        meanwhile: bool,
    }
}

/// The parts of a round, and entries of maps.
#[derive(Default)]
struct Readings {
    pass: Sum,
    touch: Sum,
    refill: Sum,
    release: Sum,
    sender_added: Cell<f64>,
    receiver_added: Cell<f64>,
}

pub(crate) struct PassModes {
    p: Parameters,
    onlooker: Onlooker,
    payload: Payload,
    readings: Readings,
}

impl Workload for PassModes {
    const NAME: &'static str = "pass-modes";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.size_bytes as u64).saturating_mul(p.rounds + p.warmup_rounds) / 400 + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "pass_cycles",
                "cycles",
                "Modelled time of an export and its import, and of a withdrawal where it stands.",
            ),
            metric(
                "touch_cycles",
                "cycles",
                "Modelled time of the receiver's loads or stores, with their faults.",
            ),
            metric(
                "refill_cycles",
                "cycles",
                "Modelled time of filling the sender's buffer again, with its faults.",
            ),
            metric("release_cycles", "cycles", "Modelled time in which the receiver gives the range up."),
            metric("moved_cycles_per_page", "cycles", "All four of them, for each page that was passed."),
            metric(
                "sender_entries_added",
                "count",
                "Map entries that the sender has more while its range is passed.",
            ),
            metric("receiver_entries_added", "count", "Map entries that the receiver has more by an import."),
            metric("sender_entries_left", "count", "Map entries that the sender has more when all is over."),
        ]
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.needs_whole_pages("size_bytes", p.size_bytes)?;
        let buffers = 4 * p.size_bytes;
        let work = Rc::new(PassModes {
            onlooker: Onlooker::new(&testbed.model, &cell),
            payload: Payload::new(testbed.seed, p.size_bytes),
            readings: Readings::default(),
            p,
        });
        Ok(first_process(cell, buffers, move |user| work.run(user)))
    }
}

impl PassModes {
    fn run(self: Rc<Self>, user: &User<Model>) -> Result<(), CallError> {
        let os = Process::new(user, &self.onlooker);
        let (own, theirs) = Link::pair(&os)?;
        let work = self.clone();
        let receiver = other_process(self.onlooker.cell.clone(), move |user| {
            let os = Process::new(user, &work.onlooker);
            own.close(&os)?;
            work.receive(user, &os, theirs.with_message(&os)?)
        });
        let receiver = user.fork("receiver", receiver).map_err(named("fork"))?;
        theirs.close(&os)?;
        let result = own.with_message(&os).and_then(|link| self.send(user, &os, link, receiver));
        // Without a peer the receiver ends, too: no wait for ever after a failure.
        own.close(&os)?;
        user.wait().map_err(named("wait"))?;
        result
    }

    // ------------------------------------------------------------------------------------------- the sender

    fn send(&self, user: &User<Model>, os: &Process<'_>, link: Link, peer: Pid) -> Result<(), CallError> {
        let Parameters { size_bytes, rounds, warmup_rounds, part, meanwhile, .. } = self.p;
        // The message's page is in use by now: no entry of it is joined with the buffer's.
        link.tell(os, 0)?;
        let (at, len_bytes) = match part {
            Part::Whole => (0, size_bytes),
            Part::Middle => (size_bytes, 3 * size_bytes),
        };
        let mapping = user.map(len_bytes, Prot::RW, Inherit::Copy).map_err(named("map the buffer"))?;
        (0..len_bytes).step_by(PAGE_SIZE).for_each(|page| user.store(mapping + page, &[1]));
        let at = mapping + at;
        let (mut watch, at_first) = (Stopwatch::start(&self.onlooker.model), entries(user));
        let readings = &self.readings;
        for round in 0..warmup_rounds + rounds {
            if round == warmup_rounds {
                watch = Stopwatch::start(&self.onlooker.model);
                let Readings { pass, touch, refill, release, .. } = readings;
                [pass, touch, refill, release].into_iter().for_each(Sum::clear);
            }
            if round == 0 || !meanwhile {
                readings.refill.add(user, "fill the buffer", || self.fill(user, at, round))?;
            }
            let before = entries(user);
            let id = readings.pass.add(user, "export", || match self.p.by.mode() {
                Some(mode) => user.export(at, size_bytes, mode, ExportTo::Process(peer)),
                None => user.export_loan(at, size_bytes, ExportTo::Process(peer)),
            })?;
            self.agree(os, link, id.0)?;
            readings.sender_added.set(entries(user) - before);
            self.check_sender(user, at, round);
            if meanwhile {
                readings.refill.add(user, "fill the buffer", || self.fill(user, at, round + 1))?;
            }
            self.agree(os, link, 0)?;
            if !self.p.by.is_donation() {
                readings.pass.add(user, "withdraw", || user.withdraw(id))?;
            }
        }
        watch.stop_cycles(&self.onlooker.model, &mut self.onlooker.cell.borrow_mut());
        // Other processes leave what they find in the same place: it is not kept over a call.
        let left = entries(user) - at_first;
        let outcome = &mut *self.onlooker.cell.borrow_mut();
        let parts = [&readings.pass, &readings.touch, &readings.refill, &readings.release];
        let parts = parts.map(|part| part.of_one(rounds));
        let results = [
            ("pass_cycles", parts[0]),
            ("touch_cycles", parts[1]),
            ("refill_cycles", parts[2]),
            ("release_cycles", parts[3]),
            ("moved_cycles_per_page", parts.iter().sum::<f64>() / (size_bytes / PAGE_SIZE) as f64),
            ("sender_entries_added", readings.sender_added.get()),
            ("receiver_entries_added", readings.receiver_added.get()),
            ("sender_entries_left", left),
        ];
        outcome.results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// Fills the buffer for `round`; what was donated is mapped again first, at the same addresses.
    fn fill(&self, user: &User<Model>, at: Va, round: u64) -> Result<(), Errno> {
        if self.p.by == By::Donate && round > 0 {
            user.map_at(MapAddr::Free(at), self.p.size_bytes, Prot::RW, Inherit::Copy)?;
        }
        store_all(user, at, self.payload.chunk(round))
    }

    /// Says a number, and waits for the other's.
    fn agree(&self, os: &Process<'_>, link: Link, number: u64) -> Result<(), CallError> {
        link.tell(os, number)?;
        link.hear(os).map(drop)
    }

    /// What the sender has, now that the receiver has gone over the data.
    fn check_sender(&self, user: &User<Model>, at: Va, round: u64) {
        if self.p.by.is_donation() {
            let there = |page: &usize| user.frame_behind(at + page * PAGE_SIZE).is_some();
            let pages = self.p.size_bytes / PAGE_SIZE;
            if let Some(page) = self.onlooker.model.inspect(|| (0..pages).find(there)) {
                self.onlooker.damage(format!("round {round}: page {page} was donated and is still there"));
            }
            return;
        }
        let expected = if self.p.by == By::Share { self.after_touch(round) } else { round };
        self.check(user, at, expected, "the sender's");
    }

    // ------------------------------------------------------------------------------------------- the receiver

    fn receive(&self, user: &User<Model>, os: &Process<'_>, link: Link) -> Result<(), CallError> {
        let Parameters { size_bytes, by, touch, meanwhile, .. } = self.p;
        let readings = &self.readings;
        // Both have used their pages for messages.
        link.hear(os)?;
        let mut round = 0;
        while let Some(id) = link.hear(os)? {
            let before = entries(user);
            let at = readings.pass.add(user, "import", || user.import(ExportId(id), None))?.at;
            readings.receiver_added.set(entries(user) - before);
            self.check(user, at, round, "what was passed, the receiver's");
            readings.touch.add(user, "go over the data", || match touch {
                Touch::None => Ok(()),
                Touch::Read => {
                    let mut seen = vec![0; size_bytes];
                    user.load(at, &mut seen);
                    Ok(())
                }
                Touch::Write => store_all(user, at, self.payload.chunk(self.after_touch(round))),
            })?;
            self.agree(os, link, 0)?;
            // What is shared is the sender's next by now.
            let refilled = by == By::Share && meanwhile;
            self.check(
                user,
                at,
                if refilled { round + 1 } else { self.after_touch(round) },
                "the receiver's",
            );
            readings.release.add(user, "give the range up", || match by {
                By::Loan => user.anflush(at, size_bytes),
                _ => user.unmap(at, size_bytes),
            })?;
            link.tell(os, 0)?;
            round += 1;
        }
        Ok(())
    }

    /// Which chunk the receiver leaves in what it got in `round`.
    fn after_touch(&self, round: u64) -> u64 {
        if self.p.touch == Touch::Write { round + (1 << 20) } else { round }
    }

    fn check(&self, user: &User<Model>, at: Va, chunk: u64, whose: &str) {
        if let Some(wrong) = self.onlooker.differs(user.pid(), at, self.payload.chunk(chunk)) {
            self.onlooker.damage(format!("byte {wrong} of {whose} is not what it should be"));
        }
    }
}
