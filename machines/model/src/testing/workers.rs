//! CPUs that do what a test hands them: what a kernel's floor is tested on that has no scheduler.
//!
//! One CPU runs the test. Each of the others is halted until it is handed a job, does it, and interrupts the CPU that
//! handed it out, which may be halted too. A job gets what the test has (`C`): a kernel, or what there is of one. The
//! interrupts are [`Interrupt::Reschedule`], for which the kernel's handler need do nothing.

use crate::machine::Model;
use pageferry_hal::{CpuId, CpuSet, Interrupt, Machine};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a CPU is handed.
pub type Job<C> = Box<dyn FnOnce(&C)>;

/// The CPUs of a machine that wait for jobs.
pub struct Workers<C> {
    m: Model,
    /// By CPU.
    jobs: RefCell<Vec<Option<Job<C>>>>,
    /// By CPU: which CPU handed out the job that is not done.
    busy: Vec<Cell<Option<CpuId>>>,
    /// CPUs that have begun.
    begun: Cell<usize>,
    over: Cell<bool>,
}

impl<C: Clone + 'static> Workers<C> {
    /// None is at work yet.
    pub fn new(m: &Model) -> Rc<Workers<C>> {
        let cpus = m.board().cpus;
        Rc::new(Workers {
            m: m.clone(),
            jobs: RefCell::new((0..cpus).map(|_| None).collect()),
            busy: vec![Cell::new(None); cpus],
            begun: Cell::new(0),
            over: Cell::new(false),
        })
    }

    /// Starts all CPUs but the first. Each does what comes before its first job and what comes after its last.
    pub fn start_cpus(self: &Rc<Self>, with: &C, before: fn(&C), after: fn(&C)) {
        for cpu in 1..self.busy.len() {
            let (workers, with) = (self.clone(), with.clone());
            let work = move || {
                before(&with);
                workers.begun.set(workers.begun.get() + 1);
                workers.work(cpu, &with);
                after(&with);
                None
            };
            self.m.start_cpu(CpuId(cpu as u8), self.m.context_new(&format!("cpu{cpu}"), Box::new(work)));
        }
    }

    /// Waits until all that were started are ready for a job. They interrupt no CPU for that.
    pub fn wait_until_ready(&self) {
        self.m.spin_until(&mut || self.begun.get() == self.busy.len() - 1);
    }

    fn work(&self, cpu: usize, with: &C) {
        loop {
            self.m.idle_until(&mut || self.over.get() || self.jobs.borrow()[cpu].is_some());
            let Some(job) = self.jobs.borrow_mut()[cpu].take() else { return };
            job(with);
            let from = self.busy[cpu].take().expect("it was handed out");
            self.m.send_ipi(CpuSet::only(from), Interrupt::Reschedule);
        }
    }

    /// Hands a job to `cpu`, another than the executing one, and does not wait.
    ///
    /// # Panics
    /// When `cpu` has a job.
    pub fn start(&self, cpu: usize, job: impl FnOnce(&C) + 'static) {
        assert!(self.busy[cpu].replace(Some(self.m.cpu())).is_none(), "cpu{cpu} is not free");
        self.jobs.borrow_mut()[cpu] = Some(Box::new(job));
        self.m.send_ipi(CpuSet::only(CpuId(cpu as u8)), Interrupt::Reschedule);
    }

    /// Waits until `cpu` has done the job that it was handed by the executing CPU, if there is one.
    pub fn wait(&self, cpu: usize) {
        self.m.idle_until(&mut || self.busy[cpu].get().is_none());
    }

    /// Waits for all: see [`Workers::wait`].
    pub fn wait_for_all(&self) {
        (0..self.busy.len()).for_each(|cpu| self.wait(cpu));
    }

    /// Has `cpu`, another than the executing one, do a job, and waits for it.
    ///
    /// # Panics
    /// As [`Workers::start`].
    pub fn on<R: 'static>(&self, cpu: usize, job: impl FnOnce(&C) -> R + 'static) -> R {
        let result = Rc::new(Cell::new(None));
        let slot = result.clone();
        self.start(cpu, move |with| slot.set(Some(job(with))));
        self.wait(cpu);
        result.take().expect("the job is done")
    }

    /// Lets the CPUs end that have no job.
    pub fn dismiss(&self) {
        self.over.set(true);
        let others = self.m.cpus().difference(CpuSet::only(self.m.cpu()));
        if !others.is_empty() {
            self.m.send_ipi(others, Interrupt::Reschedule);
        }
    }
}
