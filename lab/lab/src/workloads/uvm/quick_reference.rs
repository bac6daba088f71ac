//! Looks into another process's memory: by quick reference, or by passing the pages (UVM paper, 4.3.1), and what is
//! left of that process's map.
//!
//! A process has one mapping, which it has written or never touched. Its parent, a debugger, looks at a few pages at
//! one place after another, and reads or writes them:
//!
//! * *quick*: as `ptrace` does, through quick references.
//! * *share*: the pages are passed to the parent as a shared mapping, copied from or to, and unmapped.
//! * *copy*: they are passed as a copy; what is written is the parent's own then, so it only reads.
//!
//! Afterwards the process writes all of its memory once more and forks, as a map that was cut makes both dearer. What
//! was read or written is compared with what the process has.

use super::{Sum, entries, store_all};
use crate::error::LabError;
use crate::kit::{
    CallError, Onlooker, OutcomeCell, Payload, Process, Stopwatch, first_process, named, other_process,
};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{Prot, Va};
use pageferry_kernel::{Errno, Pid, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, PassMode, Space, pass};
use pageferry_workloads::Link;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

crate::choice! {
    /// How the parent looks.
    pub(crate) enum By { Quick = "quick", Share = "share", Copy = "copy" }
}

crate::choice! {
    /// What the parent does.
    pub(crate) enum Rw { Read = "read", Write = "write" }
}

crate::choice! {
    /// What the process did with its memory before.
    pub(crate) enum Memory { Written = "written", Untouched = "untouched" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        look_bytes: usize = 4096..=61440,
        looks: usize = 1..=1 << 16,
        map_bytes: usize = 65536..=1 << 28,
        by: By,
        rw: Rw,
        memory: Memory,
    }
}

pub(crate) struct QuickReference {
    p: Parameters,
    onlooker: Onlooker,
    contents: Payload,
    /// The process that is looked at, and where its mapping is.
    target: RefCell<Option<(Arc<Space<Model>>, Va)>>,
    look: Sum,
    stores: Sum,
    fork: Sum,
}

impl Workload for QuickReference {
    const NAME: &'static str = "quick-reference";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        (p.look_bytes as u64).saturating_mul(p.looks as u64) / 800 + p.map_bytes as u64 / 400 + 1000
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "look_cycles",
                "cycles",
                "Modelled time of a look: of the calls, and of the copy in them.",
            ),
            metric("source_entries_added", "count", "Map entries that the process has more after all looks."),
            metric(
                "holder_entries_added",
                "count",
                "Map entries that the one who looked has more after all looks.",
            ),
            metric(
                "source_store_cycles",
                "cycles",
                "Modelled time in which the process then writes all its memory.",
            ),
            metric("source_fork_cycles", "cycles", "Modelled time of a fork of the process after that."),
        ]
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        if p.by == By::Copy && p.rw == Rw::Write {
            return Err(
                testbed.incompatible("by=copy: expected rw=read, as what is written to a copy is lost")
            );
        }
        testbed.needs_whole_pages("look_bytes", p.look_bytes)?;
        testbed.needs_whole_pages("map_bytes", p.map_bytes)?;
        let buffers = 3 * p.map_bytes;
        let work = Rc::new(QuickReference {
            onlooker: Onlooker::new(&testbed.model, &cell),
            contents: Payload::new(testbed.seed, p.map_bytes),
            target: RefCell::default(),
            look: Sum::default(),
            stores: Sum::default(),
            fork: Sum::default(),
            p,
        });
        Ok(first_process(cell, buffers, move |user| work.run(user)))
    }
}

impl QuickReference {
    fn run(self: Rc<Self>, user: &User<Model>) -> Result<(), CallError> {
        let os = Process::new(user, &self.onlooker);
        let (own, theirs) = Link::pair(&os)?;
        let work = self.clone();
        let source = other_process(self.onlooker.cell.clone(), move |user| {
            let os = Process::new(user, &work.onlooker);
            own.close(&os)?;
            work.be_looked_at(user, &os, theirs.with_message(&os)?)
        });
        let source = user.fork("debugged", source).map_err(named("fork"))?;
        theirs.close(&os)?;
        let result = own.with_message(&os).and_then(|link| self.debug(user, &os, link, source));
        own.close(&os)?;
        self.target.take();
        user.wait().map_err(named("wait"))?;
        result
    }

    /// The process that is looked at.
    fn be_looked_at(&self, user: &User<Model>, os: &Process<'_>, link: Link) -> Result<(), CallError> {
        let Parameters { map_bytes, memory, .. } = self.p;
        // The message's page is in use by then: its entry is not joined with the mapping's.
        link.tell(os, 0)?;
        let at = user.map(map_bytes, Prot::RW, Inherit::Copy).map_err(named("map"))?;
        if memory == Memory::Written {
            user.store(at, self.contents.chunk(0));
        }
        self.target.replace(Some((user.space().clone(), at)));
        link.tell(os, 0)?;
        if link.hear(os)?.is_none() {
            return Ok(());
        }
        self.stores.add(user, "write", || store_all(user, at, self.contents.chunk(1)))?;
        self.fork.add(user, "fork", || user.fork("child", Box::new(|_| ())))?;
        user.wait().map_err(named("wait"))?;
        link.tell(os, 0)
    }

    /// The one who looks.
    fn debug(&self, user: &User<Model>, os: &Process<'_>, link: Link, source: Pid) -> Result<(), CallError> {
        let Parameters { look_bytes, looks, .. } = self.p;
        link.hear(os)?;
        let own = user.map(look_bytes, Prot::RW, Inherit::Copy).map_err(named("map a buffer"))?;
        user.store(own, &self.contents.chunk(2)[..look_bytes]);
        link.hear(os)?;
        let target = self.target.borrow().clone();
        let (space, at) = target.ok_or(("be told of the process", Errno::NoProcess))?;
        let count = |space: &Space<Model>| space.entry_count(user.thread()) as f64;
        // The first look is not measured: it finds cold caches.
        let (theirs, mine) = (count(&space), entries(user));
        let mut watch = Stopwatch::start(&self.onlooker.model);
        for look in 0..=looks {
            if look == 1 {
                self.look.clear();
                watch = Stopwatch::start(&self.onlooker.model);
            }
            let place = self.place(look);
            self.look.add(user, "look", || self.look_at(user, source, &space, at + place, own))?;
            self.check(user, source, (at + place, place), own);
        }
        watch.stop_cycles(&self.onlooker.model, &mut self.onlooker.cell.borrow_mut());
        let added = [count(&space) - theirs, entries(user) - mine];
        drop(space);
        let mut results = vec![
            ("look_cycles", self.look.of_one(looks as u64)),
            ("source_entries_added", added[0]),
            ("holder_entries_added", added[1]),
        ];
        // The process's turn.
        link.tell(os, 0)?;
        link.hear(os)?;
        results.push(("source_store_cycles", self.stores.of_one(1)));
        results.push(("source_fork_cycles", self.fork.of_one(1)));
        let outcome = &mut *self.onlooker.cell.borrow_mut();
        outcome.results.extend(results.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// Where in the mapping a look is: all over it, and not twice at the same place as long as there are others.
    fn place(&self, look: usize) -> usize {
        let places = self.p.map_bytes / self.p.look_bytes;
        // A step that is prime to most counts.
        (look * 7919 % places) * self.p.look_bytes
    }

    fn look_at(
        &self,
        user: &User<Model>,
        source: Pid,
        space: &Space<Model>,
        theirs: Va,
        own: Va,
    ) -> Result<(), Errno> {
        let Parameters { look_bytes, by, rw, .. } = self.p;
        let mode = match by {
            By::Quick if rw == Rw::Read => {
                return user.ptrace_read(source, theirs, own, look_bytes).map(drop);
            }
            By::Quick => return user.ptrace_write(source, theirs, own, look_bytes).map(drop),
            By::Share => PassMode::Share,
            By::Copy => PassMode::Copy,
        };
        user.system_call(|call| {
            let there = pass(space, call.space, call.thread, theirs, look_bytes, None, mode)?;
            let (to, from) = if rw == Rw::Read { (own, there) } else { (there, own) };
            let copied = call.copy_out(to, from, look_bytes).map_err(|stopped| stopped.why);
            call.space.unmap(call.thread, there, look_bytes)?;
            copied
        })
    }

    /// Compares what was read, or what the process has now.
    fn check(&self, user: &User<Model>, source: Pid, (theirs, place): (Va, usize), own: Va) {
        let Parameters { look_bytes, rw, memory, .. } = self.p;
        let zeros = vec![0; look_bytes];
        let (whose, at, expected) = match (rw, memory) {
            (Rw::Write, _) => (source, theirs, &self.contents.chunk(2)[..look_bytes]),
            (Rw::Read, Memory::Written) => {
                (user.pid(), own, &self.contents.chunk(0)[place..place + look_bytes])
            }
            (Rw::Read, Memory::Untouched) => (user.pid(), own, &zeros[..]),
        };
        if let Some(wrong) = self.onlooker.differs(whose, at, expected) {
            self.onlooker.damage(format!("byte {wrong} of what was looked at is not what it should be"));
        }
    }
}
