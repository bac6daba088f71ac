//! Ends the process when code under test never comes back to the machine.
//!
//! # What it holds
//! A [`Pulse`] for each run: a count that each call on the machine moves on, which context runs, and the events that
//! are kept. The run's thread writes it; the watchdog, one thread of the process, reads it ten times a second.
//!
//! # Why a thread, and why an end of the process
//! Contexts are coroutines on one host thread. One that loops without a call on the machine, as on an atomic of `core`
//! that another CPU is to set, keeps that thread for ever: no other CPU runs, and no panic can be raised in it from
//! outside. What can be done is to say where it is, and to end.
//!
//! # Time
//! What is counted is the watchdog's own ticks: a process that was stopped, or a host that slept, makes one of them.
//! Only kernel code is timed; not the machine, nor what is at the far end of a wire.
//!
//! # Locks
//! The list of runs, then a pulse's names or events; each for some lines, and none across a call into kernel code.

use crate::machine::event::Events;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);
/// Events that the message tells.
const TOLD: usize = 20;

/// What a run lets the watchdog see.
pub(crate) struct Pulse {
    /// Calls on the machine.
    calls: AtomicU64,
    /// Turns of contexts.
    turns: AtomicU64,
    /// One more than the CPU that executes kernel code; 0 while none does.
    inside: AtomicUsize,
    context: AtomicUsize,
    /// The contexts' names, by number.
    names: Mutex<Vec<String>>,
    pub(crate) events: Mutex<Events>,
}

/// A lock that a panic has left is as good as any: what it guards is whole between two statements.
pub(crate) fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pulse {
    pub(crate) fn new(keep_events: usize) -> Arc<Pulse> {
        Arc::new(Pulse {
            calls: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            inside: AtomicUsize::new(0),
            context: AtomicUsize::new(0),
            names: Mutex::default(),
            events: Mutex::new(Events::with_room(keep_events)),
        })
    }

    /// A call on the machine. One thread writes: no addition has to be atomic.
    #[inline]
    pub(crate) fn call(&self) {
        self.calls.store(self.calls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// A context goes on, on this CPU.
    pub(crate) fn enter(&self, cpu: usize, context: usize) {
        self.context.store(context, Relaxed);
        self.inside.store(cpu + 1, Relaxed);
        self.turns.store(self.turns.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// No kernel code runs; gives what did, for [`Pulse::resume`].
    pub(crate) fn leave(&self) -> usize {
        self.inside.swap(0, Relaxed)
    }

    /// As it was before [`Pulse::leave`].
    pub(crate) fn resume(&self, inside: usize) {
        self.call();
        self.inside.store(inside, Relaxed);
    }

    pub(crate) fn name_context(&self, name: &str) {
        hold(&self.names).push(name.into());
    }
}

/// A run that is watched, until this is dropped.
pub(crate) struct Watch(Arc<Pulse>);

impl Drop for Watch {
    fn drop(&mut self) {
        hold(&RUNS).retain(|run| !std::ptr::eq(run.pulse.as_ptr(), Arc::as_ptr(&self.0)));
    }
}

struct Run {
    pulse: Weak<Pulse>,
    /// Ticks without a call after which the process ends.
    limit: u64,
    /// What is told of the run: its thread, and its schedule.
    what: String,
    /// Calls and turns up to the last tick.
    seen: (u64, u64),
    ticks: u64,
}

static RUNS: Mutex<Vec<Run>> = Mutex::new(Vec::new());
static BEGUN: Condvar = Condvar::new();

/// Watches a run: no call of it may take longer than `limit`. `schedule` is told.
pub(crate) fn watch(pulse: &Arc<Pulse>, limit: Duration, schedule: &dyn std::fmt::Display) -> Watch {
    static WATCHDOG: std::sync::Once = std::sync::Once::new();
    WATCHDOG.call_once(|| {
        let begun = std::thread::Builder::new().name("pageferry watchdog".into()).spawn(look);
        // A host without room for a thread has its runs unwatched.
        drop(begun);
    });
    let thread = std::thread::current();
    let thread = thread.name().map_or("a thread without a name".into(), |name| format!("thread `{name}`"));
    let limit = (limit.as_millis() / TICK.as_millis()).max(1) as u64;
    let what = format!("{thread}, {schedule}");
    hold(&RUNS).push(Run { pulse: Arc::downgrade(pulse), limit, what, seen: (0, 0), ticks: 0 });
    BEGUN.notify_all();
    Watch(pulse.clone())
}

/// Looks at all runs, tick by tick.
fn look() {
    loop {
        let runs = BEGUN.wait_while(hold(&RUNS), |runs| runs.is_empty());
        drop(runs);
        std::thread::sleep(TICK);
        for run in hold(&RUNS).iter_mut() {
            let Some(pulse) = run.pulse.upgrade() else { continue };
            let (seen, inside) = ((pulse.calls(), pulse.turns.load(Relaxed)), pulse.inside.load(Relaxed));
            if inside == 0 || seen != run.seen {
                (run.seen, run.ticks) = (seen, 0);
                continue;
            }
            run.ticks += 1;
            if run.ticks >= run.limit {
                // Not by `eprintln`, which a test's harness keeps for the end of the test: there is none.
                let _ = std::io::stderr().write_all(message(run, &pulse, inside - 1).as_bytes());
                std::process::abort();
            }
        }
    }
}

fn message(run: &Run, pulse: &Pulse, cpu: usize) -> String {
    let names = hold(&pulse.names);
    let context = names.get(pulse.context.load(Relaxed)).map_or("?", String::as_str);
    let took = TICK * u32::try_from(run.limit).unwrap_or(u32::MAX);
    let mut text = format!(
        "\npageferry-model: cpu{cpu}, context {context}, has called nothing of the machine for {took:?} of the host's \
         time ({}). No other CPU can run meanwhile, so the process ends.\n\
         It most likely waits for another CPU in a way that the machine does not know: in a loop on an atomic of \
         `core` or `std` or on a `Cell`, at a lock of `std`, or for `now` to change. Atomics of \
         `pageferry_model::sync`, locks of `Machine::new_lock`, `spin_until` and `execute` let other CPUs run. Where \
         it only computes for long, raise `Options::host_limit`.\n",
        run.what
    );
    let events = hold(&pulse.events);
    if events.room == 0 {
        text += "What CPUs did last is not known: `Options::keep_events` says how many events are kept.\n";
    } else {
        text += "What CPUs did last:\n";
        let few = events.last.len().saturating_sub(TOLD);
        for noted in events.last.iter().skip(few) {
            text += &format!("{}\n", noted.named(&names[noted.context]));
        }
    }
    text
}
