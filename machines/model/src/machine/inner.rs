//! What a machine is made of, beneath its handles.

use crate::hw::Hw;
use crate::machine::chance::Chance;
use crate::machine::locks::{LockRef, PendingLock};
use crate::machine::look::Looks;
use crate::machine::options::Options;
use crate::machine::run_error::RunError;
use crate::machine::spinners::Spinner;
use crate::machine::wait::CpuWait;
use crate::watchdog::Pulse;
use corosensei::{Coroutine, Yielder};
use pageferry_hal::{Board, Cause, ContextId, CpuId, CpuSet, Interrupt, Miss, TrapKind, Va};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Where the seed decides, a CPU has a turn while it is no farther ahead of the last: some milliseconds, in which
/// others may do whatever they are at. Were a CPU that is halted until a timer of seconds as good as one that works,
/// much time would go by with nothing done in it, and every host that waits for an answer would give up.
pub(super) const SEEDED_APART_CYCLES: u64 = 10_000_000;

pub(super) type Handler = Rc<dyn Fn(Interrupt)>;
pub(super) type RefillHandler = Rc<dyn Fn(Miss) -> Result<(), TrapKind>>;
pub(super) type Routine = Coroutine<(), (), Option<ContextId>>;

pub(super) struct Thread {
    pub(super) name: String,
    /// Absent while it runs, and when it is over.
    pub(super) routine: Option<Routine>,
    pub(super) yielder: *const Yielder<(), ()>,
    /// The causes in force, innermost last; the first is never popped.
    pub(super) causes: Vec<Cause>,
    /// Spin locks held, in order.
    pub(super) held: Vec<LockRef>,
    /// The spin lock that it waits for.
    pub(super) wants: Option<PendingLock>,
    pub(super) on_cpu: Option<usize>,
    pub(super) over: bool,
}

impl Thread {
    /// Refuses to continue it on `cpu` when it is not free for that.
    ///
    /// # Panics
    /// When it runs on a CPU, or is over.
    #[track_caller]
    pub(super) fn check_free(&self, cpu: CpuId) {
        let name = &self.name;
        assert!(!self.over, "context {name} is to run on {cpu:?}, but is over");
        if let Some(on) = self.on_cpu {
            panic!("context {name} is to run on {cpu:?}, but runs on {:?}", CpuId(on as u8));
        }
    }
}

/// What a CPU spins for: as long as it is as it was, the CPU need not look.
#[derive(Clone)]
pub(super) enum SpinsFor {
    /// A lock, and whether it is held.
    Lock(Rc<Cell<bool>>),
    /// A condition on memory, which was not so when this many acts had been.
    Condition { acts: u64 },
}

/// The machine: hardware, contexts, and which CPU and context execute. Everything that a call needs hangs on it.
pub(crate) struct Inner {
    pub(crate) hw: RefCell<Hw>,
    pub(super) contexts: RefCell<Vec<Thread>>,
    pub(super) handler: RefCell<Option<Handler>>,
    pub(super) refill: RefCell<Option<RefillHandler>>,
    pub(super) board: Board,
    /// How far a CPU may run ahead of the others between calls that must be ordered.
    pub(super) run_ahead: u64,
    /// Where the kernel's text lies, once that is known.
    pub(super) text: Cell<Option<Va>>,
    /// The executing CPU and its context.
    pub(super) cpu: Cell<usize>,
    pub(super) context: Cell<usize>,
    /// The context that each CPU is to run.
    pub(super) current: RefCell<Vec<usize>>,
    /// The lowest clock among the other CPUs that can run.
    pub(super) others_at: Cell<u64>,
    /// Who goes on, where it is not the clocks that decide.
    pub(super) chance: RefCell<Option<Chance>>,
    /// There is that.
    pub(super) seeded: bool,
    pub(super) options: Options,
    /// For each CPU, what it waits for.
    pub(super) waits: RefCell<Vec<Option<CpuWait>>>,
    /// For each CPU that spins, for what.
    pub(super) spins_for: RefCell<Vec<Option<SpinsFor>>>,
    /// Those CPUs.
    pub(super) spinners: Cell<CpuSet>,
    /// Room for what is looked at of them, kept from one time to the next.
    pub(super) those_that_spin: RefCell<Vec<Spinner>>,
    /// How often something was done that may end a wait: a turn in which a CPU did more than to test, an interrupt
    /// handler, an event outside.
    pub(super) acts: Cell<u64>,
    /// Tests of what CPUs wait for, since one has executed anything else.
    pub(super) in_vain: Cell<u64>,
    /// What that was when an interrupt or an event was last taken.
    pub(super) quiet_from: Cell<u64>,
    /// What the watchdog sees of the run, with its last events.
    pub(super) pulse: Arc<Pulse>,
    /// Looks at atomics, since a CPU has done anything else.
    pub(super) looks: RefCell<Looks>,
    /// Which machine it is, of all that the process has made.
    pub(super) number: u64,
    /// What ended the run, when it is more than a panic's words.
    pub(super) failure: RefCell<Option<RunError>>,
    /// True while coroutines run; accounting outside (a test inspecting a finished machine) has no CPU to charge.
    pub(super) running: Cell<bool>,
}

impl Inner {
    pub(crate) fn cpu(&self) -> usize {
        self.cpu.get()
    }

    pub(super) fn clock(&self) -> u64 {
        self.hw.borrow().cpus[self.cpu.get()].clock
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.get()
    }

    pub(crate) fn is_timed(&self) -> bool {
        !self.seeded()
    }

    pub(super) fn seeded(&self) -> bool {
        self.seeded
    }

    pub(super) fn describe_contexts(&self) -> String {
        let contexts = self.contexts.borrow();
        let left: Vec<_> = contexts.iter().filter(|c| !c.over).map(|c| c.name.as_str()).collect();
        left.join(", ")
    }

    /// Ends the run with `error`: a panic, so that its words and the stack are seen where panics are, of which
    /// `Model::run` gives the error itself.
    pub(super) fn fail(&self, error: RunError) -> ! {
        let text = error.to_string();
        self.failure.borrow_mut().get_or_insert(error);
        panic!("{text}");
    }
}
