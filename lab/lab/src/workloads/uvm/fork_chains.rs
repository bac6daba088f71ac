//! What copy-on-write leaves behind: fork, writes and exits, over and over or one within the other (UVM paper, 2.1).
//!
//! * `server`: a process with memory forks a child; both write a page of it while the other lives, the child ends, and
//!   the next is forked. With `paged`, a third process takes all of memory while both live, so that what they have goes
//!   to the swap area; with `settle`, the first writes one page more when the child has ended. Asked is what is held in
//!   the end for as many pages as the process has, and how long a round takes.
//! * `depth`: each process forks the next and writes a page of its own first, and all live. The last reads, and then
//!   writes, pages that none has written since the first. Asked is what a fault costs.
//!
//! Every byte that is read is compared with what was written.

use super::Sum;
use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Stopwatch, first_process, named, other_process};
use crate::record::{Metric, metric};
use crate::run::{Testbed, Workload};
use pageferry_hal::{Machine as _, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::Inherit;
use std::cell::Cell;
use std::rc::Rc;

crate::choice! {
    /// How the forks follow each other.
    pub(crate) enum Of { Server = "server", Depth = "depth" }
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        size_bytes: usize = 4096..=1 << 26,
        forks: usize = 1..=1 << 12,
        of: Of,
        /// Memory goes to the swap area while parent and child live.
        paged: bool,
        /// The parent writes a page when it is alone again.
        settle: bool,
    }
}

pub(crate) struct ForkChains {
    p: Parameters,
    model: Model,
    cell: OutcomeCell,
    /// A page that all see, for what they say to each other.
    note: Cell<Va>,
    read: Sum,
    write: Sum,
}

impl Workload for ForkChains {
    const NAME: &'static str = "fork-chains";

    type Parameters = Parameters;

    fn weight(p: &Parameters, machine: &MachineConfig) -> u64 {
        let eaten = if p.paged { machine.board().frames as u64 } else { 0 };
        (p.size_bytes as u64 / 4096 + eaten + 200).saturating_mul(p.forks as u64)
    }

    fn metrics() -> Vec<Metric> {
        vec![
            metric(
                "chain_objects",
                "count",
                "Objects of the longest chain in the end; where there are no shadow objects, 0.",
            ),
            metric(
                "held_pages",
                "pages",
                "Frames and slots of the swap area that the memory takes in the end, a page in both once.",
            )
            .of_some_runs(),
            metric(
                "lost_pages",
                "pages",
                "Those of them that hold what no process can reach; where there are no shadow objects, 0.",
            )
            .of_some_runs(),
            metric("swap_slots", "pages", "Slots of the swap area that are taken in the end.").of_some_runs(),
            metric(
                "round_cycles",
                "cycles",
                "Modelled time of a fork, its writes, its paging, and the child's end.",
            )
            .of_some_runs(),
            metric(
                "read_fault_cycles",
                "cycles",
                "Modelled time of the last process's first load from a page.",
            )
            .of_some_runs(),
            metric(
                "write_fault_cycles",
                "cycles",
                "Modelled time of its first store to a page that it has read.",
            )
            .of_some_runs(),
        ]
    }

    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        testbed.needs_whole_pages("size_bytes", p.size_bytes)?;
        let pages = p.size_bytes / PAGE_SIZE;
        if p.of == Of::Depth && (pages <= p.forks || p.forks > MAX_DEPTH || p.paged) {
            return Err(testbed.incompatible(format!(
                "of=depth: expected a page of its own for each process and one to read, {MAX_DEPTH} forks at most, and \
                 paged=false"
            )));
        }
        if p.paged && testbed.kernel.file.paging().is_none() {
            return Err(testbed.incompatible("paged=true: expected a kernel with [paging]"));
        }
        let work = Rc::new(ForkChains {
            model: testbed.model.clone(),
            cell: cell.clone(),
            note: Cell::new(Va(0)),
            read: Sum::default(),
            write: Sum::default(),
            p,
        });
        let buffers = work.p.size_bytes;
        Ok(first_process(cell, buffers, move |user| match work.p.of {
            Of::Server => work.server(user),
            Of::Depth => work.clone().first(user),
        }))
    }
}

/// Processes that live at a time, at most.
const MAX_DEPTH: usize = 24;

/// Frames that the process which takes all of memory wants beyond what is free.
const BEYOND_PAGES: usize = 64;

impl ForkChains {
    fn pages(&self) -> usize {
        self.p.size_bytes / PAGE_SIZE
    }

    /// Memory whose pages begin with their numbers.
    fn memory(&self, user: &User<Model>) -> Result<Va, CallError> {
        let at = user.map(self.p.size_bytes, Prot::RW, Inherit::Copy).map_err(named("map memory"))?;
        (0..self.pages()).for_each(|page| self.put(user, at, page, page as u32));
        Ok(at)
    }

    fn put(&self, user: &User<Model>, at: Va, page: usize, value: u32) {
        user.store(at + page * PAGE_SIZE, &value.to_le_bytes());
    }

    fn check(&self, user: &User<Model>, at: Va, page: usize, expected: u32) {
        let mut found = [0; 4];
        user.load(at + page * PAGE_SIZE, &mut found);
        if found != expected.to_le_bytes() {
            let found = u32::from_le_bytes(found);
            self.cell.borrow_mut().damage(format!("page {page} has {found}, not {expected}"));
        }
    }

    // ------------------------------------------------------------------------------------------- one after the other

    fn server(self: &Rc<Self>, user: &User<Model>) -> Result<(), CallError> {
        let note = user.map(PAGE_SIZE, Prot::RW, Inherit::Share).map_err(named("map a page"))?;
        self.note.set(note);
        user.store(note, &[1]);
        let eater = if self.p.paged { Some(self.eater(user)?) } else { None };
        // Its page tables are not what is asked for.
        eater.iter().try_for_each(|eater| self.eat(user, eater))?;
        let vm = user.kernel().vm();
        let held = || {
            let swap = vm.swap_census();
            (vm.free_frames() as f64, swap.only as f64, (swap.slots - swap.free - swap.bad) as f64)
        };
        let before = self.model.inspect(held);
        let at = self.memory(user)?;
        let mut expected: Vec<u32> = (0..self.pages() as u32).collect();
        let mut rounds = 0.0;
        let watch = Stopwatch::start(&self.model);
        for round in 0..self.p.forks {
            let began = self.model.now();
            let (page, value) = (2 * round + 1, (1 << 16) + round as u32);
            let page = page % self.pages();
            self.round(user, at, round, (page, value), eater.as_ref())?;
            expected[page] = value;
            if self.p.settle {
                let page = (self.pages() / 2 + 2 + round) % self.pages();
                self.put(user, at, page, value);
                expected[page] = value;
            }
            rounds += self.model.now().saturating_sub(began).0 as f64;
        }
        watch.stop_cycles(&self.model, &mut self.cell.borrow_mut());
        let (census, after) = self.model.inspect(|| (vm.shadow_census(), held()));
        expected.iter().enumerate().for_each(|(page, &value)| self.check(user, at, page, value));
        let results = [
            ("chain_objects", census.longest_chain as f64),
            ("held_pages", before.0 - after.0 + after.1 - before.1),
            ("lost_pages", census.lost as f64),
            ("swap_slots", after.2),
            ("round_cycles", rounds / self.p.forks as f64),
        ];
        self.cell.borrow_mut().results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        match eater {
            Some(eater) => {
                user.close(eater.say_go).map_err(named("close"))?;
                user.wait().map(drop).map_err(named("wait"))
            }
            None => Ok(()),
        }
    }

    /// A child writes one page, then the parent another, then the child ends.
    fn round(
        self: &Rc<Self>,
        user: &User<Model>,
        at: Va,
        round: usize,
        (page, value): (usize, u32),
        eater: Option<&Eater>,
    ) -> Result<(), CallError> {
        let (go, say_go) = user.pipe().map_err(named("pipe"))?;
        let (wrote, say_wrote) = user.pipe().map_err(named("pipe"))?;
        let work = self.clone();
        let child = other_process(self.cell.clone(), move |user| {
            work.put(user, at, 2 * round % work.pages(), u32::MAX);
            work.ring(user, say_wrote)?;
            work.listen(user, go).map(drop)
        });
        user.fork("child", child).map_err(named("fork"))?;
        self.listen(user, wrote)?;
        self.put(user, at, page, value);
        eater.map_or(Ok(()), |eater| self.eat(user, eater))?;
        self.ring(user, say_go)?;
        user.wait().map_err(named("wait"))?;
        [go, say_go, wrote, say_wrote].into_iter().try_for_each(|fd| user.close(fd)).map_err(named("close"))
    }

    /// A process that takes all of memory when it is told to, and gives it back.
    fn eater(self: &Rc<Self>, user: &User<Model>) -> Result<Eater, CallError> {
        let (go, say_go) = user.pipe().map_err(named("pipe"))?;
        let (done, say_done) = user.pipe().map_err(named("pipe"))?;
        let work = self.clone();
        let beyond = self.pages() + BEYOND_PAGES;
        let eater = other_process(self.cell.clone(), move |user| {
            user.close(say_go).map_err(named("close"))?;
            while work.listen(user, go)? {
                let len = (user.kernel().vm().free_frames() + beyond) * PAGE_SIZE;
                let at = user.map(len, Prot::RW, Inherit::None).map_err(named("map all of memory"))?;
                (0..len).step_by(PAGE_SIZE).for_each(|page| user.store(at + page, &[1]));
                user.unmap(at, len).map_err(named("unmap"))?;
                work.ring(user, say_done)?;
            }
            Ok(())
        });
        user.fork("eater", eater).map_err(named("fork"))?;
        Ok(Eater { say_go, done })
    }

    fn eat(&self, user: &User<Model>, eater: &Eater) -> Result<(), CallError> {
        self.ring(user, eater.say_go)?;
        self.listen(user, eater.done).map(drop)
    }

    /// Says something to whoever listens.
    fn ring(&self, user: &User<Model>, to: Fd) -> Result<(), CallError> {
        user.write(to, self.note.get(), 1).map(drop).map_err(named("write"))
    }

    /// Waits for that; false when nobody is left to say it.
    fn listen(&self, user: &User<Model>, to: Fd) -> Result<bool, CallError> {
        Ok(user.read(to, self.note.get(), 1).map_err(named("read"))? > 0)
    }

    // ------------------------------------------------------------------------------------------- one within the other

    fn first(self: Rc<Self>, user: &User<Model>) -> Result<(), CallError> {
        let at = self.memory(user)?;
        let watch = Stopwatch::start(&self.model);
        self.clone().descend(user, at, self.p.forks)?;
        watch.stop_cycles(&self.model, &mut self.cell.borrow_mut());
        // Nothing of what the others wrote is seen here.
        (0..self.pages()).for_each(|page| self.check(user, at, page, page as u32));
        let pages = (self.pages() - self.p.forks) as u64;
        let results = [
            ("read_fault_cycles", self.read.of_one(pages)),
            ("write_fault_cycles", self.write.of_one(pages)),
        ];
        self.cell.borrow_mut().results.extend(results.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// Forks `left` processes, each from the one before.
    fn descend(self: Rc<Self>, user: &User<Model>, at: Va, left: usize) -> Result<(), CallError> {
        if left == 0 {
            return self.last(user, at);
        }
        let work = self.clone();
        let next = other_process(self.cell.clone(), move |user| {
            work.put(user, at, left - 1, u32::MAX);
            work.descend(user, at, left - 1)
        });
        user.fork("child", next).map_err(named("fork"))?;
        user.wait().map(drop).map_err(named("wait"))
    }

    fn last(&self, user: &User<Model>, at: Va) -> Result<(), CallError> {
        let census = self.model.inspect(|| user.kernel().vm().shadow_census());
        let chain = ("chain_objects".to_owned(), census.longest_chain as f64);
        self.cell.borrow_mut().results.extend([chain]);
        for page in self.p.forks..self.pages() {
            self.read.add(user, "load", || {
                self.check(user, at, page, page as u32);
                Ok(())
            })?;
            self.write.add(user, "store", || {
                self.put(user, at, page, u32::MAX);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// How the process that takes all of memory is told to.
struct Eater {
    say_go: Fd,
    done: Fd,
}
